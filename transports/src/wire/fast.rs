//! Frames of the fast path: SENDs and WRITEs, READ and atomic requests, their responses, and positive
//! acknowledgements, in the IRN format and without any flag that is rare. [`FastFrame::parse`] and the setters of
//! [`FastHead`] do for them what [`parse`](super::parse) and [`Headers::emit`](super::Headers::emit) do for all, in
//! fewer instructions.
//!
//! Within a host, where both ends are irnic, a small message or response of one packet may carry an acknowledgement:
//! eight bytes after the BTH, whose opcode then is one of those for manufacturers (IBA 9.2.1, 0xc0 and above). Such a
//! frame stands for two, [`FastFrame::apart`], and is on no wire.

use super::bth::{self, Bth};
use super::eth::{Aeth, AtomicEth, Reth, parse_psn};
use super::opcode::Position;
use super::{ICRC_LEN, Opcode};
use crate::psn::Psn;

const SEND: u8 = Opcode::RcSendOnly as u8;
const WRITE: u8 = Opcode::RcWriteOnly as u8;
const READ: u8 = Opcode::RcReadRequest as u8;
const COMPARE_SWAP: u8 = Opcode::RcCompareSwap as u8;
const FETCH_ADD: u8 = Opcode::RcFetchAdd as u8;
const RESPONSE: u8 = Opcode::RcReadResponseOnly as u8;
const ATOMIC_ACK: u8 = Opcode::RcAtomicAcknowledge as u8;
const SEND_FIRST: u8 = Opcode::RcSendFirst as u8;
const SEND_MIDDLE: u8 = Opcode::RcSendMiddle as u8;
const SEND_LAST: u8 = Opcode::RcSendLast as u8;
const WRITE_FIRST: u8 = Opcode::RcWriteFirst as u8;
const WRITE_MIDDLE: u8 = Opcode::RcWriteMiddle as u8;
const WRITE_LAST: u8 = Opcode::RcWriteLast as u8;
const RESPONSE_FIRST: u8 = Opcode::RcReadResponseFirst as u8;
const RESPONSE_MIDDLE: u8 = Opcode::RcReadResponseMiddle as u8;
const RESPONSE_LAST: u8 = Opcode::RcReadResponseLast as u8;
const ACK: u8 = Opcode::RcAcknowledge as u8;
const READ_ACK: u8 = Opcode::RcReadAcknowledge as u8;

/// Bits of the opcode of a packet that carries an acknowledgement.
const CARRIES_ACK: u8 = 0xc0;
const SEND_AND_ACK: u8 = CARRIES_ACK | SEND;
const WRITE_AND_ACK: u8 = CARRIES_ACK | WRITE;

/// Length of the headers of an acknowledgement, and of one that is carried, bytes.
const ACK_LEN: usize = Bth::LEN + 8;
const CARRIED: usize = 8;
/// Length of the longest headers, bytes: those of an atomic request that carries an acknowledgement.
const LONGEST: usize = Bth::LEN + CARRIED + 32;
/// Maximum length in bytes of a payload that comes with an acknowledgement.
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
    /// A packet of a longer SEND.
    SendPart {
        /// First, middle or last.
        position: Position,
        /// Sequence number of the receive WQE that the message consumes.
        recv_wqe_sn: Psn,
        /// Number of the message's packets before this one.
        psn_offset: u32,
    },
    /// A packet of a longer WRITE.
    WritePart {
        /// First, middle or last.
        position: Position,
        /// Where the rest of the message begins, this packet included, and its length.
        reth: Reth,
    },
    /// A READ request.
    Read {
        /// What to read.
        reth: Reth,
        /// Its index among the requests with a response.
        read_wqe_sn: Psn,
    },
    /// A compare-and-swap or fetch-and-add.
    Atomic {
        /// Address and operands.
        atomic: AtomicEth,
        /// Whether it compares and swaps, or else adds.
        compares: bool,
        /// Its index among the requests with a response.
        read_wqe_sn: Psn,
    },
    /// The response to a READ, or a packet of it.
    Response(Position),
    /// The response to an atomic: the previous value.
    AtomicAck(u64),
    /// An acknowledgement without a selective one.
    Ack(FastAck),
}

impl FastOp {
    /// Returns whether it is a request: only its receiver's responder handles it.
    #[inline]
    pub fn is_request(&self) -> bool {
        !matches!(self, FastOp::Response(_) | FastOp::AtomicAck(_) | FastOp::Ack(_))
    }
}

