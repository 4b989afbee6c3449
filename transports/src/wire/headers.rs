//! A packet's headers as a whole: which follow which, `parse` and `emit`.

use super::eth::{Aeth, AtomicEth, Deth, Reth};
use super::layout::Layout;
use super::opcode::Operation;
use super::{Bth, Cnp, Feth, ICRC_LEN, IrnEth, ParseError};

/// A packet's parsed headers. Which of the optional ones are there is fixed by the opcode and `irn`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram header (UD).
    pub deth: Option<Deth>,
    /// Number of the shared receive queue, 24 bits (XRC requests).
    pub xrc: Option<u32>,
    /// What a FLUSH is to reach.
    pub feth: Option<Feth>,
    /// RDMA header (READ, ATOMIC WRITE and FLUSH request, first or only WRITE; every WRITE with IRN).
    pub reth: Option<Reth>,
    /// Acknowledge header (ACK, first, last and only READ response, ATOMIC response).
    pub aeth: Option<Aeth>,
    /// Atomic request header.
    pub atomic: Option<AtomicEth>,
    /// Atomic response: the value before.
    pub atomic_ack: Option<u64>,
    /// Immediate data, host order of the big-endian word.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
    /// What a congestion notification packet says; `None` for the zeros that IBA reserves, and in other packets.
    pub cnp: Option<Cnp>,
    /// IRN extension; its presence is the BTH's bit X.
    pub irn: Option<IrnEth>,
}

impl Headers {
    /// The longest headers of any packet, in bytes: an atomic request of XRC with the IRN extension.
    pub const MAX_LEN: usize = 48;
    /// The longest headers of a packet with payload, in bytes: a last WRITE with immediate of XRC, with the IRN
    /// extension.
    pub const MAX_DATA_LEN: usize = 44;

    /// A BTH and nothing else yet.
    pub const fn new(bth: Bth) -> Headers {
        Headers {
            bth,
            deth: None,
            xrc: None,
            feth: None,
            reth: None,
            aeth: None,
            atomic: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            cnp: None,
            irn: None,
        }
    }

    /// Bytes from the BTH to the last extended header.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
    pub fn len(&self) -> usize {
        Bth::LEN + self.bth.opcode.extended_len(self.irn.is_some())
    }

    /// Bytes from the BTH to the ICRC of a packet with these headers and `payload` bytes, its pad count as set.
    #[inline]
    pub fn frame_len(&self, payload: usize) -> usize {
        self.len() + payload + usize::from(self.bth.pad) + ICRC_LEN
    }

    /// Whether exactly those headers are set that the opcode and `irn` call for. [`Headers::emit`] takes no others.
    pub fn is_consistent(&self) -> bool {
        let Headers { bth, deth, xrc, feth, reth, aeth, atomic, atomic_ack, imm, ieth, cnp, irn } = self;
        let layout = bth.opcode.layout(irn.is_some());
        layout.has(Layout::DETH) == deth.is_some()
            && layout.has(Layout::XRCETH) == xrc.is_some()
            && layout.has(Layout::FETH) == feth.is_some()
            && layout.has(Layout::RETH) == reth.is_some()
            && layout.has(Layout::AETH) == aeth.is_some()
            && layout.has(Layout::ATOMIC) == atomic.is_some()
            && layout.has(Layout::ATOMIC_ACK) == atomic_ack.is_some()
            && layout.has(Layout::IMM) == imm.is_some()
            && layout.has(Layout::IETH) == ieth.is_some()
            && (layout.has(Layout::CNP) || cnp.is_none())
            && match irn {
                Some(irn) => irn.fits(bth.opcode),
                None => bth.opcode.operation() != Operation::ReadAcknowledge,
            }
    }

    /// Writes the headers to the start of `out` and returns their length. Reserved bits are 0.
    ///
    /// # Panics
    /// If `out` is shorter than [`Headers::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        debug_assert!(self.is_consistent(), "{self:?}");
        let layout = self.bth.opcode.layout(self.irn.is_some());
        let len = self.len();
        let mut at = Writer { rest: &mut out[..len] };
        at.put(&self.bth.emit(self.irn.is_some()));
        if layout.has(Layout::DETH) {
            at.put(&self.deth.unwrap_or_default().emit());
        }
        if layout.has(Layout::XRCETH) {
            at.put(&(self.xrc.unwrap_or_default() & 0xff_ffff).to_be_bytes());
        }
        if layout.has(Layout::FETH) {
            at.put(&self.feth.unwrap_or_default().emit());
        }
        if layout.has(Layout::RETH) {
            at.put(&self.reth.unwrap_or_default().emit());
        }
        if layout.has(Layout::ATOMIC) {
            at.put(&self.atomic.unwrap_or_default().emit());
        }
        if layout.has(Layout::AETH) {
            at.put(&self.aeth.unwrap_or_default().emit());
        }
        if layout.has(Layout::ATOMIC_ACK) {
            at.put(&self.atomic_ack.unwrap_or_default().to_be_bytes());
        }
        if layout.has(Layout::IMM) {
            at.put(&self.imm.unwrap_or_default().to_be_bytes());
        }
        if layout.has(Layout::IETH) {
            at.put(&self.ieth.unwrap_or_default().to_be_bytes());
        }
        if layout.has(Layout::CNP) {
            at.put(&self.cnp.unwrap_or_default().0);
        }
        if let Some(irn) = &self.irn {
            let [first, second] = irn.words();
            if layout.has(Layout::IRN_SEND) {
                at.put(&first);
                at.put(&second);
            } else if layout.has(Layout::IRN_WORD) {
                at.put(&first);
            }
        }
        len
    }
}

