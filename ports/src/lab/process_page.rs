//! The numbers that processes of a lab publish, and those that remain after their end.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

use crate::sheet::SheetReader;

/// Longest abstract name (unix(7)).
pub(super) const NAME: usize = 107;

/// Numbers published by a process.
pub struct Shown {
    /// The numbers. They are untrusted.
    pub sheet: SheetReader,
    name: SocketAddr,
}

impl Shown {
    pub(super) fn new(sheet: SheetReader, name: &[u8]) -> io::Result<Shown> {
        Ok(Shown { sheet, name: SocketAddr::from_abstract_name(name)? })
    }

    /// Asks the process to update its sheet, without waiting until it has.
    pub fn request_update(&self) {
        // A process that does not respond, because it is stopped, is not asked again.
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(&[], &self.name)
        });
    }
}

/// A process that has left a lab, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Number of processes that left before it.
    pub number: u64,
    /// Its host.
    pub host: u32,
    /// Process id, as seen by this process; 0 if unknown.
    pub process: u32,
    /// Process group; 0 if unknown.
    pub group: u32,
    /// Its share of the host's queue pair numbers.
    pub slot: u16,
    /// Its last published numbers, if any. They are untrusted.
    pub numbers: Option<Arc<[u64]>>,
}

/// Returns the process group of a process; 0 if unknown.
pub(super) fn group_of(process: u32) -> u32 {
    // SAFETY: no memory is passed.
    let group = if process == 0 { 0 } else { unsafe { libc::getpgid(process as libc::pid_t) } };
    u32::try_from(group).unwrap_or(0)
}
