//! The lab of a device as configured by users, and the lab's answer.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use super::Addressing;
use super::hello::request_assignment;

/// A lab, by the socket of its server, and the place in it: `PATH`, or `PATH,host=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabSpec {
    /// Socket of the server: a path, or `@` and an abstract name.
    pub socket: PathBuf,
    /// Number of the host; `None` leaves it to the server.
    pub host: Option<u32>,
}

/// Place of a device in a lab.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Number of the host.
    pub host: u32,
    /// Hosts of the lab.
    pub hosts: u32,
    /// Rate of the host's link, bit/s.
    pub rate: u64,
    /// Addresses of the hosts.
    pub addressing: Addressing,
}

/// A text that is not a [`LabSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected lab:SOCKET or lab:SOCKET,host=N")]
pub struct ParseLabSpecError;

impl LabSpec {
    /// Asks the server for the host of this process, which is the same each time.
    ///
    /// # Errors
    /// If there is no server, no such host, or a server of another version.
    pub fn assign(&self) -> io::Result<Assignment> {
        request_assignment(self)
    }
}

impl FromStr for LabSpec {
    type Err = ParseLabSpecError;

    fn from_str(text: &str) -> Result<LabSpec, ParseLabSpecError> {
        let (socket, host) = match text.split_once(",host=") {
            Some((socket, host)) => (socket, Some(host.parse().map_err(|_| ParseLabSpecError)?)),
            None => (text, None),
        };
        if socket.is_empty() { Err(ParseLabSpecError) } else { Ok(LabSpec { socket: socket.into(), host }) }
    }
}

impl fmt::Display for LabSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.socket.display())?;
        self.host.map_or(Ok(()), |host| write!(f, ",host={host}"))
    }
}
