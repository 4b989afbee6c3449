//! Packets as frames, the bytes from BTH to ICRC: shared by all drivers that carry bytes.

use irnic_transports::qp::Taken;
use irnic_transports::wire::{
    APART, FastAck, FastFrame, ICRC_LEN, icrc_append, icrc_check, icrc_check_fragmentable, icrc_identification,
    icrc_of_parts, is_pulled, parse, parse_trimmed,
};
use irnic_transports::{Gather, Mark, Path, Payload, RxPacket, Sideband, Time, TxPacket};

use crate::memory::{copy_payload, pieces};
use crate::nic::{FastPacket, Nic};

/// How the ICRC of a received frame can be checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RxIcrc {
    /// There is none: the frame came through memory of this host.
    Absent,
    /// It covers the path as given, with IPv4 identification 0.
    Exact,
    /// It came over IPv4 through a socket that hides the identification: 0 as sent by irnic, or any other.
    AnyIdentification,
    /// It covers the path as given and these fields of the IPv4 header, as they arrived.
    Ipv4 {
        /// Identification.
        identification: u16,
        /// DF flag.
        dont_fragment: bool,
    },
}

impl RxIcrc {
    /// Returns whether the last four bytes of a frame received on `path` are its ICRC; true if it has none.
    #[inline]
    pub fn is_right(self, path: &Path, frame: &[u8]) -> bool {
        self == RxIcrc::Absent || self.covers(path, frame)
    }

    /// Checks as [`Self::is_right`] does, but requires an ICRC even of a frame declared to have none.
    #[inline]
    fn covers(self, path: &Path, frame: &[u8]) -> bool {
        match self {
            RxIcrc::AnyIdentification => icrc_check(path, 0, frame) || icrc_identification(path, frame).is_some(),
            RxIcrc::Exact | RxIcrc::Absent => icrc_check(path, 0, frame),
            RxIcrc::Ipv4 { identification, dont_fragment: true } => icrc_check(path, identification, frame),
            RxIcrc::Ipv4 { identification, dont_fragment: false } => {
                icrc_check_fragmentable(path, identification, frame)
            }
        }
    }
}

/// A received frame.
#[derive(Copy, Clone, Debug)]
pub struct RxFrame<'a> {
    /// IP and UDP fields as received (those that the port cannot see are zero).
    pub path: Path,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// Arrival time, on the clock of `now`.
    pub arrived: Time,
    /// Whether and how its ICRC can be checked.
    pub icrc: RxIcrc,
}

/// How ICRCs are handled.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// Computed on transmission, checked on reception: frames of both directions have IPv4 identification 0.
    Checked,
    /// Computed on transmission if the port needs it, checked on reception unless the port reports that there is none:
    /// for ports whose frames may stay within the host's memory or leave it.
    Needed,
    /// Zero on transmission, ignored on reception: both ends share a carrier that cannot corrupt.
    Off,
}

/// Writes a packet as a frame into `out`, which has exactly its length. The ICRC covers the addresses in `wire`;
/// without them it is 0.
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

/// Writes a packet of the fast path as [`emit_frame`] does.
pub fn emit_fast(packet: &FastPacket<'_>, wire: Option<&Path>, out: &mut [u8]) {
    let rest = packet.head.emit(out);
    let len = rest.len() - ICRC_LEN - usize::from(packet.head.pad);
    copy_payload(&Payload::Gather(packet.payload), &mut rest[..len]);
    clear_end(&mut rest[len..]);
    if let Some(path) = wire {
        icrc_append(path, 0, out);
    }
}

/// Clears padding and ICRC: 4 to 7 bytes.
#[inline(always)]
fn clear_end(end: &mut [u8]) {
    // Of known length, so that no call clears them.
    end.first_chunk_mut().into_iter().for_each(|word: &mut [u8; 4]| *word = [0; 4]);
    end.last_chunk_mut().into_iter().for_each(|word: &mut [u8; ICRC_LEN]| *word = [0; ICRC_LEN]);
}

/// Returns the length of the frame of a packet of the fast path.
#[inline]
pub fn fast_len(packet: &FastPacket<'_>) -> usize {
    let payload = packet.payload.segments().iter().map(|s| s.len as usize).sum::<usize>();
    packet.head.len() + payload + usize::from(packet.head.pad) + ICRC_LEN
}

/// Returns a packet's payload if a carrier may leave it in place until transmission; `None` if it has to be copied at
/// once.
#[inline]
pub fn payload_in_place<'a>(payload: &Payload<'a>) -> Option<Gather<'a>> {
    match *payload {
        Payload::Gather(gather) if gather.is_stable() && gather.segments().iter().all(|s| s.addr != 0) => Some(gather),
        _ => None,
    }
}

/// Writes a packet as [`emit_frame`] does, but leaves the payload's place in `out` untouched. If `out` has room for the
/// headers only, nothing else is written.
pub fn emit_around(packet: &TxPacket<'_>, payload: &Gather<'_>, wire: Option<&Path>, out: &mut [u8]) {
    let len = packet.headers.emit(out);
    emit_end(len, usize::from(packet.headers.bth.pad), payload, wire, out);
}

