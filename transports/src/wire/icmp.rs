//! A switch's notice of the fair rate of a port (RoCC): an ICMP message of an experimental type (RFC 4727), which
//! quotes the packet that it is about, as ICMP errors do (RFC 792).
//!
//! ```text
//! byte 0  type 253    1  code 0     2  checksum      4  version 1   5  reserved   6  port
//!      8  rate, kbit/s                               12 queue, bytes
//!      16 IPv4, UDP and BTH of the packet
//! ```
//!
//! Version 2 leaves the arithmetic to the receiver, which computes the rate from the queue and the previous state
//! ([`FairRateHistory`]):
//!
//! ```text
//!      4  version 2   5  bits behind the point        6  port
//!      8  F before                                    12 queue, bytes
//!      16 F_min       20 F_max       24 queue before  28 Q_ref     32 Q_mid     36 Q_max     40 ΔQ
//!      44 α̃           48 β̃           52 IPv4, UDP and BTH of the packet
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use thiserror::Error;

use super::bth::Extensions;
use super::ip::{self, IPV4_LEN, UDP_LEN, ipv4_checksum};
use super::{Bth, Headers, ParseError, ROCE_PORT};
use crate::congestion::FairRateHistory;
use crate::packet::Path;

/// ICMP's protocol number.
const ICMP: u8 = 1;
const UDP: u8 = 17;
/// Experimental (RFC 4727).
const TYPE: u8 = 253;
const VERSION: u8 = 1;
const WITH_HISTORY: u8 = 2;
/// Bytes in front of the quoted packet.
const HEADER: usize = 16;
/// Bytes of version 2's history, behind them.
const HISTORY: usize = 36;
/// Class selector 7, the most urgent.
const TRAFFIC_CLASS: u8 = 7 << 5;

/// A notice of the fair rate of a port, to the sender of a packet that waited there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RateNotice {
    /// Address of the switch.
    pub from: Ipv4Addr,
    /// Number of the port there.
    pub port: u16,
    /// The fair rate, kbit/s; 0 with a `history`.
    pub rate: u32,
    /// Bytes that wait for the port, saturated to `u32::MAX`.
    pub queue: u32,
    /// Addresses and UDP source port of the packet: the notice goes to `src`.
    pub src: Ipv4Addr,
    /// See `src`.
    pub dst: Ipv4Addr,
    /// See `src`.
    pub udp_src: u16,
    /// The packet's traffic class and time to live.
    pub traffic_class: u8,
    /// See `traffic_class`.
    pub ttl: u8,
    /// Bytes of the packet from its BTH to its ICRC.
    pub frame_len: u16,
    /// The packet's BTH.
    pub bth: Bth,
    /// Inputs of the fair rate, in place of the rate.
    pub history: Option<FairRateHistory>,
    format: Extensions,
}

/// A notice as an IPv4 datagram.
#[derive(Copy, Clone, Debug)]
pub struct NoticeBytes {
    bytes: [u8; RateNotice::LEN + HISTORY],
    len: usize,
}

