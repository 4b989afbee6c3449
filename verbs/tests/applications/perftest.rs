//! perftest: each tool over each service, with the options that reach different parts of the library.

use std::path::Path;

use irnic_testkit::retry;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, reliable, trial, wait_for_listener};

/// One run of a tool.
#[derive(Copy, Clone)]
pub struct Run {
    pub tool: &'static str,
    /// RC, UC or UD.
    pub service: &'static str,
    /// Further arguments, of both ends.
    pub args: &'static str,
    pub rows: Rows,
}

/// The rows that the report has to have.
#[derive(Copy, Clone)]
pub enum Rows {
    /// One row per power of two from 2 bytes to this many, of so many iterations.
    Sizes(u64, u64),
    /// One row of so many bytes and iterations.
    One(u64, u64),
    /// One row of so many bytes and as many iterations as there was time for.
    Timed(u64),
}

use Rows::{One, Sizes, Timed};

/// Tools, and for each of them arguments and what they lead to.
type Tools = &'static [(&'static str, &'static [(&'static str, Rows)])];

const MESSAGE: u64 = 65536;
const LARGEST: u64 = 1 << 23;

/// What goes over RC, whatever the network does.
const RC: Tools = &[
    (
        "ib_send_bw",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-e -n 200", One(MESSAGE, 200)),
            ("-q 8 -n 50", One(MESSAGE, 400)),
            ("-b -n 200", One(MESSAGE, 200)),
            ("-l 8 -n 200", One(MESSAGE, 200)),
            ("-I 64 -s 64 -n 2000", One(64, 2000)),
            ("--use-srq -n 200", One(MESSAGE, 200)),
            ("-q 4 --use-srq -n 50", One(MESSAGE, 200)),
            ("-D 1 -f 0", Timed(MESSAGE)),
        ],
    ),
    (
        "ib_write_bw",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-q 8 -n 50", One(MESSAGE, 400)),
            ("-b -n 200", One(MESSAGE, 200)),
            ("-l 8 -n 200", One(MESSAGE, 200)),
            ("-I 64 -s 64 -n 2000", One(64, 2000)),
            ("-D 1 -f 0", Timed(MESSAGE)),
        ],
    ),
    (
        "ib_read_bw",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-e -n 200", One(MESSAGE, 200)),
            ("-q 8 -n 50", One(MESSAGE, 400)),
            ("-b -n 200", One(MESSAGE, 200)),
            ("-l 8 -n 200", One(MESSAGE, 200)),
            ("-D 1 -f 0", Timed(MESSAGE)),
        ],
    ),
    (
        "ib_atomic_bw",
        &[
            ("-n 2000", One(8, 2000)),
            ("-A CMP_AND_SWAP -n 2000", One(8, 2000)),
            ("-e -n 1000", One(8, 1000)),
            ("-q 8 -n 200", One(8, 1600)),
            ("-b -n 1000", One(8, 1000)),
            ("-l 8 -n 1000", One(8, 1000)),
            ("-D 1 -f 0", Timed(8)),
        ],
    ),
    (
        "ib_send_lat",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-e -n 200", One(2, 200)),
            ("-I 64 -s 64 -n 200", One(64, 200)),
            ("--use-srq -n 200", One(2, 200)),
            ("-D 1 -f 0", Timed(2)),
        ],
    ),
    ("ib_write_lat", &[("-a -n 5", Sizes(LARGEST, 5)), ("-I 64 -s 64 -n 200", One(64, 200)), ("-D 1 -f 0", Timed(2))]),
    ("ib_read_lat", &[("-a -n 5", Sizes(LARGEST, 5)), ("-e -n 200", One(2, 200)), ("-D 1 -f 0", Timed(2))]),
    ("ib_atomic_lat", &[("-n 200", One(8, 200)), ("-e -n 200", One(8, 200)), ("-D 1 -f 0", Timed(8))]),
];

/// What goes over UC while the network loses nothing.
const UC: Tools = &[
    (
        "ib_send_bw",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-s 1048576 -n 200", One(1 << 20, 200)),
            ("-e -n 200", One(MESSAGE, 200)),
            ("-q 8 -n 50", One(MESSAGE, 400)),
            ("-b -n 200", One(MESSAGE, 200)),
            ("-l 8 -n 200", One(MESSAGE, 200)),
            ("-I 64 -s 64 -n 2000", One(64, 2000)),
            ("-D 1 -f 0", Timed(MESSAGE)),
        ],
    ),
    (
        "ib_write_bw",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-q 8 -n 50", One(MESSAGE, 400)),
            ("-b -n 200", One(MESSAGE, 200)),
            ("-l 8 -n 200", One(MESSAGE, 200)),
            ("-I 64 -s 64 -n 2000", One(64, 2000)),
            ("-D 1 -f 0", Timed(MESSAGE)),
        ],
    ),
    (
        "ib_send_lat",
        &[
            ("-a -n 5", Sizes(LARGEST, 5)),
            ("-e -n 200", One(2, 200)),
            ("-I 64 -s 64 -n 200", One(64, 200)),
            ("-D 1 -f 0", Timed(2)),
        ],
    ),
    ("ib_write_lat", &[("-a -n 5", Sizes(LARGEST, 5)), ("-I 64 -s 64 -n 200", One(64, 200)), ("-D 1 -f 0", Timed(2))]),
];

