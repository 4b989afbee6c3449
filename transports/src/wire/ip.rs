//! Ethernet II, IPv4, IPv6 and UDP around a frame, for captures and for ports that handle whole packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::ROCE_PORT;
use crate::packet::Path;

/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// Bytes of the longest IP and UDP headers together.
pub const MAX_HEADERS_LEN: usize = IPV6_LEN + UDP_LEN;
/// Bytes of an Ethernet header without VLAN tags.
pub const ETHERNET_LEN: usize = 14;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherTypes of 802.1Q and 802.1ad tags.
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];

const UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A parsed RoCEv2 datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Addresses, UDP source port, traffic class and hop limit.
    pub path: Path,
    /// IPv4 identification, 0 for IPv6. The ICRC covers it.
    pub ip_id: u16,
    /// IP and UDP headers as received, for [`icrc_of_headers`](super::icrc_of_headers).
    pub headers: &'a [u8],
    /// The UDP payload: BTH to ICRC.
    pub frame: &'a [u8],
}

/// Reason why bytes are not a whole RoCEv2 datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum IpError {
    /// Neither IPv4 nor IPv6.
    #[error("EtherType {0:#06x} is not IP")]
    EtherType(u16),
    /// An IP version that does not exist.
    #[error("IP version {0}")]
    Version(u8),
    /// Not UDP. Also an IPv6 extension header.
    #[error("IP protocol {0} is not UDP")]
    Protocol(u8),
    /// UDP, but not to RoCEv2's port.
    #[error("UDP port {0} is not RoCEv2's 4791")]
    Port(u16),
    /// The bytes end inside a header.
    #[error("{have} bytes end inside the {header} header")]
    TooShort {
        /// The header.
        header: &'static str,
        /// Bytes available, from that header on.
        have: usize,
    },
    /// An IPv4 header with options, or with a length below its minimum.
    #[error("IPv4 header of {0} bytes, 20 expected")]
    HeaderLength(usize),
    /// A fragment. RoCEv2 is never fragmented (IBA A17.3).
    #[error("IP fragment at offset {offset}")]
    Fragment {
        /// Offset in bytes.
        offset: usize,
    },
    /// A length field is inconsistent with the bytes available or with the enclosing header.
    #[error("{header} length field says {says} bytes, {have} are there")]
    Length {
        /// The header.
        header: &'static str,
        /// Value of the field.
        says: usize,
        /// Bytes available.
        have: usize,
    },
}

impl IpError {
    /// Returns whether this is traffic of another kind rather than malformed RoCEv2. Later fragments count as such:
    /// they have no port to identify them.
    pub fn is_foreign(&self) -> bool {
        match self {
            IpError::EtherType(_) | IpError::Version(_) | IpError::Protocol(_) | IpError::Port(_) => true,
            IpError::Fragment { offset } => *offset > 0,
            IpError::TooShort { header, .. } => *header != "UDP",
            IpError::HeaderLength(_) | IpError::Length { .. } => false,
        }
    }
}

/// Parses an Ethernet II packet, including VLAN tags. Padding behind the datagram is ignored.
pub fn parse_ethernet(bytes: &[u8]) -> Result<Datagram<'_>, IpError> {
    let too_short = IpError::TooShort { header: "Ethernet", have: bytes.len() };
    let (_addresses, mut rest) = bytes.split_first_chunk::<12>().ok_or(too_short)?;
    loop {
        let (ethertype, after) = rest.split_first_chunk::<2>().ok_or(too_short)?;
        let ethertype = u16::from_be_bytes(*ethertype);
        if !ETHERTYPE_VLAN.contains(&ethertype) {
            return parse_ethertype(ethertype, after);
        }
        (_, rest) = after.split_first_chunk::<2>().ok_or(too_short)?;
    }
}

/// Parses the payload of a link-layer header with this EtherType.
pub fn parse_ethertype(ethertype: u16, bytes: &[u8]) -> Result<Datagram<'_>, IpError> {
    match ethertype {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => parse_ip(bytes),
        other => Err(IpError::EtherType(other)),
    }
}

