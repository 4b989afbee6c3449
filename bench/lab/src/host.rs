//! `irnic host`: runs a command on a host of a lab whose hosts have network namespaces; also acts as ssh and rsh, for
//! programs that start others on hosts by these.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use irnic_launch::run::RunError;

use crate::namespaces::Entrance;
use crate::{socket, top};

/// The variable with the number of a process's host.
const VARIABLE: &str = "IRNIC_LAB_HOST";

/// Options of ssh and rsh that take a value.
const VALUED: &[u8] = b"BbcDEeFIiJLlmOopQRSWw";

const AFTER_HELP: &str = "\
In a lab with --netns, ssh and rsh run this command: `ssh h1 hostname`, `mpirun --host h0,h1 ./app`.
Exit status: the command's; 1 no such lab or host, 126 the command cannot be executed, 127 the
command was not found, 2 bad options.

Examples, in a script run by irnic lab --netns:
  irnic host 0 -- ib_write_bw -d irnic0 &
  irnic host h1 -- ib_write_bw -d irnic0 h0
In another terminal:
  irnic host 1 -- ip addr";

/// Run a command on a host of a lab with network namespaces (irnic lab --netns).
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct HostArgs {
    /// Statistics socket of the lab, as for irnic top [default: IRNIC_LAB; else the only lab of this user]
    #[arg(long, value_name = "SOCKET")]
    socket: Option<String>,
    /// Host number, such as 1 or h1
    #[arg(value_name = "HOST", value_parser = number)]
    host: u32,
    /// Command to run and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Parses the name of a host.
fn number(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix('h').unwrap_or(text).parse().ok();
    number.ok_or_else(|| format!("{text:?}: expected the number of a host, such as 1 or h1"))
}

/// Returns the directory of a lab, by its socket.
pub fn directory(socket: &str) -> Result<PathBuf, String> {
    let directory = Path::new(socket).parent().filter(|_| !socket.starts_with('@'));
    directory
        .map(Path::to_owned)
        .ok_or_else(|| format!("the lab at {socket} has no network namespaces: irnic lab --netns"))
}

/// Executes a command on a host. Returns only on failure.
fn run(socket: Option<String>, host: u32, mut command: Command) -> RunError {
    let entered = socket::find(socket, top::VARIABLE, top::SUFFIX).and_then(|socket| {
        let enter = |directory: PathBuf| Entrance::open(&directory, Some(host))?.enter();
        enter(directory(&socket)?).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => format!("the lab at {socket} has no host {host}, or has ended"),
            _ => format!("host {host} of the lab at {socket}: {e}"),
        })
    });
    match entered {
        Err(why) => RunError::Failed(why),
        Ok(()) => {
            let error = command.env(VARIABLE, host.to_string()).exec();
            RunError::Exec { command: command.get_program().to_owned(), error }
        }
    }
}

fn failed(error: &RunError) -> ExitCode {
    eprintln!("irnic: {error}");
    ExitCode::from(error.status())
}

/// Runs `irnic host`.
pub fn main(args: HostArgs) -> ExitCode {
    let [program, rest @ ..] = &args.command[..] else { return ExitCode::from(2) };
    let mut command = Command::new(program);
    command.args(rest);
    failed(&run(args.socket, args.host, command))
}

/// Splits a command line of ssh or rsh into the host and the command.
fn split_command_line(arguments: &[OsString]) -> Option<(&OsStr, &[OsString])> {
    let mut host: Option<&OsStr> = None;
    let mut rest = arguments;
    // Options come before the host, and directly after it.
    while let [word, more @ ..] = rest {
        match word.as_bytes() {
            b"--" => {
                rest = more;
                break;
            }
            [b'-', options @ ..] if !options.is_empty() => {
                let valued = options.iter().position(|option| VALUED.contains(option));
                let apart = valued.is_some_and(|at| at + 1 == options.len());
                rest = if apart { more.get(1..).unwrap_or_default() } else { more };
            }
            _ if host.is_none() => {
                host = Some(word);
                rest = more;
            }
            _ => break,
        }
    }
    host.map(|host| (host, rest))
}

/// Acts as ssh or rsh: the words of the command are joined and interpreted by a shell.
pub fn agent(arguments: &[OsString]) -> ExitCode {
    let Some((name, command)) = split_command_line(arguments) else {
        eprintln!("irnic: expected the name of a host, such as h1, and a command");
        return ExitCode::from(255);
    };
    // Of user@host.
    let name = name.to_string_lossy();
    let host = match number(name.rsplit('@').next().unwrap_or_default()) {
        Ok(host) => host,
        Err(why) => {
            eprintln!("irnic: in a lab ssh and rsh reach its hosts only: {why}");
            return ExitCode::from(255);
        }
    };
    let mut shell = match command {
        [] => Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "sh".into())),
        _ => Command::new("sh"),
    };
    if !command.is_empty() {
        shell.arg("-c").arg(command.join(OsStr::new(" ")));
    }
    failed(&run(None, host, shell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_ssh_name_a_host_and_a_command() {
        for (line, host, command) in [
            ("h1 hostname", "h1", "hostname"),
            ("-x h1 sh -c x", "h1", "sh -c x"),
            ("-o A=b -q -xp 22 me@h1 -n ls -l", "me@h1", "ls -l"),
            ("-oA=b h1 -- -l", "h1", "-l"),
            ("h1", "h1", ""),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let (found, rest) = split_command_line(&arguments).unwrap();
            assert_eq!((found, rest.join(OsStr::new(" "))), (OsStr::new(host), command.into()), "{line}");
        }
        for line in ["-x", "-p 22", "--"] {
            let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(split_command_line(&arguments), None, "{line}");
        }
    }

    #[test]
    fn hosts_have_numbers() {
        assert_eq!((number("3"), number("h12")), (Ok(3), Ok(12)));
        for wrong in ["", "h", "x1", "-1", "localhost"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
