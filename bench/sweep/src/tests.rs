//! A sweep of two cases with two seeds, for tests of the parts.

use std::sync::atomic::AtomicBool;

use irnic_report::CommandError;

use crate::local;
use crate::runs::{NoResult, Sweep, Watch, all_named};

/// The first case has results; the second panics, or fails.
pub struct Toy;

impl Sweep for Toy {
    type Result = f64;

    fn command(&self) -> &str {
        "toy"
    }

    fn cases(&self) -> usize {
        2
    }

    fn seeds(&self) -> &[u64] {
        &[1, 2]
    }

    fn label(&self, case: usize) -> String {
        format!("case {case}")
    }

    fn settings(&self, case: usize) -> Result<String, CommandError> {
        Ok(case.to_string())
    }

    fn check(&self, _: usize) -> Result<(), CommandError> {
        Ok(())
    }

    fn estimate(&self, _: usize) -> f64 {
        1.0
    }

    fn replay(&self, case: usize, seed: u64) -> String {
        format!("irnic toy {case} {seed}")
    }

    fn make(&self, case: usize, seed: u64, watch: &Watch<'_>) -> Result<f64, NoResult> {
        watch.begin().to(1.0);
        match (case, seed) {
            _ if watch.is_interrupted() => Err(NoResult::Interrupted),
            (0, seed) => Ok(seed as f64 / 10.0),
            (_, 1) => panic!("case {case} seed {seed}"),
            _ => Err(NoResult::Failed("odd".to_owned())),
        }
    }
}

#[test]
fn a_run_that_panics_takes_no_other_with_it() {
    let results = local::all(&Toy, 2, &AtomicBool::new(false)).unwrap();
    let failed = |why: &str| Err(NoResult::Failed(why.to_owned()));
    assert_eq!(results, [Ok(0.1), Ok(0.2), failed("panic: case 1 seed 1"), failed("odd")]);
    assert_eq!(local::all(&Toy, 1, &AtomicBool::new(true)).unwrap(), [const { Err(NoResult::NeverBegun) }; 4]);
}

#[test]
fn runs_are_told_apart_by_settings_and_seed() {
    let all = all_named(&Toy).unwrap();
    let names: Vec<&str> = all.iter().map(|named| named.name.as_str()).collect();
    assert_eq!(names, ["case 0 seed=1", "case 0 seed=2", "case 1 seed=1", "case 1 seed=2"]);
    let mut runs: Vec<&str> = all.iter().map(|named| named.run.as_str()).collect();
    runs.sort_unstable();
    assert!(runs.windows(2).all(|w| w[0] != w[1]));
}
