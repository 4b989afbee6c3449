//! Diagnosis of processes that ended by a fault.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Prefix of the description of a process that ended by a fault.
pub const FAULT: &str = "ended by a fault";

/// Signals that mean a fault in the program, with their numbers on Linux.
const FAULTS: [(i32, &str); 7] =
    [(4, "SIGILL"), (5, "SIGTRAP"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (11, "SIGSEGV"), (31, "SIGSYS")];

/// How a process ended; after a fault, with the backtrace of its core in `folder`, its working directory.
pub fn describe(status: ExitStatus, folder: &Path) -> String {
    let Some(name) = fault(status) else { return status.to_string() };
    let number = status.signal().unwrap_or_default();
    let backtrace = backtrace(folder).unwrap_or_else(|why| format!("no backtrace: {why}"));
    format!("{FAULT}: signal {number} ({name})\n{backtrace}")
}

/// The name of the signal if a process ended by a fault, or if the shell that ran it reports one for a command.
pub fn fault(status: ExitStatus) -> Option<&'static str> {
    let number = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128))?;
    FAULTS.iter().find(|(of, _)| *of == number).map(|(_, name)| *name)
}

/// Backtraces of all threads, by gdb, of the core files in a folder.
///
/// # Errors
///
/// If there is no core, or no gdb.
pub fn backtrace(folder: &Path) -> Result<String, String> {
    let cores = cores(folder);
    if cores.is_empty() {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        return Err(format!("no core in {}; kernel.core_pattern is {}", folder.display(), pattern.trim()));
    }
    let mut text = String::new();
    for core in cores {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-q", "-ex", "thread apply all backtrace 40", "-core"]).arg(&core);
        if let Some(program) = program_of(&core) {
            gdb.arg(program);
        }
        let output = gdb.output().map_err(|e| format!("gdb: {e}"))?;
        text += &String::from_utf8_lossy(&output.stdout);
    }
    Ok(text)
}

/// Core files in a folder, as `kernel.core_pattern` names them by default.
pub fn cores(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix("core.");
        name == "core" || number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut cores: Vec<PathBuf> = files.filter(named).filter(|path| path.is_file()).collect();
    cores.sort();
    cores
}

/// The program that dumped the core, from the core's notes as read by file(1).
fn program_of(core: &Path) -> Option<String> {
    let output = Command::new("file").arg("-b").arg(core).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("execfn: '")?;
    rest.split_once('\'').map(|(program, _)| program.to_owned())
}

/// Whether a line of standard error reports a panic of a background thread of the library.
pub fn is_panic_of_the_library(line: &str) -> bool {
    line.starts_with("thread 'irnic") && line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_from_other_ends() {
        let end = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = describe(end("ulimit -c 0; kill -SEGV $$"), folder.path());
        assert!(text.starts_with("ended by a fault: signal 11 (SIGSEGV)\nno backtrace: no core in "), "{text}");
        assert_eq!(fault(end("sh -c 'ulimit -c 0; kill -ABRT $$'; exit $?")), Some("SIGABRT"));
        assert_eq!(fault(end("kill -TERM $$")), None);
        assert_eq!(fault(end("exit 1")), None);
    }
}
