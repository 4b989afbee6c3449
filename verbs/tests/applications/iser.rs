//! iSER: tgt serves a disk, libiscsi writes an image to it and reads it back.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use irnic_testkit::retry;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, trial, wait_for_service};
use crate::table::Row;

const TGTD: &str = "/usr/sbin/tgtd";
const TGTADM: &str = "/usr/sbin/tgtadm";
const NEEDS: [&str; 5] = [TGTD, TGTADM, "/usr/bin/iscsi-inq", "/usr/bin/cc", "/usr/include/iscsi/iscsi.h"];

const TARGET: &str = "iqn.2026-11.org.irnic:disk";
/// tgt 1.0.85 lets nobody log in by iSER whose name is not on the target's list.
const INITIATOR: &str = "iqn.2026-11.org.irnic:initiator";

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[Row {
    application: "tgt, and libiscsi 1.19",
    package: "tgt",
    command: "tgtd --iser port=…; iscsi-inq iser://…; iscsi_{write16,read16}_sync",
    checked: "8 MB written and read back in transfers of 512 B to 256 KB; the target's file is the image",
    network: "shm and udp, 0 and 1 %",
}];

/// All tests of iSER.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (port, lossy) in [("shm", false), ("udp", true), ("udp", false), ("shm", true)] {
        let device = Device { transport: "irn", impair: if lossy { "loss 1%" } else { "" }, port };
        if all() || (port, lossy) == ("shm", false) {
            let name = format!("iser: tgt's disk and back ({port}, {})", if lossy { "1 % loss" } else { "no loss" });
            trials.push(trial(name, &NEEDS, move |sandbox| write_and_read(sandbox, device, 8 << 20)));
        }
    }
    trials
}

/// A tgtd with one disk, in a file.
struct Target {
    daemon: Process,
    port: u16,
    disk: PathBuf,
}

impl Target {
    fn start(sandbox: &Sandbox, device: Device, bytes: usize) -> Result<Target, Failed> {
        // tgt keeps it in a short, and listens on none above 32767.
        let port = free_port() / 2;
        let disk = sandbox.dir.path().join("disk");
        fs::write(&disk, vec![0; bytes])?;
        let mut daemon = sandbox.command(TGTD, device);
        // Without a pool of its own size it takes a gigabyte.
        daemon.args(["--foreground", "--control-port", "77", "--iser", &format!("port={port},pool_sz_mb=32")]);
        let control = sandbox.dir.path().join("tgt");
        let daemon = Process::start(daemon.env("TGT_IPC_SOCKET", &control))?;
        let mut target = Target { daemon, port, disk };
        // The socket's name has the control port in it.
        target.daemon.await_condition("it takes commands", |_| control.with_extension("77").exists())?;
        target.administer(sandbox, &format!("target --op new --tid 1 --targetname {TARGET}"))?;
        let disk = target.disk.display().to_string();
        target.administer(sandbox, &format!("logicalunit --op new --tid 1 --lun 1 --backing-store {disk}"))?;
        target.administer(sandbox, "target --op bind --tid 1 --initiator-address ALL")?;
        target.administer(sandbox, &format!("target --op bind --tid 1 --initiator-name {INITIATOR}"))?;
        // It listens from the first target on.
        wait_for_service(&mut target.daemon)?;
        Ok(target)
    }

    fn administer(&mut self, sandbox: &Sandbox, arguments: &str) -> Result<(), Failed> {
        let mut command = Command::new(TGTADM);
        command.env("TGT_IPC_SOCKET", sandbox.dir.path().join("tgt"));
        command.args(["--control-port", "77", "--lld", "iser", "--mode"]).args(arguments.split(' '));
        let ended = Process::start(&mut command)?.end()?;
        if ended.status.success() {
            return Ok(());
        }
        Err(ended.failed(&self.daemon.text()))
    }

    /// Runs an initiator, which has to succeed.
    ///
    /// tgt is ready for commands when its last login response counts as sent. If the acknowledgement of that is lost,
    /// the initiator's first command is there before, and tgt ends the connection (iser_rx_handler_non_ff, 1.0.85), on
    /// any NIC. The initiator is run again then.
    fn initiate(&self, test: &str, command: impl Fn() -> Result<Command, Failed>) -> Result<Ended, Failed> {
        let [ended] = retry::attempts(test, || {
            let before = self.daemon.text().len();
            let ended = Process::start(&mut command()?)?.end()?;
            if ended.status.success() {
                return Ok([ended]);
            }
            let said = self.daemon.text();
            Err(ended.failed(said.get(before..).unwrap_or(&said)))
        })?;
        Ok(ended)
    }

    fn url(&self) -> String {
        format!("iser://127.0.0.1:{}/{TARGET}/1", self.port)
    }
}

/// The initiator, compiled.
fn initiator(sandbox: &Sandbox) -> Result<PathBuf, Failed> {
    let program = sandbox.dir.path().join("iser");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/iser.c");
    let mut cc = Command::new("/usr/bin/cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O2", source, "-o"]).arg(&program);
    Process::start(cc.arg("-liscsi"))?.succeed()?;
    Ok(program)
}

fn write_and_read(sandbox: &Sandbox, device: Device, bytes: usize) -> Result<(), Failed> {
    let program = initiator(sandbox)?;
    let target = Target::start(sandbox, device, bytes)?;
    let image: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let [from, to] = ["image", "copy"].map(|name| sandbox.dir.path().join(name));
    fs::write(&from, &image)?;
    // A program of libiscsi's own first.
    let inquiry = target.initiate(&sandbox.test, || {
        let mut inquiry = sandbox.command(installed("iscsi-inq")?, device);
        inquiry.args(["--initiator-name", INITIATOR, &target.url()]);
        Ok(inquiry)
    })?;
    if !inquiry.stdout.contains("DIRECT_ACCESS") {
        return Err(inquiry.failed("no disk"));
    }
    target.initiate(&sandbox.test, || {
        let mut client = sandbox.command(&program, device);
        client.args([&target.url(), INITIATOR]).args([&from, &to]);
        Ok(client)
    })?;
    if fs::read(&to)? != image {
        return Err("what was read is not what was written".into());
    }
    if fs::read(&target.disk)? != image {
        return Err("the target's file is not what was written".into());
    }
    Ok(())
}
