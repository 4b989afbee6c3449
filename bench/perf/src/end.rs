//! An end of a test, and its measurements.

use hdrhistogram::Histogram;
use irnic_nic::Nic;
use irnic_transports::Time;

use crate::error::PerfError;
use crate::pacing::Pacing;

/// The behaviour of one end of a test on its NIC.
pub trait End {
    /// Polls completions and posts what may be posted. Returns the number of both.
    fn step(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError>;

    /// Whether everything that this end wants of the other is done.
    fn finished(&self) -> bool;

    /// Number of messages that this end has sent, or read.
    fn sent(&self) -> u64;

    /// Whether all of the `sent` messages of the other end have arrived, and been checked.
    fn received(&self, sent: u64) -> bool;

    /// Messages done and to be done, `None` if the run ends by time.
    fn progress(&self) -> (u64, Option<u64>);

    /// Time of this end's next action of its own.
    fn due(&self) -> Time {
        Time::NEVER
    }

    /// Samples of a latency test so far.
    fn latency(&self) -> Option<&Latency> {
        None
    }

    /// Measurements so far.
    fn measured(&self) -> Measured;
}

/// Measurements of an end.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Messages completed.
    pub messages: u64,
    /// Time from the first post to the last completion, ns.
    pub elapsed: u64,
    /// The best rate of any interval, messages per second; 0 if not measured.
    pub peak: f64,
    /// Samples of a latency test.
    pub latency: Option<Latency>,
    /// Accuracy of a rate limit.
    pub pacing: Option<Pacing>,
    /// Number of completion events, if they were waited for.
    pub events: Option<u64>,
}

/// Samples of latency, ns.
#[derive(Clone, Debug)]
pub struct Latency {
    pub samples: Histogram<u64>,
    pub min: u64,
    pub max: u64,
    /// In the order of measurement, if they are to be printed.
    pub all: Option<Vec<u64>>,
}

impl Latency {
    /// Without the individual samples.
    pub fn summary(&self) -> Latency {
        Latency { samples: self.samples.clone(), all: None, ..*self }
    }
}

/// The visible state of a run in progress.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Messages done and to be done; `None`: something else ends the run.
    pub done: u64,
    pub total: Option<u64>,
    /// Packets retransmitted, and retransmission timeouts.
    pub retransmitted: u64,
    pub timeouts: u64,
    pub latency: Option<Latency>,
}

impl Seen {
    /// Returns the state of one end.
    pub fn of<E: End>(end: &E, nic: &Nic) -> Seen {
        let (done, total) = end.progress();
        let counters = nic.counters();
        let (retransmitted, timeouts) = (counters.retransmitted_pkts, counters.local_ack_timeout_err);
        Seen { done, total, retransmitted, timeouts, latency: end.latency().map(Latency::summary) }
    }
}
