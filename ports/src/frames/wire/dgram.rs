//! A pair of unix datagram sockets, one packet in each datagram, as in QEMU's `-netdev dgram`.
//!
//! The socket is connected to the peer's path, so that the kernel reports when a full peer has room again (a peer that
//! is not connected itself, such as QEMU, queues ten datagrams: net.unix.max_dgram_qlen). A connection is to a socket,
//! not to a path: it is renewed when the peer has closed, and once a second in case another socket has its path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use irnic_transports::Time;
use irnic_transports::time::{MS, SEC};

use super::sys;
use crate::PortCounters;
use crate::frames::queue::TxQueue;
use crate::frames::sent::Sent;

/// Interval of checks of the peer's path while there is a peer, and while there is none, in ns.
const CHECK_INTERVAL: u64 = SEC;
const SEARCH_INTERVAL: u64 = 20 * MS;

/// A datagram socket at a path.
pub(in super::super) struct Dgram {
    socket: OwnedFd,
    local: PathBuf,
    /// Device and inode of the socket's file, which another program may have replaced since.
    file: Option<(u64, u64)>,
    remote: PathBuf,
    connected: bool,
    next_check: Time,
}

impl Dgram {
    pub(super) fn open(local: &Path, remote: &Path, socket_buffer: usize) -> io::Result<Dgram> {
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        sys::set_buffers(socket.as_fd(), socket_buffer)?;
        match name(socket.as_fd(), local, libc::bind) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_abandoned(local)? => {
                std::fs::remove_file(local)?;
                name(socket.as_fd(), local, libc::bind)?;
            }
            result => result?,
        }
        let file = identity(local);
        let mut dgram = Dgram {
            socket,
            local: local.into(),
            file,
            remote: remote.into(),
            connected: false,
            next_check: Time::ZERO,
        };
        dgram.connect();
        Ok(dgram)
    }

    /// Connects to the socket at the peer's path. Fails if there is none, or if it is still connected to an earlier
    /// peer.
    fn connect(&mut self) -> bool {
        self.connected = name(self.socket.as_fd(), &self.remote, libc::connect).is_ok();
        self.connected
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.next_check
    }

    pub(super) fn check_peer(&mut self, now: Time) {
        if now >= self.next_check {
            let connected = self.connect();
            self.next_check = now + if connected { CHECK_INTERVAL } else { SEARCH_INTERVAL };
        }
    }

    pub(super) fn send(&mut self, queue: &mut TxQueue, counters: &mut PortCounters) -> Sent {
        let mut outcome = Sent::default();
        let mut again = true;
        while !queue.is_empty() {
            if !self.connected && !self.connect() {
                // There is no peer.
                counters.refused += queue.advance(queue.len());
                break;
            }
            match sys::send(self.socket.as_fd(), queue.pending(), queue.len(), counters) {
                Ok(count) => counters.tx_frames += queue.advance(count),
                Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    outcome.full = true;
                    break;
                }
                // The peer has closed its socket or opened another one; there may be a new one.
                Err(libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN | libc::EPIPE | libc::EPERM) if again => {
                    self.connected = false;
                    again = false;
                }
                Err(libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN | libc::EPIPE | libc::EPERM) => {
                    self.connected = false;
                    counters.refused += queue.advance(queue.len());
                }
                Err(error) => {
                    let len = queue.pending().next().map_or(0, <[u8]>::len);
                    outcome.failed.get_or_insert((len, error));
                    counters.tx_dropped += queue.advance(1);
                }
            }
        }
        outcome
    }
}

impl AsFd for Dgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Dgram {
    /// Removes the socket's file, unless another program has replaced it.
    pub(super) fn remove_file(&mut self) {
        if self.file.is_some() && identity(&self.local) == self.file {
            // It may have been removed in the meantime.
            let _ = std::fs::remove_file(&self.local);
        }
        self.file = None;
    }
}

impl Drop for Dgram {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Returns whether a path is that of a socket which no process has open any more.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM)?;
    let refused = name(probe.as_fd(), path, libc::connect).err().and_then(|e| e.raw_os_error());
    Ok(refused == Some(libc::ECONNREFUSED))
}

type Call = unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

/// Binds or connects a socket to a path.
fn name(socket: BorrowedFd<'_>, path: &Path, call: Call) -> io::Result<()> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays NUL.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind and connect read an address of the length given.
    if unsafe { call(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
