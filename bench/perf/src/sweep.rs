//! All runs of a command: every combination of transports, losses and sizes, with repetitions.

use std::time::Duration;

use indicatif::ProgressBar;
use irnic_ports::impair::Percent;

use crate::args::Only;
use crate::figures::Unit;
use crate::intervals::Intervals;
use crate::plan::Plan;
use crate::progress::{Progress, bar};

/// Output options, and requirements on results.
#[derive(Clone, Debug, Default)]
pub struct Show {
    /// Gb/sec instead of MiB/sec.
    pub gbits: bool,
    /// Interval of lines during a run, ns.
    pub interval: Option<u64>,
    pub both_ways: bool,
    pub cpu: bool,
    /// Counters printed below each result.
    pub counters: Vec<String>,
    /// Whether every sample of latency is printed, and in which order.
    pub samples: Option<Sorted>,
    pub only: Option<Only>,
    /// Minimum average, in the unit of the table, and minimum messages per second, in millions.
    pub least_bw: Option<f64>,
    pub least_rate: Option<f64>,
}

impl Show {
    /// Returns the unit of bandwidth.
    pub fn unit(&self) -> Unit {
        if self.gbits { Unit::Gigabits } else { Unit::Mebibytes }
    }
}

/// Order of printed samples.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sorted {
    Yes,
    No,
}

/// The runs of a command.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// A plan for each combination, in the order of results: by transport, then size, then loss.
    pub plans: Vec<Plan>,
    /// Number of runs of each plan.
    pub repeat: u32,
    pub show: Show,
    /// Time before an end exits, ns.
    pub linger: u64,
}

/// One run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the plan.
    pub case: usize,
    /// Number of previous runs of the plan.
    pub repetition: u32,
    /// Index among all runs of the command.
    pub number: usize,
}

impl Sweep {
    /// The first plan, for what all have in common.
    pub fn first(&self) -> &Plan {
        &self.plans[0]
    }

    /// Whether runs differ in more than size: then results are one table, at the end.
    pub fn compares(&self) -> bool {
        let first = self.first();
        self.repeat > 1 || self.plans.iter().any(|plan| plan.label != first.label || plan.loss != first.loss)
    }

    /// The runs in order. Repetitions alternate, and within each the losses, so that disturbances of the machine affect
    /// all equally. Runs of a group share ports and network; compared runs start with new ones.
    pub fn groups(&self) -> Vec<Vec<Turn>> {
        let cases = 0..self.plans.len();
        let mut order: Vec<usize> = cases.collect();
        order.sort_by_key(|&case| self.plans[case].loss);
        let turns = (0..self.repeat).flat_map(|repetition| order.iter().map(move |&case| (repetition, case)));
        let turns = turns.enumerate().map(|(number, (repetition, case))| Turn { case, repetition, number });
        if self.compares() { turns.map(|turn| vec![turn]).collect() } else { vec![turns.collect()] }
    }

    /// The plan of a run: each repetition has its own seed, or all would lose the same packets.
    pub fn plan(&self, turn: Turn) -> Plan {
        let plan = &self.plans[turn.case];
        Plan { seed: plan.seed.wrapping_add(turn.repetition.into()), ..plan.clone() }
    }

    /// Transports, in order.
    pub fn labels(&self) -> Vec<&str> {
        distinct(self.plans.iter().map(|plan| plan.label.as_str()))
    }

    /// Transports, as written.
    pub fn transports(&self) -> Vec<&str> {
        distinct(self.plans.iter().map(|plan| plan.transport_text.as_str()))
    }

    /// Transports with all their parameters, in order, each after its name if there are several.
    pub fn resolved(&self) -> Vec<String> {
        let several = self.labels().len() > 1;
        distinct(self.plans.iter().map(|plan| match several {
            true => format!("{}: {:#}", plan.label, plan.transport),
            false => format!("{:#}", plan.transport),
        }))
    }

    /// Losses, ascending; `None` alone if they are not listed.
    pub fn losses(&self) -> Vec<Option<Percent>> {
        let mut all = distinct(self.plans.iter().map(|plan| plan.loss));
        all.sort_unstable();
        all
    }

