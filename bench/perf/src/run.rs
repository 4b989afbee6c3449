//! Driving ends and carrier in turn, on one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use irnic_nic::Nic;
use irnic_transports::Time;

use crate::carrier::Carrier;
use crate::clock::RunClock;
use crate::error::PerfError;
use crate::pacing::Pacing;
use crate::progress::Progress;

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

/// Polling without success for so long, the process lets others have the core after each round: one may be the peer.
const YIELD_NS: u64 = 4_000;
/// After so long it goes to sleep for a little while, unless it waits for events.
const SPIN_NS: u64 = 300_000;
/// The longest sleep.
const NAP: Duration = Duration::from_millis(5);
/// How long an end may be silent after its work is done, before the other is given up, in ns.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Whether it is time to sleep.
#[derive(Debug)]
pub struct Idle {
    since: Option<Time>,
    /// Polling without success for so long, the process sleeps, in ns.
    spin: u64,
}

impl Idle {
    /// Of a run that polls, or that sleeps until there are `events`.
    pub fn new(events: bool) -> Idle {
        Idle { since: None, spin: if events { 0 } else { SPIN_NS } }
    }

    /// Notes whether anything `moved`; after a while without, sleeps on the carrier until the ends have something to do
    /// of their own accord (`due`). Returns whether the clock is to be read before the next round.
    #[inline]
    pub fn after_round<C: Carrier>(
        &mut self,
        moved: usize,
        now: Time,
        due: Time,
        carrier: &mut C,
    ) -> Result<bool, PerfError> {
        if moved > 0 {
            self.since = None;
            return Ok(true);
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= self.spin {
            let due = Duration::from_nanos(carrier.next_deadline().min(due).since(now));
            carrier.wait(due.min(NAP))?;
            return Ok(true);
        }
        if now.since(since) >= YIELD_NS {
            std::thread::yield_now();
            return Ok(true);
        }
        Ok(false)
    }
}

/// Runs both ends until they are done.
pub fn both<C: Carrier, E: End>(
    carrier: &mut C,
    ends: &mut [E; 2],
    mut clock: RunClock,
    events: bool,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<(), PerfError> {
    let mut idle = Idle::new(events);
    let mut finished_at = None;
    let mut long = true;
    loop {
        let mut now = clock.round(long);
        let mut moved = carrier.receive(now)?;
        if moved > 0 {
            now = clock.now();
        }
        for (side, end) in ends.iter_mut().enumerate() {
            moved += end.step(now, carrier.nic(side))?;
        }
        let [a, b] = &*ends;
        let is_done = a.finished() && b.finished();
        if is_done && b.received(a.sent()) && a.received(b.sent()) {
            progress.end(now, || Seen::of_both(ends, carrier));
            return Ok(());
        }
        if is_done && now.since(*finished_at.get_or_insert(now)) > PATIENCE_NS {
            return Err(PerfError::failed("a message was acknowledged but never arrived; this is a bug"));
        }
        if interrupted.load(Ordering::Relaxed) {
            progress.end(now, || Seen::of_both(ends, carrier));
            return Err(PerfError::Interrupted);
        }
        progress.update(now, || Seen::of_both(ends, carrier));
        moved += carrier.transmit(now)?;
        let due = ends[0].due().min(ends[1].due());
        long = idle.after_round(moved, now, due, carrier)?;
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

    fn of_both<C: Carrier, E: End>(ends: &[E; 2], carrier: &mut C) -> Seen {
        let a = Seen::of(&ends[0], carrier.nic(0));
        let b = Seen::of(&ends[1], carrier.nic(1));
        Seen {
            done: a.done + b.done,
            total: a.total.zip(b.total).map(|(a, b)| a + b),
            retransmitted: a.retransmitted + b.retransmitted,
            timeouts: a.timeouts + b.timeouts,
            latency: a.latency,
        }
    }
}
