//! Runs the blocks of a page as its reader would, one after the other, in a directory of their own.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::listen;
use crate::pages::{Block, Class, Page};
use crate::shell;
use crate::support::{Folder, irnic, skipped, text};

/// The longest that a block may take, on a machine with other work. In the long form one builds irnic.
const LIMIT: Duration = Duration::from_secs(1500);
/// How often a command is stopped.
const STOPS: usize = 15;
/// For so long a command runs that is stopped: bad arguments, files and networks are refused sooner.
const STARTED: Duration = Duration::from_secs(1);
/// Programs that a machine may lack. Blocks with them, and what follows on the page, are skipped there.
const PROGRAMS: [&str; 11] = [
    "curl",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ibv_devinfo",
    "make",
    "mpicc",
    "mpirun",
    "rping",
    "tshark",
    "ucx_info",
];

/// What applications are built with.
const VERBS: &str = "/usr/include/infiniband/verbs.h";

/// A network namespace whose loopback interface works, with an interface `eth0` of its own beside it. So commands of
/// several pages, and of what else this machine runs, do not meet.
const ISOLATED: &str = "ip link set lo up
ip link add eth0 type veth peer name eth1 && ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up && ip link set eth1 up
exec \"$@\"";

/// Whether this user may have such a namespace. Otherwise commands run in that of the test.
pub fn isolated() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let tried = Command::new("unshare")
            .args(["--map-root-user", "--net", "--mount", "ip", "link", "set", "lo", "up"])
            .output();
        tried.is_ok_and(|output| output.status.success())
    })
}

/// A reader at a terminal.
pub struct Reader<'a> {
    page: &'a Page,
    repository: &'a Path,
    home: Folder,
    /// What is not the reader's: scripts, output.
    own: Folder,
    /// Where the reader is.
    place: PathBuf,
    /// What the last block has printed, unless it was stopped.
    said: Option<String>,
    long: bool,
    /// A block could not be run, on which others may rest.
    incomplete: bool,
}

impl<'a> Reader<'a> {
    /// Files of any page are there: others refer to them.
    pub fn new(page: &'a Page, book: &[Page], repository: &'a Path, long: bool) -> Reader<'a> {
        let (home, own) = (Folder::new(), Folder::new());
        for block in book.iter().flat_map(|page| &page.blocks) {
            if let Ok(Class::File(name)) = &block.class {
                home.write(name, &block.text);
            }
        }
        for name in ["bench", "fixtures"] {
            std::os::unix::fs::symlink(repository.join(name), home.path().join(name)).expect("a link");
        }
        let place = home.path().to_owned();
        Reader { page, repository, home, own, place, said: None, long, incomplete: false }
    }

    /// Does what a block says.
    pub fn read(&mut self, block: &Block) -> Result<(), String> {
        let at = format!("{}:{}", self.page.name, block.line);
        let failed = |why: String| format!("{at}: {why}\n{}", block.text);
        let class = block.class.as_ref().map_err(Clone::clone)?;
        match class {
            Class::Output if self.incomplete => return Ok(()),
            Class::Output => return self.compare(&block.text).map_err(failed),
            Class::File(name) => {
                std::fs::write(self.place.join(name), &block.text).expect("a file");
                return Ok(());
            }
            Class::NoRun(_) | Class::Other => return Ok(()),
            Class::Parse(_) => return self.parse(&block.text).map_err(failed),
            Class::Run | Class::Long | Class::Stop => {}
        }
        if let Some(missing) = lacks(&block.text).filter(|_| !self.incomplete) {
            skipped(&format!("{at} and what follows: {missing}"));
            self.incomplete = true;
        }
        if self.incomplete {
            return Ok(());
        }
        if *class == Class::Run || *class == Class::Long && self.long {
            return self.run(&block.text).map_err(failed);
        }
        let is_ours = |line: &&String| shell::named(line).first().is_some_and(|named| named.program == "irnic");
        shell::lines(&block.text).iter().filter(is_ours).try_for_each(|line| self.start(line).map_err(failed))
    }

    /// Has irnic read the arguments of its commands.
    fn parse(&self, script: &str) -> Result<(), String> {
        let named = shell::named(script);
        named.iter().filter(|named| named.program == "irnic").try_for_each(|named| parse(&self.home, &named.arguments))
    }

    /// Runs a block until its last process has ended.
    fn run(&mut self, script: &str) -> Result<(), String> {
        let place = self.own.path().join("place");
        // Cargo would build what is there.
        let script = script.replace("cargo run --release -- ", "irnic ");
        let waits = std::env::current_exe().expect("this program");
        let script = listen::waiting(&script, waits.to_str().expect("a path of text"));
        let script = format!("{script}\nwait\npwd > '{}'\n", place.display());
        let child = self.spawn(&script)?;
        let in_time = ended(&child, LIMIT);
        let status = end(child);
        let said = self.said_now();
        if !in_time {
            return Err(format!("has not ended after {LIMIT:?}: {said}"));
        }
        if !status.success() {
            return Err(format!("{status}: {said}"));
        }
        self.said = Some(said);
        self.place = PathBuf::from(std::fs::read_to_string(place).expect("a place").trim_end());
        Ok(())
    }

    /// Starts a command, and stops it if it goes on.
    fn start(&mut self, line: &str) -> Result<(), String> {
        // Before it is stopped it may not have come to all of them.
        self.parse(line)?;
        let child = self.spawn(&line.replace("cargo run --release -- ", "irnic "))?;
        let mut in_time = ended(&child, STARTED);
        // Again and again: who is not ready yet for the first may be started with SIGINT ignored.
        for _ in 0..STOPS {
            if !in_time {
                signal(&child, libc::SIGINT);
                in_time = ended(&child, Duration::from_secs(2));
            }
        }
        let status = end(child);
        let said = self.said_now();
        self.said = None;
        match status.code() {
            _ if !in_time => Err(format!("{line}: does not end by Ctrl-C: {said}")),
            Some(0 | 130) => Ok(()),
            None if status.signal() == Some(libc::SIGINT) => Ok(()),
            _ => Err(format!("{line}: {status}: {said}")),
        }
    }

    fn said_now(&self) -> String {
        text(&std::fs::read(self.own.path().join("said")).unwrap_or_default())
    }

    fn spawn(&self, script: &str) -> Result<Child, String> {
        let file = self.own.write("script", script);
        let said = File::create(self.own.path().join("said")).expect("a file");
        let of_irnic = irnic(&self.home);
        let mut command = if isolated() {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net", "--mount", "sh", "-c", ISOLATED, "sh", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let program = Path::new(of_irnic.get_program());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [program.parent().expect("a directory").to_owned()].into_iter().chain(std::env::split_paths(&path));
        command.arg("-e").arg(&file).current_dir(&self.place).stdin(Stdio::null());
        for (key, value) in of_irnic.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        for (name, _) in std::env::vars_os() {
            // Cargo's are for this test.
            if name.to_string_lossy().starts_with("CARGO_") {
                command.env_remove(name);
            }
        }
        // Nothing of the user's, but where cargo and rustup have theirs.
        if let Some(home) = std::env::home_dir() {
            for (name, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                command.env(name, std::env::var_os(name).unwrap_or_else(|| home.join(place).into()));
            }
        }
        command.env("HOME", self.home.path());
        // What is cloned changes its place each time; what it depends on is built once.
        command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("clone"));
        // It is to be built and to run, not to be fast.
        command.envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")]);
        for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command.env("PATH", std::env::join_paths(path).expect("a PATH"));
        // Root is what a user namespace makes of everybody.
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        // What is cloned is this repository.
        let local = format!("url.{}.insteadOf", self.repository.display());
        command.envs([("GIT_CONFIG_COUNT", "2"), ("GIT_CONFIG_KEY_0", &local), ("GIT_CONFIG_KEY_1", "safe.directory")]);
        command.envs([("GIT_CONFIG_VALUE_0", "https://github.com/irnic/irnic"), ("GIT_CONFIG_VALUE_1", "*")]);
        command.stdout(said.try_clone().expect("a file")).stderr(said).process_group(0);
        command.spawn().map_err(|e| format!("sh: {e}"))
    }

    /// Whether commands have printed these lines, in this order, and others between them. Numbers may differ.
    fn compare(&self, shown: &str) -> Result<(), String> {
        let Some(all) = &self.said else { return Ok(()) };
        let mut said = all.lines().map(alike);
        let missing = shown.lines().filter(|line| !line.trim().is_empty()).find(|line| {
            let shown = alike(line);
            !said.any(|said| said == shown)
        });
        missing.map_or(Ok(()), |line| Err(format!("nothing like {line:?} (there) in:\n{all}")))
    }
}

