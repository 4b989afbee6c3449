//! Seeded schedules: random operations over random transports on a random network, every byte and completion checked.
//!
//! `IRNIC_SCHEDULES=n` runs n of them (20,000 by default in release, 300 in debug builds), `IRNIC_SEED=s` only the one with
//! seed s, `IRNIC_FIRST=s` begins at s.

#[path = "../common/mod.rs"]
mod common;
mod model;

use common::seeds::{env, sweep};

#[test]
fn every_work_request_completes_once_in_order_and_memory_is_right() {
    if let Some(seed) = env("IRNIC_SEED") {
        let outcome = model::run(seed, true);
        println!("seed {seed}: {outcome:?}");
        return;
    }
    let count = env("IRNIC_SCHEDULES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 20_000 });
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| model::run(seed, false), model::Outcome::add);
    println!("{count} schedules: {total:?}");
    // A harness that exercises nothing proves nothing.
    for (what, n) in [
        ("retransmissions", total.retransmitted),
        ("out-of-order placements", total.placed_ooo),
        ("RNR NAKs", total.rnr),
        ("upgrades to IRN", total.upgrades),
        ("wrong ICRCs", total.bad_icrc),
        ("duplicates", total.duplicates),
        ("implied NAKs", total.implied),
    ] {
        assert!(n > 0, "no {what} in {count} schedules");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [3, 14, 159, 2653] {
        assert_eq!(model::run(seed, false), model::run(seed, false), "seed {seed}");
    }
}
