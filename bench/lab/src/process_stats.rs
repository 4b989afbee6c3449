//! Counters and queue pairs of the processes of a lab, read from pages of memory that they share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use irnic_ports::host_now;
use irnic_ports::lab::{Departed, LabServer, Member, Shown, host_of};
use irnic_transports::qp::{Counters, QpCounts};
use irnic_verbs::stats::page::{Page, QpFigures, QpPage};
use irnic_verbs::stats::{service_name, state_name};
use serde::{Deserialize, Serialize};

/// Time for processes to refresh their pages.
const PATIENCE: Duration = Duration::from_millis(250);
/// Age of a page from which its process counts as silent, ns.
const SILENCE: u64 = 2_000_000_000;
/// Number of ended processes that are shown.
const ENDED: usize = 32;

/// State of a process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// It refreshes its page, or has not been asked to recently.
    #[default]
    Runs,
    /// It does not refresh its page, and may be stopped. Its numbers are old.
    Silent,
    /// It has exited; its numbers are final.
    Ended,
    /// It was killed or otherwise ended without a last update; its numbers are those of its last page.
    Gone,
}

/// A process in a lab, by device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStats {
    pub host: u32,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Its block of the host's queue pair numbers.
    pub slot: u16,
    /// Name of its program; empty if unknown, as is everything below.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub state: ProcessState,
    /// Lab time of its numbers, ns; 0 if there are none.
    #[serde(default)]
    pub at_ns: u64,
    /// Counters of its NIC, and of its port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub port: BTreeMap<String, u64>,
    /// Some of its queue pairs, and the numbers of live and of destroyed ones.
    #[serde(default)]
    pub queue_pairs: Vec<QueuePair>,
    #[serde(default)]
    pub live_queue_pairs: u64,
    #[serde(default)]
    pub destroyed_queue_pairs: u64,
    /// Sums over all queue pairs.
    #[serde(default)]
    pub total: Figures,
    /// Its process group; 0 if unknown.
    #[serde(skip)]
    pub group: u32,
}

/// A queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePair {
    pub number: u32,
    pub service: String,
    pub state: String,
    pub destroyed: bool,
    pub peer: Option<Peer>,
    /// Limits of its congestion controller: bit/s, and packets in flight; 0 for none.
    pub rate_bps: u64,
    pub window_pkts: u64,
    #[serde(flatten)]
    pub figures: Figures,
}

/// The queue pair at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub number: u32,
    pub address: String,
}

/// Counters of queue pairs since their creation.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    #[serde(flatten)]
    pub counts: QpCounts,
    pub rtt_ns: Rtt,
}

/// Round trips, ns.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rtt {
    pub samples: u64,
    pub min: u64,
    pub mean: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Peer {
    /// Returns its location: the host, in a lab with `hosts` of them, or the address.
    pub fn place(&self, hosts: u32) -> String {
        let host = self.address.parse().ok().and_then(|address| host_of(address, hosts));
        host.map_or_else(|| self.address.clone(), |host| format!("h{host}"))
    }
}

impl From<&QpFigures> for Figures {
    fn from(from: &QpFigures) -> Figures {
        let [min, mean, p50, p99, max] = from.rtt_ns;
        Figures { counts: from.counts, rtt_ns: Rtt { samples: from.rtt_samples, min, mean, p50, p99, max } }
    }
}

impl From<&QpPage> for QueuePair {
    fn from(from: &QpPage) -> QueuePair {
        QueuePair {
            number: from.number,
            service: service_name(from.service).into(),
            state: state_name(from.state),
            destroyed: from.destroyed,
            peer: from.peer.map(|(number, address)| Peer { number, address: address.to_string() }),
            rate_bps: from.rate,
            window_pkts: from.window,
            figures: Figures::from(&from.figures),
        }
    }
}

impl ProcessStats {
    /// Returns a process without numbers.
    pub fn of(member: &Member) -> ProcessStats {
        ProcessStats {
            host: member.host,
            pid: member.process,
            slot: member.slot(),
            group: member.group,
            ..ProcessStats::default()
        }
    }

    /// Returns all processes of a lab with their last numbers: those that have left, then the live ones, which are
    /// asked for a refresh.
    pub fn all(server: &LabServer) -> Vec<ProcessStats> {
        let living = server.members().map(|(_, member)| {
            let mut process = ProcessStats::of(member);
            if let Some(shown) = member.shown() {
                let page = shown.sheet.read().and_then(Page::read);
                page.iter().for_each(|page| process.take(page));
                shown.request_update();
            }
            process
        });
        server.departed().map(|process| ProcessStats::departed(process).0).chain(living).collect()
    }

