//! The processes of a lab: starting, waiting, and termination.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use irnic_ports::lab::Listeners;
use irnic_report::output;

use crate::file::{HostCommand, Start};
use crate::keeper::{GRACE, Keeper, signal};
use crate::namespaces::{Entrance, programs};

use irnic_launch::{listening, run};

/// Polling interval of commands.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Polling interval of commands while some wait for others to listen: reading the kernel's tables takes longer.
const LISTENING_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which it is reported for what a command waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// The environment of all processes of a lab.
pub struct Surroundings<'a> {
    /// Socket of the lab.
    pub socket: &'a Path,
    /// The shared object that replaces libibverbs.
    pub library: &'a Path,
    /// Further shared objects to be preloaded.
    pub preloaded: &'a [PathBuf],
    /// Environment variables.
    pub variables: &'a [(&'a str, String)],
    /// The lab's directory, if hosts have namespaces.
    pub namespaces: Option<&'a Path>,
    /// Processes that listen for connections of rdma_cm.
    pub listeners: Listeners,
}

impl Surroundings<'_> {
    fn command(&self, program: &OsStr, host: Option<u32>) -> Result<Command, run::RunError> {
        let mut command = Command::new(program);
        command.env("IRNIC_PORT", format!("lab:{}", self.socket.display()));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(host) = host {
            command.env("IRNIC_LAB_HOST", host.to_string());
        }
        if output::is_taken() {
            command.stdout(io::stderr());
        }
        // So that processes it leaves behind can be terminated with it.
        command.process_group(0);
        run::put_in(&mut command, self.library, Some(self.preloaded.to_vec()))?;
        if let Some(directory) = self.namespaces {
            let entrance = Entrance::open(directory, host);
            let entrance = entrance.map_err(|e| run::RunError::Failed(format!("the namespaces of hosts: {e}")))?;
            command.env("PATH", run::in_front(&[programs(directory)], "PATH"));
            // SAFETY: it makes system calls only.
            unsafe { command.pre_exec(move || entrance.enter()) };
        }
        Ok(command)
    }
}

/// A started command.
struct Running {
    name: String,
    /// Its host, if it has one.
    host: Option<u32>,
    child: Child,
    service: bool,
    began: Instant,
    /// Its exit status, and how long it ran.
    ended: Option<(ExitStatus, Duration)>,
}

/// The end of a command.
pub struct Ended {
    /// The host and the command, or only the command.
    pub name: String,
    /// Its process id, which is also the group of it and of what it has started; `None` if it was never started.
    pub pid: Option<u32>,
    /// Its exit status; `None` for a service that the lab terminated.
    pub status: Option<ExitStatus>,
    /// How long it ran.
    pub took: Duration,
}

impl Ended {
    /// Returns the exit status in shell convention: 128 plus the signal number if it was killed.
    pub fn code(&self) -> u8 {
        let Some(status) = self.status else { return 0 };
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        u8::try_from(code).unwrap_or(1)
    }
}

/// Runs all commands until those that are not services have ended, or until `interrupted`. The rest is terminated.
pub fn run(
    surroundings: &Surroundings<'_>,
    keeper: Keeper,
    hosts: &[HostCommand],
    command: &[std::ffi::OsString],
    interrupted: &AtomicBool,
) -> Result<Vec<Ended>, run::RunError> {
    let began = Instant::now();
    let mut waiting: Vec<&HostCommand> = hosts.iter().collect();
    let mut reported = BTreeSet::new();
    let mut started = Started { keeper, running: Vec::new(), terminal: None };
    if let [program, rest @ ..] = command {
        let mut command = surroundings.command(program, None)?;
        command.args(rest);
        let group = started.start(command, program, program.to_string_lossy().into_owned(), None, false)?;
        started.terminal = Terminal::give(group);
    }
    loop {
        let awaited = awaited(&waiting);
        let listens = |host: &u32| started.listens(*host, &surroundings.listeners);
        let listening: BTreeSet<u32> = awaited.iter().copied().filter(listens).collect();
        let due = |host: &&HostCommand| match host.start {
            Start::After(delay) => began.elapsed() >= Duration::from_nanos(delay),
            Start::Listening(of) => listening.contains(&of),
        };
        for host in waiting.extract_if(.., |host| due(host)) {
            let mut shell = surroundings.command(OsStr::new("sh"), Some(host.host))?;
            shell.args(["-c", &host.command]);
            started.start(shell, OsStr::new("sh"), name(host), Some(host.host), host.service)?;
        }
        let running = &mut started.running;
        for one in running.iter_mut().filter(|one| one.ended.is_none()) {
            one.ended = one.child.try_wait().ok().flatten().map(|status| (status, one.began.elapsed()));
        }
        let busy =
            waiting.iter().any(|host| !host.service) || running.iter().any(|one| !one.service && one.ended.is_none());
        if !busy || interrupted.load(Ordering::Relaxed) {
            break;
        }
        for host in awaited.difference(&listening) {
            if began.elapsed() > PATIENCE && reported.insert(*host) {
                eprintln!("irnic lab: waiting until the commands of host {host} listen, or end");
            }
        }
        std::thread::sleep(if awaited.is_empty() { POLL_INTERVAL } else { LISTENING_INTERVAL });
    }
    started.end_all();
    let ended = started.running.drain(..).map(|one| Ended {
        pid: Some(one.child.id()),
        name: one.name,
        status: one.ended.map(|(status, _)| status),
        took: one.ended.map_or_else(|| one.began.elapsed(), |(_, took)| took),
    });
    let not_started =
        waiting.iter().map(|host| Ended { pid: None, name: name(host), status: None, took: Duration::ZERO });
    Ok(ended.chain(not_started).collect())
}

