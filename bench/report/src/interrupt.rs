//! Ctrl-C as a flag to poll, so that partial results are still reported.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Returns a flag that is set by Ctrl-C and SIGTERM. The second one ends the process at once, with status 130.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// Polling interval of the flag.
const TICK: Duration = Duration::from_millis(20);

/// Sleeps for `ns`, or until the flag is set.
pub fn sleep(ns: u64, interrupted: &AtomicBool) {
    let end = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < end && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
    }
}
