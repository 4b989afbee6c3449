//! Overall progress of all runs, on a terminal.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Minimum duration of sweeps with a progress bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of steps of a run.
pub const STEPS: u64 = 1_000;

/// A progress bar with the remaining time.
pub struct Progress {
    begun: Instant,
    runs: usize,
    done: AtomicU64,
    total: u64,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    /// Returns the progress of this many runs before they begin, with a total number of steps.
    pub fn new(runs: usize, total: u64) -> Progress {
        Progress { begun: Instant::now(), runs, done: AtomicU64::new(0), total, bar: Mutex::new(None) }
    }

    /// Removes the bar when all runs are over.
    pub fn finish(self) {
        if let Ok(Some(bar)) = self.bar.into_inner() {
            bar.finish_and_clear();
        }
    }

    /// Prints a line to standard error, above the bar if there is one.
    pub fn say(&self, line: &str) {
        match self.bar.lock().ok().as_deref() {
            Some(Some(bar)) => bar.suspend(|| eprintln!("{line}")),
            _ => eprintln!("{line}"),
        }
    }

    /// Adds `more` steps of a run.
    pub fn add(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        if self.begun.elapsed() < PATIENCE {
            return;
        }
        // If another thread is drawing, this one continues its run.
        if let Ok(mut bar) = self.bar.try_lock() {
            let left = self.begun.elapsed().mul_f64(self.total.saturating_sub(done) as f64 / done.max(1) as f64);
            let left = HumanDuration(left).to_string();
            let bar = bar.get_or_insert_with(|| self.bar().with_prefix(left.clone()));
            bar.set_prefix(left);
            bar.set_position(done);
        }
    }

    /// Indicatif draws on standard error, and only on a terminal.
    fn bar(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} %  {elapsed}, {prefix} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let label = if self.runs == 1 { "sim".to_owned() } else { format!("sim, {} runs", self.runs) };
        let bar = ProgressBar::new(self.total).with_style(style).with_message(label);
        bar.with_elapsed(self.begun.elapsed())
    }
}
