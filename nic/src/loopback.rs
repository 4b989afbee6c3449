//! Packets passed directly from one NIC to another, without frames.

use irnic_transports::{RxPacket, Time};

use crate::nic::Nic;

/// Delivers pending packets of `from` to `to`, at most `budget`, without loss, delay or frames. Each payload byte is
/// copied once, from memory region to memory region. Returns the number of packets.
#[inline]
pub fn loopback(now: Time, from: &mut Nic, to: &mut Nic, budget: usize) -> usize {
    from.poll_transmit(now, budget, |packet| {
        to.receive(
            now,
            &RxPacket {
                headers: packet.headers,
                path: packet.path,
                payload: packet.payload,
                arrived: now,
                sideband: packet.sideband,
            },
        );
        true
    })
}