/// Parses a frame, BTH to ICRC, into its headers and its payload without padding. Reads no ICRC: see
/// [`icrc_check`](super::icrc_check).
#[inline]
pub fn parse(frame: &[u8]) -> Result<(Headers, &[u8]), ParseError> {
    let too_short = ParseError::TooShort { header: "BTH", need: Bth::LEN + ICRC_LEN, have: frame.len() };
    let (body, _icrc) = frame.split_last_chunk::<ICRC_LEN>().ok_or(too_short)?;
    let (bth, rest) = body.split_first_chunk::<{ Bth::LEN }>().ok_or(too_short)?;
    let (bth, irn) = Bth::parse(bth)?;
    let opcode = bth.opcode;
    let layout = opcode.layout(irn);
    let extended_len = opcode.extended_len(irn);
    if rest.len() < extended_len {
        return Err(cut_header(layout, frame.len()));
    }
    if irn && !opcode.is_reliable() {
        return Err(ParseError::NoExtension(opcode));
    }
    if !irn && opcode.operation() == Operation::ReadAcknowledge {
        return Err(ParseError::NeedsExtension(opcode));
    }
    let (extended, padded) = rest.split_at(extended_len);
    if !padded.is_empty() && !layout.has(Layout::PAYLOAD) {
        return Err(ParseError::UnexpectedPayload { opcode, len: padded.len() });
    }
    let pad = usize::from(bth.pad);
    if pad > padded.len() {
        return Err(ParseError::Pad { pad: bth.pad, len: padded.len() });
    }
    if padded.len() % 4 != 0 {
        return Err(ParseError::Unaligned(padded.len()));
    }
    let mut at = Reader { rest: extended };
    let headers = Headers {
        bth,
        deth: layout.has(Layout::DETH).then(|| Deth::parse(at.take())),
        xrc: layout.has(Layout::XRCETH).then(|| u32::from_be_bytes(*at.take()) & 0xff_ffff),
        feth: layout.has(Layout::FETH).then(|| Feth::parse(at.take())),
        reth: layout.has(Layout::RETH).then(|| Reth::parse(at.take())),
        atomic: layout.has(Layout::ATOMIC).then(|| AtomicEth::parse(at.take())),
        aeth: layout.has(Layout::AETH).then(|| Aeth::parse(at.take())),
        atomic_ack: layout.has(Layout::ATOMIC_ACK).then(|| u64::from_be_bytes(*at.take())),
        imm: layout.has(Layout::IMM).then(|| u32::from_be_bytes(*at.take())),
        ieth: layout.has(Layout::IETH).then(|| u32::from_be_bytes(*at.take())),
        cnp: if layout.has(Layout::CNP) { Cnp::parse(at.take()) } else { None },
        irn: if irn {
            let word = if layout.has(Layout::IRN_SEND) || layout.has(Layout::IRN_WORD) { at.take() } else { &[0; 4] };
            let second = if layout.has(Layout::IRN_SEND) { at.take() } else { &[0; 4] };
            IrnEth::from_words(opcode, [word, second])
        } else {
            None
        },
    };
    Ok((headers, &padded[..padded.len() - pad]))
}

/// Names the header that a frame of `have` bytes ends in.
#[cold]
fn cut_header(layout: Layout, have: usize) -> ParseError {
    let mut need = Bth::LEN + ICRC_LEN;
    let mut header = "BTH";
    for (part, name, bytes) in Layout::PARTS {
        if need <= have && layout.has(part) {
            need += bytes;
            header = name;
        }
    }
    ParseError::TooShort { header, need, have }
}

/// Hands out consecutive stretches of bytes whose sum was checked against the layout before.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> &'a [u8; N] {
        match self.rest.split_first_chunk::<N>() {
            Some((chunk, rest)) => {
                self.rest = rest;
                chunk
            }
            // Unreachable: the layout's length is the sum of its parts, a test holds it to that.
            None => &[0; N],
        }
    }
}

/// Lays consecutive stretches of bytes into a slice of the layout's length.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: &[u8; N]) {
        if let Some((chunk, rest)) = std::mem::take(&mut self.rest).split_first_chunk_mut::<N>() {
            *chunk = *bytes;
            self.rest = rest;
        }
    }
}
