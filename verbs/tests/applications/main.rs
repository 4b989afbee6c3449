//! Unmodified applications run through the library: perftest, libibverbs' examples, pyverbs, and small programs of our own.
//!
//! Each row of each table is a test. They run one after another, since programs that spin on a completion queue need a core each,
//! and with the optimised library only: `cargo test --release -p irnic-verbs --test applications`.

mod death;
mod examples;
mod habitat;
mod peer;
mod perftest;
mod process;
mod pyverbs;

use libtest_mimic::Arguments;

fn main() {
    let mut arguments = Arguments::from_args();
    if cfg!(debug_assertions) {
        println!(
            "applications run with the optimised library: cargo test --release -p irnic-verbs --test applications"
        );
        return;
    }
    habitat::prepare();
    arguments.test_threads.get_or_insert(1);
    let mut trials = perftest::trials();
    trials.extend(examples::trials());
    trials.extend(pyverbs::trials());
    trials.extend(peer::trials());
    trials.extend(death::trials());
    libtest_mimic::run(&arguments, trials).exit();
}
