//! The processes of a lab: started, waited for, and ended.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::file::HostCommand;
use crate::run;

/// How often commands are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long a process that is told to end has until it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// What all processes of a lab are given.
pub struct Surroundings<'a> {
    /// Socket of the lab.
    pub socket: &'a Path,
    /// The shared object that stands in for libibverbs.
    pub library: &'a Path,
    /// Variables of the environment.
    pub variables: &'a [(&'a str, String)],
}

impl Surroundings<'_> {
    fn command(&self, program: &OsStr, host: Option<u32>) -> Result<Command, run::RunError> {
        let mut command = Command::new(program);
        command.env("IRNIC_PORT", format!("lab:{}", self.socket.display()));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(host) = host {
            command.env("IRNIC_LAB_HOST", host.to_string());
        }
        // So that what a command leaves behind can be ended with it.
        command.process_group(0);
        run::put_in(&mut command, self.library, Some(Vec::new()))?;
        Ok(command)
    }
}

/// A command that runs, or did.
struct Running {
    name: String,
    child: Child,
    service: bool,
    status: Option<ExitStatus>,
}

/// How a command ended.
pub struct Ended {
    /// The host and the command, or the command.
    pub name: String,
    /// What it returned; `None` for a service that the lab ended.
    pub status: Option<ExitStatus>,
}

impl Ended {
    /// Returns the exit status as shells have it: 128 and the signal's number for who was killed.
    pub fn code(&self) -> u8 {
        let Some(status) = self.status else { return 0 };
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        u8::try_from(code).unwrap_or(1)
    }
}

/// Runs all commands until those that are no services have ended, or `interrupted`. What is left is ended.
pub fn run(
    surroundings: &Surroundings<'_>,
    hosts: &[HostCommand],
    command: &[std::ffi::OsString],
    interrupted: &AtomicBool,
) -> Result<Vec<Ended>, run::RunError> {
    let began = Instant::now();
    let mut waiting: Vec<&HostCommand> = hosts.iter().collect();
    let mut running: Vec<Running> = Vec::new();
    let failed = |running: &mut Vec<Running>, error| {
        end_all(running);
        Err(error)
    };
    if let [program, rest @ ..] = command {
        let mut started = surroundings.command(program, None)?;
        // It has the terminal.
        started.process_group(0).args(rest);
        match start(started, program, program.to_string_lossy().into_owned(), false) {
            Ok(child) => running.push(child),
            Err(error) => return failed(&mut running, error),
        }
    }
    loop {
        let due = |host: &&HostCommand| began.elapsed() >= Duration::from_nanos(host.after);
        for host in waiting.extract_if(.., |host| due(host)) {
            let mut shell = surroundings.command(OsStr::new("sh"), Some(host.host))?;
            shell.args(["-c", &host.command]);
            let name = format!("host {}: {}", host.host, host.command);
            match start(shell, OsStr::new("sh"), name, host.service) {
                Ok(child) => running.push(child),
                Err(error) => return failed(&mut running, error),
            }
        }
        for one in running.iter_mut().filter(|one| one.status.is_none()) {
            one.status = one.child.try_wait().ok().flatten();
        }
        let busy =
            waiting.iter().any(|host| !host.service) || running.iter().any(|one| !one.service && one.status.is_none());
        if !busy || interrupted.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(LOOK);
    }
    end_all(&mut running);
    Ok(running.into_iter().map(|one| Ended { name: one.name, status: one.status }).collect())
}

fn start(mut command: Command, program: &OsStr, name: String, service: bool) -> Result<Running, run::RunError> {
    let child = command.spawn().map_err(|error| run::RunError::Exec { command: program.to_owned(), error })?;
    Ok(Running { name, child, service, status: None })
}

/// Ends what still runs, and what it has started.
fn end_all(running: &mut [Running]) {
    let signal = |one: &Running, signal| {
        // SAFETY: no memory is passed. The group is that of a child, which was not waited for or has left it to its own.
        unsafe { libc::kill(-(one.child.id() as libc::pid_t), signal) };
    };
    running.iter().for_each(|one| signal(one, libc::SIGTERM));
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        let left = running.iter_mut().filter(|one| one.status.is_none());
        let ended = left.map(|one| !matches!(one.child.try_wait(), Ok(None))).collect::<Vec<_>>();
        if ended.iter().all(|ended| *ended) {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for one in running {
        signal(one, libc::SIGKILL);
        let _: io::Result<ExitStatus> = one.child.wait();
    }
}
