//! Global route header (IBA 8.3), 40 bytes: not on the wire in RoCEv2, but still at the start of a UD queue pair's
//! receive buffers.

use std::net::Ipv6Addr;

use super::ip;
use crate::packet::Path;

/// A global route header: field for field an IPv6 header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after the GRH.
    pub payload_len: u16,
    /// 0x1b for an IBA transport header, 17 (UDP) in RoCEv2.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The sender's GID.
    pub sgid: Ipv6Addr,
    /// The receiver's GID.
    pub dgid: Ipv6Addr,
}

impl Grh {
    /// Length in bytes.
    pub const LEN: usize = 40;

    /// Parses a header. `None` if its version is not 6: a receive area that holds an IPv4 header, or garbage.
    pub fn parse(b: &[u8; Grh::LEN]) -> Option<Grh> {
        let gid = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| b[at + i]));
        (b[0] >> 4 == 6).then(|| Grh {
            traffic_class: b[0] << 4 | b[1] >> 4,
            flow_label: u32::from_be_bytes([0, b[1] & 0x0f, b[2], b[3]]),
            payload_len: u16::from_be_bytes([b[4], b[5]]),
            next_header: b[6],
            hop_limit: b[7],
            sgid: gid(8),
            dgid: gid(24),
        })
    }

    /// Returns the header's bytes.
    pub fn emit(&self) -> [u8; Grh::LEN] {
        let mut b = [0; Grh::LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        b[..4].copy_from_slice(&first.to_be_bytes());
        b[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.sgid.octets());
        b[24..].copy_from_slice(&self.dgid.octets());
        b
    }

    /// Returns the first 40 bytes of a UD receive buffer after a frame of `frame_len` bytes arrived on `path`: the IPv6
    /// header, or 20 zero bytes and the IPv4 header (IBA A17.4.5.1).
    pub fn receive_area(path: &Path, frame_len: usize) -> [u8; Grh::LEN] {
        let mut headers = [0; ip::MAX_HEADERS_LEN];
        let len = ip::emit(path, 0, frame_len, &mut headers) - ip::UDP_LEN;
        let mut area = [0; Grh::LEN];
        area[Grh::LEN - len..].copy_from_slice(&headers[..len]);
        area
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emit_and_parse_are_inverse() {
        let grh = Grh {
            traffic_class: 0xa5,
            flow_label: 0x9_8765,
            payload_len: 4096,
            next_header: 0x1b,
            hop_limit: 64,
            sgid: "fe80::1".parse().expect("address"),
            dgid: "ff0e::7".parse().expect("address"),
        };
        assert_eq!(Grh::parse(&grh.emit()), Some(grh));
        assert_eq!(Grh::parse(&[0; Grh::LEN]), None);
    }

    #[test]
    fn receive_area_ends_with_the_ip_header() {
        let mut path = Path {
            src: "10.0.0.1".parse().expect("address"),
            dst: "10.0.0.2".parse().expect("address"),
            udp_src: 0xc000,
            traffic_class: 8,
            hop_limit: 64,
        };
        let area = Grh::receive_area(&path, 24);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20..24], [0x45, 8, 0, 52]);
        assert_eq!(area[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(ip::ipv4_checksum(&area[20..]), 0);

        path.src = "2001:db8::1".parse().expect("address");
        path.dst = "2001:db8::2".parse().expect("address");
        let grh = Grh::parse(&Grh::receive_area(&path, 24)).expect("an IPv6 header");
        assert_eq!((grh.sgid, grh.dgid, grh.payload_len), (ip::to_ipv6(path.src), ip::to_ipv6(path.dst), 32));
    }
}
