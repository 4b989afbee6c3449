//! What replaces the `sleep` of `SERVER & sleep 1` when the book's commands are run: on a busy machine a server may
//! take longer.

use std::os::unix::process::parent_id;
use std::thread::sleep;
use std::time::Duration;

use irnic_launch::listening::{descendants, listens};
use irnic_testkit::wait;

/// The argument by which this program waits: the seconds follow.
pub const ARGUMENT: &str = "--until-it-listens";

/// Returns a script whose servers are waited for by the program `waits`.
pub fn waiting(script: &str, waits: &str) -> String {
    script.replace("& sleep ", &format!("& '{waits}' {ARGUMENT} "))
}

/// Waits as long as the reader does, then until a process that the same shell has started listens, or all have ended.
pub fn until_it_listens(seconds: &str) {
    sleep(Duration::from_secs_f64(seconds.parse().expect("seconds")));
    let shell = parent_id();
    wait::until("a server that listens", || {
        let started = descendants(shell);
        started.is_empty() || started.iter().any(|process| listens(*process))
    });
}
