//! The queue pairs that follow rate notices.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::qp::Qp;

/// A remote queue pair: its address and number.
pub(super) type Peer = (Ipv4Addr, u32);

/// The queue pairs that follow notices, by their peers.
#[derive(Debug, Default)]
pub(super) struct Noticed(pub(super) BTreeMap<Peer, u32>);

/// Returns the peer of a connected queue pair that follows notices.
pub(super) fn peer(qp: &Qp) -> Option<Peer> {
    if !qp.heeds_notices() {
        return None;
    }
    match qp.path()?.dst {
        IpAddr::V4(address) => Some((address, qp.dest_qp())),
        IpAddr::V6(_) => None,
    }
}

impl Noticed {
    /// Updates the entry of a queue pair whose peer changes from `before` to `now`.
    pub(super) fn moved(&mut self, qpn: u32, before: Option<Peer>, now: Option<Peer>) {
        if before == now {
            return;
        }
        if let Some(peer) = before.filter(|peer| self.0.get(peer) == Some(&qpn)) {
            self.0.remove(&peer);
        }
        if let Some(peer) = now {
            self.0.insert(peer, qpn);
        }
    }
}
