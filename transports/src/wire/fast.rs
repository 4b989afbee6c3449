//! Frames of the fast path: SENDs and WRITEs of one packet and positive acknowledgements, in the IRN format and without
//! any flag that is rare. [`FastFrame::parse`] and the constructors of [`FastHead`] do for them what
//! [`parse`](super::parse) and [`Headers::emit`](super::Headers::emit) do for all, in fewer instructions.

use super::bth::{self, Bth};
use super::eth::{Aeth, Reth, parse_psn};
use super::{ICRC_LEN, Opcode};
use crate::psn::Psn;

const SEND: u8 = Opcode::RcSendOnly as u8;
const WRITE: u8 = Opcode::RcWriteOnly as u8;
const ACK: u8 = Opcode::RcAcknowledge as u8;

/// Length of the headers of all but WRITEs, bytes.
const SHORT: usize = Bth::LEN + 8;

/// Operation of a [`FastFrame`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FastOp {
    /// A SEND of one packet, without immediate.
    Send {
        /// Sequence number of the receive WQE that it consumes.
        recv_wqe_sn: Psn,
    },
    /// A WRITE of one packet, without immediate.
    Write(Reth),
    /// An acknowledgement without a selective one.
    Ack(Aeth),
}

/// A parsed frame of the fast path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastFrame<'a> {
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// Packet sequence number.
    pub psn: Psn,
    /// Whether the responder should raise an event.
    pub solicited: bool,
    /// Whether the sender is capable of IRN.
    pub irn_capable: bool,
    /// Operation, and the fields of its extended headers.
    pub op: FastOp,
    /// Payload without padding.
    pub payload: &'a [u8],
}

impl<'a> FastFrame<'a> {
    /// Parses a frame, BTH to ICRC; `None` if it takes another path, valid or not. The ICRC is not read.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Option<FastFrame<'a>> {
        if !matches!(frame, [SEND | WRITE | ACK, ..]) {
            return None;
        }
        let (body, _icrc) = frame.split_last_chunk::<ICRC_LEN>()?;
        // The shortest headers: a BTH and two words.
        let (bth, rest) = body.split_first_chunk::<{ Bth::LEN }>()?;
        let (words, rest) = rest.split_first_chunk::<8>()?;
        let [op, flags, p0, p1, congestion, _, _, _, bits, ..] = *bth;
        if [p0, p1, congestion] != [0xff, 0xff, 0] || !bth::is_fast(flags, bits) {
            return None;
        }
        let word = |at: usize| [words[at], words[at + 1], words[at + 2], words[at + 3]];
        let (op, padded) = match op {
            // The second word: packets of the message before this one.
            SEND if parse_psn(&word(4)) == Psn::new(0) => (FastOp::Send { recv_wqe_sn: parse_psn(&word(0)) }, rest),
            WRITE => {
                let (more, rest) = rest.split_first_chunk::<8>()?;
                let mut reth = [0; 16];
                reth[..8].copy_from_slice(words);
                reth[8..].copy_from_slice(more);
                (FastOp::Write(Reth::parse(&reth)), rest)
            }
            // The upper byte: packets acknowledged selectively.
            ACK if words[4] == 0 && rest.is_empty() => (FastOp::Ack(Aeth::parse(&word(0))), rest),
            _ => return None,
        };
        let pad = usize::from(bth::pad(flags));
        if pad > padded.len() || !padded.len().is_multiple_of(4) {
            return None;
        }
        Some(FastFrame {
            dest_qp: u32::from_be_bytes([0, bth[5], bth[6], bth[7]]),
            psn: parse_psn(&[0, bth[9], bth[10], bth[11]]),
            solicited: bth::is_solicited(flags),
            irn_capable: bth::is_irn_capable(bits),
            op,
            payload: &padded[..padded.len() - pad],
        })
    }
}

/// The headers of a packet of the fast path, as bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastHead {
    bytes: [u8; Bth::LEN + 16],
    /// [`SHORT`], or all of them.
    len: u8,
    /// Bytes of padding after the payload.
    pub pad: u8,
}

impl FastHead {
    /// Headers of no packet.
    pub const EMPTY: FastHead = FastHead { bytes: [0; Bth::LEN + 16], len: SHORT as u8, pad: 0 };

    #[inline]
    fn new(op: u8, solicited: bool, ack_req: bool, pad: u8, dest_qp: u32, psn: Psn) -> FastHead {
        let (flags, bits) = bth::fast(solicited, pad, ack_req);
        let [_, q0, q1, q2] = dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = psn.get().to_be_bytes();
        let mut bytes = [0; Bth::LEN + 16];
        bytes[..Bth::LEN].copy_from_slice(&[op, flags, 0xff, 0xff, 0, q0, q1, q2, bits, s0, s1, s2]);
        FastHead { bytes, len: SHORT as u8, pad }
    }

    #[inline]
    fn with_words(mut self, first: [u8; 4], second: [u8; 4]) -> FastHead {
        self.bytes[Bth::LEN..][..4].copy_from_slice(&first);
        self.bytes[Bth::LEN + 4..][..4].copy_from_slice(&second);
        self
    }

    /// Returns the headers of a SEND of one packet with `pad` bytes of padding.
    #[inline]
    pub fn send(dest_qp: u32, psn: Psn, solicited: bool, pad: u8, recv_wqe_sn: Psn) -> FastHead {
        let head = FastHead::new(SEND, solicited, true, pad, dest_qp, psn);
        head.with_words(recv_wqe_sn.get().to_be_bytes(), [0; 4])
    }

    /// Returns the headers of a WRITE of one packet with `pad` bytes of padding.
    #[inline]
    pub fn write(dest_qp: u32, psn: Psn, solicited: bool, pad: u8, reth: &Reth) -> FastHead {
        let mut head = FastHead::new(WRITE, solicited, true, pad, dest_qp, psn);
        head.bytes[Bth::LEN..].copy_from_slice(&reth.emit());
        head.len = head.bytes.len() as u8;
        head
    }

    /// Returns the headers of the acknowledgement of everything up to `psn`.
    #[inline]
    pub fn ack(dest_qp: u32, psn: Psn, aeth: &Aeth) -> FastHead {
        let head = FastHead::new(ACK, false, false, 0, dest_qp, psn);
        head.with_words(aeth.emit(), psn.get().to_be_bytes())
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Writes the headers to the start of `out`, and returns the rest of it.
    ///
    /// # Panics
    /// If `out` is shorter than the headers.
    #[inline]
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        // Lengths known to the compiler need no call to copy.
        if let ([head @ .., _, _, _, _, _, _, _, _], SHORT) = (&self.bytes, self.len()) {
            let (to, rest) = out.split_at_mut(SHORT);
            to.copy_from_slice(head);
            return rest;
        }
        let (to, rest) = out.split_at_mut(self.bytes.len());
        to.copy_from_slice(&self.bytes);
        rest
    }
}
