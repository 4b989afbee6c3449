//! irnic's side: programs of this host with irnic in the place of libibverbs.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::case::{Carrier, Case, Condition, Device, Role};
use crate::connecting::Ready;
use crate::namespace::{self, IPV4, IPV6};
use crate::support::library;

/// How long a program may run.
pub const PATIENCE: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The host, and what tools/rxe/image.sh made.
pub struct Host {
    image: PathBuf,
    /// Where irnic is called libibverbs.
    libraries: TempDir,
}

/// How a program ended, and what it said.
pub struct Outcome {
    pub status: Result<(), String>,
    pub said: String,
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        self.status.is_ok()
    }

    /// An error unless it ended well.
    pub fn success(self) -> Result<String, String> {
        if self.is_success() { Ok(self.said) } else { Err(self.describe()) }
    }

    pub fn describe(&self) -> String {
        let status = self.status.as_ref().err().map_or("ended well", |e| e.as_str());
        format!("{status}\n{}", self.said)
    }
}

impl Host {
    /// Has the image made, which takes a minute and the network if there is none yet.
    pub fn new() -> Result<Host, String> {
        // Each kernel has an image of its own.
        let kernel = std::env::var("IRNIC_RXE_KERNEL").map_or_else(|_| String::new(), |kernel| format!("-{kernel}"));
        let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rxe-image{kernel}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/rxe/image.sh");
        let made = Command::new(&script).arg(&image).output().map_err(|e| format!("{}: {e}", script.display()))?;
        if !made.status.success() {
            return Err(format!("no virtual machine: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let libraries = tempfile::tempdir().map_err(|e| e.to_string())?;
        for name in ["libibverbs.so", "libibverbs.so.1"] {
            std::os::unix::fs::symlink(library(), libraries.path().join(name)).map_err(|e| e.to_string())?;
        }
        Ok(Host { image, libraries })
    }

    /// A file of the image.
    pub fn file(&self, name: &str) -> PathBuf {
        self.image.join(name)
    }

    /// A file that stays, to be looked at.
    pub fn kept(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    }

    /// A file that is gone when the test is.
    pub fn temporary(&self, name: &str) -> PathBuf {
        self.libraries.path().join(name)
    }

    /// What irnic recorded in a case that connects.
    pub fn capture(&self) -> PathBuf {
        self.temporary("connecting.pcap")
    }

    /// Has a byte for each time that a server which connects has listened.
    pub fn listens(&self) -> PathBuf {
        self.temporary("listens")
    }

    /// Lets a client connect a second time.
    pub fn granted(&self) -> PathBuf {
        self.temporary("granted")
    }

    /// The sockets of the emulator and of irnic.
    pub fn sockets(&self) -> [PathBuf; 2] {
        ["guest.socket", "irnic.socket"].map(|name| self.temporary(name))
    }

    fn frame_port(&self, carrier: Carrier) -> String {
        let [guest, irnic] = self.sockets();
        match carrier {
            Carrier::Packet => format!("frames:packet:{}", namespace::DEVICE),
            Carrier::Dgram => format!("frames:dgram:local={},remote={}", irnic.display(), guest.display()),
        }
    }

    fn unpacked_libraries(&self) -> String {
        self.image.join("prefix/usr/lib/x86_64-linux-gnu").display().to_string()
    }

    /// A program that was unpacked, or else is installed.
    pub fn command(&self, name: &str) -> Command {
        let unpacked = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|dir| self.image.join("prefix").join(dir).join(name));
        let installed = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(|dir| Path::new(dir).join(name));
        let found = unpacked.into_iter().chain(installed).find(|path| path.exists());
        let mut command = Command::new(found.unwrap_or_else(|| name.into()));
        command.env("LD_LIBRARY_PATH", self.unpacked_libraries()).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Runs `ip` with these arguments.
    pub fn ip(&self, arguments: &str) -> Result<(), String> {
        let output = self.command("ip").args(arguments.split(' ')).output().map_err(|e| format!("ip: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
    }

    pub fn device(&self, case: &Case) -> Device {
        Device { name: "irnic0", gid_index: usize::from(case.is_over_ipv6()) }
    }

    /// Starts a command line of `case`.
    pub fn start(&self, case: &Case, line: &str) -> Result<Running, String> {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let mut command = match program {
            "integrity" => Command::new(self.file("integrity")),
            // What goes to a file is buffered otherwise.
            "mckey" => {
                let mut command = self.command("stdbuf");
                command.arg("-oL").arg(self.command(program).get_program());
                command
            }
            program => self.command(program),
        };
        for (variable, _) in std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("IRNIC_")) {
            command.env_remove(variable);
        }
        let said = tempfile::tempfile().map_err(|e| e.to_string())?;
        let copy = |file: &File| file.try_clone().map_err(|e| e.to_string());
        command
            .args(arguments.split(' '))
            .env("LD_LIBRARY_PATH", format!("{}:{}", self.libraries.path().display(), self.unpacked_libraries()))
            .env("IRNIC_ADDRESSES", format!("{IPV4},{IPV6}"))
            .current_dir(self.libraries.path())
            .env("HOME", self.libraries.path())
            .stdin(Stdio::null())
            .stdout(copy(&said)?)
            .stderr(copy(&said)?);
        match case.condition {
            Condition::Impaired(how) => drop(command.env("IRNIC_IMPAIR", how)),
            Condition::Frames(carrier) | Condition::FramesIpv6(carrier) => {
                command.env("IRNIC_ADDRESSES", namespace::STATION).env("IRNIC_PORT", self.frame_port(carrier));
                // The MTU of a datagram socket is its peer's.
                command.env("IRNIC_MTU", case.path_mtu.to_string());
            }
            Condition::None | Condition::Ipv6 | Condition::SecondProcess => {}
        }
        if let Some(connecting) = case.connecting {
            // Of the case before; there may be none.
            let _ = fs::remove_file(self.capture());
            let _ = fs::remove_file(&self.sockets()[1]);
            command.env("IRNIC_PCAP", self.capture());
            if connecting.is_impatient() && case.role == Role::Client {
                let _ = fs::remove_file(self.granted());
                command.env("LD_PRELOAD", self.file("patience.so")).env("GRANTED", self.granted());
            }
            if case.role == Role::Server {
                let _ = fs::remove_file(self.listens());
                command.env("LD_PRELOAD", self.file("listens.so")).env("LISTENS", self.listens());
            }
        }
        let child = command.spawn().map_err(|e| format!("{line}: {e}"))?;
        Ok(Running { child, said, deadline: Instant::now() + PATIENCE })
    }
}

/// irnic's address in a case.
pub fn address(case: &Case) -> &'static str {
    let station = matches!(case.condition, Condition::Frames(_) | Condition::FramesIpv6(_));
    let addresses = namespace::STATION.split_once(',').filter(|_| station).unwrap_or((IPV4, IPV6));
    if case.is_over_ipv6() { addresses.1 } else { addresses.0 }
}

/// A program that was started.
pub struct Running {
    child: Child,
    said: File,
    deadline: Instant,
}

impl Running {
    /// Until the server of a case is there.
    pub fn wait_until_ready(&mut self, host: &Host, case: &Case, port: u16) -> Result<(), String> {
        let Some(connecting) = case.connecting else { return self.wait_for_listener(port) };
        while Instant::now() < self.deadline {
            let there = match connecting.ready {
                Ready::Joined(_) => self.output().contains("joined"),
                Ready::Listens => host.listens().exists(),
            };
            if there {
                return Ok(());
            }
            if self.child.try_wait().ok().flatten().is_some() {
                break;
            }
            sleep(POLL_INTERVAL);
        }
        self.kill();
        Err(format!("the server is not ready\n{}", self.output()))
    }

    /// Until somebody listens to `port`.
    pub fn wait_for_listener(&mut self, port: u16) -> Result<(), String> {
        // Local address and state (0A: LISTEN) in /proc/net/tcp.
        let address = format!(":{port:04X}");
        let listens = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|w| w.ends_with(&address)) && fields.nth(1) == Some("0A")
        };
        while Instant::now() < self.deadline {
            if ["/proc/net/tcp", "/proc/net/tcp6"]
                .iter()
                .any(|table| fs::read_to_string(table).is_ok_and(|table| table.lines().any(listens)))
            {
                return Ok(());
            }
            if self.child.try_wait().ok().flatten().is_some() {
                break;
            }
            sleep(POLL_INTERVAL);
        }
        self.kill();
        Err(format!("nobody listens to TCP port {port}\n{}", self.output()))
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    fn output(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.said.rewind().and_then(|()| self.said.read_to_end(&mut bytes));
        read.map_or_else(|e| e.to_string(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Until it ends, or has run too long.
    pub fn finish(mut self) -> Outcome {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => break Ok(()),
                Ok(Some(status)) => break Err(status.to_string()),
                Ok(None) if Instant::now() < self.deadline => sleep(POLL_INTERVAL),
                Ok(None) => {
                    self.kill();
                    let _ = self.child.wait();
                    break Err(format!("not done after {PATIENCE:?}"));
                }
                Err(e) => break Err(e.to_string()),
            }
        };
        Outcome { status, said: self.output() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        // It may have been waited for.
        let _ = self.child.wait();
    }
}
