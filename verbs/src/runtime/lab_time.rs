//! Ports with their own clock, such as those of labs: what the NIC tells them of the application, and polls that let
//! their time advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use irnic_ports::{Application, Port, Timed, host_now as now};
use irnic_transports::Time;
use irnic_transports::qp::CqId;
use irnic_transports::time::MS;
use parking_lot::MutexGuard;

use super::state::State;
use super::unit::Unit;

/// Longest wait of a poll, ns of the host's time: the application may also wait for something that is not visible here.
const LONGEST_POLL: u64 = MS;

impl State {
    fn timed_port(&mut self) -> Option<&mut dyn Timed> {
        // The port of the child of a fork is its parent's.
        if self.timed && !self.forked { self.nic_port.port.timed() } else { None }
    }

    /// Records that the application has made a call other than a poll in vain.
    #[inline]
    pub(super) fn acts(&mut self) {
        if let Some(port) = self.timed_port() {
            port.note(Application::Acts);
            (self.presence.round, self.presence.queue) = (None, None);
        }
    }

    /// Records that the application sleeps until it is notified, or until a `queue` gets an event, if there is
    /// `nothing` for it so far.
    pub(super) fn sleeps_if(&mut self, queue: Option<&Arc<AtomicU64>>, nothing: impl FnOnce() -> bool) {
        if let Some(port) = self.timed_port().filter(|port| port.awaits_applications())
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
        if let Some(port) = self.timed_port() {
            port.settle(heard, completed);
        }
    }

    /// Records a poll in vain of an application whose clock waits for it. Returns whether time has to advance before
    /// another poll finds anything.
    fn polls_in_vain(&mut self, cq: CqId) -> bool {
        if self.model.waiting_cqs > 0 {
            // An application that arms a queue and finds all of them empty is about to sleep, in one way or another.
            let nic = &self.nic_port.nic;
            let empty = self.cqs.handles().all(|cq| nic.cq_len(CqId(cq)).is_ok_and(|len| len == 0));
            self.sleeps_if(None, || empty);
            return false;
        }
        let Some(port) = self.timed_port() else { return false };
        if port.stands_still() {
            return true;
        }
        let at = port.clock();
        if self.presence.closes_round(cq, at) {
            self.presence.queue = None;
            let Some(port) = self.timed_port() else { return false };
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
        if !state.timed_port().is_some_and(|port| port.awaits_applications()) {
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
            state.presence.contention.yielded(before, after);
            if !state.timed_port().is_some_and(|port| port.stands_still()) {
                return true;
            }
            if state.presence.contention.is_high(after) {
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
