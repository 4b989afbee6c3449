//! libfabric's ping-pong over its verbs provider: reliable datagrams, which libfabric makes of UD.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::habitat::{Device, Habitat, free_port, installed, namespaces, skipped, trial, wait_for_listener};
use crate::process::{Ended, Process};

/// The address of the interface; from the block for documentation (RFC 5737).
const ADDRESS: &str = "192.0.2.1";
const IP: &str = "/usr/bin/ip";
const PROGRAM: &str = "/usr/bin/fi_pingpong";

/// Options, and the sizes in the report as the program abbreviates them.
const RUNS: [(&str, &[&str]); 4] =
    [("-S 1 -I 200", &["1"]), ("-S 64 -I 200", &["64"]), ("-S 4096 -I 200", &["4k"]), ("-S 1048576 -I 10", &["1m"])];

/// All tests of libfabric.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (args, sizes) in RUNS {
        let name = format!("libfabric: fi_pingpong -p verbs -e rdm -c {args}");
        if !namespaces() {
            trials.push(skipped(name, "there are no network namespaces, to make an interface in"));
            continue;
        }
        // Without loss: the program does not repeat what is lost last (docs/verbs.md).
        let device = Device::default();
        trials.push(trial(name, &[PROGRAM, IP], move |habitat| pingpong(habitat, args, sizes, device)));
    }
    trials
}

/// Makes an interface in this namespace: libfabric passes over the loopback interface.
fn make_interface() -> Result<(), Failed> {
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

fn pingpong(habitat: &Habitat, args: &str, sizes: &[&str], device: Device) -> Result<(), Failed> {
    make_interface()?;
    let program = installed("fi_pingpong")?;
    let port = free_port();
    let command = |end: &[&str]| {
        let mut command = habitat.command(&program, device);
        command
            .env("IRNIC_ADDRESSES", ADDRESS)
            .args(["-p", "verbs", "-e", "rdm", "-c"])
            .args(args.split(' '))
            .args(end);
        command
    };
    let mut server = Process::start(&mut command(&["-B", &port.to_string()]))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(&mut command(&["-P", &port.to_string(), ADDRESS]))?.end()?;
    let server = server.end()?;
    for end in [&client, &server] {
        if !end.status.success() || !reports(end, args, sizes) {
            return Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into());
        }
    }
    Ok(())
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
