//! Lab files: network keys as in experiment files, the clock, and the hosts with their commands.

use std::path::Path;

use clap::ValueEnum;
use irnic_ports::frames::{FrameSpec, ParseFrameSpecError};
use irnic_report::CommandError;
use irnic_sim::file::{ExperimentFile, Reader, read_with};
use irnic_units::{did_you_mean, toml as lines};
use toml::Spanned;
use toml::de::DeValue;

use crate::args::Tcp;
use crate::error::LabError;
use crate::pace::{Pace, pace};

/// When a command starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this delay from the beginning of the lab, ns of the machine's time.
    After(u64),
    /// Once all commands of a host listen or have ended.
    Listening(u32),
}

impl Default for Start {
    fn default() -> Start {
        Start::After(0)
    }
}

/// A command on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCommand {
    /// Number of the host.
    pub host: u32,
    /// Command line for a shell.
    pub command: String,
    /// When it starts.
    pub start: Start,
    /// Whether it is a service: the lab does not wait for its end, and terminates it.
    pub service: bool,
}

impl HostCommand {
    /// Returns the host for whose commands it waits.
    pub fn awaited(&self) -> Option<u32> {
        match self.start {
            Start::Listening(host) => Some(host),
            Start::After(_) => None,
        }
    }
}

/// Contents of a lab file.
#[derive(Default)]
pub struct LabFile {
    /// The network.
    pub experiment: ExperimentFile,
    /// The lab's clock.
    pub clock: Option<Pace>,
    /// Commands of hosts.
    pub hosts: Vec<HostCommand>,
    /// Hosts that are Ethernet stations, and the carriers of their packets.
    pub guests: Vec<(u32, FrameSpec)>,
    /// Whether hosts have network namespaces.
    pub netns: bool,
    /// How IP packets of these travel.
    pub tcp: Option<Tcp>,
}

/// What a lab file has besides the keys of experiments, and the keys of a host.
const OTHERS: [&str; 4] = ["clock", "netns", "tcp", "[[host]]"];
const OF_HOST: [&str; 5] = ["host", "command", "after", "service", "frames"];

/// Reads a file.
pub fn read(path: &Path) -> Result<LabFile, LabError> {
    let (mut clock, mut netns, mut tcp, mut hosts, mut guests) = (None, false, None, Vec::new(), Vec::new());
    let experiment = read_with(path, &OTHERS, &mut |reader, name, value| match name {
        "clock" => {
            let at = value.span().start;
            let text = lines::word(value.get_ref()).unwrap_or_default();
            clock = Some(pace(&text).map_err(|why| reader.error(at, format!("clock = {text:?}: {why}")))?);
            Ok(true)
        }
        "netns" => {
            let at = value.span().start;
            let text = lines::word(value.get_ref()).unwrap_or_default();
            netns = switch(&text).ok_or_else(|| reader.error(at, format!("netns = {text:?}: expected on or off")))?;
            Ok(true)
        }
        "tcp" => {
            let at = value.span().start;
            let text = lines::word(value.get_ref()).unwrap_or_default();
            let known = Tcp::from_str(&text, false).ok();
            tcp = Some(known.ok_or_else(|| reader.error(at, format!("tcp = {text:?}: expected bridge or emulated")))?);
            Ok(true)
        }
        "host" => {
            let DeValue::Array(tables) = value.get_ref() else {
                return Err(reader.error(value.span().start, "hosts are tables: write [[host]]"));
            };
            let mut places = Vec::new();
            for table in tables.iter() {
                let (command, frames) = host(reader, table)?;
                guests.extend(frames.map(|frames| (command.host, frames)));
                if !command.command.is_empty() {
                    hosts.push(command);
                    places.push(table.span().start);
                }
            }
            if let Some((at, of)) = never_started(&hosts) {
                let why = match hosts.iter().any(|host| host.host == of) {
                    true => "has a command that waits for this one",
                    false => "has no command",
                };
                return Err(reader.error(places[at], format!("after = \"h{of}\": host {of} {why}")));
            }
            Ok(true)
        }
        _ => Ok(false),
    })?;
    Ok(LabFile { experiment, clock, hosts, guests, netns, tcp })
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

fn start(text: &str) -> Option<Start> {
    let host = || text.strip_prefix('h')?.parse().ok().filter(|host| text == format!("h{host}")).map(Start::Listening);
    irnic_units::time(text).map(Start::After).or_else(host)
}

/// Finds a command that would never start, because the host for which it waits has no commands, or has one that waits
/// for this one's. Returns its index and that host.
fn never_started(hosts: &[HostCommand]) -> Option<(usize, u32)> {
    let mut left: Vec<(usize, u32)> =
        hosts.iter().enumerate().filter_map(|(at, host)| host.awaited().map(|of| (at, of))).collect();
    loop {
        let starts = |of: u32| {
            hosts.iter().any(|host| host.host == of) && left.iter().all(|(other, _)| hosts[*other].host != of)
        };
        let rest: Vec<(usize, u32)> = left.iter().copied().filter(|(_, of)| !starts(*of)).collect();
        if rest.len() == left.len() {
            return rest.first().copied();
        }
        left = rest;
    }
}

/// Reads a host: its command, empty if it has none, and the carrier of its packets, if it is not a process.
fn host(reader: &Reader<'_>, value: &Spanned<DeValue<'_>>) -> Result<(HostCommand, Option<FrameSpec>), CommandError> {
    let at = value.span().start;
    let DeValue::Table(table) = value.get_ref() else {
        return Err(reader.error(at, "hosts are tables: write [[host]]"));
    };
    let mut read = HostCommand::default();
    let (mut number, mut command, mut frames) = (None, None, None);
    for (name, value) in table {
        let at = value.span().start;
        let text = lines::word(value.get_ref()).unwrap_or_default();
        let wrong = |expected: &str| reader.error(at, format!("{} = {text:?}: expected {expected}", name.get_ref()));
        match name.get_ref().as_ref() {
            "host" => number = Some(text.parse().map_err(|_| wrong("the number of a host"))?),
            "command" => command = Some(text.clone()).filter(|text| !text.is_empty()),
            "after" => {
                read.start = start(&text).ok_or_else(|| wrong(&format!("{}, or a host, h0", irnic_units::TIME)))?
            }
            "service" => read.service = switch(&text).ok_or_else(|| wrong("on or off"))?,
            "frames" => {
                let why = |e: ParseFrameSpecError| reader.error(at, format!("frames = {text:?}: {e}"));
                frames = Some(text.parse::<FrameSpec>().map_err(why)?);
            }
            other => {
                let (known, meant) = (OF_HOST.join(", "), did_you_mean(other, OF_HOST));
                let why = format!("unknown key {other:?} of a host; known are {known}{meant}");
                return Err(reader.error(name.span().start, why));
            }
        }
    }
    read.host = number.ok_or_else(|| reader.error(at, "a host has a number: host = 0"))?;
    if command.is_none() && frames.is_none() {
        return Err(reader.error(at, "a host has a command, such as command = \"ib_send_bw\", or frames"));
    }
    read.command = command.unwrap_or_default();
    Ok((read, frames))
}
