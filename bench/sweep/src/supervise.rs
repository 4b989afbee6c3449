//! Worker processes that perform runs, and handling of those that end prematurely.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use irnic_report::version;
use signal_hook::consts::SIGKILL;

use crate::folder::{Failure, Folder, Named};
use crate::progress::{Progress, STEPS};
use crate::worker::{CHANGED, Order, Said, peak, too_large, too_long};

/// Polling interval of a run.
const OFTEN: Duration = Duration::from_millis(50);
/// Exit status for invalid options and files.
const USAGE: i32 = 2;
/// Time for a worker to complete its last step when it is to end.
const GRACE: Duration = Duration::from_secs(5);

/// A run to be performed.
pub struct Job {
    /// Index of the run.
    pub at: usize,
    /// The run.
    pub named: Named,
    /// Its previous failure.
    pub before: Option<Failure>,
    /// The command line that repeats it.
    pub replay: String,
    /// Steps of the progress bar.
    pub steps: u64,
    /// Whether its process was already killed from outside once.
    pub again: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub enum End {
    /// It has a result; core time, s.
    Done(f64),
    /// It failed, for the reason stored in the folder; and whether it would fail again.
    Failed(bool),
    /// Ctrl-C during the run.
    Interrupted,
    /// Ctrl-C, or a fatal error, before it began.
    NeverBegun,
}

/// Parameters of the workers.
pub struct Team<'a> {
    /// Command line arguments of a worker.
    pub arguments: Vec<String>,
    /// Number of concurrent workers.
    pub workers: usize,
    /// Time limit of a run.
    pub timeout: Option<Duration>,
    /// Memory limit of a run, bytes; each then has its own process.
    pub memory: Option<u64>,
    /// The folder of results.
    pub folder: &'a Folder,
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// Prefix of messages on standard error.
    pub who: &'a str,
}

/// Outcomes of the runs.
pub struct Supervised {
    /// Index and outcome of each run.
    pub ends: Vec<(usize, End)>,
    /// The fatal error that ended all runs, if any.
    pub stop: Option<String>,
}

/// Performs the runs in order.
pub fn all(jobs: Vec<Job>, team: &Team<'_>) -> Supervised {
    let progress = Progress::new(jobs.len(), jobs.iter().map(|job| job.steps).sum());
    let workers = team.workers.min(jobs.len());
    let work = Work {
        team,
        progress: &progress,
        jobs: Mutex::new(jobs.into()),
        ends: Mutex::default(),
        stop: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work.go_on());
        }
    });
    let mut ends = std::mem::take(&mut *locked(&work.ends));
    ends.extend(locked(&work.jobs).drain(..).map(|job| (job.at, End::NeverBegun)));
    let stop = locked(&work.stop).take();
    progress.finish();
    Supervised { ends, stop }
}

/// State shared by the threads, each of which has a worker.
struct Work<'a> {
    team: &'a Team<'a>,
    progress: &'a Progress,
    jobs: Mutex<VecDeque<Job>>,
    ends: Mutex<Vec<(usize, End)>>,
    stop: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    fn is_over(&self) -> bool {
        self.team.interrupted.load(Ordering::Relaxed) || locked(&self.stop).is_some()
    }

    fn stop(&self, why: String) {
        locked(&self.stop).get_or_insert(why);
    }

    fn go_on(&self) {
        let mut worker: Option<Worker> = None;
        while !self.is_over() {
            let Some(mut job) = locked(&self.jobs).pop_front() else { break };
            let mut own = match worker.take().map_or_else(|| Worker::start(&self.team.arguments), Ok) {
                Ok(own) => own,
                Err(e) => {
                    self.stop(format!("a process for runs: {e}"));
                    locked(&self.jobs).push_front(job);
                    break;
                }
            };
            let mut steps = 0;
            let ran = own.run(&job, self, &mut |more| {
                let before = steps * job.steps / STEPS;
                steps = (steps + more).min(STEPS);
                self.progress.add(steps * job.steps / STEPS - before);
            });
            if ran.is_whole() && self.team.memory.is_none() {
                worker = Some(own);
            }
            // A kill from outside is deliberate or due to lack of memory: both may be temporary.
            if matches!(ran, Ran::Exited(status) if status.signal() == Some(SIGKILL)) && !job.again {
                job.again = true;
                self.progress.say(&format!("{}: {}: killed from outside; once more", self.team.who, job.named.name));
                locked(&self.jobs).push_front(job);
                continue;
            }
            self.progress.add(job.steps - steps * job.steps / STEPS);
            let end = self.end(&job, ran);
            locked(&self.ends).push((job.at, end));
        }
    }

    fn end(&self, job: &Job, ran: Ran) -> End {
        let message = match ran {
            Ran::Said(Said::Done(core_seconds)) => return End::Done(core_seconds),
            Ran::Said(Said::Failed(why)) | Ran::Killed(why) => why,
            Ran::Said(Said::Stop(why)) => {
                self.stop(why);
                return End::Interrupted;
            }
            Ran::Said(Said::Interrupted | Said::Steps(_)) | Ran::Interrupted => return End::Interrupted,
            // A worker that cannot parse its command line has reported why.
            Ran::Exited(status) if status.code() == Some(USAGE) => {
                self.stop(CHANGED.to_owned());
                return End::Interrupted;
            }
            Ran::Exited(status) => match status.signal() {
                Some(SIGKILL) => "its process was killed twice, as the kernel does when memory is short".to_owned(),
                _ => format!("its process ended: {status}"),
            },
        };
        match self.team.folder.fail(&job.named, job.before.as_ref(), message, job.replay.clone()) {
            Ok(failure) => {
                let Failure { name, message, replay, .. } = &failure;
                self.progress.say(&format!("{}: {name}: {message}; alone: {replay}", self.team.who));
                End::Failed(failure.is_final(std::slice::from_ref(message)))
            }
            Err(why) => {
                self.stop(why);
                End::Interrupted
            }
        }
    }
}

