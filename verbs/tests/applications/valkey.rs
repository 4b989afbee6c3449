//! Valkey over RDMA, built with `BUILD_RDMA=yes` from its sources, of 9.0 or later: what is set by `valkey-cli --rdma`
//! comes back, and `valkey-benchmark --rdma` counts requests. `TESTS_VALKEY` names the folder with the programs.

use std::fs::{self, File};
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, RELIABLE, Sandbox, free_port, of_sources, wait_for_service};
use crate::table::Row;

/// The folder of the programs.
const FOLDER: &str = "TESTS_VALKEY";
/// Bytes of values: the largest does not fit a connection's receive buffer, of 1 MB.
const SIZES: [usize; 4] = [1, 1000, 100_000, 3_000_000];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row {
        application: "Valkey",
        package: "=9.1.2",
        command: "valkey-server --rdma-port …; valkey-cli --rdma {SET,GET}",
        checked: "each byte of values of 1 B to 3 MB",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "Valkey",
        package: "=9.1.2",
        command: "valkey-benchmark --rdma -n 200 -c 4 -d 4096 -t set,get",
        checked: "requests per second above 0, no error",
        network: "shm and udp, 0 and 1 %",
    },
];

/// All tests of Valkey, in the long form.
pub fn trials() -> Vec<Trial> {
    of_sources(FOLDER, "valkey: --rdma", &[], &RELIABLE, serve)
}

fn serve(sandbox: &Sandbox, folder: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port().to_string();
    let mut command = sandbox.command(folder.join("valkey-server"), device);
    command.args(["--port", "0", "--rdma-bind", "127.0.0.1", "--rdma-port", &port, "--save", ""]);
    let mut server = Process::start(&mut command)?;
    wait_for_service(&mut server)?;
    let client = |program: &str| {
        let mut command = sandbox.command(folder.join(program), device);
        command.args(["--rdma", "-h", "127.0.0.1", "-p", &port]);
        command
    };
    for size in SIZES {
        let file = sandbox.dir.path().join("value");
        let value: String = (0..size).map(|i| char::from(b'a' + (i * i / 7 % 26) as u8)).collect();
        fs::write(&file, &value)?;
        let set = client("valkey-cli").args(["-x", "SET", "key"]).stdin(File::open(&file)?).output()?;
        let said = String::from_utf8_lossy(&set.stdout).into_owned();
        if said.trim() != "OK" {
            return Err(format!("SET of {size} bytes: {said}{}", String::from_utf8_lossy(&set.stderr)).into());
        }
        let got = Process::start(client("valkey-cli").args(["GET", "key"]))?.succeed()?;
        if got.stdout.strip_suffix('\n') != Some(&value) {
            return Err(format!("GET returns something else than the {size} bytes that were set").into());
        }
    }
    let mut benchmark = client("valkey-benchmark");
    benchmark.args(["-n", "200", "-c", "4", "-d", "4096", "-t", "set,get", "--csv"]);
    let end = Process::start(&mut benchmark)?.succeed()?;
    server.signal(libc::SIGTERM);
    server.succeed()?;
    if ["SET", "GET"].iter().all(|test| rate(&end, test) > 0.0) && !end.stderr.contains("rror") {
        Ok(())
    } else {
        Err(end.failed("it has not counted requests"))
    }
}

/// Requests per second of a test, in the CSV report.
fn rate(end: &Ended, test: &str) -> f64 {
    let line = end.stdout.lines().find_map(|line| line.strip_prefix(&format!("\"{test}\",\"")));
    line.and_then(|rest| rest.split('"').next()?.parse().ok()).unwrap_or(0.0)
}
