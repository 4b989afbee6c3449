//! `irnic lab --shell`: a prompt for commands on hosts and for faults, like Mininet's.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

use irnic_ports::lab::Addressing;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use serde_json::Value;

use crate::control;
use crate::ctl::ask;
use crate::host::directory;
use crate::namespaces::Entrance;
use crate::top;

/// The first argument of the process; the number of hosts and their addressing follow.
pub const NAME: &str = "lab-shell";

const HELP: &str = "\
h0 COMMAND            runs a command on host 0; h0 COMMAND & does not wait for it. Words such as h1 are
                      replaced by addresses
hosts                 hosts and their addresses
links                 links and their rates
link h0 s0 down       the link fails; up: it works again; link h0 s0 down for 2s
pcap s0-h1 on         records packets of a port into s0-h1.pcapng; pcap FILE [PORTS] into another file,
                      those of all hosts; pcap off ends it
drop, corrupt, duplicate, delay, pause, resume, kill, rules, clear, stats, time
                      faults and queries, as for irnic ctl
sh COMMAND            runs a command outside the hosts
exit                  ends the lab; so does the end of the input

Commands that fail do not change the exit status.";

/// Returns the arguments of the process.
pub fn arguments(hosts: u32, addressing: Addressing) -> [OsString; 3] {
    [NAME.into(), hosts.to_string().into(), addressing.address(0).to_string().into()]
}

/// The lab of a prompt.
struct Shell {
    hosts: u32,
    /// Address of host 0; those of the others follow it.
    first: Ipv4Addr,
    background: Vec<(u32, Child)>,
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    Help,
    Exit,
    Hosts,
    Links,
    /// A command on a host, or outside of them, and whether to wait for it.
    Run {
        host: Option<u32>,
        command: String,
        waits: bool,
    },
    /// A command to the lab.
    Control(String),
}

/// Runs the prompt of a lab.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let text = |at: usize| arguments.get(at).and_then(|text| text.to_str()).unwrap_or_default();
    let (Ok(hosts), Ok(first)) = (text(0).parse(), text(1).parse()) else {
        eprintln!("irnic: {NAME} is started by irnic lab --shell");
        return ExitCode::from(2);
    };
    // Ctrl-C ends the command, not the prompt.
    if let Err(e) = irnic_report::interrupt::flag() {
        eprintln!("irnic: {e}");
    }
    let mut shell = Shell { hosts, first, background: Vec::new() };
    let read = if std::io::stdin().is_terminal() { shell.converse() } else { shell.read() };
    irnic_report::output::finish(match read {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("irnic: {e}");
            ExitCode::FAILURE
        }
    })
}

