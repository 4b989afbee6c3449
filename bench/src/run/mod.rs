//! `irnic run`: an unmodified RDMA application on software NICs.
//!
//! [`args`] turns options into variables and checks them as the library would, [`library`] finds the shared object,
//! [`links`] gives it the names that applications load, [`program`] sees whether the application loads any, [`sysfs`]
//! writes the files that some look for.

mod args;
pub mod library;
mod links;
mod program;
mod sysfs;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

pub use args::RunArgs;

/// The command was found and cannot be executed, as shells and env(1) have it.
const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The options, the variables or the file are wrong.
    #[error("{0}")]
    Usage(String),
    /// The installation is not complete, or there is no place for links.
    #[error("{0}")]
    Failed(String),
    /// The command does not start.
    #[error("{}: {error}", .command.display())]
    Exec {
        /// The command.
        command: OsString,
        /// What the system said.
        error: std::io::Error,
    },
}

impl RunError {
    fn status(&self) -> u8 {
        match self {
            RunError::Usage(_) => 2,
            RunError::Failed(_) => 1,
            RunError::Exec { error, .. } if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            RunError::Exec { .. } => CANNOT_EXECUTE,
        }
    }
}

/// `directory`, and what `variable` has already.
fn in_front(directory: &Path, variable: &str, separator: &str) -> OsString {
    let mut all = directory.as_os_str().to_owned();
    if let Some(old) = std::env::var_os(variable).filter(|old| !old.is_empty()) {
        all.push(separator);
        all.push(old);
    }
    all
}

/// Becomes the application. Returns only if that fails.
fn run(args: &RunArgs) -> Result<std::convert::Infallible, RunError> {
    let variables = args.variables()?;
    let (config, infos) = args.check(&variables)?;
    let library = library::find(&variables)?;
    let directory = links::directory(&library, &library::VERBS_NAMES)?;
    args.prepare_outputs(&config)?;
    let (program, rest) = args.command();
    if let Some(obstacle) = program::locate(program).and_then(|path| program::obstacle(&path)) {
        eprintln!("irnic: {} does not run on irnic: {obstacle}; programs that it starts may", program.display());
    }
    let mut command = Command::new(program);
    command.args(rest).envs(args.environment(&variables, &config)?);
    command.env("LD_LIBRARY_PATH", in_front(&directory, "LD_LIBRARY_PATH", ":"));
    if args.sysfs() {
        let preload =
            links::directory(&library::beside_program(library::SYSFS)?, &[library::SYSFS])?.join(library::SYSFS);
        command.env("LD_PRELOAD", in_front(&preload, "LD_PRELOAD", ":"));
        command.env("IRNIC_SYSFS", sysfs::directory(&infos)?);
    }
    Err(RunError::Exec { command: program.clone(), error: command.exec() })
}

/// Runs `irnic run`.
pub fn main(args: &RunArgs) -> ExitCode {
    let Err(error) = run(args);
    eprintln!("irnic: {error}");
    ExitCode::from(error.status())
}
