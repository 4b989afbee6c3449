//! A processing unit: one NIC, its port, one lock, and the threads that run it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicError};
use irnic_ports::{Port, host_now as now};
use irnic_transports::Time;
use irnic_transports::qp::{CqId, Wc};
use parking_lot::{Mutex, MutexGuard};

use super::forked;
use super::netlink::Watch;
use super::port::DevicePort;
use super::sleepers::Sleepers;
use super::state::State;
use crate::device::{DeviceInfo, Live};

/// A processing unit: a NIC on a port behind one lock.
///
/// The thread that polls or posts runs the unit itself, to completion. When no thread does, the unit's own background
/// thread takes over: it sleeps until a peer rings, a timer is due, or an interval has passed. Peers ring only while
/// the port knows that no thread polls; they do not ring for an application that polls in a loop, so that the cost of a
/// wake-up is paid only if it is needed.
pub(crate) struct Unit {
    live: Arc<Live>,
    /// Reports changes of the device's interface; `None` if it has none, or the kernel does not report them.
    pub(super) watch: Option<Watch>,
    pub(super) state: Mutex<State>,
    /// Wakes threads that sleep after empty polls.
    pub(super) sleepers: Sleepers,
    /// Wakes the background thread.
    pub(super) wake_fd: OwnedFd,
    pub(super) port_fd: Option<RawFd>,
    pub(super) running: AtomicBool,
    /// A thread serves the counters, or could not be started.
    pub(super) serves_counters: AtomicBool,
    /// The application waits in other ways than by polling, or did recently.
    pub(super) app_idle: AtomicBool,
    /// A look at memory may suffice for the next poll: without it the lock is not taken twice.
    may_look: AtomicBool,
}

/// What a look at one word of memory shows a thread that polls.
pub(crate) enum Look<'a> {
    /// A poll would find nothing.
    Nothing,
    /// A poll may find something, unless other memory shows that it would not: [`Unit::finds_nothing`]. `None`: another
    /// thread has the lock.
    Change(Option<MutexGuard<'a, State>>),
    /// Only a poll can tell.
    Blind,
}

