//! Network namespaces of a lab's hosts, for non-RDMA traffic.
//!
//! ```text
//!  launcher's namespace: lab, a bridge, 10.77.255.254/16 ─┬─ veth ─ eth0, 10.77.0.1/16, of host h0
//!                                                         └─ veth ─ eth0, 10.77.0.2/16, of host h1 …
//! ```
//!
//! With `--tcp emulated`, each host also has a TUN device, `lab0`, with the route to the other hosts: their IP packets
//! then cross the emulated network. Only those of the launcher cross the bridge.
//!
//! Each host has its own network and host name; all share one view of the files, in which /etc/hosts has the names. The
//! keeper creates the namespaces and holds them by descriptors, to which symbolic links in the lab's directory lead.
//! The namespaces thus exist as long as the keeper, and leave nothing to be removed.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use irnic_ports::frames::Mac;
use irnic_ports::lab::{Addressing, IP_MTU};

use crate::socket::PREFIX;

/// Maximum number of hosts: a bridge has 1,024 ports.
pub const MOST: u32 = 1_000;

/// Name of the launcher's interface and host, and its address.
const LAUNCHER: &str = "lab";
const GATEWAY: &str = "10.77.255.254";

/// Name of a host's TUN device, and the network of the hosts' addresses, which the launcher's is not in.
const TUN: &str = "lab0";
const HOSTS_NETWORK: &str = "10.77.0.0/17";

/// Programs by which launchers of parallel jobs reach hosts: here, links to this program.
const AGENTS: [&str; 2] = ["ssh", "rsh"];

/// Entries of the lab's directory: programs, namespaces, and the replacement of /etc/hosts.
const PROGRAMS: &str = "bin";
const NAMESPACES: &str = "ns";
const HOSTS: &str = "hosts";

/// The namespaces that a process enters, in this order: each is a file of /proc/PID/ns, with its flag for setns(2).
const KINDS: [(&str, libc::c_int); 4] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
];

/// Returns the name of a host.
fn name(host: u32) -> String {
    format!("h{host}")
}

/// Returns the directory of programs that comes first in the PATH of a lab's processes.
pub fn programs(directory: &Path) -> PathBuf {
    directory.join(PROGRAMS)
}

/// Returns whether the program was started as ssh or rsh.
pub fn is_agent(program: &std::ffi::OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| AGENTS.iter().any(|agent| name == *agent))
}

/// Returns the link to a namespace: of a host, of the launcher, or of all.
fn link(directory: &Path, kind: &str, host: Option<u32>) -> PathBuf {
    let whose = match (kind, host) {
        ("user" | "mnt", _) => String::new(),
        (_, None) => format!("{LAUNCHER}."),
        (_, Some(host)) => format!("{}.", name(host)),
    };
    directory.join(NAMESPACES).join(whose + kind)
}

fn failed(what: &str) -> impl Fn(io::Error) -> String {
    move |e| format!("{what}: {e}")
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves this process into new namespaces.
fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(flags) })
}

/// Moves this process into a namespace.
fn set(namespace: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an open descriptor, and no memory.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind) })
}

fn mount(source: &Path, target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let (source, target) = (text(source)?, text(target)?);
    let none = std::ptr::null();
    // SAFETY: two C strings; neither type nor data are read with these flags.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), none, flags, none.cast()) })
}

fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: a readable buffer with its length.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
}

/// Restricts interfaces created from now on to the addresses that they are assigned.
fn one_address() {
    // Without IPv6 in the kernel, there is nothing to disable.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// Runs commands of ip(8) in this process's network namespace.
fn ip(commands: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = || {
        let mut process = command.spawn()?;
        if let Some(mut commands_of) = process.stdin.take() {
            commands_of.write_all(commands.as_bytes())?;
        }
        process.wait_with_output()
    };
    match { run }() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip (iproute2): {}", said.lines().next().unwrap_or("it failed").trim()))
        }
        Err(e) => Err(format!("ip (iproute2): {e}")),
    }
}

/// Minimum age of a directory to count as left behind, so that its creator has had time to lock it.
const NEW: Duration = Duration::from_secs(10);

/// A lock on a lab's directory, held as long as one of the lab's own processes lives, in whatever namespace.
pub struct InUse {
    _locked: File,
}

impl InUse {
    /// Locks an existing directory.
    pub fn new(directory: &Path) -> io::Result<InUse> {
        let locked = File::open(directory)?;
        lock(&locked, libc::LOCK_SH)?;
        Ok(InUse { _locked: locked })
    }
}

/// flock(2).
fn lock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: an open descriptor, and no memory.
    check(unsafe { libc::flock(file.as_raw_fd(), how) })
}

/// Whether this is the name that a lab gives its directory: the prefix, its process id, and when it began, ns since
/// 1970. A user's directory may begin with the prefix, too.
fn names_a_lab(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    name.strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(pid, at)| number(pid) && number(at) && at.len() >= 19)
}

