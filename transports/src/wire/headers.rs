//! A packet's headers as a whole: their order, `parse` and `emit`.

use std::num::NonZeroU32;

use super::bth::Extensions;
use super::eth::{Aeth, AtomicEth, Deth, Reth};
use super::layout::Layout;
use super::{Bth, Cnp, Feth, ICRC_LEN, Importance, IrnEth, ParseError};

/// A packet's parsed headers. The opcode and `irn` determine which of the optional ones are present.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram header (UD).
    pub deth: Option<Deth>,
    /// Number of the shared receive queue, 24 bits (XRC requests).
    pub xrc: Option<u32>,
    /// FLUSH header.
    pub feth: Option<Feth>,
    /// RDMA header (READ, ATOMIC WRITE and FLUSH request, first or only WRITE; every WRITE with IRN).
    pub reth: Option<Reth>,
    /// Acknowledge header (ACK, first, last and only READ response, ATOMIC response).
    pub aeth: Option<Aeth>,
    /// Atomic request header.
    pub atomic: Option<AtomicEth>,
    /// Atomic response: the previous value.
    pub atomic_ack: Option<u64>,
    /// Immediate data, host order of the big-endian word.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
    /// Contents of a congestion notification packet; `None` for the zeros that IBA reserves, and in other packets.
    pub cnp: Option<Cnp>,
    /// IRN extension; its presence is the BTH's bit X.
    pub irn: Option<IrnEth>,
    /// NDP's word, only with an IRN extension; its presence is the BTH's bit N.
    pub ndp: Option<NdpWord>,
}

/// The word of a packet of a pulled stream (NDP), in addition to its IRN extension.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NdpWord(NonZeroU32);

impl NdpWord {
    /// Length in bytes.
    pub const LEN: usize = 4;
    const LAST: u32 = 1 << 31;

    /// Creates the word of the queue pair with number `source`, 24 bits and not 0; `last`: this packet ends the stream.
    pub const fn new(source: u32, last: bool) -> Option<NdpWord> {
        let source = source & 0xff_ffff;
        match NonZeroU32::new(if last { source | NdpWord::LAST } else { source }) {
            Some(word) if source != 0 => Some(NdpWord(word)),
            _ => None,
        }
    }

    #[inline]
    fn parse(bytes: &[u8; NdpWord::LEN]) -> Result<NdpWord, ParseError> {
        let word = u32::from_be_bytes(*bytes);
        // Reserved bits are ignored.
        NdpWord::new(word, word & NdpWord::LAST != 0).ok_or(ParseError::NoSource)
    }

    /// Returns the number of the queue pair that sent the packet, 24 bits: a switch that returns it needs it.
    #[inline]
    pub const fn source(self) -> u32 {
        self.0.get() & 0xff_ffff
    }

    /// Returns whether this packet ends the stream.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.0.get() & NdpWord::LAST != 0
    }
}

impl Headers {
    /// The longest headers of any packet, in bytes: an atomic request of XRC with the IRN extension.
    pub const MAX_LEN: usize = 48;
    /// The longest headers of a packet with payload, in bytes: a last WRITE with immediate of XRC, with the IRN
    /// extension.
    pub const MAX_DATA_LEN: usize = 44;

    /// Creates headers with a BTH only.
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
            ndp: None,
        }
    }

    #[inline]
    pub(super) fn extensions(&self) -> Extensions {
        Extensions { irn: self.irn.is_some(), ndp: self.ndp.is_some() }
    }

    /// Returns the bytes from the BTH to the last extended header.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
    pub fn len(&self) -> usize {
        let ndp = if self.ndp.is_some() { NdpWord::LEN } else { 0 };
        Bth::LEN + self.bth.opcode.extended_len(self.irn.is_some()) + ndp
    }

    /// Returns the bytes from the BTH to the ICRC of a packet with these headers and `payload` bytes, with the pad
    /// count as set.
    #[inline]
    pub fn frame_len(&self, payload: usize) -> usize {
        self.len() + payload + usize::from(self.bth.pad) + ICRC_LEN
    }

    /// Returns whether exactly the headers required by the opcode and `irn` are set. [`Headers::emit`] accepts no
    /// others.
    pub fn is_consistent(&self) -> bool {
        let Headers { bth, deth, xrc, feth, reth, aeth, atomic, atomic_ack, imm, ieth, cnp, irn, ndp } = self;
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
                None => !bth.opcode.needs_irn() && bth.importance == Importance::None && !bth.low,
            }
            && (ndp.is_none() || irn.is_some() && bth.opcode.may_be_pulled())
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
        at.put(&self.bth.emit(self.extensions()));
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
        if let Some(NdpWord(word)) = self.ndp {
            at.put(&word.get().to_be_bytes());
        }
        len
    }
}

