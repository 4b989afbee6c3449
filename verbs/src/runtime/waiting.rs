//! Polls that do not return at once: they yield the core to other threads, sleep, or wait for what the application
//! looks for in memory.

use std::time::Duration;

use irnic_ports::Port;
use irnic_ports::slices::Short;
use irnic_transports::Time;
use parking_lot::MutexGuard;

use super::app_model::SLEEP;
use super::now;
use super::state::State;
use super::unit::Unit;

impl State {
    /// Returns whether there are completions that sleeping threads were not notified of; true only once for them.
    #[inline]
    pub(super) fn ends_sleep(&mut self) -> bool {
        self.model.empty_polls.any_sleeps() && {
            let completions = self.nic_port.nic.completions();
            self.model.empty_polls.end_sleep(completions)
        }
    }
}

impl Unit {
    /// Unlocks the unit, and wakes sleeping threads if there is a completion for them. They are woken without the lock:
    /// a thread that was handed it and got no core would keep all others waiting.
    #[inline]
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let ends_sleep = state.ends_sleep();
        drop(state);
        if ends_sleep {
            self.sleepers.woken.notify_all();
        }
    }

    /// Makes a thread whose polls have been empty for some time yield its core to others, or sleep, if they want it.
    #[cold]
    pub(super) fn yield_or_sleep(&self, mut state: MutexGuard<'_, State>, now: Time) {
        if now < state.model.empty_polls.oversubscribed_until {
            return self.wait_for_completions(state);
        }
        let wanted = state.model.empty_polls.record_usage(self.sleepers.usage());
        self.unlock(state);
        if wanted {
            self.yield_core();
        }
    }

    /// Yields the calling thread's core to others.
    fn yield_core(&self) {
        let before = now();
        std::thread::yield_now();
        let after = now();
        self.state.lock().model.empty_polls.yielded(before, after);
    }

    /// Sleeps until there are completions, for at most [`SLEEP`].
    pub(super) fn wait_for_completions(&self, mut state: MutexGuard<'_, State>) {
        let before = state.nic_port.nic.completions();
        state.model.empty_polls.sleep(before);
        // Spinning threads give way to it when it wakes. Reset without the lock.
        let mut short = None;
        if state.arm_wakeup() && state.nic_port.nic.completions() == before {
            short = Some(Short::begin());
            self.sleepers.woken.wait_for(&mut state, Duration::from_nanos(SLEEP));
        }
        state.model.empty_polls.slept();
        self.unlock(state);
        drop(short);
    }

    /// Waits, after completions were taken, for what the application looks for in memory.
    #[cold]
    pub(super) fn wait_for_memory(&self, mut state: MutexGuard<'_, State>) {
        let begun = now();
        let until = state.model.memory_watch.waits_until(begun);
        state.model.memory_watch.took(begun);
        if begun >= until || state.model.is_awaited() || state.timed {
            return self.end(state, begun);
        }
        if state.model.is_idle(begun) {
            state.nic_port.port.take_over();
        }
        loop {
            let time = now();
            state.model.last_progress = time;
            let received = state.receive(time);
            state.answer_or_wait(received, 0, time);
            if received > 0 || time >= until {
                state.model.memory_watch.waited(time, received > 0);
                return self.end(state, time);
            }
            // Other threads of the application.
            MutexGuard::bump(&mut state);
            std::hint::spin_loop();
        }
    }
}
