//! Running many seeds on all cores, and reporting which one failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a number from the environment.
pub fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is not a number")))
}

/// Runs `count` seeds from `first` on and sums their results. If one fails, panics with the command that replays it in
/// test crate `test`.
pub fn sweep<T: Default + Send>(
    test: &str,
    first: u64,
    count: u64,
    run: impl Fn(u64) -> T + Sync,
    add: impl Fn(&mut T, &T) + Sync,
) -> T {
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(u64::MAX);
    let total = Mutex::new(T::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.load(Ordering::Relaxed) != u64::MAX {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
                        Ok(outcome) => add(&mut total.lock().unwrap(), &outcome),
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
        "seed {seed} failed; replay it with\n  IRNIC_SEED={seed} cargo test --release -p irnic-nic --test {test} -- --nocapture"
    );
    total.into_inner().unwrap()
}
