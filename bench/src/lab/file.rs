//! Lab files: the keys of a network as experiment files have them, the clock, and the hosts with their commands.

use std::path::Path;

use irnic_units::toml as lines;
use toml::Spanned;
use toml::de::DeValue;

use super::LabError;
use super::args::pace;
use super::switchd::Pace;
use crate::sim::SimError;
use crate::sim::file::{ExperimentFile, Reader, read_with};

/// A command on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCommand {
    /// Number of the host.
    pub host: u32,
    /// For a shell.
    pub command: String,
    /// How long after the beginning it starts, ns of the host's time.
    pub after: u64,
    /// It is a service: the lab does not wait for its end, and ends it.
    pub service: bool,
}

/// What a lab file says.
pub struct LabFile {
    /// The network.
    pub experiment: ExperimentFile,
    /// How time goes.
    pub clock: Option<Pace>,
    /// Who runs what.
    pub hosts: Vec<HostCommand>,
}

/// Reads a file.
pub fn read(path: &Path) -> Result<LabFile, LabError> {
    let (mut clock, mut hosts) = (None, Vec::new());
    let experiment = read_with(path, &mut |reader, name, value| match name {
        "clock" => {
            let at = value.span().start;
            let text = lines::word(value.get_ref()).unwrap_or_default();
            clock = Some(pace(&text).map_err(|why| reader.error(at, format!("clock = {text:?}: {why}")))?);
            Ok(true)
        }
        "host" => {
            let DeValue::Array(tables) = value.get_ref() else {
                return Err(reader.error(value.span().start, "hosts are tables: write [[host]]"));
            };
            for table in tables.iter() {
                hosts.push(host(reader, table)?);
            }
            Ok(true)
        }
        _ => Ok(false),
    })?;
    Ok(LabFile { experiment, clock, hosts })
}

fn host(reader: &Reader<'_>, value: &Spanned<DeValue<'_>>) -> Result<HostCommand, SimError> {
    let at = value.span().start;
    let DeValue::Table(table) = value.get_ref() else {
        return Err(reader.error(at, "hosts are tables: write [[host]]"));
    };
    let mut read = HostCommand::default();
    let (mut number, mut command) = (None, None);
    for (name, value) in table {
        let at = value.span().start;
        let text = lines::word(value.get_ref()).unwrap_or_default();
        let wrong = |expected: &str| reader.error(at, format!("{} = {text:?}: expected {expected}", name.get_ref()));
        match name.get_ref().as_ref() {
            "host" => number = Some(text.parse().map_err(|_| wrong("the number of a host"))?),
            "command" => command = Some(text.clone()).filter(|text| !text.is_empty()),
            "after" => read.after = irnic_units::time(&text).ok_or_else(|| wrong(irnic_units::TIME))?,
            "service" => {
                read.service = match text.as_str() {
                    "on" | "true" => true,
                    "off" | "false" => false,
                    _ => return Err(wrong("on or off")),
                }
            }
            other => {
                let why = format!("unknown key {other:?} of a host; known are host, command, after, service");
                return Err(reader.error(name.span().start, why));
            }
        }
    }
    read.host = number.ok_or_else(|| reader.error(at, "a host has a number: host = 0"))?;
    read.command = command.ok_or_else(|| reader.error(at, "a host has a command, such as command = \"ib_send_bw\""))?;
    Ok(read)
}
