//! qperf by rdma_cm (`-cm1`). Without it qperf knows no GIDs, and RoCE has no other addresses: its tests that know
//! nothing of rdma_cm (UC, UD) run on InfiniBand only.

use std::path::Path;

use irnic_testkit::shim;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, trial, wait_for_listener};
use crate::table::Row;

/// Tests, the unit of what they measure, and whether they are part of the short form.
const RUNS: &[(&str, &str, bool)] = &[
    ("rc_bw", "bw", true),
    ("rc_lat", "latency", true),
    ("rc_bi_bw", "bw", false),
    ("rc_rdma_read_bw", "bw", true),
    ("rc_rdma_read_lat", "latency", false),
    ("rc_rdma_write_bw", "bw", true),
    ("rc_rdma_write_lat", "latency", false),
    ("rc_rdma_write_poll_lat", "latency", false),
    ("rc_compare_swap_mr", "msg_rate", false),
    ("rc_fetch_add_mr", "msg_rate", false),
    ("ver_rc_compare_swap", "msg_rate", true),
    ("ver_rc_fetch_add", "msg_rate", false),
];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[Row {
    application: "qperf",
    package: "qperf",
    command: "qperf -cm1 {rc_*,ver_rc_*}",
    checked: "a result above 0; `ver_` tests check what the atomics return",
    network: "shm and udp, 0 and 1 %",
}];

/// All tests of qperf.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (port, lossy) in [("shm", false), ("udp", true), ("udp", false), ("shm", true)] {
        let device = Device { transport: "irn", impair: if lossy { "loss 1%" } else { "" }, port };
        for &(test, unit, short) in RUNS {
            if all() || short && (port, lossy) == ("shm", false) {
                let name = format!("qperf: {test} -cm1 ({port}, {})", if lossy { "1 % loss" } else { "no loss" });
                trials.push(trial(name, &["/usr/bin/qperf"], move |sandbox| measures(sandbox, test, unit, device)));
            }
        }
    }
    trials
}

fn measures(sandbox: &Sandbox, test: &str, unit: &str, device: Device) -> Result<(), Failed> {
    let program = installed("qperf")?;
    let client = run(sandbox, &program, test, device)?.succeed()?;
    // "    bw  =  605 MB/sec"
    let value =
        client.stdout.lines().find_map(|line| line.trim_start().strip_prefix(unit)?.trim_start().strip_prefix('='));
    let value = value.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
    if value.is_none_or(|value| value <= 0.0) {
        return Err(client.failed("it has measured nothing"));
    }
    Ok(())
}

/// Returns how a client ended. It waits until the server listens by rdma_cm, which would not be so by itself.
fn run(sandbox: &Sandbox, program: &Path, test: &str, device: Device) -> Result<Ended, Failed> {
    let port = free_port();
    let number = port.to_string();
    let listens = sandbox.dir.path().join("listens");
    let mut server = sandbox.command(program, device);
    server.args(["-lp", &number]).env("LD_PRELOAD", shim::build("listens")?).env("LISTENS", &listens);
    let mut server = Process::start(&mut server)?;
    wait_for_listener(&mut server, port)?;
    let mut client = sandbox.command(program, device);
    client.env("LD_PRELOAD", shim::build("patience")?).env("PATIENT_FROM", "0").env("GRANTED", &listens);
    let client = Process::start(client.args(["127.0.0.1", "-lp", &number, "-t", "1", "-cm1", test]))?.end()?;
    if !server.runs() {
        return Err(server.end()?.failed("the server has ended"));
    }
    Ok(client)
}
