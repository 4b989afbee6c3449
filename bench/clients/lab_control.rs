//! Faults on demand in a running `irnic lab`, from Rust: one file to copy, standard library only.
//!
//! ```ignore
//! let mut lab = lab_control::Lab::here()?;            // the lab that runs this process (IRNIC_LAB_CONTROL)
//! lab.ask("drop ack from 1 to 0 nth 3")?;
//! // … the test …
//! assert!(lab.ask("rules")?.contains("\"applied\":1"));
//! ```
//!
//! Commands: docs/lab-faults.md.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// A connection to the control socket of a lab.
#[derive(Debug)]
pub struct Lab {
    stream: BufReader<UnixStream>,
}

impl Lab {
    /// Connects to the lab that runs this process.
    ///
    /// # Errors
    /// `NotFound` without the variable IRNIC_LAB_CONTROL, else the system's.
    pub fn here() -> io::Result<Lab> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no IRNIC_LAB_CONTROL");
        Lab::at(std::env::var_os("IRNIC_LAB_CONTROL").ok_or_else(missing)?)
    }

    /// Connects to the lab whose control socket is at `place`: a path, or `@` and an abstract name.
    ///
    /// # Errors
    /// The system's.
    pub fn at(place: impl AsRef<OsStr>) -> io::Result<Lab> {
        let address = match place.as_ref().as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(place.as_ref())?,
        };
        Ok(Lab { stream: BufReader::new(UnixStream::connect_addr(&address)?) })
    }

    /// Sends a command and returns the answer, a line of JSON, when it has taken effect.
    ///
    /// # Errors
    /// `InvalidInput` with the answer if the lab did not do it, `UnexpectedEof` if the lab has ended, or the system's.
    pub fn ask(&mut self, command: &str) -> io::Result<String> {
        if command.contains(['\n', '\r']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a command is one line"));
        }
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the lab has ended");
        match self.stream.get_mut().write_all(format!("{command}\n").as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Err(ended()),
            written => written?,
        }
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        if answer.pop() != Some('\n') {
            return Err(ended());
        }
        match answer.starts_with("{\"ok\":true") {
            true => Ok(answer),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, answer)),
        }
    }
}
