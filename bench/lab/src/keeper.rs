//! Terminates what a lab has started if the lab itself is killed.
//!
//! The keeper is a separate process that reads from a pipe whose other end the launcher has. If the pipe is closed
//! without notice, however the launcher died, the keeper terminates the process groups registered with it.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::namespaces::Made;

/// Time between terminating and killing a process.
pub const GRACE: Duration = Duration::from_secs(2);

/// The only argument of the process.
pub const NAME: &str = "lab-keeper";
/// The message by which the launcher reports that it has terminated everything itself.
const DONE: &str = "done";
/// The message by which the keeper reports that the hosts' networks exist.
const READY: &str = "ready";

/// The launcher's end.
pub struct Keeper {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts the process. With the directory of a lab and a number of hosts, it creates the hosts' networks there, and
    /// kills the processes in them at the end.
    pub fn start(network: Option<(&Path, u32)>) -> io::Result<Keeper> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some((directory, hosts)) = network {
            command.arg(NAME).arg(directory).arg(hosts.to_string());
        } else {
            command.arg(NAME);
        }
        // It must not receive signals to the launcher's group.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let (pipe, said) = (process.stdin.take(), process.stdout.take());
        let keeper = Keeper { pipe, process };
        let mut line = String::new();
        said.map(|said| BufReader::new(said).read_line(&mut line)).transpose()?;
        match line.trim_end() {
            READY => Ok(keeper),
            "" => Err(io::Error::other("it has ended")),
            why => Err(io::Error::other(why)),
        }
    }

    /// Registers a process group to be terminated with the launcher.
    pub fn add(&mut self, group: u32) {
        // Without a keeper, nothing would terminate it then, which is no reason to terminate it now.
        let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "{group}"));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.pipe.take().map(|mut pipe| writeln!(pipe, "{DONE}"));
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process group. Returns whether the group exists.
pub fn signal(group: u32, signal: libc::c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(-(group as libc::pid_t), signal) == 0 }
}

/// Runs the keeper.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let made = match arguments {
        [directory, hosts] => {
            let hosts = hosts.to_str().and_then(|hosts| hosts.parse().ok()).unwrap_or(0);
            Made::new(Path::new(directory), hosts).map(Some)
        }
        _ => Ok(None),
    };
    let (said, made) = match made {
        Ok(made) => (READY.to_owned(), made),
        Err(why) => (why, None),
    };
    println!("{said}");
    if said == READY {
        end_with_the_launcher();
    }
    if let Some(made) = made {
        made.clear();
    }
    ExitCode::SUCCESS
}

/// Waits for the launcher's end, and terminates what is left.
fn end_with_the_launcher() {
    let mut groups = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == DONE {
            return;
        }
        // 0 and 1 would mean its own group, and all processes.
        groups.extend(line.parse().ok().filter(|group| (2..=i32::MAX as u32).contains(group)));
    }
    groups.retain(|group| signal(*group, libc::SIGTERM));
    let until = Instant::now() + GRACE;
    while !groups.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        groups.retain(|group| signal(*group, 0));
    }
    groups.iter().for_each(|group| _ = signal(*group, libc::SIGKILL));
}
