//! Room in the queue before a link, and the queues of a link that trims.

use std::fmt;

use irnic_units::tc_size;

use super::tokens::{ParseError, Section, Token};

/// Maximum number of frames that a queue may hold.
pub const MAX_PACKETS: u32 = 1_000_000;

pub(super) const EXPECT_ROOM: &str =
    "1 to 1000000 packets, or a length in bytes with its unit, such as 30k, 100kb or 500b, up to a terabyte";
pub(super) const EXPECT_HEADERS: &str =
    "a queue length of 1 byte to a terabyte, such as 8k or 100kb (both of 1024 bytes)";
pub(super) const EXPECT_RATIO: &str = "1 to 1000000 packets without payload for each one with payload";
pub(super) const NEED_RATE: &str = "rate beside trim: without it there is no queue";
pub(super) const NEED_TRIM: &str = "trim beside it: headers, wrr and return describe a queue that trims";
pub(super) const PRIO_NEEDS_RATE: &str = "rate beside prio: without it there is no queue";
pub(super) const PRIO_ALONE: &str = "prio without trim, red, rocc, policy and ecn with a queue length";

/// Room in a queue. Includes the frame on the link, except with `prio`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// Number of frames, whatever their length: 1 to [`MAX_PACKETS`].
    Packets(u32),
    /// Number of bytes, 1 or more, as `rate` counts them without its overhead.
    Bytes(u64),
}

impl Room {
    /// Parses frames (`8`) or bytes with a unit (`8k`).
    pub(super) fn parse(text: &str) -> Option<Room> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().filter(|n| (1..=MAX_PACKETS).contains(n)).map(Room::Packets);
        }
        // A bare number with a fraction is not a length in bytes.
        let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
        tc_size(text).filter(|bytes| *bytes > 0 && has_unit).map(Room::Bytes)
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Room::Packets(packets) => write!(f, "{packets}"),
            Room::Bytes(bytes) => write!(f, "{bytes}b"),
        }
    }
}

/// The queues before a link that trims payloads instead of dropping frames (NDP §3.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Room for frames with payload.
    pub data: Room,
    /// Room for frames without payload, in bytes, the frame on the link included; 1 or more.
    pub headers: u64,
    /// Frames without payload sent for each one with payload while both wait; 1 or more.
    pub ratio: u32,
    /// Whether a trimmed frame without room is returned to its sender, once (NDP §3.2.4).
    pub returns: bool,
}

impl Trim {
    /// Default of `wrr` (NDP §3.1).
    pub const RATIO: u32 = 10;
    /// Bytes per packet of `trim` in the default of `headers`: the largest payload.
    pub const FULL: u64 = 4096;

    /// Returns queues with the default room for frames without payload: as many bytes as for those with payload (NDP
    /// §3.1).
    pub fn new(data: Room) -> Trim {
        let headers = match data {
            Room::Packets(packets) => u64::from(packets) * Trim::FULL,
            Room::Bytes(bytes) => bytes,
        };
        Trim { data, headers, ratio: Trim::RATIO, returns: false }
    }
}

impl fmt::Display for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trim { data, headers, ratio, returns } = *self;
        write!(f, "trim {data}")?;
        if headers != Trim::new(data).headers {
            write!(f, " headers {headers}")?;
        }
        if ratio != Trim::RATIO {
            write!(f, " wrr {ratio}")?;
        }
        f.write_str(if returns { " return" } else { "" })
    }
}

/// The options of a trimming link in a section.
#[derive(Default)]
pub(super) struct TrimOptions<'a> {
    trim: Option<(Token<'a>, Room)>,
    headers: Option<(Token<'a>, u64)>,
    ratio: Option<(Token<'a>, u32)>,
    returns: Option<Token<'a>>,
}

impl<'a> TrimOptions<'a> {
    /// Parses the values of the option that begins with `word`. Returns whether it is the first of its kind.
    pub(super) fn read(&mut self, word: Token<'a>, section: &mut Section<'a>) -> Result<bool, ParseError> {
        Ok(match word.text {
            "trim" => self.trim.replace((word, section.take(EXPECT_ROOM, Room::parse)?)).is_none(),
            "headers" => {
                let read = |text: &str| tc_size(text).filter(|bytes| *bytes > 0);
                self.headers.replace((word, section.take(EXPECT_HEADERS, read)?)).is_none()
            }
            "wrr" => {
                let read = |text: &str| text.parse().ok().filter(|n| (1..=MAX_PACKETS).contains(n));
                self.ratio.replace((word, section.take(EXPECT_RATIO, read)?)).is_none()
            }
            _ => self.returns.replace(word).is_none(),
        })
    }

    /// Returns whether the section has `trim`.
    pub(super) fn is_any(&self) -> bool {
        self.trim.is_some()
    }

    /// Returns the queues that the options describe.
    pub(super) fn check(self, has_rate: bool) -> Result<Option<Trim>, ParseError> {
        let Some((word, data)) = self.trim else {
            let lone = [self.headers.map(|h| h.0), self.ratio.map(|r| r.0), self.returns];
            return lone.into_iter().flatten().next().map_or(Ok(None), |word| Err(word.error(NEED_TRIM)));
        };
        if !has_rate {
            return Err(word.error(NEED_RATE));
        }
        let default = Trim::new(data);
        Ok(Some(Trim {
            headers: self.headers.map_or(default.headers, |h| h.1),
            ratio: self.ratio.map_or(default.ratio, |r| r.1),
            returns: self.returns.is_some(),
            ..default
        }))
    }
}
