//! Runs of a paper's scenarios, each with each seed, and the outcome of their command.

use std::fmt::Debug;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::{Ending, Outcome, SimConfig, Simulation};
use irnic_fabric::summary::{Summary, size_edges};
use irnic_report::CommandError;
use irnic_sweep::{self as sweep, How, NoResult, Sweep, Watch};
use serde::Serialize;
use serde::de::DeserializeOwned;

use irnic_sim::SLICE;

/// Removes duplicates.
pub fn once<S: Clone + PartialEq>(scenarios: impl Iterator<Item = S>) -> Vec<S> {
    scenarios.fold(Vec::new(), |mut all, scenario| {
        if !all.contains(&scenario) {
            all.push(scenario);
        }
        all
    })
}

/// The row of a cell: its id without the metric.
pub fn row(id: &str) -> &str {
    id.rsplit_once('/').map_or(id, |(row, _)| row)
}

/// Performs a run.
pub type Make<'a, S, M> = dyn Fn(&S, u64, &Watch<'_>) -> Result<M, NoResult> + Sync + 'a;

/// Scenarios to be measured, each with each seed.
pub struct Scenarios<'a, S, M> {
    /// The command.
    pub command: &'a str,
    /// The scenarios.
    pub scenarios: &'a [S],
    /// For each scenario, a cell that needs it.
    pub cells: &'a [&'a str],
    /// Seeds for each scenario.
    pub seeds: &'a [u64],
    /// Settings that results depend on as well.
    pub settings: String,
    /// Estimated relative run time, as [`Sweep::estimate`].
    pub estimate: &'a (dyn Fn(&S) -> f64 + Sync),
    /// Rejects invalid scenarios, as [`Sweep::check`].
    pub check: &'a (dyn Fn(&S) -> Result<(), CommandError> + Sync),
    /// Performs a run.
    pub make: &'a Make<'a, S, M>,
}

impl<S: Debug + Sync, M: Serialize + DeserializeOwned + Send> Sweep for Scenarios<'_, S, M> {
    type Result = M;

    fn command(&self) -> &str {
        self.command
    }

    fn cases(&self) -> usize {
        self.scenarios.len()
    }

    fn seeds(&self) -> &[u64] {
        self.seeds
    }

    fn label(&self, case: usize) -> String {
        row(self.cells[case]).to_owned()
    }

    fn settings(&self, case: usize) -> Result<String, CommandError> {
        Ok(format!("{:?} {}", self.scenarios[case], self.settings))
    }

    fn check(&self, case: usize) -> Result<(), CommandError> {
        (self.check)(&self.scenarios[case])
    }

    fn estimate(&self, case: usize) -> f64 {
        (self.estimate)(&self.scenarios[case])
    }

    fn replay(&self, case: usize, seed: u64) -> String {
        crate::shared::replay(Some(self.cells[case]), seed)
    }

    fn make(&self, case: usize, seed: u64, watch: &Watch<'_>) -> Result<M, NoResult> {
        (self.make)(&self.scenarios[case], seed, watch)
    }
}

impl<'a, S: Debug + PartialEq + Sync, M: Serialize + DeserializeOwned + Send> Scenarios<'a, S, M> {
    /// Performs all runs, or loads their results. Returns `None` if there is nothing to show.
    pub fn perform(&self, how: &How<'_>) -> Result<Option<Runs<'a, S, M>>, CommandError> {
        let Some(mut performed) = sweep::perform(self, how)? else { return Ok(None) };
        let each = self.scenarios.iter().map(|_| performed.results.drain(..self.seeds.len()).collect()).collect();
        let irnic = performed.irnic;
        Ok(Some(Runs { scenarios: self.scenarios, cells: self.cells, seeds: self.seeds, each, irnic }))
    }
}

/// Results of the runs of scenarios.
pub struct Runs<'a, S, M> {
    scenarios: &'a [S],
    cells: &'a [&'a str],
    seeds: &'a [u64],
    /// By scenario, then by seed.
    each: Vec<Vec<Result<M, NoResult>>>,
    /// Version of irnic that performed them.
    irnic: String,
}

