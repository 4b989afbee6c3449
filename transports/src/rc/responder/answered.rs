//! Requests answered by a response of their own: READ, atomics, ATOMIC WRITE and FLUSH. Their addresses are checked on
//! arrival, and they are executed in their turn.

use std::sync::atomic::{Ordering, fence};

use super::Responder;
use super::refusal::{INVALID, Refusal, access_refused};
use crate::footprint::{bits, footprint, left, sequence, width};
use crate::packet::RxPacket;
use crate::psn::Psn;
use crate::qp::access::Access;
use crate::qp::context::QpContext;
use crate::qp::host::{AtomicOp, Caller, Host, PdId};
use crate::qp::send_queue::MAX_MESSAGE;
use crate::wire::opcode::Operation;
use crate::wire::{AtomicEth, Feth, Opcode, Reth};

/// A request with a response of its own, such as a READ, executed or pending.
#[derive(Copy, Clone, Debug)]
pub(super) struct ReadOp {
    /// IRN: read_WQE_SN.
    pub(super) sn: Psn,
    /// Sequence number of the request.
    pub(super) psn: Psn,
    pub(super) kind: ReadKind,
    pub(super) rkey: u32,
    pub(super) va: u64,
    /// READ: bytes of the response.
    pub(super) len: u32,
    /// Protection domain of the requester.
    pub(super) pd: PdId,
    /// First sequence number of the response (IRN: rPSN) and the number of its packets.
    pub(super) first: Psn,
    pub(super) packets: u32,
}

impl ReadOp {
    /// An empty entry.
    pub(super) const NONE: ReadOp = ReadOp {
        sn: Psn::new(0),
        psn: Psn::new(0),
        kind: ReadKind::Done,
        rkey: 0,
        va: 0,
        len: 0,
        pd: PdId::NONE,
        first: Psn::new(0),
        packets: 0,
    };

    /// Returns the identity under which it accesses memory.
    pub(super) fn caller(&self, c: &QpContext) -> Caller {
        Caller { pd: self.pd, qpn: c.qpn }
    }
}

#[derive(Copy, Clone, Debug)]
pub(super) enum ReadKind {
    Read,
    /// Not executed yet.
    Atomic(AtomicOp),
    /// The previous value, kept for duplicates and retransmissions.
    AtomicDone(u64),
    /// Not executed yet.
    AtomicWrite([u8; 8]),
    Flush,
    /// An ATOMIC WRITE or FLUSH that was executed: its response carries no data.
    Done,
}

