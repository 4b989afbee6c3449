//! The receive queue: a ring of receive WQEs from posting to completion, addressed by recv_WQE_SN (IRN §4.4.3).

use super::context::QpContext;
use super::host::{Event, Frees, Host, RecvWqe, SrqId, XrcSrq};
use super::send_queue::PostError;
use super::work::{RecvWr, Sge, Wc, WcOpcode, WcStatus};
use crate::footprint::{Per, bits, each, footprint, left, maybe, sequence, width};
use crate::psn::Psn;
use crate::room::{OutOfMemory, boxed};

/// Contents of the last packet of a message: the CQE that IRN creates before the message is complete (§4.4.3).
#[derive(Copy, Clone, Debug)]
pub(crate) struct PrematureCqe {
    pub opcode: WcOpcode,
    pub byte_len: u32,
    pub word: Word,
    pub solicited: bool,
    /// Sequence number of that packet.
    pub psn: Psn,
}

/// The 32-bit value of a message: no packet has room for both.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Word {
    Nothing,
    Immediate(u32),
    Invalidate(u32),
}

#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct RecvSlot {
    pub wr_id: u64,
    sge_count: u32,
    pub premature: Option<PrematureCqe>,
}

// There is one for each receive work request of each queue pair.
const _: () = assert!(size_of::<RecvSlot>() == 32);

/// A receive WQE being filled by a message.
pub(crate) struct Filling<'a> {
    pub slot: &'a mut RecvSlot,
    /// Scatter list.
    pub sges: &'a [Sge],
}

impl Filling<'_> {
    /// Returns the capacity of the WQE in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.sges.iter().map(|s| u64::from(s.len)).sum()
    }
}

/// Origin of receive WQEs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Posted to the queue pair.
    Own,
    /// All from a shared receive queue.
    Shared(SrqId),
    /// From the shared receive queue that each message names (XRC).
    Named,
}

impl From<Option<SrqId>> for Source {
    fn from(srq: Option<SrqId>) -> Source {
        srq.map_or(Source::Own, Source::Shared)
    }
}

/// Receive WQEs in the order in which messages consume them: those posted, or on a shared receive queue those that the
/// QP has taken from it so far (IRN §4.4.4). `head` is a free-running counter; its low 24 bits are the recv_WQE_SN of
/// the oldest. If each message names its queue, there are slots without a WQE: a later message may be known before
/// those that precede it.
///
/// Posted WQEs have their memory from the beginning. Memory for WQEs from a shared receive queue is allocated at each
/// new peak of messages in progress: a full window of them is rare.
#[derive(Clone, Debug)]
pub(crate) struct RecvQueue {
    /// Zero or a power of two of them.
    slots: Box<[RecvSlot]>,
    /// Scatter lists of the slots, `max_sge` elements each.
    sges: Box<[Sge]>,
    limit: u32,
    max_sge: usize,
    source: Source,
    /// [`Source::Named`]: the queue that each slot's WQE was taken from, `None` while it has no WQE. Otherwise empty.
    from: Box<[Option<XrcSrq>]>,
    head: u32,
    tail: u32,
    /// WQEs of this queue that are complete and whose completions were not polled.
    unpolled: u32,
}

impl RecvQueue {
    /// Initial room for WQEs of a shared receive queue.
    const FEW: usize = 4;

    pub(crate) fn new(limit: u32, max_sge: usize, source: Source) -> Result<RecvQueue, OutOfMemory> {
        let (slots, sges, from) = (Box::default(), Box::default(), Box::default());
        let mut queue = RecvQueue { slots, sges, limit, max_sge, source, from, head: 0, tail: 0, unpolled: 0 };
        if source == Source::Own && limit > 0 {
            queue.resize(limit.next_power_of_two() as usize)?;
        }
        Ok(queue)
    }

    /// Sets the number of slots, a power of two and at least the number of WQEs.
    #[cold]
    #[inline(never)]
    fn resize(&mut self, len: usize) -> Result<(), OutOfMemory> {
        let mut slots = boxed(RecvSlot::default(), len)?;
        let mut sges = boxed(Sge::default(), len * self.max_sge)?;
        let mut from = boxed(None, if self.source == Source::Named { len } else { 0 })?;
        for n in 0..self.len() {
            let index = self.head.wrapping_add(n);
            let (old, new) = (self.place(index), index as usize & (len - 1));
            slots[new] = self.slots[old];
            sges[new * self.max_sge..][..self.max_sge]
                .copy_from_slice(&self.sges[old * self.max_sge..][..self.max_sge]);
            if let Some(origin) = from.get_mut(new) {
                *origin = self.from[old];
            }
        }
        (self.slots, self.sges, self.from) = (slots, sges, from);
        Ok(())
    }

