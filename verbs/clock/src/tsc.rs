//! The time stamp counter: reading it is forbidden (prctl(2), PR_SET_TSC), and the signal handler returns the lab's
//! time instead. A reading takes some microseconds.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libc::{siginfo_t, timespec, ucontext_t};

use crate::actions;
use crate::objects::{is_own, is_vdso};
use crate::time::{of_lab, seen, set_trapped};

/// linux/prctl.h.
const PR_GET_TSC: c_int = 25;
const PR_SET_TSC: c_int = 26;
const ALLOW: c_int = 1;
const SIGNAL: c_int = 2;

/// `si_code` of a fault without an address.
const SI_KERNEL: c_int = 0x80;

/// RDTSC and RDTSCP.
const RDTSC: [u8; 2] = [0x0f, 0x31];
const RDTSCP: [u8; 3] = [0x0f, 0x01, 0xf9];

/// The counter in the lab's time: its value at a time of the lab, ns, and its frequency, kHz.
struct Counter {
    value: u64,
    at: i64,
    khz: u64,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

/// Allows or forbids this thread, and those that it creates, to read the counter.
fn set(how: c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(PR_SET_TSC, how) == 0 }
}

/// Allows this thread to read the counter, for another program to be started. Returns whether that was forbidden.
pub fn allow() -> bool {
    let mut how: c_int = 0;
    // SAFETY: a valid place for the answer.
    let is_known = COUNTER.get().is_some() && unsafe { libc::prctl(PR_GET_TSC, &raw mut how) } == 0;
    is_known && how == SIGNAL && set(ALLOW)
}

/// Forbids it again.
pub fn forbid() {
    set(SIGNAL);
}

/// Reads the counter.
fn read() -> u64 {
    // SAFETY: the instruction is allowed, or interrupted by the handler below.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns the frequency that the kernel states, by which programs convert the counter, kHz.
fn stated_khz() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    Some((mhz * 1e3) as u64).filter(|khz| *khz > 0)
}

/// Called by libirnic_verbs when a program opens a device of a lab: from here on, this thread and those that it creates
/// read the lab's time from the counter.
#[unsafe(no_mangle)]
pub extern "C" fn irnic_clock_trap_counter() {
    let Some(at) = of_lab(libc::CLOCK_MONOTONIC) else { return };
    let Some(khz) = stated_khz() else { return };
    if COUNTER.get().is_none() {
        let _ = COUNTER.set(Counter { value: read(), at, khz });
        // Its functions are called by signal handlers from now on, where they may not be looked up.
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        crate::time::of_machine(libc::CLOCK_MONOTONIC, &raw mut now);
        if !actions::take(handler) {
            return;
        }
    }
    set_trapped();
    set(SIGNAL);
}

/// Handles SIGSEGV.
///
/// # Safety
/// Called by the kernel.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both.
    let (code, registers) = unsafe { ((*info).si_code, &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs) };
    let at = registers[libc::REG_RIP as usize] as usize;
    // SAFETY: such a fault is of an instruction that was read, but for its last bytes, which are read only if the
    // first two are theirs.
    let length = if code == SI_KERNEL { unsafe { length(at as *const u8) } } else { None };
    let Some(length) = length else {
        // SAFETY: as this one's.
        unsafe { actions::pass_on(signal, info, context) };
        return;
    };
    // What is interrupted has its errno still to read.
    // SAFETY: this thread's.
    let errno = unsafe { *libc::__errno_location() };
    let value = if is_own(at) || is_vdso(at) { machines() } else { labs() };
    registers[libc::REG_RAX as usize] = i64::from(value as u32);
    registers[libc::REG_RDX as usize] = (value >> 32) as i64;
    if length == RDTSCP.len() {
        // The core's number, where the kernel has it.
        // SAFETY: has no precondition.
        registers[libc::REG_RCX as usize] = i64::from(unsafe { libc::sched_getcpu() });
    }
    registers[libc::REG_RIP as usize] += length as i64;
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the length of the instruction if it reads the counter.
///
/// # Safety
/// Two bytes can be read, and a third one if they begin RDTSCP.
unsafe fn length(instruction: *const u8) -> Option<usize> {
    // SAFETY: the caller's promise.
    let two = unsafe { instruction.cast::<[u8; 2]>().read_unaligned() };
    if two == RDTSC {
        return Some(RDTSC.len());
    }
    // SAFETY: the caller's promise.
    (two == RDTSCP[..2] && unsafe { instruction.add(2).read() } == RDTSCP[2]).then_some(RDTSCP.len())
}

/// The counter's own value.
fn machines() -> u64 {
    set(ALLOW);
    let value = read();
    set(SIGNAL);
    value
}

/// The counter's value by the lab's time.
fn labs() -> u64 {
    let (Some(Counter { value, at, khz }), Some(now)) = (COUNTER.get(), seen(libc::CLOCK_MONOTONIC, true)) else {
        return machines();
    };
    let passed = u128::from(u64::try_from(now - at).unwrap_or(0)) * u128::from(*khz) / 1_000_000;
    value.wrapping_add(passed as u64)
}