impl Responder {
    /// Converts a request with a response to an operation, checked as far as possible before its turn.
    pub(super) fn read_op(
        &self,
        c: &QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<ReadOp, Refusal> {
        if self.depth == 0 {
            return Err(INVALID);
        }
        let headers = packet.headers;
        let (kind, rkey, va, len) = match headers.bth.opcode.operation() {
            Operation::ReadRequest => {
                let reth = headers.reth.ok_or(INVALID)?;
                self.check_read(c, &reth, host)?;
                (ReadKind::Read, reth.rkey, reth.va, reth.len)
            }
            Operation::AtomicWrite => {
                let reth = headers.reth.ok_or(INVALID)?;
                self.check_atomic_write(c, &reth, packet, host)?;
                (ReadKind::AtomicWrite(host.eight_bytes(&packet.payload)), reth.rkey, reth.va, 0)
            }
            Operation::Flush => {
                let (feth, reth) = headers.feth.zip(headers.reth).ok_or(INVALID)?;
                self.check_flush(c, &feth, &reth, host)?;
                (ReadKind::Flush, reth.rkey, reth.va, 0)
            }
            _ => {
                let atomic = headers.atomic.ok_or(INVALID)?;
                self.check_atomic(c, &atomic, host)?;
                let op = if headers.bth.opcode.in_rc() == Opcode::RcCompareSwap {
                    AtomicOp::CompareSwap { compare: atomic.compare, swap: atomic.swap_add }
                } else {
                    AtomicOp::FetchAdd { add: atomic.swap_add }
                };
                (ReadKind::Atomic(op), atomic.rkey, atomic.va, 8)
            }
        };
        let packets = if matches!(kind, ReadKind::Read) { c.packets(len) } else { 1 };
        let (psn, pd) = (headers.bth.psn, self.caller(c).pd);
        Ok(ReadOp { sn: Psn::new(0), psn, kind, rkey, va, len, pd, first: psn, packets })
    }

    /// Executes an operation in its turn: an atomic is performed, a READ accesses memory only as its packets are sent.
    pub(super) fn execute(&self, c: &QpContext, op: &mut ReadOp, host: &mut impl Host) -> Result<(), Refusal> {
        let by = op.caller(c);
        match op.kind {
            ReadKind::Atomic(atomic) => {
                let value = host.atomic(by, op.rkey, op.va, atomic).map_err(|e| access_refused(e, host))?;
                op.kind = ReadKind::AtomicDone(value);
                host.counters().rx_atomic_requests += 1;
            }
            ReadKind::AtomicWrite(value) => {
                let store = AtomicOp::Store(value);
                host.atomic(by, op.rkey, op.va, store).map_err(|e| access_refused(e, host))?;
                op.kind = ReadKind::Done;
                host.counters().rx_write_requests += 1;
                host.counters().rcvd_bytes += 8;
            }
            ReadKind::Flush => {
                // Data placed before is in memory shared by all processors: it is enough that the response is not seen
                // first.
                fence(Ordering::SeqCst);
                op.kind = ReadKind::Done;
            }
            _ => host.counters().rx_read_requests += 1,
        }
        Ok(())
    }

    /// Checks the range of a READ before its turn.
    fn check_read(&self, c: &QpContext, reth: &Reth, host: &mut impl Host) -> Result<(), Refusal> {
        self.check_granted(c, Access::REMOTE_READ, host)?;
        if reth.len == 0 {
            return Ok(());
        }
        if reth.len > MAX_MESSAGE {
            return Err(INVALID);
        }
        host.check_remote(self.caller(c), reth.rkey, reth.va, u64::from(reth.len), Access::REMOTE_READ)
            .map_err(|e| access_refused(e, host))
    }

    /// Checks the address of an atomic before its turn.
    fn check_atomic(&self, c: &QpContext, atomic: &AtomicEth, host: &mut impl Host) -> Result<(), Refusal> {
        if !atomic.va.is_multiple_of(8) {
            return Err(INVALID);
        }
        self.check_granted(c, Access::REMOTE_ATOMIC, host)?;
        host.check_remote(self.caller(c), atomic.rkey, atomic.va, 8, Access::REMOTE_ATOMIC)
            .map_err(|e| access_refused(e, host))
    }

    /// Checks an ATOMIC WRITE before its turn: eight bytes, at an address that is a multiple of eight.
    fn check_atomic_write(
        &self,
        c: &QpContext,
        reth: &Reth,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        if !reth.va.is_multiple_of(8) || reth.len != 8 || packet.payload.len() != 8 {
            return Err(INVALID);
        }
        self.check_granted(c, Access::REMOTE_WRITE, host)?;
        host.check_remote(self.caller(c), reth.rkey, reth.va, 8, Access::REMOTE_WRITE)
            .map_err(|e| access_refused(e, host))
    }

    /// Checks a FLUSH before its turn. Queue pair and region grant each placement; for a whole region the range does
    /// not matter (Linux's rxe, `check_rkey`).
    fn check_flush(&self, c: &QpContext, feth: &Feth, reth: &Reth, host: &mut impl Host) -> Result<(), Refusal> {
        if !feth.is_valid() {
            return Err(INVALID);
        }
        let needs = |bit: u8, right: Access| if feth.placement & bit != 0 { right.0 } else { 0 };
        let needed =
            Access(needs(Feth::GLOBAL, Access::FLUSH_GLOBAL) | needs(Feth::PERSISTENT, Access::FLUSH_PERSISTENT));
        self.check_granted(c, needed, host)?;
        let by = self.caller(c);
        let checked = if feth.selectivity == Feth::REGION {
            host.check_key(by, reth.rkey, needed)
        } else {
            host.check_remote(by, reth.rkey, reth.va, u64::from(reth.len), needed)
        };
        checked.map_err(|e| access_refused(e, host))
    }
}

footprint!(ReadOp, |at| {
    sn => left("its place"),
    psn => sequence(),
    // The operation and its operands, two for an atomic.
    kind => bits(3 + 128),
    rkey => bits(width::KEY),
    va => bits(width::ADDRESS),
    len => bits(width::LENGTH),
    pd => left("the queue pair's"),
    first => sequence(),
    packets => sequence(),
});
