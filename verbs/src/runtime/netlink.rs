//! Notifications from the kernel that network interfaces have changed (rtnetlink(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of messages read at once. Their contents are ignored.
const BUFFER: usize = 8 << 10;

/// A socket that becomes readable when an interface or an address has changed.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// Opens a socket, in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Watch> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor with no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: a valid address of that length.
        match unsafe { libc::bind(fd, (&raw const address).cast(), len) } {
            0 => Ok(Watch(socket)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the descriptor.
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Discards all messages.
    pub(super) fn take(&self) {
        let mut buffer = [0u8; BUFFER];
        loop {
            // SAFETY: at most as many bytes are written as there is space for.
            let n = unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            // Messages that were dropped (ENOBUFS) mean the same.
            if n < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
                return;
            }
        }
    }
}
