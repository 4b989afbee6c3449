//! libfabric's ping-pong over its verbs provider: messages over connections, reliable datagrams that libfabric makes of
//! them (`ofi_rxm`) or of UD (`ofi_rxd`), and datagrams.

use std::path::Path;
use std::process::Command;

use irnic_testkit::retry;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, namespaces, skipped, trial, wait_for_listener};
use crate::table::Row;

/// The address of the interface; from the block for documentation (RFC 5737).
pub const ADDRESS: &str = "192.0.2.1";
pub const IP: &str = "/usr/bin/ip";
const PROGRAM: &str = "/usr/bin/fi_pingpong";

/// An endpoint's type and provider, options, the sizes in the report as the program abbreviates them, whether it
/// recovers what is lost, and whether it is part of the short form.
struct Run {
    provider: &'static str,
    endpoint: &'static str,
    args: &'static str,
    sizes: &'static [&'static str],
    reliable: bool,
    short: bool,
}

const fn run(endpoint: &'static str, args: &'static str, sizes: &'static [&'static str]) -> Run {
    Run { provider: "verbs", endpoint, args, sizes, reliable: false, short: true }
}

const fn connected(run: Run) -> Run {
    Run { reliable: true, ..run }
}

const fn over_messages(run: Run) -> Run {
    Run { provider: "verbs;ofi_rxm", reliable: true, ..run }
}

const fn long(run: Run) -> Run {
    Run { short: false, ..run }
}

const RUNS: [Run; 13] = [
    run("rdm", "-S 1 -I 200", &["1"]),
    run("rdm", "-S 64 -I 200", &["64"]),
    run("rdm", "-S 4096 -I 200", &["4k"]),
    run("rdm", "-S 1048576 -I 10", &["1m"]),
    connected(run("msg", "-S 64 -I 200", &["64"])),
    connected(run("msg", "-S 65536 -I 20", &["64k"])),
    long(connected(run("msg", "-S 1 -I 200", &["1"]))),
    long(connected(run("msg", "-S 1048576 -I 10", &["1m"]))),
    over_messages(run("rdm", "-S 64 -I 200", &["64"])),
    over_messages(run("rdm", "-S 65536 -I 20", &["64k"])),
    long(over_messages(run("rdm", "-S 1 -I 200", &["1"]))),
    long(over_messages(run("rdm", "-S 1048576 -I 10", &["1m"]))),
    run("dgram", "-S 1024 -I 200", &["1k"]),
];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row {
        application: "libfabric",
        package: "libfabric1",
        command: "fi_pingpong -p verbs -e msg -c",
        checked: "data (`-c`), every size and message in the report of both ends",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "libfabric",
        package: "libfabric1",
        command: "fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c",
        checked: "the same",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "libfabric",
        package: "libfabric1",
        command: "fi_pingpong -p verbs -e rdm -c",
        checked: "the same",
        network: "shm, 0 %",
    },
    Row {
        application: "libfabric",
        package: "libfabric1",
        command: "fi_pingpong -p verbs -e dgram -c",
        checked: "the same",
        network: "shm, 0 %",
    },
];

/// All tests of libfabric.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (port, impair) in [("shm", ""), ("udp", "loss 1%"), ("shm", "loss 1%"), ("udp", "")] {
        for run in &RUNS {
            let first = (port, impair) == ("shm", "");
            let plain = first || run.reliable && run.short && (port, impair) == ("udp", "loss 1%");
            // Without loss: the program does not repeat what is lost last (docs/verbs.md).
            if !(plain && (run.short || all()) || all() && run.reliable) {
                continue;
            }
            let Run { provider, endpoint, args, .. } = run;
            let network = match first {
                true => String::new(),
                false => format!(" ({port}, {})", if impair.is_empty() { "no loss" } else { "1 % loss" }),
            };
            let name = format!("libfabric: fi_pingpong -p {provider} -e {endpoint} -c {args}{network}");
            if !namespaces() {
                trials.push(skipped(name, "there are no network namespaces, to make an interface in"));
                continue;
            }
            let device = Device { transport: "irn", impair, port };
            trials.push(trial(name, &[PROGRAM, IP], move |sandbox| pingpong(sandbox, run, device)));
        }
    }
    trials
}

