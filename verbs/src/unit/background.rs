//! A unit's background thread, which runs it while no other thread does.

use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use irnic_ports::Port;
use irnic_transports::Time;
use irnic_transports::room;
use irnic_transports::time::{SEC, US};
use parking_lot::MutexGuard;

use super::{AWAY, BEAT, SLOW_BEAT, SPINNING, Unit, now};

/// Bytes of its stack.
const STACK: usize = 256 << 10;
/// How long after the application's last call the thread still looks by itself. Then it sleeps until it is woken.
const WATCHFUL: u64 = SEC;
/// An application that looked at the port within this time will do so again.
const POLLING: u64 = 200 * US;
/// How long the background thread keeps out of the way of another that is inside: of one that polls, and of one that may be away
/// at any time.
const ASIDE: u64 = 500 * US;
const ASIDE_BRIEFLY: u64 = 50 * US;

impl Unit {
    /// Starts the background thread, once.
    pub fn start(self: &Arc<Unit>) -> io::Result<()> {
        if self.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let unit = self.clone();
        // Signals are the application's business: the thread starts with all of them blocked.
        let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are written before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        }
        let thread = std::thread::Builder::new().name("irnic".into()).stack_size(STACK);
        // Without memory for its stack the C library would say EAGAIN.
        let room = room::ensure(STACK).map_err(io::Error::from);
        let started = room.and_then(|()| thread.spawn(move || unit.run()));
        // SAFETY: restores what was there.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
        started.map(drop)
    }

    fn run(&self) {
        prefer_short_slices();
        let mut woken = false;
        loop {
            // A panic loses this look, not the thread: the application's queue pairs live on.
            let looked = catch_unwind(AssertUnwindSafe(|| self.look(woken)));
            let (timeout, unheard) = looked.unwrap_or((SLOW_BEAT, false));
            // What was not heard yet would end the sleep at once.
            woken = self.sleep(timeout, !unheard) || unheard;
        }
    }

    /// The background thread's turn, `woken` by the port or not; returns how long it may sleep, in ns, and whether it has yet to
    /// tell the port that it was woken.
    pub(super) fn look(&self, woken: bool) -> (u64, bool) {
        let mut called = woken;
        let mut last_moved = Time::ZERO;
        loop {
            // Whoever is inside does the work, and has it done before the thread could have got in.
            let Some(mut inner) = self.inner.try_lock() else {
                return (if self.away.load(Ordering::Relaxed) { ASIDE_BRIEFLY } else { ASIDE }, called);
            };
            let time = now();
            let unseen = time.since(inner.last_look);
            let polled = unseen < POLLING && inner.notified == 0;
            if inner.held && unseen >= SPINNING {
                inner.hold_from = time + AWAY;
                inner.release();
            }
            if std::mem::take(&mut called) {
                inner.attached.port.cancel_sleep();
            } else if polled {
                inner.until = time + BEAT;
                return (BEAT, false);
            }
            let moved = inner.progress(time);
            // Work that an application left lying: it waits in another way than by polling.
            if moved > 0 && unseen >= if time < inner.away_until { SPINNING } else { POLLING } {
                inner.away_until = time + AWAY;
                self.away.store(true, Ordering::Relaxed);
            }
            if moved > 0 {
                last_moved = time;
            }
            let spins = time.since(last_moved) < self.info.config.spin;
            if !polled && (moved > 0 || spins) {
                // Let an application thread in before the next round.
                MutexGuard::unlock_fair(inner);
                continue;
            }
            if time >= inner.away_until {
                self.away.store(false, Ordering::Relaxed);
            }
            if polled && time >= inner.away_until {
                inner.until = time + BEAT;
                return (BEAT, false);
            }
            if !inner.arm() {
                MutexGuard::unlock_fair(inner);
                continue;
            }
            let beat = match time.since(inner.last_call) {
                i if i < 10 * BEAT => BEAT,
                i if i < WATCHFUL => SLOW_BEAT,
                _ => u64::MAX,
            };
            let timeout = beat.min(inner.attached.next_deadline().since(time));
            inner.until = time + timeout;
            return (timeout, false);
        }
    }

    /// Sleeps until kicked, or woken by the port if it is to be heard; returns whether the port has something.
    fn sleep(&self, timeout: u64, hear: bool) -> bool {
        let mut polls = [
            libc::pollfd { fd: self.kick.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: self.port_fd.filter(|_| hear).unwrap_or(-1), events: libc::POLLIN, revents: 0 },
        ];
        let limit =
            libc::timespec { tv_sec: (timeout / SEC) as libc::time_t, tv_nsec: (timeout % SEC) as libc::c_long };
        let limit = if timeout == u64::MAX { std::ptr::null() } else { &raw const limit };
        // SAFETY: two valid pollfds and a timespec or none.
        let n = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, limit, std::ptr::null()) };
        if n > 0 && polls[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes are written.
            unsafe { libc::read(self.kick.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        n > 0 && polls[1].revents != 0
    }
}

/// Asks the scheduler for slices of 0.1 ms, the shortest there are. A thread that has a shorter slice than the one that runs takes
/// its place when it wakes (Linux 6.12, EEVDF), instead of waiting for its end: an application that spins on memory would
/// keep what it waits for from arriving for milliseconds. Other kernels ignore or refuse it.
fn prefer_short_slices() {
    // struct sched_attr of sched_setattr(2).
    #[repr(C)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SLICE: u64 = 100 * US;
    // SAFETY: no memory is passed; 0 is this thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attr = Attr {
        size: size_of::<Attr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: a valid attribute structure that says its size; 0 is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
