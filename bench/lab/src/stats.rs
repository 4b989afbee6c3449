//! A snapshot of a running lab, for `irnic top`, the page of `--live`, and `--metrics`.
//!
//! Snapshots are taken on demand: a client asks a [`Board`], and the thread that runs the network answers after its
//! next round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use irnic_fabric::lab::Lab;
use irnic_fabric::network::{LinkRecord, PortId};
use irnic_fabric::topology::Topology;
use irnic_ports::lab::{Departed, LabServer, Shown};
use irnic_transports::qp::Counters;
use serde::{Deserialize, Serialize};

use crate::pace::{Clock, Pace};
use crate::process_stats::ProcessStats;

/// A snapshot of a lab. Counters are since its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Version of the program, and its process id.
    pub irnic: String,
    pub pid: u32,
    pub topology: String,
    /// The lab's clock, and how many times slower than the host's it is, unless it waits.
    pub clock: Clock,
    pub slower: f64,
    /// Number of times that virtual time advanced although an application had not waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unasked_jumps: Option<u64>,
    /// Elapsed time of the host and of the lab, ns.
    pub host_ns: u64,
    pub lab_ns: u64,
    pub hosts: u32,
    /// Distance of each node from the hosts, in links; hosts come first.
    pub tiers: Vec<u32>,
    /// Names of nodes; known to the answering process only.
    #[serde(skip)]
    pub labels: Vec<String>,
    pub late_frames: u64,
    pub worst_lag_ns: u64,
    pub overrun_frames: u64,
    pub unclaimed_frames: u64,
    pub refused_frames: u64,
    /// Frames sent by hosts.
    pub frames: u64,
    /// Payload bytes that have reached hosts.
    pub delivered_bytes: u64,
    pub processes: Vec<ProcessStats>,
    /// The last changes of links and other faults, also those to come.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Processes that have left recently.
    #[serde(default)]
    pub ended: Vec<ProcessStats>,
    /// Counters of the processes of each host, including departed ones; known to the answering process only.
    #[serde(skip)]
    pub counted: Vec<Counters>,
    /// Both directions of each link.
    pub ports: Vec<PortStats>,
    /// The last minute, if it is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Point>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    pub from: String,
    pub to: String,
    pub rate_bps: u64,
    pub up: bool,
    pub packets: u64,
    pub bytes: u64,
    pub queue_bytes: u64,
    pub peak_bytes: u64,
    pub dropped: u64,
    pub lost: u64,
    pub marked: u64,
    pub trimmed: u64,
    pub pauses: u64,
    pub paused_ns: u64,
    /// Whether it is paused by PFC.
    pub paused: bool,
}

/// Sums over the network at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub host_ns: u64,
    pub lab_ns: u64,
    pub delivered_bytes: u64,
    pub buffered_bytes: u64,
    pub longest_bytes: u64,
    /// Packets dropped or lost.
    pub dropped: u64,
    pub marked: u64,
    pub paused_ns: u64,
    /// Packets retransmitted by processes.
    #[serde(default)]
    pub retransmitted: u64,
    /// Payload received and placed by each host's processes; of small labs only.
    #[serde(default)]
    pub received_bytes: Vec<u64>,
}

/// A change of a link, or another fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When, in the lab's time that has elapsed, ns.
    pub lab_ns: u64,
    /// What was commanded.
    pub what: String,
}

/// Maximum number of hosts of a lab with curves for each.
const CURVES: usize = 64;

impl Stats {
    /// Returns the snapshot of a lab in which nothing has happened.
    pub fn of_network(topology: &Topology, pace: Pace) -> Stats {
        Stats {
            irnic: irnic_report::version::get().into(),
            pid: std::process::id(),
            topology: topology.name.clone(),
            slower: pace.slower,
            clock: pace.clock,
            labels: (0..topology.nodes()).map(|node| topology.label(node)).collect(),
            hosts: topology.hosts,
            tiers: topology.tiers(),
            ..Stats::default()
        }
    }

