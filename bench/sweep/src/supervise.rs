//! Processes that make runs, and what becomes of those that end before their time.

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

/// How often a run is looked at.
const OFTEN: Duration = Duration::from_millis(50);
/// The exit status of bad options and files.
const USAGE: i32 = 2;
/// How long a worker has for its last step when it is to end.
const GRACE: Duration = Duration::from_secs(5);

/// A run that is to be made.
pub struct Job {
    /// Place among all.
    pub at: usize,
    /// What it is.
    pub named: Named,
    /// How it failed the last time.
    pub before: Option<Failure>,
    /// The command line that makes it alone.
    pub replay: String,
    /// Steps of the bar.
    pub steps: u64,
    /// Its process was killed from outside already.
    pub again: bool,
}

/// What became of a run.
#[derive(Debug)]
pub enum End {
    /// It has a result, which took so much core time, s.
    Done(f64),
    /// It has none, and the folder says why; and whether it would fail again.
    Failed(bool),
    /// Ctrl-C, in its midst.
    Interrupted,
    /// Ctrl-C, or no use in going on, before it began.
    NeverBegun,
}

/// How runs are made.
pub struct Team<'a> {
    /// Arguments of a worker.
    pub words: Vec<String>,
    /// Workers at a time.
    pub workers: usize,
    /// Longest time of a run.
    pub timeout: Option<Duration>,
    /// Most memory of a run, bytes; each has a process of its own then.
    pub memory: Option<u64>,
    /// Where results are kept.
    pub folder: &'a Folder,
    /// Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// Who speaks on standard error.
    pub who: &'a str,
}

/// What became of runs.
pub struct Supervised {
    /// Of each, by its place.
    pub ends: Vec<(usize, End)>,
    /// Why there was no use in going on.
    pub stop: Option<String>,
}

/// Makes runs in their order.
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

/// What the threads share, each of which has a worker.
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
            let mut own = match worker.take().map_or_else(|| Worker::start(&self.team.words), Ok) {
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
            // Whoever kills a process knows why, or was short of memory: both may have passed.
            if matches!(ran, Ran::Gone(status) if status.signal() == Some(SIGKILL)) && !job.again {
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
            // A worker that cannot read what it is to run has said why.
            Ran::Gone(status) if status.code() == Some(USAGE) => {
                self.stop(CHANGED.to_owned());
                return End::Interrupted;
            }
            Ran::Gone(status) => match status.signal() {
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
    /// As the worker said.
    Said(Said),
    /// Killed for taking too much.
    Killed(String),
    /// By the end of its process.
    Gone(ExitStatus),
    /// By Ctrl-C.
    Interrupted,
}

impl Ran {
    /// Whether the worker can go on.
    fn is_whole(&self) -> bool {
        matches!(self, Ran::Said(Said::Done(_) | Said::Failed(_)))
    }
}

/// A process that makes runs.
struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    said: Receiver<Said>,
}

impl Worker {
    fn start(words: &[String]) -> std::io::Result<Worker> {
        // What this process was started from, even if another file has its name by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("irnic").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
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
        // A worker that has gone says nothing more.
        let _ = self.orders.as_mut().map(|orders| writeln!(orders, "{line}").and_then(|()| orders.flush()));
        let begun = Instant::now();
        loop {
            match self.said.recv_timeout(OFTEN) {
                Ok(Said::Steps(more)) => steps(more),
                Ok(said) => return Ran::Said(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.kill();
                    return self.child.wait().map_or(Ran::Interrupted, Ran::Gone);
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

    /// Has the worker end; a result that it is about to keep is kept.
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
        // It ends with its orders; what is under way then is not wanted.
        self.orders = None;
        if !matches!(self.said.recv_timeout(GRACE), Err(RecvTimeoutError::Disconnected)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
