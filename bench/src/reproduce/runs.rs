//! Runs of a paper's scenarios, each with each seed, and how a command that made them ends.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_fabric::sim::{Outcome, SimConfig, Simulation};
use irnic_fabric::summary::Summary;
use rayon::prelude::*;

use crate::sim::{self, Batch, Progress, SLICE, STEPS, SimError};

/// Keeps what is not there yet.
pub fn once<S: Clone + PartialEq>(scenarios: impl Iterator<Item = S>) -> Vec<S> {
    scenarios.fold(Vec::new(), |mut all, scenario| {
        if !all.contains(&scenario) {
            all.push(scenario);
        }
        all
    })
}

/// What was measured in the runs of some scenarios.
pub struct Runs<'a, S, M> {
    scenarios: &'a [S],
    seeds: &'a [u64],
    /// By scenario, and within one by seed.
    each: Vec<Vec<Result<M, String>>>,
}

impl<'a, S: PartialEq + Sync, M: Send> Runs<'a, S, M> {
    /// Runs each scenario with each seed, `jobs` at a time or, with 0, one for each core. `one` makes a run. Results do not
    /// depend on which was ready first.
    pub fn make(
        scenarios: &'a [S],
        seeds: &'a [u64],
        jobs: usize,
        interrupted: &AtomicBool,
        one: impl Fn(&S, u64, &Watch<'_>) -> Result<M, String> + Sync,
    ) -> Result<Runs<'a, S, M>, SimError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
        let pool = pool.map_err(|e| SimError::Failed(format!("threads: {e}")))?;
        let pairs: Vec<(&S, u64)> = scenarios.iter().flat_map(|s| seeds.iter().map(move |seed| (s, *seed))).collect();
        let progress = Progress::new(pairs.len());
        let watch = Watch { interrupted, progress: &progress };
        let mut results: Vec<Result<M, String>> = pool.install(|| {
            let each = pairs.into_par_iter().with_max_len(1);
            each.map(|(scenario, seed)| one(scenario, seed, &watch)).collect()
        });
        progress.finish();
        let each = scenarios.iter().map(|_| results.drain(..seeds.len()).collect()).collect();
        Ok(Runs { scenarios, seeds, each })
    }

    /// Returns the runs of a scenario, by seed; nothing for one that failed.
    pub fn of(&self, scenario: &S) -> Vec<Option<&M>> {
        let at = self.scenarios.iter().position(|s| s == scenario);
        at.map_or(Vec::new(), |at| self.each[at].iter().map(|run| run.as_ref().ok()).collect())
    }

    /// Returns whether any run has a result.
    pub fn any(&self) -> bool {
        self.each.iter().flatten().any(Result::is_ok)
    }

    /// Says which runs have none, and why.
    pub fn failures(&self, name: impl Fn(&S) -> String) -> Vec<String> {
        let of = |(scenario, runs): (&S, &Vec<Result<M, String>>)| {
            let failed = runs.iter().zip(self.seeds).filter_map(|(run, seed)| Some((run.as_ref().err()?, seed)));
            failed.map(|(error, seed)| format!("{} seed={seed}: {error}", name(scenario))).collect::<Vec<_>>()
        };
        self.scenarios.iter().zip(&self.each).flat_map(of).collect()
    }
}

/// Who watches over runs: Ctrl-C, and the bar.
pub struct Watch<'a> {
    interrupted: &'a AtomicBool,
    progress: &'a Progress,
}

impl Watch<'_> {
    /// Simulates a network to its end.
    pub fn simulate(&self, config: SimConfig) -> Result<Outcome, String> {
        let until = config.until;
        let mut simulation = Simulation::new(config).map_err(|e| e.to_string())?;
        let mut steps = 0;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            let over = simulation.run(SLICE).map_err(|e| e.to_string())?;
            let (done, all) = simulation.progress();
            let by_flows = STEPS * done as u64 / all.max(1) as u64;
            let by_time = (u128::from(STEPS) * u128::from(simulation.now()) / u128::from(until)) as u64;
            let at = if over { STEPS } else { by_flows.max(by_time).clamp(steps, STEPS) };
            self.progress.add(at - steps);
            steps = at;
            if over {
                return simulation.outcome().map_err(|e| e.to_string());
            }
        }
    }
}

/// Returns the summaries of a case, by seed; nothing for a run in which not all flows were completed.
pub fn summaries(runs: &[sim::Run], case: Option<usize>) -> Vec<Option<&Summary>> {
    let of_case = runs.iter().filter(|r| Some(r.case) == case);
    of_case.map(|r| r.result.as_ref().ok().filter(|f| f.complete()).map(|f| &f.summary)).collect()
}

/// Says which runs have no such summary, and why.
pub fn incomplete(batch: &Batch, runs: &[sim::Run]) -> Vec<String> {
    let failure = |run: &sim::Run| match &run.result {
        Err(e) => Some(format!("{}: {e}", batch.name(run))),
        Ok(f) if !f.complete() => {
            Some(format!("{}: not all flows were completed ({:?})", batch.name(run), f.summary.ending))
        }
        Ok(_) => None,
    };
    runs.iter().filter_map(failure).collect()
}

/// Ends a command whose results are written.
pub fn conclude(interrupted: &AtomicBool, failures: &[String]) -> Result<(), SimError> {
    if interrupted.load(Ordering::Relaxed) {
        return Err(SimError::Interrupted);
    }
    if failures.is_empty() { Ok(()) } else { Err(SimError::Failed(failures.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_their_scenario_and_seed_and_failures_are_named() {
        let (scenarios, seeds) = (once([5u64, 7, 5].into_iter()), [1, 2]);
        let odd = |scenario: &u64, seed: u64, _: &Watch<'_>| match scenario * seed {
            14 => Err("too much".to_owned()),
            product => Ok(product),
        };
        let runs = Runs::make(&scenarios, &seeds, 2, &AtomicBool::new(false), odd).unwrap();
        assert_eq!((runs.of(&5), runs.of(&7), runs.of(&9)), (vec![Some(&5), Some(&10)], vec![Some(&7), None], vec![]));
        assert!(runs.any());
        let failures = runs.failures(|s| format!("s{s}"));
        assert_eq!(failures, ["s7 seed=2: too much"]);
        assert!(matches!(conclude(&AtomicBool::new(false), &failures), Err(SimError::Failed(_))));
        assert!(matches!(conclude(&AtomicBool::new(true), &[]), Err(SimError::Interrupted)));
        assert!(conclude(&AtomicBool::new(false), &[]).is_ok());
    }
}
