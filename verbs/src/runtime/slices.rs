//! Time slices of threads.
//!
//! A thread with a shorter slice than the running one preempts it when it wakes (Linux 6.12, EEVDF), instead of waiting
//! for the end of its slice: a spinning thread would delay what it waits for by milliseconds. Other kernels ignore or
//! reject the request.

use irnic_transports::time::US;

/// The shortest possible slice, ns.
const SHORT: u64 = 100 * US;

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

/// Requests short slices for the calling thread, one of irnic's own, which uses the default policy whatever the
/// application's threads use.
pub(super) fn prefer_short() {
    // SAFETY: no memory is passed; 0 is this thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    Attr { policy: libc::SCHED_OTHER as u32, nice, runtime: SHORT, ..Attr::EMPTY }.set();
}

/// Short slices of the calling thread while this lives. A thread for which the application has set another policy,
/// real-time or background, is left as it is.
#[derive(Debug)]
pub(super) struct Short(Option<Attr>);

impl Short {
    pub(super) fn begin() -> Short {
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

#[cfg(test)]
mod tests {
    use super::*;

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
