//! Where an application runs: a network namespace of its own, with the library in place of libibverbs.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use irnic_testkit::wait::{self, Socket};
use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::process::Process;

/// How a device is made: the settings of both ends of a connection.
#[derive(Copy, Clone, Debug, Default)]
pub struct Device {
    /// The transport of RC queue pairs; empty: the default.
    pub transport: &'static str,
    /// What the emulated network does; empty: nothing.
    pub impair: &'static str,
    /// What carries packets; empty: the default.
    pub port: &'static str,
}

/// Transports and loss under which what is reliable has to work.
pub const RELIABLE: [(&str, Device); 4] = [
    ("irn", Device { transport: "irn", impair: "", port: "" }),
    ("irn, 1 % loss", Device { transport: "irn", impair: "loss 1%", port: "" }),
    ("roce", Device { transport: "roce", impair: "", port: "" }),
    ("roce, 1 % loss", Device { transport: "roce", impair: "loss 1%", port: "" }),
];

/// Those without loss.
pub const LOSSLESS: [(&str, Device); 2] = [RELIABLE[0], RELIABLE[2]];

/// A test's surroundings.
pub struct Sandbox {
    /// The test's name.
    pub test: String,
    /// For files of the test.
    pub dir: TempDir,
    libraries: PathBuf,
}

/// Whether a thread can have a network namespace of its own.
static NAMESPACES: OnceLock<bool> = OnceLock::new();

/// To be called while the process has one thread: without privileges, gets those that a user namespace gives.
pub fn prepare() {
    // SAFETY: these calls take no pointers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above.
    if uid != 0 && unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0 {
        for (file, text) in
            [("setgroups", "deny".into()), ("uid_map", format!("0 {uid} 1")), ("gid_map", format!("0 {gid} 1"))]
        {
            fs::write(Path::new("/proc/self").join(file), text).expect("a new user namespace takes its maps");
        }
    }
    let able = thread::spawn(|| isolate().is_ok()).join().expect("isolate does not panic");
    NAMESPACES.set(able).expect("prepare is called once");
    if !able {
        eprintln!("no network namespaces: the applications share this host's device with whatever else runs");
    }
}

/// Moves this thread, and what it starts, into a new network namespace with a loopback interface.
fn isolate() -> std::io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request lives through the call and has the type that the call takes.
    match unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &raw mut request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Sandbox {
    fn new(test: String) -> Sandbox {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let libraries = dir.path().join("lib");
        fs::create_dir(&libraries).expect("room for a directory");
        let library = built("libirnic_verbs.so");
        for name in ["libibverbs.so", "libibverbs.so.1"] {
            symlink(&library, libraries.join(name)).expect("a symbolic link");
        }
        Sandbox { test, dir, libraries }
    }

    /// A program that finds the library where it looks for libibverbs.
    pub fn command(&self, program: impl AsRef<Path>, device: Device) -> Command {
        let mut command = Command::new(program.as_ref());
        for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("IRNIC_")) {
            command.env_remove(key);
        }
        command.env("LC_ALL", "C").env("LD_LIBRARY_PATH", &self.libraries).current_dir(self.dir.path());
        for (key, value) in
            [("IRNIC_TRANSPORT", device.transport), ("IRNIC_IMPAIR", device.impair), ("IRNIC_PORT", device.port)]
        {
            if !value.is_empty() {
                command.env(key, value);
            }
        }
        command
    }

    /// A program like [`Sandbox::command`], which moreover finds the network interface of the first device where a
    /// kernel driver has it, /sys/class/infiniband/irnic0/device/net.
    pub fn command_with_sysfs(&self, program: impl AsRef<Path>, device: Device) -> Command {
        let tree = self.dir.path().join("sysfs");
        fs::create_dir_all(tree.join("sys/class/infiniband/irnic0/device/net/lo")).expect("room for directories");
        let mut command = self.command(program, device);
        command.env("LD_PRELOAD", built("libirnic_sysfs.so")).env("IRNIC_SYSFS", tree);
        command
    }

    /// The directory to link programs against.
    pub fn libraries(&self) -> &Path {
        &self.libraries
    }

    /// The index of the device's first GID that is an IPv4 address.
    pub fn gid_index(&self) -> Result<String, Failed> {
        let mut command = self.command(installed("ibv_devinfo")?, Device::default());
        let output = Process::start(command.arg("-v"))?.succeed()?;
        let gid = output.stdout.lines().find(|line| line.contains("GID[") && line.contains("::ffff:"));
        let index = gid.and_then(|line| Some(line.split_once('[')?.1.split_once(']')?.0.trim().to_owned()));
        index.ok_or_else(|| format!("no IPv4 GID in {}", output.stdout).into())
    }
}

/// A library that was built together with this program.
fn built(library: &str) -> PathBuf {
    let path = std::env::current_exe().expect("this program has a path").with_file_name(library);
    assert!(path.exists(), "no {}", path.display());
    path
}

