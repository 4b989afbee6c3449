//! What the program does on SIGSEGV, which reaches it if the counter was not the cause.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{sighandler_t, siginfo_t, sigset_t};

use crate::next::{Next, next};

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The signal is handled here.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// The program's handler, and its flags.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicI32 = AtomicI32::new(0);

static SIGACTION: Next = Next::new(c"sigaction");

fn next_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    next!(SIGACTION, -1, (signal => c_int, new => *const libc::sigaction, old => *mut libc::sigaction) -> c_int)
}

/// An action without a mask.
fn action(handler: sighandler_t, flags: c_int) -> libc::sigaction {
    // SAFETY: all zeros are a valid action: the default.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    action
}

/// Handles SIGSEGV by `handler` from now on. Returns whether that was possible.
pub fn take(handler: Handler) -> bool {
    let new = action(handler as sighandler_t, libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER);
    let mut old = action(libc::SIG_DFL, 0);
    if next_action(libc::SIGSEGV, &raw const new, &raw mut old) != 0 {
        return false;
    }
    FLAGS.store(old.sa_flags, Ordering::Relaxed);
    HANDLER.store(old.sa_sigaction, Ordering::Relaxed);
    IS_TAKEN.store(true, Ordering::Release);
    true
}

/// Does what the program wants.
///
/// # Safety
/// The arguments are those of a signal handler.
pub unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match HANDLER.load(Ordering::Relaxed) {
        // The instruction is repeated, and ends the program.
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = action(libc::SIG_DFL, 0);
            next_action(signal, &raw const default, std::ptr::null_mut());
        }
        handler if FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program installed it as such.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            // SAFETY: the caller's promise.
            unsafe { handler(signal, info, context) };
        }
        handler => {
            // SAFETY: as above.
            let handler: unsafe extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            // SAFETY: as above.
            unsafe { handler(signal) };
        }
    }
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if signal != libc::SIGSEGV || !IS_TAKEN.load(Ordering::Acquire) {
        return next_action(signal, new, old);
    }
    let before = action(HANDLER.load(Ordering::Relaxed), FLAGS.load(Ordering::Relaxed));
    // SAFETY: the caller's promise.
    if let Some(new) = unsafe { new.as_ref() } {
        FLAGS.store(new.sa_flags, Ordering::Relaxed);
        HANDLER.store(new.sa_sigaction, Ordering::Relaxed);
    }
    if !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { old.write(before) };
    }
    0
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    static NEXT: Next = Next::new(c"signal");
    if signal != libc::SIGSEGV || !IS_TAKEN.load(Ordering::Acquire) {
        return next!(NEXT, libc::SIG_ERR, (signal => c_int, handler => sighandler_t) -> sighandler_t);
    }
    FLAGS.store(libc::SA_RESTART, Ordering::Relaxed);
    HANDLER.swap(handler, Ordering::Relaxed)
}

/// A thread that blocked SIGSEGV would be killed by it: nobody does.
fn without(set: *const sigset_t, how: c_int) -> Option<sigset_t> {
    if how == libc::SIG_UNBLOCK || !crate::time::is_lab() {
        return None;
    }
    // SAFETY: the caller's promise; the signal is a valid one.
    unsafe {
        let mut set = *set.as_ref()?;
        libc::sigdelset(&raw mut set, libc::SIGSEGV);
        Some(set)
    }
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    static NEXT: Next = Next::new(c"pthread_sigmask");
    let other = without(set, how);
    let set = other.as_ref().map_or(set, |set| &raw const *set);
    next!(NEXT, libc::ENOSYS, (how => c_int, set => *const sigset_t, old => *mut sigset_t) -> c_int)
}

/// # Safety
/// That of the function of this name in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    static NEXT: Next = Next::new(c"sigprocmask");
    let other = without(set, how);
    let set = other.as_ref().map_or(set, |set| &raw const *set);
    next!(NEXT, -1, (how => c_int, set => *const sigset_t, old => *mut sigset_t) -> c_int)
}
