//! Rate notices from switches (RoCC). Each quotes the headers of a packet sent by one of the queue pairs, which name
//! the destination queue pair.

use std::net::IpAddr;

use irnic_transports::Time;
use irnic_transports::congestion::Point;
use irnic_transports::qp::{Host, Qp};
use irnic_transports::wire::RateNotice;

use super::Nic;

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
