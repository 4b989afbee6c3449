//! `irnic ctl`: sends commands and queries to a running lab.

use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::control::{SUFFIX, VARIABLE};
use crate::socket::{connect, find};

const AFTER_HELP: &str = "\
Commands:
  drop|corrupt|duplicate|delay TIME  [KIND] [from HOST] [to HOST] [qp NUMBER] [nth N] [count N|all]
        KIND: any, data, send, write, read-request, read-response, atomic, atomic-response, ack, nak, rnr, cnp
  link down LINK [for TIME]          link up LINK
  pause PRIORITY host HOST [for TIME]     resume PRIORITY host HOST
  kill HOST
  pcap FILE [PORTS]                  pcap off
  rules      clear [RULE]      stats      time

The answer is one line of JSON: {\"ok\":true,...}. Times are in lab time.
Exit status: 0 done, 1 refused or no lab found, 2 bad arguments.

Examples, in a script run by irnic lab:
  irnic ctl drop ack from 1 to 0 nth 3
  irnic ctl link down h0-s0 for 2s
  irnic ctl rules";

/// Inject faults into a running irnic lab: lost frames, dead links, paused and killed hosts.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct CtlArgs {
    /// Control socket of the lab, as given to its --control [default: IRNIC_LAB_CONTROL, which is set for a lab's
    /// processes; else the only lab of this user]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Command to send to the lab
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Sends a command. Returns the answer, without the newline.
pub fn ask(socket: &str, command: &str) -> io::Result<String> {
    let mut lab = connect(socket)?;
    lab.write_all(format!("{command}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(lab).read_line(&mut answer)?;
    match answer.strip_suffix('\n') {
        Some(answer) => Ok(answer.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the lab has ended")),
    }
}

/// Runs `irnic ctl`.
pub fn main(args: &CtlArgs) -> ExitCode {
    let socket = match find(args.socket.clone(), VARIABLE, SUFFIX) {
        Ok(socket) => socket,
        Err(why) => {
            eprintln!("irnic: {why}");
            return ExitCode::from(1);
        }
    };
    let command = args.command.join(" ");
    if command.contains(['\n', '\r']) {
        eprintln!("irnic: a command is one line");
        return ExitCode::from(2);
    }
    match ask(&socket, &command) {
        Ok(answer) => match serde_json::from_str::<Value>(&answer) {
            Ok(parsed) if parsed["ok"] == true => {
                println!("{answer}");
                ExitCode::SUCCESS
            }
            parsed => {
                let error = parsed.ok().and_then(|parsed| parsed["error"].as_str().map(str::to_owned));
                eprintln!("irnic: {}", error.unwrap_or(answer));
                ExitCode::from(1)
            }
        },
        Err(error) => {
            eprintln!("irnic: the lab at {socket}: {error}");
            ExitCode::from(1)
        }
    }
}