/// Returns the hosts for which commands wait, of those all of whose commands have started.
fn awaited(waiting: &[&HostCommand]) -> BTreeSet<u32> {
    let awaited = waiting.iter().filter_map(|host| host.awaited());
    awaited.filter(|of| waiting.iter().all(|host| host.host != *of)).collect()
}

fn name(host: &HostCommand) -> String {
    format!("host {}: {}", host.host, host.command)
}

/// The started commands, which are terminated on drop.
struct Started {
    keeper: Keeper,
    running: Vec<Running>,
    terminal: Option<Terminal>,
}

impl Started {
    /// Returns whether all commands of a host listen, or have ended.
    fn listens(&self, host: u32, listeners: &Listeners) -> bool {
        let listens = |one: &Running| {
            let processes = || std::iter::once(one.child.id()).chain(listening::descendants(one.child.id()));
            one.ended.is_some() || processes().any(|process| listeners.contains(process) || listening::listens(process))
        };
        self.running.iter().filter(|one| one.host == Some(host)).all(listens)
    }

    /// Starts a command. Returns its process group.
    fn start(
        &mut self,
        mut command: Command,
        program: &OsStr,
        name: String,
        host: Option<u32>,
        service: bool,
    ) -> Result<u32, run::RunError> {
        let child = command.spawn().map_err(|error| run::RunError::Exec { command: program.to_owned(), error })?;
        let group = child.id();
        self.keeper.add(group);
        self.running.push(Running { name, host, child, service, began: Instant::now(), ended: None });
        Ok(group)
    }

    /// Terminates the commands that are still running, and everything they have started.
    fn end_all(&mut self) {
        // The group ids are still ours: the children have not been reaped, or their groups are used by their
        // descendants.
        self.running.iter().for_each(|one| _ = signal(one.child.id(), libc::SIGTERM));
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            let left = self.running.iter_mut().filter(|one| one.ended.is_none());
            let ended = left.map(|one| !matches!(one.child.try_wait(), Ok(None))).collect::<Vec<_>>();
            if ended.iter().all(|ended| *ended) {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        for one in &mut self.running {
            signal(one.child.id(), libc::SIGKILL);
            // That of a service is none of its own.
            let status = one.child.wait().ok().filter(|_| !one.service);
            one.ended = one.ended.or(status.map(|status| (status, one.began.elapsed())));
        }
        self.terminal = None;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The terminal, given to a command so that it can read and gets Ctrl-C. The launcher's group takes it back afterwards.
struct Terminal {
    owner: libc::pid_t,
}

impl Terminal {
    /// Gives a process group the terminal, if this process has one.
    fn give(group: u32) -> Option<Terminal> {
        // SAFETY: no memory is passed.
        let (owner, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
        if owner != own {
            return None;
        }
        pass_terminal(group as libc::pid_t);
        // It was stopped if it accessed the terminal before.
        signal(group, libc::SIGCONT);
        Some(Terminal { owner })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        pass_terminal(self.owner);
    }
}

fn pass_terminal(group: libc::pid_t) {
    // SAFETY: signal sets of this frame. SIGTTOU would stop a process that does not have the terminal.
    unsafe {
        let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        libc::tcsetpgrp(libc::STDIN_FILENO, group);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
