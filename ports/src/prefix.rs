//! Prefix of a frame in a ring whose ends have no fixed addresses: the path, and the state of the ICRC.
//!
//! Most frames of a link have the same addresses as the frame before. [`Tagger`] and [`Untagger`] then omit them, and
//! the rest fits into the record's tag: a small frame stays within one cache line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use irnic_transports::{Path, Time};

use super::{RxFrame, RxIcrc, TxFrame};

/// Bytes of a prefix.
pub(super) const PREFIX: usize = 40;

/// Returns the ICRC state of a frame at its receiver.
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
        byte(icrc),
        0,
    ]);
}

/// Splits a record into path, ICRC and frame; `None` if it is shorter than a prefix.
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
    let icrc = icrc(from[38]);
    let path = Path {
        src: get(from[36] == 1, &from[0..16]),
        dst: get(from[37] == 1, &from[16..32]),
        udp_src: u16::from_le_bytes([from[32], from[33]]),
        traffic_class: from[34],
        hop_limit: from[35],
    };
    Some((path, icrc, frame))
}

#[inline]
fn byte(icrc: RxIcrc) -> u8 {
    match icrc {
        RxIcrc::Absent => 0,
        RxIcrc::Exact => 1,
        // The identification does not fit; the receiver determines it again.
        RxIcrc::AnyIdentification | RxIcrc::Ipv4 { .. } => 2,
    }
}

fn icrc(byte: u8) -> RxIcrc {
    match byte {
        0 => RxIcrc::Absent,
        1 => RxIcrc::Exact,
        _ => RxIcrc::AnyIdentification,
    }
}

/// Flag in a tag: a prefix precedes the frame.
const HAS_PREFIX: u32 = 1 << 31;

/// The fields of a path that a tag does not contain.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Constant {
    src: IpAddr,
    dst: IpAddr,
    hop_limit: u8,
}

impl From<&Path> for Constant {
    #[inline]
    fn from(path: &Path) -> Constant {
        Constant { src: path.src, dst: path.dst, hop_limit: path.hop_limit }
    }
}

/// The sending end of a link: remembers what the receiver knows.
#[derive(Debug, Default)]
pub(super) struct Tagger(Option<Constant>);

impl Tagger {
    /// Returns the tag of a frame's record, and the number of bytes before the frame: 0 or a prefix. Call
    /// [`Tagger::sent`] if the record was accepted.
    #[inline]
    pub(super) fn tag(&self, path: &Path, icrc: RxIcrc) -> (u32, usize) {
        let [a, b] = path.udp_src.to_le_bytes();
        let tag = u32::from_le_bytes([a, b, path.traffic_class, byte(icrc)]);
        if self.0 == Some(path.into()) { (tag, 0) } else { (tag | HAS_PREFIX, PREFIX) }
    }

    #[inline]
    pub(super) fn sent(&mut self, path: &Path) {
        self.0 = Some(path.into());
    }
}

/// The receiving end of a link.
#[derive(Debug, Default)]
pub(super) struct Untagger(Option<Constant>);

impl Untagger {
    /// Returns the frame of a record; `None` if the sender omitted a prefix that it never sent.
    #[inline]
    pub(super) fn untag<'a>(&mut self, tag: u32, record: &'a [u8], arrived: Time) -> Option<RxFrame<'a>> {
        if tag & HAS_PREFIX != 0 {
            let (path, icrc, bytes) = read_prefix(record)?;
            self.0 = Some((&path).into());
            return Some(RxFrame { path, bytes, arrived, icrc });
        }
        let Constant { src, dst, hop_limit } = self.0?;
        let [a, b, traffic_class, kind] = tag.to_le_bytes();
        let path = Path { src, dst, udp_src: u16::from_le_bytes([a, b]), traffic_class, hop_limit };
        Some(RxFrame { path, bytes: record, arrived, icrc: icrc(kind) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_put_in_again() {
        let path = |src: &str, udp_src, traffic_class, hop_limit| {
            let dst = "2001:db8::2".parse().unwrap();
            Path { src: src.parse().unwrap(), dst, udp_src, traffic_class, hop_limit }
        };
        let cases = [
            (path("10.0.0.1", 1, 2, 3), RxIcrc::Absent, PREFIX),
            (path("10.0.0.1", 0xffff, 0xff, 3), RxIcrc::AnyIdentification, 0),
            (path("10.0.0.1", 0, 0, 4), RxIcrc::Exact, PREFIX),
            (path("10.0.0.1", 0xc000, 0, 4), RxIcrc::Absent, 0),
            (path("::1", 0xc000, 0, 4), RxIcrc::Exact, PREFIX),
        ];
        let (mut tagger, mut untagger) = (Tagger::default(), Untagger::default());
        assert!(untagger.untag(0, &[0; 60], Time::ZERO).is_none());
        for (path, icrc, expected) in cases {
            for lost in [true, false] {
                let (tag, before) = tagger.tag(&path, icrc);
                assert_eq!(before, expected);
                let mut record = vec![7; before + 20];
                if before > 0 {
                    write_prefix(&path, icrc, &mut record[..PREFIX]);
                }
                if !lost {
                    tagger.sent(&path);
                    let frame = untagger.untag(tag, &record, Time(9)).unwrap();
                    let bytes = &record[before..];
                    assert_eq!((frame.path, frame.icrc, frame.bytes, frame.arrived), (path, icrc, bytes, Time(9)));
                }
            }
        }
        assert!(untagger.untag(HAS_PREFIX, &[0; PREFIX - 1], Time::ZERO).is_none());
    }
}
