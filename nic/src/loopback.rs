//! One NIC straight to another, without a wire.

use irnic_transports::{RxPacket, Time};

use crate::nic::Nic;

/// Gives `to` what `from` has to send, at most `budget` packets, without loss, delay or frames: the payload is copied once, from
/// memory region to memory region. Returns the number of packets.
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