    /// Makes room for one more WQE from a shared receive queue. Returns false on failure.
    #[inline]
    fn extend(&mut self) -> bool {
        let len = self.slots.len();
        (self.len() as usize) < len || self.resize((2 * len).max(Self::FEW)).is_ok()
    }

    pub(crate) fn srq(&self) -> Option<SrqId> {
        match self.source {
            Source::Shared(srq) => Some(srq),
            Source::Own | Source::Named => None,
        }
    }

    /// Returns whether WQEs come from shared receive queues.
    pub(crate) fn is_shared(&self) -> bool {
        self.source != Source::Own
    }

    /// Returns the number of WQEs that no message has consumed completely.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns the recv_WQE_SN of the oldest WQE, posted yet or not.
    #[inline]
    pub(crate) fn head_sn(&self) -> Psn {
        Psn::new(self.head)
    }

    pub(crate) fn reset(&mut self) {
        (self.head, self.tail, self.unpolled) = (0, 0, 0);
        self.slots.iter_mut().for_each(|s| s.premature = None);
        self.from.fill(None);
    }

    #[inline]
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.is_shared() {
            return Err(PostError::HasSrq);
        }
        if self.len() + self.unpolled >= self.limit {
            return Err(PostError::Full(self.limit));
        }
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges { given: wr.sges.len(), max: self.max_sge });
        }
        let i = self.place(self.tail);
        self.slots[i] = RecvSlot { wr_id: wr.wr_id, sge_count: wr.sges.len() as u32, premature: None };
        self.sges[i * self.max_sge..][..wr.sges.len()].copy_from_slice(wr.sges);
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn place(&self, index: u32) -> usize {
        index as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn filling(&mut self, i: usize) -> Filling<'_> {
        let slot = &mut self.slots[i];
        let first = i * self.max_sge;
        // Never out of bounds, and not worth a panic.
        let sges = self.sges.get(first..first + slot.sge_count as usize).unwrap_or_default();
        Filling { slot, sges }
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut RecvSlot {
        let i = self.place(index);
        &mut self.slots[i]
    }

    /// Returns the WQE with this recv_WQE_SN. WQEs up to it are taken from a shared receive queue, as far as it has any
    /// and there is memory for them.
    #[inline]
    pub(crate) fn by_sn(&mut self, sn: Psn, host: &mut impl Host) -> Option<Filling<'_>> {
        let ahead = sn.distance(self.head_sn());
        if ahead < 0 || ahead as u32 >= self.limit {
            return None;
        }
        let ahead = ahead as u32;
        if let Source::Shared(srq) = self.source {
            while self.len() <= ahead {
                if !self.extend() {
                    return None;
                }
                let i = self.place(self.tail);
                let RecvWqe { wr_id, sge_count } =
                    host.srq_take(srq, &mut self.sges[i * self.max_sge..][..self.max_sge])?;
                self.slots[i] = RecvSlot { wr_id, sge_count, premature: None };
                self.tail = self.tail.wrapping_add(1);
            }
        }
        let i = self.place(self.head.wrapping_add(ahead));
        (ahead < self.len()).then(|| self.filling(i))
    }

    /// Returns the oldest WQE if it is one of this queue's own, has this recv_WQE_SN, and no last packet of a message
    /// has been placed in it.
    #[inline(always)]
    pub(crate) fn oldest_untouched(&mut self, sn: Psn) -> Option<Filling<'_>> {
        if self.source != Source::Own || self.head == self.tail || sn != self.head_sn() {
            return None;
        }
        let filling = self.filling(self.place(self.head));
        filling.slot.premature.is_none().then_some(filling)
    }

    /// Handles a message of an unreliable service that is too long for the oldest WQE. A WQE from a shared receive
    /// queue cannot be put back, where it would be the next for all its queue pairs: it completes in error, and the
    /// queue pair continues. One of the queue pair's own waits for the next message.
    #[cold]
    pub(crate) fn refuse_short(&mut self, c: &QpContext, host: &mut impl Host) {
        if self.srq().is_some()
            && let Some(wr_id) = self.pop()
        {
            let (status, opcode) = (WcStatus::LocLenErr, WcOpcode::Recv);
            host.complete(c.recv_cq, Wc { wr_id, status, opcode, qp_num: c.qpn, ..Wc::EMPTY }, self.frees());
        }
    }

    /// Returns the WQE with this recv_WQE_SN and the queue that it comes from: the one that its message names, unless
    /// an earlier packet of the message named another. An early message leaves a WQE in the queue for each preceding
    /// one of which nothing has arrived: they might name the same queue, and could not complete without it.
    pub(crate) fn by_sn_from(
        &mut self,
        sn: Psn,
        named: &XrcSrq,
        host: &mut impl Host,
    ) -> Option<(Filling<'_>, XrcSrq)> {
        let ahead = sn.distance(self.head_sn());
        if ahead < 0 || ahead as u32 >= self.limit {
            return None;
        }
        let ahead = ahead as u32;
        while self.len() <= ahead {
            if !self.extend() {
                return None;
            }
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
                let sges = &mut self.sges[i * self.max_sge..][..self.max_sge];
                let RecvWqe { wr_id, sge_count } = host.xrc_take(named.id, keep, sges)?;
                (self.slots[i].wr_id, self.slots[i].sge_count) = (wr_id, sge_count);
                self.from[i] = Some(*named);
                *named
            }
        };
        Some((self.filling(i), from))
    }

    /// Takes the queue that the oldest WQE was taken from, if its message named one.
    #[inline]
    pub(crate) fn take_origin(&mut self) -> Option<XrcSrq> {
        let i = self.place(self.head);
        self.from.get_mut(i)?.take()
    }

    /// Takes the CQE from the last packet of the oldest WQE's message, if it has arrived.
    #[inline]
    pub(crate) fn take_premature(&mut self) -> Option<PrematureCqe> {
        if self.head == self.tail {
            return None;
        }
        self.slot_mut(self.head).premature.take()
    }

    /// Consumes the oldest WQE, and returns its `wr_id`: the message that fills it is complete, or it is flushed.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        if self.head == self.tail {
            return None;
        }
        let head = self.head;
        self.head = head.wrapping_add(1);
        self.unpolled += u32::from(self.source == Source::Own);
        Some(self.slot_mut(head).wr_id)
    }

    /// Returns the slot freed by a WQE's completion, unless its message has named the queue.
    #[inline]
    pub(crate) fn frees(&self) -> Frees {
        self.srq().map_or(Frees::Receive, Frees::Shared)
    }

    /// Frees a WQE of this queue whose completion was polled.
    #[inline]
    pub(crate) fn free(&mut self) {
        self.unpolled = self.unpolled.saturating_sub(1);
    }

    /// Returns the shared receive queues whose WQEs the queue has taken and not completed, once for each.
    pub(crate) fn held(&self) -> impl Iterator<Item = SrqId> {
        let places = (0..self.len()).map(|n| self.place(self.head.wrapping_add(n)));
        places.filter_map(|place| match self.source {
            Source::Own => None,
            Source::Shared(srq) => Some(srq),
            Source::Named => self.from.get(place)?.map(|from| from.id),
        })
    }

    /// Ends every receive WQE: the oldest with `status`, the others flushed.
    pub(crate) fn flush(&mut self, c: &QpContext, mut status: WcStatus, host: &mut impl Host) {
        let named = self.source == Source::Named;
        while self.head != self.tail {
            let from = self.take_origin();
            self.slot_mut(self.head).premature = None;
            let Some(wr_id) = self.pop() else { break };
            let (cq, frees) = match from {
                Some(from) if c.finds(&from, host) => (from.cq, Frees::Shared(from.id)),
                None if !named => (c.recv_cq, self.frees()),
                // A slot without a WQE, or the queue is destroyed and needs no completion.
                _ => continue,
            };
            host.complete(cq, Wc { wr_id, status, opcode: WcOpcode::Recv, qp_num: c.qpn, ..Wc::EMPTY }, frees);
            status = WcStatus::WrFlushErr;
        }
        if matches!(self.source, Source::Shared(_)) {
            host.event(Event::LastWqeReached(c.qpn));
        }
    }
}

footprint!(RecvQueue, |at| {
    slots => each(Per::RecvWqe, RecvSlot::default(), size_of::<RecvSlot>() + max_sge * size_of::<Sge>()),
    sges => left("in the work requests"),
    limit => bits(width::INDEX),
    max_sge => bits(8),
    source => maybe(width::HANDLE),
    from => left("of XRC"),
    head => sequence(),
    tail => sequence(),
    unpolled => left("in host memory: the driver counts what was polled"),
});

footprint!(RecvSlot, |at| {
    wr_id => bits(64),
    // With the first of them.
    sge_count => bits(8 + width::ADDRESS + width::LENGTH + width::KEY),
    premature => left("in host memory: premature CQEs (IRN §4.5.1)"),
});
