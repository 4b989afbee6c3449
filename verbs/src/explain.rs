//! Reasons of failed calls, for users: C has only `EINVAL` for all of them.
//!
//! The code that fails notes the reason, and the boundary to C prints it with the call's name. This happens only if the
//! setting `explain` asks for it, and never if a call succeeds.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

static WANTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The error noted last in this thread, and its reason.
    static REASON: RefCell<Option<(c_int, String)>> = const { RefCell::new(None) };
    /// The next reason is printed even if reasons are off.
    static INSISTS: Cell<bool> = const { Cell::new(false) };
}

/// Turns the printing of reasons on or off.
pub(crate) fn set_wanted(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether reasons are wanted.
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Prints a reason that belongs to no call, once.
#[cold]
pub(crate) fn print_once(why: &str) {
    if let Some(line) = PRINTED.lock().line(why) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// Makes the reason noted next be printed in any case: it is a mistake that only the user can fix.
pub(crate) fn insist() {
    INSISTS.set(true);
}

/// Records why a call is about to fail with `errno`.
#[cold]
pub(crate) fn note(errno: c_int, why: &dyn fmt::Display) {
    if is_wanted() || INSISTS.get() {
        REASON.set(Some((errno, why.to_string())));
    }
}

/// Prints why `call` fails with `errno`, if a reason was noted.
#[cold]
pub(crate) fn print(call: &str, errno: c_int) {
    if !is_wanted() && !INSISTS.get() {
        return;
    }
    INSISTS.set(false);
    if let Some((noted, why)) = REASON.take()
        && noted == errno
        && let Some(line) = PRINTED.lock().line(&format!("{call} fails with {}: {why}", name(errno)))
    {
        // One write, so that lines of processes that fail together do not mix.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// Lines already printed. An application may fail in the same way a million times.
struct Printed {
    /// Hashes of lines.
    lines: Vec<u64>,
}

/// Maximum number of different lines that are printed.
const MOST: usize = 64;

static PRINTED: Mutex<Printed> = Mutex::new(Printed { lines: Vec::new() });

impl Printed {
    /// Returns the line to print; `None` if it was already printed, or too many were.
    fn line(&mut self, text: &str) -> Option<String> {
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        if self.lines.len() > MOST || self.lines.contains(&hash.finish()) {
            return None;
        }
        self.lines.push(hash.finish());
        Some(match self.lines.len() {
            n if n > MOST => format!("irnic: {MOST} different calls were refused; the others are not explained\n"),
            _ => format!("irnic: {text}\n"),
        })
    }
}

/// Returns the error's name in C.
fn name(errno: c_int) -> String {
    let name = match errno {
        libc::EINVAL => "EINVAL",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOMEM => "ENOMEM",
        libc::EBUSY => "EBUSY",
        libc::EFAULT => "EFAULT",
        libc::ENOENT => "ENOENT",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        other => return format!("errno {other}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_once_and_so_many_at_most() {
        let mut printed = Printed { lines: Vec::new() };
        assert_eq!(printed.line("a").as_deref(), Some("irnic: a\n"));
        assert_eq!(printed.line("a"), None);
        let lines = (0..10 * MOST).filter_map(|n| printed.line(&n.to_string())).collect::<Vec<_>>();
        assert_eq!(lines.len(), MOST);
        assert!(lines[MOST - 1].contains("the others are not explained"), "{lines:?}");
        assert_eq!(printed.line("more"), None);
    }
}
