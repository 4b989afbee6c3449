//! The functions of the C library that wait until an absolute time.

use std::ffi::{c_int, c_void};

use libc::{clockid_t, itimerspec, timespec};

use crate::next::{Next, c_name, next};
use crate::time::{clock_of, is_lab, machine_deadline};

/// Functions whose last argument is an absolute time, by a clock that `$clock` returns.
macro_rules! until {
    ($(fn $name:ident($($argument:ident: $type:ty),*; $time:ident) by $clock:expr, $version:expr;)+) => {
        $(
            /// # Safety
            /// That of the function of this name in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type,)* $time: *const timespec) -> c_int {
                static NEXT: Next = Next::versioned(c_name!($name), $version);
                let mut converted = timespec { tv_sec: 0, tv_nsec: 0 };
                let mut until = $time;
                if !until.is_null() && is_lab() {
                    // SAFETY: the caller's promise.
                    let $time = unsafe { &*until };
                    converted = machine_deadline($clock, $time);
                    until = &raw const converted;
                }
                let result = next!(NEXT, libc::ENOSYS, ($($argument => $type,)* until => *const timespec) -> c_int);
                let _ = converted;
                result
            }
        )+
    };
}

// Condition variables have two generations, of which the first is of programs older than 2003.
until! {
    fn pthread_cond_timedwait(condition: *mut c_void, mutex: *mut c_void; time) by clock_of(time), c"GLIBC_2.3.2";
    fn pthread_cond_clockwait(condition: *mut c_void, mutex: *mut c_void, clock: clockid_t; time) by clock, c"GLIBC_2.34";
    fn pthread_mutex_timedlock(mutex: *mut c_void; time) by libc::CLOCK_REALTIME, c"GLIBC_2.34";
    fn pthread_mutex_clocklock(mutex: *mut c_void, clock: clockid_t; time) by clock, c"GLIBC_2.34";
    fn pthread_rwlock_timedrdlock(lock: *mut c_void; time) by libc::CLOCK_REALTIME, c"GLIBC_2.34";
    fn pthread_rwlock_timedwrlock(lock: *mut c_void; time) by libc::CLOCK_REALTIME, c"GLIBC_2.34";
    fn sem_timedwait(semaphore: *mut c_void; time) by libc::CLOCK_REALTIME, c"GLIBC_2.34";
    fn sem_clockwait(semaphore: *mut c_void, clock: clockid_t; time) by clock, c"GLIBC_2.34";
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    static NEXT: Next = Next::new(c"timerfd_settime");
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut converted = itimerspec { it_interval: zero, it_value: zero };
    let mut time = new;
    // SAFETY: the caller's promise.
    if let Some(new) = unsafe { new.as_ref() }
        && flags & libc::TFD_TIMER_ABSTIME != 0
        && is_lab()
        // Disarms it.
        && (new.it_value.tv_sec, new.it_value.tv_nsec) != (0, 0)
    {
        converted = itimerspec { it_value: machine_deadline(clock_of(&new.it_value), &new.it_value), ..*new };
        time = &raw const converted;
    }
    let result =
        next!(NEXT, -1, (fd => c_int, flags => c_int, time => *const itimerspec, old => *mut itimerspec) -> c_int);
    let _ = converted;
    result
}
