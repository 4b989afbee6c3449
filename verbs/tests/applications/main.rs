//! Unmodified applications run through the library: perftest, libibverbs' examples, pyverbs, libfabric, fio,
//! QEMU, the ibverbs crate, and small programs of our own.
//!
//! Each row of each table is a test. Two run at a time, since most programs spin on a completion queue, and with the
//! optimised library only: `cargo test --release -p irnic-verbs --test applications`.

mod crates;
mod death;
mod examples;
mod fio;
mod frames;
mod habitat;
mod libfabric;
mod peer;
mod perftest;
mod process;
mod pyverbs;
mod qemu;
mod rdmacm;

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
    arguments.test_threads.get_or_insert(2);
    let mut trials = perftest::trials();
    trials.extend(examples::trials());
    trials.extend(pyverbs::trials());
    trials.extend(libfabric::trials());
    trials.extend(crates::trials());
    trials.extend(peer::trials());
    trials.extend(frames::trials());
    trials.extend(rdmacm::trials());
    trials.extend(fio::trials());
    trials.extend(qemu::trials());
    trials.extend(death::trials());
    libtest_mimic::run(&arguments, trials).exit();
}
