//! Neighbour discovery for IPv6: solicitations and advertisements (RFC 4861).

use std::net::Ipv6Addr;

use irnic_transports::wire::ip::IPV6_LEN;

use super::ethernet::Mac;

/// Bytes of the longest message that is emitted, with its IPv6 header.
pub(super) const MAX_LEN: usize = IPV6_LEN + BODY + OPTION;

/// Next header of ICMPv6.
pub(super) const ICMPV6: u8 = 58;

/// Bytes of a message before its options, and of a link-layer address option.
const BODY: usize = 24;
const OPTION: usize = 8;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Hop limit of a packet that no router has forwarded.
const HOP_LIMIT: u8 = 255;

/// The all-nodes group of the link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the solicited-node group of an address (RFC 4291 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// A message with the addresses of its packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Nd {
    pub(super) src: Ipv6Addr,
    pub(super) dst: Ipv6Addr,
    /// The address whose link-layer address is asked for or advertised.
    pub(super) target: Ipv6Addr,
    /// The sender's link-layer address in a solicitation, the target's in an advertisement; `None` if the message has
    /// no such option.
    pub(super) mac: Option<Mac>,
    pub(super) kind: Kind,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Solicitation,
    Advertisement {
        /// It answers a solicitation.
        solicited: bool,
        /// It overrides a known address.
        replaces: bool,
    },
}

/// Why an ICMPv6 packet is not accepted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NdError {
    /// It is not a neighbour solicitation or advertisement.
    Other,
    /// Its checksum is wrong.
    Checksum,
    /// It violates a rule of RFC 4861 7.1.
    Malformed,
}

impl Nd {
    /// Parses the message in an IPv6 packet. Bytes beyond its length are ignored.
    pub(super) fn parse(packet: &[u8]) -> Result<Nd, NdError> {
        let (header, rest) = packet.split_first_chunk::<IPV6_LEN>().ok_or(NdError::Malformed)?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let message = rest.get(..len).ok_or(NdError::Malformed)?;
        if header[6] != ICMPV6 || !matches!(message.first(), Some(&(SOLICITATION | ADVERTISEMENT))) {
            return Err(NdError::Other);
        }
        let ip = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| header[at + i]));
        let (src, dst) = (ip(8), ip(24));
        if checksum(src, dst, message) != 0 {
            return Err(NdError::Checksum);
        }
        let (body, options) = message.split_first_chunk::<BODY>().ok_or(NdError::Malformed)?;
        let target = Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| body[8 + i]));
        let kind = match body[0] {
            SOLICITATION => Kind::Solicitation,
            _ => Kind::Advertisement { solicited: body[4] & SOLICITED != 0, replaces: body[4] & OVERRIDE != 0 },
        };
        let wanted = if kind == Kind::Solicitation { SOURCE_OPTION } else { TARGET_OPTION };
        let mac = link_layer_address(options, wanted)?;
        let nd = Nd { src, dst, target, mac, kind };
        if header[7] == HOP_LIMIT && body[1] == 0 && nd.is_allowed() { Ok(nd) } else { Err(NdError::Malformed) }
    }

    /// Applies the rules on addresses (RFC 4861 7.1.1 and 7.1.2).
    fn is_allowed(&self) -> bool {
        let mac = self.mac.is_none_or(Mac::is_unicast);
        let addresses = match self.kind {
            Kind::Solicitation if self.src.is_unspecified() => {
                self.dst == solicited_node(self.target) && self.mac.is_none()
            }
            Kind::Solicitation => !self.src.is_multicast(),
            Kind::Advertisement { solicited, .. } => !(solicited && self.dst.is_multicast()),
        };
        mac && addresses && !self.target.is_multicast() && !self.target.is_unspecified()
    }

    /// Writes the IPv6 packet of the message to `out` and returns its length.
    pub(super) fn emit(&self, out: &mut [u8; MAX_LEN]) -> usize {
        let len = BODY + if self.mac.is_some() { OPTION } else { 0 };
        out.fill(0);
        out[0] = 0x60;
        out[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        out[6] = ICMPV6;
        out[7] = HOP_LIMIT;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
        let message = &mut out[IPV6_LEN..IPV6_LEN + len];
        let option = match self.kind {
            Kind::Solicitation => {
                message[0] = SOLICITATION;
                SOURCE_OPTION
            }
            Kind::Advertisement { solicited, replaces } => {
                message[0] = ADVERTISEMENT;
                message[4] = if solicited { SOLICITED } else { 0 } | if replaces { OVERRIDE } else { 0 };
                TARGET_OPTION
            }
        };
        message[8..24].copy_from_slice(&self.target.octets());
        if let Some(mac) = self.mac {
            message[BODY] = option;
            // In units of eight bytes.
            message[BODY + 1] = 1;
            message[BODY + 2..].copy_from_slice(&mac.0);
        }
        let sum = checksum(self.src, self.dst, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        IPV6_LEN + len
    }
}

/// Returns the address in the first option of a kind; an error if an option is truncated or has length 0.
fn link_layer_address(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, NdError> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let len = usize::from(units) * 8;
        let option = options.get(..len).filter(|o| !o.is_empty()).ok_or(NdError::Malformed)?;
        if kind == wanted && units == 1 && found.is_none() {
            found = Some(Mac(std::array::from_fn(|i| option[2 + i])));
        }
        options = &options[len..];
    }
    if options.is_empty() { Ok(found) } else { Err(NdError::Malformed) }
}

