//! What the application does, for a port whose clock waits for it ([`Timed::awaits_applications`]).
//!
//! Time stands still while the application acts. It goes on without it once it has gone round its polling loop and
//! found nothing, or sleeps. Then the poll that closed the round waits, until there is a completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use irnic_ports::{Application, Port, Timed, host_now as now};
use irnic_transports::Time;
use irnic_transports::qp::CqId;
use irnic_transports::time::{MS, SEC, US};
use parking_lot::MutexGuard;

use super::state::State;
use super::unit::Unit;

/// The longest time that a poll waits, ns of the host's time: the application may wait for something else as well, of
/// which nobody here hears.
const LONGEST_POLL: u64 = MS;
/// A `sched_yield` that took so long, ns, has let a thread run that computes: it would do so each time. Polls sleep for
/// so long then.
const TAKEN: u64 = 500 * US;
const HOLD: u64 = SEC;

/// What is known of the application.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// A listener was told something since the last turns were settled.
    pub(super) heard: bool,
    /// Completions up to then.
    completions: u64,
    /// Polls in vain, with nothing else in between.
    round: Option<Round>,
    /// How many events the queue has had that the application waits for, if it waits for no others.
    queue: Option<(Arc<AtomicU64>, u64)>,
}

/// Polls of some queues in a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Round {
    /// The time of the port's clock.
    at: Time,
    first: CqId,
    last: CqId,
}

impl Presence {
    /// Notes a poll in vain. Returns whether the application has polled all that it does: it comes back to the first
    /// queue, or stays with one.
    fn closes_round(&mut self, cq: CqId, at: Time) -> bool {
        let round = self.round.filter(|round| round.at == at);
        self.round = Some(Round { at, first: round.map_or(cq, |round| round.first), last: cq });
        round.is_some_and(|round| round.first == cq || round.last == cq)
    }
}

impl State {
    fn timed(&mut self) -> Option<&mut dyn Timed> {
        // The port of the child of a fork is its parent's.
        if self.nic_port.is_timed() && !self.forked { self.nic_port.port.timed() } else { None }
    }

    /// Notes that the application has called something, other than polled in vain.
    #[inline]
    pub(super) fn acts(&mut self) {
        if let Some(port) = self.timed() {
            port.note(Application::Acts);
            (self.presence.round, self.presence.queue) = (None, None);
        }
    }

    /// Notes that the application sleeps until it hears of something, or of what comes into a `queue`, if it has heard
    /// of `nothing` so far.
    pub(super) fn sleeps_if(&mut self, queue: Option<&Arc<AtomicU64>>, nothing: impl FnOnce() -> bool) {
        if let Some(port) = self.timed().filter(|port| port.awaits_applications())
            && nothing()
        {
            port.note(Application::Sleeps);
            self.presence.queue = queue.map(|events| (events.clone(), events.load(Ordering::Relaxed)));
        }
    }

    /// Notes what turns of the NIC have come to, once listeners have heard.
    pub(super) fn settle(&mut self) {
        let completions = self.nic_port.nic.completions();
        let completed = std::mem::replace(&mut self.presence.completions, completions) != completions;
        let mut heard = std::mem::take(&mut self.presence.heard);
        if let Some((events, before)) = &self.presence.queue {
            heard = events.load(Ordering::Relaxed) != *before;
        }
        if heard || completed {
            self.presence.round = None;
        }
        if let Some(port) = self.timed() {
            port.settle(heard, completed);
        }
    }

    /// Notes a poll in vain of an application whose clock waits for it. Returns whether time has to go on before
    /// another poll finds anything.
    fn polls_in_vain(&mut self, cq: CqId) -> bool {
        if self.waiting_cqs > 0 {
            // Who arms a queue and finds all of them empty is about to sleep, however it does.
            let nic = &self.nic_port.nic;
            let empty = self.cqs.handles().all(|cq| nic.cq_len(CqId(cq)).is_ok_and(|len| len == 0));
            self.sleeps_if(None, || empty);
            return false;
        }
        let Some(port) = self.timed() else { return false };
        if port.stands_still() {
            return true;
        }
        let at = port.clock();
        if self.presence.closes_round(cq, at) {
            self.presence.queue = None;
            let Some(port) = self.timed() else { return false };
            port.note(Application::Polls);
            return port.stands_still();
        }
        false
    }
}

impl Unit {
    /// Ends a poll in vain on a port with a clock of its own: lets others have the core, and if that clock waits for
    /// the application, waits for what happens next, but not after `until`. Returns whether to look again.
    pub(super) fn let_time_go_on(&self, mut state: MutexGuard<'_, State>, cq: CqId, until: &mut Time) -> bool {
        if !state.timed().is_some_and(|port| port.awaits_applications()) {
            // Time goes on once others have had a core.
            self.unlock(state);
            std::thread::yield_now();
            return false;
        }
        let waits = state.polls_in_vain(cq);
        self.unlock(state);
        if waits && *until == Time::ZERO {
            *until = now() + LONGEST_POLL;
        }
        let mut before = now();
        while waits && before < *until {
            std::thread::yield_now();
            let after = now();
            let mut state = self.state.lock();
            if after.since(before) >= TAKEN {
                state.empty_polls.oversubscribed_until = after + HOLD;
            }
            if !state.timed().is_some_and(|port| port.stands_still()) {
                return true;
            }
            if after < state.empty_polls.oversubscribed_until {
                self.wait_for_completions(state);
                return true;
            }
            before = after;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_where_it_began_or_stays() {
        let [a, b] = [CqId(1), CqId(2)];
        for (polls, closed) in [
            (vec![a, a], 1),
            (vec![a, b, a], 2),
            // The first was polled once, before the loop.
            (vec![a, b, b], 2),
        ] {
            let mut presence = Presence::default();
            let found: Vec<bool> = polls.iter().map(|cq| presence.closes_round(*cq, Time(7))).collect();
            assert_eq!(found.iter().position(|closes| *closes), Some(closed), "{polls:?}");
        }
        let mut presence = Presence::default();
        assert!(!presence.closes_round(a, Time(7)));
        assert!(!presence.closes_round(a, Time(8)), "time has gone on in between");
        assert!(presence.closes_round(a, Time(8)));
    }
}
