//! QEMU: a virtual machine that moves to another QEMU by RDMA while it runs.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::process::Process;
use crate::sandbox::{Device, RELIABLE, Sandbox, all, free_port, isolated, missing, skipped, wait_for_service};

/// What the guest does: it counts, as long as 4 MiB of random bytes in its memory stay as they were. The kernel's
/// command line has no quotation marks within others.
const COUNT: &str = "mount -t devtmpfs devtmpfs /dev; exec >/dev/console 2>&1; head -c 4194304 /dev/urandom >/file; \
                     set -- $(md5sum </file); s=$1; i=0; while set -- $(md5sum </file); [ $1 = $s ]; do i=$((i+1)); \
                     echo COUNT $i .; usleep 50000; done; echo SPOILT";

/// All tests of QEMU.
pub fn trials() -> Vec<Trial> {
    if !all() {
        return Vec::new();
    }
    let mut trials = Vec::new();
    for (network, device) in RELIABLE {
        for pinned in [false, true] {
            let how = if pinned { "all memory registered at once" } else { "memory registered in chunks" };
            let name = format!("qemu: live migration, {how} ({network})");
            trials.push(match missing(&["/usr/bin/apt-get", "/usr/bin/cc"]) {
                Some(why) => skipped(name, &why),
                None => Trial::test(name.clone(), move || match image() {
                    Ok(image) => isolated(name, move |sandbox| migrate(sandbox, image, device, pinned)),
                    Err(why) => {
                        irnic_testkit::skipped(&format!("{name}: {}", why.lines().next().unwrap_or_default()));
                        Ok(())
                    }
                }),
            });
        }
    }
    trials
}

/// QEMU, a kernel and a file system that tools/rxe/image.sh makes, without installing anything. Not in a test's
/// namespace: packages may have to be fetched.
fn image() -> Result<&'static Path, String> {
    static IMAGE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || {
        let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rxe-image");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/rxe/image.sh");
        let made = Command::new(script).arg(&image).stdin(Stdio::null()).output();
        let made = made.map_err(|e| format!("{script}: {e}"))?;
        if made.status.success() { Ok(image) } else { Err(String::from_utf8_lossy(&made.stderr).into_owned()) }
    };
    IMAGE.get_or_init(make).as_deref().map_err(Clone::clone)
}

/// One QEMU.
struct Machine {
    qemu: Process,
    monitor: BufReader<UnixStream>,
    console: PathBuf,
}

