//! Path MTU (IBA 9.7): the payload bytes of a full packet.

/// A path MTU, in the encoding of the verbs and of address handles. [`Mtu::B8192`] is not one of IBA's: simulated
/// networks have it for papers with packets of 9,000 bytes. No port carries it, and no verb, file or message names it.
#[allow(missing_docs)] // the number says it
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
    B8192 = 6,
}

impl Mtu {
    /// IBA's MTUs, smallest first.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// Returns the bytes of payload.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// Returns IBA's MTU of exactly this many bytes.
    pub fn from_bytes(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// Returns the MTU with this code, 1 to 5.
    pub fn from_code(code: u8) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|&mtu| mtu as u8 == code)
    }

    /// Returns IBA's largest MTU of at most `bytes`.
    pub fn at_most(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().rfind(|mtu| mtu.bytes() <= bytes)
    }

    /// Returns the number of packets of a message of `len` bytes; an empty message is one packet.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        let shift = 7 + self as u32;
        let packets = (len as u64 + self.bytes() as u64 - 1) >> shift;
        if packets == 0 { 1 } else { packets as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_codes_map_both_ways() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let mtu = Mtu::from_code(code).expect("a code");
            assert_eq!(mtu.bytes(), bytes);
            assert_eq!(Mtu::from_bytes(bytes), Some(mtu));
            assert_eq!(Mtu::at_most(bytes + 1), Some(mtu));
        }
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
        assert_eq!((Mtu::from_bytes(1500), Mtu::at_most(1500)), (None, Some(Mtu::B1024)));
        assert_eq!(Mtu::at_most(255), None);
        assert_eq!((Mtu::B8192.bytes(), Mtu::from_bytes(8192), Mtu::at_most(9000)), (8192, None, Some(Mtu::B4096)));
    }

    #[test]
    fn messages_split_into_packets() {
        for (len, packets) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (1 << 30, 1 << 20), (u32::MAX, 1 << 22)] {
            assert_eq!(Mtu::B1024.packets(len), packets, "{len}");
        }
    }
}
