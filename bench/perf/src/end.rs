//! An end of a test, and what it has measured.

use hdrhistogram::Histogram;
use irnic_nic::Nic;
use irnic_transports::Time;

use crate::error::PerfError;
use crate::pacing::Pacing;

/// What one end of a test does with its NIC.
pub trait End {
    /// Takes completions and posts what may be posted. Returns how much of either it did.
    fn step(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError>;

    /// Whether all that this end wants of the other is done.
    fn finished(&self) -> bool;

    /// Messages that this end has sent, or read.
    fn sent(&self) -> u64;

    /// Whether all of the `sent` messages of the other end are here, and checked.
    fn received(&self, sent: u64) -> bool;

    /// Messages done and to be done, `None` if time ends the run.
    fn progress(&self) -> (u64, Option<u64>);

    /// When this end has something to do of its own accord.
    fn due(&self) -> Time {
        Time::NEVER
    }

    /// Samples of a latency test so far.
    fn latency(&self) -> Option<&Latency> {
        None
    }

    /// What was measured so far.
    fn measured(&self) -> Measured;
}

/// What an end measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Messages completed.
    pub messages: u64,
    /// In which they were, from the first post to the last completion, in ns.
    pub elapsed: u64,
    /// The best rate of any stretch, messages per second; 0 if not measured.
    pub peak: f64,
    /// Latency test: its samples.
    pub latency: Option<Latency>,
    /// How well a rate limit held.
    pub pacing: Option<Pacing>,
    /// Events that completions have raised, if they were waited for.
    pub events: Option<u64>,
}

/// Samples of latency, in ns.
#[derive(Clone, Debug)]
pub struct Latency {
    pub samples: Histogram<u64>,
    pub min: u64,
    pub max: u64,
    /// In the order of measurement, if they are to be shown.
    pub all: Option<Vec<u64>>,
}

impl Latency {
    /// Without the samples one by one.
    pub fn summary(&self) -> Latency {
        Latency { samples: self.samples.clone(), all: None, ..*self }
    }
}

/// What is to be seen of a run while it goes on.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Messages done and to be done; `None`: something else ends the run.
    pub done: u64,
    pub total: Option<u64>,
    /// Packets sent again, and retransmission timeouts.
    pub retransmitted: u64,
    pub timeouts: u64,
    pub latency: Option<Latency>,
}

impl Seen {
    /// Of one end.
    pub fn of<E: End>(end: &E, nic: &Nic) -> Seen {
        let (done, total) = end.progress();
        let counters = nic.counters();
        let (retransmitted, timeouts) = (counters.retransmitted_pkts, counters.local_ack_timeout_err);
        Seen { done, total, retransmitted, timeouts, latency: end.latency().map(Latency::summary) }
    }
}
