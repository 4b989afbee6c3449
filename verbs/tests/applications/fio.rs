//! fio's rdma engine: a client's RDMA WRITEs, READs and SENDs; what is sent is verified by the server.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::process::Process;
use crate::sandbox::{Device, RELIABLE, Sandbox, all, free_port, installed, trial, wait_for_service};

/// The engine is a module of fio in some distributions; Debian's has it built in.
const FIO: &str = "/usr/bin/fio";

/// How a run ends.
#[derive(Copy, Clone, PartialEq)]
enum Check {
    /// The client moves every byte; only SENDs reach the server's own buffers, so nothing compares them.
    Count,
    /// The server computes the checksum of each block.
    Verify,
    /// The server expects another kind of checksum, and has to say so: otherwise it verifies nothing.
    Mismatch,
}

#[derive(Copy, Clone)]
struct Run {
    verb: &'static str,
    check: Check,
    size: u32,
    /// Part of the short form.
    short: bool,
}

const RUNS: &[Run] = &[
    Run { verb: "write", check: Check::Count, size: 65536, short: true },
    Run { verb: "read", check: Check::Count, size: 65536, short: true },
    Run { verb: "send", check: Check::Verify, size: 65536, short: true },
    Run { verb: "send", check: Check::Mismatch, size: 65536, short: true },
    Run { verb: "write", check: Check::Count, size: 4096, short: false },
    Run { verb: "read", check: Check::Count, size: 4096, short: false },
    Run { verb: "send", check: Check::Verify, size: 4096, short: false },
];

/// Blocks of a run. The server posts receive requests for all of them at once: fio connects without RNR retries, so
/// that a client that is faster fails on any NIC.
const BLOCKS: u32 = 64;

/// All tests of fio.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (network, device) in RELIABLE {
        let plain = device.transport == "irn";
        for run in RUNS.iter().filter(|run| all() || run.short && plain) {
            let what = match run.check {
                Check::Count => "",
                Check::Verify => ", verified",
                Check::Mismatch => ", verified against what was not sent",
            };
            let name = format!("fio: {} of {} bytes{what} ({network})", run.verb, run.size);
            trials.push(trial(name, &[FIO], move |sandbox| transfer(sandbox, *run, device)));
        }
    }
    trials
}

fn fio(sandbox: &Sandbox, run: Run, device: Device, port: u16) -> Result<Command, Failed> {
    let mut command = sandbox.command(installed("fio")?, device);
    // Its job is a thread, not a process, which would outlive it.
    command.args(["--ioengine=rdma", "--output-format=terse", "--terse-version=3", "--thread"]);
    command.args([format!("--port={port}"), format!("--bs={}", run.size), format!("--size={}", run.size * BLOCKS)]);
    Ok(command)
}

fn transfer(sandbox: &Sandbox, run: Run, device: Device) -> Result<(), Failed> {
    let port = free_port();
    let mut server = fio(sandbox, run, device, port)?;
    server.args(["--name=server", "--rw=read", &format!("--iodepth={BLOCKS}")]);
    match run.check {
        Check::Count => {}
        Check::Verify => drop(server.arg("--verify=crc32c")),
        Check::Mismatch => drop(server.arg("--verify=md5")),
    }
    let mut server = Process::start(&mut server)?;
    wait_for_service(&mut server)?;
    let mut client = fio(sandbox, run, device, port)?;
    client.args(["--name=client", "--hostname=127.0.0.1", "--rw=write", "--iodepth=8"]);
    client.arg(format!("--verb={}", run.verb));
    if run.check != Check::Count {
        client.args(["--verify=crc32c", "--do_verify=0"]);
    }
    let mut client = Process::start(&mut client)?;
    // The server of SENDs ends when it has all and takes its last acknowledgement with it. If that is lost, nobody is
    // there to repeat it, and the client never ends.
    let lossy = !device.impair.is_empty();
    let alone = |client: &Process| lossy && run.verb == "send" && client.text().contains(UNANSWERED);
    let start = Instant::now();
    while client.runs() && !alone(&client) && start.elapsed() < irnic_testkit::wait::HANG {
        thread::sleep(Duration::from_millis(2));
    }
    let client = if alone(&client) { None } else { Some(client.end()?.succeed()?) };
    let server = server.end()?;
    if run.check == Check::Mismatch {
        let reported = server.stderr.contains("verify failed") && !server.status.success();
        return if reported { Ok(()) } else { Err(server.failed("it verifies nothing")) };
    }
    let server = server.succeed()?;
    let total = u64::from(run.size * BLOCKS / 1024);
    // What a client writes counts as written whatever the verb; the server counts what it receives.
    if let Some(client) = client.filter(|client| field(&client.stdout, WRITTEN) != Some(total)) {
        return Err(client.failed(&format!("it should move {total} KiB")));
    }
    if run.verb == "send" && field(&server.stdout, READ) != Some(total) {
        return Err(server.failed(&format!("it should get {total} KiB")));
    }
    Ok(())
}

/// What a client says whose last SENDs nobody acknowledges.
const UNANSWERED: &str = "cq completion status 12(transport retry counter exceeded)";

/// Fields of fio's terse output, version 3 (HOWTO, "Terse output"): KiB in all.
const READ: usize = 5;
const WRITTEN: usize = 46;

fn field(terse: &str, index: usize) -> Option<u64> {
    let line = terse.lines().find(|line| line.starts_with("3;"))?;
    line.split(';').nth(index)?.parse().ok()
}