    /// Returns a process that has left, with its last numbers.
    fn departed(of: &Departed) -> (ProcessStats, Option<Page>) {
        let page = of.numbers.as_ref().and_then(|numbers| Page::read(numbers.iter().copied()));
        let state = if page.as_ref().is_some_and(|page| page.last) { ProcessState::Ended } else { ProcessState::Gone };
        let mut process =
            ProcessStats { host: of.host, pid: of.process, slot: of.slot, group: of.group, ..ProcessStats::default() };
        page.iter().for_each(|page| process.take(page));
        (ProcessStats { state, ..process }, page)
    }

    fn take(&mut self, page: &Page) {
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        self.name.clone_from(&page.program);
        self.at_ns = page.at;
        self.counters = page.counters.named().map(named).collect();
        self.port = page.port.named().map(named).collect();
        self.queue_pairs = page.queue_pairs.iter().map(QueuePair::from).collect();
        (self.live_queue_pairs, self.destroyed_queue_pairs) = (page.live, page.destroyed);
        self.total = Figures::from(&page.total);
        let old = host_now().0.saturating_sub(page.published) > SILENCE;
        self.state = if old { ProcessState::Silent } else { ProcessState::Runs };
    }
}

/// Has all processes refresh their pages, and waits up to [`PATIENCE`] until they have.
fn refresh(shown: &[Option<Arc<Shown>>]) {
    let mut waiting: Vec<(&Shown, u64)> =
        shown.iter().flatten().map(|shown| (&**shown, shown.sheet.version())).collect();
    waiting.iter().for_each(|(shown, _)| shown.request_update());
    let until = Instant::now() + PATIENCE;
    while !waiting.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        waiting.retain(|(shown, before)| shown.sheet.version() == *before);
    }
}

/// State kept between calls.
#[derive(Default)]
pub struct ProcessPages {
    /// Number of departed processes that have been recorded.
    noted: u64,
    /// Counters of the departed processes of each host.
    departed: Vec<Counters>,
    ended: VecDeque<ProcessStats>,
}

impl ProcessPages {
    /// Fills in the numbers of processes; `living` are their pages, in the same order. Returns the counters of each of
    /// `hosts` hosts, including departed processes, and the processes that have left recently.
    pub fn update(
        &mut self,
        processes: &mut [ProcessStats],
        living: &[Option<Arc<Shown>>],
        departed: &[Departed],
        hosts: u32,
    ) -> (Vec<Counters>, Vec<ProcessStats>) {
        refresh(living);
        self.departed.resize(hosts as usize, Counters::default());
        for departed in departed.iter().filter(|departed| departed.number >= self.noted) {
            let (process, page) = ProcessStats::departed(departed);
            if let (Some(page), Some(counters)) = (page, self.departed.get_mut(departed.host as usize)) {
                counters.add(&page.counters);
            }
            if self.ended.len() == ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(process);
        }
        self.noted = departed.last().map_or(self.noted, |departed| departed.number + 1);
        let mut counted = self.departed.clone();
        for (process, shown) in processes.iter_mut().zip(living) {
            let page = shown.as_ref().and_then(|shown| Page::read(shown.sheet.read()?));
            if let (Some(page), Some(counted)) = (page, counted.get_mut(process.host as usize)) {
                process.take(&page);
                counted.add(&page.counters);
            }
        }
        (counted, self.ended.iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departed(number: u64, numbers: Option<Vec<u64>>) -> Departed {
        Departed { number, host: 1, process: 7, group: 7, slot: 3, numbers: numbers.map(Into::into) }
    }

    #[test]
    fn what_a_process_writes_may_be_nonsense() {
        let mut pages = ProcessPages::default();
        let nonsense = [None, Some(vec![]), Some(vec![1]), Some(vec![u64::MAX; 6_000])];
        let all: Vec<_> = (0..).zip(nonsense).map(|(n, numbers)| departed(n, numbers)).collect();
        let mut living = vec![ProcessStats { host: 9, ..ProcessStats::default() }];
        let (counted, ended) = pages.update(&mut living, &[None], &all, 2);
        assert_eq!((counted, ended.len()), (vec![Counters::default(); 2], 4));
        assert!(ended.iter().all(|process| process.state == ProcessState::Gone && process.queue_pairs.is_empty()));
        // Each is recorded once.
        assert_eq!(pages.update(&mut [], &[], &all, 2).1.len(), 4);
        let text = serde_json::to_string(&ended).unwrap();
        let read = serde_json::from_str::<Vec<ProcessStats>>(&text).unwrap();
        let without_group = |p: &ProcessStats| ProcessStats { group: 0, ..p.clone() };
        assert_eq!(read, ended.iter().map(without_group).collect::<Vec<_>>());
    }
}
