//! Ports whose frames cross a network that another process emulates, by a clock that it keeps.
//!
//! A [`LabServer`] has the network. Each [`LabPort`] shares a pair of rings with it, in which frames go with the time
//! at which they began to leave their host, and come with the time at which they have arrived. So neither end has to
//! look at a frame when it is sent: a NIC does what is due at the time at which it is due ([`crate::Timed`]), and what
//! it sends bears that time, however late its process got a core.
//!
//! # The clock
//!
//! The server publishes a line, lab time against the host's clock, and a limit; the lab's time is the lesser of both. A
//! port publishes the earliest time at which it may send something of its own accord. While the limit is no further
//! ahead of the earliest of these times than a frame takes to the first switch, no frame comes too late, whoever waits
//! for a core: the lab's time stands still instead. Without a limit the lab's time goes on, and what comes too late is
//! counted.
//!
//! Or time waits for applications ([`ServerConfig::waits`]): it stands still while one of them acts. A port publishes
//! what its application does ([`crate::Application`]). Once all poll in vain or sleep, and no NIC has anything to do,
//! the server holds all ports ([`LabServer::try_hold`]), so that none begins a turn, has time go on to what happens
//! next, and releases them.
//!
//! # Trust
//!
//! All processes are of one user. A process that writes nonsense into its rings is dropped from the lab; it cannot
//! write into the memory that all share.

mod claims;
mod clock;
mod guest;
mod hello;
mod jumps;
mod member;
#[cfg(all(test, loom))]
mod model;
mod port;
mod process_page;
mod server;
mod spec;
#[cfg(all(test, not(loom)))]
mod tests;

pub use clock::Line;
pub use guest::GuestCounters;
pub use jumps::{Standing, Unasked};
pub use port::LabPort;
pub use process_page::{Departed, Shown};
pub use server::{Arriving, LabServer, Lateness, Leaving, Member, MemberId, ServerConfig, Waker};
pub use spec::{Assignment, LabSpec, ParseLabSpecError};

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use crate::host::sys;

/// The first message of a process: a magic, and the version of the protocol and of all that is in shared memory.
const HELLO: [u8; 8] = *b"IRNICLB\x02";

/// Most hosts of a lab.
pub const MAX_HOSTS: u32 = 65_000;

/// Returns whether the process at the other end of a unix socket is of this process's user.
pub fn is_own_peer(socket: BorrowedFd<'_>) -> bool {
    sys::peer_user(socket).is_ok_and(sys::is_own_user)
}

/// What addresses the hosts of a lab have: one after the other, host 0 the first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// From 127.77.0.1 on, which Linux answers on the loopback interface without anybody configuring them.
    #[default]
    Loopback,
    /// From 10.77.0.1 on. No interface has them: what is not RDMA goes elsewhere.
    Detached,
    /// From 10.77.0.1 on, each in its host's network namespace.
    Namespaces,
}

impl Addressing {
    const ALL: [Addressing; 3] = [Addressing::Loopback, Addressing::Detached, Addressing::Namespaces];

    /// The address before that of host 0.
    #[inline]
    fn base(self) -> u32 {
        match self {
            Addressing::Loopback => const { Ipv4Addr::new(127, 77, 0, 0).to_bits() },
            Addressing::Detached | Addressing::Namespaces => const { Ipv4Addr::new(10, 77, 0, 0).to_bits() },
        }
    }

    /// Returns the address of a host.
    #[inline]
    pub fn address(self, host: u32) -> IpAddr {
        Ipv4Addr::from_bits(self.base() + 1 + host).into()
    }

    /// Returns the host that has an address, of a lab of so many `hosts`.
    #[inline]
    pub fn host_of(self, address: IpAddr, hosts: u32) -> Option<u32> {
        let IpAddr::V4(v4) = address else { return None };
        let host = v4.to_bits().wrapping_sub(self.base() + 1);
        (host < hosts).then_some(host)
    }
}

/// Returns the host that has an address, of a lab of so many `hosts` whose addressing is not known.
pub fn host_of(address: IpAddr, hosts: u32) -> Option<u32> {
    Addressing::ALL.into_iter().find_map(|addressing| addressing.host_of(address, hosts))
}