impl Machine {
    fn start(
        sandbox: &Sandbox,
        image: &Path,
        device: Device,
        name: &str,
        incoming: Option<&str>,
    ) -> Result<Machine, Failed> {
        let prefix = image.join("prefix");
        let unpacked = prefix.join("usr/bin/qemu-system-x86_64");
        let program = if unpacked.exists() { unpacked } else { "/usr/bin/qemu-system-x86_64".into() };
        let mut command = sandbox.command(program, device);
        let mut libraries = OsString::from(sandbox.libraries());
        for dir in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
            libraries.push(":");
            libraries.push(prefix.join(dir));
        }
        command.env("LD_LIBRARY_PATH", libraries);
        let [socket, console] = ["monitor", "console"].map(|what| sandbox.dir.path().join(format!("{name}-{what}")));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(prefix.join(firmware));
        }
        command.args(["-M", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "128"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", socket.display()));
        command.arg("-kernel").arg(image.join("vmlinux")).arg("-initrd").arg(image.join("initrd.cpio"));
        command.args(["-append", &format!("console=ttyS0 quiet panic=-1 rdinit=/bin/busybox -- sh -c \"{COUNT}\"")]);
        if let Some(address) = incoming {
            command.args(["-incoming", address]);
        }
        let mut qemu = Process::start(&mut command)?;
        let monitor = connect(&mut qemu, &socket)?;
        let mut machine = Machine { qemu, monitor, console };
        let mut greeting = String::new();
        machine.monitor.read_line(&mut greeting)?;
        machine.execute("qmp_capabilities", json!({}))?;
        Ok(machine)
    }

    /// Executes a command of QMP; returns what it returns.
    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, Failed> {
        writeln!(self.monitor.get_mut(), "{}", json!({ "execute": command, "arguments": arguments }))?;
        loop {
            let mut line = String::new();
            if self.monitor.read_line(&mut line)? == 0 {
                return Err(format!("{command}: QEMU has ended: {}", self.qemu.text()).into());
            }
            let mut answer: Value = serde_json::from_str(&line)?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if answer.get("event").is_none() {
                return Err(format!("{command}: {answer}").into());
            }
        }
    }

    /// How far the guest has counted where this QEMU shows it.
    fn counted(&self) -> Result<Option<u64>, Failed> {
        let text = String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned();
        if text.contains("SPOILT") || text.contains("Kernel panic") {
            return Err(format!("the guest has come to harm: {text}").into());
        }
        // A line that is complete ends with a dot.
        let numbers =
            text.lines().filter_map(|line| line.trim().strip_prefix("COUNT ")?.strip_suffix(" .")?.parse().ok());
        Ok(numbers.max())
    }

    fn wait_for_count(&mut self, least: u64) -> Result<u64, Failed> {
        let start = Instant::now();
        loop {
            match self.counted()? {
                Some(count) if count >= least => return Ok(count),
                _ if start.elapsed() > irnic_testkit::wait::HANG || !self.qemu.runs() => {
                    let console = fs::read(&self.console).unwrap_or_default();
                    let text = String::from_utf8_lossy(&console);
                    return Err(format!("the guest does not count to {least}: {text}\n{}", self.qemu.text()).into());
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

fn connect(qemu: &mut Process, socket: &Path) -> Result<BufReader<UnixStream>, Failed> {
    let start = Instant::now();
    while start.elapsed() < irnic_testkit::wait::HANG && qemu.runs() {
        if let Ok(stream) = UnixStream::connect(socket) {
            stream.set_read_timeout(Some(irnic_testkit::wait::HANG))?;
            return Ok(BufReader::new(stream));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(format!("QEMU has no monitor: {}", qemu.text()).into())
}

fn migrate(sandbox: &Sandbox, image: &Path, device: Device, pinned: bool) -> Result<(), Failed> {
    let address = format!("rdma:127.0.0.1:{}", free_port());
    let mut from = Machine::start(sandbox, image, device, "from", None)?;
    let mut to = Machine::start(sandbox, image, device, "to", Some("defer"))?;
    for machine in [&mut from, &mut to] {
        let capabilities = json!([{ "capability": "rdma-pin-all", "state": pinned }]);
        machine.execute("migrate-set-capabilities", json!({ "capabilities": capabilities }))?;
    }
    to.execute("migrate-incoming", json!({ "uri": address }))?;
    wait_for_service(&mut to.qemu)?;
    from.wait_for_count(3)?;
    from.execute("migrate", json!({ "uri": address }))?;
    let start = Instant::now();
    let migration = loop {
        let migration = from.execute("query-migrate", json!({}))?;
        match migration["status"].as_str() {
            Some("completed") => break migration,
            Some("failed" | "cancelled") => {
                return Err(format!("{migration}\n{}\n{}", from.qemu.text(), to.qemu.text()).into());
            }
            _ if start.elapsed() > irnic_testkit::wait::HANG => return Err(format!("no end: {migration}").into()),
            _ => thread::sleep(Duration::from_millis(50)),
        }
    };
    // The random bytes alone are 1024 pages that cannot be told by their only byte.
    if migration["ram"]["normal"].as_u64().is_none_or(|pages| pages < 1024) {
        return Err(format!("fewer pages than the guest has filled: {migration}").into());
    }
    let left_at = from.counted()?.ok_or("the guest did not count")?;
    // The guest goes on where it was, and only there.
    let arrived_at = to.wait_for_count(left_at + 10)?;
    let status = from.execute("query-status", json!({}))?;
    if status["status"] != "postmigrate" || from.counted()? != Some(left_at) {
        return Err(format!("the source goes on: {status}").into());
    }
    let first = fs::read_to_string(&to.console)?;
    let first =
        first.lines().find_map(|line| line.trim().strip_prefix("COUNT ")?.strip_suffix(" .")?.parse::<u64>().ok());
    if first.is_none_or(|first| first > left_at + 2) {
        return Err(format!("the guest left at {left_at} and arrived at {first:?}, now {arrived_at}").into());
    }
    Ok(())
}
