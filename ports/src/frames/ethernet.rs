//! Ethernet II: addresses, headers, 802.1Q tags.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use irnic_transports::wire::ip::ETHERNET_LEN;

/// EtherType of ARP.
pub(super) const ARP: u16 = 0x0806;
/// EtherType of an 802.1Q tag.
const VLAN: u16 = 0x8100;

/// Bytes of an Ethernet header with a tag.
pub(super) const MAX_HEADER: usize = ETHERNET_LEN + 4;

/// Bytes of the shortest Ethernet packet, without its checksum. Shorter ones are padded.
pub(super) const MIN_PACKET: usize = 60;

/// VLAN identifier in a tag's control information. Above it are three bits of priority and one drop eligibility bit.
const VLAN_ID: u16 = 0x0fff;

/// A link-layer address.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns the locally administered address that embeds the last bytes of an IP address.
    pub fn derived(address: IpAddr) -> Mac {
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                Mac([0x02, 0, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let [.., a, b, c, d, e] = v6.octets();
                Mac([0x02, a, b, c, d, e])
            }
        }
    }

    /// Returns the address of a multicast group (RFC 1112 6.4, RFC 2464 7).
    pub fn of_group(group: IpAddr) -> Mac {
        match group {
            IpAddr::V4(v4) => {
                let [_, b, c, d] = v4.octets();
                Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(v6) => {
                let [.., a, b, c, d] = v6.octets();
                Mac([0x33, 0x33, a, b, c, d])
            }
        }
    }

    /// Returns whether this is a group address, broadcast included.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns whether this can be the address of one station.
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is not a link-layer address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected six bytes such as 02:00:0a:4d:00:02")]
pub struct ParseMacError;

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Mac, ParseMacError> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_none() { Ok(Mac(mac)) } else { Err(ParseMacError) }
    }
}

/// A parsed Ethernet packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) dst: Mac,
    pub(super) src: Mac,
    /// VLAN identifier; 0 without a tag and for a priority tag.
    pub(super) vlan: u16,
    pub(super) ethertype: u16,
    pub(super) payload: &'a [u8],
}

/// Parses a packet. `tag` is the control information of a tag that the carrier has stripped. `None` if the packet ends
/// inside a header. A second tag is not parsed: the EtherType is then the tag's.
pub(super) fn parse(bytes: &[u8], tag: Option<u16>) -> Option<Packet<'_>> {
    let (header, mut payload) = bytes.split_first_chunk::<ETHERNET_LEN>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    let mut ethertype = u16::from_be_bytes([t0, t1]);
    let mut vlan = tag.unwrap_or(0) & VLAN_ID;
    if tag.is_none() && ethertype == VLAN {
        let ([c0, c1, e0, e1], rest) = payload.split_first_chunk::<4>()?;
        vlan = u16::from_be_bytes([*c0, *c1]) & VLAN_ID;
        ethertype = u16::from_be_bytes([*e0, *e1]);
        payload = rest;
    }
    let (dst, src) = (Mac([d0, d1, d2, d3, d4, d5]), Mac([s0, s1, s2, s3, s4, s5]));
    Some(Packet { dst, src, vlan, ethertype, payload })
}

/// Returns the length of a header in bytes.
pub(super) fn header_len(vlan: Option<u16>) -> usize {
    if vlan.is_some() { MAX_HEADER } else { ETHERNET_LEN }
}

/// Writes a header to the start of `out` and returns its length. The tag of `vlan` has the given priority, 0 to 7.
///
/// # Panics
/// If `out` is shorter than [`header_len`].
pub(super) fn emit(dst: Mac, src: Mac, vlan: Option<u16>, priority: u8, ethertype: u16, out: &mut [u8]) -> usize {
    out[..6].copy_from_slice(&dst.0);
    out[6..12].copy_from_slice(&src.0);
    let mut at = 12;
    if let Some(id) = vlan {
        out[at..at + 2].copy_from_slice(&VLAN.to_be_bytes());
        let control = u16::from(priority & 7) << 13 | id & VLAN_ID;
        out[at + 2..at + 4].copy_from_slice(&control.to_be_bytes());
        at += 4;
    }
    out[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    at + 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_parses_back() {
        let (dst, src) = (Mac([2, 0, 10, 0, 0, 2]), Mac([2, 0, 10, 0, 0, 1]));
        for (vlan, priority, len) in [(None, 0, 14), (Some(5), 3, 18), (Some(4094), 7, 18)] {
            let mut bytes = [0xee; 30];
            assert_eq!(emit(dst, src, vlan, priority, ARP, &mut bytes), len);
            assert_eq!(header_len(vlan), len);
            let packet = parse(&bytes, None).unwrap();
            let payload = &bytes[len..];
            assert_eq!(packet, Packet { dst, src, vlan: vlan.unwrap_or(0), ethertype: ARP, payload });
            if vlan.is_some() {
                assert_eq!(bytes[14] >> 5, priority);
            }
            for cut in 0..len {
                assert_eq!(parse(&bytes[..cut], None), None);
            }
        }
    }

    #[test]
    fn a_tag_that_the_carrier_took_out_counts() {
        let mut bytes = [0; 20];
        emit(Mac::BROADCAST, Mac::default(), None, 0, ARP, &mut bytes);
        assert_eq!(parse(&bytes, Some(0xe007)).unwrap().vlan, 7);
        // A second tag is not parsed.
        emit(Mac::BROADCAST, Mac::default(), Some(9), 0, ARP, &mut bytes);
        let packet = parse(&bytes, Some(7)).unwrap();
        assert_eq!((packet.vlan, packet.ethertype), (7, VLAN));
    }

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in ["02:00:0a:4d:00:02", "ff:ff:ff:ff:ff:ff"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "02:00:0a:4d:00", "02:00:0a:4d:00:02:03", "2:0:a:4d:0:2", "02:00:0a:4d:00:0g", "+2:00:0a:4d:00:02"]
        {
            assert_eq!(wrong.parse::<Mac>(), Err(ParseMacError), "{wrong}");
        }
    }

    #[test]
    fn groups_have_the_addresses_of_their_rfcs() {
        let mac = |group: &str| Mac::of_group(group.parse().unwrap()).to_string();
        assert_eq!(mac("224.0.0.1"), "01:00:5e:00:00:01");
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("ff02::1:ff12:3456"), "33:33:ff:12:34:56");
        assert!(Mac::of_group("ff02::1".parse().unwrap()).is_multicast());
    }

    #[test]
    fn derived_addresses_are_locally_administered_and_differ() {
        let all = ["10.0.0.1", "10.0.0.2", "fd77::1", "fe80::2"].map(|a| Mac::derived(a.parse().unwrap()));
        for (i, mac) in all.iter().enumerate() {
            assert!(mac.is_unicast() && mac.0[0] & 2 == 2);
            assert!(!all[..i].contains(mac));
        }
        assert!(!Mac::default().is_unicast() && !Mac::BROADCAST.is_unicast());
    }
}
