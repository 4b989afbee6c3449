//! The IRN extension's own fields (`docs/wire.md`). That every WRITE packet has a RETH is part of it too, but the RETH
//! is parsed as such.

use super::eth::parse_psn;
use super::opcode::{Opcode, Operation};
use crate::psn::Psn;

/// What the IRN extension adds to a packet (`docs/wire.md`); which variant is implied by the opcode.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IrnEth {
    /// SEND packets: which receive WQE, and how many packets into the message (IRN §4.4.3).
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
        /// Packets of the message before this one, 24 bits: the completion tells the length of the whole message.
        psn_offset: u32,
    },
    /// READ, atomic, ATOMIC WRITE and FLUSH requests.
    Read {
        /// Index of this request among those of the QP that are answered.
        read_wqe_sn: Psn,
    },
    /// Acknowledgements and read acknowledgements: the packet that triggered them.
    Ack {
        /// PSN of the packet that arrived; on a NACK the selective acknowledgement, equal to the BTH's PSN if none.
        selective: Psn,
        /// On a NACK: packets right before `selective` that have arrived, each as good as a NACK of its own.
        run: u8,
    },
    /// READ and ATOMIC responses: no field; the PSN counts in the rPSN space.
    Response,
}

impl IrnEth {
    /// The extension of a packet with `opcode`, whose fields are `words` (those that the opcode lacks are ignored).
    /// `None` if the opcode has no extension.
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
            Operation::Acknowledge | Operation::ReadAcknowledge => IrnEth::Ack { selective: first, run: words[0][0] },
            Operation::ReadResponse | Operation::AtomicAcknowledge => IrnEth::Response,
            Operation::Cnp => return None,
        })
    }

    /// The fields as big-endian words; those that the variant lacks are 0.
    #[inline]
    pub(super) fn words(&self) -> [[u8; 4]; 2] {
        let run = if let IrnEth::Ack { run, .. } = *self { run } else { 0 };
        let (first, second) = match *self {
            IrnEth::Send { recv_wqe_sn, psn_offset } | IrnEth::WriteImm { recv_wqe_sn, psn_offset } => {
                (recv_wqe_sn, Psn::new(psn_offset))
            }
            IrnEth::Read { read_wqe_sn } => (read_wqe_sn, Psn::default()),
            IrnEth::Ack { selective, .. } => (selective, Psn::default()),
            IrnEth::Write | IrnEth::Response => (Psn::default(), Psn::default()),
        };
        [(u32::from(run) << 24 | first.get()).to_be_bytes(), second.get().to_be_bytes()]
    }

    /// Whether this variant is the one that `opcode` takes.
    pub fn fits(&self, opcode: Opcode) -> bool {
        IrnEth::from_words(opcode, [&[0; 4]; 2])
            .is_some_and(|expected| std::mem::discriminant(&expected) == std::mem::discriminant(self))
    }
}
