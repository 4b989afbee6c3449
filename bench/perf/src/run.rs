//! Drives ends and carrier alternately, on one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use irnic_transports::Time;

use crate::carrier::Carrier;
use crate::clock::RunClock;
use crate::end::{End, Seen};
use crate::error::PerfError;
use crate::progress::Progress;

/// Time of unsuccessful polling after which the process yields its core after each round: the peer may need it.
const YIELD_NS: u64 = 4_000;
/// Time of unsuccessful polling after which it sleeps briefly, unless it waits for events.
const SPIN_NS: u64 = 300_000;
/// Maximum sleep.
const NAP: Duration = Duration::from_millis(5);
/// Time for which an end may be silent after its work is done, before the other gives up, ns.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Decides when to sleep.
#[derive(Debug)]
pub struct Idle {
    since: Option<Time>,
    /// Time of unsuccessful polling after which the process sleeps, ns.
    spin: u64,
}

impl Idle {
    /// For a run that polls, or that sleeps until there are `events`.
    pub fn new(events: bool) -> Idle {
        Idle { since: None, spin: if events { 0 } else { SPIN_NS } }
    }

    /// Takes note of whether anything `moved`; after a time without, sleeps on the carrier until the ends' next action
    /// of their own (`due`). Returns whether to read the clock before the next round.
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
            progress.end(now, || seen_of_both(ends, carrier));
            return Ok(());
        }
        if is_done && now.since(*finished_at.get_or_insert(now)) > PATIENCE_NS {
            return Err(PerfError::failed("a message was acknowledged but never arrived; this is a bug"));
        }
        if interrupted.load(Ordering::Relaxed) {
            progress.end(now, || seen_of_both(ends, carrier));
            return Err(PerfError::Interrupted);
        }
        progress.update(now, || seen_of_both(ends, carrier));
        moved += carrier.transmit(now)?;
        let due = ends[0].due().min(ends[1].due());
        long = idle.after_round(moved, now, due, carrier)?;
    }
}

/// Progress of both ends together.
fn seen_of_both<C: Carrier, E: End>(ends: &[E; 2], carrier: &mut C) -> Seen {
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
