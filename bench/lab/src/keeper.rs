//! Terminates what a lab has started if the lab itself is killed.
//!
//! The keeper is a separate process that reads from a pipe whose other end the launcher has. If the pipe is closed
//! without notice, however the launcher died, the keeper terminates the process groups registered with it.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

/// First word of the line with the descriptors of the hosts' TUN devices, which precedes [`READY`].
const TUNS: &str = "tuns";
/// The argument for TUN devices.
const EMULATED: &str = "emulated";

/// The networks that a keeper creates.
#[derive(Copy, Clone)]
pub struct Networks<'a> {
    /// Directory of the lab.
    pub directory: &'a Path,
    /// Number of hosts.
    pub hosts: u32,
    /// Whether IP packets between hosts cross the emulated network.
    pub emulated: bool,
}

/// The launcher's end.
pub struct Keeper {
    process: Child,
    pipe: Option<ChildStdin>,
    /// TUN devices of the hosts, if there are any.
    tuns: Vec<OwnedFd>,
}

impl Keeper {
    /// Starts the process. If hosts have their own networks, it creates them, and kills the processes in them at the
    /// end.
    pub fn start(networks: Option<Networks<'_>>) -> io::Result<Keeper> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(Networks { directory, hosts, emulated }) = networks {
            command.arg(NAME).arg(directory).arg(hosts.to_string()).args(emulated.then_some(EMULATED));
        } else {
            command.arg(NAME);
        }
        // It must not receive signals to the launcher's group.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let (pipe, said) = (process.stdin.take(), process.stdout.take());
        let mut keeper = Keeper { pipe, process, tuns: Vec::new() };
        let mut lines = said.map(|said| BufReader::new(said).lines()).into_iter().flatten();
        let mut line = lines.next().transpose()?.unwrap_or_default();
        if let Some(numbers) = line.strip_prefix(TUNS) {
            keeper.tuns = taken(keeper.process.id(), numbers)?;
            line = lines.next().transpose()?.unwrap_or_default();
        }
        match line.trim_end() {
            READY => Ok(keeper),
            "" => Err(io::Error::other("it has ended")),
            why => Err(io::Error::other(why)),
        }
    }

    /// Takes the TUN devices, one for each host.
    pub fn take_tuns(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.tuns)
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

/// Duplicates descriptors of another process (pidfd_getfd(2)).
fn taken(process: u32, numbers: &str) -> io::Result<Vec<OwnedFd>> {
    let owned = |result: libc::c_long| match libc::c_int::try_from(result) {
        // SAFETY: a new descriptor that nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: no memory is passed.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })?;
    let number = |word: &str| word.parse::<libc::c_int>().map_err(|_| io::Error::other("a descriptor is not a number"));
    let numbers: Vec<libc::c_int> = numbers.split_whitespace().map(number).collect::<Result<_, _>>()?;
    // SAFETY: as above.
    let duplicate =
        |number: libc::c_int| unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    numbers.into_iter().map(|number| owned(duplicate(number))).collect()
}

/// Sends a signal to a process group. Returns whether the group exists.
pub fn signal(group: u32, signal: libc::c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(-(group as libc::pid_t), signal) == 0 }
}

/// Runs the keeper.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let made = match arguments {
        [directory, hosts, how @ ..] => {
            let hosts = hosts.to_str().and_then(|hosts| hosts.parse().ok()).unwrap_or(0);
            Made::new(Path::new(directory), hosts, how.iter().any(|word| word == EMULATED)).map(Some)
        }
        _ => Ok(None),
    };
    if let Ok(Some(made)) = &made
        && made.tuns().next().is_some()
    {
        println!("{TUNS}{}", made.tuns().map(|fd| format!(" {fd}")).collect::<String>());
    }
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
