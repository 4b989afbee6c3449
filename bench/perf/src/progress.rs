//! Display of a run in progress: lines of results at an interval, if requested, or a bar on standard error after two
//! seconds, if that is a terminal.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use irnic_transports::Time;
use irnic_transports::time::{MS, SEC};

use crate::end::Seen;
use crate::intervals::{Interval, Intervals};

/// Minimum duration of a run with a bar, ns.
const PATIENCE: u64 = 2 * SEC;
/// Update interval of a bar, ns.
const UPDATE: u64 = 100 * MS;

/// Progress of one run.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Whether nothing is drawn, because the overall progress is shown elsewhere.
    quiet: bool,
    label: String,
    /// Duration that ends the run instead of a number of messages, ns.
    duration: Option<u64>,
    intervals: Option<Intervals>,
    start: Option<Time>,
    next: Time,
}

impl Progress {
    /// A bar named `label` that appears after two seconds.
    pub fn new(label: String, duration: Option<std::time::Duration>) -> Progress {
        let duration = duration.map(|d| d.as_nanos() as u64);
        Progress { bar: None, quiet: false, label, duration, intervals: None, start: None, next: Time::ZERO }
    }

    /// No display.
    pub fn quiet() -> Progress {
        Progress { quiet: true, ..Progress::new(String::new(), None) }
    }

    /// Lines instead of a bar.
    pub fn with_intervals(self, intervals: Option<Intervals>) -> Progress {
        Progress { quiet: self.quiet || intervals.is_some(), intervals, ..self }
    }

    /// Updates the display at an interval.
    #[inline]
    pub fn update(&mut self, now: Time, seen: impl FnOnce() -> Seen) {
        if now >= self.next {
            self.draw(now, seen);
        }
    }

    #[cold]
    fn draw(&mut self, now: Time, seen: impl FnOnce() -> Seen) {
        let start = *self.start.get_or_insert(now);
        if let Some(intervals) = &mut self.intervals {
            self.next = intervals.update(now, &seen());
            return;
        }
        if self.quiet {
            self.next = Time::NEVER;
            return;
        }
        self.next = now + UPDATE;
        let elapsed = now.since(start);
        if elapsed < PATIENCE {
            return;
        }
        let seen = seen();
        let (done, total) = match (self.duration, seen.total) {
            (Some(duration), _) => (elapsed / MS, duration / MS),
            (None, total) => (seen.done, total.unwrap_or(0)),
        };
        let label = &self.label;
        let bar = self.bar.get_or_insert_with(|| bar(total, label));
        bar.set_position(done.min(total));
    }

    /// Ends the run: the incomplete last interval counts as one.
    pub fn end(&mut self, now: Time, seen: impl FnOnce() -> Seen) {
        if let Some(intervals) = &mut self.intervals {
            intervals.end(now, &seen());
        }
    }

    /// The intervals of the run.
    pub fn intervals(self) -> Vec<Interval> {
        // Together with the bar, if there is one.
        self.intervals.map(Intervals::into_all).unwrap_or_default()
    }
}

/// A bar of `total` steps. Indicatif draws on standard error, and only on a terminal.
pub fn bar(total: u64, label: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} %  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(label.to_owned()).with_finish(ProgressFinish::AndClear)
}
