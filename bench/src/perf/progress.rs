//! A progress bar on standard error, for what takes longer than two seconds, if somebody is watching.

use indicatif::{ProgressBar, ProgressStyle};
use irnic_transports::Time;
use irnic_transports::time::{MS, SEC};

/// Runs shorter than this have none, in ns.
const PATIENCE: u64 = 2 * SEC;
/// Between two updates, in ns.
const INTERVAL: u64 = 100 * MS;

/// Progress of one run.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: String,
    /// What ends the run instead of a number of messages, in ns.
    duration: Option<u64>,
    start: Option<Time>,
    next: Time,
}

impl Progress {
    /// A bar named `label` that will show when it is worth it.
    pub fn new(label: String, duration: Option<std::time::Duration>) -> Progress {
        let duration = duration.map(|d| d.as_nanos() as u64);
        Progress { bar: None, label, duration, start: None, next: Time::ZERO }
    }

    /// Moves the bar, now and then: `state` tells messages done and to be done.
    #[inline]
    pub fn update(&mut self, now: Time, state: impl FnOnce() -> (u64, Option<u64>)) {
        if now >= self.next {
            self.draw(now, state());
        }
    }

    #[cold]
    fn draw(&mut self, now: Time, (done, total): (u64, Option<u64>)) {
        let start = *self.start.get_or_insert(now);
        self.next = now + INTERVAL;
        let elapsed = now.since(start);
        if elapsed < PATIENCE {
            return;
        }
        let (done, total) = match (self.duration, total) {
            (Some(duration), _) => (elapsed / MS, duration / MS),
            (None, total) => (done, total.unwrap_or(0)),
        };
        let label = &self.label;
        let bar = self.bar.get_or_insert_with(|| bar(total, label));
        bar.set_position(done.min(total));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar of `total` steps. Indicatif draws on standard error, and only on a terminal.
pub fn bar(total: u64, label: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} %  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(label.to_owned())
}
