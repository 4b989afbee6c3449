//! The base transport header, 12 bytes.
//!
//! ```text
//! byte 0  opcode             4  FECN | BECN | Resv6     8  AckReq | X | C | N | T(2) | L | Resv
//!      1  SE | M | Pad | TVer 5  destination QP          9  PSN
//!      2  P_Key
//! ```

use super::{Opcode, ParseError};
use crate::psn::Psn;

/// Base transport header (IBA 9.2), without fields implied by the opcode and the port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Service type and operation.
    pub opcode: Opcode,
    /// Solicited event: the receiver's completion shall wake a CQ armed for solicited events only.
    pub solicited: bool,
    /// MigReq: the sender's automatic path migration state; 1 in RoCE.
    pub migreq: bool,
    /// Bytes of padding after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key, 0xffff by default.
    pub pkey: u16,
    /// Forward congestion notification (IBA A10). Not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification. Not covered by the ICRC.
    pub becn: bool,
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// Whether the sender requests an acknowledgement.
    pub ack_req: bool,
    /// Whether the sender supports the IRN extension (irnic's reserved bit C).
    pub irn_capable: bool,
    /// Importance to TLT (irnic's reserved bits T); [`Importance::None`] in packets without the IRN extension.
    pub importance: Importance,
    /// RC3: whether the packet is at low priority, or acknowledges one that was (irnic's reserved bit L); false in
    /// packets without the IRN extension.
    pub low: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// Importance of a packet to TLT (EuroSys 2021, §5.1, Appendix A): on data, a request for an echo; on an
/// acknowledgement, the echo.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Importance {
    /// None.
    #[default]
    None = 0,
    /// Important data, or its echo.
    Important = 1,
    /// Important data of ACK-clocking, which is sent whatever the window, or its echo.
    Clock = 2,
}

impl Importance {
    /// Decodes the bits T; both together are reserved and ignored.
    #[inline]
    const fn from_bits(byte: u8) -> Importance {
        match byte >> 2 & 3 {
            1 => Importance::Important,
            2 => Importance::Clock,
            _ => Importance::None,
        }
    }
}

/// irnic's extensions in a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Extensions {
    /// IRN's fields.
    pub(super) irn: bool,
    /// NDP's word, after IRN's fields.
    pub(super) ndp: bool,
}

const SOLICITED: u8 = 0x80;
const MIGREQ: u8 = 0x40;
const TVER: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;
/// The IRN extension is in the packet.
const X: u8 = 0x40;
/// The sender is capable of IRN.
const C: u8 = 0x20;
/// NDP's word is in the packet. Only with X.
const N: u8 = 0x10;
/// TLT's importance. Only with X.
const IMPORTANCE: u8 = 0x0c;
/// RC3's low priority. Only with X.
const L: u8 = 0x02;

/// Transport version of IBA packets.
const TVER_IBA: u8 = 0;
/// Transport version of packets with the IRN extension: IBA receivers must drop unknown versions (IBA 9.6.1.1).
const TVER_IRN: u8 = 1;

/// Returns whether the byte with AckReq has X and N.
#[inline]
pub(super) fn is_pulled(byte: u8) -> bool {
    byte & (X | N) == X | N
}

/// Returns whether a packet with this byte of flags, and this one with AckReq, has the IRN extension and no flag but
/// AckReq, solicited event, MigReq and C.
#[inline]
pub(super) fn is_fast(flags: u8, bits: u8) -> bool {
    flags & TVER == TVER_IRN && bits & (X | N | L | IMPORTANCE) == X
}

/// Returns both bytes of a packet that [`is_fast`].
#[inline]
pub(super) fn fast(solicited: bool, pad: u8, ack_req: bool) -> (u8, u8) {
    let set = |condition: bool, bit: u8| if condition { bit } else { 0 };
    (set(solicited, SOLICITED) | MIGREQ | (pad & 3) << 4 | TVER_IRN, set(ack_req, ACK_REQ) | X | C)
}

/// Returns the pad count in a byte of flags.
#[inline]
pub(super) fn pad(flags: u8) -> u8 {
    flags >> 4 & 3
}

/// Returns whether a byte of flags has the solicited event.
#[inline]
pub(super) fn is_solicited(flags: u8) -> bool {
    flags & SOLICITED != 0
}

/// Returns whether the byte with AckReq has it.
#[inline]
pub(super) fn requests_ack(bits: u8) -> bool {
    bits & ACK_REQ != 0
}

/// Returns whether the byte with AckReq has C.
#[inline]
pub(super) fn is_irn_capable(bits: u8) -> bool {
    bits & C != 0
}

impl Bth {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Creates a header with the default partition, MigReq set, and no other flag or padding.
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migreq: true,
            pad: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            irn_capable: false,
            importance: Importance::None,
            low: false,
            psn,
        }
    }

    /// Parses the header, and which extensions the packet carries.
    #[inline]
    pub(super) fn parse(b: &[u8; Bth::LEN]) -> Result<(Bth, Extensions), ParseError> {
        let opcode = Opcode::from_u8(b[0]).ok_or(ParseError::UnknownOpcode(b[0]))?;
        let irn = b[8] & X != 0;
        let tver = b[1] & TVER;
        if tver != if irn { TVER_IRN } else { TVER_IBA } {
            return Err(ParseError::Version { tver, irn });
        }
        let bth = Bth {
            opcode,
            solicited: is_solicited(b[1]),
            migreq: b[1] & MIGREQ != 0,
            pad: pad(b[1]),
            pkey: u16::from_be_bytes([b[2], b[3]]),
            fecn: b[4] & FECN != 0,
            becn: b[4] & BECN != 0,
            dest_qp: u32::from_be_bytes([0, b[5], b[6], b[7]]),
            ack_req: b[8] & ACK_REQ != 0,
            irn_capable: is_irn_capable(b[8]),
            importance: if irn { Importance::from_bits(b[8]) } else { Importance::None },
            low: irn && b[8] & L != 0,
            psn: Psn::new(u32::from_be_bytes([0, b[9], b[10], b[11]])),
        };
        Ok((bth, Extensions { irn, ndp: irn && b[8] & N != 0 }))
    }

    /// Returns the bytes, which precede the extensions.
    #[inline]
    pub(super) fn emit(&self, Extensions { irn, ndp }: Extensions) -> [u8; Bth::LEN] {
        let set = |condition: bool, bit: u8| if condition { bit } else { 0 };
        let type_bits = if irn { (self.importance as u8) << 2 | set(self.low, L) } else { 0 };
        let [p0, p1] = self.pkey.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = self.psn.get().to_be_bytes();
        [
            self.opcode as u8,
            set(self.solicited, SOLICITED)
                | set(self.migreq, MIGREQ)
                | (self.pad & 3) << 4
                | if irn { TVER_IRN } else { TVER_IBA },
            p0,
            p1,
            set(self.fecn, FECN) | set(self.becn, BECN),
            q0,
            q1,
            q2,
            set(self.ack_req, ACK_REQ) | set(irn, X) | set(self.irn_capable, C) | set(ndp, N) | type_bits,
            s0,
            s1,
            s2,
        ]
    }
}
