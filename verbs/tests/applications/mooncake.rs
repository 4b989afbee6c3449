//! Mooncake's Transfer Engine, which moves key-value caches of language models: `transfer_engine_bench` of its wheel,
//! one batch of eight blocks of 64 KiB after another, read from the target and written to it.
//!
//! The initiator has three threads that spin: one submits and waits, one posts, one polls. On two cores that is one too
//! many.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, isolated, missing, skipped};
use crate::table::Row;

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[Row {
    application: "Mooncake of PyPI, its transfer engine",
    package: "=0.3.13.post1",
    command: "transfer_engine_bench -protocol=rdma -operation={read,write}",
    checked: "batches without an error; the NIC moved their bytes",
    network: "shm and udp, 0 and 1 %",
}];

const WHEEL: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";
const NEEDS: [&str; 2] = ["/usr/bin/python3", "/usr/bin/ldd"];
const OPERATIONS: [&str; 2] = ["read", "write"];
/// Blocks of a batch, and bytes of a block.
const BATCH: (u64, u64) = (8, 65536);
/// clock_nanosleep(2) on x86-64, for which alone the wheel is: what a target does when all is set up.
const SLEEPS: &str = "230 ";

/// All tests of Mooncake.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for port in ["shm", "udp"] {
        for (network, impair) in [("no loss", ""), ("1 % loss", "loss 1%")] {
            let name = format!("mooncake: transfer_engine_bench ({port}, {network})");
            trials.push(trial(name, Device { transport: "", impair, port }));
        }
    }
    trials
}

fn trial(name: String, device: Device) -> Trial {
    if let Some(why) = missing(&NEEDS) {
        return skipped(name, &why);
    }
    Trial::test(name.clone(), move || match program() {
        Ok(program) => isolated(name, move |sandbox| transfers(sandbox, program, device)),
        Err(why) => {
            irnic_testkit::skipped(&format!("{name}: {why}"));
            Ok(())
        }
    })
}

/// The program, or why it is not to be had; found out once.
fn program() -> Result<&'static Path, &'static str> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(fetch).as_deref().map_err(String::as_str)
}

/// Fetches and unpacks the wheel, unless that was done before: it is kept with what cargo builds.
fn fetch() -> Result<PathBuf, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err(format!("{WHEEL} is for x86-64 only"));
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels").join(WHEEL);
    let program = home.join("mooncake/transfer_engine_bench");
    if !home.is_dir() {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]);
        pip.args(["--platform=manylinux_2_28_x86_64", "--retries=1", "--dest"]).arg(place.path()).arg(WHEEL);
        said(&mut pip)?;
        let mut files = fs::read_dir(place.path()).map_err(|e| e.to_string())?.flatten();
        let file = files.next().ok_or("no wheel was fetched")?.path();
        let unpacked = place.path().join("unpacked");
        said(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(file).arg(&unpacked))?;
        fs::create_dir_all(home.parent().ok_or("no folder")?).map_err(|e| e.to_string())?;
        // Another test process may have been first: then its files serve.
        let _ = fs::rename(&unpacked, &home);
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    let libraries = said(Command::new("/usr/bin/ldd").arg(&program))?;
    match libraries.lines().find(|line| line.contains("not found")) {
        Some(line) => Err(line.trim().to_owned()),
        None => Ok(program),
    }
}

/// What a command prints, or complains of last.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr).lines().last().unwrap_or_default().to_owned()),
    }
}

fn transfers(sandbox: &Sandbox, program: &Path, device: Device) -> Result<(), Failed> {
    let command = |mode: &str| {
        let mut command = sandbox.command(program, device);
        command.arg(format!("-mode={mode}")).args(["-metadata_server=P2PHANDSHAKE", "-protocol=rdma", "-threads=1"]);
        command.args(["-device_name=irnic0", "-local_server_name=127.0.0.1", "-buffer_size=16777216"]);
        command.args([format!("-batch_size={}", BATCH.0), format!("-block_size={}", BATCH.1)]);
        command
    };
    let mut target = Process::start(&mut command("target"))?;
    let segment = segment(&mut target)?;
    for operation in OPERATIONS {
        let stats = sandbox.dir.path().join(operation);
        let mut command = command("initiator");
        command.args([format!("-segment_id={segment}"), format!("-operation={operation}"), "-duration=1".into()]);
        let end = Process::start(command.env("IRNIC_STATS", &stats))?.succeed()?;
        let stats = fs::read_to_string(&stats).map_err(|e| format!("no statistics: {e}"))?;
        if !has_moved(&end, operation, &stats) {
            return Err(end.failed("it did not transfer what it says"));
        }
    }
    target.signal(libc::SIGTERM);
    target.succeed()?;
    Ok(())
}

/// Waits until a target has registered its memory. Returns where it listens.
fn segment(target: &mut Process) -> Result<String, Failed> {
    let listens = |target: &Process| {
        let text = target.text();
        let call = fs::read_to_string(format!("/proc/{}/syscall", target.child.id())).unwrap_or_default();
        let (_, rest) = text.split_once("listening on ")?;
        let ready = text.contains("DRAM is used") && call.starts_with(SLEEPS);
        ready.then(|| rest.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let mut segment = None;
    target.await_condition("it has registered its memory", |target| {
        segment = listens(target);
        segment.is_some()
    })?;
    Ok(segment.unwrap_or_default())
}

/// Whether batches were transferred, no error was logged, and the NIC has moved the bytes of as many batches.
fn has_moved(end: &Ended, operation: &str, stats: &str) -> bool {
    let batches = number(&end.stderr, "batch count ");
    let bytes = number(stats, if operation == "read" { "\"rcvd_bytes\": " } else { "\"sent_bytes\": " });
    let failed = end.stderr.lines().any(|line| line.starts_with('E'));
    !failed && batches > 0 && bytes >= batches * BATCH.0 * BATCH.1
}

/// The number behind the first `key`; 0 if there is none.
fn number(text: &str, key: &str) -> u64 {
    let digits = text.split_once(key).map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits.flatten().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