/// Parses a frame, BTH to ICRC, into its headers and its payload without padding. The ICRC is not read: see
/// [`icrc_check`](super::icrc_check).
#[inline]
pub fn parse(frame: &[u8]) -> Result<(Headers, &[u8]), ParseError> {
    let (headers, padded) = parse_headers(frame)?;
    let pad = usize::from(headers.bth.pad);
    if pad > padded.len() {
        return Err(ParseError::Pad { pad: headers.bth.pad, len: padded.len() });
    }
    if padded.len() % 4 != 0 {
        return Err(ParseError::Unaligned(padded.len()));
    }
    Ok((headers, &padded[..padded.len() - pad]))
}

/// Parses a frame whose payload, or the end of it, was trimmed (NDP §3.1), into its headers. The rest of the payload is
/// ignored, at whatever length the switch has cut it. The ICRC is not read.
pub fn parse_trimmed(frame: &[u8]) -> Result<Headers, ParseError> {
    let (headers, _) = parse_headers(frame)?;
    if headers.ndp.is_none() { Err(ParseError::NoPulledStream(headers.bth.opcode)) } else { Ok(headers) }
}

/// Returns whether a frame of any bytes claims to be of a pulled stream (NDP).
#[inline]
pub fn is_pulled(frame: &[u8]) -> bool {
    frame.get(8).is_some_and(|&byte| super::bth::is_pulled(byte))
}

/// Returns the headers, and the bytes between them and the ICRC.
#[inline]
fn parse_headers(frame: &[u8]) -> Result<(Headers, &[u8]), ParseError> {
    let too_short = ParseError::TooShort { header: "BTH", need: Bth::LEN + ICRC_LEN, have: frame.len() };
    let (body, _icrc) = frame.split_last_chunk::<ICRC_LEN>().ok_or(too_short)?;
    let (bth, rest) = body.split_first_chunk::<{ Bth::LEN }>().ok_or(too_short)?;
    let (bth, Extensions { irn, ndp }) = Bth::parse(bth)?;
    let opcode = bth.opcode;
    let layout = opcode.layout(irn);
    let extended_len = opcode.extended_len(irn) + if ndp { NdpWord::LEN } else { 0 };
    if rest.len() < extended_len {
        return Err(cut_header(layout, ndp, frame.len()));
    }
    if irn && !opcode.is_reliable() {
        return Err(ParseError::NoExtension(opcode));
    }
    if !irn && opcode.needs_irn() {
        return Err(ParseError::NeedsExtension(opcode));
    }
    if ndp && !opcode.may_be_pulled() {
        return Err(ParseError::NoPulledStream(opcode));
    }
    let (extended, padded) = rest.split_at(extended_len);
    if !padded.is_empty() && !layout.has(Layout::PAYLOAD) {
        return Err(ParseError::UnexpectedPayload { opcode, len: padded.len() });
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
        ndp: if ndp { Some(NdpWord::parse(at.take())?) } else { None },
    };
    Ok((headers, padded))
}

/// Returns the error for a frame of `have` bytes, naming the header it ends in.
#[cold]
fn cut_header(layout: Layout, ndp: bool, have: usize) -> ParseError {
    let mut need = Bth::LEN + ICRC_LEN;
    let mut header = "BTH";
    for (part, name, bytes) in Layout::PARTS {
        if need <= have && layout.has(part) {
            need += bytes;
            header = name;
        }
    }
    if need <= have && ndp {
        (need, header) = (need + NdpWord::LEN, "NDP word");
    }
    ParseError::TooShort { header, need, have }
}

/// Returns consecutive ranges of bytes whose sum was checked against the layout before.
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
            // Unreachable: the layout's length is the sum of its parts, as a test checks.
            None => &[0; N],
        }
    }
}

/// Writes consecutive ranges of bytes to a slice of the layout's length.
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