/// Parses an IPv4 or IPv6 packet. Bytes behind its length are ignored.
pub fn parse_ip(bytes: &[u8]) -> Result<Datagram<'_>, IpError> {
    match bytes.first().map(|b| b >> 4) {
        Some(4) => parse_ipv4(bytes),
        Some(6) => parse_ipv6(bytes),
        Some(version) => Err(IpError::Version(version)),
        None => Err(IpError::TooShort { header: "IP", have: 0 }),
    }
}

fn parse_ipv4(bytes: &[u8]) -> Result<Datagram<'_>, IpError> {
    let too_short = IpError::TooShort { header: "IPv4", have: bytes.len() };
    let (h, _) = bytes.split_first_chunk::<IPV4_LEN>().ok_or(too_short)?;
    if h[9] != UDP {
        return Err(IpError::Protocol(h[9]));
    }
    let fragment = u16::from_be_bytes([h[6], h[7]]);
    let offset = usize::from(fragment & 0x1fff) * 8;
    if offset > 0 {
        return Err(IpError::Fragment { offset });
    }
    let header_len = usize::from(h[0] & 0x0f) * 4;
    // The port first: other traffic may have options and fragments.
    if let Some(port) = bytes.get(header_len.max(IPV4_LEN)..).and_then(udp_port)
        && port != ROCE_PORT
    {
        return Err(IpError::Port(port));
    }
    if header_len != IPV4_LEN {
        return Err(IpError::HeaderLength(header_len));
    }
    if fragment & MORE_FRAGMENTS != 0 {
        return Err(IpError::Fragment { offset });
    }
    let total = usize::from(u16::from_be_bytes([h[2], h[3]]));
    if total < IPV4_LEN || total > bytes.len() {
        return Err(IpError::Length { header: "IPv4", says: total, have: bytes.len() });
    }
    let (udp_src, frame) = parse_udp(&bytes[IPV4_LEN..total])?;
    let path = Path {
        src: IpAddr::V4(Ipv4Addr::new(h[12], h[13], h[14], h[15])),
        dst: IpAddr::V4(Ipv4Addr::new(h[16], h[17], h[18], h[19])),
        udp_src,
        traffic_class: h[1],
        hop_limit: h[8],
    };
    let ip_id = u16::from_be_bytes([h[4], h[5]]);
    Ok(Datagram { path, ip_id, headers: &bytes[..IPV4_LEN + UDP_LEN], frame })
}

fn parse_ipv6(bytes: &[u8]) -> Result<Datagram<'_>, IpError> {
    let too_short = IpError::TooShort { header: "IPv6", have: bytes.len() };
    let (h, rest) = bytes.split_first_chunk::<IPV6_LEN>().ok_or(too_short)?;
    if h[6] != UDP {
        return Err(IpError::Protocol(h[6]));
    }
    if let Some(port) = udp_port(rest)
        && port != ROCE_PORT
    {
        return Err(IpError::Port(port));
    }
    let payload = usize::from(u16::from_be_bytes([h[4], h[5]]));
    if payload > rest.len() {
        return Err(IpError::Length { header: "IPv6", says: payload, have: rest.len() });
    }
    let (udp_src, frame) = parse_udp(&rest[..payload])?;
    let address = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| h[at + i]));
    let path = Path {
        src: IpAddr::V6(address(8)),
        dst: IpAddr::V6(address(24)),
        udp_src,
        traffic_class: h[0] << 4 | h[1] >> 4,
        hop_limit: h[7],
    };
    Ok(Datagram { path, ip_id: 0, headers: &bytes[..MAX_HEADERS_LEN], frame })
}

/// Returns the destination port, if there are enough bytes.
fn udp_port(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk::<4>().map(|b| u16::from_be_bytes([b[2], b[3]]))
}

