//! Frames of the fast path: SENDs and WRITEs of one packet and positive acknowledgements, in the IRN format and without
//! any flag that is rare. [`FastFrame::parse`] and the constructors of [`FastHead`] do for them what
//! [`parse`](super::parse) and [`Headers::emit`](super::Headers::emit) do for all, in fewer instructions.
//!
//! Within a host, where both ends are irnic, a request may carry an acknowledgement of the other direction of its
//! connection: eight bytes after the BTH, whose opcode then is one of those for manufacturers (IBA 9.2.1, 0xc0 and
//! above). Such a frame stands for two, [`FastFrame::apart`], and is on no wire.

use super::bth::{self, Bth};
use super::eth::{Aeth, Reth, parse_psn};
use super::{ICRC_LEN, Opcode};
use crate::psn::Psn;

const SEND: u8 = Opcode::RcSendOnly as u8;
const WRITE: u8 = Opcode::RcWriteOnly as u8;
const ACK: u8 = Opcode::RcAcknowledge as u8;

/// Bits of the opcode of a request that carries an acknowledgement.
const CARRIES_ACK: u8 = 0xc0;
const SEND_AND_ACK: u8 = CARRIES_ACK | SEND;
const WRITE_AND_ACK: u8 = CARRIES_ACK | WRITE;

/// Length of the headers of all but WRITEs, and of a carried acknowledgement, bytes.
const SHORT: usize = Bth::LEN + 8;
const CARRIED: usize = 8;
/// Length of the longest headers, bytes.
const LONGEST: usize = Bth::LEN + CARRIED + 16;
/// Maximum length of a payload, bytes. Payloads of longer frames may stay in place until a port sends them.
pub(crate) const MAX_FAST_PAYLOAD: usize = 512;

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

/// A positive acknowledgement that a request carries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CarriedAck {
    /// Everything up to this sequence number is acknowledged.
    pub psn: Psn,
    /// Syndrome and message sequence number.
    pub aeth: Aeth,
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
    /// Acknowledgement of the other direction. Valid only without an ICRC, in the memory of a host.
    pub ack: Option<CarriedAck>,
    /// Payload without padding.
    pub payload: &'a [u8],
}

impl<'a> FastFrame<'a> {
    /// Parses a frame, BTH to ICRC; `None` if it takes another path, valid or not. The ICRC is not read.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Option<FastFrame<'a>> {
        let [code @ (SEND | WRITE | ACK | SEND_AND_ACK | WRITE_AND_ACK), ..] = *frame else { return None };
        let (body, _icrc) = frame.split_last_chunk::<ICRC_LEN>()?;
        // The shortest headers: a BTH and two words.
        let (bth, mut rest) = body.split_first_chunk::<{ Bth::LEN }>()?;
        let mut ack = None;
        if code >= CARRIES_ACK {
            let (&[s0, m0, m1, m2, _, p0, p1, p2], after) = rest.split_first_chunk::<CARRIED>()?;
            ack = Some(CarriedAck { psn: parse_psn(&[0, p0, p1, p2]), aeth: Aeth::parse(&[s0, m0, m1, m2]) });
            rest = after;
        }
        let (words, rest) = rest.split_first_chunk::<8>()?;
        let [_, flags, p0, p1, congestion, _, _, _, bits, ..] = *bth;
        if [p0, p1, congestion] != [0xff, 0xff, 0] || !bth::is_fast(flags, bits) {
            return None;
        }
        let word = |at: usize| [words[at], words[at + 1], words[at + 2], words[at + 3]];
        let (op, padded) = match code {
            // The second word: packets of the message before this one.
            SEND | SEND_AND_ACK if parse_psn(&word(4)) == Psn::new(0) => {
                (FastOp::Send { recv_wqe_sn: parse_psn(&word(0)) }, rest)
            }
            WRITE | WRITE_AND_ACK => {
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
        if ack.is_some() && padded.len() > MAX_FAST_PAYLOAD {
            return None;
        }
        if pad > padded.len() || !padded.len().is_multiple_of(4) {
            return None;
        }
        Some(FastFrame {
            dest_qp: u32::from_be_bytes([0, bth[5], bth[6], bth[7]]),
            psn: parse_psn(&[0, bth[9], bth[10], bth[11]]),
            solicited: bth::is_solicited(flags),
            irn_capable: bth::is_irn_capable(bits),
            op,
            ack,
            payload: &padded[..padded.len() - pad],
        })
    }

    /// Returns the two frames that a frame with an acknowledgement stands for, each without an ICRC: the request, which
    /// is written to `room`, and the acknowledgement.
    ///
    /// # Panics
    /// If `frame` is not one that [`Self::parse`] returned `ack` for.
    #[cold]
    pub fn apart<'r>(
        frame: &[u8],
        ack: &CarriedAck,
        room: &'r mut [u8; LONGEST_REQUEST],
    ) -> (&'r mut [u8], [u8; SHORT + ICRC_LEN]) {
        let request = &mut room[..frame.len() - CARRIED];
        request[..Bth::LEN].copy_from_slice(&frame[..Bth::LEN]);
        request[0] &= !CARRIES_ACK;
        request[Bth::LEN..].copy_from_slice(&frame[Bth::LEN + CARRIED..]);
        let dest_qp = u32::from_be_bytes([0, frame[5], frame[6], frame[7]]);
        let mut bytes = [0; SHORT + ICRC_LEN];
        FastHead::ack(dest_qp, ack.psn, &ack.aeth).emit(&mut bytes);
        (request, bytes)
    }
}

