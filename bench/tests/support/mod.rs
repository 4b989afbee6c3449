//! What tests of whole programs share.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

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
        path
    }
}

/// The program in `folder`, with nothing of irnic's in its environment.
pub fn irnic(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_irnic"));
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

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The shared object that belongs to the program.
pub fn library() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_irnic"));
    let library = program.with_file_name("deps").join("libirnic_verbs.so");
    assert!(library.exists(), "no {}", library.display());
    library
}

/// Whether programs of the distribution are there. If not, says that the test was not run, past the test harness's capture of
/// output: nobody should take it for a success.
pub fn needs(programs: &[&str]) -> Option<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in programs {
        if !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
            writeln!(io::stderr(), "SKIPPED {program} is not installed").expect("standard error");
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

/// Waits until somebody listens on a TCP port, without connecting: the kernel knows.
pub fn await_listener(port: &str) {
    let wanted = format!(":{:04X} ", port.parse::<u16>().expect("a number"));
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
            // sl local_address rem_address st: 0A is LISTEN.
            let table = std::fs::read_to_string(file).unwrap_or_default();
            if table.lines().any(|l| l.contains(&wanted) && l.split_whitespace().nth(3) == Some("0A")) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
