//! gloo's ibverbs transport, of its repository: its benchmark program with two processes, which compares what the first
//! iteration gave. `TESTS_GLOO` names the folder with `benchmark`, built with `-DUSE_IBVERBS=ON -DBUILD_BENCHMARK=ON`.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::process::Process;
use crate::sandbox::{Device, RELIABLE, Sandbox, of_sources};
use crate::table::Row;

/// The folder of the program.
const FOLDER: &str = "TESTS_GLOO";
const BENCHMARKS: [&str; 4] =
    ["allreduce_ring_chunked", "allreduce_halving_doubling", "broadcast_one_to_all", "pairwise_exchange"];
const ELEMENTS: &str = "10000";
const ITERATIONS: &str = "10";

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[Row {
    application: "gloo of its repository",
    package: "=70dc360",
    command: "benchmark --transport ibverbs {allreduce_{ring_chunked,halving_doubling},broadcast_one_to_all,pairwise_exchange}",
    checked: "data of the first iteration, by the program; each iteration in the report",
    network: "shm and udp, 0 and 1 %",
}];

/// All tests of gloo, in the long form.
pub fn trials() -> Vec<Trial> {
    let of = |benchmark| {
        of_sources(FOLDER, &format!("gloo: {benchmark}"), &[], &RELIABLE, move |sandbox, folder, device| {
            ranks(sandbox, &folder.join("benchmark"), benchmark, device)
        })
    };
    BENCHMARKS.into_iter().flat_map(of).collect()
}

fn ranks(sandbox: &Sandbox, program: &Path, benchmark: &str, device: Device) -> Result<(), Failed> {
    let (store, index) = (sandbox.dir.path().join("store"), sandbox.gid_index()?);
    fs::create_dir(&store)?;
    let start = |rank: &str| {
        let mut command = sandbox.command(program, device);
        command.args(["--size", "2", "--rank", rank, "--prefix", "test", "--shared-path"]).arg(&store);
        command.args(["--transport", "ibverbs", "--ib-device", "irnic0", "--ib-index", &index]);
        command.args(["--elements", ELEMENTS, "--iteration-count", ITERATIONS, benchmark]);
        Process::start(&mut command)
    };
    let [first, second] = Process::end_both([start("0")?, start("1")?], true)?;
    if !first.status.success() || !second.status.success() {
        return Err(format!("{:?}\n{:?}", first.failed("rank 0"), second.failed("rank 1")).into());
    }
    // The last column is the number of iterations.
    let mut rows = first.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    match rows.any(|row| row.contains(&ELEMENTS) && row.last() == Some(&ITERATIONS)) {
        true => Ok(()),
        false => Err(first.failed("its report has no such row")),
    }
}
