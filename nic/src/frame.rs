//! Packets as frames, the bytes from BTH to ICRC: what every habitat does that carries bytes.

use irnic_transports::wire::{
    ICRC_LEN, icrc_append, icrc_check, icrc_check_fragmentable, icrc_identification, icrc_of_parts, is_pulled, parse,
    parse_trimmed,
};
use irnic_transports::{Gather, Mark, Path, Payload, RxPacket, Sideband, Time, TxPacket};

use crate::memory::{copy_payload, pieces};
use crate::nic::Nic;

/// What is known of the ICRC of a frame that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RxIcrc {
    /// There is none: the frame came through memory of this host.
    Absent,
    /// It covers the path as given, with IPv4 identification 0.
    Exact,
    /// It came over IPv4 by way of a socket that does not show the identification: 0 as irnic sends it, or any other.
    AnyIdentification,
    /// It covers the path as given and these fields of the IPv4 header, as they arrived.
    Ipv4 {
        /// Identification.
        identification: u16,
        /// The flag DF.
        dont_fragment: bool,
    },
}

impl RxIcrc {
    /// Returns whether the last four bytes of a frame that came by `path` are its ICRC; true if it has none.
    #[inline]
    pub fn is_right(self, path: &Path, frame: &[u8]) -> bool {
        self == RxIcrc::Absent || self.covers(path, frame)
    }

    /// Does as [`Self::is_right`], but demands an ICRC even of a frame that is said to have none.
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

/// A frame that arrived.
#[derive(Copy, Clone, Debug)]
pub struct RxFrame<'a> {
    /// IP and UDP fields as they arrived (what the port cannot see is zero).
    pub path: Path,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// When it arrived, on the clock that `now` came from.
    pub arrived: Time,
    /// Whether and how its ICRC can be checked.
    pub icrc: RxIcrc,
}

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

/// Writes a packet as a frame into `out`, which is exactly as long. The ICRC covers the addresses in `wire`; without
/// them it is 0.
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

/// Returns the payload of a packet that a carrier may leave where it is until it sends it; `None` if it has to be
/// copied at once.
#[inline]
pub fn payload_in_place<'a>(packet: &TxPacket<'a>) -> Option<Gather<'a>> {
    match packet.payload {
        Payload::Gather(gather) if gather.is_stable() && gather.segments().iter().all(|s| s.addr != 0) => Some(gather),
        _ => None,
    }
}

/// Writes a packet as [`emit_frame`] does, but for its payload, whose place in `out` stays as it is.
pub fn emit_around(packet: &TxPacket<'_>, payload: &Gather<'_>, wire: Option<&Path>, out: &mut [u8]) {
    let len = packet.headers.emit(out);
    let end = out.len() - ICRC_LEN;
    let pad = usize::from(packet.headers.bth.pad);
    out[end - pad..].fill(0);
    if let Some(path) = wire {
        let padding = &[0; 3][..pad];
        let icrc = icrc_of_parts(path, 0, &out[..len], pieces(payload).chain(std::iter::once(padding)));
        out[end..].copy_from_slice(&icrc.to_le_bytes());
    }
}

/// Parses a frame and gives it to the NIC, or counts why not.
pub fn receive_frame(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc) {
    receive_frame_with(nic, now, frame, icrc, Sideband::NONE);
}

/// Parses a frame and gives it to the NIC with what came beside its bytes, or counts why not.
pub fn receive_frame_with(nic: &mut Nic, now: Time, frame: &RxFrame<'_>, icrc: Icrc, sideband: Sideband<'_>) {
    let RxFrame { path, bytes, arrived, .. } = frame;
    let intact = match icrc {
        Icrc::Off => true,
        Icrc::Needed => frame.icrc.is_right(path, bytes),
        Icrc::Checked => frame.icrc.covers(path, bytes),
    };
    if !intact {
        nic.counters_mut().rx_icrc_encapsulated += 1;
        return;
    }
    let mut sideband = sideband;
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
