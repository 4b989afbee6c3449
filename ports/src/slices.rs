//! Time slices of threads, and contention for cores.
//!
//! A thread with a shorter slice than the running one preempts it when it wakes (Linux 6.12, EEVDF), instead of waiting
//! for the end of its slice: a spinning thread would delay what it waits for by milliseconds. Other kernels ignore or
//! reject the request.

use irnic_transports::Time;
use irnic_transports::time::{MS, SEC, US};

/// The shortest slice that Linux grants, ns.
const SHORT: u64 = 100 * US;

/// A `sched_yield` that took this long, ns, has let a thread run that computes.
const TAKEN: u64 = 500 * US;
/// Longest interval, ns, between such yields that count as consecutive.
const CLOSE: u64 = MS;
/// How long contention is assumed to last, ns. Finding out again costs slices of other threads.
const HOLD: u64 = SEC;

/// struct sched_attr of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
struct Attr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Length of a slice for SCHED_OTHER, ns; 0 on kernels without support.
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Attr {
    const EMPTY: Attr = Attr {
        size: size_of::<Attr>() as u32,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };

    /// Returns the calling thread's attributes.
    fn get() -> Option<Attr> {
        let mut attr = Attr::EMPTY;
        // SAFETY: at most as many bytes are written as the size passed; 0 is this thread.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, Attr::EMPTY.size, 0) };
        (done == 0).then_some(Attr { size: Attr::EMPTY.size, ..attr })
    }

    /// Sets the calling thread's attributes.
    fn set(&self) {
        // SAFETY: a valid attribute structure with its size; 0 is this thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *self, 0) };
    }
}

/// Requests short slices for the calling thread, with the default policy (SCHED_OTHER): for threads of irnic's own,
/// which would otherwise inherit that of the application's.
pub fn prefer_short() {
    // SAFETY: no memory is passed; 0 is this thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    Attr { policy: libc::SCHED_OTHER as u32, nice, runtime: SHORT, ..Attr::EMPTY }.set();
}

/// Short slices of the calling thread while this lives. A thread for which the application has set another policy,
/// real-time or background, is left as it is.
#[derive(Debug)]
pub struct Short(Option<Attr>);

impl Short {
    /// Requests short slices.
    pub fn begin() -> Short {
        let before = Attr::get().filter(|attr| attr.policy == libc::SCHED_OTHER as u32 && attr.runtime > SHORT);
        if let Some(attr) = &before {
            Attr { runtime: SHORT, ..*attr }.set();
        }
        Short(before)
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        if let Some(attr) = &self.0 {
            attr.set();
        }
    }
}

/// Detects that other threads compute on the cores of a thread that yields, by how long that takes. Each further yield
/// would take as long, so that a sleep is better: a thread that has slept preempts others when it wakes.
#[derive(Clone, Debug, Default)]
pub struct Contention {
    /// Number of consecutive long yields, and the end of the last one.
    long: u32,
    last: Time,
    until: Time,
}

impl Contention {
    /// Number of consecutive long yields that are evidence: a single one may be a thread that soon sleeps again.
    pub const EVIDENCE: u32 = 16;

    /// Records a yield from `before` to `after`, on the same clock.
    pub fn yielded(&mut self, before: Time, after: Time) {
        if after.since(before) < TAKEN {
            self.long = 0;
            return;
        }
        self.long = if before.since(self.last) < CLOSE { self.long + 1 } else { 1 };
        self.last = after;
        if self.long >= Contention::EVIDENCE {
            self.until = after + HOLD;
        }
    }

    /// Returns whether a yield now is expected to take long.
    pub fn is_high(&self, now: Time) -> bool {
        now < self.until
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn consecutive_long_yields_are_evidence_of_contention() {
        let mut contention = Contention::default();
        let mut now = Time(SEC);
        for n in 1..=Contention::EVIDENCE {
            assert!(!contention.is_high(now), "{n}");
            contention.yielded(now, now + TAKEN);
            now += TAKEN;
        }
        assert!(contention.is_high(now) && contention.is_high(now + (HOLD - 1)) && !contention.is_high(now + HOLD));
        // Interrupted by a short one, or by a pause.
        for (between, pause) in [(US, 0), (TAKEN, CLOSE)] {
            let (mut contention, mut now) = (Contention::default(), Time(SEC));
            for took in [TAKEN, TAKEN, TAKEN, between, TAKEN] {
                contention.yielded(now + pause, now + pause + took);
                now += pause + took;
                assert!(!contention.is_high(now));
            }
        }
    }

    #[test]
    fn short_slices_end_and_leave_everything_else_as_it_was() {
        let Some(before) = Attr::get() else {
            irnic_testkit::skipped("short_slices: there is no sched_getattr(2) here");
            return;
        };
        let short = Short::begin();
        let during = Attr::get().unwrap();
        assert_eq!((during.policy, during.nice, during.flags), (before.policy, before.nice, before.flags));
        if before.policy == libc::SCHED_OTHER as u32 && before.runtime > SHORT {
            assert_eq!(during.runtime, SHORT);
        } else {
            irnic_testkit::skipped("short_slices: this kernel has no slices (Linux 6.12 and later)");
            assert_eq!(during.runtime, before.runtime);
        }
        drop(short);
        assert_eq!(format!("{:?}", Attr::get().unwrap()), format!("{before:?}"));
    }
}
