//! An application's id: its binding, its route and its connection.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use irnic_transports::{Psn, Time};

use crate::ip::IpHeader;
use crate::param::{CmId, QpKind, Route};
use crate::service::{PortSpace, service_id};

/// The binding of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// An address and a port; the unspecified address matches all.
    Addr(SocketAddr),
    /// All service ids that equal the first number in the bits set in the second.
    Service(u64, u64),
}

/// State of a listener.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// Maximum number of requests that wait for the application.
    pub(crate) backlog: u32,
    /// Requests that wait for the application.
    pub(crate) unanswered: u32,
    /// Communication ids of accepted requests that their peers have not confirmed, oldest first.
    pub(crate) unconfirmed: BTreeMap<u64, u32>,
    /// Until then only known requests are admitted ([`KnownPeers`](crate::known_peers::KnownPeers)): there were more
    /// than the room for them.
    pub(crate) crowded_until: Time,
}

/// An application's id.
#[derive(Debug)]
pub(crate) struct Id {
    pub(crate) space: PortSpace,
    pub(crate) kind: QpKind,
    pub(crate) binding: Option<Binding>,
    pub(crate) reuse: bool,
    /// Whether the unspecified address matches only its own family; `None` for the kernel's default: IPv4's does,
    /// IPv6's does not.
    pub(crate) afonly: Option<bool>,
    pub(crate) route: Option<Route>,
    /// Flow label of its packets, 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) traffic_class: Option<u8>,
    /// First PSN that its queue pair expects.
    pub(crate) psn: Psn,
    pub(crate) qkey: Option<u32>,
    pub(crate) listener: Option<Listener>,
    /// Its connection, if any.
    pub(crate) connection: Option<u32>,
    /// Whether it has had a connection: it cannot have another.
    pub(crate) used: bool,
    /// The listener that counts it among the requests that wait for the application.
    pub(crate) counted_by: Option<CmId>,
    /// Number of events not taken yet.
    pub(crate) pending: u32,
}

impl Id {
    pub(crate) fn new(space: PortSpace, kind: QpKind, psn: Psn, flow_label: u32) -> Id {
        Id {
            space,
            kind,
            binding: None,
            reuse: false,
            afonly: None,
            route: None,
            flow_label,
            ack_timeout: None,
            traffic_class: None,
            psn,
            qkey: None,
            listener: None,
            connection: None,
            used: false,
            counted_by: None,
            pending: 0,
        }
    }

    /// Returns the state's name for errors, if the connection does not determine it.
    pub(crate) fn state_name(&self) -> &'static str {
        match () {
            () if self.used => "closed",
            () if self.listener.is_some() => "listening",
            () if self.route.is_some() => "resolved",
            () if self.binding.is_some() => "bound",
            () => "idle",
        }
    }

    /// Returns whether this listener serves a service id.
    pub(crate) fn serves(&self, service: u64) -> bool {
        match self.binding {
            Some(Binding::Addr(addr)) => service_id(self.space, addr.port()) == service,
            Some(Binding::Service(of, mask)) => of & mask == service & mask,
            None => false,
        }
    }

    /// Returns whether this listener matches the IP header of a request for its service (`cma_match_private_data` in
    /// the kernel).
    pub(crate) fn is_meant(&self, header: Option<&IpHeader>) -> bool {
        let Some(Binding::Addr(addr)) = self.binding else { return true };
        if addr.ip().is_unspecified() && !self.leaves_other_family(addr) {
            return true;
        }
        header.is_some_and(|h| match (addr.ip(), h.dst) {
            (IpAddr::V4(own), IpAddr::V4(requested)) => own.is_unspecified() || own == requested,
            (IpAddr::V6(own), IpAddr::V6(requested)) => own.is_unspecified() || own == requested,
            _ => false,
        })
    }

    /// Returns whether the id excludes addresses of the other family when bound to this one (`rdma_bind_addr` in the
    /// kernel, with `bindv6only` 0).
    pub(crate) fn leaves_other_family(&self, addr: SocketAddr) -> bool {
        self.afonly.unwrap_or(addr.is_ipv4())
    }

    /// Returns whether two bindings conflict over a port.
    pub(crate) fn overlaps(&self, addr: SocketAddr, afonly: bool) -> bool {
        let Some(Binding::Addr(own)) = self.binding else { return false };
        let apart = self.leaves_other_family(own) && afonly && own.is_ipv4() != addr.is_ipv4();
        if own.port() != addr.port() || apart {
            return false;
        }
        own.ip().is_unspecified() || addr.ip().is_unspecified() || own.ip() == addr.ip()
    }

    /// Returns the offset of the user's private data in a REQ: behind the IP header, which requests by service id lack.
    pub(crate) fn user_data(&self) -> usize {
        match (self.binding, self.route) {
            (Some(Binding::Service(..)), _) => 0,
            (_, Some(Route { service_id: Some(_), .. })) => 0,
            _ => IpHeader::LEN,
        }
    }
}
