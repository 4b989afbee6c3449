//! The lab's time, as the times of the C library's clocks.

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use irnic_ports::lab::LabClock;
use libc::{clockid_t, timespec};

use crate::next::{Next, next};
use crate::objects;
use crate::seen::Seen;

/// ns of a second.
pub const SECOND: i64 = 1_000_000_000;

/// The lab: its socket, and what its time is added to for CLOCK_MONOTONIC and CLOCK_REALTIME, ns, separated by spaces.
const VARIABLE: &str = "IRNIC_PROGRAM_TIME";

/// A time before which no lab began, which CLOCK_MONOTONIC does not reach: 2001-09-09, in s.
const LONG_AGO: i64 = 1_000_000_000;

struct Program {
    clock: LabClock,
    monotonic: i64,
    realtime: i64,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// The time stamp counter may not be read: the vDSO's functions, which read it, would be interrupted each time.
static IS_TRAPPED: AtomicBool = AtomicBool::new(false);

/// Runs before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    objects::find();
    if objects::is_irnic() {
        return;
    }
    let mut words = text.rsplitn(3, ' ');
    let (realtime, monotonic) =
        (words.next().and_then(|word| word.parse().ok()), words.next().and_then(|word| word.parse().ok()));
    let (Some(realtime), Some(monotonic), Some(lab)) = (realtime, monotonic, words.next()) else {
        eprintln!("irnic: {VARIABLE}={text}: expected a lab's socket and two times; irnic lab --program-time sets it");
        return;
    };
    match LabClock::open(Path::new(lab)) {
        Ok(clock) => _ = PROGRAM.set(Program { clock, monotonic, realtime }),
        Err(e) => eprintln!("irnic: programs get the machine's time: {e}"),
    }
}

/// Returns whether the program gets the lab's time.
#[inline]
pub fn is_lab() -> bool {
    PROGRAM.get().is_some()
}

/// Marks that the time stamp counter may not be read any more.
#[cfg(target_arch = "x86_64")]
pub fn set_trapped() {
    IS_TRAPPED.store(true, Ordering::Relaxed);
}

thread_local! {
    static SEEN: Cell<Option<Seen>> = const { Cell::new(None) };
}

/// Returns the lab's time by a clock as the program sees it ([`Seen`]); as [`of_lab`].
#[inline]
pub fn seen(clock: clockid_t, counter: bool) -> Option<i64> {
    let now = of_lab(clock)?;
    let mut cpu = timespec { tv_sec: 0, tv_nsec: 0 };
    if !IS_TRAPPED.load(Ordering::Relaxed) || of_machine(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut cpu) != 0 {
        return Some(now);
    }
    // In the lab's time, without the clock's epoch.
    let epoch = epoch_of(clock)?;
    let seen = Seen::next(SEEN.get(), counter, now - epoch, nanoseconds(&cpu));
    SEEN.set(Some(seen));
    Some(epoch + seen.at)
}

/// Returns what the lab's time is added to for a clock, ns.
#[inline]
fn epoch_of(clock: clockid_t) -> Option<i64> {
    let Program { monotonic, realtime, .. } = PROGRAM.get()?;
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(*realtime),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
            Some(*monotonic)
        }
        _ => None,
    }
}

/// Returns the lab's time by a clock, ns; `None` for those that count something else, and without a lab.
#[inline]
pub fn of_lab(clock: clockid_t) -> Option<i64> {
    let epoch = epoch_of(clock)?;
    let lab = PROGRAM.get()?.clock.now();
    Some(epoch.saturating_add(i64::try_from(lab).unwrap_or(i64::MAX)))
}

/// Returns the machine's time by a clock. Like clock_gettime(2).
#[inline]
pub fn of_machine(clock: clockid_t, to: *mut timespec) -> c_int {
    static NEXT: Next = Next::new(c"clock_gettime");
    if IS_TRAPPED.load(Ordering::Relaxed) {
        // SAFETY: the arguments are the caller's.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) as c_int };
    }
    next!(NEXT, -1, (clock => clockid_t, to => *mut timespec) -> c_int)
}

/// Returns a time in ns.
pub fn nanoseconds(time: &timespec) -> i64 {
    time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec)
}

/// Returns a time since an epoch, given in ns.
#[inline]
pub fn timespec_of(ns: i64) -> timespec {
    timespec { tv_sec: ns.div_euclid(SECOND), tv_nsec: ns.rem_euclid(SECOND) }
}

/// Returns the clock that an absolute time is of, if its function does not say it.
pub fn clock_of(time: &timespec) -> clockid_t {
    if time.tv_sec >= LONG_AGO { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC }
}

/// Returns the machine's time that is as far ahead as `time` is of the lab's; `time` itself if it is not the lab's.
pub fn machine_deadline(clock: clockid_t, time: &timespec) -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    match of_lab(clock) {
        // An invalid time is for the C library to refuse.
        Some(lab) if (0..SECOND).contains(&time.tv_nsec) && of_machine(clock, &raw mut now) == 0 => {
            let ahead = nanoseconds(time).saturating_sub(lab);
            timespec_of(nanoseconds(&now).saturating_add(ahead).max(0))
        }
        _ => *time,
    }
}
