//! Crates of crates.io, with the programs that they bring: `sideway`, which loads librdmacm and libibverbs while it
//! runs, and `async-rdma`. Cargo installs them with the lock files of their authors, so that what has been yanked since
//! (hex-simd, without which async-rdma does not resolve) is still to be had.
//!
//! The builds are long: all of it belongs to the long form.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::crates::{CM_NEEDS, libclang};
use crate::process::{Ended, Process};
use crate::sandbox::{
    Device, Sandbox, all, free_port, isolated, missing, namespaces, skipped, wait_for_listener, wait_for_service,
};
use crate::table::Row;

/// A crate whose examples are installed.
struct Published {
    name: &'static str,
    version: &'static str,
    features: &'static str,
    installed: OnceLock<Result<PathBuf, String>>,
}

static SIDEWAY: Published = Published { name: "sideway", version: "0.4.3", features: "", installed: OnceLock::new() };
static ASYNC_RDMA: Published =
    Published { name: "async-rdma", version: "0.5.0", features: "cm,raw", installed: OnceLock::new() };

/// What docs/applications.md says of them.
pub const ROWS: &[Row] = &[
    row(
        "=0.4.3",
        "crate sideway",
        "cmtime -c 20",
        "20 connections made and ended, the time of each step in the report",
    ),
    row("=0.4.3", "crate sideway", "rc_pingpong, rc_pingpong_split", "both ends report each exchange"),
    row("=0.5.0", "crate async-rdma", "cm_server, cm_client", "16 bytes there and back"),
    row("=0.5.0", "crate async-rdma", "rpc", "requests and answers, by SEND and by WRITE and READ"),
];

const fn row(version: &'static str, application: &'static str, command: &'static str, checked: &'static str) -> Row {
    Row { application, package: version, command, checked, network: "shm and udp, 0 and 1 %" }
}

/// All tests of published crates.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    if !all() {
        return trials;
    }
    for port in ["shm", "udp"] {
        for (loss, impair) in [("no loss", ""), ("1 % loss", "loss 1%")] {
            let device = Device { transport: "", impair, port };
            let mut add = |of: &'static Published, program: &str, test: fn(&Sandbox, &Path, Device) -> _| {
                trials.push(trial(of, format!("{program} of {} ({port}, {loss})", of.name), device, test));
            };
            add(&SIDEWAY, "cmtime", cmtime);
            add(&SIDEWAY, "rc_pingpong", |sandbox, programs, device| {
                pingpong(sandbox, &programs.join("rc_pingpong"), device)
            });
            add(&SIDEWAY, "rc_pingpong_split", |sandbox, programs, device| {
                pingpong(sandbox, &programs.join("rc_pingpong_split"), device)
            });
            add(&ASYNC_RDMA, "cm_client", cm_client);
            add(&ASYNC_RDMA, "rpc", rpc);
        }
    }
    trials
}

fn trial(
    of: &'static Published,
    what: String,
    device: Device,
    test: fn(&Sandbox, &Path, Device) -> Result<(), Failed>,
) -> Trial {
    let name = format!("published: {what}");
    if let Some(why) = missing(&[&CM_NEEDS[..], &["/usr/bin/make"]].concat()) {
        return skipped(name, &why);
    }
    if !libclang() {
        return skipped(name, "there is no libclang");
    }
    // async-rdma's programs have fixed ports.
    if !namespaces() {
        return skipped(name, "there are no network namespaces");
    }
    Trial::test(name.clone(), move || match of.installed.get_or_init(|| install(of)) {
        Ok(programs) => isolated(name, move |sandbox| test(sandbox, programs, device)),
        Err(why) => {
            irnic_testkit::skipped(&format!("{name}: {why}"));
            Ok(())
        }
    })
}

/// Installs a crate's examples where cargo builds, unless that was done before. Returns the folder of the programs, or
/// why they are not to be had: the crate cannot be fetched, or is too old for the compiler.
fn install(of: &Published) -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("published").join(format!("{}-{}", of.name, of.version));
    let programs = home.join("bin");
    if programs.is_dir() {
        return Ok(programs);
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["install", of.name, "--version", of.version, "--locked", "--examples", "--debug", "--jobs=2"]);
    cargo.args(["--features", of.features]).arg("--root").arg(&home).arg("--target-dir").arg(home.join("target"));
    let output = cargo.stdin(Stdio::null()).output().map_err(|e| format!("{cargo:?}: {e}"))?;
    // Some hundreds of megabytes that nothing needs any more.
    let _ = std::fs::remove_dir_all(home.join("target"));
    if output.status.success() {
        return Ok(programs);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.starts_with("error")).unwrap_or("it cannot be installed");
    Err(format!("{}: {line}", of.name))
}

/// Ends both, of which each has to succeed.
fn both(server: Process, client: Process) -> Result<[Ended; 2], Failed> {
    let [client, server] = [client.end()?, server.end()?];
    if client.status.success() && server.status.success() {
        return Ok([server, client]);
    }
    Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into())
}

fn cmtime(sandbox: &Sandbox, programs: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port().to_string();
    let start = |more: &[&str]| {
        Process::start(sandbox.command(programs.join("cmtime"), device).args(["-c", "20", "-p", &port]).args(more))
    };
    let mut server = start(&[])?;
    wait_for_service(&mut server)?;
    let ended = both(server, start(&["-s", "127.0.0.1"])?)?;
    let steps = ["CreateId", "ResolveAddr", "ResolveRoute", "CreateQueuePair", "Connect", "Disconnect"];
    let [_, client] = &ended;
    if steps.iter().all(|step| client.stdout.contains(step)) && !ended.iter().any(|end| end.stdout.contains("error")) {
        return Ok(());
    }
    Err(client.failed("a step is missing"))
}

fn pingpong(sandbox: &Sandbox, program: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port();
    let start = |more: &[&str]| {
        let mut command = sandbox.command(program, device);
        command.args(["-n", "200", "-s", "20000", "-p", &port.to_string()]).args(more);
        Process::start(&mut command)
    };
    let mut server = start(&[])?;
    wait_for_listener(&mut server, port)?;
    for end in both(server, start(&["127.0.0.1"])?)? {
        // Twice 200 messages.
        if !end.stdout.contains("8000000 bytes in ") || !end.stdout.contains("200 iters in ") {
            return Err(end.failed("it reports something else"));
        }
    }
    Ok(())
}

fn cm_client(sandbox: &Sandbox, programs: &Path, device: Device) -> Result<(), Failed> {
    let mut server = Process::start(&mut sandbox.command(programs.join("cm_server"), device))?;
    wait_for_service(&mut server)?;
    let mut client = sandbox.command(programs.join("cm_client"), device);
    let bytes = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]";
    let [server, client] = both(server, Process::start(client.args(["127.0.0.1", "7471"]))?)?;
    if !server.stdout.contains(&format!("recv : {bytes}")) || server.stdout.contains("error") {
        return Err(server.failed("it received something else"));
    }
    if !client.stdout.contains(&format!("recv: {bytes}")) {
        return Err(client.failed("it received something else"));
    }
    Ok(())
}

fn rpc(sandbox: &Sandbox, programs: &Path, device: Device) -> Result<(), Failed> {
    let end = Process::start(&mut sandbox.command(programs.join("rpc"), device))?.succeed()?;
    let answers = ["request: hello", "response: hello", "request: world", "response: world"];
    if answers.iter().all(|answer| end.stdout.contains(answer)) {
        Ok(())
    } else {
        Err(end.failed("an answer is missing"))
    }
}