/// Returns the checksum of an ICMPv6 message (RFC 4443 2.3): 0 if its checksum field is correct.
fn checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b.get(1).copied().unwrap_or(0)]))).sum()
    };
    let pseudo = words(&src.octets()) + words(&dst.octets()) + message.len() as u32 + u32::from(ICMPV6);
    let sum = pseudo + words(message);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn solicitation() -> Nd {
        Nd {
            src: ip("fd77::1"),
            dst: solicited_node(ip("fd77::2")),
            target: ip("fd77::2"),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            kind: Kind::Solicitation,
        }
    }

    fn messages() -> [Nd; 4] {
        let answer = |solicited, replaces, dst: &str| Nd {
            src: ip("fd77::2"),
            dst: ip(dst),
            target: ip("fd77::2"),
            mac: Some(Mac([2, 0, 0, 0, 0, 2])),
            kind: Kind::Advertisement { solicited, replaces },
        };
        let probe = Nd { src: Ipv6Addr::UNSPECIFIED, mac: None, ..solicitation() };
        [solicitation(), probe, answer(true, true, "fd77::1"), answer(false, false, "ff02::1")]
    }

    fn bytes(message: &Nd) -> Vec<u8> {
        let mut out = [0xff; MAX_LEN];
        let len = message.emit(&mut out);
        out[..len].to_vec()
    }

    /// Recomputes the checksum.
    fn mend(packet: &mut [u8]) {
        packet[IPV6_LEN + 2..IPV6_LEN + 4].fill(0);
        let ip = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| packet[at + i]));
        let sum = checksum(ip(8), ip(24), &packet[IPV6_LEN..]);
        packet[IPV6_LEN + 2..IPV6_LEN + 4].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn what_is_emitted_parses_back() {
        for message in messages() {
            let mut packet = bytes(&message);
            assert_eq!(Nd::parse(&packet), Ok(message));
            packet.extend([0; 9]);
            assert_eq!(Nd::parse(&packet), Ok(message), "padded");
        }
    }

    /// Compares the layout with RFC 4861 4.3, byte by byte.
    #[test]
    fn the_layout_is_the_rfcs() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 32, 58, 255];
        packet.extend(ip("fd77::11").octets());
        packet.extend(ip("ff02::1:ff00:1").octets());
        packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(ip("fd77::1").octets());
        packet.extend([1, 1, 0x52, 0x54, 0, 0x77, 0, 0x11]);
        mend(&mut packet);
        let read = Nd::parse(&packet).unwrap();
        assert_eq!((read.src, read.target), (ip("fd77::11"), ip("fd77::1")));
        assert_eq!(read.mac, Some(Mac([0x52, 0x54, 0, 0x77, 0, 0x11])));
    }

    #[test]
    fn the_group_of_an_address_has_its_last_three_bytes() {
        assert_eq!(solicited_node(ip("fd77::12:3456")), ip("ff02::1:ff12:3456"));
        assert_eq!(solicited_node(ip("fe80::a1b2:c3d4")), ip("ff02::1:ffb2:c3d4"));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        for message in messages() {
            let packet = bytes(&message);
            for cut in 0..packet.len() {
                assert!(Nd::parse(&packet[..cut]).is_err());
            }
            // The fields that the checksum does not cover: version, class, flow label.
            for bit in 4 * 8..packet.len() * 8 {
                let mut flipped = packet.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Nd::parse(&flipped).is_err(), "{message:?} bit {bit}");
            }
        }
    }

    #[test]
    fn the_rules_of_the_rfc_hold() {
        let broken = |at: usize, value: u8| {
            let mut packet = bytes(&solicitation());
            packet[at] = value;
            mend(&mut packet);
            Nd::parse(&packet)
        };
        assert!(broken(5, 32).is_ok(), "nothing was changed");
        assert_eq!(broken(7, 254), Err(NdError::Malformed), "hop limit");
        assert_eq!(broken(41, 1), Err(NdError::Malformed), "code");
        assert_eq!(broken(40, 133), Err(NdError::Other), "router solicitation");
        assert_eq!(broken(48, 0xff), Err(NdError::Malformed), "a multicast target");
        assert_eq!(broken(65, 0), Err(NdError::Malformed), "an option without length");
        assert_eq!(broken(65, 2), Err(NdError::Malformed), "an option that is cut short");
        assert_eq!(broken(64, 14).map(|nd| nd.mac), Ok(None), "an option of another kind");
        assert_eq!(broken(66, 1), Err(NdError::Malformed), "a multicast link-layer address");
        let probe = Nd { src: Ipv6Addr::UNSPECIFIED, ..solicitation() };
        assert_eq!(Nd::parse(&bytes(&probe)), Err(NdError::Malformed), "nobody's link-layer address");
        let to_all = Nd { dst: ALL_NODES, ..messages()[2] };
        assert_eq!(Nd::parse(&bytes(&to_all)), Err(NdError::Malformed), "an answer to everybody");
    }
}
