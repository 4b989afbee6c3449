//! Ports whose frames cross a network that another process emulates, by a clock that it keeps.
//!
//! A [`LabServer`] has the network. Each [`LabPort`] shares a pair of rings with it. A frame in them carries the time
//! at which it began to leave its host, or has arrived at its destination. So neither end needs to examine a frame when
//! it is sent: a NIC performs its work as of the time at which it is due ([`crate::Timed`]), and what it sends carries
//! that time, however late its process was scheduled.
//!
//! # The clock
//!
//! The server publishes a line, lab time against the host's clock, and a limit; lab time is the lesser of both. A port
//! publishes the earliest time at which it may send something on its own. While the limit is ahead of the earliest of
//! these times by at most the time that a frame takes to the first switch, no frame comes too late, whichever process
//! waits for a core: lab time stops instead. Without a limit lab time continues, and late frames are counted.
//!
//! A server with nothing to do before the next known event sets the limit to that and sleeps. The first port that
//! begins a turn then stops time for all, until the server is awake and continues from there.
//!
//! Alternatively time waits for applications ([`ServerConfig::waits`]): it stops while one of them acts. A port
//! publishes the activity of its application ([`crate::Application`]). Once all poll in vain or sleep, and no NIC has
//! work, the server holds all ports ([`LabServer::try_hold`]), so that none begins a turn, advances time to the next
//! event, and releases them.
//!
//! # Trust
//!
//! All processes belong to one user. A process that writes garbage into its rings is dropped from the lab; it cannot
//! write to the memory that all share.

mod claims;
mod clock;
mod guest;
mod held;
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
mod tun;

pub use claims::Listeners;
pub use clock::{LabClock, Line};
pub use guest::GuestCounters;
pub use jumps::{Standing, Unasked};
pub use port::LabPort;
pub use process_page::{Departed, Shown};
pub use server::{Arriving, LabServer, Lateness, Leaving, Member, MemberId, ServerConfig, Waker};
pub use spec::{Assignment, LabSpec, ParseLabSpecError};
pub use tun::{IpCounters, MTU as IP_MTU};

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use crate::host::sys;

/// The first message of a process: a magic, and the version of the protocol and of everything in shared memory.
const HELLO: [u8; 8] = *b"IRNICLB\x02";

/// Maximum number of hosts of a lab.
pub const MAX_HOSTS: u32 = 65_000;

/// Returns whether the process at the other end of a unix socket runs as this process's user.
pub fn is_own_peer(socket: BorrowedFd<'_>) -> bool {
    sys::peer_user(socket).is_ok_and(sys::is_own_user)
}

/// Addresses of the hosts of a lab: consecutive, host 0 the first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// From 127.77.0.1 on, which Linux answers on the loopback interface without configuration.
    #[default]
    Loopback,
    /// From 10.77.0.1 on, on no interface: only RDMA reaches them.
    Detached,
    /// From 10.77.0.1 on, each in its host's network namespace.
    Namespaces,
}

impl Addressing {
    const ALL: [Addressing; 3] = [Addressing::Loopback, Addressing::Detached, Addressing::Namespaces];

    /// The address before host 0's.
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

    /// Returns the host that has an address, in a lab of `hosts` hosts.
    #[inline]
    pub fn host_of(self, address: IpAddr, hosts: u32) -> Option<u32> {
        let IpAddr::V4(v4) = address else { return None };
        let host = v4.to_bits().wrapping_sub(self.base() + 1);
        (host < hosts).then_some(host)
    }
}

/// Returns the host that has an address, in a lab of `hosts` hosts with unknown addressing.
pub fn host_of(address: IpAddr, hosts: u32) -> Option<u32> {
    Addressing::ALL.into_iter().find_map(|addressing| addressing.host_of(address, hosts))
}
