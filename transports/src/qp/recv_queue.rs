//! The receive queue: a ring of receive WQEs from posting to completion, addressed by recv_WQE_SN (IRN §4.4.3).

use super::context::QpContext;
use super::host::{Event, Host, RecvWqe, SrqId, XrcSrq};
use super::send_queue::PostError;
use super::work::{RecvWr, Sge, Wc, WcOpcode, WcStatus};
use crate::psn::Psn;
use crate::room::{OutOfMemory, boxed};

/// What the last packet of a message said: the CQE that IRN creates before the message is complete (§4.4.3).
#[derive(Copy, Clone, Debug)]
pub(crate) struct PrematureCqe {
    pub opcode: WcOpcode,
    pub byte_len: u32,
    pub imm: Option<u32>,
    pub invalidate: Option<u32>,
    pub solicited: bool,
    /// Sequence number of that packet.
    pub psn: Psn,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RecvSlot {
    pub wqe: RecvWqe,
    pub premature: Option<PrematureCqe>,
}

/// Where receive WQEs come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// They are posted to the queue pair.
    Own,
    /// All of a shared receive queue.
    Shared(SrqId),
    /// Each of the shared receive queue that its message names (XRC).
    Named,
}

impl From<Option<SrqId>> for Source {
    fn from(srq: Option<SrqId>) -> Source {
        srq.map_or(Source::Own, Source::Shared)
    }
}

/// Receive WQEs in the order in which messages consume them: those posted, or on a shared receive queue those that the
/// QP has taken from it so far (IRN §4.4.4). `head` counts without end; its low 24 bits are the recv_WQE_SN of the
/// oldest. Where each message names its queue, there are slots without a WQE: what precedes them in another message is
/// known before their own message is.
#[derive(Clone, Debug)]
pub(crate) struct RecvQueue {
    slots: Box<[RecvSlot]>,
    limit: u32,
    max_sge: usize,
    source: Source,
    /// [`Source::Named`]: the queue that each slot's WQE was taken from, `None` while it has no WQE. Else empty.
    from: Box<[Option<XrcSrq>]>,
    head: u32,
    tail: u32,
}

impl RecvQueue {
    pub(crate) fn new(limit: u32, max_sge: usize, source: Source) -> Result<RecvQueue, OutOfMemory> {
        let mut slots = boxed(RecvSlot::default(), limit.max(1).next_power_of_two() as usize)?;
        for slot in &mut slots {
            slot.wqe.sges = boxed(Sge::default(), max_sge)?;
        }
        let from = boxed(None, if source == Source::Named { slots.len() } else { 0 })?;
        Ok(RecvQueue { slots, limit, max_sge, source, from, head: 0, tail: 0 })
    }

    pub(crate) fn srq(&self) -> Option<SrqId> {
        match self.source {
            Source::Shared(srq) => Some(srq),
            Source::Own | Source::Named => None,
        }
    }

    /// Whether nobody posts to this queue.
    pub(crate) fn is_shared(&self) -> bool {
        self.source != Source::Own
    }

    /// WQEs that no message has consumed completely.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// recv_WQE_SN of the oldest WQE, posted yet or not.
    #[inline]
    pub(crate) fn head_sn(&self) -> Psn {
        Psn::new(self.head)
    }

    pub(crate) fn reset(&mut self) {
        (self.head, self.tail) = (0, 0);
        self.slots.iter_mut().for_each(|s| s.premature = None);
        self.from.fill(None);
    }