impl<S: PartialEq, M> Runs<'_, S, M> {
    /// Returns the runs of a scenario, by seed; `None` for failed ones.
    pub fn of(&self, scenario: &S) -> Vec<Option<&M>> {
        let at = self.scenarios.iter().position(|s| s == scenario);
        at.map_or(Vec::new(), |at| self.each[at].iter().map(|run| run.as_ref().ok()).collect())
    }

    /// Returns the version of irnic that performed them.
    pub fn irnic(&self) -> &str {
        &self.irnic
    }

    /// Returns the results of a scenario's successful runs.
    pub fn done(&self, scenario: &S) -> Vec<&M> {
        self.of(scenario).into_iter().flatten().collect()
    }

    /// Returns whether any run has a result.
    pub fn any(&self) -> bool {
        self.each.iter().flatten().any(Result::is_ok)
    }

    /// Ends a command whose results have been written: reports runs without results, with the reasons.
    pub fn conclude(&self) -> Result<(), CommandError> {
        let of = |(cell, runs): (&&str, &Vec<Result<M, NoResult>>)| {
            let failed = runs.iter().zip(self.seeds).filter_map(|(run, seed)| Some((run.as_ref().err()?, seed)));
            let failed = failed.filter(|(error, _)| **error != NoResult::Missing);
            failed.map(|(error, seed)| format!("{} seed={seed}: {error}", row(cell))).collect::<Vec<_>>()
        };
        let failures: Vec<String> = self.cells.iter().zip(&self.each).flat_map(of).collect();
        let mut without = self.each.iter().flatten().filter_map(|run| run.as_ref().err());
        conclude(without.any(NoResult::is_interrupted), &failures)
    }
}

/// Simulates a network to completion.
pub fn simulate(watch: &Watch<'_>, config: SimConfig) -> Result<Outcome, NoResult> {
    watched(watch, config, SLICE, |_| ())
}

/// Simulates a network to completion, and calls an observer each time after a number of events.
pub fn watched(
    watch: &Watch<'_>,
    config: SimConfig,
    slice: u64,
    mut observe: impl FnMut(&Simulation),
) -> Result<Outcome, NoResult> {
    let failed = |e: irnic_fabric::sim::SimError| NoResult::Failed(e.to_string());
    let until = config.until;
    let mut simulation = Simulation::new(config).map_err(failed)?;
    let mut advance = watch.begin();
    loop {
        if watch.is_interrupted() {
            return Err(NoResult::Interrupted);
        }
        let over = simulation.run(slice).map_err(failed)?;
        observe(&simulation);
        let (done, all) = simulation.progress();
        advance.to((done as f64 / all.max(1) as f64).max(simulation.now() as f64 / until as f64));
        if over {
            return simulation.outcome().map_err(failed);
        }
    }
}

/// Rejects an experiment that cannot be run. Errors that depend on the flows are detected with those of `seed`.
pub fn check(experiment: &Experiment, seed: u64) -> Result<(), CommandError> {
    experiment.config(seed).map(drop).map_err(|e| CommandError::Usage(e.to_string()))
}

/// Runs an experiment, as `irnic sim` does, and returns its summary. All of its flows have to complete.
pub fn summarized(experiment: &Experiment, seed: u64, watch: &Watch<'_>) -> Result<Summary, NoResult> {
    let config = experiment.config(seed).map_err(|e| NoResult::Failed(e.to_string()))?;
    let edges = size_edges(config.setups[0].mtu.bytes() as u64);
    let summary = Summary::of(&simulate(watch, config)?, &edges);
    match summary.ending {
        Ending::Complete => Ok(summary),
        ending => Err(NoResult::Failed(format!("not all flows were completed ({ending:?})"))),
    }
}

fn conclude(interrupted: bool, failures: &[String]) -> Result<(), CommandError> {
    if interrupted {
        return Err(CommandError::Interrupted);
    }
    if failures.is_empty() { Ok(()) } else { Err(CommandError::Failed(failures.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_their_scenario_and_seed_and_failures_are_named() {
        let (scenarios, seeds) = (once([5u64, 7, 5].into_iter()), [1, 2]);
        let odd = |scenario: &u64, seed: u64, _: &Watch<'_>| match scenario * seed {
            14 => Err(NoResult::Failed("too much".to_owned())),
            product => Ok(product),
        };
        let all = Scenarios {
            command: "test",
            scenarios: &scenarios,
            cells: &["s5/fct", "s7/fct"],
            seeds: &seeds,
            settings: String::new(),
            estimate: &|_| 1.0,
            check: &|_| Ok(()),
            make: &odd,
        };
        let args = Default::default();
        let runs = all.perform(&How { args: &args, who: "test", jobs: 2, threads: 1 }).unwrap().expect("runs");
        assert_eq!((runs.of(&5), runs.of(&7), runs.of(&9)), (vec![Some(&5), Some(&10)], vec![Some(&7), None], vec![]));
        assert!(runs.any());
        let said = runs.conclude().unwrap_err().to_string();
        assert_eq!(said, "s7 seed=2: too much");
        assert!(matches!(conclude(true, &[said]), Err(CommandError::Interrupted)));
        assert!(conclude(false, &[]).is_ok());
    }
}
