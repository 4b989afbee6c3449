//! Statistics of the process's devices, reported when it ends.

mod file;
pub mod page;
mod place;
mod report;

pub use file::STATISTICS;
pub use report::{service as service_name, state as state_name};

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::OnceLock;

use irnic_nic::Nic;
use irnic_ports::PortCounters;
use irnic_ports::frames::FrameCounters;
use irnic_ports::host::HostCounters;
use irnic_ports::impair;
use irnic_ports::output::Output;
use irnic_transports::qp::{Counters, Qp, QpState, QpStats, Service};

use crate::config::{Stats, file_of};

/// Number of queue pairs that are recorded individually after they are destroyed; later ones only in sum.
const REMEMBERED: usize = 1024;
/// One queue pair.
#[derive(Clone, Debug)]
pub(crate) struct QpRecord {
    /// Queue pair number.
    pub(crate) number: u32,
    /// Transport service.
    pub(crate) service: Service,
    /// Its final state.
    pub(crate) state: QpState,
    /// Whether the application destroyed the queue pair.
    pub(crate) destroyed: bool,
    /// Number and address of the peer that it was connected to.
    pub(crate) peer: Option<(u32, IpAddr)>,
    /// Its statistics.
    pub(crate) stats: QpStats,
}

impl QpRecord {
    /// Returns the record of a queue pair; `None` if the NIC has none with this number.
    pub(crate) fn of(nic: &Nic, number: u32, destroyed: bool) -> Option<QpRecord> {
        let qp = nic.qp(number)?;
        let (service, state) = (qp.service(), qp.state());
        Some(QpRecord { number, service, state, destroyed, peer: QpRecord::peer_of(qp), stats: qp.stats() })
    }

    /// Returns number and address of the peer of a queue pair.
    fn peer_of(qp: &Qp) -> Option<(u32, IpAddr)> {
        qp.path().filter(|_| qp.service() != Service::Ud).map(|path| (qp.dest_qp(), path.dst))
    }
}

/// Destroyed queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    records: Vec<QpRecord>,
    /// Number and sum of those beyond the limit.
    others: (u64, QpStats),
}

impl Ledger {
    /// Records a destroyed queue pair.
    pub(crate) fn remember(&mut self, record: QpRecord) {
        if self.records.len() < REMEMBERED {
            self.records.push(record);
        } else {
            self.others.0 += 1;
            add(&mut self.others.1, &record.stats);
        }
    }
}

fn add(to: &mut QpStats, more: &QpStats) {
    to.counts.add(&more.counts);
    to.rtt.merge(&more.rtt);
}

/// Statistics of a device.
#[derive(Debug)]
pub(crate) struct DeviceStats {
    /// Name of the device.
    pub(crate) name: String,
    /// Transport of RC queue pairs.
    pub(crate) transport: String,
    /// The device's counters.
    pub(crate) counters: Counters,
    /// Counters of the port.
    pub(crate) port: PortCounters,
    /// Counters of links to other processes.
    pub(crate) host: HostCounters,
    /// Counters of a frame port; `None` for other ports.
    pub(crate) frames: Option<FrameCounters>,
    /// Impairments of frames sent and received.
    pub(crate) impairments: Option<[impair::Report; 2]>,
    /// Queue pairs in the order of their numbers, destroyed ones first.
    pub(crate) queue_pairs: Vec<QpRecord>,
    /// Number of further queue pairs, and their sum.
    pub(crate) others: (u64, QpStats),
}

impl DeviceStats {
    /// Adds the statistics of another unit of the device.
    pub(crate) fn add_unit(&mut self, unit: DeviceStats) {
        self.counters.add(&unit.counters);
        self.port.add(&unit.port);
        self.host.add(&unit.host);
        // Only devices of one unit have frames or impairments.
        self.queue_pairs.extend(unit.queue_pairs);
        self.queue_pairs.sort_by_key(|qp| (!qp.destroyed, qp.number));
        self.others.0 += unit.others.0;
        add(&mut self.others.1, &unit.others.1);
    }

    /// Returns the sum of all queue pairs.
    pub(crate) fn total(&self) -> QpStats {
        let mut total = self.others.1.clone();
        self.queue_pairs.iter().for_each(|qp| add(&mut total, &qp.stats));
        total
    }

    /// Adds queue pairs: those of the ledger, and the live ones.
    pub(crate) fn add_queue_pairs(&mut self, ledger: &Ledger, nic: &Nic, numbers: impl Iterator<Item = u32>) {
        let mut live: Vec<u32> = numbers.collect();
        live.sort_unstable();
        self.queue_pairs.clone_from(&ledger.records);
        self.queue_pairs.extend(live.into_iter().filter_map(|number| QpRecord::of(nic, number, false)));
        self.others.clone_from(&ledger.others);
    }
}

static WANTED: OnceLock<Stats> = OnceLock::new();

/// Sets the destination of statistics. Only the first call has an effect.
pub(crate) fn set_wanted(stats: Stats) {
    let _ = WANTED.set(stats);
}

/// Returns whether statistics are wanted.
pub(crate) fn are_wanted() -> bool {
    !matches!(wanted(), Stats::Off)
}

fn wanted() -> &'static Stats {
    WANTED.get().unwrap_or(&Stats::Off)
}

/// Reports the statistics of devices, if they are wanted.
pub(crate) fn report_all(devices: &[DeviceStats]) {
    if devices.is_empty() {
        return;
    }
    let outcome = match wanted() {
        Stats::Off => Ok(()),
        // One write, so that lines of processes that end together do not mix.
        Stats::Text => io::stderr().write_all((place::new_line() + &report::text(devices)).as_bytes()),
        Stats::Json(path) => {
            let path = file_of(path, std::process::id());
            let opened = Output::replace(&path, &STATISTICS);
            let written =
                opened.and_then(|mut file| Ok(file.write_all(format!("{:#}\n", report::json(devices)).as_bytes())?));
            written.map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
        }
    };
    if let Err(e) = outcome {
        let _ = writeln!(io::stderr(), "irnic: statistics: {e}");
    }
}