/// How a run ended.
#[derive(Debug)]
enum Ran {
    /// As reported by the worker.
    Said(Said),
    /// Killed because it exceeded a limit.
    Killed(String),
    /// The worker process ended.
    Exited(ExitStatus),
    /// By Ctrl-C.
    Interrupted,
}

impl Ran {
    /// Whether the worker can perform further runs.
    fn is_whole(&self) -> bool {
        matches!(self, Ran::Said(Said::Done(_) | Said::Failed(_)))
    }
}

/// A worker process.
struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    said: Receiver<Said>,
}

impl Worker {
    fn start(arguments: &[String]) -> std::io::Result<Worker> {
        // The program that this process was started from, even if its file has been replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("irnic").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        let (say, said) = channel();
        if let Some(out) = child.stdout.take() {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            std::thread::Builder::new().name("worker".into()).spawn(move || {
                for said in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                    let _ = say.send(said);
                }
            })?;
        }
        Ok(Worker { child, orders, said })
    }

    fn run(&mut self, job: &Job, work: &Work<'_>, steps: &mut dyn FnMut(u64)) -> Ran {
        let team = work.team;
        let order = Order { at: job.at, id: job.named.id(version::get()) };
        let line = serde_json::to_string(&order).unwrap_or_default();
        // A worker that has ended accepts no orders.
        let _ = self.orders.as_mut().map(|orders| writeln!(orders, "{line}").and_then(|()| orders.flush()));
        let begun = Instant::now();
        loop {
            match self.said.recv_timeout(OFTEN) {
                Ok(Said::Steps(more)) => steps(more),
                Ok(said) => return Ran::Said(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.kill();
                    return self.child.wait().map_or(Ran::Interrupted, Ran::Exited);
                }
            }
            if work.is_over() {
                return self.let_end();
            }
            if let Some(limit) = team.timeout.filter(|limit| begun.elapsed() > *limit) {
                self.kill();
                return Ran::Killed(too_long(limit));
            }
            let process = self.child.id().to_string();
            if let Some(limit) = team.memory.filter(|limit| peak(&process).is_some_and(|peak| peak > *limit)) {
                self.kill();
                return Ran::Killed(too_large(limit));
            }
        }
    }

    /// Has the worker end; a result that it is about to store is kept.
    fn let_end(&mut self) -> Ran {
        self.orders = None;
        let begun = Instant::now();
        while let Some(left) = GRACE.checked_sub(begun.elapsed()) {
            match self.said.recv_timeout(left) {
                Ok(Said::Steps(_)) => {}
                Ok(said) => return Ran::Said(said),
                Err(_) => break,
            }
        }
        Ran::Interrupted
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends when its input is closed; the current run is discarded.
        self.orders = None;
        if !matches!(self.said.recv_timeout(GRACE), Err(RecvTimeoutError::Disconnected)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
