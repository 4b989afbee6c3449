//! The headers of each packet: one table, used by both parse and emit.

use super::opcode::Opcode::*;
use super::opcode::{Opcode, Operation};

/// The extended headers after the BTH, a set of the constants below. They are in the packet in the constants' order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Layout(u16);

impl Layout {
    /// Datagram header, 8 bytes.
    pub const DETH: Layout = Layout(1);
    /// Extended reliable connection: the shared receive queue, 4 bytes.
    pub const XRCETH: Layout = Layout(1 << 1);
    /// FLUSH header, 4 bytes.
    pub const FETH: Layout = Layout(1 << 2);
    /// RDMA header, 16 bytes.
    pub const RETH: Layout = Layout(1 << 3);
    /// Atomic request header, 28 bytes.
    pub const ATOMIC: Layout = Layout(1 << 4);
    /// Acknowledge header, 4 bytes.
    pub const AETH: Layout = Layout(1 << 5);
    /// Atomic response, 8 bytes.
    pub const ATOMIC_ACK: Layout = Layout(1 << 6);
    /// Immediate data, 4 bytes.
    pub const IMM: Layout = Layout(1 << 7);
    /// Key to invalidate, 4 bytes.
    pub const IETH: Layout = Layout(1 << 8);
    /// Bytes after the BTH of a CNP, 16, reserved by IBA.
    pub const CNP: Layout = Layout(1 << 9);
    /// IRN: receive WQE sequence number and PSN offset, 8 bytes.
    pub const IRN_SEND: Layout = Layout(1 << 10);
    /// IRN: one sequence number, 4 bytes. NDP's feedback has two words in place of [`Layout::IRN_SEND`].
    pub const IRN_WORD: Layout = Layout(1 << 11);
    /// The packet may carry a payload.
    pub const PAYLOAD: Layout = Layout(1 << 12);
    const NONE: Layout = Layout(0);

    /// Each header with its name and its length in bytes, in packet order.
    pub(super) const PARTS: [(Layout, &'static str, usize); 12] = [
        (Layout::DETH, "DETH", 8),
        (Layout::XRCETH, "XRCETH", 4),
        (Layout::FETH, "FETH", super::Feth::LEN),
        (Layout::RETH, "RETH", 16),
        (Layout::ATOMIC, "AtomicETH", 28),
        (Layout::AETH, "AETH", 4),
        (Layout::ATOMIC_ACK, "AtomicAckETH", 8),
        (Layout::IMM, "ImmDt", 4),
        (Layout::IETH, "IETH", 4),
        (Layout::CNP, "CNP reserved bytes", super::Cnp::LEN),
        (Layout::IRN_SEND, "IRN send extension", 8),
        (Layout::IRN_WORD, "IRN extension", 4),
    ];

    /// Returns whether `part` is in the packet.
    #[inline]
    pub const fn has(self, part: Layout) -> bool {
        self.0 & part.0 != 0
    }

    /// Returns the contents of a packet, and the length of its extended headers in bytes.
    #[inline]
    pub(super) fn of(opcode: Opcode, irn: bool) -> (Layout, usize) {
        let Entry { layout, bytes } = LAYOUTS[usize::from(irn)][opcode as usize];
        (layout, usize::from(bytes))
    }

    /// Returns the extended headers in IBA (9.2.1). Requests of extended reliable connections have an XRCETH before
    /// those of RC (A14; the order is in the FLUSH series for Linux's rxe as well).
    const fn iba(opcode: Opcode) -> Layout {
        use Layout as L;
        if opcode.is_xrc() {
            let rc = L::iba(opcode.in_rc());
            return if opcode.is_request() { rc.and(L::XRCETH) } else { rc };
        }
        match opcode {
            RcSendFirst | RcSendMiddle | RcSendLast | RcSendOnly => L::PAYLOAD,
            UcSendFirst | UcSendMiddle | UcSendLast | UcSendOnly => L::PAYLOAD,
            RcSendLastImm | RcSendOnlyImm | UcSendLastImm | UcSendOnlyImm => L::IMM.and(L::PAYLOAD),
            RcSendLastInvalidate | RcSendOnlyInvalidate => L::IETH.and(L::PAYLOAD),
            RcWriteFirst | RcWriteOnly | UcWriteFirst | UcWriteOnly => L::RETH.and(L::PAYLOAD),
            RcWriteMiddle | RcWriteLast | UcWriteMiddle | UcWriteLast => L::PAYLOAD,
            RcWriteLastImm | UcWriteLastImm => L::IMM.and(L::PAYLOAD),
            RcWriteOnlyImm | UcWriteOnlyImm => L::RETH.and(L::IMM).and(L::PAYLOAD),
            RcReadRequest => L::RETH,
            RcFlush => L::FETH.and(L::RETH),
            RcAtomicWrite => L::RETH.and(L::PAYLOAD),
            RcReadResponseFirst | RcReadResponseLast | RcReadResponseOnly => L::AETH.and(L::PAYLOAD),
            RcReadResponseMiddle => L::PAYLOAD,
            RcAcknowledge | RcReadAcknowledge | RcFeedback | RcReadFeedback => L::AETH,
            RcAtomicAcknowledge => L::AETH.and(L::ATOMIC_ACK),
            RcCompareSwap | RcFetchAdd => L::ATOMIC,
            UdSendOnly => L::DETH.and(L::PAYLOAD),
            UdSendOnlyImm => L::DETH.and(L::IMM).and(L::PAYLOAD),
            Cnp => L::CNP,
            _ => L::NONE,
        }
    }

    /// Returns the headers added by the IRN extension (`docs/wire.md`).
    const fn irn(opcode: Opcode) -> Layout {
        use Layout as L;
        if !opcode.is_reliable() {
            return L::NONE;
        }
        match opcode.operation() {
            Operation::Send => L::IRN_SEND,
            Operation::Write => match opcode.in_rc() {
                RcWriteLastImm | RcWriteOnlyImm => L::RETH.and(L::IRN_SEND),
                _ => L::RETH,
            },
            Operation::ReadRequest | Operation::Atomic | Operation::AtomicWrite | Operation::Flush => L::IRN_WORD,
            Operation::Acknowledge | Operation::ReadAcknowledge => L::IRN_WORD,
            Operation::Feedback | Operation::ReadFeedback => L::IRN_SEND,
            // Middle packets with the length of the first and the last form one train for segmentation offload.
            Operation::ReadResponse => L::AETH,
            Operation::AtomicAcknowledge | Operation::Clock | Operation::ReadClock | Operation::Cnp => L::NONE,
        }
    }

    const fn and(self, other: Layout) -> Layout {
        Layout(self.0 | other.0)
    }

    /// Returns the bytes of all extended headers.
    const fn bytes(self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < Layout::PARTS.len() {
            if self.has(Layout::PARTS[i].0) {
                sum += Layout::PARTS[i].2;
            }
            i += 1;
        }
        sum
    }
}

/// A [`Layout`] and its length, looked up once per packet.
#[derive(Copy, Clone)]
struct Entry {
    layout: Layout,
    bytes: u8,
}

/// Indexed by the presence of the IRN extension and the opcode. Unknown opcodes have no headers.
static LAYOUTS: [[Entry; 256]; 2] = {
    let mut table = [[Entry { layout: Layout::NONE, bytes: 0 }; 256]; 2];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        let op = Opcode::ALL[i];
        let plain = Layout::iba(op);
        let irn = plain.and(Layout::irn(op));
        table[0][op as usize] = Entry { layout: plain, bytes: plain.bytes() as u8 };
        table[1][op as usize] = Entry { layout: irn, bytes: irn.bytes() as u8 };
        i += 1;
    }
    table
};

