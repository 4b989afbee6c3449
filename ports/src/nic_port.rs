//! A NIC on a port: frames in and out, ICRC computed and checked.

use std::io;

use irnic_nic::Nic;
use irnic_nic::frame::{Icrc, emit_frame, receive_frame};
use irnic_transports::{Path, Time};

use crate::{Port, TxFrame};

/// A NIC, the port that it sends and receives through, and the frame that the port had no room for.
#[derive(Debug)]
pub struct NicPort<P> {
    /// The firmware.
    pub nic: Nic,
    /// The port.
    pub port: P,
    icrc: Icrc,
    held: Option<Held>,
}

/// A frame that the port had no room for.
#[derive(Debug)]
struct Held {
    path: Path,
    dest_qp: u32,
    icrc: bool,
    irn: bool,
    bytes: Vec<u8>,
}

impl<P: Port> NicPort<P> {
    /// Packets taken from the NIC in one round.
    pub const TX_BATCH: usize = 256;
    /// Frames taken from the port in one round: no more than a queue pair can answer.
    pub const RX_BATCH: usize = Nic::RX_BATCH;

    /// Connects `nic` to `port`.
    pub fn new(nic: Nic, port: P, icrc: Icrc) -> NicPort<P> {
        NicPort { nic, port, icrc, held: None }
    }

    /// One round: [`Self::receive`], then [`Self::transmit`]. Returns how many frames moved.
    #[inline]
    pub fn poll(&mut self, now: Time) -> io::Result<usize> {
        Ok(self.receive(now)? + self.transmit(now)?)
    }

    /// Takes what has arrived and runs the timers that are due. An application that looks at its completions before
    /// [`Self::transmit`] has its answers leave together with the acknowledgements.
    #[inline]
    pub fn receive(&mut self, now: Time) -> io::Result<usize> {
        let NicPort { nic, port, icrc, .. } = self;
        let received = port.receive(now, Self::RX_BATCH, &mut |frame| receive_frame(nic, now, &frame, *icrc))?;
        nic.on_deadline_knowing(now, |path, qpn| port.peer_process(path, qpn));
        Ok(received)
    }

    /// Sends what is ready.
    #[inline]
    pub fn transmit(&mut self, now: Time) -> io::Result<usize> {
        let NicPort { nic, port, icrc, held } = self;
        if let Some(Held { path, dest_qp, icrc, irn, bytes }) = held {
            let frame = TxFrame { path, dest_qp: *dest_qp, len: bytes.len(), icrc: *icrc, irn: *irn };
            if !port.transmit(now, &frame, &mut |out| out.copy_from_slice(bytes)) {
                port.flush(now)?;
                return Ok(0);
            }
            *held = None;
        }
        let mut sent = 0;
        if nic.wants_tx() {
            sent = nic.poll_transmit(now, Self::TX_BATCH, |packet| {
                let len = packet.headers.frame_len(packet.payload.len());
                let (path, dest_qp) = (packet.path, packet.headers.bth.dest_qp);
                let icrc = match icrc {
                    Icrc::Checked => true,
                    Icrc::Needed => port.needs_icrc(path, dest_qp),
                    Icrc::Off => false,
                };
                let wire = icrc.then(|| port.wire_path(path));
                let irn = packet.headers.irn.is_some();
                let frame = TxFrame { path, dest_qp, len, icrc, irn };
                if port.transmit(now, &frame, &mut |out| emit_frame(packet, wire.as_ref(), out)) {
                    return true;
                }
                let mut bytes = vec![0; len];
                emit_frame(packet, wire.as_ref(), &mut bytes);
                *held = Some(Held { path: *path, dest_qp, icrc, irn, bytes });
                false
            });
        }
        port.flush(now)?;
        Ok(sent)
    }

    /// When the next call of [`Self::poll`] is due if nothing arrives.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.nic.next_deadline().min(self.port.next_deadline())
    }

    /// Whether there is something to send now.
    #[inline]
    pub fn busy(&self) -> bool {
        self.nic.wants_tx() || self.held.is_some()
    }
}