/// Writes a packet of the fast path as [`emit_around`] does.
#[inline(never)]
pub fn emit_fast_around(packet: &FastPacket<'_>, wire: Option<&Path>, out: &mut [u8]) {
    packet.head.emit(out);
    emit_end(packet.head.len(), usize::from(packet.head.pad), &packet.payload, wire, out);
}

/// Writes padding and ICRC of a frame with `len` bytes of headers, unless `out` ends with these.
#[inline(always)]
fn emit_end(len: usize, pad: usize, payload: &Gather<'_>, wire: Option<&Path>, out: &mut [u8]) {
    if out.len() == len {
        return;
    }
    let end = out.len() - ICRC_LEN;
    clear_end(&mut out[end - pad..]);
    if let Some(path) = wire {
        let padding = &[0; 3][..pad];
        let icrc = icrc_of_parts(path, 0, &out[..len], pieces(payload).chain(std::iter::once(padding)));
        out[end..].copy_from_slice(&icrc.to_le_bytes());
    }
}

/// Copies a payload that [`emit_around`] has left out to its place after `at` bytes of headers.
#[inline]
pub fn emit_payload(payload: &Gather<'_>, at: usize, out: &mut [u8]) {
    let payload = Payload::Gather(*payload);
    copy_payload(&payload, &mut out[at..at + payload.len()]);
}

/// Parses a frame and passes it to the NIC, or counts the error.
pub fn receive_frame(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc) {
    if !is_intact(nic, frame, icrc) {
        return;
    }
    // A frame that came over a wire carries no acknowledgement.
    if let Some(fast) = FastFrame::parse(frame.bytes)
        && (fast.ack.is_none() || frame.icrc == RxIcrc::Absent)
    {
        match (nic.receive_fast(now, &frame.path, frame.arrived, &fast), &fast.ack) {
            (Taken::All, _) => return,
            (_, None) => {}
            (taken, Some(ack)) => return receive_apart(nic, now, frame, ack, taken),
        }
    }
    receive_intact(nic, now, frame, Sideband::NONE);
}

/// Receives what is left of a frame that carries an acknowledgement, each packet as a frame of its own.
#[cold]
fn receive_apart(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, ack: &FastAck, taken: Taken) {
    let mut room = [0; APART];
    let parts = FastFrame::apart(frame.bytes, ack, &mut room);
    for bytes in &parts[usize::from(taken == Taken::First)..] {
        receive_intact(nic, now, &RxFrame { bytes, ..*frame }, Sideband::NONE);
    }
}

/// Parses a frame and passes it to the NIC with its out-of-band data, or counts the error.
pub fn receive_frame_with(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc, sideband: Sideband<'_>) {
    if is_intact(nic, frame, icrc) {
        receive_intact(nic, now, frame, sideband);
    }
}

/// Returns whether the ICRC of a frame is right, as far as it has to be, or counts the error.
#[inline]
fn is_intact(nic: &mut Nic, frame: &RxFrame<'_>, icrc: Icrc) -> bool {
    let intact = match icrc {
        Icrc::Off => true,
        Icrc::Needed => frame.icrc.is_right(&frame.path, frame.bytes),
        Icrc::Checked => frame.icrc.covers(&frame.path, frame.bytes),
    };
    if !intact {
        nic.counters_mut().rx_icrc_encapsulated += 1;
    }
    intact
}

fn receive_intact(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, mut sideband: Sideband<'_>) {
    let RxFrame { path, bytes, arrived, .. } = frame;
    let parsed = match path.mark() {
        mark @ (Mark::Trimmed | Mark::Returned) if is_pulled(bytes) => {
            (sideband.trimmed, sideband.returned) = (true, mark == Mark::Returned);
            parse_trimmed(bytes).map(|headers| (headers, &[][..]))
        }
        _ => parse(bytes),
    };
    let (headers, payload) = match parsed {
        Ok(parsed) => parsed,
        Err(_) => {
            nic.counters_mut().rx_malformed += 1;
            return;
        }
    };
    let packet = RxPacket { headers: &headers, path, payload: Payload::Bytes(payload), arrived: *arrived, sideband };
    nic.receive(now, &packet);
}

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
        let ipv4 = |identification, dont_fragment| RxIcrc::Ipv4 { identification, dont_fragment };
        for (mode, icrc, bytes, passes) in [
            (Icrc::Checked, Exact, right, true),
            (Icrc::Checked, Exact, numbered, false),
            (Icrc::Checked, AnyIdentification, right, true),
            (Icrc::Checked, AnyIdentification, numbered, true),
            (Icrc::Checked, AnyIdentification, wrong, false),
            (Icrc::Checked, ipv4(0, true), right, true),
            (Icrc::Checked, ipv4(0x1234, true), numbered, true),
            (Icrc::Checked, ipv4(0x1235, true), numbered, false),
            (Icrc::Checked, ipv4(0x1234, false), numbered, false),
            (Icrc::Needed, ipv4(0, true), wrong, false),
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