/// Headers by opcode.
impl Opcode {
    /// Returns the extended headers of a packet with this opcode, with or without the IRN extension.
    #[inline]
    pub fn layout(self, irn: bool) -> Layout {
        Layout::of(self, irn).0
    }

    /// Returns the bytes of the extended headers, without the BTH.
    #[inline]
    pub fn extended_len(self, irn: bool) -> usize {
        Layout::of(self, irn).1
    }

    /// Returns whether a datagram header follows the BTH.
    #[inline]
    pub fn has_deth(self) -> bool {
        self.layout(false).has(Layout::DETH)
    }

    /// Returns whether the packet names a shared receive queue.
    #[inline]
    pub fn has_xrceth(self) -> bool {
        self.layout(false).has(Layout::XRCETH)
    }

    /// Returns whether there is an RDMA header in plain RoCE. With the IRN extension every WRITE has one.
    #[inline]
    pub fn has_reth(self) -> bool {
        self.layout(false).has(Layout::RETH)
    }

    /// Returns whether there is an acknowledge header.
    #[inline]
    pub fn has_aeth(self) -> bool {
        self.layout(false).has(Layout::AETH)
    }

    /// Returns whether there is immediate data.
    #[inline]
    pub fn has_imm(self) -> bool {
        self.layout(false).has(Layout::IMM)
    }

    /// Returns whether there is a key to invalidate.
    #[inline]
    pub fn has_ieth(self) -> bool {
        self.layout(false).has(Layout::IETH)
    }

    /// Returns whether the packet may carry a payload.
    #[inline]
    pub fn has_payload(self) -> bool {
        self.layout(false).has(Layout::PAYLOAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_headers_have_ibas_lengths() {
        for (op, plain, irn) in [
            (RcSendFirst, 0, 8),
            (RcSendLastImm, 4, 12),
            (RcSendOnlyInvalidate, 4, 12),
            (RcWriteFirst, 16, 16),
            (RcWriteMiddle, 0, 16),
            (RcWriteLastImm, 4, 28),
            (RcWriteOnlyImm, 20, 28),
            (RcReadRequest, 16, 20),
            (RcReadResponseFirst, 4, 4),
            (RcReadResponseMiddle, 0, 4),
            (RcAcknowledge, 4, 8),
            (RcAtomicAcknowledge, 12, 12),
            (RcCompareSwap, 28, 32),
            (RcReadAcknowledge, 4, 8),
            (RcFeedback, 4, 12),
            (RcReadFeedback, 4, 12),
            (RcClock, 0, 0),
            (RcReadClock, 0, 0),
            (UcWriteOnlyImm, 20, 20),
            (UdSendOnly, 8, 8),
            (UdSendOnlyImm, 12, 12),
            (RcFlush, 20, 24),
            (RcAtomicWrite, 16, 20),
            (Cnp, 16, 16),
            (XrcSendMiddle, 4, 12),
            (XrcSendOnlyInvalidate, 8, 16),
            (XrcWriteLastImm, 8, 32),
            (XrcReadRequest, 20, 24),
            (XrcReadResponseMiddle, 0, 4),
            (XrcAcknowledge, 4, 8),
            (XrcFetchAdd, 32, 36),
            (XrcReadAcknowledge, 4, 8),
        ] {
            assert_eq!((op.extended_len(false), op.extended_len(true)), (plain, irn), "{op}");
        }
    }
}
