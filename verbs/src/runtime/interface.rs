//! Notifications from the kernel that network interfaces have changed (rtnetlink(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use irnic_transports::wire::Mtu;

use super::state::State;
use super::unit::Unit;
use crate::gid::{address_of, interfaces};

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
    fn take(&self) {
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

impl State {
    /// Makes future queue pairs and connections use an interface's MTU.
    fn follow_mtu(&mut self, mtu: Mtu) {
        self.nic().set_mtu(mtu);
        self.manager.set_mtu(mtu);
    }

    /// Updates the device from the link of a port that knows it.
    pub(super) fn follow_link(&mut self) {
        let up = self.port().link_is_up();
        if up != self.live.get().up {
            self.presence.heard = true;
            self.live.set_up(up);
        }
    }
}

impl Unit {
    /// Updates the device from its interface, and the unit's port from the device's addresses.
    pub(super) fn follow_interface(&self) {
        let Some(watch) = &self.watch else { return };
        // First, so that changes after the read are reported.
        watch.take();
        // Without memory or descriptors the state is kept until the next change.
        let Ok(interfaces) = interfaces() else { return };
        let mut state = self.state.lock();
        self.live().follow(&interfaces);
        let info = self.info();
        state.follow_mtu(info.mtu);
        for gid in &info.gids {
            state.port().add_address(address_of(gid));
        }
        self.unlock(state);
    }
}
