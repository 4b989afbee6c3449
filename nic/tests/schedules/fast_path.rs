//! The fast path of small messages does what the path of all others does: the same schedules with and without it send
//! the same bytes at the same times, and end with the same counters.

use crate::common::FAST_PATH;
use crate::common::seeds::sweep;
use crate::model::{self, Outcome};

/// Runs a schedule with the fast path or without it.
fn run(seed: u64, run: fn(u64, bool) -> Outcome, fast: bool) -> Outcome {
    FAST_PATH.set(Some(fast));
    let outcome = run(seed, false);
    FAST_PATH.set(None);
    outcome
}

/// Returns the number of frames that took the fast path in schedules of a kind.
fn compare(count: u64, kind: fn(u64, bool) -> Outcome) -> u64 {
    let both = |seed| {
        let [with, without] = [true, false].map(|fast| run(seed, kind, fast));
        assert_eq!(without.fast, 0);
        assert_eq!(Outcome { fast: 0, ..with }, without, "with the fast path and without it");
        with
    };
    sweep("schedules", 1, count, both, Outcome::add).fast
}

#[test]
fn schedules_are_the_same_with_and_without_it() {
    let count = crate::how_many(2_000);
    assert!(compare(count, model::run) > count);
    assert!(compare(count / 4, model::run_newer) > 0);
}
