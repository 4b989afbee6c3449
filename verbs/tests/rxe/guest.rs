//! The driver's side: a virtual machine, and scripts that run in it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::case::{Case, Device};
use crate::connecting::Ready;
use crate::host::{Host, Outcome, PATIENCE};
use crate::namespace;

pub const IPV4: &str = "10.78.0.11";
pub const IPV6: &str = "fd77::11";
/// Where the guest's `serve` listens.
const CONTROL: u16 = 2323;
/// What cases say of a guest that no longer answers.
pub const SILENT: &str = "the guest does not answer";
/// How long booting may take: four seconds on an idle host.
const BOOT: Duration = Duration::from_secs(120);

/// A running virtual machine.
pub struct Guest {
    qemu: Child,
    /// Of the driver's device.
    gids: Vec<Ipv6Addr>,
}

/// A script that runs in the guest.
pub struct Session(TcpStream);

impl Guest {
    pub fn boot(host: &Host) -> Result<Guest, String> {
        let console = Guest::console(host);
        // That of a guest before would say that this one is ready.
        if let Err(e) = fs::remove_file(&console)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(format!("{}: {e}", console.display()));
        }
        let output = File::create(host.temporary("qemu-output")).map_err(|e| e.to_string())?;
        let mut command = host.command("qemu-system-x86_64");
        for firmware in ["prefix/usr/share/qemu", "prefix/usr/share/seabios"] {
            command.arg("-L").arg(host.file(firmware));
        }
        command.args(["-M", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "256"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-kernel").arg(host.file("vmlinux")).arg("-initrd").arg(host.file("initrd.cpio"));
        command
            .arg("-append")
            .arg(format!("console=ttyS0 quiet panic=-1 no_timer_check addr4={IPV4}/24 addr6={IPV6}/64 mtu=1500"));
        command.arg("-netdev").arg(format!("tap,id=n0,ifname={},script=no,downscript=no", namespace::DEVICE));
        // A hub joins the guest, the TAP device, and the socket on which irnic is a station.
        let [ours, irnics] = host.sockets();
        command.arg("-netdev").arg(format!(
            "dgram,id=n1,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            ours.display(),
            irnics.display()
        ));
        for port in ["id=h0,hubid=0,netdev=n0", "id=h1,hubid=0,netdev=n1", "id=h2,hubid=0"] {
            command.arg("-netdev").arg(format!("hubport,{port}"));
        }
        command.args(["-device", "virtio-net-pci,netdev=h2,mac=52:54:00:77:00:11,romfile="]);
        command.stdout(output.try_clone().map_err(|e| e.to_string())?).stderr(output).stdin(Stdio::null());
        // SAFETY: prctl is safe to call between fork and exec. The guest does not outlive this process, however it
        // ends.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let qemu = command.spawn().map_err(|e| format!("QEMU does not start: {e}"))?;
        let mut guest = Guest { qemu, gids: Vec::new() };
        guest.wait_until_ready(host)?;
        guest.gids = guest.gid_table()?;
        // For ibv_modify_qp the kernel asks for neighbours from its link-local address, and while that is tentative
        // (IFA_F_TENTATIVE, 0x40: for a second or two) not at all. 80: permanent, and nothing else.
        let usable = "grep -q \"^fe80.* 80 *eth0$\" /proc/net/if_inet6";
        guest.run(&format!("until {usable}; do usleep 20000; done"))?.success()?;
        // ibv_modify_qp does not wait long for a neighbour that is not known yet.
        for address in [namespace::IPV4, namespace::IPV6] {
            guest.run(&format!("until ping -c 1 -W 1 {address}; do :; done"))?.success()?;
        }
        Ok(guest)
    }

    /// What the guest's kernel says.
    pub fn console(host: &Host) -> PathBuf {
        host.temporary("console")
    }

    /// The driver fills it some time after it was loaded.
    fn gid_table(&self) -> Result<Vec<Ipv6Addr>, String> {
        let table = "/sys/class/infiniband/rxe0/ports/1/gids";
        let complete = format!("until grep -q {} {table}/[0-7]; do usleep 20000; done", written_out(IPV6)?);
        let script = format!("{complete}; for i in 0 1 2 3 4 5 6 7; do cat {table}/$i; done");
        Ok(self.run(&script)?.success()?.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    fn wait_until_ready(&mut self, host: &Host) -> Result<(), String> {
        let deadline = Instant::now() + BOOT;
        loop {
            let console = fs::read(Guest::console(host)).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            if console.contains("GUEST-READY") && !console.contains("GUEST-FAILED") {
                return Ok(());
            }
            let ended = self.qemu.try_wait().ok().flatten().is_some();
            if ended || console.contains("GUEST-FAILED") || Instant::now() > deadline {
                let output = fs::read_to_string(host.temporary("qemu-output")).unwrap_or_default();
                return Err(format!("the guest does not boot\n{console}\n{output}"));
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// The driver's device, and where its GID table has the address of `case`.
    pub fn device(&self, case: &Case) -> Result<Device, String> {
        let v4: std::net::Ipv4Addr = IPV4.parse().map_err(|e| format!("{e}"))?;
        let wanted = match case.is_over_ipv6() {
            true => IPV6.parse().map_err(|e| format!("{e}"))?,
            false => v4.to_ipv6_mapped(),
        };
        let index = self.gids.iter().position(|gid| *gid == wanted);
        let gid_index = index.ok_or_else(|| format!("rxe0 has no GID {wanted}: {:?}", self.gids))?;
        Ok(Device { name: "rxe0", gid_index })
    }

    /// Whether its kernel has panicked, which ends the emulator. Waits for that: what a program notices of it comes
    /// first.
    pub fn has_panicked(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if self.qemu.try_wait().ok().flatten().is_some() {
                return true;
            }
            sleep(Duration::from_millis(20));
        }
        false
    }

    /// Ends it, if it has not ended by itself.
    pub fn end(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }

    /// Has its kernel panic.
    pub fn panic(&mut self) -> Result<(), String> {
        // Nobody answers any more.
        let _ = self.start("sh -c 'echo c > /proc/sysrq-trigger'");
        if self.has_panicked(PATIENCE) { Ok(()) } else { Err("the guest's kernel does not panic".into()) }
    }

    /// Starts a script.
    pub fn start(&self, script: &str) -> Result<Session, String> {
        let address: SocketAddr = format!("{IPV4}:{CONTROL}").parse().map_err(|e| format!("{e}"))?;
        let begin = || {
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(10));
            let mut stream = connect().or_else(|e| match e.kind() {
                // The host may have begun to look for its address while a guest before was dead.
                io::ErrorKind::HostUnreachable => connect(),
                _ => Err(e),
            })?;
            stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(10)))?;
            write!(stream, "exec timeout -s KILL {} {script}\n__END__\n", PATIENCE.as_secs())?;
            Ok(stream)
        };
        begin().map(Session).map_err(|e: io::Error| format!("{SILENT}: {e}"))
    }

    /// Runs a command to its end.
    pub fn run(&self, command: &str) -> Result<Outcome, String> {
        self.start(&format!("sh -c '{command}'"))?.finish()
    }

    /// Until the server of a case is there.
    pub fn wait_for_server(&self, case: &Case, port: u16) -> Result<(), String> {
        match case.connecting.map(|program| program.ready) {
            None => self.wait_for_listener(port, true),
            Some(Ready::Listens) => self.wait_for_listener(port, false),
            // The driver has its interface take the group's frames when the queue pair is attached; their address has
            // the last four bytes of the group's GID (RFC 2464).
            Some(Ready::Joined(group)) => {
                let group: Ipv4Addr = group.parse().map_err(|e| format!("{group}: {e}"))?;
                self.wait_until(&format!("grep -q 3333{:08x} /proc/net/dev_mcast", u32::from(group)))
            }
        }
    }

    /// Until somebody listens to a port, by `tcp` or by rdma_cm.
    pub fn wait_for_listener(&self, port: u16, tcp: bool) -> Result<(), String> {
        match tcp {
            // Local address and state (0A: LISTEN) in /proc/net/tcp.
            true => self.wait_until(&format!("grep -q \":{port:04X} .* 0A \" /proc/net/tcp /proc/net/tcp6")),
            false => self.wait_until(&format!("rdma resource show cm_id | grep -q \"state LISTEN .*:{port} \"")),
        }
    }

    fn wait_until(&self, condition: &str) -> Result<(), String> {
        self.run(&format!("until {condition}; do usleep 20000; done"))?.success().map(drop)
    }

    /// The size of a file, in bytes: 0 if there is none.
    pub fn size_of(&self, file: &str) -> u64 {
        let said = self.run(&format!("cat {file} | wc -c")).map(|outcome| outcome.said);
        said.ok().and_then(|said| said.lines().last()?.trim().parse().ok()).unwrap_or(0)
    }

    /// Ends a program of the guest, if it runs.
    pub fn kill(&self, program: &str) {
        // If that fails the program's own timeout ends it.
        let _ = self.run(&format!("killall -9 {program}"));
    }
}

/// The guest's address in a case.
pub fn address(case: &Case) -> &'static str {
    if case.is_over_ipv6() { IPV6 } else { IPV4 }
}

/// An address as the driver's tables have it.
fn written_out(address: &str) -> Result<String, String> {
    let address: Ipv6Addr = address.parse().map_err(|e| format!("{address}: {e}"))?;
    Ok(address.segments().map(|s| format!("{s:04x}")).join(":"))
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

impl Session {
    /// Until the script ends.
    pub fn finish(mut self) -> Result<Outcome, String> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).map_err(|e| format!("{SILENT}: {e}"))?;
        let text = String::from_utf8_lossy(&bytes);
        let (said, status) = text.rsplit_once("__STATUS=").ok_or_else(|| format!("cut short: {text}"))?;
        let status = match status.trim() {
            "0" => Ok(()),
            other => Err(format!("exit status {other}")),
        };
        Ok(Outcome { status, said: said.to_owned() })
    }
}