    #[inline]
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.is_shared() {
            return Err(PostError::HasSrq);
        }
        if self.len() >= self.limit {
            return Err(PostError::Full(self.limit));
        }
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges { given: wr.sges.len(), max: self.max_sge });
        }
        let slot = self.slot_mut(self.tail);
        slot.wqe.wr_id = wr.wr_id;
        slot.wqe.sge_count = wr.sges.len() as u32;
        slot.wqe.sges[..wr.sges.len()].copy_from_slice(wr.sges);
        slot.premature = None;
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn place(&self, index: u32) -> usize {
        index as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut RecvSlot {
        let i = self.place(index);
        &mut self.slots[i]
    }

    /// The WQE with this recv_WQE_SN. On a shared receive queue WQEs are taken from it up to there, as far as it has
    /// any.
    #[inline]
    pub(crate) fn by_sn(&mut self, sn: Psn, host: &mut impl Host) -> Option<&mut RecvSlot> {
        let ahead = sn.distance(self.head_sn());
        if ahead < 0 || ahead as u32 >= self.limit {
            return None;
        }
        let ahead = ahead as u32;
        if let Source::Shared(srq) = self.source {
            while self.len() <= ahead {
                let tail = self.tail;
                let slot = self.slot_mut(tail);
                if !host.srq_take(srq, &mut slot.wqe) {
                    return None;
                }
                slot.premature = None;
                self.tail = tail.wrapping_add(1);
            }
        }
        let head = self.head;
        (ahead < self.len()).then(|| self.slot_mut(head.wrapping_add(ahead)))
    }

    /// The WQE with this recv_WQE_SN and the queue that it comes from: the one that its message names, unless an earlier
    /// packet of the message named another. A message that comes early leaves a WQE in the queue for each one before it
    /// of which nothing has come: they might name the same queue, and could never end without.
    pub(crate) fn by_sn_from(
        &mut self,
        sn: Psn,
        named: &XrcSrq,
        host: &mut impl Host,
    ) -> Option<(&mut RecvSlot, XrcSrq)> {
        let ahead = sn.distance(self.head_sn());
        if ahead < 0 || ahead as u32 >= self.limit {
            return None;
        }
        let ahead = ahead as u32;
        while self.len() <= ahead {
            let new = self.place(self.tail);
            (self.slots[new].premature, self.from[new]) = (None, None);
            self.tail = self.tail.wrapping_add(1);
        }
        let i = self.place(self.head.wrapping_add(ahead));
        let from = match self.from[i] {
            Some(from) => from,
            None => {
                let nothing = |n: &u32| self.from[self.place(self.head.wrapping_add(*n))].is_none();
                let keep = (0..ahead).filter(nothing).count() as u32;
                if !host.xrc_take(named.id, keep, &mut self.slots[i].wqe) {
                    return None;
                }
                self.from[i] = Some(*named);
                *named
            }
        };
        Some((&mut self.slots[i], from))
    }

    /// The queue that the oldest WQE was taken from, if its message named one; forgotten with this.
    #[inline]
    pub(crate) fn take_origin(&mut self) -> Option<XrcSrq> {
        let i = self.place(self.head);
        self.from.get_mut(i)?.take()
    }

    /// What the last packet of the oldest WQE's message said, if it has arrived.
    #[inline]
    pub(crate) fn take_premature(&mut self) -> Option<PrematureCqe> {
        if self.head == self.tail {
            return None;
        }
        self.slot_mut(self.head).premature.take()
    }

    /// The oldest WQE, consumed: the message that fills it is complete, or it is flushed.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&mut RecvSlot> {
        if self.head == self.tail {
            return None;
        }
        let head = self.head;
        self.head = head.wrapping_add(1);
        Some(self.slot_mut(head))
    }

    /// Ends every receive WQE: the oldest with `status`, the others flushed.
    pub(crate) fn flush(&mut self, c: &QpContext, mut status: WcStatus, host: &mut impl Host) {
        let named = self.source == Source::Named;
        while self.head != self.tail {
            let from = self.take_origin();
            let Some(slot) = self.pop() else { break };
            let wr_id = slot.wqe.wr_id;
            slot.premature = None;
            let cq = match from {
                Some(from) if c.finds(&from, host) => from.cq,
                None if !named => c.recv_cq,
                // A slot without a WQE, or the queue is gone and nobody waits for it.
                _ => continue,
            };
            host.complete(cq, Wc { wr_id, status, opcode: WcOpcode::Recv, qp_num: c.qpn, ..Wc::EMPTY });
            status = WcStatus::WrFlushErr;
        }
        if matches!(self.source, Source::Shared(_)) {
            host.event(Event::LastWqeReached(c.qpn));
        }
    }
}