/// Returns the source port and payload of a UDP datagram to RoCEv2's port that fills `bytes`.
fn parse_udp(bytes: &[u8]) -> Result<(u16, &[u8]), IpError> {
    let too_short = IpError::TooShort { header: "UDP", have: bytes.len() };
    let (h, payload) = bytes.split_first_chunk::<UDP_LEN>().ok_or(too_short)?;
    let says = usize::from(u16::from_be_bytes([h[4], h[5]]));
    if says != bytes.len() {
        return Err(IpError::Length { header: "UDP", says, have: bytes.len() });
    }
    Ok((u16::from_be_bytes([h[0], h[1]]), payload))
}

/// Returns the bytes of IP and UDP headers on this path.
#[inline]
pub fn headers_len(path: &Path) -> usize {
    if matches!((path.src, path.dst), (IpAddr::V4(_), IpAddr::V4(_))) { IPV4_LEN + UDP_LEN } else { MAX_HEADERS_LEN }
}

/// Writes IP and UDP headers for a frame of `frame_len` bytes, BTH to ICRC, to the start of `out`, and returns their
/// length. IPv4 has DF set; the UDP checksum is 0, since the ICRC covers more (IBA A17.3). If only one address is IPv4,
/// it is mapped to IPv6.
///
/// # Panics
/// If `out` is shorter than [`headers_len`].
pub fn emit(path: &Path, ip_id: u16, frame_len: usize, out: &mut [u8]) -> usize {
    let mut headers = [0; MAX_HEADERS_LEN];
    let len = lay_out(path, ip_id, frame_len, &mut headers);
    if len == IPV4_LEN + UDP_LEN {
        let checksum = ipv4_checksum(&headers[..IPV4_LEN]);
        headers[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    out[..len].copy_from_slice(&headers[..len]);
    len
}

/// Writes an Ethernet II header for a packet on this path.
pub fn emit_ethernet(path: &Path, src_mac: [u8; 6], dst_mac: [u8; 6]) -> [u8; ETHERNET_LEN] {
    let v4 = headers_len(path) == IPV4_LEN + UDP_LEN;
    let mut h = [0; ETHERNET_LEN];
    h[..6].copy_from_slice(&dst_mac);
    h[6..12].copy_from_slice(&src_mac);
    h[12..].copy_from_slice(&if v4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }.to_be_bytes());
    h
}

/// Writes the headers, with checksums of 0. A frame too long for the 16-bit length fields cannot be sent; its length
/// wraps.
#[inline]
fn lay_out(path: &Path, ip_id: u16, frame_len: usize, h: &mut [u8; MAX_HEADERS_LEN]) -> usize {
    let udp_len = (UDP_LEN + frame_len) as u16;
    let udp = if let (IpAddr::V4(src), IpAddr::V4(dst)) = (path.src, path.dst) {
        h[0] = 0x45;
        h[1] = path.traffic_class;
        h[2..4].copy_from_slice(&udp_len.wrapping_add(IPV4_LEN as u16).to_be_bytes());
        h[4..6].copy_from_slice(&ip_id.to_be_bytes());
        h[6] = DONT_FRAGMENT;
        h[8] = path.hop_limit;
        h[9] = UDP;
        h[12..16].copy_from_slice(&src.octets());
        h[16..20].copy_from_slice(&dst.octets());
        IPV4_LEN
    } else {
        h[0] = 0x60 | path.traffic_class >> 4;
        h[1] = path.traffic_class << 4;
        h[4..6].copy_from_slice(&udp_len.to_be_bytes());
        h[6] = UDP;
        h[7] = path.hop_limit;
        h[8..24].copy_from_slice(&to_ipv6(path.src).octets());
        h[24..40].copy_from_slice(&to_ipv6(path.dst).octets());
        IPV6_LEN
    };
    h[udp..udp + 2].copy_from_slice(&path.udp_src.to_be_bytes());
    h[udp + 2..udp + 4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    h[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
    udp + UDP_LEN
}

/// Returns the address as an IPv6 one: an IPv4 address is mapped, as in a GID.
pub fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Returns the checksum of an IPv4 header (RFC 1071) whose checksum field is 0.
pub fn ipv4_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(path: &Path, ip_id: u16, frame: &[u8]) -> Vec<u8> {
        let mut bytes = emit_ethernet(path, [2; 6], [4; 6]).to_vec();
        let mut headers = [0; MAX_HEADERS_LEN];
        let n = emit(path, ip_id, frame.len(), &mut headers);
        assert_eq!(n, headers_len(path));
        bytes.extend(&headers[..n]);
        bytes.extend(frame);
        bytes
    }

    fn paths() -> [Path; 2] {
        let path = |src: &str, dst: &str| Path {
            src: src.parse().expect("address"),
            dst: dst.parse().expect("address"),
            udp_src: 0xc0de,
            traffic_class: 0xb6,
            hop_limit: 63,
        };
        [path("192.0.2.1", "198.51.100.2"), path("2001:db8::1", "2001:db8::2")]
    }

    #[test]
    fn what_is_emitted_parses_back() {
        for path in paths() {
            for len in [0, 1, 16, 4140] {
                let frame = vec![0x5a; len];
                let mut bytes = packet(&path, 77, &frame);
                bytes.extend([0; 6]); // Ethernet pads short packets
                let datagram = parse_ethernet(&bytes).expect("datagram");
                assert_eq!(datagram.path, path);
                assert_eq!(datagram.frame, frame);
                assert_eq!(datagram.ip_id, if path.src.is_ipv4() { 77 } else { 0 });
                assert_eq!(datagram.headers, &bytes[ETHERNET_LEN..ETHERNET_LEN + headers_len(&path)]);
            }
        }
    }

    #[test]
    fn vlan_tags_are_skipped() {
        for path in paths() {
            let mut bytes = packet(&path, 1, &[9; 16]);
            bytes.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
            assert_eq!(parse_ethernet(&bytes).expect("datagram").frame, [9; 16]);
        }
    }

    #[test]
    fn ipv4_checksum_of_the_rfc_example() {
        let mut header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        let checksum = ipv4_checksum(&header);
        assert_eq!(checksum, 0xb861);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(ipv4_checksum(&header), 0, "a header with its checksum sums to ones");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let [v4, v6] = paths();
        let broken = |path: &Path, at: usize, value: u8| {
            let mut bytes = packet(path, 0, &[0; 16])[ETHERNET_LEN..].to_vec();
            bytes[at] = value;
            parse_ip(&bytes).expect_err("broken")
        };
        assert_eq!(broken(&v4, 0, 0x55), IpError::Version(5));
        let mut options = packet(&v4, 0, &[0; 16])[ETHERNET_LEN..].to_vec();
        options[0] = 0x46;
        options.splice(IPV4_LEN..IPV4_LEN, [1; 4]);
        assert_eq!(parse_ip(&options), Err(IpError::HeaderLength(24)));
        assert_eq!(broken(&v4, 0, 0x44), IpError::HeaderLength(16));
        assert_eq!(broken(&v4, 9, 6), IpError::Protocol(6));
        assert_eq!(broken(&v4, 6, 0x20), IpError::Fragment { offset: 0 });
        assert_eq!(broken(&v4, 7, 2), IpError::Fragment { offset: 16 });
        assert_eq!(broken(&v4, 23, 0), IpError::Port(0x1200));
        assert_eq!(broken(&v4, 3, 45), IpError::Length { header: "IPv4", says: 45, have: 44 });
        assert_eq!(broken(&v4, 3, 22), IpError::TooShort { header: "UDP", have: 2 });
        assert_eq!(broken(&v4, 25, 25), IpError::Length { header: "UDP", says: 25, have: 24 });
        assert_eq!(broken(&v6, 6, 44), IpError::Protocol(44));
        assert_eq!(broken(&v6, 5, 25), IpError::Length { header: "IPv6", says: 25, have: 24 });
        assert_eq!(parse_ethertype(0x0806, &[]), Err(IpError::EtherType(0x0806)));
    }

    #[test]
    fn every_cut_is_an_error() {
        for path in paths() {
            let bytes = packet(&path, 1, &[3; 20]);
            for n in 0..bytes.len() {
                parse_ethernet(&bytes[..n]).expect_err("cut");
            }
        }
    }
}
