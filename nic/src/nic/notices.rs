//! Rate notices from switches (RoCC). Each quotes the headers of a packet sent by one of the queue pairs, which name
//! the destination queue pair.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::Time;
use irnic_transports::congestion::Point;
use irnic_transports::qp::{Host, Qp};
use irnic_transports::wire::RateNotice;

use super::Nic;

/// A remote queue pair: its address and number.
type Peer = (Ipv4Addr, u32);

/// The queue pairs that follow notices, by their peers.
#[derive(Debug, Default)]
pub(super) struct Noticed(BTreeMap<Peer, u32>);

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

impl Nic {
    /// Receives a notice. One that concerns no request of a queue pair that follows notices is counted and dropped. Of
    /// two queue pairs with the same peer, the one connected last receives it.
    pub fn receive_notice(&mut self, now: Time, arrived: Time, notice: &RateNotice) {
        self.device.now = arrived;
        let qpn = self.noticed.0.get(&(notice.dst, notice.bth.dest_qp)).copied();
        let own = |qp: &Qp| qp.path().is_some_and(|path| path.src == IpAddr::V4(notice.src));
        let taken = match qpn.and_then(|qpn| self.find(qpn).ok()) {
            Some((index, slot, device)) if notice.bth.opcode.is_request() && own(&slot.qp) => {
                let point = Point(u64::from(notice.from.to_bits()) << 16 | u64::from(notice.port));
                let taken = slot.qp.on_fair_rate(now, point, notice.fair_rate(), device);
                self.touch(index);
                taken
            }
            _ => false,
        };
        let counters = self.device.counters();
        *if taken { &mut counters.rcvd_pkts } else { &mut counters.rx_dropped } += 1;
    }
}
