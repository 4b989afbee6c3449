//! What stands before a frame in a ring whose two ends do not fix its addresses: path, and what is known of the ICRC.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use irnic_transports::Path;

use super::{RxIcrc, TxFrame};

/// Bytes before each frame.
pub(super) const PREFIX: usize = 40;

/// What the receiver of a frame is to know of its ICRC.
#[inline]
pub(super) fn sent_icrc(frame: &TxFrame<'_>) -> RxIcrc {
    if frame.icrc { RxIcrc::Exact } else { RxIcrc::Absent }
}

/// Writes the [`PREFIX`] bytes of a frame.
#[inline]
pub(super) fn write_prefix(path: &Path, icrc: RxIcrc, to: &mut [u8]) {
    let put = |address: &IpAddr, to: &mut [u8]| match address {
        IpAddr::V4(a) => to[..4].copy_from_slice(&a.octets()),
        IpAddr::V6(a) => to[..16].copy_from_slice(&a.octets()),
    };
    put(&path.src, &mut to[0..16]);
    put(&path.dst, &mut to[16..32]);
    to[32..34].copy_from_slice(&path.udp_src.to_le_bytes());
    to[34..PREFIX].copy_from_slice(&[
        path.traffic_class,
        path.hop_limit,
        path.src.is_ipv4().into(),
        path.dst.is_ipv4().into(),
        icrc as u8,
        0,
    ]);
}

/// Takes a record apart into path, ICRC and frame; `None` if it is shorter than a prefix.
#[inline]
pub(super) fn read_prefix(record: &[u8]) -> Option<(Path, RxIcrc, &[u8])> {
    let (from, frame) = record.split_first_chunk::<PREFIX>()?;
    let get = |v4: bool, from: &[u8]| {
        let mut octets = [0; 16];
        octets.copy_from_slice(from);
        match v4 {
            true => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
            false => IpAddr::from(Ipv6Addr::from(octets)),
        }
    };
    let icrc = match from[38] {
        0 => RxIcrc::Absent,
        1 => RxIcrc::Exact,
        _ => RxIcrc::AnyIdentification,
    };
    let path = Path {
        src: get(from[36] == 1, &from[0..16]),
        dst: get(from[37] == 1, &from[16..32]),
        udp_src: u16::from_le_bytes([from[32], from[33]]),
        traffic_class: from[34],
        hop_limit: from[35],
    };
    Some((path, icrc, frame))
}
