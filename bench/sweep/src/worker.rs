//! A process that performs runs for another, one after the other, and stores their results in the folder.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use irnic_report::{CommandError, version};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::folder::{Folder, LIMIT, digest};
use crate::runs::{NoResult, Sweep, Watch, case_and_seed, make, named};

/// Interval of a worker's progress reports.
const OFTEN: Duration = Duration::from_millis(100);

/// An order to a worker, a line of its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Index of the run.
    pub at: usize,
    /// Identity of the run, as computed by the sender.
    pub id: String,
}

/// A message of a worker, a line of its standard output.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// Progress by this many steps.
    Steps(u64),
    /// The result has been stored; core time, s.
    Done(f64),
    /// The run failed, for this reason.
    Failed(String),
    /// It was interrupted.
    Interrupted,
    /// A fatal error: a result cannot be stored, or the experiment has changed.
    Stop(String),
}

/// Performs runs until standard input is closed.
pub fn work<S: Sweep>(sweep: &S, out: &Path, memory: Option<u64>) -> Result<(), CommandError> {
    let failed = |e: io::Error| CommandError::Failed(e.to_string());
    // Ctrl-C and SIGTERM are handled by the parent process, which closes standard input to end this one.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(failed)?;
    }
    // There is already one of these processes per core.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    let over = Arc::new(AtomicBool::new(false));
    let (orders, ordered) = std::sync::mpsc::channel();
    let ended = over.clone();
    let listen = move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = serde_json::from_str::<Order>(&line).map(|order| orders.send(order));
        }
        ended.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("orders".into()).spawn(listen).map_err(failed)?;
    let folder = Folder::open(out);
    let say = |said: Said| {
        let line = serde_json::to_string(&said).unwrap_or_default();
        let mut out = io::stdout().lock();
        // The parent has ended.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    for order in ordered {
        say(answer(sweep, &folder, memory, &order, &over, &say));
    }
    Ok(())
}

/// Performs a run.
fn answer<S: Sweep>(
    sweep: &S,
    folder: &Folder,
    memory: Option<u64>,
    order: &Order,
    over: &AtomicBool,
    say: &(dyn Fn(Said) + Sync),
) -> Said {
    if order.at >= sweep.cases() * sweep.seeds().len() {
        return Said::Stop(CHANGED.to_owned());
    }
    let (case, seed) = case_and_seed(sweep, order.at);
    let named = match sweep.settings(case) {
        Ok(settings) => named(sweep, case, &digest(&[&settings]), seed),
        Err(e) => return Said::Failed(e.to_string()),
    };
    if named.id(version::get()) != order.id {
        return Said::Stop(CHANGED.to_owned());
    }
    let (waiting, last) = (AtomicU64::new(0), Mutex::new(Instant::now()));
    let steps = |more| {
        waiting.fetch_add(more, Ordering::Relaxed);
        if let Ok(mut last) = last.try_lock()
            && last.elapsed() >= OFTEN
        {
            *last = Instant::now();
            say(Said::Steps(waiting.swap(0, Ordering::Relaxed)));
        }
    };
    let begun = cpu_seconds();
    let result = match make(sweep, case, seed, &Watch::new(over, &steps, false)) {
        Ok(result) => result,
        Err(NoResult::Failed(why)) => return Said::Failed(why),
        Err(_) => return Said::Interrupted,
    };
    if let Some(limit) = memory.filter(|limit| peak("self").is_some_and(|peak| peak > *limit)) {
        return Said::Failed(too_large(limit));
    }
    let took = cpu_seconds() - begun;
    folder.keep(&named, took, &result).map_or_else(Said::Stop, |()| Said::Done(took))
}

/// The message if the experiment has changed.
pub const CHANGED: &str = "the experiment has changed since the runs began";

/// Returns the message for a run that exceeded the memory limit.
pub fn too_large(limit: u64) -> String {
    format!("--run-memory {limit}: it takes more memory {LIMIT}")
}

/// Returns the message for a run that exceeded the time limit.
pub fn too_long(limit: Duration) -> String {
    format!("--run-timeout {limit:?}: it takes longer {LIMIT}")
}

/// Returns the peak memory of a process, bytes.
pub fn peak(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns the CPU time of this process, all threads included, s.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock's value is written to a variable of the type that it has.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Toy;

    #[test]
    fn a_worker_keeps_results_and_says_what_went_wrong() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path()).unwrap();
        let all = crate::runs::all_named(&Toy).unwrap();
        let said = |at: usize, id: String, memory, over| {
            answer(&Toy, &folder, memory, &Order { at, id }, &AtomicBool::new(over), &|_| {})
        };
        let id = |at: usize| all[at].id(version::get());
        assert!(matches!(said(0, id(0), None, false), Said::Done(_)));
        assert_eq!(folder.load::<f64>(&all[0], version::get()), Ok(0.1));
        assert_eq!(said(1, id(1), None, true), Said::Interrupted);
        assert_eq!(said(2, id(2), None, false), Said::Failed("panic: case 1 seed 1".to_owned()));
        assert_eq!(said(3, id(3), None, false), Said::Failed("odd".to_owned()));
        assert_eq!(said(1, id(1), Some(1), false), Said::Failed(too_large(1)));
        assert_eq!(said(1, id(0), None, false), Said::Stop(CHANGED.to_owned()));
        assert_eq!(said(9, id(0), None, false), Said::Stop(CHANGED.to_owned()));
        drop(place);
        assert!(matches!(said(0, id(0), None, false), Said::Stop(why) if why.contains("No such file")));
    }
}
