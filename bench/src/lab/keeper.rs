//! Ends what a lab has started when the lab itself is killed.
//!
//! The keeper is a process of its own that reads from a pipe whose other end the launcher has. When that ends without a
//! word, however the launcher died, the keeper ends the process groups that it was told of.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long a process that is told to end has until it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// The only argument of the process.
pub const NAME: &str = "lab-keeper";
/// The word by which the launcher says that it has ended everything itself.
const DONE: &str = "done";

/// The launcher's end.
pub struct Keeper {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts the process.
    pub fn start() -> io::Result<Keeper> {
        let mut command = Command::new(std::env::current_exe()?);
        // A signal to the launcher's group is none of its business.
        command.arg(NAME).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        Ok(Keeper { pipe: process.stdin.take(), process })
    }

    /// Has a process group ended with the launcher.
    pub fn add(&mut self, group: u32) {
        // Without a keeper nobody ends it then: no reason to end it now.
        let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "{group}"));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.pipe.take().map(|mut pipe| writeln!(pipe, "{DONE}"));
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process group. Returns whether it has processes.
pub fn signal(group: u32, signal: libc::c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(-(group as libc::pid_t), signal) == 0 }
}

/// Runs the keeper.
pub fn main() -> ExitCode {
    let mut groups = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == DONE {
            return ExitCode::SUCCESS;
        }
        // 0 and 1 would be its own group, and everybody.
        groups.extend(line.parse().ok().filter(|group| (2..=i32::MAX as u32).contains(group)));
    }
    groups.retain(|group| signal(*group, libc::SIGTERM));
    let until = Instant::now() + GRACE;
    while !groups.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        groups.retain(|group| signal(*group, 0));
    }
    groups.iter().for_each(|group| _ = signal(*group, libc::SIGKILL));
    ExitCode::SUCCESS
}