/// A line without its numbers and the length of its spaces.
fn alike(line: &str) -> String {
    let mut alike = String::new();
    for word in line.split_whitespace() {
        if word.bytes().all(|c| c == b'-') {
            continue;
        }
        let word = if word.starts_with("0x") { "0" } else { word };
        let mut digits = false;
        for c in word.chars() {
            let number = c.is_ascii_digit() || digits && matches!(c, '.' | ',');
            match (number, digits) {
                (true, false) => alike.push('#'),
                (true, true) => {}
                (false, _) => alike.push(c),
            }
            digits = number;
        }
        alike.push(' ');
    }
    alike
}

/// What a block needs and this machine lacks.
fn lacks(script: &str) -> Option<String> {
    if script.contains("--netns") && !isolated() {
        return Some("there are no namespaces".into());
    }
    if ["make", "mpicc"].iter().any(|builder| script.contains(builder)) && !Path::new(VERBS).exists() {
        return Some(format!("there is no {VERBS}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    let between = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ';' | '(' | ')');
    let missing =
        PROGRAMS.into_iter().find(|program| script.split(between).any(|word| word == *program) && !there(program));
    missing.map(|program| format!("{program} is not installed"))
}

/// Has irnic read arguments, and nothing more: it stops at `--help`, and before it at what it does not know.
pub fn parse(folder: &Folder, arguments: &[String]) -> Result<(), String> {
    // Faults are words for the lab, which reads them.
    let read = if arguments.first().is_some_and(|name| name == "ctl") { &arguments[..1] } else { arguments };
    let output = irnic(folder).args(read).arg("--help").output().expect("irnic runs");
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("irnic {}: {}", arguments.join(" "), text(&output.stderr).trim()))
    }
}

/// Waits for the end of a process, no longer than this, and leaves its status where it is: so its id stays its own.
fn ended(child: &Child, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        // SAFETY: `info` is all zeros, which is a valid siginfo_t, and is written to while it lives.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
            info.si_pid()
        };
        if pid != 0 || Instant::now() > until {
            return pid != 0;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Ends what a block has left. Returns the status of its shell.
fn end(mut child: Child) -> ExitStatus {
    signal(&child, libc::SIGKILL);
    child.wait().expect("a child")
}

/// Sends a signal to the group that a process leads which was not waited for yet.
fn signal(child: &Child, signal: i32) {
    let group = -i32::try_from(child.id()).expect("a process id");
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(group, signal) };
}

/// Tells what the test has done, past the capture of output.
pub fn tell(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("standard error");
}