/// What goes over UD: a message is a packet.
const UD: Tools = &[
    (
        "ib_send_bw",
        &[
            ("-a -n 100", Sizes(4096, 100)),
            ("-s 1024 -e -n 1000", One(1024, 1000)),
            ("-s 1024 -q 8 -n 50", One(1024, 400)),
            ("-s 1024 -b -n 1000", One(1024, 1000)),
            ("-s 1024 -l 8 -n 1000", One(1024, 1000)),
            ("-I 64 -s 64 -n 1000", One(64, 1000)),
            ("-s 1024 --use-srq -n 400", One(1024, 400)),
            ("-s 1024 -D 1 -f 0", Timed(1024)),
        ],
    ),
    (
        "ib_send_lat",
        &[
            ("-a -n 100", Sizes(4096, 100)),
            ("-e -n 200", One(2, 200)),
            ("-I 64 -s 64 -n 200", One(64, 200)),
            ("--use-srq -n 200", One(2, 200)),
            ("-D 1 -f 0", Timed(2)),
        ],
    ),
];

/// All tests of perftest.
pub fn trials() -> Vec<Trial> {
    let clean = [("no loss", Device::default())];
    let mut trials = Vec::new();
    for (service, tools) in [("RC", RC), ("UC", UC), ("UD", UD)] {
        let rows = tools.iter().flat_map(|&(tool, runs)| runs.iter().map(move |run| (tool, run)));
        for (number, (tool, &(args, rows))) in rows.enumerate() {
            let program = format!("/usr/bin/{tool}");
            let run = Run { tool, service, args, rows };
            // All sizes each way; for latencies, perftest measures the processor's clock anew for each.
            let all_sizes = [("ib_send_bw", "RC"), ("ib_read_bw", "RC"), ("ib_send_bw", "UD")];
            if args.starts_with("-a") && !all_sizes.contains(&(tool, service)) && !all() {
                continue;
            }
            for &(network, device) in if service == "RC" { reliable(number) } else { &clean } {
                let name = format!("perftest: {tool} -c {service} {args} ({network})");
                trials.push(trial(name, &[&program], move |sandbox| both_ends(sandbox, run, device)));
            }
        }
    }
    trials
}

fn both_ends(sandbox: &Sandbox, run: Run, device: Device) -> Result<(), Failed> {
    let program = installed(run.tool)?;
    let [client, server] = retry::attempts(&sandbox.test, || start(sandbox, &program, run, device))?;
    judge(&client, &server, run)
}

fn start(sandbox: &Sandbox, program: &Path, run: Run, device: Device) -> Result<[Ended; 2], Failed> {
    let port = free_port();
    let command = |peer: Option<&str>| {
        let mut command = sandbox.command(program, device);
        command.args(["-F", "-c", run.service, "-p", &port.to_string()]).args(run.args.split(' ')).args(peer);
        command
    };
    let mut server = Process::start(&mut command(None))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(&mut command(Some("127.0.0.1")))?;
    Process::end_both([client, server], run.service == "RC")
}

/// Whether both ends succeeded, and the client reports what was asked for.
pub fn judge(client: &Ended, server: &Ended, run: Run) -> Result<(), Failed> {
    // With -R the last words go over a queue pair, too. Who ends first takes its last acknowledgement with it: if that
    // is lost, the other has the whole report and nobody to part from.
    let parted = |end: &Ended| {
        let text = "Failed to close connection between server and client";
        end.status.success() || end.stderr.contains(text) || end.stdout.contains(text)
    };
    let both = parted(client) && parted(server) && (client.status.success() || server.status.success());
    if !both {
        return Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into());
    }
    check(client, run)
}

/// The rows of the report: sizes, iterations, and numbers that can be.
fn check(client: &Ended, run: Run) -> Result<(), Failed> {
    let wrong = |why: String| Err(client.failed(&why));
    let lines = client.stdout.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).skip(1);
    let rows: Vec<Vec<f64>> = lines
        .map_while(|line| line.split_whitespace().map(|word| word.parse().ok()).collect())
        .filter(|row: &Vec<f64>| !row.is_empty())
        .collect();
    let expected: Vec<(u64, Option<u64>)> = match run.rows {
        Sizes(largest, iterations) => (1..=largest.ilog2()).map(|n| (1 << n, Some(iterations))).collect(),
        One(bytes, iterations) => vec![(bytes, Some(iterations))],
        Timed(bytes) => vec![(bytes, None)],
    };
    let found: Vec<u64> = rows.iter().map(|row| row[0] as u64).collect();
    if found != expected.iter().map(|e| e.0).collect::<Vec<_>>() {
        return wrong(format!("sizes {found:?} in the report"));
    }
    for (row, (_, iterations)) in rows.iter().zip(expected) {
        // Bandwidth: bytes, iterations, peak and average MiB/s, messages/us. Latency: bytes, iterations, least, most,
        // typical, average us, …; with -D bytes, iterations, average, transactions/s.
        let plausible = match row[..] {
            _ if iterations.is_some_and(|n| row[1] != n as f64) || row[1] < 1.0 => false,
            [_, _, _, average, rate] if run.tool.ends_with("bw") => {
                // Two decimals of small messages on a busy host are 0.00, six decimals of large ones too.
                (0.0..1e6).contains(&average) && (0.0..1e3).contains(&rate) && average + rate > 0.0
            }
            [_, _, least, most, typical, average, ..] if iterations.is_some() => {
                0.0 < least && least <= typical && typical <= most && least <= average && average <= most && most < 1e8
            }
            [_, _, average, rate] => 0.0 < average && average < 1e8 && rate > 0.0,
            _ => false,
        };
        if !plausible {
            return wrong(format!("a row that cannot be: {row:?}"));
        }
    }
    Ok(())
}
