//! A unit's background thread, which runs the unit while no other thread does.

use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use irnic_ports::{Port, host_now as now, slices};
use irnic_transports::time::SEC;
use irnic_transports::{Time, room};
use parking_lot::MutexGuard;

use super::app_model::{BusyPoll, IDLE_INTERVAL, POLL_INTERVAL};
use super::netlink::Watch;
use super::state::State;
use super::unit::Unit;

/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

impl Unit {
    /// Starts the background thread, once.
    pub(super) fn start(self: &Arc<Unit>) -> io::Result<()> {
        if self.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // The list of devices may be older than the watch.
        self.follow_interface();
        let unit = self.clone();
        let thread = std::thread::Builder::new().name("irnic".into()).stack_size(STACK);
        // Without memory for its stack the C library would return EAGAIN.
        let room = room::ensure(STACK).map_err(io::Error::from);
        let (begun, begins) = mpsc::channel::<()>();
        let started = room.and_then(|()| {
            with_signals_blocked(|| {
                thread.spawn(move || {
                    drop(begun);
                    unit.run();
                })
            })
        });
        if let Err(e) = started {
            self.running.store(false, Ordering::Release);
            return Err(e);
        }
        // Without memory for what a thread needs before it runs, the standard library would end the process; after this
        // call it no longer can.
        let _ = begins.recv();
        Ok(())
    }

    fn run(&self) {
        slices::prefer_short();
        // Short sleeps end on time: by default the kernel may add 50 us.
        // SAFETY: no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        self.sleepers.note_background();
        let mut busy_poll = BusyPoll::new(self.info().config.spin);
        let mut woken = false;
        loop {
            // A panic ends this round, not the thread: the application's queue pairs stay alive. In a debug build it
            // ends the process, so that no test passes if the library panics.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run_once(woken, &mut busy_poll)));
            if cfg!(debug_assertions) && outcome.is_err() {
                std::process::abort();
            }
            let (timeout, unheard) = outcome.unwrap_or((IDLE_INTERVAL, false));
            // A pending report of the port would end the sleep at once.
            woken = self.sleep(timeout, !unheard) || unheard;
        }
    }

    /// Runs a turn of the background thread, `woken` by the port or not. Returns how long the thread may sleep, in ns,
    /// and whether it still has to report to the port that it was woken.
    pub(super) fn run_once(&self, woken: bool, busy_poll: &mut BusyPoll) -> (u64, bool) {
        if woken {
            busy_poll.woken(now());
        }
        let mut turn = Turn { unit: self, busy_poll, called: woken, acks_wait: false };
        loop {
            // The thread that holds the lock does the work, sooner than this one could have taken the lock.
            let Some(state) = self.state.try_lock() else {
                if turn.acks_wait {
                    std::thread::yield_now();
                    continue;
                }
                let briefly = self.app_idle.load(Ordering::Relaxed);
                return (if briefly { turn.busy_poll.keep_aside(turn.called) } else { POLL_INTERVAL }, turn.called);
            };
            if let Some(timeout) = turn.round(state) {
                return (timeout, false);
            }
        }
    }

    /// Sleeps until woken by another thread, by the port if `hear`, or by a change of the interface, which is then
    /// applied. Returns whether the port has something.
    fn sleep(&self, timeout: u64, hear: bool) -> bool {
        let mut polls = [
            libc::pollfd { fd: self.wake_fd.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: self.port_fd.filter(|_| hear).unwrap_or(-1), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: self.watch.as_ref().map_or(-1, Watch::fd), events: libc::POLLIN, revents: 0 },
        ];
        let limit =
            libc::timespec { tv_sec: (timeout / SEC) as libc::time_t, tv_nsec: (timeout % SEC) as libc::c_long };
        let limit = if timeout == u64::MAX { std::ptr::null() } else { &raw const limit };
        // SAFETY: valid pollfds, as many as there are, and a timespec or none.
        let n = unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit, std::ptr::null()) };
        if n > 0 && polls[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes are written.
            unsafe { libc::read(self.wake_fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        if n > 0 && polls[2].revents != 0 {
            self.follow_interface();
        }
        n > 0 && polls[1].revents != 0
    }
}

/// A turn of the background thread: rounds in which it holds the unit's lock, until it may sleep.
struct Turn<'a> {
    unit: &'a Unit,
    busy_poll: &'a mut BusyPoll,
    /// The port woke the thread, and has not been notified yet.
    called: bool,
    /// Acknowledgements wait for further packets.
    acks_wait: bool,
}

impl Turn<'_> {
    /// Runs the unit once, and unlocks it. Returns how long the thread may sleep, in ns; `None`: it does another round.
    fn round(&mut self, mut state: MutexGuard<'_, State>) -> Option<u64> {
        state.explain();
        let time = now();
        let polled = state.model.is_polling(time);
        let patience = state.model.patience(time);
        if state.ack_deferred && time >= state.model.answers.due {
            state.give_up_answer(time);
        }
        state.send_if_overdue(time);
        if std::mem::take(&mut self.called) {
            state.nic_port.port.cancel_sleep();
        } else if polled {
            // It has to reply, or to poll again.
            let interval = if state.ack_deferred { state.model.answers.due.since(time) } else { POLL_INTERVAL };
            state.model.next_run = time + interval;
            return Some(interval);
        }
        let moved;
        (moved, self.acks_wait) = state.progress_in_background(time, polled);
        if moved > 0 {
            if state.model.found(time, patience) {
                self.unit.app_idle.store(true, Ordering::Relaxed);
            }
            // Moving the packets has taken time.
            self.busy_poll.moved(now());
        }
        // The application gets the core at once if acknowledgements are left to it.
        let left = state.ack_deferred;
        if !polled && !left && (moved > 0 || self.acks_wait || self.busy_poll.goes_on(time)) {
            // Let an application thread in before the next round. Sleeping threads are notified after the last.
            MutexGuard::unlock_fair(state);
            if moved == 0 && !self.acks_wait && self.busy_poll.yields() {
                let before = now();
                std::thread::yield_now();
                self.busy_poll.yielded(before, now());
            }
            return None;
        }
        self.try_end(state, time, polled)
    }

    /// Schedules the next run, and asks peers to ring until then unless the application polls. Returns the time until
    /// then, in ns; `None`: packets keep arriving.
    fn try_end(&self, mut state: MutexGuard<'_, State>, time: Time, polled: bool) -> Option<u64> {
        let idle = state.model.is_idle(time);
        if !idle {
            self.unit.app_idle.store(false, Ordering::Relaxed);
        }
        if polled && !idle && !state.ack_deferred {
            state.model.next_run = time + POLL_INTERVAL;
            self.unit.unlock(state);
            return Some(POLL_INTERVAL);
        }
        if !state.arm_wakeup() {
            MutexGuard::unlock_fair(state);
            return None;
        }
        let interval = state.model.interval(time);
        let interval = if state.ack_deferred { state.model.answers.due.since(time) } else { interval };
        let timeout = interval.min(state.next_deadline().since(time));
        state.model.next_run = time + timeout;
        self.unit.unlock(state);
        Some(timeout)
    }
}

/// Runs `something`, such as starting a thread, with all signals blocked: they are for the application.
pub(super) fn with_signals_blocked<T>(something: impl FnOnce() -> T) -> T {
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let done = something();
    // SAFETY: restores the previous mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    done
}
