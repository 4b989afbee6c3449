//! Unmodified applications run through the library: perftest, libibverbs' examples, pyverbs, libfabric, fio, tgt and
//! libiscsi, TCP programs under librspreload, QEMU, crates of crates.io, newer programs where there are some, and small
//! programs of our own.
//!
//! Each row of each table is a test. `IRNIC_APPLICATIONS=long` runs the rows that the short form leaves out, `all`
//! both. Two run at a time, since most programs spin on a completion queue. `make applications` runs all with the
//! library that users get: `IRNIC_APPLICATIONS=all cargo test --release -p irnic-verbs --test applications`.

mod cm_faults;
mod crates;
mod death;
mod examples;
mod fabtests;
mod fio;
mod frames;
mod gloo;
mod iser;
mod libfabric;
mod mooncake;
mod newest;
mod peer;
mod perftest;
mod perftest_cm;
mod preload;
mod process;
mod published;
mod pyverbs;
mod qemu;
mod qperf;
mod rdmacm;
mod sandbox;
mod table;
mod valkey;

use std::collections::BTreeSet;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    sandbox::prepare();
    arguments.test_threads.get_or_insert(2);
    let trials = match std::env::var("IRNIC_APPLICATIONS").as_deref() {
        Ok("all") => trials(true),
        Ok("long") => {
            let short: BTreeSet<String> = trials(false).iter().map(|trial| trial.name().to_owned()).collect();
            trials(true).into_iter().filter(|trial| !short.contains(trial.name())).collect()
        }
        _ => trials(false),
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// All tests, of the long form or the short one.
fn trials(all: bool) -> Vec<Trial> {
    sandbox::want_all(all);
    let mut trials = perftest::trials();
    trials.extend(examples::trials());
    trials.extend(pyverbs::trials());
    trials.extend(libfabric::trials());
    trials.extend(crates::trials());
    trials.extend(published::trials());
    trials.extend(peer::trials());
    trials.extend(frames::trials());
    trials.extend(rdmacm::trials());
    trials.extend(perftest_cm::trials());
    trials.extend(qperf::trials());
    trials.extend(mooncake::trials());
    trials.extend(newest::trials());
    trials.extend(fabtests::trials());
    trials.extend(valkey::trials());
    trials.extend(gloo::trials());
    trials.push(Trial::test("applications: docs/applications.md has what is tested", || {
        let rows = [
            rdmacm::ROWS,
            perftest_cm::ROWS,
            newest::ROWS,
            qperf::ROWS,
            libfabric::ROWS,
            fabtests::ROWS,
            iser::ROWS,
            preload::ROWS,
            published::ROWS,
            valkey::ROWS,
            gloo::ROWS,
            mooncake::ROWS,
        ]
        .concat();
        table::compare("verbs/tests/applications", &rows).map_err(Into::into)
    }));
    trials.extend(fio::trials());
    trials.extend(iser::trials());
    trials.extend(preload::trials());
    trials.extend(qemu::trials());
    trials.extend(death::trials());
    trials.extend(cm_faults::trials());
    trials
}
