//! The AETH's syndrome byte (IBA 9.7.5.2.1): two bits of kind, five of value.

use std::fmt;

use super::RnrTimer;

/// Contents of an acknowledgement.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Everything up to the PSN has arrived.
    Ack {
        /// Number of requests for which the responder has receive WQEs.
        credits: Credits,
    },
    /// A request found no receive WQE, and is to be retried later.
    Rnr {
        /// Time to wait before that.
        timer: RnrTimer,
    },
    /// A request was refused.
    Nak(NakCode),
}

/// Reason for refusing a request (IBA table 47).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// Packets are missing before this one.
    PsnSequenceError = 0,
    /// The request is malformed, or of a kind that the queue pair does not support.
    InvalidRequest = 1,
    /// The requester lacks the required access to the memory.
    RemoteAccessError = 2,
    /// The responder failed for a local reason.
    RemoteOperationalError = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// End-to-end credits as a five-bit code (IBA 9.7.7.2, table 45).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// The responder has no end-to-end flow control.
    pub const INVALID: Credits = Credits(31);

    /// Returns the credits with this code, of which the low five bits are used.
    #[inline]
    pub const fn new(code: u8) -> Credits {
        Credits(code & 31)
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number: 0, 1, 2, 3, 4, 6, 8, 12 and so on to 32,768; `None` for [`Credits::INVALID`].
    #[inline]
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            31 => None,
            code @ (0 | 1) => Some(code as u32),
            even if even % 2 == 0 => Some(1 << (even / 2)),
            odd => Some(3 << (odd / 2 - 1)),
        }
    }

    /// Returns the most credits that the code can express without exceeding `count`.
    #[inline]
    pub const fn at_most(count: u32) -> Credits {
        if count < 2 {
            return Credits(count as u8);
        }
        let log = count.ilog2();
        let code = 2 * log + (count >> (log - 1) & 1);
        Credits(if code > 30 { 30 } else { code as u8 })
    }
}

const RNR: u8 = 0x20;
const NAK: u8 = 0x60;

impl Syndrome {
    /// Decodes the byte; `None` if IBA reserves it. The top bit is ignored.
    #[inline]
    pub const fn from_u8(byte: u8) -> Option<Syndrome> {
        let value = byte & 0x1f;
        match byte & 0x60 {
            0 => Some(Syndrome::Ack { credits: Credits(value) }),
            RNR => Some(Syndrome::Rnr { timer: RnrTimer::new(value) }),
            NAK => match value {
                0 => Some(Syndrome::Nak(NakCode::PsnSequenceError)),
                1 => Some(Syndrome::Nak(NakCode::InvalidRequest)),
                2 => Some(Syndrome::Nak(NakCode::RemoteAccessError)),
                3 => Some(Syndrome::Nak(NakCode::RemoteOperationalError)),
                4 => Some(Syndrome::Nak(NakCode::InvalidRdRequest)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the byte.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits.code(),
            Syndrome::Rnr { timer } => RNR | timer.code(),
            Syndrome::Nak(code) => NAK | code as u8,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NakCode::PsnSequenceError => "PSN sequence error",
            NakCode::InvalidRequest => "invalid request",
            NakCode::RemoteAccessError => "remote access error",
            NakCode::RemoteOperationalError => "remote operational error",
            NakCode::InvalidRdRequest => "invalid RD request",
        })
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack { credits } => match credits.count() {
                Some(count) => write!(f, "ACK credits={count}"),
                None => write!(f, "ACK credits=none"),
            },
            Syndrome::Rnr { timer } => {
                let ns = timer.nanos();
                write!(f, "RNR NAK {}.{:02} ms", ns / 1_000_000, ns / 10_000 % 100)
            }
            Syndrome::Nak(code) => write!(f, "NAK {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_have_the_values_of_table_45() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
            4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, count) in (0..).zip(table) {
            assert_eq!(Credits::new(code).count(), Some(count), "code {code}");
            assert_eq!(Credits::at_most(count), Credits::new(code), "{count}");
            if code > 0 {
                assert_eq!(Credits::at_most(count - 1), Credits::new(code - 1), "{count} - 1");
            }
        }
        assert_eq!(Credits::INVALID.count(), None);
        assert_eq!(Credits::at_most(u32::MAX), Credits::new(30));
    }

    #[test]
    fn syndromes_map_both_ways() {
        for byte in 0..0x80 {
            match Syndrome::from_u8(byte) {
                Some(syndrome) => assert_eq!(syndrome.to_u8(), byte),
                None => assert!(byte >= 0x65 || byte & 0x60 == 0x40, "{byte:#x}"),
            }
        }
    }

    #[test]
    fn syndromes_read_as_words() {
        for (byte, words) in [
            (0x00, "ACK credits=0"),
            (0x0d, "ACK credits=96"),
            (0x1f, "ACK credits=none"),
            (0x2c, "RNR NAK 0.64 ms"),
            (0x20, "RNR NAK 655.36 ms"),
            (0x60, "NAK PSN sequence error"),
            (0x63, "NAK remote operational error"),
        ] {
            assert_eq!(Syndrome::from_u8(byte).map(|s| s.to_string()).as_deref(), Some(words));
        }
    }
}
