//! Queue pair 1, the general services interface: management datagrams to and from this NIC.
//!
//! The NIC only checks and carries these datagrams. Their contents are handled by host software: connection management
//! by `irnic-cm`. Queue pair 1 needs no receive work requests and is always ready; a datagram that finds the queue full
//! is lost, as any datagram may be.

use std::collections::VecDeque;

use irnic_transports::psn::Psn;
use irnic_transports::room;
use irnic_transports::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use irnic_transports::wire::{Bth, Deth, Headers, Opcode};
use irnic_transports::{Path, Payload, RxPacket, Sideband, TxPacket};

use crate::memory::copy_payload;

/// A management datagram, received or to be sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// Its addresses. In a received one, `src` is the peer's.
    pub path: Path,
    /// Its payload.
    pub mad: [u8; MAD_LEN],
}

/// Queue pair 1.
#[derive(Debug, Default)]
pub(crate) struct Gsi {
    arrived: VecDeque<ManagementDatagram>,
    waiting: VecDeque<ManagementDatagram>,
    /// PSN of the next packet. Receivers ignore it.
    psn: Psn,
}

impl Gsi {
    /// Maximum number of datagrams that wait in either direction.
    pub(crate) const DEPTH: usize = 1024;

    /// Receives a packet to queue pair 1. Returns whether it is a management datagram and there is room for it.
    pub(crate) fn receive(&mut self, packet: &RxPacket<'_>) -> bool {
        let genuine = packet.headers.bth.opcode == Opcode::UdSendOnly
            && packet.headers.deth.is_some_and(|deth| deth.qkey == GSI_QKEY)
            && packet.payload.len() == MAD_LEN;
        if !genuine || !has_room(&self.arrived) {
            return false;
        }
        let mut mad = [0; MAD_LEN];
        copy_payload(&packet.payload, &mut mad);
        self.arrived.push_back(ManagementDatagram { path: *packet.path, mad });
        true
    }

    /// Returns whether datagrams have arrived.
    #[inline]
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Takes the oldest datagram that has arrived.
    pub(crate) fn take(&mut self) -> Option<ManagementDatagram> {
        self.arrived.pop_front()
    }

    /// Queues a datagram to be sent. Returns false, and drops it, if too many wait.
    pub(crate) fn post(&mut self, datagram: ManagementDatagram) -> bool {
        let room = has_room(&self.waiting);
        if room {
            self.waiting.push_back(datagram);
        }
        room
    }

    /// Returns whether datagrams wait to be sent.
    pub(crate) fn wants_tx(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Passes up to `budget` datagrams to `sink` until it returns false. Returns the number sent, and whether `sink`
    /// accepts more.
    pub(crate) fn transmit(
        &mut self,
        timestamp: u64,
        budget: usize,
        sink: &mut dyn FnMut(&TxPacket<'_>) -> bool,
    ) -> (usize, bool) {
        let mut sent = 0;
        while sent < budget
            && let Some(ManagementDatagram { path, mad }) = self.waiting.pop_front()
        {
            let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, self.psn));
            headers.deth = Some(Deth { qkey: GSI_QKEY, src_qp: GSI_QPN });
            self.psn = self.psn.plus(1);
            let sideband = Sideband { src_qp: GSI_QPN, ..Sideband::NONE };
            let packet =
                TxPacket { headers: &headers, path: &path, payload: Payload::Bytes(&mad), timestamp, sideband };
            sent += 1;
            if !sink(&packet) {
                return (sent, false);
            }
        }
        (sent, true)
    }
}

/// Returns whether a queue has room for one more datagram.
fn has_room(queue: &VecDeque<ManagementDatagram>) -> bool {
    queue.len() < Gsi::DEPTH
        && (queue.len() < queue.capacity()
            || room::ensure(2 * queue.capacity().max(4) * size_of::<ManagementDatagram>()).is_ok())
}