/// An acknowledgement, a packet of its own or carried by another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastAck {
    /// Everything up to this sequence number is acknowledged.
    pub psn: Psn,
    /// Syndrome and message sequence number.
    pub aeth: Aeth,
    /// Whether it acknowledges responses, or else requests.
    pub of_responses: bool,
    /// Whether it goes before the packet that carries it, or else after it.
    pub first: bool,
}

impl FastAck {
    const OF_RESPONSES: u8 = 1;
    const FIRST: u8 = 2;

    #[inline]
    fn parse(&[s0, m0, m1, m2, flags, p0, p1, p2]: &[u8; CARRIED]) -> FastAck {
        FastAck {
            psn: parse_psn(&[0, p0, p1, p2]),
            aeth: Aeth::parse(&[s0, m0, m1, m2]),
            of_responses: flags & FastAck::OF_RESPONSES != 0,
            first: flags & FastAck::FIRST != 0,
        }
    }

    #[inline]
    fn emit(&self) -> [u8; CARRIED] {
        let set = |condition: bool, bit: u8| if condition { bit } else { 0 };
        let flags = set(self.of_responses, FastAck::OF_RESPONSES) | set(self.first, FastAck::FIRST);
        let [s0, m0, m1, m2] = self.aeth.emit();
        let [_, p0, p1, p2] = self.psn.get().to_be_bytes();
        [s0, m0, m1, m2, flags, p0, p1, p2]
    }
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
    /// Acknowledgement that it carries. Valid only without an ICRC, in the memory of a host.
    pub ack: Option<FastAck>,
    /// Payload without padding.
    pub payload: &'a [u8],
}

impl<'a> FastFrame<'a> {
    /// Parses a frame, BTH to ICRC; `None` if it takes another path, valid or not. The ICRC is not read.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Option<FastFrame<'a>> {
        let [code, ..] = *frame else { return None };
        match (code, code & !CARRIES_ACK) {
            (SEND | WRITE | ACK | SEND_AND_ACK | WRITE_AND_ACK, opcode) => Start::parse(frame)?.message(opcode),
            (WRITE_FIRST | WRITE_MIDDLE | WRITE_LAST, _) => Start::parse(frame)?.write_part(code),
            (SEND_FIRST | SEND_MIDDLE | SEND_LAST | RESPONSE_FIRST | RESPONSE_MIDDLE | RESPONSE_LAST, _) => {
                Start::parse(frame)?.part(code)
            }
            (0x20..CARRIES_ACK, _) => None,
            (_, opcode @ (READ | COMPARE_SWAP | FETCH_ADD | RESPONSE | ATOMIC_ACK | READ_ACK)) => {
                Start::parse(frame)?.answered(opcode)
            }
            _ => None,
        }
    }

    /// Returns the two frames that a frame with an acknowledgement stands for, in order, each without an ICRC. They are
    /// written to `room`.
    ///
    /// # Panics
    /// If `frame` is not one that [`Self::parse`] returned `ack` for.
    #[cold]
    pub fn apart<'r>(frame: &[u8], ack: &FastAck, room: &'r mut [u8; APART]) -> [&'r mut [u8]; 2] {
        let (acknowledgement, rest) = room.split_at_mut(ACK_LEN + ICRC_LEN);
        let carrier = &mut rest[..frame.len() - CARRIED];
        carrier[..Bth::LEN].copy_from_slice(&frame[..Bth::LEN]);
        carrier[0] &= !CARRIES_ACK;
        carrier[Bth::LEN..].copy_from_slice(&frame[Bth::LEN + CARRIED..]);
        let mut head = FastHead::EMPTY;
        head.set_ack(u32::from_be_bytes([0, frame[5], frame[6], frame[7]]), ack);
        head.emit(acknowledgement).fill(0);
        if ack.first { [acknowledgement, carrier] } else { [carrier, acknowledgement] }
    }
}

/// Returns the packet sequence number.
#[inline]
fn psn_of(bth: &[u8; Bth::LEN]) -> Psn {
    parse_psn(&[0, bth[9], bth[10], bth[11]])
}

/// The beginning of a frame of the fast path.
struct Start<'a> {
    bth: &'a [u8; Bth::LEN],
    ack: Option<FastAck>,
    /// The other headers, and the payload.
    rest: &'a [u8],
}