impl Unit {
    /// Returns a unit around a NIC and its port. No thread runs it before [`Unit::start`].
    pub(super) fn new(live: Arc<Live>, nic: Nic, port: Box<dyn DevicePort>, icrc: Icrc) -> io::Result<Arc<Unit>> {
        // SAFETY: no memory is passed.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error());
        }
        let port_fd = port.wait_fd();
        let mut state = State::new(&live, nic, port, icrc);
        if state.timed {
            // The list of devices may be older.
            state.follow_link();
        }
        let watch = live.get().has_interface().then(Watch::open).and_then(Result::ok);
        Ok(Arc::new(Unit {
            state: Mutex::new(state),
            sleepers: Sleepers::default(),
            live,
            watch,
            // SAFETY: a new descriptor with no other owner.
            wake_fd: unsafe { OwnedFd::from_raw_fd(wake) },
            port_fd,
            running: AtomicBool::new(false),
            serves_counters: AtomicBool::new(false),
            app_idle: AtomicBool::new(false),
            may_look: AtomicBool::new(false),
        }))
    }

    /// Returns the current properties of the unit's device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.live.get()
    }

    /// Returns the state of the unit's device, which follows changes.
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Locks the unit for calls that change objects. Sends deferred acknowledgements first: the call may destroy a
    /// queue pair. Whatever it makes ready is sent when the guard is passed to [`Unit::done`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.acts();
        state.send_deferred();
        state
    }

    /// Locks the unit for a call that may destroy a queue pair. Arrived packets for it are acknowledged first, as
    /// hardware would have done on arrival: the peer may wait for nothing else.
    pub(crate) fn lock_to_end(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.progress(now());
        state
    }

    /// Locks the unit like [`Unit::lock`], for a caller that cannot wait forever: `None` if `patience` has passed.
    pub(super) fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state.try_lock_for(patience)?;
        state.send_deferred();
        Some(state)
    }

    /// Locks the unit for posting: the post may be the reply for which an acknowledgement was deferred.
    #[inline]
    pub(crate) fn lock_to_post(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.acts();
        state
    }

    /// Ends a call that may have given the NIC something to send.
    #[inline]
    pub(crate) fn done(&self, mut state: MutexGuard<'_, State>) {
        let now = now();
        state.transmit(now);
        self.end(state, now);
    }

    /// Ends a call that has posted to the send queue of a queue pair. `datagrams`: what could not leave is copied,
    /// since applications reuse the memory of datagrams before they complete ([`Nic::copy_waiting_sends`]).
    #[inline]
    pub(crate) fn posted(&self, mut state: MutexGuard<'_, State>, number: u32, datagrams: bool) {
        let now = now();
        let polls = state.model.posted(now);
        if polls {
            state.receive(now);
        }
        let sent = state.transmit_posted(number, now);
        let long = state.model.sent(sent);
        if datagrams {
            state.nic().copy_waiting_sends(number);
        }
        if polls || long {
            state.model.post_ended(irnic_ports::host_now());
        }
        self.end(state, now);
    }

    #[inline]
    pub(super) fn end(&self, mut state: MutexGuard<'_, State>, now: Time) {
        state.called(now);
        self.leave(state, now);
    }

    /// Unlocks the unit at the end of a call, and wakes the background thread if no other one does the work that is
    /// due.
    #[inline]
    fn leave(&self, mut state: MutexGuard<'_, State>, now: Time) {
        let oversleeps = state.oversleeps(now);
        self.unlock(state);
        if oversleeps {
            self.wake();
        }
    }

    /// Looks at one word of memory in place of a poll of `cq`.
    #[inline(always)]
    pub(crate) fn look(&self, cq: CqId) -> Look<'_> {
        if !self.may_look.load(Ordering::Relaxed) {
            return Look::Blind;
        }
        // Without a call that waits, which would take room on the stack.
        let Some(mut state) = self.state.try_lock() else { return Look::Change(None) };
        if !state.sees_no_change(cq) {
            return Look::Change(Some(state));
        }
        Look::Nothing
    }

    /// Returns whether a poll of `cq` finds nothing, as far as memory shows after a [`Look::Change`]. False if there
    /// has to be more to it than that, as every now and then.
    pub(crate) fn finds_nothing(&self, state: Option<MutexGuard<'_, State>>, cq: CqId) -> bool {
        let mut state = state.unwrap_or_else(|| self.state.lock());
        let finds_nothing = state.looks_in_vain(cq);
        if !finds_nothing {
            self.may_look.store(false, Ordering::Relaxed);
        }
        finds_nothing
    }

    /// Takes up to `max` completions of `cq`; `each` gets them in order. Returns their number.
    #[inline]
    pub(crate) fn poll(&self, cq: CqId, max: usize, mut each: impl FnMut(&Wc)) -> Result<usize, NicError> {
        let mut until = Time::ZERO;
        loop {
            if let Some(n) = self.poll_once(cq, max, &mut until, &mut each)? {
                return Ok(n);
            }
        }
    }

    /// Polls like [`Unit::poll`]. `None`: it has waited and must poll again.
    #[inline]
    fn poll_once(
        &self,
        cq: CqId,
        max: usize,
        until: &mut Time,
        mut each: impl FnMut(&Wc),
    ) -> Result<Option<usize>, NicError> {
        let mut state = self.state.lock();
        let mut n = state.take(cq, max, &mut each)?;
        if state.model.took(n) {
            state.acts();
            if state.model.memory_watch.is_shown() {
                self.wait_for_memory(state);
            }
            return Ok(Some(n));
        }
        let now = now();
        if state.model.polls(now) {
            state.nic_port.port.take_over();
        }
        let received = state.receive(now);
        if n == 0 {
            n = state.take(cq, max, &mut each)?;
        }
        state.answer_or_wait(received, n, now);
        if n == 0 {
            n = state.take(cq, max, &mut each)?;
        }
        if n > 0 {
            if received > 0 {
                // What the application looks for as well, if it does.
                self.end(state, now);
                return Ok(Some(n));
            }
            state.model.memory_watch.took(now);
            if state.model.memory_watch.is_shown() {
                self.wait_for_memory(state);
            } else {
                self.end(state, now);
            }
            return Ok(Some(n));
        }
        let wakes = state.polled_empty(now);
        self.may_look.store(state.model.empty_polls.looks() > 0, Ordering::Relaxed);
        if wakes {
            self.unlock(state);
            self.wake();
        } else if state.timed {
            return Ok(if self.let_time_go_on(state, cq, until) { None } else { Some(0) });
        } else if state.model.empty_polls.are_due(now) {
            self.yield_or_sleep(state, now);
        } else {
            self.unlock(state);
        }
        Ok(Some(0))
    }

    /// Prepares for the calling thread's sleep until a listener is notified, or a `queue` gets other events; unless
    /// there is `nothing`, it does not sleep.
    pub(super) fn prepare_to_block(&self, queue: Option<&Arc<AtomicU64>>, nothing: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        let now = now();
        state.progress(now);
        state.arm_wakeup();
        state.sleeps_if(queue, nothing);
        self.leave(state, now);
    }

    /// Locks the unit until [`Unit::unlock_after_fork`].
    pub(super) fn lock_for_fork(&self) {
        std::mem::forget(self.state.lock());
    }

    /// Unlocks the unit after [`Unit::lock_for_fork`]; in the child of a fork all activity stops.
    ///
    /// # Safety
    /// Must be called in the thread that locked the unit.
    pub(super) unsafe fn unlock_after_fork(&self, child: bool) {
        // SAFETY: this thread holds the lock.
        unsafe {
            (*self.state.data_ptr()).forked |= child;
            forked::unlock(&self.state, child);
        }
    }

    pub(super) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read. A full counter also wakes it.
        unsafe { libc::write(self.wake_fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
