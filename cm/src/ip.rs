//! Socket addresses in the private data of REQ and SIDR_REQ: 36 bytes, `struct cma_hdr` in the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The header in front of users' private data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct IpHeader {
    /// The sender's socket address.
    pub(crate) src: SocketAddr,
    /// The address that it requests.
    pub(crate) dst: IpAddr,
}

impl IpHeader {
    pub(crate) const LEN: usize = 36;

    /// Parses a header; `None` if the private data has none: another version, or neither IPv4 nor IPv6.
    pub(crate) fn parse(data: &[u8]) -> Option<IpHeader> {
        let header: &[u8; IpHeader::LEN] = data.first_chunk()?;
        if header[0] != 0 {
            return None;
        }
        let port = u16::from_be_bytes([header[2], header[3]]);
        let (src, dst) = match header[1] >> 4 {
            4 => (v4(header, 16).into(), v4(header, 32).into()),
            6 => (v6(header, 4).into(), v6(header, 20).into()),
            _ => return None,
        };
        Some(IpHeader { src: SocketAddr::new(src, port), dst })
    }

    /// Writes the header to the start of `data`. If only one address is IPv4, it is mapped to IPv6.
    pub(crate) fn emit(&self, data: &mut [u8]) {
        let Some(header) = data.first_chunk_mut::<{ IpHeader::LEN }>() else { return };
        header.fill(0);
        header[2..4].copy_from_slice(&self.src.port().to_be_bytes());
        if let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src.ip(), self.dst) {
            header[1] = 4 << 4;
            header[16..20].copy_from_slice(&src.octets());
            header[32..36].copy_from_slice(&dst.octets());
        } else {
            header[1] = 6 << 4;
            header[4..20].copy_from_slice(&irnic_transports::wire::ip::to_ipv6(self.src.ip()).octets());
            header[20..36].copy_from_slice(&irnic_transports::wire::ip::to_ipv6(self.dst).octets());
        }
    }
}

fn v4(header: &[u8; IpHeader::LEN], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| header[at + i]))
}

fn v6(header: &[u8; IpHeader::LEN], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| header[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_captures() {
        // cm_rping.pcap: 10.77.0.12:33157 to 10.77.0.11.
        let mut data = [0; IpHeader::LEN];
        data[..4].copy_from_slice(&[0, 0x40, 0x81, 0x85]);
        data[16..20].copy_from_slice(&[10, 77, 0, 12]);
        data[32..].copy_from_slice(&[10, 77, 0, 11]);
        let header = IpHeader { src: "10.77.0.12:33157".parse().expect("an address"), dst: [10, 77, 0, 11].into() };
        assert_eq!(IpHeader::parse(&data), Some(header));
        let mut again = [0xff; IpHeader::LEN];
        header.emit(&mut again);
        assert_eq!(again, data);
    }

    #[test]
    fn ipv6_goes_there_and_back_and_others_are_refused() {
        let header = IpHeader {
            src: "[2001:db8::1]:77".parse().expect("an address"),
            dst: "2001:db8::2".parse().expect("an address"),
        };
        let mut data = [0; 56];
        header.emit(&mut data);
        assert_eq!(IpHeader::parse(&data), Some(header));
        for (at, value) in [(0, 1), (1, 0x50), (1, 0)] {
            let mut other = data;
            other[at] = value;
            assert_eq!(IpHeader::parse(&other), None);
        }
        assert_eq!(IpHeader::parse(&data[..35]), None);
    }
}
