//! Statistics of a unit, as numbers on a [`Sheet`] that other processes of the user read.
//!
//! They are counters of the NIC and of the port, the sum of all queue pairs, and a table of some: live ones by number,
//! then destroyed ones, the latest first.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use irnic_nic::Nic;
use irnic_ports::PortCounters;
use irnic_ports::host_now;
use irnic_ports::sheet::{Sheet, Writing};
use irnic_transports::Time;
use irnic_transports::qp::{Counters, Qp, QpCounts, QpState, QpStats, RttHistogram, Service};

use super::{Ledger, QpRecord, add};

/// The version of the layout below, and of the order of [`Counters`].
const VERSION: u64 = 1;
/// Maximum number of queue pairs in the table.
pub const TABLE: usize = 256;
/// Room for counters, without the table.
const COUNTERS: usize = 256;
/// Number of fields of a queue pair.
const QP: usize = 22;

const SERVICES: [Service; 5] = [Service::Rc, Service::Uc, Service::Ud, Service::XrcInitiator, Service::XrcTarget];
const STATES: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

/// Statistics of queue pairs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct QpFigures {
    /// Counters.
    pub counts: QpCounts,
    /// Round trips measured.
    pub rtt_samples: u64,
    /// Minimum, mean, median, 99th percentile and maximum, ns.
    pub rtt_ns: [u64; 5],
}

/// A queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QpPage {
    /// Its number.
    pub number: u32,
    /// Its transport service.
    pub service: Service,
    /// Its state, or its state when it was destroyed.
    pub state: QpState,
    /// The application has destroyed it.
    pub destroyed: bool,
    /// Number and address of the peer that it is connected to.
    pub peer: Option<(u32, IpAddr)>,
    /// Rate limit of its congestion controller, bit/s; 0 for none.
    pub rate: u64,
    /// Congestion window in packets; 0 for no limit.
    pub window: u64,
    /// Its statistics.
    pub figures: QpFigures,
}

/// Statistics published by a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The host's time when it was published, ns ([`host_now`]).
    pub published: u64,
    /// The time of its NIC then, ns: in a lab, the lab's.
    pub at: u64,
    /// The process was about to exit: it is the final page.
    pub last: bool,
    /// Name of the program, as ps shows it.
    pub program: String,
    /// The NIC's counters.
    pub counters: Counters,
    /// The port's counters.
    pub port: PortCounters,
    /// Number of live queue pairs.
    pub live: u64,
    /// Queue pairs that were destroyed.
    pub destroyed: u64,
    /// The sum of all queue pairs.
    pub total: QpFigures,
    /// Some of the queue pairs.
    pub queue_pairs: Vec<QpPage>,
}

impl Page {
    /// Parses the numbers of a page; `None` if they are of another version, or invalid.
    pub fn read(numbers: impl IntoIterator<Item = u64>) -> Option<Page> {
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next();
        if next()? != VERSION {
            return None;
        }
        let (published, at, last) = (next()?, next()?, next()? == 1);
        let program = [next()?, next()?].map(u64::to_le_bytes).concat();
        let end = program.iter().position(|byte| *byte == 0).unwrap_or(program.len());
        let program = String::from_utf8_lossy(&program[..end]).into_owned();
        if next()? != Counters::default().iter().count() as u64 {
            return None;
        }
        let counters = Counters::from_values(std::iter::from_fn(&mut next))?;
        let port = PortCounters::from_values(std::iter::from_fn(&mut next))?;
        let (live, destroyed) = (next()?, next()?);
        let total = figures(&mut next)?;
        let listed = next()?.min(TABLE as u64);
        let queue_pairs = (0..listed).map(|_| queue_pair(&mut next)).collect::<Option<_>>()?;
        Some(Page { published, at, last, program, counters, port, live, destroyed, total, queue_pairs })
    }
}

fn figures(next: &mut impl FnMut() -> Option<u64>) -> Option<QpFigures> {
    Some(QpFigures {
        counts: QpCounts::from_values(std::iter::from_fn(&mut *next))?,
        rtt_samples: next()?,
        rtt_ns: [next()?, next()?, next()?, next()?, next()?],
    })
}

fn queue_pair(next: &mut impl FnMut() -> Option<u64>) -> Option<QpPage> {
    let (numbers, [service, state, destroyed, family, ..]) = (next()?, next()?.to_le_bytes());
    let bits = u128::from(next()?) << 64 | u128::from(next()?);
    let address = match family {
        0 => None,
        4 => Some(IpAddr::from((bits as u32).to_be_bytes())),
        _ => Some(Ipv6Addr::from_bits(bits).into()),
    };
    Some(QpPage {
        number: numbers as u32,
        service: *SERVICES.get(usize::from(service))?,
        state: *STATES.get(usize::from(state))?,
        destroyed: destroyed != 0,
        peer: address.map(|address| ((numbers >> 32) as u32, address)),
        rate: next()?,
        window: next()?,
        figures: figures(next)?,
    })
}