/// A TCP port on which nobody listens.
pub fn free_port() -> u16 {
    free_ports(1)[0]
}

/// Different TCP ports on which nobody listens.
pub fn free_ports(n: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|l| l.local_addr().expect("a bound socket has an address").port()).collect()
}

/// Waits until a server listens on a TCP port.
pub fn wait_for_listener(server: &mut Process, port: u16) -> Result<(), Failed> {
    wait_for_socket(server, port, Socket::Listening)
}

/// Waits until a server has a connection on a TCP port.
pub fn wait_for_connection(server: &mut Process, port: u16) -> Result<(), Failed> {
    wait_for_socket(server, port, Socket::Connected)
}

/// Waits until a server has bound a UDP port.
pub fn wait_for_datagram_socket(server: &mut Process, port: u16) -> Result<(), Failed> {
    wait_for_socket(server, port, Socket::Bound)
}

fn wait_for_socket(server: &mut Process, port: u16, does: Socket) -> Result<(), Failed> {
    server.await_condition(&format!("{does:?} on port {port}"), |_| wait::socket(port, does))
}

/// Waits until a server listens by rdma_cm.
pub fn wait_for_service(server: &mut Process) -> Result<(), Failed> {
    server.await_condition("it listens by rdma_cm", |_| {
        let sockets = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
        sockets.lines().any(|line| line.contains("@irnic/") && line.ends_with("/listens"))
    })
}

/// Whether tables are to have their long forms.
static LONG: AtomicBool = AtomicBool::new(false);

/// Whether every case is wanted, and not only the short form.
pub fn all() -> bool {
    LONG.load(Ordering::Relaxed)
}

/// Says whether every case is wanted from now on.
pub fn want_all(all: bool) {
    LONG.store(all, Ordering::Relaxed);
}

/// The devices of [`RELIABLE`] on which a table's row of this number is run: all of them, or in the short form one,
/// another for the next row.
pub fn reliable(row: usize) -> &'static [(&'static str, Device)] {
    if all() { &RELIABLE } else { std::slice::from_ref(&RELIABLE[row % RELIABLE.len()]) }
}

/// The path of a program of the distribution.
pub fn installed(program: &str) -> Result<PathBuf, Failed> {
    let path = Path::new("/usr/bin").join(program);
    if path.exists() { Ok(path) } else { Err(format!("{} has gone", path.display()).into()) }
}

/// Whether each test has a network namespace of its own.
pub fn namespaces() -> bool {
    NAMESPACES.get() == Some(&true)
}

/// Says which of `needs` are not there.
pub fn missing(needs: &[&str]) -> Option<String> {
    let missing: Vec<&str> = needs.iter().copied().filter(|need| !Path::new(need).exists()).collect();
    (!missing.is_empty()).then(|| format!("there is no {}", missing.join(", no ")))
}

/// A test that is not run, and says so.
pub fn skipped(name: String, why: &str) -> Trial {
    let text = format!("{name}: {why}");
    Trial::test(name, move || {
        irnic_testkit::skipped(&text);
        Ok(())
    })
}

/// A test in a sandbox of its own; not run, and said so, if one of `needs` is not there.
pub fn trial(
    name: String,
    needs: &[&str],
    test: impl FnOnce(&Sandbox) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    match missing(needs) {
        Some(why) => skipped(name, &why),
        None => Trial::test(name.clone(), move || isolated(name, test)),
    }
}

/// Tests with programs that were built of a project's own sources, in each network. The variable `folder` names the
/// folder with them, which `test` gets; without it they are not run, and that is said. In the long form alone.
pub fn of_sources(
    folder: &str,
    name: &str,
    needs: &[&str],
    networks: &[(&str, Device)],
    test: impl Fn(&Sandbox, &Path, Device) -> Result<(), Failed> + Clone + Send + 'static,
) -> Vec<Trial> {
    if !all() {
        return Vec::new();
    }
    let programs = std::env::var_os(folder).map(PathBuf::from);
    let mut trials = Vec::new();
    for port in ["shm", "udp"] {
        for &(network, device) in networks {
            let name = format!("{name} ({port}, {network})");
            let device = Device { port, ..device };
            trials.push(match programs.clone() {
                None => skipped(name, &format!("{folder} names no folder with its programs")),
                Some(programs) => {
                    let test = test.clone();
                    trial(name, needs, move |sandbox| test(sandbox, &programs, device))
                }
            });
        }
    }
    trials
}

/// Runs a test of this name in a sandbox of its own.
pub fn isolated(
    name: String,
    test: impl FnOnce(&Sandbox) -> Result<(), Failed> + Send + 'static,
) -> Result<(), Failed> {
    // A namespace belongs to a thread; children inherit that of the thread which starts them.
    let thread = thread::spawn(|| {
        if namespaces() {
            isolate()?;
        }
        test(&Sandbox::new(name))
    });
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default().into())
    })
}
