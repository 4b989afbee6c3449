//! What tests of whole programs share.

#![allow(dead_code, reason = "each test uses a part")]

pub mod wheels;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use irnic_testkit::{crash, wait};
#[allow(unused_imports, reason = "each test uses a part")]
pub use irnic_testkit::{long_form, skipped};
use tempfile::TempDir;

/// Beginning of a script in a network namespace: makes another one, and joins both by a link of which either end is
/// `eth0`, with 10.0.0.1 and 10.0.0.2. `there COMMAND` runs a command in the other.
pub const NAMESPACES: &str = r#"set -e
ip link set lo up
unshare --net sleep 600 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
there() { nsenter --net=/proc/$other/ns/net "$@"; }
ip link add eth0 type veth peer name eth0 netns $other
ip addr add 10.0.0.1/24 dev eth0
ip link set eth0 up
there ip link set lo up
there ip addr add 10.0.0.2/24 dev eth0
there ip link set eth0 up
"#;

/// A directory of its own for each test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file");
        // Settings count only if others may not write them, whatever the umask.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("permissions");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() && !crash::cores(self.path()).is_empty() {
            eprintln!("a process that ran here crashed:\n{}", crash::backtrace(self.path()).unwrap_or_else(|why| why));
        }
    }
}

/// Reads a CSV file, which has to say how to get it again. Returns its names and records.
#[track_caller]
pub fn csv(folder: &Folder, name: &str) -> String {
    let file = std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (said, records): (Vec<&str>, Vec<&str>) = file.lines().partition(|line| line.starts_with('#'));
    let is_said = said.first().is_some_and(|line| line.starts_with("# again: irnic "));
    assert!(is_said && said.last().is_some_and(|line| line.ends_with(')') && line.contains(" (irnic ")), "{said:?}");
    assert!(file.starts_with(&said.join("\n")), "comments come first: {name}");
    records.iter().map(|line| format!("{line}\n")).collect()
}

/// Gives a command that may start Open MPI a folder for its sessions. By default all of a host's are in one, which
/// fails if one ends as another begins ("mkdir: File exists", orte/util/session_dir.c, 4.1.4).
pub fn with_sessions<'a>(command: &'a mut Command, folder: &Folder) -> &'a mut Command {
    command.env("OMPI_MCA_orte_tmpdir_base", folder.path())
}

/// The program in `folder`, with nothing of irnic's in its environment.
pub fn irnic(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_irnic"));
    with_sessions(&mut command, folder);
    command.current_dir(folder.path()).stdin(Stdio::null()).env("XDG_CONFIG_HOME", folder.path()).env("LC_ALL", "C");
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("IRNIC_") {
            command.env_remove(name);
        }
    }
    command
}

/// `irnic perf` in `folder`.
pub fn perf(folder: &Folder, args: &[&str]) -> Command {
    let mut command = irnic(folder);
    command.arg("perf").args(args);
    command
}

/// Runs `irnic perf`, which must succeed. Returns what it prints.
pub fn run_perf(folder: &Folder, args: &[&str]) -> String {
    let output = perf(folder, args).output().expect("irnic runs");
    assert!(output.status.success(), "{args:?}: {}\n{}", text(&output.stderr), text(&output.stdout));
    text(&output.stdout)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that a picture is well-formed: one element, in it elements that end in the order in which they began,
/// attributes in quotes.
pub fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg.trim_end();
    assert!(rest.starts_with("<svg "), "{svg}");
    while let Some((before, tag)) = rest.split_once('<') {
        assert!(!before.contains('>') && (!open.is_empty() || before.is_empty()), "{before}");
        assert!(
            before.split('&').skip(1).all(|e| ["amp;", "lt;", "gt;", "quot;"].iter().any(|n| e.starts_with(n))),
            "{before}"
        );
        let (tag, after) = tag.split_once('>').unwrap_or_else(|| panic!("<{tag}"));
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
            continue;
        }
        let (inner, closed) = tag.strip_suffix('/').map_or((tag, false), |inner| (inner, true));
        let (name, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
        let parts: Vec<&str> = attributes.split('"').collect();
        assert!(parts.len() % 2 == 1 && parts.last() == Some(&""), "{tag}");
        assert!(
            parts[..parts.len() - 1].chunks(2).all(|p| p[0].trim_start().ends_with('=') && !p[0].trim().contains(' ')),
            "{tag}"
        );
        if !closed {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
}

/// Seven switches in a ring with a host each, numbered before them, and flows to the host that is three further.
pub fn ring(folder: &Folder) {
    let mut topology = "14 7 14\n7 8 9 10 11 12 13\n".to_owned();
    let mut flows = "7\n".to_owned();
    for at in 0..7 {
        topology += &format!("{at} {} 40Gbps 2us 0\n{} {} 40Gbps 2us 0\n", at + 7, at + 7, (at + 1) % 7 + 7);
        flows += &format!("{at} {} 0 3000000 0\n", (at + 3) % 7);
    }
    folder.write("ring.txt", &topology);
    folder.write("flows.txt", &flows);
}

/// The shared object that belongs to the program.
pub fn library() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_irnic"));
    let library = program.with_file_name("deps").join("libirnic_verbs.so");
    assert!(library.exists(), "no {}", library.display());
    library
}

/// Whether programs of the distribution are there. If not, the test is skipped.
pub fn needs(programs: &[&str]) -> Option<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in programs {
        if !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
            skipped(&format!("{program} is not installed"));
            return None;
        }
    }
    Some(())
}

/// A TCP port that was free a moment ago.
pub fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port().to_string()
}

/// Returns different TCP ports that are free: calls of [`free_port`] one after the other may return the same.
pub fn free_ports<const N: usize>() -> [String; N] {
    let listeners = [(); N].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("its address").port().to_string())
}

/// Waits until a process listens on a TCP port, without connecting.
#[track_caller]
pub fn await_listener(port: &str) {
    wait::for_listener(port.parse().expect("a number"));
}

/// A shell command that waits until a process listens on a TCP port.
pub fn listens(port: &str) -> String {
    wait::shell_for_listener(port.parse().expect("a number"))
}
