//! RoCEv2 on the wire: headers, opcodes, ICRC, and the extensions for IRN and NDP (`docs/wire.md`).
//!
//! This module handles bytes and their meaning, not the behaviour of queue pairs. A *frame* is the UDP payload of
//! RoCEv2, from the BTH to the ICRC: headers ([`parse`], [`Headers::emit`]), payload, padding to a multiple of four
//! bytes, and the ICRC ([`icrc_append`], [`icrc_check`]).

mod bth;
mod cnp;
mod error;
mod eth;
mod fast;
mod flush;
mod grh;
mod headers;
mod icmp;
mod icrc;
pub mod ip;
mod irn;
mod layout;
pub mod mad;
mod mtu;
pub mod opcode;
mod syndrome;
mod timer;

pub use bth::{Bth, Importance};
pub use cnp::Cnp;
pub use error::ParseError;
pub use eth::{Aeth, AtomicEth, Deth, Reth};
pub(crate) use fast::MAX_FAST_PAYLOAD;
pub use fast::{APART, FastAck, FastFrame, FastHead, FastOp};
pub use flush::Feth;
pub use grh::Grh;
pub use headers::{Headers, NdpWord, is_pulled, parse, parse_trimmed};
pub use icmp::{NoticeBytes, NoticeError, RateNotice};
pub use icrc::{
    icrc, icrc_append, icrc_check, icrc_check_fragmentable, icrc_identification, icrc_of_headers, icrc_of_parts,
};
pub use irn::{FeedbackKind, IrnEth};
pub use layout::Layout;
pub use mtu::Mtu;
pub use opcode::Opcode;
pub use syndrome::{Credits, NakCode, Syndrome};
pub use timer::{AckTimeout, RnrTimer};

/// UDP destination port of RoCEv2 (IBA A17.3).
pub const ROCE_PORT: u16 = 4791;

/// Bytes of the ICRC that ends every frame.
pub const ICRC_LEN: usize = 4;

/// Returns the padding that brings `payload` bytes to a multiple of four: the BTH's pad count.
#[inline]
pub const fn pad_for(payload: usize) -> u8 {
    (payload.wrapping_neg() & 3) as u8
}
