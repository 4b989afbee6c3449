//! `irnic run`: runs an unmodified RDMA application on software NICs.
//!
//! `args` turns options into variables and checks them as the library would, `library` finds the shared object or
//! has `embedded` write it, `links` gives it the names that applications load, `program` checks whether the
//! application can load it, `sysfs` writes the files that some applications look for.

mod args;
pub mod embedded;
mod error;
pub mod library;
mod links;
pub mod program;
mod sysfs;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub use args::RunArgs;
pub use error::RunError;
use irnic_verbs::config::Variables;
use program::Obstacle;

/// Prepends `paths` to the value of `variable`, separated by colons.
pub fn in_front(paths: &[PathBuf], variable: &str) -> OsString {
    let old = std::env::var_os(variable).filter(|old| !old.is_empty());
    let all: Vec<OsString> = paths.iter().map(|path| path.into()).chain(old).collect();
    all.join(OsStr::new(":"))
}

/// Has the program of `command` load irnic's library in place of libibverbs, even if the program brings its own. `more`
/// is preloaded after it; with `None`, nothing is preloaded, for a program that would not survive it.
pub fn put_in(command: &mut Command, library: &Path, more: Option<Vec<PathBuf>>) -> Result<(), RunError> {
    let directory = links::directory(library, &library::VERBS_NAMES)?;
    command.env("LD_LIBRARY_PATH", in_front(std::slice::from_ref(&directory), "LD_LIBRARY_PATH"));
    // A program may bring its own libibverbs, under another name or in a path that precedes LD_LIBRARY_PATH: symbols of
    // preloaded libraries are found first. `dlopen` looks up names and is answered by LD_LIBRARY_PATH.
    if let Some(mut preloads) = more {
        preloads.insert(0, directory.join(library::PRELOADED));
        command.env("LD_PRELOAD", in_front(&preloads, "LD_PRELOAD"));
    }
    Ok(())
}

/// Returns the path by which the library that gives programs a lab's time is preloaded.
pub fn clock_library() -> Result<PathBuf, RunError> {
    let clock = library::installed(library::CLOCK)?;
    Ok(links::directory(&clock, &[library::CLOCK_PRELOADED])?.join(library::CLOCK_PRELOADED))
}

/// Executes the application. Returns only on failure.
fn run(args: &RunArgs) -> Result<std::convert::Infallible, RunError> {
    let mut command = command(args, &args.variables()?, args.sysfs())?;
    let error = command.exec();
    Err(RunError::Exec { command: command.get_program().to_owned(), error })
}

/// Returns the application's command, with its environment, after a check of all settings. `shows_files`: it is shown
/// the files of the devices under /sys and /dev.
pub fn command(args: &RunArgs, variables: &Variables, shows_files: bool) -> Result<Command, RunError> {
    let (config, infos) = args.check(variables)?;
    let library = library::find(variables)?;
    args.prepare_outputs(&config)?;
    let (program, rest) = args.command();
    let obstacle = program::locate(program).and_then(|path| program::obstacle(&path));
    if let Some(obstacle) = obstacle {
        eprintln!("irnic: {} does not run on irnic: {obstacle}; programs that it starts may", program.display());
    }
    let mut command = Command::new(program);
    command.args(rest).envs(args.environment(variables, &config)?);
    let mut preloads = Vec::new();
    if shows_files {
        let sysfs = library::installed(library::SYSFS)?;
        preloads.push(links::directory(&sysfs, &[library::SYSFS_PRELOADED])?.join(library::SYSFS_PRELOADED));
        let directory = sysfs::directory(&infos)?;
        // Without a PATH, the C library has a default.
        if std::env::var_os("PATH").is_some() {
            command.env("PATH", in_front(&[directory.join(sysfs::PROGRAMS)], "PATH"));
        }
        command.env("IRNIC_SYSFS", directory);
    }
    put_in(&mut command, &library, (!matches!(obstacle, Some(Obstacle::Loader))).then_some(preloads))?;
    Ok(command)
}

/// Runs `irnic run`.
pub fn main(args: &RunArgs) -> ExitCode {
    let Err(error) = run(args);
    eprintln!("irnic: {error}");
    ExitCode::from(error.status())
}