/// Makes an interface in this namespace: libfabric passes over the loopback interface.
pub fn make_interface() -> Result<(), Failed> {
    for line in [
        "link add veth0 type veth peer name veth1",
        &format!("address add {ADDRESS}/24 dev veth0"),
        "link set veth0 up",
        "link set veth1 up",
    ] {
        Process::start(Command::new(IP).args(line.split(' ')))?.succeed()?;
    }
    Ok(())
}

fn pingpong(sandbox: &Sandbox, run: &Run, device: Device) -> Result<(), Failed> {
    make_interface()?;
    let program = installed("fi_pingpong")?;
    let Ends { ends: [client, server], .. } = retry::attempts(&sandbox.test, || both(sandbox, &program, run, device))?;
    // Who ends first takes the last acknowledgement with it. If that is lost, the other's last message has nobody to
    // answer it, after the report, on any NIC.
    let left_alone = |end: &Ended| {
        !device.impair.is_empty()
            && (flushed(end) || end.stderr.contains("cq_readerr: transport retry counter exceeded"))
    };
    for end in [&client, &server] {
        if !(end.status.success() || left_alone(end)) || !reports(end, run.args, run.sizes) {
            return Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into());
        }
    }
    Ok(())
}

fn flushed(end: &Ended) -> bool {
    end.stderr.contains("cq_readerr: Work Request Flushed Error")
}

/// Client and server.
struct Ends {
    ends: [Ended; 2],
    /// Nothing but the last completion can be missing.
    only_the_last: bool,
}

impl retry::Output for Ends {
    fn says(&self, text: &str) -> bool {
        self.only_the_last && self.ends.says(text)
    }
}

/// Returns how client and server ended. libfabric may drop the last completion, after all reports: when the peer
/// disconnects, `ofi_rxm` closes the endpoint, and 1.17's `vrb_ep_close` destroys the queue pair before it polls
/// (prov/verbs/src/verbs_ep.c). A NIC removes the completions of a queue pair that is destroyed (rdma-core: `mlx4`,
/// `mlx5`).
fn both(sandbox: &Sandbox, program: &Path, run: &Run, device: Device) -> Result<Ends, Failed> {
    let port = free_port();
    let command = |end: &[&str]| {
        let mut command = sandbox.command(program, device);
        command
            .env("IRNIC_ADDRESSES", ADDRESS)
            .args(["-p", run.provider, "-e", run.endpoint, "-c"])
            .args(run.args.split(' '))
            .args(end);
        command
    };
    let mut server = Process::start(&mut command(&["-B", &port.to_string()]))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(&mut command(&["-P", &port.to_string(), ADDRESS]))?.end()?;
    let ends = [client, server.end()?];
    let complete = ends.iter().all(|end| reports(end, run.args, run.sizes));
    Ok(Ends { ends, only_the_last: complete && device.impair.is_empty() })
}

/// Whether the report has a row for each size, and as many messages in it as were asked for. Its columns: bytes, sent,
/// and acknowledged with a `=` if that is as many.
fn reports(end: &Ended, args: &str, sizes: &[&str]) -> bool {
    let iterations = args.rsplit(' ').next().unwrap_or_default();
    let lines = end.stdout.lines().skip_while(|line| !line.starts_with("bytes")).skip(1);
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    let complete = |row: &Vec<&str>| row.len() == 8 && row[1] == iterations && row[2] == format!("={iterations}");
    let found: Vec<&str> = rows.iter().filter_map(|row| row.first().copied()).collect();
    let right = found == sizes;
    right && rows.iter().all(complete)
}
