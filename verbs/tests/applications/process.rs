//! Child processes that end with their test, whatever it comes to.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use irnic_testkit::{crash, retry, wait};
use libtest_mimic::Failed;

/// How long one end of a connection goes on when the other has failed: it may wait for what will not come any more.
const SURVIVAL: Duration = Duration::from_secs(2);
/// A process without a core does not take its packets. Who sends them says so, and drops them after a while, as a
/// network would: then something is lost on a network that was to lose nothing.
const STARVED: &str = "has taken no packet for";

/// A running process and what it has printed.
pub struct Process {
    /// The process.
    pub child: Child,
    what: String,
    folder: PathBuf,
    stdout: File,
    stderr: File,
}

/// What is left of a process.
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    what: String,
    folder: PathBuf,
}

impl Process {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Result<Process, Failed> {
        let stdout = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(stdout.try_clone()?);
        Process::spawn(command, stdout)
    }

    /// Starts a command whose standard input and output are pipes, to be taken from `child`.
    pub fn start_piped(command: &mut Command) -> Result<Process, Failed> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Process::spawn(command, tempfile::tempfile()?)
    }

    fn spawn(command: &mut Command, stdout: File) -> Result<Process, Failed> {
        let what = format!("{command:?}");
        let folder = command.get_current_dir().unwrap_or(Path::new(".")).to_owned();
        let stderr = tempfile::tempfile()?;
        command.stderr(stderr.try_clone()?);
        // SAFETY: two system calls are all that happens between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // A shell without job control has its background commands ignore it, and they pass that on.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            })
        };
        let child = command.spawn().map_err(|e| format!("{what}: {e}"))?;
        Ok(Process { child, what, folder, stdout, stderr })
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has printed so far.
    pub fn text(&self) -> String {
        contents(&self.stdout) + &contents(&self.stderr)
    }

    /// Waits until it has printed something.
    pub fn wait_for(&mut self, text: &str) -> Result<(), Failed> {
        self.wait_until(text, |said| said.contains(text))
    }

    /// Waits until it has printed what `is` wants.
    pub fn wait_until(&mut self, what: &str, is: impl Fn(&str) -> bool) -> Result<(), Failed> {
        self.await_condition(&format!("it prints {what:?}"), |process| is(&process.text()))
    }

    /// Waits until a condition holds, while the process runs.
    pub fn await_condition(&mut self, what: &str, mut is: impl FnMut(&Process) -> bool) -> Result<(), Failed> {
        let this = std::cell::RefCell::new(&mut *self);
        let waited = wait::while_alive(what, || this.borrow_mut().runs(), || is(&this.borrow()));
        waited.map_err(|why| format!("{}: {why}\n{}", self.what, self.text()).into())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: no pointers; the process is a child that was not waited for, so the number is its.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for the end, however it comes.
    pub fn end(mut self) -> Result<Ended, Failed> {
        let ended = wait::while_alive("it ends", || true, || !self.runs());
        ended.map_err(|why| format!("{}: {why}\n{}", self.what, self.text()))?;
        let status = self.child.wait()?;
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(contents);
        let ended = Ended { status, stdout, stderr, what: self.what.clone(), folder: self.folder.clone() };
        // An optimised library catches it, and the program goes on.
        match ended.stderr.lines().find(|line| crash::is_panic_of_the_library(line)) {
            Some(panic) => Err(ended.failed(panic)),
            None => Ok(ended),
        }
    }

    /// Waits for the ends of two processes that work together, and ends the other soon after one has failed. If nothing
    /// is sent again that is lost, not `reliable`, and the machine has lost something, both are ended: there is nothing
    /// to judge, and [`retry::PREMISES`] has the words.
    pub fn end_both(mut pair: [Process; 2], reliable: bool) -> Result<[Ended; 2], Failed> {
        let mut failed_at = None;
        let is_over = wait::while_alive(
            "two processes end",
            || true,
            || {
                if pair.iter_mut().any(Process::has_failed) {
                    failed_at.get_or_insert_with(Instant::now);
                }
                let starved = !reliable && pair.iter().any(|process| contents(&process.stderr).contains(STARVED));
                starved
                    || failed_at.is_some_and(|at: Instant| at.elapsed() > SURVIVAL)
                    || !pair.iter_mut().any(Process::runs)
            },
        );
        if is_over.is_ok() {
            pair.iter_mut().filter_map(|p| p.runs().then_some(&mut p.child)).try_for_each(Child::kill)?;
        }
        let [one, other] = pair;
        Ok([one.end()?, other.end()?])
    }

    fn has_failed(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Waits for the end, which has to be a success.
    pub fn succeed(self) -> Result<Ended, Failed> {
        self.end()?.succeed()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// A failure unless it exited with 0.
    pub fn succeed(self) -> Result<Ended, Failed> {
        if self.status.success() {
            return Ok(self);
        }
        Err(self.failed("it failed"))
    }

    /// A failure with everything that is known.
    pub fn failed(&self, why: &str) -> Failed {
        let how = crash::describe(self.status, &self.folder);
        format!("{why} ({how}): {}\n{}\n{}", self.what, self.stdout, self.stderr).into()
    }
}

impl retry::Output for Ended {
    fn says(&self, text: &str) -> bool {
        crash::fault(self.status).is_none() && (self.stdout.contains(text) || self.stderr.contains(text))
    }
}

/// Everything in a file, whose offset belongs to the child that writes it.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |m| m.len() as usize)];
    let len = file.read_at(&mut bytes, 0).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