    /// Returns a snapshot of the lab; times and unclaimed frames have to be filled in.
    pub fn snapshot(&self, server: &LabServer, lab: &Lab) -> Stats {
        let network = lab.network();
        let (late, lateness) = (lab.late(), server.lateness());
        let port = |(id, link): (usize, LinkRecord)| {
            let (port, c) = (&network.ports()[id], link.counters);
            PortStats {
                from: self.labels[link.from as usize].clone(),
                to: self.labels[link.to as usize].clone(),
                rate_bps: link.rate,
                up: port.is_up(),
                packets: c.packets,
                bytes: c.bytes,
                queue_bytes: network.backlog_of(id as PortId),
                peak_bytes: c.peak,
                dropped: c.dropped,
                lost: c.lost,
                marked: c.marked,
                trimmed: c.trimmed,
                pauses: c.pauses,
                paused_ns: c.paused,
                paused: !port.paused().is_empty(),
            }
        };
        Stats {
            late_frames: late.frames + lateness.frames,
            worst_lag_ns: late.worst.max(lateness.worst),
            overrun_frames: lateness.overrun,
            refused_frames: lab.refused(),
            frames: network.totals().injected_packets,
            delivered_bytes: network.totals().payload_bytes,
            processes: server.members().map(|(_, member)| ProcessStats::of(member)).collect(),
            ports: network.links().enumerate().map(port).collect(),
            ..self.clone()
        }
    }

    /// Returns sums over the network.
    pub fn point(&self) -> Point {
        let sum = |of: fn(&PortStats) -> u64| self.ports.iter().map(of).sum();
        Point {
            host_ns: self.host_ns,
            lab_ns: self.lab_ns,
            delivered_bytes: self.delivered_bytes,
            buffered_bytes: sum(|p| p.queue_bytes),
            longest_bytes: self.ports.iter().map(|p| p.queue_bytes).max().unwrap_or(0),
            dropped: sum(|p| p.dropped + p.lost),
            marked: sum(|p| p.marked),
            paused_ns: sum(|p| p.paused_ns),
            retransmitted: self.counted.iter().map(|c| c.retransmitted_pkts).sum(),
            received_bytes: match self.counted.len() {
                ..=CURVES => self.counted.iter().map(|c| c.rcvd_bytes).collect(),
                _ => Vec::new(),
            },
        }
    }
}

/// A snapshot by the thread that runs the network.
#[derive(Default)]
pub struct Snapshot {
    pub stats: Stats,
    /// The pages of the processes of `stats`, in the same order.
    pub shown: Vec<Option<Arc<Shown>>>,
    /// Departed processes.
    pub departed: Vec<Departed>,
}

/// Requests for snapshots, and their answers.
#[derive(Default)]
pub struct Board {
    requested: AtomicBool,
    /// The last answer, and the number of answers.
    answer: Mutex<(u64, Option<Arc<Snapshot>>)>,
    news: Condvar,
}

impl Board {
    /// Returns whether a client waits for an answer.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Answers all waiting clients.
    pub fn answer(&self, snapshot: Snapshot) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        // A later request takes the lock after this one.
        self.requested.store(false, Ordering::Relaxed);
        *answer = (answer.0 + 1, Some(Arc::new(snapshot)));
        self.news.notify_all();
    }

    /// Requests a snapshot and waits up to `patience` for it; otherwise returns the last one, if any.
    pub fn ask(&self, patience: Duration) -> Option<Arc<Snapshot>> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let known = answer.0;
        self.requested.store(true, Ordering::Relaxed);
        let waited = self.news.wait_timeout_while(answer, patience, |answer| answer.0 == known);
        waited.unwrap_or_else(PoisonError::into_inner).0.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_has_an_answer_from_after_the_question() {
        let board = Board::default();
        assert!(!board.is_requested());
        let snapshot = |frames| Snapshot { stats: Stats { frames, ..Stats::default() }, ..Snapshot::default() };
        board.answer(snapshot(1));
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| board.ask(Duration::from_secs(60)));
            while !board.is_requested() {
                std::thread::yield_now();
            }
            board.answer(snapshot(2));
            assert_eq!(asker.join().unwrap().map(|snapshot| snapshot.stats.frames), Some(2));
        });
        assert!(!board.is_requested());
        // No thread answers any more.
        assert_eq!(board.ask(Duration::ZERO).map(|snapshot| snapshot.stats.frames), Some(2));
    }

    #[test]
    fn sums_are_over_both_directions_of_all_links() {
        let port = |queue_bytes, dropped, lost| PortStats { queue_bytes, dropped, lost, ..PortStats::default() };
        let stats = Stats { ports: vec![port(5, 1, 0), port(7, 2, 4)], ..Stats::default() };
        let Point { buffered_bytes, longest_bytes, dropped, .. } = stats.point();
        assert_eq!((buffered_bytes, longest_bytes, dropped), (12, 7, 7));
        let text = serde_json::to_string(&stats).unwrap();
        assert!(!text.contains("history"), "{text}");
        assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), stats);
    }
}
