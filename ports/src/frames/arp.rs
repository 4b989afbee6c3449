//! ARP for IPv4 on Ethernet (RFC 826).

use std::net::Ipv4Addr;

use super::ethernet::Mac;

/// Bytes of a message.
pub(super) const LEN: usize = 28;

/// Hardware type Ethernet, protocol IPv4, and their address lengths.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// An ARP message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Arp {
    /// True for a request, false for a reply.
    pub(super) request: bool,
    pub(super) sender_mac: Mac,
    /// Unspecified in a probe for a duplicate address (RFC 5227).
    pub(super) sender: Ipv4Addr,
    /// Zero in a request to all stations.
    pub(super) target_mac: Mac,
    pub(super) target: Ipv4Addr,
}

impl Arp {
    /// Parses a message; `None` if it is of another kind or truncated. Padding may follow.
    pub(super) fn parse(bytes: &[u8]) -> Option<Arp> {
        let (bytes, _) = bytes.split_first_chunk::<LEN>()?;
        if bytes[..6] != KIND {
            return None;
        }
        let request = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            REQUEST => true,
            REPLY => false,
            _ => return None,
        };
        let mac = |at: usize| Mac(std::array::from_fn(|i| bytes[at + i]));
        let ip = |at: usize| Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| bytes[at + i]));
        Some(Arp { request, sender_mac: mac(8), sender: ip(14), target_mac: mac(18), target: ip(24) })
    }

    /// Returns the bytes of the message.
    pub(super) fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..6].copy_from_slice(&KIND);
        out[6..8].copy_from_slice(&if self.request { REQUEST } else { REPLY }.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..].copy_from_slice(&self.target.octets());
        out
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn request() -> Arp {
        Arp {
            request: true,
            sender_mac: Mac([2, 0, 10, 0, 0, 1]),
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: Mac::default(),
            target: Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    #[test]
    fn what_is_emitted_parses_back() {
        for message in [request(), Arp { request: false, target_mac: Mac([2; 6]), ..request() }] {
            let mut bytes = message.emit().to_vec();
            assert_eq!(Arp::parse(&bytes), Some(message));
            bytes.extend([0; 18]);
            assert_eq!(Arp::parse(&bytes), Some(message), "padded");
        }
    }

    #[test]
    fn the_layout_is_the_rfcs() {
        let bytes = request().emit();
        assert_eq!(bytes[..16], [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 10, 0, 0, 1, 10, 0]);
        assert_eq!(bytes[16..], [0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    }

    #[test]
    fn other_kinds_and_cuts_are_nothing() {
        let bytes = request().emit();
        for cut in 0..LEN {
            assert_eq!(Arp::parse(&bytes[..cut]), None);
        }
        for (at, value) in [(0, 1), (1, 6), (2, 0x86), (3, 0xdd), (4, 8), (5, 16), (6, 1), (7, 0), (7, 3)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Arp::parse(&other), None, "byte {at}");
        }
    }
}
