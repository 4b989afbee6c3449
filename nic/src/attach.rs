//! A NIC on a port: frames in and out, ICRC computed and checked.

use std::io;

use irnic_transports::rc::MAX_NACKS_WAITING;
use irnic_transports::wire::{Headers, icrc_append, icrc_check, icrc_identification, parse};
use irnic_transports::{Path, Payload, RxPacket, Sideband, Time, TxPacket};

use crate::memory::copy_payload;
use crate::nic::Nic;
use crate::port::{Port, RxFrame, RxIcrc, TxFrame};

/// What is done about ICRCs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// Computed on what leaves, checked on what arrives: frames of both have IPv4 identification 0.
    Checked,
    /// On what leaves where the port says that it is needed, checked on what arrives unless the port says that there is
    /// none: for ports whose frames may stay within the host's memory or leave it.
    Needed,
    /// Zero on what leaves, ignored on what arrives: both ends share a carrier that cannot corrupt.
    Off,
}

/// A NIC, the port that it sends and receives through, and the frame that the port had no room for.
#[derive(Debug)]
pub struct Attached<P> {
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

/// Bytes of the largest frame; see [`crate::port::MAX_FRAME`].
const FRAME: usize = crate::port::MAX_FRAME;

impl<P: Port> Attached<P> {
    /// Packets taken from the NIC in one round.
    pub const TX_BATCH: usize = 256;
    /// Frames taken from the port in one round: no more than a queue pair can answer.
    pub const RX_BATCH: usize = MAX_NACKS_WAITING;

    /// Connects `nic` to `port`.
    pub fn new(nic: Nic, port: P, icrc: Icrc) -> Attached<P> {
        Attached { nic, port, icrc, held: None }
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
        let Attached { nic, port, icrc, .. } = self;
        let received = port.receive(now, Self::RX_BATCH, &mut |frame| receive_frame(nic, now, &frame, *icrc))?;
        nic.on_deadline_knowing(now, |path, qpn| port.peer_process(path, qpn));
        Ok(received)
    }

    /// Sends what is ready.
    #[inline]
    pub fn transmit(&mut self, now: Time) -> io::Result<usize> {
        let Attached { nic, port, icrc, held } = self;
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

/// Writes a whole frame. Without a path its ICRC is 0.
#[inline]
pub fn emit_frame(packet: &TxPacket<'_>, wire: Option<&Path>, out: &mut [u8]) {
    let len = packet.headers.emit(out);
    let end = out.len() - 4;
    copy_payload(&packet.payload, &mut out[len..end]);
    let pad = usize::from(packet.headers.bth.pad);
    out[end - pad..].fill(0);
    if let Some(path) = wire {
        icrc_append(path, 0, out);
    }
}

/// Parses a frame and gives it to the NIC, or counts why not.
#[inline]
pub fn receive_frame(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc) {
    receive_frame_with(nic, now, frame, icrc, Sideband::NONE);
}

/// Parses a frame and gives it to the NIC with what came beside its bytes, or counts why not.
#[inline]
pub fn receive_frame_with(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc, sideband: Sideband<'_>) {
    let RxFrame { path, bytes, arrived, .. } = frame;
    let intact = match (icrc, frame.icrc) {
        (Icrc::Off, _) | (Icrc::Needed, RxIcrc::Absent) => true,
        (_, RxIcrc::AnyIdentification) => icrc_check(path, 0, bytes) || icrc_identification(path, bytes).is_some(),
        (_, RxIcrc::Exact | RxIcrc::Absent) => icrc_check(path, 0, bytes),
    };
    if !intact {
        nic.counters_mut().rx_icrc_encapsulated += 1;
        return;
    }
    let (headers, payload) = match parse(bytes) {
        Ok(parsed) => parsed,
        Err(_) => {
            nic.counters_mut().rx_malformed += 1;
            return;
        }
    };
    let packet = RxPacket { headers: &headers, path, payload: Payload::Bytes(payload), arrived: *arrived, sideband };
    nic.receive(now, &packet);
}

/// Hands everything that `from` has to send, up to `budget` packets, straight to `to`, on a wire without loss, delay or
/// bytes: the payload is copied once, from memory region to memory region. Returns how many packets went.
#[inline]
pub fn pump(now: Time, from: &mut Nic, to: &mut Nic, budget: usize) -> usize {
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

const _: () = assert!(FRAME >= Headers::MAX_LEN + 4096 + 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::NicConfig;

    #[test]
    fn a_frame_passes_if_its_icrc_is_right_where_one_is_needed() {
        let path = Path {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            udp_src: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
        };
        let with_id = |id| {
            let mut frame = [9; 40];
            icrc_append(&path, id, &mut frame);
            frame
        };
        let (right, numbered, wrong) = (with_id(0), with_id(0x1234), [9; 40]);
        use RxIcrc::{Absent, AnyIdentification, Exact};
        for (mode, icrc, bytes, passes) in [
            (Icrc::Checked, Exact, right, true),
            (Icrc::Checked, Exact, numbered, false),
            (Icrc::Checked, AnyIdentification, right, true),
            (Icrc::Checked, AnyIdentification, numbered, true),
            (Icrc::Checked, AnyIdentification, wrong, false),
            (Icrc::Checked, Absent, right, true),
            (Icrc::Checked, Absent, wrong, false),
            (Icrc::Needed, Exact, right, true),
            (Icrc::Needed, Exact, wrong, false),
            (Icrc::Needed, AnyIdentification, numbered, true),
            (Icrc::Needed, AnyIdentification, wrong, false),
            (Icrc::Needed, Absent, wrong, true),
            (Icrc::Off, Exact, wrong, true),
        ] {
            let mut nic = Nic::new(NicConfig::default());
            let frame = RxFrame { path, bytes: &bytes, arrived: Time::ZERO, icrc };
            receive_frame(&mut nic, Time::ZERO, &frame, mode);
            let dropped = nic.counters().rx_icrc_encapsulated;
            assert_eq!(dropped, u64::from(!passes), "{mode:?} {icrc:?} {:x?}", &bytes[36..]);
        }
    }
}