/// Removes the user's lab directories in `parent` whose lab has no process left because all were killed.
pub fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let labs = entry.file_name().to_str().is_some_and(names_a_lab);
        // Symbolic links are not followed: they may be another user's.
        let own = fs::symlink_metadata(&path).is_ok_and(|found| {
            // SAFETY: has no precondition.
            let user = unsafe { libc::geteuid() };
            let old = found.modified().is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NEW));
            found.is_dir() && found.uid() == user && old
        });
        if labs && own && File::open(&path).is_ok_and(|found| lock(&found, libc::LOCK_EX | libc::LOCK_NB).is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The namespaces of a lab, as held by their creator.
pub struct Made {
    _in_use: InUse,
    directory: PathBuf,
    held: Vec<File>,
    /// TUN devices of the hosts.
    tuns: Vec<File>,
    /// Device and inode numbers of the network namespaces' files.
    networks: Vec<(u64, u64)>,
}

impl Made {
    /// Creates the directory of a lab and its namespaces, and moves this process, which must be single-threaded, into
    /// the launcher's.
    ///
    /// `emulated`: IP packets between hosts cross the emulated network, by [`Made::tuns`].
    pub fn new(directory: &Path, hosts: u32, emulated: bool) -> Result<Made, String> {
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path).map_err(failed("its directory"));
        make(directory)?;
        let in_use = InUse::new(directory).map_err(failed("its directory"))?;
        // From here on, the directory is removed on drop.
        let mut made = Made {
            _in_use: in_use,
            directory: directory.to_owned(),
            held: Vec::new(),
            tuns: Vec::new(),
            networks: Vec::new(),
        };
        [PROGRAMS, NAMESPACES].iter().try_for_each(|part| make(&directory.join(part)))?;
        let program = std::env::current_exe().map_err(failed("this program"))?;
        AGENTS
            .iter()
            .try_for_each(|agent| symlink(&program, programs(directory).join(agent)))
            .map_err(failed("its programs"))?;
        made.make(hosts, emulated)?;
        Ok(made)
    }

    fn make(&mut self, hosts: u32, emulated: bool) -> Result<(), String> {
        raise_limit();
        if leave().map_err(failed(
            "no namespaces: neither as root nor in a user namespace (sysctl user.max_user_namespaces, \
             kernel.apparmor_restrict_unprivileged_userns)",
        ))? {
            self.hold("user", None)?;
        }
        self.give_names(hosts).map_err(failed("/etc/hosts"))?;
        set_host_name(LAUNCHER).map_err(failed("the host name"))?;
        for kind in ["mnt", "uts", "net"] {
            self.hold(kind, None)?;
        }
        one_address();
        let (uts, net) = (self.held.len() - 2, self.held.len() - 1);
        let mut bridge = format!(
            "link set lo up\nlink add {LAUNCHER} type bridge\naddr add {GATEWAY}/16 dev {LAUNCHER}\nlink set {LAUNCHER} \
             up\n"
        );
        for host in 0..hosts {
            self.make_host(host, net, emulated)?;
            let _ = writeln!(bridge, "link set {} master {LAUNCHER} up", name(host));
        }
        set(&self.held[uts], libc::CLONE_NEWUTS).map_err(failed("the host name"))?;
        set(&self.held[net], libc::CLONE_NEWNET).map_err(failed("the network"))?;
        ip(&bridge)
    }

    /// Creates the namespaces of a host, which this process enters, and a link to the launcher's.
    fn make_host(&mut self, host: u32, launcher: usize, emulated: bool) -> Result<(), String> {
        unshare(libc::CLONE_NEWNET | libc::CLONE_NEWUTS).map_err(failed("a network namespace"))?;
        set_host_name(&name(host)).map_err(failed("the host name"))?;
        self.hold("uts", Some(host))?;
        self.hold("net", Some(host))?;
        one_address();
        let address = Addressing::Namespaces.address(host);
        let (mac, peer) = (Mac::derived(address), name(host));
        let launcher = format!("/proc/{}/fd/{}", std::process::id(), self.held[launcher].as_raw_fd());
        ip(&format!(
            "link set lo up\nlink add eth0 address {mac} type veth peer name {peer} netns {launcher}\naddr add \
             {address}/16 dev eth0\nlink set eth0 up\n"
        ))?;
        if emulated {
            self.tuns.push(tun_device().map_err(failed("--tcp emulated: /dev/net/tun"))?);
            ip(&format!("link set {TUN} mtu {IP_MTU} up\nroute add {HOSTS_NETWORK} dev {TUN} src {address}\n"))?;
        }
        Ok(())
    }

    /// Returns the descriptors of the hosts' TUN devices.
    pub fn tuns(&self) -> impl Iterator<Item = RawFd> {
        self.tuns.iter().map(AsRawFd::as_raw_fd)
    }

    /// Holds a namespace of this process, and makes a symbolic link to it.
    fn hold(&mut self, kind: &str, host: Option<u32>) -> Result<(), String> {
        let mut hold = || {
            let file = File::open(format!("/proc/self/ns/{kind}"))?;
            let metadata = file.metadata()?;
            if kind == "net" {
                self.networks.push((metadata.dev(), metadata.ino()));
            }
            let target = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            self.held.push(file);
            symlink(target, link(&self.directory, kind, host))
        };
        hold().map_err(failed("a namespace"))
    }

    /// Adds the hosts' names to /etc/hosts.
    fn give_names(&self, hosts: u32) -> io::Result<()> {
        let mut text = format!("127.0.0.1 localhost\n::1 localhost\n{GATEWAY} {LAUNCHER}\n");
        for host in 0..hosts {
            let _ = writeln!(text, "{} {}", Addressing::Namespaces.address(host), name(host));
        }
        let file = self.directory.join(HOSTS);
        fs::write(&file, text)?;
        // What is mounted here must not be visible outside.
        mount(Path::new("none"), Path::new("/"), libc::MS_REC | libc::MS_SLAVE)?;
        mount(&file, Path::new("/etc/hosts"), libc::MS_BIND)
    }

    /// Kills all processes in the network namespaces except this one.
    pub fn clear(&self) {
        for _ in 0..100 {
            let inhabitants: Vec<libc::pid_t> = self.inhabitants();
            if inhabitants.is_empty() {
                break;
            }
            // SAFETY: no memory is passed.
            inhabitants.iter().for_each(|process| _ = unsafe { libc::kill(*process, libc::SIGKILL) });
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn inhabitants(&self) -> Vec<libc::pid_t> {
        let own = std::process::id() as libc::pid_t;
        let lives_here = |process: &libc::pid_t| {
            // It has ended meanwhile.
            let network = fs::metadata(format!("/proc/{process}/ns/net"));
            *process != own && network.is_ok_and(|network| self.networks.contains(&(network.dev(), network.ino())))
        };
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(lives_here).collect()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Creates a TUN device in this process's network namespace.
fn tun_device() -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TUN.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: a valid request, which the call reads and writes.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(file)
}

/// Moves this process into new namespaces that it may configure. Returns whether that required a user namespace.
fn leave() -> io::Result<bool> {
    // SAFETY: no memory is passed, and neither fails.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let namespaces = libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;
    if unshare(namespaces).is_ok() {
        return Ok(false);
    }
    unshare(libc::CLONE_NEWUSER | namespaces)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    Ok(true)
}

/// Raises the limit on descriptors to the maximum: two for each host exceed the default of shells.
fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid rlimit. If refused, only fewer hosts are possible.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Entrance to the namespaces of a host, or of the launcher.
pub struct Entrance {
    namespaces: Vec<(File, libc::c_int)>,
    here: CString,
}

impl Entrance {
    /// Opens the namespaces of a lab.
    ///
    /// # Errors
    /// Those of the system: there is no such host, the lab has ended.
    pub fn open(directory: &Path, host: Option<u32>) -> io::Result<Entrance> {
        let mut namespaces = Vec::new();
        for (kind, number) in KINDS {
            let path = link(directory, kind, host);
            let namespace = match File::open(&path) {
                // As root, there is no user namespace.
                Err(e) if kind == "user" && e.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let (there, here) = (namespace.metadata()?, fs::metadata(format!("/proc/self/ns/{kind}"))?);
            // A process cannot enter its current user namespace.
            if (there.dev(), there.ino()) != (here.dev(), here.ino()) {
                namespaces.push((namespace, number));
            }
        }
        let here = CString::new(std::env::current_dir()?.into_os_string().into_vec())?;
        Ok(Entrance { namespaces, here })
    }

    /// Moves this process, which must be single-threaded, there. Makes only system calls, so that it can be called
    /// between fork and exec.
    pub fn enter(&self) -> io::Result<()> {
        self.namespaces.iter().try_for_each(|(namespace, kind)| set(namespace, *kind))?;
        // SAFETY: a C string. Entering a mount namespace had moved this process to its root.
        check(unsafe { libc::chdir(self.here.as_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_directories_that_labs_have_left_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
        let make = |name: &str| {
            let path = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
            File::open(&path).unwrap().set_modified(hour_ago).unwrap();
            path
        };
        let [left, results, dated, used] =
            ["12-1764597600000000000", "results", "2026-12", "7-1764597600000000001"].map(make);
        let _lock = InUse::new(&used).unwrap();
        sweep(parent.path());
        assert_eq!([&left, &results, &dated, &used].map(|path| path.exists()), [false, true, true, true]);
    }
}