impl<'a> Start<'a> {
    #[inline]
    fn parse(frame: &'a [u8]) -> Option<Start<'a>> {
        let (body, _icrc) = frame.split_last_chunk::<ICRC_LEN>()?;
        let (bth, mut rest) = body.split_first_chunk::<{ Bth::LEN }>()?;
        let [code, flags, p0, p1, congestion, _, _, _, bits, ..] = *bth;
        if [p0, p1, congestion] != [0xff, 0xff, 0] || !bth::is_fast(flags, bits) {
            return None;
        }
        let mut ack = None;
        if code >= CARRIES_ACK {
            let (bytes, after) = rest.split_first_chunk::<CARRIED>()?;
            ack = Some(FastAck::parse(bytes));
            rest = after;
        }
        Some(Start { bth, ack, rest })
    }

    /// Parses the rest of a SEND, WRITE or acknowledgement.
    #[inline]
    fn message(self, opcode: u8) -> Option<FastFrame<'a>> {
        let (words, rest) = self.rest.split_first_chunk::<8>()?;
        let word = |at: usize| [words[at], words[at + 1], words[at + 2], words[at + 3]];
        match opcode {
            // The second word: packets of the message before this one.
            SEND if parse_psn(&word(4)) == Psn::new(0) => {
                self.with_payload(FastOp::Send { recv_wqe_sn: parse_psn(&word(0)) }, rest)
            }
            WRITE => {
                let (reth, rest) = self.rest.split_first_chunk()?;
                self.with_payload(FastOp::Write(Reth::parse(reth)), rest)
            }
            ACK => self.acknowledgement(words, rest, false),
            _ => None,
        }
    }

