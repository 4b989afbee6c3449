//! The functions of the C library that return the time.
//!
//! Each passes its return address on, by which calls of irnic's own libraries are recognised.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use libc::{clockid_t, time_t, timespec, timeval};

use crate::next::{Next, next};
use crate::objects::is_own;
use crate::time::{is_lab, machine_deadline, of_lab, of_machine, seen, timespec_of};

/// A function that jumps to another one with its return address as a further argument, in the register named for each
/// architecture.
macro_rules! with_caller {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $to:ident, $x86:literal, $arm:literal;)+) => {
        $(
            /// # Safety
            /// That of the function of this name in C.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                #[cfg(target_arch = "x86_64")]
                naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {to}", to = sym $to);
                #[cfg(target_arch = "aarch64")]
                naked_asm!(concat!("mov ", $arm, ", x30"), "b {to}", to = sym $to);
            }
        )+
    };
}

with_caller! {
    fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int = clock_gettime_by, "rdx", "x2";
    fn gettimeofday(to: *mut timeval, zone: *mut c_void) -> c_int = gettimeofday_by, "rdx", "x2";
    fn time(to: *mut time_t) -> time_t = time_by, "rsi", "x1";
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int
        = clock_nanosleep_by, "r8", "x4";
}

unsafe extern "C" fn clock_gettime_by(clock: clockid_t, to: *mut timespec, caller: usize) -> c_int {
    // The lab's time itself is read by a call of this function.
    if is_own(caller) || to.is_null() {
        return of_machine(clock, to);
    }
    let Some(ns) = seen(clock, false) else { return of_machine(clock, to) };
    // SAFETY: the caller's promise.
    unsafe { to.write(timespec_of(ns)) };
    0
}

unsafe extern "C" fn gettimeofday_by(to: *mut timeval, zone: *mut c_void, caller: usize) -> c_int {
    static NEXT: Next = Next::new(c"gettimeofday");
    if to.is_null() || !is_lab() {
        return next!(NEXT, -1, (to => *mut timeval, zone => *mut c_void) -> c_int);
    }
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec.
    unsafe { clock_gettime_by(libc::CLOCK_REALTIME, &raw mut now, caller) };
    // SAFETY: the caller's promise.
    unsafe { to.write(timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 }) };
    0
}

unsafe extern "C" fn time_by(to: *mut time_t, caller: usize) -> time_t {
    static NEXT: Next = Next::new(c"time");
    if !is_lab() {
        return next!(NEXT, -1, (to => *mut time_t) -> time_t);
    }
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec.
    unsafe { clock_gettime_by(libc::CLOCK_REALTIME_COARSE, &raw mut now, caller) };
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(now.tv_sec) };
    }
    now.tv_sec
}

unsafe extern "C" fn clock_nanosleep_by(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
    caller: usize,
) -> c_int {
    static NEXT: Next = Next::new(c"clock_nanosleep");
    let mut converted = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut time = time;
    if flags & libc::TIMER_ABSTIME != 0 && !time.is_null() && is_lab() && !is_own(caller) {
        // SAFETY: the caller's promise.
        converted = machine_deadline(clock, unsafe { &*time });
        time = &raw const converted;
    }
    let result = next!(NEXT, libc::ENOSYS, (clock => clockid_t, flags => c_int, time => *const timespec, left => *mut timespec) -> c_int);
    let _ = converted;
    result
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(to: *mut timespec, base: c_int) -> c_int {
    /// TIME_UTC.
    const UTC: c_int = 1;
    static NEXT: Next = Next::new(c"timespec_get");
    match of_lab(libc::CLOCK_REALTIME) {
        Some(ns) if base == UTC && !to.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { to.write(timespec_of(ns)) };
            base
        }
        _ => next!(NEXT, 0, (to => *mut timespec, base => c_int) -> c_int),
    }
}
