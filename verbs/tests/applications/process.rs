//! Child processes that end with their test, whatever it comes to.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

/// How long a process may take before it counts as hung. Nothing here should come near.
pub const HANG: Duration = Duration::from_secs(120);
/// How long one end of a connection goes on when the other has failed: it may wait for what will not come any more.
const SURVIVAL: Duration = Duration::from_secs(2);

/// A process without a core does not take its packets. Who sends them says so, and drops them after a while, as a
/// network would: then something is lost on a network that was to lose nothing.
const STARVED: &str = "has taken no packet for";
/// How often a run is tried again that the machine has spoilt.
pub const TRIES: usize = 5;

/// What `run` has found out, which is run again, loudly, as long as it has nothing to judge ([`Process::end_both`]).
pub fn unspoilt<T>(what: &str, run: impl FnMut() -> Result<Option<T>, Failed>) -> Result<T, Failed> {
    judged(what, &format!("a process {STARVED} too long"), run)
}

/// What `run` has found out, which is run again, loudly, as long as it has nothing to judge for a reason that is not
/// irnic's.
pub fn judged<T>(what: &str, why: &str, mut run: impl FnMut() -> Result<Option<T>, Failed>) -> Result<T, Failed> {
    for _ in 0..TRIES {
        if let Some(found) = run()? {
            return Ok(found);
        }
        let _ = writeln!(io::stderr(), "AGAIN {what}: {why}");
    }
    Err(format!("{TRIES} times {why}").into())
}

/// A running process and what it has printed.
pub struct Process {
    /// The process.
    pub child: Child,
    what: String,
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
        Ok(Process { child, what, stdout, stderr })
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
        let start = Instant::now();
        while !is(&self.text()) {
            if start.elapsed() > HANG || !self.runs() {
                return Err(format!("{} does not say {what:?}: {}", self.what, self.text()).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: no pointers; the process is a child that was not waited for, so the number is its.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for the end, however it comes.
    pub fn end(mut self) -> Result<Ended, Failed> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(status) = self.child.try_wait()? {
                let [stdout, stderr] = [&self.stdout, &self.stderr].map(contents);
                return Ok(Ended { status, stdout, stderr, what: self.what.clone() });
            }
            if start.elapsed() > HANG {
                return Err(format!("{} hangs\n{}", self.what, self.text()).into());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Waits for the ends of two processes that work together, and ends the other soon after one has failed. If nothing
    /// is sent again that is lost, not `reliable`, and the machine has lost something, both are ended, and there is
    /// nothing to judge.
    pub fn end_both(mut pair: [Process; 2], reliable: bool) -> Result<Option<[Ended; 2]>, Failed> {
        let starved = |text: &str| !reliable && text.contains(STARVED);
        let start = Instant::now();
        while start.elapsed() < HANG && pair.iter_mut().any(Process::runs) {
            if pair.iter().any(|process| starved(&contents(&process.stderr))) {
                return Ok(None);
            }
            if pair.iter_mut().any(Process::has_failed) {
                thread::sleep(SURVIVAL);
                pair.iter_mut().filter_map(|p| p.runs().then_some(&mut p.child)).try_for_each(Child::kill)?;
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let [one, other] = pair;
        let ended = [one.end()?, other.end()?];
        Ok((!ended.iter().any(|end| starved(&end.stderr))).then_some(ended))
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
        let how = match self.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => self.status.to_string(),
        };
        format!("{why} ({how}): {}\n{}\n{}", self.what, self.stdout, self.stderr).into()
    }
}

/// Everything in a file, whose offset belongs to the child that writes it.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |m| m.len() as usize)];
    let len = file.read_at(&mut bytes, 0).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