    /// Message sizes, in order.
    pub fn sizes(&self) -> Vec<u32> {
        distinct(self.plans.iter().map(|plan| plan.size))
    }

    /// Name of a run, by what differs between runs.
    pub fn name(&self, turn: Turn) -> String {
        let plan = &self.plans[turn.case];
        let mut parts = vec![plan.test.name()];
        if self.labels().len() > 1 {
            parts.push(plan.label.clone());
        }
        if let Some(loss) = plan.loss {
            parts.push(format!("{loss} loss"));
        }
        parts.push(format!("{} B", plan.size));
        if self.repeat > 1 {
            parts.push(format!("{} of {}", turn.repetition + 1, self.repeat));
        }
        parts.join(", ")
    }

    /// The progress display of a run.
    pub fn progress(&self, turn: Turn) -> Progress {
        let plan = &self.plans[turn.case];
        let unit = self.show.unit();
        let intervals = self.show.interval.map(|every| Intervals::new(every, plan.size, unit));
        let progress =
            if self.compares() { Progress::quiet() } else { Progress::new(self.name(turn), plan.length.duration()) };
        progress.with_intervals(intervals)
    }

    /// The progress bar of all runs, where they are compared and have no lines of their own.
    pub fn bar(&self) -> ProgressBar {
        if !self.compares() || self.show.interval.is_some() {
            return ProgressBar::hidden();
        }
        let bar = bar(self.groups().len() as u64, "");
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// Each value once, in the order of first occurrence.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Median, minimum and maximum of values.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Computes the spread of values in any order; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut all: Vec<f64> = values.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let (&min, &max) = (all.first()?, all.last()?);
        let median = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PerfArgs;

    fn sweep(arguments: &[&str]) -> Sweep {
        PerfArgs::sweep_of(&[&["write-bw"], arguments].concat()).expect("a sweep")
    }

    #[test]
    fn every_combination_takes_its_turn_and_repetitions_alternate() {
        let sweep = sweep(&["--transport", "roce,irn,cap=9", "--loss", "1,0", "-s", "4K,64K", "--repeat", "2"]);
        let of = |plan: &Plan| format!("{} {} {}", plan.label, plan.size, plan.loss.expect("a loss"));
        let plans: Vec<String> = sweep.plans.iter().map(of).collect();
        assert_eq!(plans[..4], ["roce 4096 1%", "roce 4096 0%", "roce 65536 1%", "roce 65536 0%"]);
        assert_eq!(plans[4..6], ["irn 4096 1%", "irn 4096 0%"]);
        let turns: Vec<Turn> = sweep.groups().into_iter().flatten().collect();
        assert_eq!(turns.len(), 16);
        let order: Vec<String> = turns[..8].iter().map(|turn| of(&sweep.plan(*turn))).collect();
        assert_eq!(order[..4], ["roce 4096 0%", "roce 65536 0%", "irn 4096 0%", "irn 65536 0%"]);
        assert!(turns[..8].iter().all(|t| t.repetition == 0) && turns[8..].iter().all(|t| t.repetition == 1));
        assert_eq!((sweep.plan(turns[0]).seed, sweep.plan(turns[8]).seed), (1, 2));
        assert_eq!(sweep.name(turns[8]), "write-bw, roce, 0% loss, 4096 B, 1 of 2".replace("1 of", "2 of"));
    }

    #[test]
    fn sizes_alone_share_a_network() {
        let sweep = sweep(&["-s", "4K,64K"]);
        assert!(!sweep.compares() && sweep.groups().len() == 1 && sweep.groups()[0].len() == 2);
    }

    #[test]
    fn transports_that_differ_in_parameters_only_are_told_apart() {
        assert_eq!(sweep(&["--transport", "irn,cap=9,irn,cap=20"]).labels(), ["irn,cap=9", "irn,cap=20"]);
        assert_eq!(sweep(&["--transport", "irn,cap=9,roce"]).labels(), ["irn", "roce"]);
    }

    #[test]
    fn a_spread_has_the_middle() {
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), spread(2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), spread(2.5, 1.0, 4.0));
        assert_eq!(Spread::of([]), None);
    }
}
