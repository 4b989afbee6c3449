//! perftest of its repository, which has what Debian's lacks: `--data_validation` checks every byte, and its READs have
//! to be in memory before the result of an atomic operation that follows them. `TESTS_PERFTEST` names the folder with
//! its programs.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::perftest::{Rows, Run, judge};
use crate::process::Process;
use crate::sandbox::{Device, RELIABLE, Sandbox, free_port, of_sources, wait_for_listener};
use crate::table::Row;

/// The folder of the programs.
const FOLDER: &str = "TESTS_PERFTEST";
const BYTES: u64 = 65536;
const ITERATIONS: u64 = 300;
/// What each end says of the data that it has received.
const VALID: &str = "VALIDATION: PASSED";

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row {
        application: "perftest of its repository",
        package: "=6.29",
        command: "ib_{read,write}_bw --data_validation",
        checked: "every byte, by the tool; a READ's before the result of an atomic operation after it",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "perftest of its repository",
        package: "=6.29",
        command: "ib_{send,write}_bw -c XRC",
        checked: "the report has each iteration, and numbers that can be",
        network: "shm and udp, 0 and 1 %",
    },
];

/// All tests of that version, in the long form.
pub fn trials() -> Vec<Trial> {
    let runs = [
        ("ib_read_bw", "RC", "--data_validation"),
        ("ib_write_bw", "RC", "--data_validation"),
        ("ib_send_bw", "XRC", ""),
        ("ib_write_bw", "XRC", ""),
    ];
    let of = |(tool, service, option)| {
        let name = format!("perftest of its repository: {tool} -c {service} {option}");
        of_sources(FOLDER, &name, &[], &RELIABLE, move |sandbox, folder, device| {
            both_ends(sandbox, &folder.join(tool), (tool, service, option), device)
        })
    };
    runs.into_iter().flat_map(of).collect()
}

fn both_ends(
    sandbox: &Sandbox,
    program: &Path,
    (tool, service, option): (&'static str, &'static str, &'static str),
    device: Device,
) -> Result<(), Failed> {
    let (port, iterations) = (free_port(), ITERATIONS.to_string());
    let command = |peer: Option<&str>| {
        let mut command = sandbox.command(program, device);
        command.args(["-F", "-c", service, "-n", &iterations, "-p", &port.to_string()]);
        command.args(option.split_whitespace()).args(peer);
        command
    };
    let mut server = Process::start(&mut command(None))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(&mut command(Some("127.0.0.1")))?;
    let [client, server] = Process::end_both([client, server], true)?;
    judge(&client, &server, Run { tool, service, args: option, rows: Rows::One(BYTES, ITERATIONS) })?;
    let validated = [&client, &server].into_iter().any(|end| end.stdout.contains(VALID) || end.stderr.contains(VALID));
    if option.is_empty() || validated { Ok(()) } else { Err(client.failed("nobody has validated the data")) }
}