impl Deref for NoticeBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Error in a datagram that is not a valid notice.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum NoticeError {
    /// A different kind of datagram, which is not an error.
    #[error("no ICMP message of type 253, code 0")]
    Foreign,
    /// It ends too early.
    #[error("{0} bytes, a notice of its version has {1}")]
    TooShort(usize, usize),
    /// A checksum is wrong.
    #[error("wrong checksum of {0}")]
    Checksum(&'static str),
    /// Another version.
    #[error("version {0} of the notice, 1 or 2 expected")]
    Version(u8),
    /// The quoted packet is not one of RoCEv2 over IPv4.
    #[error("the quoted packet is not RoCEv2 over IPv4")]
    Quote,
    /// The quoted packet's BTH is invalid.
    #[error("the quoted packet: {0}")]
    Bth(#[from] ParseError),
    /// It is addressed to a host that has not sent the quoted packet.
    #[error("a notice to {0} quotes a packet of {1}")]
    Receiver(Ipv4Addr, Ipv4Addr),
}

impl RateNotice {
    /// Bytes of a notice with a rate, from the IPv4 header on.
    pub const LEN: usize = IPV4_LEN + HEADER + IPV4_LEN + UDP_LEN + Bth::LEN;

    /// Returns the bytes from the IPv4 header on.
    pub fn datagram_len(&self) -> usize {
        Self::LEN + if self.history.is_some() { HISTORY } else { 0 }
    }

    /// Returns the fair rate, bit/s: as given, or computed from the history, to the same kbit/s.
    pub fn fair_rate(&self) -> u64 {
        match &self.history {
            None => u64::from(self.rate) * 1_000,
            Some(history) => (history.step(self.queue.into()) / 1_000).min(u32::MAX.into()) * 1_000,
        }
    }

    /// Creates a notice about a packet with these headers and `payload` bytes. `None` over IPv6, which notices do not
    /// support.
    pub fn about(path: &Path, headers: &Headers, payload: u32) -> Option<RateNotice> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (path.src, path.dst) else { return None };
        Some(RateNotice {
            from: Ipv4Addr::UNSPECIFIED,
            port: 0,
            rate: 0,
            queue: 0,
            src,
            dst,
            udp_src: path.udp_src,
            traffic_class: path.traffic_class,
            ttl: path.hop_limit,
            frame_len: headers.frame_len(payload as usize) as u16,
            bth: headers.bth,
            history: None,
            format: headers.extensions(),
        })
    }

    /// Returns the addresses and traffic class of the notice itself, which has no UDP port.
    pub fn path(&self) -> Path {
        let (src, dst) = (IpAddr::V4(self.from), IpAddr::V4(self.src));
        Path { src, dst, udp_src: 0, traffic_class: TRAFFIC_CLASS, hop_limit: 64 }
    }

    /// Returns the notice as an IPv4 datagram.
    pub fn emit(&self) -> NoticeBytes {
        let len = self.datagram_len();
        let mut out = NoticeBytes { bytes: [0; RateNotice::LEN + HISTORY], len };
        let (outer, message) = out.bytes[..len].split_at_mut(IPV4_LEN);
        outer[..4].copy_from_slice(&[0x45, TRAFFIC_CLASS, 0, len as u8]);
        outer[8..10].copy_from_slice(&[64, ICMP]);
        outer[12..16].copy_from_slice(&self.from.octets());
        outer[16..].copy_from_slice(&self.src.octets());
        let sum = ipv4_checksum(outer);
        outer[10..12].copy_from_slice(&sum.to_be_bytes());

        message[0] = TYPE;
        message[6..8].copy_from_slice(&self.port.to_be_bytes());
        message[12..16].copy_from_slice(&self.queue.to_be_bytes());
        let mut at = HEADER;
        match &self.history {
            None => {
                message[4] = VERSION;
                message[8..12].copy_from_slice(&self.rate.to_be_bytes());
            }
            Some(h) => {
                message[4..6].copy_from_slice(&[WITH_HISTORY, h.fraction]);
                message[8..12].copy_from_slice(&h.rate.to_be_bytes());
                for word in [h.least, h.most, h.queue, h.qref, h.qmid, h.qmax, h.chunk, h.alpha, h.beta] {
                    message[at..at + 4].copy_from_slice(&word.to_be_bytes());
                    at += 4;
                }
            }
        }
        let path = Path {
            src: IpAddr::V4(self.src),
            dst: IpAddr::V4(self.dst),
            udp_src: self.udp_src,
            traffic_class: self.traffic_class,
            hop_limit: self.ttl,
        };
        at += ip::emit(&path, 0, self.frame_len.into(), &mut message[at..]);
        message[at..].copy_from_slice(&self.bth.emit(self.format));
        let sum = ipv4_checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// Parses an IPv4 datagram. Bytes behind its length are ignored.
    ///
    /// # Errors
    /// [`NoticeError::Foreign`] if it is of another kind, otherwise the error found.
    pub fn parse(datagram: &[u8]) -> Result<RateNotice, NoticeError> {
        let (outer, rest) = datagram.split_first_chunk::<IPV4_LEN>().ok_or(NoticeError::Foreign)?;
        let fragment = u16::from_be_bytes([outer[6], outer[7]]) & 0x3fff;
        if outer[0] != 0x45 || outer[9] != ICMP || fragment != 0 || !rest.starts_with(&[TYPE, 0]) {
            return Err(NoticeError::Foreign);
        }
        let total = usize::from(u16::from_be_bytes([outer[2], outer[3]])).min(datagram.len());
        let more = if rest.get(4) == Some(&WITH_HISTORY) { HISTORY } else { 0 };
        let len = RateNotice::LEN + more;
        if total < len {
            return Err(NoticeError::TooShort(total, len));
        }
        // The checksum of data that includes its checksum is zero.
        if ipv4_checksum(outer) != 0 {
            return Err(NoticeError::Checksum("the IPv4 header"));
        }
        let message = &datagram[IPV4_LEN..len];
        if total > len || ipv4_checksum(message) != 0 {
            return Err(NoticeError::Checksum("the ICMP message"));
        }
        if !matches!(message[4], VERSION | WITH_HISTORY) {
            return Err(NoticeError::Version(message[4]));
        }
        let word = |b: &[u8], at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let half = |b: &[u8], at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        let history = (more > 0).then(|| FairRateHistory {
            rate: word(message, 8),
            least: word(message, 16),
            most: word(message, 20),
            queue: word(message, 24),
            qref: word(message, 28),
            qmid: word(message, 32),
            qmax: word(message, 36),
            chunk: word(message, 40),
            alpha: word(message, 44),
            beta: word(message, 48),
            fraction: message[5],
        });
        let quote = &message[HEADER + more..];
        let (inner, udp) = quote.split_at(IPV4_LEN);
        let frame_len = half(udp, 4).checked_sub(UDP_LEN as u16).ok_or(NoticeError::Quote)?;
        if inner[0] != 0x45 || inner[9] != UDP || half(udp, 2) != ROCE_PORT {
            return Err(NoticeError::Quote);
        }
        let bth = udp[UDP_LEN..].first_chunk::<{ Bth::LEN }>().ok_or(NoticeError::Quote)?;
        let (bth, format) = Bth::parse(bth)?;
        let (to, src) = (Ipv4Addr::from_bits(word(outer, 16)), Ipv4Addr::from_bits(word(inner, 12)));
        if to != src {
            return Err(NoticeError::Receiver(to, src));
        }
        Ok(RateNotice {
            from: Ipv4Addr::from_bits(word(outer, 12)),
            port: half(message, 6),
            rate: if history.is_some() { 0 } else { word(message, 8) },
            queue: word(message, 12),
            src,
            dst: Ipv4Addr::from_bits(word(inner, 16)),
            udp_src: half(udp, 0),
            traffic_class: inner[1],
            ttl: inner[8],
            frame_len,
            bth,
            history,
            format,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::{FairRate, FairRateConfig};
    use crate::psn::Psn;
    use crate::wire::{IrnEth, Opcode};

    fn notice() -> RateNotice {
        let headers = Headers {
            irn: Some(IrnEth::Write),
            ..Headers::new(Bth::new(Opcode::RcWriteMiddle, 0x123456, Psn::new(7)))
        };
        let [src, dst] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let path = Path { src, dst, udp_src: 0xc001, traffic_class: 0x62, hop_limit: 63 };
        let from = Ipv4Addr::new(10, 0, 0, 9);
        RateNotice {
            from,
            port: 3,
            rate: 13_330_000,
            queue: 150_123,
            ..RateNotice::about(&path, &headers, 1024).unwrap()
        }
    }

    /// With the inputs of the rate instead.
    fn notice_with_history() -> RateNotice {
        let mut point = FairRate::new(&FairRateConfig::of_link(40_000_000_000));
        point.step(170_000);
        RateNotice { rate: 0, history: point.history(), ..notice() }
    }

    /// Sets a byte of the ICMP message, and corrects its checksum.
    fn changed(at: usize, to: u8) -> Result<RateNotice, NoticeError> {
        let mut bytes = notice().emit().to_vec();
        let message = &mut bytes[IPV4_LEN..];
        message[at] = to;
        message[2..4].fill(0);
        let sum = ipv4_checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        RateNotice::parse(&bytes)
    }

    #[test]
    fn bytes_are_where_the_document_has_them() {
        let bytes = notice().emit();
        assert_eq!((bytes.len(), bytes.len() + 14 + 4), (76, 94));
        assert_eq!(bytes[..10], [0x45, 0xe0, 0, 76, 0, 0, 0, 0, 64, 1]);
        assert_eq!(bytes[12..20], [10, 0, 0, 9, 10, 0, 0, 1]);
        let message = &bytes[20..];
        assert_eq!((message[..2].to_vec(), message[4..8].to_vec()), (vec![253, 0], vec![1, 0, 0, 3]));
        assert_eq!(message[8..16], [0, 0xcb, 0x66, 0x50, 0, 2, 0x4a, 0x6b]);
        assert_eq!(message[16..20], [0x45, 0x62, 0x04, 0x3c]);
        assert_eq!(message[28..36], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(message[36..42], [0xc0, 0x01, 0x12, 0xb7, 0x04, 0x28]);
        assert_eq!((message[44], message[45] & 0xf, message[49..52].to_vec()), (0x07, 1, vec![0x12, 0x34, 0x56]));
    }

    #[test]
    fn it_reads_what_it_writes_and_leaves_padding_out() {
        let mut bytes = notice().emit().to_vec();
        assert_eq!(RateNotice::parse(&bytes), Ok(notice()));
        bytes.extend([0; 6]);
        assert_eq!(RateNotice::parse(&bytes), Ok(notice()));
        assert_eq!(notice().path().priority(), 7);
    }

    #[test]
    fn a_rate_and_what_it_follows_from_are_the_same_rate() {
        let notice = notice_with_history();
        let bytes = notice.emit();
        assert_eq!((bytes.len(), bytes[24], bytes[25]), (112, 2, 16));
        let read = RateNotice::parse(&bytes);
        assert_eq!(read, Ok(notice));
        // At 40 Gbit/s and 170 KB it was 39.4 Gbit/s; at 150,123 bytes it follows from Algorithm 1.
        let mut point = FairRate::new(&FairRateConfig::of_link(40_000_000_000));
        point.step(170_000);
        let rate = point.step(150_123) / 1_000 * 1_000;
        assert_eq!(read.map(|read| read.fair_rate()), Ok(rate));
        assert_eq!(super::RateNotice { rate: (rate / 1_000) as u32, history: None, ..notice }.fair_rate(), rate);
    }

    #[test]
    fn errors_name_the_fault() {
        let bytes = notice().emit();
        for len in 0..bytes.len() {
            let error = if len < 22 { NoticeError::Foreign } else { NoticeError::TooShort(len, 76) };
            assert_eq!(RateNotice::parse(&bytes[..len]), Err(error), "{len}");
        }
        let long = notice_with_history().emit();
        assert_eq!(RateNotice::parse(&long[..100]), Err(NoticeError::TooShort(100, 112)));
        assert_eq!(changed(0, 8), Err(NoticeError::Foreign));
        assert_eq!(changed(1, 1), Err(NoticeError::Foreign));
        assert_eq!(changed(4, 3), Err(NoticeError::Version(3)));
        assert_eq!(changed(4, 2), Err(NoticeError::TooShort(76, 112)));
        for (at, to) in [(16, 0x46), (25, 6), (39, 0)] {
            assert!(changed(at, to).is_err(), "{at}");
        }
        assert_eq!(changed(25, 6), Err(NoticeError::Quote));
        assert_eq!(changed(44, 0xff), Err(NoticeError::Bth(ParseError::UnknownOpcode(0xff))));
        let [to, src] = [1, 77].map(|n| Ipv4Addr::new(10, 0, 0, n));
        assert_eq!(changed(31, 77), Err(NoticeError::Receiver(to, src)));
        assert_eq!(NoticeError::Receiver(to, src).to_string(), "a notice to 10.0.0.1 quotes a packet of 10.0.0.77");
    }

    #[test]
    fn any_wrong_bit_is_found() {
        for notice in [notice(), notice_with_history()] {
            for bit in 0..notice.datagram_len() * 8 {
                let mut bytes = notice.emit().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(RateNotice::parse(&bytes).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn there_is_none_over_ipv6() {
        let headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 1, Psn::new(0)));
        let address = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
        let path = Path { src: address, dst: address, udp_src: 0, traffic_class: 0, hop_limit: 1 };
        assert_eq!(RateNotice::about(&path, &headers, 0), None);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            at in 20..RateNotice::LEN, history in any::<bool>(), with in proptest::collection::vec(any::<u8>(), 1..24), n in 0..90_usize
        ) {
            let mut bytes = if history { notice_with_history() } else { notice() }.emit().to_vec();
            let room = bytes.len() - at;
            let with = &with[..with.len().min(room)];
            bytes[at..at + with.len()].copy_from_slice(with);
            bytes[22..24].fill(0);
            let sum = ipv4_checksum(&bytes[20..]);
            bytes[22..24].copy_from_slice(&sum.to_be_bytes());
            if let Ok(read) = RateNotice::parse(&bytes) {
                prop_assert_eq!(RateNotice::parse(&read.emit()), Ok(read));
            }
            bytes.truncate(n);
            let _ = RateNotice::parse(&bytes);
        }
    }
}
