//! Seeded schedules: random operations over random transports on a random network, every byte and completion checked.
//!
//! `IRNIC_SCHEDULES=n` runs n of them (20,000 by default in release, 300 in debug builds), `IRNIC_SEED=s` only the one with
//! seed s, `IRNIC_FIRST=s` begins at s.

#[path = "../common/mod.rs"]
mod common;
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is not a number")))
}

#[test]
fn every_work_request_completes_once_in_order_and_memory_is_right() {
    if let Some(seed) = env("IRNIC_SEED") {
        let outcome = model::run(seed, true);
        println!("seed {seed}: {outcome:?}");
        return;
    }
    let count = env("IRNIC_SCHEDULES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 20_000 });
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let next = AtomicU64::new(first);
    let total = std::sync::Mutex::new(model::Outcome::default());
    let failed = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.load(Ordering::Relaxed) != u64::MAX {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| model::run(seed, false))) {
                        Ok(outcome) => total.lock().unwrap().add(&outcome),
                        Err(_) => {
                            failed.fetch_min(seed, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let seed = failed.into_inner();
    assert!(
        seed == u64::MAX,
        "schedule {seed} failed; replay it with\n  IRNIC_SEED={seed} cargo test --release -p irnic-nic --test schedules -- --nocapture"
    );
    let total = total.into_inner().unwrap();
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