impl Shell {
    /// Carries out the lines that a user types, until the input ends.
    fn converse(&mut self) -> rustyline::Result<()> {
        let config = Config::builder().auto_add_history(true).build();
        let mut editor: Editor<(), MemHistory> = Editor::with_history(config, MemHistory::new())?;
        println!("{} hosts, h0 to h{}; help lists the commands.", self.hosts, self.hosts.saturating_sub(1));
        loop {
            self.report_ended();
            match editor.readline("irnic> ") {
                Ok(line) if self.obey(&line) => {}
                Err(ReadlineError::Interrupted) => {}
                Ok(_) | Err(ReadlineError::Eof) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Carries out the lines of a file or a pipe, of whatever bytes.
    fn read(&mut self) -> rustyline::Result<()> {
        for line in std::io::stdin().lock().split(b'\n') {
            self.report_ended();
            if !self.obey(&String::from_utf8_lossy(&line?)) {
                break;
            }
        }
        Ok(())
    }

    /// Carries out a line. Returns whether to go on.
    fn obey(&mut self, line: &str) -> bool {
        match parse(line, self.hosts) {
            Ok(Line::Exit) => return false,
            Ok(line) => self.carry_out(line),
            Err(why) => eprintln!("irnic: {why}"),
        }
        true
    }

    fn carry_out(&mut self, line: Line) {
        match line {
            Line::Nothing | Line::Exit => {}
            Line::Help => println!("{HELP}"),
            Line::Hosts => (0..self.hosts).for_each(|host| println!("h{host} {}", self.address(host))),
            Line::Links => match self.ask("stats") {
                Ok(stats) => print_links(&stats),
                Err(why) => eprintln!("irnic: {why}"),
            },
            Line::Control(command) => match self.ask(&command) {
                Ok(answer) => println!("{answer:#}"),
                Err(why) => eprintln!("irnic: {why}"),
            },
            Line::Run { host, command, waits } => {
                let with_addresses = self.with_addresses(&command);
                if let Err(e) = self.run(host, &with_addresses, waits) {
                    eprintln!("irnic: {e}");
                }
            }
        }
    }

    fn address(&self, host: u32) -> IpAddr {
        Ipv4Addr::from_bits(self.first.to_bits() + host).into()
    }

    /// Returns a command in which words that are hosts' names are their addresses.
    fn with_addresses(&self, command: &str) -> String {
        let word = |word: &str| match host_named(word, self.hosts) {
            Some(host) => self.address(host).to_string(),
            None => word.to_owned(),
        };
        command.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// Runs a command line.
    fn run(&mut self, host: Option<u32>, line: &str, waits: bool) -> std::io::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        if let Some(host) = host {
            command.env("IRNIC_LAB_HOST", host.to_string());
            if let Some(directory) = std::env::var(top::VARIABLE).ok().and_then(|socket| directory(&socket).ok()) {
                let entrance = Entrance::open(&directory, Some(host))?;
                // SAFETY: it makes system calls only.
                unsafe { command.pre_exec(move || entrance.enter()) };
            }
        }
        if !waits {
            // The terminal's Ctrl-C is not for it.
            command.process_group(0).stdin(std::process::Stdio::null());
        }
        let mut child = command.spawn()?;
        if waits {
            report("", child.wait()?);
        } else {
            let number = self.background.last().map_or(1, |(number, _)| number + 1);
            println!("[{number}] {}", child.id());
            self.background.push((number, child));
        }
        Ok(())
    }

    /// Reports commands in the background that have ended.
    fn report_ended(&mut self) {
        self.background.retain_mut(|(number, child)| match child.try_wait() {
            Ok(Some(status)) => {
                println!("[{number}] done");
                report(&format!("[{number}] "), status);
                false
            }
            Ok(None) => true,
            Err(_) => false,
        });
    }

    /// Sends a command to the lab. Returns its answer.
    fn ask(&self, command: &str) -> Result<Value, String> {
        let socket = std::env::var(control::VARIABLE).map_err(|_| format!("there is no {}", control::VARIABLE))?;
        let answer = ask(&socket, command).map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&answer).map_err(|e| e.to_string())?;
        if answer["ok"] != true {
            return Err(answer["error"].as_str().unwrap_or_default().to_owned());
        }
        answer.as_object_mut().map(|fields| fields.remove("ok"));
        Ok(answer)
    }
}

/// Reports a status other than success.
fn report(prefix: &str, status: ExitStatus) {
    match (status.code(), status.signal()) {
        (Some(0), _) | (None, Some(libc::SIGINT)) => {}
        (Some(code), _) => eprintln!("{prefix}exit status {code}"),
        (None, signal) => eprintln!("{prefix}signal {}", signal.unwrap_or(0)),
    }
}

fn print_links(stats: &Value) {
    let mut seen = Vec::new();
    for port in stats["ports"].as_array().into_iter().flatten() {
        let end = |name: &str| port[name].as_str().unwrap_or_default().to_owned();
        let (from, to) = (end("from"), end("to"));
        if !seen.contains(&(to.clone(), from.clone())) {
            let rate = port["rate_bps"].as_u64().unwrap_or(0);
            println!("{from}-{to} {}", irnic_units::BitRate(rate));
            seen.push((from, to));
        }
    }
}

/// Returns the host that a word names.
fn host_named(word: &str, hosts: u32) -> Option<u32> {
    word.strip_prefix('h')?.parse().ok().filter(|host| *host < hosts && word == format!("h{host}"))
}

/// Parses a line.
fn parse(line: &str, hosts: u32) -> Result<Line, String> {
    let line = line.trim();
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let run = |host| {
        let background = rest.strip_suffix('&').filter(|command| !command.ends_with('&'));
        match background.unwrap_or(rest).trim() {
            "" => Err(format!("{first}: expected a command")),
            command => Ok(Line::Run { host, command: command.to_owned(), waits: background.is_none() }),
        }
    };
    if let Some(host) = host_named(first, hosts) {
        return run(Some(host));
    }
    match first {
        "" => Ok(Line::Nothing),
        _ if first.starts_with('#') => Ok(Line::Nothing),
        "help" | "?" => Ok(Line::Help),
        "exit" | "quit" => Ok(Line::Exit),
        "hosts" | "nodes" => Ok(Line::Hosts),
        "links" | "net" => Ok(Line::Links),
        "sh" => run(None),
        "link" => Ok(Line::Control(link(rest))),
        "pcap" => Ok(Line::Control(pcap(rest))),
        _ if first.strip_prefix('h').is_some_and(|number| number.bytes().all(|c| c.is_ascii_digit())) => {
            Err(format!("{first}: there are {hosts} hosts, from h0 on"))
        }
        _ => Ok(Line::Control(line.to_owned())),
    }
}

/// Returns the command to the lab for what follows `link`: `h0 s0 down for 2s` is `link down h0-s0 for 2s`.
fn link(rest: &str) -> String {
    match &rest.split_whitespace().collect::<Vec<_>>()[..] {
        [a, b, state @ ("up" | "down"), more @ ..] => [&["link", state, &format!("{a}-{b}")], more].concat().join(" "),
        _ => format!("link {rest}"),
    }
}

/// Returns the command to the lab for what follows `pcap`: `s0-h1 on` is `pcap s0-h1.pcapng s0-h1`.
fn pcap(rest: &str) -> String {
    match rest.split_whitespace().collect::<Vec<_>>()[..] {
        [ports, "on"] => format!("pcap {}.pcapng {ports}", ports.replace(',', "+")),
        [_, "off"] => "pcap off".to_owned(),
        _ => format!("pcap {rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(host: Option<u32>, command: &str, waits: bool) -> Result<Line, String> {
        Ok(Line::Run { host, command: command.to_owned(), waits })
    }

    #[test]
    fn lines_are_commands_of_hosts_or_of_the_lab() {
        let control = |command: &str| Ok(Line::Control(command.to_owned()));
        for (line, expected) in [
            ("", Ok(Line::Nothing)),
            ("  # a comment", Ok(Line::Nothing)),
            (" h1  ib_write_bw -d irnic0 ", run(Some(1), "ib_write_bw -d irnic0", true)),
            ("h0 ib_write_bw &", run(Some(0), "ib_write_bw", false)),
            ("h0 true && false", run(Some(0), "true && false", true)),
            ("sh date", run(None, "date", true)),
            ("link h0 s0 down", control("link down h0-s0")),
            ("link h0 s0 down for 2s", control("link down h0-s0 for 2s")),
            ("link up h0-s0", control("link up h0-s0")),
            ("pcap s0-h1 on", control("pcap s0-h1.pcapng s0-h1")),
            ("pcap s0-h1 off", control("pcap off")),
            ("pcap a.pcapng s0", control("pcap a.pcapng s0")),
            ("drop ack nth 3", control("drop ack nth 3")),
            ("quit", Ok(Line::Exit)),
            ("h4 true", Err("h4: there are 4 hosts, from h0 on".to_owned())),
            ("h0", Err("h0: expected a command".to_owned())),
            ("h0 &", Err("h0: expected a command".to_owned())),
        ] {
            assert_eq!(parse(line, 4), expected, "{line}");
        }
    }

    #[test]
    fn names_of_hosts_are_replaced_where_they_are_words() {
        let shell = Shell { hosts: 300, first: Ipv4Addr::new(10, 77, 0, 1), background: Vec::new() };
        let replaced = shell.with_addresses("ping  h1 h299 h300 h01 -i h.h1 h1x");
        assert_eq!(replaced, "ping  10.77.0.2 10.77.1.44 h300 h01 -i h.h1 h1x");
    }
}
