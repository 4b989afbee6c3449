//! The measured part of a run: all of it, or the part between margins or after warm-up.

use irnic_transports::Time;

use crate::plan::Plan;

/// The measured part of a bandwidth test.
#[derive(Copy, Clone, Debug)]
pub struct Window {
    /// Start and end after the start of the test, ns.
    from: u64,
    until: u64,
    /// Number of warm-up messages of all queue pairs.
    warm_up: u64,
    /// Actual start and end, and messages completed by then.
    opened: Option<(Time, u64)>,
    closed: Option<(Time, u64)>,
}

impl Window {
    pub fn new(plan: &Plan) -> Window {
        let (from, until) = plan.length.window();
        let is_all = from == 0 && plan.warm_up == 0;
        Window {
            from,
            until: if is_all { u64::MAX } else { until },
            warm_up: plan.warm_up * plan.qps as u64,
            opened: None,
            closed: None,
        }
    }

    /// Reports that `completed` messages are complete at `now`.
    #[inline]
    pub fn update(&mut self, now: Time, start: Time, completed: u64) {
        if self.opened.is_none() {
            if now.since(start) >= self.from && completed >= self.warm_up {
                self.opened = Some((now, completed));
            }
        } else if self.until != u64::MAX && self.closed.is_none() && now.since(start) >= self.until {
            self.closed = Some((now, completed));
        }
    }

    /// Number of messages in it, and its length, ns. `last`: time at which the last of `completed` was complete.
    pub fn measured(&self, start: Time, last: Time, completed: u64) -> (u64, u64) {
        if self.from == 0 && self.warm_up == 0 {
            return (completed, last.since(start));
        }
        let Some((opened, before)) = self.opened else { return (0, 0) };
        let (closed, after) = self.closed.unwrap_or((last, completed));
        (after.saturating_sub(before), closed.since(opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PerfArgs;

    fn window(arguments: &[&str]) -> Window {
        Window::new(&PerfArgs::plan_of(&[&["read-bw"], arguments].concat()).expect("a plan"))
    }

    #[test]
    fn margins_are_not_measured() {
        const MS: u64 = 1_000_000;
        let mut window = window(&["-D", "1", "-f", "0.25"]);
        let start = Time(7 * MS);
        // A message per millisecond; those in the margins must not count.
        for ms in 0..=1_000 {
            window.update(start + ms * MS, start, ms);
        }
        assert_eq!(window.measured(start, start + 1_000 * MS, 1_000), (500, 500 * MS));
    }

    #[test]
    fn an_interrupted_run_is_measured_as_far_as_it_went() {
        let mut window = window(&["-D", "1", "-f", "0.25"]);
        assert_eq!(window.measured(Time(0), Time(9), 5), (0, 0));
        window.update(Time(300_000_000), Time(0), 5);
        assert_eq!(window.measured(Time(0), Time(400_000_000), 8), (3, 100_000_000));
    }

    #[test]
    fn warming_up_is_not_measured() {
        let mut window = window(&["-n", "100", "-t", "10", "-q", "2", "--perform_warm_up"]);
        for done in 0..=220 {
            window.update(Time(done * 10), Time(0), done);
        }
        assert_eq!(window.measured(Time(0), Time(2_200), 220), (200, 2_000));
    }
}
