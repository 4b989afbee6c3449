//! perftest by rdma_cm (`-R`): the tools connect, and exchange what they have to, by librdmacm instead of a TCP socket.

use std::fs;
use std::path::Path;

use irnic_testkit::{retry, shim};
use libtest_mimic::{Failed, Trial};

use crate::perftest::Rows::{One, Sizes};
use crate::perftest::{Run, judge};
use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, trial};
use crate::table::Row;

const fn run(tool: &'static str, service: &'static str, args: &'static str, rows: crate::perftest::Rows) -> Run {
    Run { tool, service, args, rows }
}

/// The short form.
const SHORT: &[Run] = &[
    run("ib_send_bw", "RC", "-n 100", One(65536, 100)),
    run("ib_write_bw", "RC", "-n 100", One(65536, 100)),
    run("ib_read_bw", "RC", "-n 100", One(65536, 100)),
    run("ib_atomic_bw", "RC", "-n 200", One(8, 200)),
    run("ib_send_lat", "RC", "-n 100", One(2, 100)),
    run("ib_write_lat", "RC", "-n 100", One(2, 100)),
    run("ib_read_lat", "RC", "-n 100", One(2, 100)),
    run("ib_atomic_lat", "RC", "-n 100", One(8, 100)),
    run("ib_send_bw", "UD", "-s 1024 -n 200", One(1024, 200)),
    run("ib_send_lat", "UD", "-n 100", One(2, 100)),
];

/// What the long form has besides.
const LONG: &[Run] = &[
    run("ib_send_bw", "RC", "-a -n 5", Sizes(1 << 23, 5)),
    run("ib_write_bw", "RC", "-a -n 5", Sizes(1 << 23, 5)),
    run("ib_read_bw", "RC", "-a -n 5", Sizes(1 << 23, 5)),
    run("ib_send_bw", "RC", "-q 4 -n 50", One(65536, 200)),
    run("ib_write_bw", "RC", "-q 4 -n 50", One(65536, 200)),
    run("ib_write_bw", "RC", "-b -n 100", One(65536, 100)),
    run("ib_send_bw", "RC", "-e -n 100", One(65536, 100)),
    run("ib_send_bw", "RC", "-T 106 -n 100", One(65536, 100)),
];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row {
        application: "perftest",
        package: "perftest",
        command: "ib_{send,write,read,atomic}_{bw,lat} -R",
        checked: "the report has each size with its iterations, and numbers that can be",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "perftest",
        package: "perftest",
        command: "ib_send_{bw,lat} -R -c UD",
        checked: "the same",
        network: "shm and udp, 0 %",
    },
];

/// All tests of perftest by rdma_cm.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (port, lossy) in [("shm", false), ("udp", true), ("udp", false), ("shm", true)] {
        let device = Device { transport: "irn", impair: if lossy { "loss 1%" } else { "" }, port };
        let plain = (port == "shm") != lossy;
        let long = LONG.iter().filter(|_| all());
        for run in SHORT.iter().filter(|_| all() || plain).chain(long) {
            if lossy && run.service == "UD" {
                continue;
            }
            let (run, loss) = (*run, if lossy { "1 % loss" } else { "no loss" });
            let name = format!("perftest: {} -R -c {} {} ({port}, {loss})", run.tool, run.service, run.args);
            let program = format!("/usr/bin/{}", run.tool);
            trials.push(trial(name, &[&program], move |sandbox| both_ends(sandbox, run, device)));
        }
    }
    trials
}

fn both_ends(sandbox: &Sandbox, run: Run, device: Device) -> Result<(), Failed> {
    let program = installed(run.tool)?;
    let [client, server] = retry::attempts(&sandbox.test, || start(sandbox, &program, run, device))?;
    judge(&client, &server, run)
}

/// Runs both ends. perftest connects twice, and its client does not wait the second time until the server listens
/// again: here it does.
fn start(sandbox: &Sandbox, program: &Path, run: Run, device: Device) -> Result<[Ended; 2], Failed> {
    let port = free_port().to_string();
    let [listens, granted] = ["listens", "granted"].map(|name| sandbox.dir.path().join(name));
    for file in [&listens, &granted] {
        // There is none before the first attempt.
        let _ = fs::remove_file(file);
    }
    let command = |peer: Option<&str>| {
        let mut command = sandbox.command(program, device);
        command.args(["-R", "-F", "-c", run.service, "-p", &port]).args(run.args.split(' ')).args(peer);
        command
    };
    let mut server = command(None);
    let mut server = Process::start(server.env("LD_PRELOAD", shim::build("listens")?).env("LISTENS", &listens))?;
    let listened = |times: u64| fs::metadata(&listens).is_ok_and(|file| file.len() >= times);
    server.await_condition("it listens", |_| listened(1))?;
    let mut client = command(Some("127.0.0.1"));
    let mut client = Process::start(client.env("LD_PRELOAD", shim::build("patience")?).env("GRANTED", &granted))?;
    // If the client ends before, its end says why.
    let _ = client.await_condition("the server listens again", |_| listened(2));
    fs::write(&granted, "")?;
    Process::end_both([client, server], run.service == "RC")
}
