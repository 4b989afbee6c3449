//! Driving ends and carrier in turn, on one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use irnic_nic::Nic;
use irnic_transports::Time;

use super::PerfError;
use super::carrier::Carrier;
use super::clock::RunClock;
use super::pacing::Pacing;
use super::progress::Progress;

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

    /// What was measured so far.
    fn measured(&self) -> Measured;
}

/// What an end measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Messages completed.
    pub messages: u64,
    /// From the first post to the last completion, in ns.
    pub elapsed: u64,
    /// The best rate of any stretch, messages per second; 0 if not measured.
    pub peak: f64,
    /// Latency test: its samples.
    pub latency: Option<Latency>,
    /// How well a rate limit held.
    pub pacing: Option<Pacing>,
}

/// Samples of latency, in ns.
#[derive(Clone, Debug)]
pub struct Latency {
    pub samples: Histogram<u64>,
    pub min: u64,
    pub max: u64,
}

/// Polling without success for so long, the process lets others have the core after each round: one may be the peer.
const YIELD_NS: u64 = 4_000;
/// After so long it goes to sleep for a little while.
const SPIN_NS: u64 = 300_000;
/// The longest sleep.
const NAP: Duration = Duration::from_millis(5);
/// How long an end may be silent after its work is done, before the other is given up, in ns.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Whether it is time to sleep.
#[derive(Debug, Default)]
pub struct Idle {
    since: Option<Time>,
}

impl Idle {
    /// Notes whether anything `moved`; after a while without, sleeps on the carrier. Returns whether the clock is to be
    /// read before the next round.
    #[inline]
    pub fn after_round<C: Carrier>(&mut self, moved: usize, now: Time, carrier: &mut C) -> Result<bool, PerfError> {
        if moved > 0 {
            self.since = None;
            return Ok(true);
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= SPIN_NS {
            let due = Duration::from_nanos(carrier.next_deadline().since(now));
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
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<(), PerfError> {
    let mut idle = Idle::default();
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
        if a.finished() && b.finished() {
            if b.received(a.sent()) && a.received(b.sent()) {
                return Ok(());
            }
            if now.since(*finished_at.get_or_insert(now)) > PATIENCE_NS {
                return Err(PerfError::failed("a message was acknowledged but never arrived; this is a bug"));
            }
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(PerfError::Interrupted);
        }
        progress.update(now, || {
            let (a, b) = (ends[0].progress(), ends[1].progress());
            (a.0 + b.0, a.1.zip(b.1).map(|(a, b)| a + b))
        });
        moved += carrier.transmit(now)?;
        long = idle.after_round(moved, now, carrier)?;
    }
}