/// The unit's end of the page.
pub(crate) struct OwnPage {
    sheet: Sheet,
    program: [u64; 2],
    /// Number and sum of destroyed queue pairs.
    destroyed: (u64, QpStats),
    /// Memory for the round trips of all queue pairs.
    rtt: RttHistogram,
    last: bool,
}

impl OwnPage {
    /// Creates an empty page.
    pub(crate) fn create() -> io::Result<OwnPage> {
        let mut program = [0; 16];
        let name = std::fs::read("/proc/self/comm").unwrap_or_default();
        let name = name.trim_ascii_end();
        let len = name.len().min(program.len());
        program[..len].copy_from_slice(&name[..len]);
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| program[at + i]));
        let mut rtt = RttHistogram::default();
        // Makes its memory resident.
        rtt.record(0);
        Ok(OwnPage {
            sheet: Sheet::create(COUNTERS + TABLE * QP)?,
            program: [half(0), half(8)],
            destroyed: Default::default(),
            rtt,
            last: false,
        })
    }

    /// Returns the sheet.
    pub(crate) fn sheet(&self) -> &Sheet {
        &self.sheet
    }

    /// Records a destroyed queue pair.
    pub(crate) fn remember(&mut self, stats: &QpStats) {
        self.destroyed.0 += 1;
        add(&mut self.destroyed.1, stats);
    }

    /// Writes a unit's statistics at its NIC's time `at`. `live` are the live queue pairs, `ledger` has the destroyed
    /// ones. After the `last` page there may be others, which are last as well.
    pub(crate) fn write(
        &mut self,
        (nic, port): (&Nic, &PortCounters),
        (live, ledger): (impl Iterator<Item = u32> + Clone, &Ledger),
        at: Time,
        last: bool,
    ) {
        self.last |= last;
        let OwnPage { sheet, program, destroyed: (destroyed, sum), rtt, last } = self;
        let mut to = sheet.begin();
        to.put_all([VERSION, host_now().0, at.0, (*last).into(), program[0], program[1]]);
        to.put(nic.counters().iter().count() as u64);
        to.put_all(nic.counters().values());
        to.put_all(port.values());

        let mut total = sum.counts;
        rtt.clear();
        rtt.merge(&sum.rtt);
        let qps = live.clone().filter_map(|number| nic.qp(number));
        let mut count = 0;
        for qp in qps.clone() {
            count += 1;
            total.add(&qp.counts());
            qp.rtt().into_iter().for_each(|more| rtt.merge(more));
        }
        to.put_all([count, *destroyed]);
        put_figures(&mut to, &total, rtt);
        let former = ledger.records.iter().rev();
        to.put((count as usize + former.len()).min(TABLE) as u64);
        let none = RttHistogram::default();
        for qp in qps.take(TABLE) {
            put_living(&mut to, qp);
            put_figures(&mut to, &qp.counts(), qp.rtt().unwrap_or(&none));
        }
        for record in former.take(TABLE.saturating_sub(count as usize)) {
            put_head(&mut to, (record.number, record.service, record.state, true), record.peer, (0, 0));
            put_figures(&mut to, &record.stats.counts, &record.stats.rtt);
        }
    }

    /// Returns the counters last written; `None` if none were.
    pub(crate) fn counters(&self) -> Option<(Counters, PortCounters)> {
        Page::read(self.sheet.numbers()).map(|page| (page.counters, page.port))
    }
}

fn put_living(to: &mut Writing<'_>, qp: &Qp) {
    let metrics = qp.controller_metrics();
    let window = metrics.map_or(0, |m| if m.window == u32::MAX { 0 } else { m.window.into() });
    put_head(
        to,
        (qp.qpn(), qp.service(), qp.state(), false),
        QpRecord::peer_of(qp),
        (metrics.map_or(0, |m| m.rate), window),
    );
}

fn put_head(
    to: &mut Writing<'_>,
    (number, service, state, destroyed): (u32, Service, QpState, bool),
    peer: Option<(u32, IpAddr)>,
    (rate, window): (u64, u64),
) {
    let (peer, family, bits) = match peer {
        None => (0, 0, 0),
        Some((number, IpAddr::V4(v4))) => (number, 4, u128::from(v4.to_bits())),
        Some((number, IpAddr::V6(v6))) => (number, 6, v6.to_bits()),
    };
    let place = |at: Option<usize>| at.map_or(u8::MAX, |at| at as u8);
    let service = place(SERVICES.iter().position(|s| *s == service));
    let state = place(STATES.iter().position(|s| *s == state));
    to.put(u64::from(number) | u64::from(peer) << 32);
    to.put(u64::from_le_bytes([service, state, destroyed.into(), family, 0, 0, 0, 0]));
    to.put_all([(bits >> 64) as u64, bits as u64, rate, window]);
}