    /// Parses the rest of a packet that is not all of its WRITE.
    #[inline]
    fn write_part(self, opcode: u8) -> Option<FastFrame<'a>> {
        let position = match opcode {
            WRITE_FIRST => Position::First,
            WRITE_LAST => Position::Last,
            _ => Position::Middle,
        };
        let (reth, rest) = self.rest.split_first_chunk()?;
        self.with_payload(FastOp::WritePart { position, reth: Reth::parse(reth) }, rest)
    }

    /// Parses the rest of a packet that is not all of its SEND or response.
    #[inline(never)]
    fn part(self, opcode: u8) -> Option<FastFrame<'a>> {
        let position = match opcode {
            SEND_FIRST | RESPONSE_FIRST => Position::First,
            SEND_LAST | RESPONSE_LAST => Position::Last,
            _ => Position::Middle,
        };
        if let SEND_FIRST | SEND_MIDDLE | SEND_LAST = opcode {
            let (sn, rest) = self.rest.split_first_chunk()?;
            let (offset, rest) = rest.split_first_chunk()?;
            let (recv_wqe_sn, psn_offset) = (parse_psn(sn), parse_psn(offset).get());
            return self.with_payload(FastOp::SendPart { position, recv_wqe_sn, psn_offset }, rest);
        }
        let (_aeth, rest) = self.rest.split_first_chunk::<4>()?;
        self.with_payload(FastOp::Response(position), rest)
    }

    /// Parses the rest of a READ or atomic, of its response, or of the acknowledgement of that.
    #[inline(never)]
    fn answered(self, opcode: u8) -> Option<FastFrame<'a>> {
        match opcode {
            READ => {
                let (reth, rest) = self.rest.split_first_chunk()?;
                let (word, rest) = rest.split_first_chunk()?;
                let op = FastOp::Read { reth: Reth::parse(reth), read_wqe_sn: parse_psn(word) };
                self.without_payload(op, rest)
            }
            COMPARE_SWAP | FETCH_ADD => {
                let (atomic, rest) = self.rest.split_first_chunk()?;
                let (word, rest) = rest.split_first_chunk()?;
                let (atomic, compares) = (AtomicEth::parse(atomic), opcode == COMPARE_SWAP);
                self.without_payload(FastOp::Atomic { atomic, compares, read_wqe_sn: parse_psn(word) }, rest)
            }
            RESPONSE => {
                let (_aeth, rest) = self.rest.split_first_chunk::<4>()?;
                self.with_payload(FastOp::Response(Position::Only), rest)
            }
            ATOMIC_ACK => {
                let (_aeth, rest) = self.rest.split_first_chunk::<4>()?;
                let (value, rest) = rest.split_first_chunk()?;
                self.without_payload(FastOp::AtomicAck(u64::from_be_bytes(*value)), rest)
            }
            READ_ACK => {
                let (words, rest) = self.rest.split_first_chunk()?;
                self.acknowledgement(words, rest, true)
            }
            _ => None,
        }
    }

    #[inline]
    fn acknowledgement(self, words: &[u8; 8], rest: &'a [u8], of_responses: bool) -> Option<FastFrame<'a>> {
        let [s0, m0, m1, m2, run, ..] = *words;
        // Selective ones, and those that request an answer, are rare.
        let plain = run == 0 && self.ack.is_none() && !bth::requests_ack(self.bth[8]);
        let (psn, aeth) = (psn_of(self.bth), Aeth::parse(&[s0, m0, m1, m2]));
        if plain {
            self.without_payload(FastOp::Ack(FastAck { psn, aeth, of_responses, first: false }), rest)
        } else {
            None
        }
    }

    #[inline]
    fn without_payload(self, op: FastOp, rest: &'a [u8]) -> Option<FastFrame<'a>> {
        if rest.is_empty() { self.with_payload(op, rest) } else { None }
    }

    #[inline]
    fn with_payload(self, op: FastOp, padded: &'a [u8]) -> Option<FastFrame<'a>> {
        let Start { bth, ack, .. } = self;
        let pad = usize::from(bth::pad(bth[1]));
        if pad > padded.len() || !padded.len().is_multiple_of(4) || ack.is_some() && padded.len() > MAX_FAST_PAYLOAD {
            return None;
        }
        Some(FastFrame {
            dest_qp: u32::from_be_bytes([0, bth[5], bth[6], bth[7]]),
            psn: psn_of(bth),
            solicited: bth::is_solicited(bth[1]),
            irn_capable: bth::is_irn_capable(bth[8]),
            op,
            ack,
            payload: &padded[..padded.len() - pad],
        })
    }
}

/// Room for the frames that [`FastFrame::apart`] returns, bytes.
pub const APART: usize = LONGEST - CARRIED + MAX_FAST_PAYLOAD + ICRC_LEN + ACK_LEN + ICRC_LEN;

/// The headers of a packet of the fast path, as bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastHead {
    bytes: [u8; LONGEST],
    len: u8,
    /// Bytes of padding after the payload.
    pub pad: u8,
}

impl FastHead {
    /// Headers of no packet.
    pub const EMPTY: FastHead = FastHead { bytes: [0; LONGEST], len: Bth::LEN as u8, pad: 0 };

    // Setters write in place, and only what is used: a value would be copied.

    /// Writes the BTH.
    #[inline]
    fn set(&mut self, op: u8, (solicited, ack_req, pad): (bool, bool, u8), dest_qp: u32, psn: Psn) {
        let (flags, bits) = bth::fast(solicited, pad, ack_req);
        let [_, q0, q1, q2] = dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = psn.get().to_be_bytes();
        self.bytes[..Bth::LEN].copy_from_slice(&[op, flags, 0xff, 0xff, 0, q0, q1, q2, bits, s0, s1, s2]);
        (self.len, self.pad) = (Bth::LEN as u8, pad);
    }

    /// Adds a header. Inlined, so that its place is known to the compiler.
    #[inline(always)]
    fn add<const N: usize>(&mut self, at: usize, header: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&header);
        self.len = (at + N) as u8;
    }

    /// Sets the headers of a SEND of one packet with `pad` bytes of padding.
    #[inline]
    pub fn set_send(&mut self, dest_qp: u32, psn: Psn, solicited: bool, pad: u8, recv_wqe_sn: Psn) {
        self.set_send_part((dest_qp, psn, Position::Only), solicited, pad, (recv_wqe_sn, 0));
    }

    /// Sets the headers of a WRITE of one packet with `pad` bytes of padding.
    #[inline]
    pub fn set_write(&mut self, dest_qp: u32, psn: Psn, solicited: bool, pad: u8, reth: &Reth) {
        self.set_write_part((dest_qp, psn, Position::Only), solicited, pad, reth);
    }

    /// Sets the headers of a packet of a SEND, `psn_offset` packets after its first, with `pad` bytes of padding.
    #[inline]
    pub fn set_send_part(
        &mut self,
        (dest_qp, psn, position): (u32, Psn, Position),
        solicited: bool,
        pad: u8,
        (recv_wqe_sn, psn_offset): (Psn, u32),
    ) {
        let op = at(position, [SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND]);
        self.set(op, (solicited, true, pad), dest_qp, psn);
        self.add(Bth::LEN, recv_wqe_sn.get().to_be_bytes());
        self.add(Bth::LEN + 4, psn_offset.to_be_bytes());
    }

    /// Sets the headers of a packet of a WRITE with `pad` bytes of padding. `reth`: of the message from here on.
    #[inline]
    pub fn set_write_part(
        &mut self,
        (dest_qp, psn, position): (u32, Psn, Position),
        solicited: bool,
        pad: u8,
        reth: &Reth,
    ) {
        let op = at(position, [WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE]);
        self.set(op, (solicited, true, pad), dest_qp, psn);
        self.add(Bth::LEN, reth.emit());
    }

    /// Sets the headers of a READ request.
    #[inline]
    pub fn set_read(&mut self, dest_qp: u32, psn: Psn, reth: &Reth, read_wqe_sn: Psn) {
        self.set(READ, (false, true, 0), dest_qp, psn);
        self.add(Bth::LEN, reth.emit());
        self.add(Bth::LEN + 16, read_wqe_sn.get().to_be_bytes());
    }

    /// Sets the headers of a compare-and-swap, or a fetch-and-add.
    #[inline]
    pub fn set_atomic(&mut self, dest_qp: u32, psn: Psn, atomic: &AtomicEth, compares: bool, read_wqe_sn: Psn) {
        self.set(if compares { COMPARE_SWAP } else { FETCH_ADD }, (false, true, 0), dest_qp, psn);
        self.add(Bth::LEN, atomic.emit());
        self.add(Bth::LEN + 28, read_wqe_sn.get().to_be_bytes());
    }

    /// Sets the headers of a packet of the response to a READ, with `pad` bytes of padding.
    #[inline]
    pub fn set_response(&mut self, (dest_qp, psn, position): (u32, Psn, Position), pad: u8, aeth: &Aeth) {
        let op = at(position, [RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE]);
        self.set(op, (false, false, pad), dest_qp, psn);
        self.add(Bth::LEN, aeth.emit());
    }

    /// Sets the headers of the response to an atomic, with the previous value.
    #[inline]
    pub fn set_atomic_ack(&mut self, dest_qp: u32, psn: Psn, aeth: &Aeth, value: u64) {
        self.set(ATOMIC_ACK, (false, false, 0), dest_qp, psn);
        self.add(Bth::LEN, aeth.emit());
        self.add(Bth::LEN + 4, value.to_be_bytes());
    }

    /// Sets the headers of an acknowledgement.
    #[inline]
    pub fn set_ack(&mut self, dest_qp: u32, ack: &FastAck) {
        self.set(if ack.of_responses { READ_ACK } else { ACK }, (false, false, 0), dest_qp, ack.psn);
        self.add(Bth::LEN, ack.aeth.emit());
        self.add(Bth::LEN + 4, ack.psn.get().to_be_bytes());
    }

    /// Returns whether the packet, with `len` bytes of payload, may carry an acknowledgement.
    #[inline]
    pub fn may_carry(&self, len: u32) -> bool {
        let whole = matches!(self.bytes[0], SEND | WRITE | READ | COMPARE_SWAP | FETCH_ADD | RESPONSE | ATOMIC_ACK);
        whole && len <= MAX_FAST_PAYLOAD as u32
    }

    /// Adds an acknowledgement to the headers of another packet, which [may carry one](Self::may_carry).
    #[inline]
    pub fn carry(&mut self, ack: &FastAck) {
        // Of known length, so that no call copies them.
        let extended: [u8; LONGEST - CARRIED - Bth::LEN] = std::array::from_fn(|i| self.bytes[Bth::LEN + i]);
        self.bytes[Bth::LEN + CARRIED..].copy_from_slice(&extended);
        self.bytes[Bth::LEN..][..CARRIED].copy_from_slice(&ack.emit());
        self.bytes[0] |= CARRIES_ACK;
        self.len += CARRIED as u8;
    }

    /// Returns whether they are of a packet that carries an acknowledgement.
    #[inline]
    pub fn carries_ack(&self) -> bool {
        self.bytes[0] >= CARRIES_ACK
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
    #[inline(always)]
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        // Lengths known to the compiler need no call to copy.
        match self.len() {
            16 => emit_head::<16>(&self.bytes, out),
            20 => emit_head::<20>(&self.bytes, out),
            24 => emit_head::<24>(&self.bytes, out),
            28 => emit_head::<28>(&self.bytes, out),
            32 => emit_head::<32>(&self.bytes, out),
            36 => emit_head::<36>(&self.bytes, out),
            40 => emit_head::<40>(&self.bytes, out),
            44 => emit_head::<44>(&self.bytes, out),
            _ => emit_head::<LONGEST>(&self.bytes, out),
        }
    }
}

/// Returns the opcode of a packet at a position: that of the first, a middle, the last or the only one.
#[inline]
fn at(position: Position, [first, middle, last, only]: [u8; 4]) -> u8 {
    match position {
        Position::First => first,
        Position::Middle => middle,
        Position::Last => last,
        Position::Only => only,
    }
}

#[inline]
fn emit_head<'a, const N: usize>(bytes: &[u8; LONGEST], out: &'a mut [u8]) -> &'a mut [u8] {
    let (to, rest) = out.split_at_mut(N);
    to.copy_from_slice(&bytes[..N]);
    rest
}
