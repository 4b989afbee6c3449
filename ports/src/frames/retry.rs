//! Retries of operations that fail with a transient error.

use std::io;
use std::time::{Duration, Instant};

/// Time limit and interval of retries for a resource that this process may still hold itself. A child that another
/// thread has just forked keeps what this process closed until it executes its program, for which it needs a core.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(2);

/// Retries an operation that fails with a transient error.
pub(super) fn patiently<T>(
    mut attempt: impl FnMut() -> io::Result<T>,
    mut may_pass: impl FnMut(&io::Error) -> bool,
) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(e) if may_pass(&e) && start.elapsed() < PATIENCE => std::thread::sleep(RETRY),
            other => return other,
        }
    }
}