fn put_figures(to: &mut Writing<'_>, counts: &QpCounts, rtt: &RttHistogram) {
    to.put_all(counts.values());
    to.put(rtt.count());
    to.put_all([rtt.min(), rtt.mean(), rtt.percentile(50.0), rtt.percentile(99.0), rtt.max()]);
}

#[cfg(test)]
mod tests {
    use irnic_nic::{NicConfig, QpConfig};
    use irnic_ports::sheet::SheetReader;
    use irnic_transports::config::TransportConfig;

    use super::*;

    fn nic_with(queue_pairs: usize) -> (Nic, Vec<u32>) {
        let mut nic = Nic::new(NicConfig { max_qps: 1 << 10, ..NicConfig::default() });
        let pd = nic.alloc_pd().unwrap();
        let cq = nic.create_cq(16).unwrap();
        let config = QpConfig::new(pd, cq, TransportConfig::preset("roce").unwrap());
        let numbers = (0..queue_pairs).map(|_| nic.create_qp(&config).unwrap()).collect();
        (nic, numbers)
    }

    fn record(number: u32, timeouts: u64) -> QpRecord {
        let counts = QpCounts { timeouts, sent_bytes: 9, ..QpCounts::default() };
        let mut stats = QpStats { counts, ..QpStats::default() };
        stats.rtt.record(5_000);
        let peer = Some((7, "fd00::1".parse().unwrap()));
        QpRecord { number, service: Service::Rc, state: QpState::Err, destroyed: true, peer, stats }
    }

    #[test]
    fn what_is_written_is_read() {
        let (nic, live) = nic_with(2);
        let (mut page, mut ledger) = (OwnPage::create().unwrap(), Ledger::default());
        let reader = SheetReader::open(page.sheet().file()).unwrap();
        assert_eq!(Page::read(reader.read().unwrap()), None, "nothing was published yet");
        for timeouts in [1, 2] {
            let record = record(40 + timeouts as u32, timeouts);
            page.remember(&record.stats);
            ledger.remember(record);
        }
        let port = PortCounters { tx_dropped: 3, refused: 4, ..PortCounters::default() };
        page.write((&nic, &port), (live.iter().copied(), &ledger), Time(77), false);
        let read = Page::read(reader.read().unwrap()).unwrap();
        assert_eq!((read.at, read.last, read.live, read.destroyed, read.port), (77, false, 2, 2, port));
        assert!(!read.program.is_empty() && read.published > 0);
        let listed: Vec<(u32, bool)> = read.queue_pairs.iter().map(|qp| (qp.number, qp.destroyed)).collect();
        assert_eq!(listed, [(live[0], false), (live[1], false), (42, true), (41, true)]);
        assert_eq!(read.queue_pairs[2].peer, Some((7, "fd00::1".parse().unwrap())));
        assert_eq!((read.total.counts.timeouts, read.total.counts.sent_bytes, read.total.rtt_samples), (3, 18, 2));
        assert_eq!(read.queue_pairs[3].figures.rtt_ns[0], 5_000);
        assert_eq!(page.counters(), Some((*nic.counters(), port)));
        // Once last, the page stays last.
        page.write((&nic, &port), (live.iter().copied(), &ledger), Time(78), true);
        page.write((&nic, &port), (live.iter().copied(), &ledger), Time(79), false);
        assert!(Page::read(reader.read().unwrap()).unwrap().last);
    }

    #[test]
    fn the_table_ends_where_it_is_full() {
        let (nic, live) = nic_with(TABLE + 3);
        let (mut page, mut ledger) = (OwnPage::create().unwrap(), Ledger::default());
        ledger.remember(record(1, 1));
        page.write((&nic, &PortCounters::default()), (live.iter().copied(), &ledger), Time(1), false);
        let read = Page::read(page.sheet().numbers()).unwrap();
        assert_eq!((read.queue_pairs.len(), read.live), (TABLE, TABLE as u64 + 3));
    }

    #[test]
    fn nonsense_is_nothing_and_never_a_panic() {
        let (nic, live) = nic_with(3);
        let mut page = OwnPage::create().unwrap();
        page.write((&nic, &PortCounters::default()), (live.iter().copied(), &Ledger::default()), Time(1), false);
        let good: Vec<u64> = page.sheet().numbers().collect();
        for len in 0..good.len() {
            assert_eq!(Page::read(good[..len].iter().copied()), None, "{len}");
        }
        for at in 0..good.len() {
            for wrong in [0, 1, u64::MAX, 0xffff_ffff, 1 << 63] {
                let mut bad = good.clone();
                bad[at] = wrong;
                if let Some(read) = Page::read(bad) {
                    assert!(read.queue_pairs.len() <= TABLE);
                }
            }
        }
        assert_eq!(Page::read(std::iter::repeat_n(u64::MAX, 10_000)), None);
    }
}
