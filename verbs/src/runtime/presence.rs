//! The application's activity, for a port whose clock waits for it ([`Timed::awaits_applications`]).
//!
//! Time stops while the application acts. It continues without it once it has completed a round of its polling loop and
//! found nothing, or sleeps. Then the poll that completed the round waits until there is a completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use irnic_ports::slices::Contention;
use irnic_ports::{Application, Port, Timed, host_now as now};
use irnic_transports::Time;
use irnic_transports::qp::CqId;
use irnic_transports::time::{MS, SEC, US};
use parking_lot::MutexGuard;

use super::state::State;
use super::unit::Unit;

/// Longest wait of a poll, ns of the host's time: the application may also wait for something that is not visible here.
const LONGEST_POLL: u64 = MS;
/// A `sched_yield` that took this long, ns, has let a thread run that computes, as it would each time. Polls then sleep
/// for [`HOLD`] ns.
const TAKEN: u64 = 500 * US;
const HOLD: u64 = SEC;

/// What is known of the application.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// A listener was notified since the last turns were settled.
    pub(super) heard: bool,
    /// Number of completions at that time.
    completions: u64,
    /// Consecutive polls in vain.
    round: Option<Round>,
    /// The queue that the application waits for, if it waits for no other, and the number of events that it has had.
    queue: Option<(Arc<AtomicU64>, u64)>,
    /// Contention for cores, where time does not wait for the application.
    contention: Contention,
}

/// Consecutive polls of some queues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Round {
    /// The time of the port's clock.
    at: Time,
    first: CqId,
    last: CqId,
}

impl Presence {
    /// Records a poll in vain. Returns whether the application has polled everything that it polls: it comes back to
    /// the first queue, or stays with one.
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

    /// Records that the application has made a call other than a poll in vain.
    #[inline]
    pub(super) fn acts(&mut self) {
        if let Some(port) = self.timed() {
            port.note(Application::Acts);
            (self.presence.round, self.presence.queue) = (None, None);
        }
    }

    /// Records that the application sleeps until it is notified, or until a `queue` gets an event, if there is
    /// `nothing` for it so far.
    pub(super) fn sleeps_if(&mut self, queue: Option<&Arc<AtomicU64>>, nothing: impl FnOnce() -> bool) {
        if let Some(port) = self.timed().filter(|port| port.awaits_applications())
            && nothing()
        {
            port.note(Application::Sleeps);
            self.presence.queue = queue.map(|events| (events.clone(), events.load(Ordering::Relaxed)));
        }
    }

    /// Records the result of turns of the NIC, after listeners were notified.
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

    /// Records a poll in vain of an application whose clock waits for it. Returns whether time has to advance before
    /// another poll finds anything.
    fn polls_in_vain(&mut self, cq: CqId) -> bool {
        if self.waiting_cqs > 0 {
            // An application that arms a queue and finds all of them empty is about to sleep, in one way or another.
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
    /// Ends a poll in vain on a port with its own clock: lets other threads have the core, and if that clock waits for
    /// the application, waits for the next event, but not beyond `until`. Returns whether to poll again.
    pub(super) fn let_time_go_on(&self, mut state: MutexGuard<'_, State>, cq: CqId, until: &mut Time) -> bool {
        if !state.timed().is_some_and(|port| port.awaits_applications()) {
            // Time advances once other threads have had a core.
            self.give_way(state);
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

    /// Lets other threads have the core: sleeps if some of them compute, and yields it otherwise.
    fn give_way(&self, state: MutexGuard<'_, State>) {
        let before = now();
        if state.presence.contention.is_high(before) {
            return self.wait_for_completions(state);
        }
        self.unlock(state);
        std::thread::yield_now();
        let after = now();
        self.state.lock().presence.contention.yielded(before, after);
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
            // The first queue was polled once before the loop.
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
