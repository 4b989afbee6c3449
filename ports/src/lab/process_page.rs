//! What processes of a lab show of themselves, and leave behind.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

use crate::sheet::SheetReader;

/// Longest abstract name (unix(7)).
pub(super) const NAME: usize = 107;

/// What a process shows of itself.
pub struct Shown {
    /// The numbers. They may be anything.
    pub sheet: SheetReader,
    name: SocketAddr,
}

impl Shown {
    pub(super) fn new(sheet: SheetReader, name: &[u8]) -> io::Result<Shown> {
        Ok(Shown { sheet, name: SocketAddr::from_abstract_name(name)? })
    }

    /// Asks the process to write its sheet anew, and does not wait until it has.
    pub fn ask(&self) {
        // One that does not hear, because it is stopped, is not asked again.
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(&[], &self.name)
        });
    }
}

/// A process that has left a lab, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// How many have left before it.
    pub number: u64,
    /// Its host.
    pub host: u32,
    /// Its id, as this process sees it; 0 if it cannot be told.
    pub process: u32,
    /// Its process group; 0 if it cannot be told.
    pub group: u32,
    /// Its share of the host's queue pair numbers.
    pub slot: u16,
    /// The numbers that it has left, if it has shown any. They may be anything.
    pub numbers: Option<Arc<[u64]>>,
}

/// Returns the process group of a process; 0 if it cannot be told.
pub(super) fn group_of(process: u32) -> u32 {
    // SAFETY: no memory is passed.
    let group = if process == 0 { 0 } else { unsafe { libc::getpgid(process as libc::pid_t) } };
    u32::try_from(group).unwrap_or(0)
}
