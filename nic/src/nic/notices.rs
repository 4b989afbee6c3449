//! Notices of switches about the rates of flows (RoCC). They quote a packet that one of the queue pairs has sent, whose
//! headers name the queue pair that it was sent to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::Time;
use irnic_transports::congestion::Point;
use irnic_transports::qp::{Host, Qp};
use irnic_transports::wire::RateNotice;

use super::Nic;

/// A queue pair elsewhere: its address and number.
type Peer = (Ipv4Addr, u32);

/// The queue pairs that heed notices, by their peers.
#[derive(Debug, Default)]
pub(super) struct Noticed(BTreeMap<Peer, u32>);

/// The peer of a queue pair that heeds notices and has one.
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
    /// A queue pair whose peer was `before` has another, or none.
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
    /// Takes a notice that arrived at a time. One about no request of a queue pair that heeds them is counted and
    /// dropped. Of two queue pairs with the same peer, the one that was connected last is meant.
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