/// Length of the longest request without a carried acknowledgement, bytes.
pub const LONGEST_REQUEST: usize = LONGEST - CARRIED + MAX_FAST_PAYLOAD + ICRC_LEN;

/// The headers of a packet of the fast path, as bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastHead {
    bytes: [u8; LONGEST],
    /// [`SHORT`], or 8 or 16 more.
    len: u8,
    /// Bytes of padding after the payload.
    pub pad: u8,
}

impl FastHead {
    /// Headers of no packet.
    pub const EMPTY: FastHead = FastHead { bytes: [0; LONGEST], len: SHORT as u8, pad: 0 };

    #[inline]
    fn new(op: u8, solicited: bool, ack_req: bool, pad: u8, dest_qp: u32, psn: Psn) -> FastHead {
        let (flags, bits) = bth::fast(solicited, pad, ack_req);
        let [_, q0, q1, q2] = dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = psn.get().to_be_bytes();
        let mut bytes = [0; LONGEST];
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
        head.bytes[Bth::LEN..][..16].copy_from_slice(&reth.emit());
        head.len = (Bth::LEN + 16) as u8;
        head
    }

    /// Adds an acknowledgement of the other direction to a request.
    #[inline]
    pub fn carry(&mut self, ack: &CarriedAck) {
        // Of known length, so that no call copies them.
        let extended: [u8; 16] = std::array::from_fn(|i| self.bytes[Bth::LEN + i]);
        self.bytes[Bth::LEN + CARRIED..].copy_from_slice(&extended);
        self.bytes[Bth::LEN..][..4].copy_from_slice(&ack.aeth.emit());
        self.bytes[Bth::LEN + 4..][..4].copy_from_slice(&ack.psn.get().to_be_bytes());
        self.bytes[0] |= CARRIES_ACK;
        self.len += CARRIED as u8;
    }

    /// Returns whether they are of a request that carries an acknowledgement.
    #[inline]
    pub fn carries_ack(&self) -> bool {
        self.bytes[0] >= CARRIES_ACK
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
        match self.len() {
            SHORT => emit_head::<SHORT>(&self.bytes, out),
            LONGEST => emit_head::<LONGEST>(&self.bytes, out),
            _ => emit_head::<{ SHORT + 8 }>(&self.bytes, out),
        }
    }
}

#[inline]
fn emit_head<'a, const N: usize>(bytes: &[u8; LONGEST], out: &'a mut [u8]) -> &'a mut [u8] {
    let (to, rest) = out.split_at_mut(N);
    to.copy_from_slice(&bytes[..N]);
    rest
}
