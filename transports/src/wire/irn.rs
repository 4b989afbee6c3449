//! The IRN extension's own fields (`docs/wire.md`). The RETH of every WRITE packet is part of the extension too, but is
//! parsed as such.

use super::eth::parse_psn;
use super::opcode::{Opcode, Operation};
use crate::psn::Psn;

/// Contents of NDP's feedback, a set of the constants below. Other bits are ignored.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedbackKind(pub u8);

impl FeedbackKind {
    /// The subject has arrived.
    pub const ARRIVED: FeedbackKind = FeedbackKind(1);
    /// Only the subject's headers have arrived.
    pub const TRIMMED: FeedbackKind = FeedbackKind(2);
    /// One more packet may be sent for each increment of the pull counter.
    pub const PULL: FeedbackKind = FeedbackKind(4);
    /// The subject is a duplicate: no pull is created for it.
    pub const AGAIN: FeedbackKind = FeedbackKind(8);
    /// The receiver owes no other pull.
    pub const OWES_NONE: FeedbackKind = FeedbackKind(16);

    /// Returns whether it includes all of `other`.
    #[inline]
    pub const fn has(self, other: FeedbackKind) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both.
    #[inline]
    pub const fn and(self, other: FeedbackKind) -> FeedbackKind {
        FeedbackKind(self.0 | other.0)
    }
}

/// Fields added by the IRN extension (`docs/wire.md`); the opcode determines the variant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IrnEth {
    /// SEND packets: receive WQE, and offset in packets within the message (IRN §4.4.3).
    Send {
        /// Sequence number of the receive WQE that this message consumes.
        recv_wqe_sn: Psn,
        /// Packets of the message before this one, 24 bits.
        psn_offset: u32,
    },
    /// WRITE packets without immediate: no field of its own, but a RETH on every packet.
    Write,
    /// Last (or only) WRITE packet with immediate.
    WriteImm {
        /// Sequence number of the receive WQE that this message consumes.
        recv_wqe_sn: Psn,
        /// Packets of the message before this one, 24 bits: the completion reports the length of the whole message.
        psn_offset: u32,
    },
    /// READ, atomic, ATOMIC WRITE and FLUSH requests.
    Read {
        /// Index of this request among those of the QP that have a response.
        read_wqe_sn: Psn,
    },
    /// Acknowledgements and read acknowledgements: the packet that triggered them.
    Ack {
        /// PSN of the packet that arrived; on a NACK the selective acknowledgement, equal to the BTH's PSN if none.
        selective: Psn,
        /// On a NACK: packets right before `selective` that have arrived, each equivalent to a NACK of its own.
        run: u8,
    },
    /// READ and ATOMIC responses: no field; the PSN counts in the rPSN space.
    Response,
    /// TLT's clocks: no field.
    Clock,
    /// NDP's feedback: the result of a packet, a pull, or both.
    Feedback {
        /// Contents.
        kind: FeedbackKind,
        /// PSN of the packet that it answers, if any.
        subject: Psn,
        /// Path on which the packet arrived.
        path: u8,
        /// Number of pulls sent so far.
        pull: Psn,
    },
}

impl IrnEth {
    /// Returns the extension of a packet with `opcode`, whose fields are `words` (those that the opcode lacks are
    /// ignored). `None` if the opcode has no extension.
    #[inline]
    pub(super) fn from_words(opcode: Opcode, words: [&[u8; 4]; 2]) -> Option<IrnEth> {
        if !opcode.is_reliable() {
            return None;
        }
        let first = parse_psn(words[0]);
        Some(match opcode.operation() {
            Operation::Send => IrnEth::Send { recv_wqe_sn: first, psn_offset: parse_psn(words[1]).get() },
            Operation::Write if opcode.has_imm() => {
                IrnEth::WriteImm { recv_wqe_sn: first, psn_offset: parse_psn(words[1]).get() }
            }
            Operation::Write => IrnEth::Write,
            Operation::ReadRequest | Operation::Atomic | Operation::AtomicWrite | Operation::Flush => {
                IrnEth::Read { read_wqe_sn: first }
            }
            Operation::Feedback | Operation::ReadFeedback => IrnEth::Feedback {
                kind: FeedbackKind(words[0][0]),
                subject: first,
                path: words[1][0],
                pull: parse_psn(words[1]),
            },
            Operation::Acknowledge | Operation::ReadAcknowledge => IrnEth::Ack { selective: first, run: words[0][0] },
            Operation::ReadResponse | Operation::AtomicAcknowledge => IrnEth::Response,
            Operation::Clock | Operation::ReadClock => IrnEth::Clock,
            Operation::Cnp => return None,
        })
    }

    /// Returns the fields as big-endian words; those that the variant lacks are 0.
    #[inline]
    pub(super) fn words(&self) -> [[u8; 4]; 2] {
        let word = |high: u8, low: Psn| (u32::from(high) << 24 | low.get()).to_be_bytes();
        let none = word(0, Psn::default());
        match *self {
            IrnEth::Send { recv_wqe_sn, psn_offset } | IrnEth::WriteImm { recv_wqe_sn, psn_offset } => {
                [word(0, recv_wqe_sn), word(0, Psn::new(psn_offset))]
            }
            IrnEth::Read { read_wqe_sn } => [word(0, read_wqe_sn), none],
            IrnEth::Ack { selective, run } => [word(run, selective), none],
            IrnEth::Feedback { kind, subject, path, pull } => [word(kind.0, subject), word(path, pull)],
            IrnEth::Write | IrnEth::Response | IrnEth::Clock => [none, none],
        }
    }

    /// Returns whether this variant is that of `opcode`.
    pub fn fits(&self, opcode: Opcode) -> bool {
        IrnEth::from_words(opcode, [&[0; 4]; 2])
            .is_some_and(|expected| std::mem::discriminant(&expected) == std::mem::discriminant(self))
    }
}
