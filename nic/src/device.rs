//! The objects of a device other than queue pairs, as seen by queue pairs.

use std::collections::VecDeque;
use std::fmt;

use irnic_transports::qp::{
    Access, AtomicOp, Caller, Counters, CqId, Event, Frees, GatherList, Host, MemError, MwBind, PdId, RecvWqe, Sge,
    SrqId, Wc, WcStatus, XrcSrq, XrcdId,
};
use irnic_transports::{Payload, Piece, Time};

use crate::clock::Clock;
use crate::cq::{Cq, Pushed};
use crate::memory::{Memory, copy_payload};
use crate::srq::{Srq, XrcPart};
use crate::table::{Table, Xrcd};

/// An event that the application can wait for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NicEvent {
    /// An armed completion queue has a completion ([`Nic::arm_cq`](crate::Nic::arm_cq)).
    Completion(CqId),
    /// An asynchronous event (IBA 11.6.3).
    Async(Event),
}

/// All objects of a device except its queue pairs.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Device {
    // Fields that every packet needs come first.
    /// Time of the call being served; during reception, the arrival time of the packet.
    pub(crate) now: Time,
    pub(crate) clock: Clock,
    /// A completion queue has overflowed, and its queue pairs were not notified yet.
    pub(crate) cq_failed: bool,
    /// The queue pair being served owes pulls.
    pub(crate) pulls_owed: bool,
    /// Number of completions added to queues so far.
    pub(crate) completions: u64,
    pub(crate) memory: Memory,
    pub(crate) counters: Counters,
    pub(crate) cqs: Table<Cq>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) xrcds: Table<Xrcd>,
    /// Number of the shared receive queue whose handle is 0, 24 bits.
    pub(crate) first_srqn: u32,
    /// Number of XRC shared receive queues created so far.
    pub(crate) xrc_serial: u32,
    pub(crate) events: VecDeque<NicEvent>,
    pub(crate) recall: Option<Recall>,
}

/// What the NIC calls before the buffers of sends return to the application although packets that refer to them may
/// still be on their way: when work requests fail, and when a queue pair is reset or destroyed.
pub struct Recall(Box<dyn Fn() + Send>);

impl Recall {
    /// Creates one that calls `recall`. It must return only when the packets can no longer be received.
    pub fn new(recall: impl Fn() + Send + 'static) -> Recall {
        Recall(Box::new(recall))
    }

    /// Calls it.
    pub fn call(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recall")
    }
}

impl Device {
    /// Has packets that refer to the memory of sends be received no more.
    #[cold]
    pub(crate) fn recall(&self) {
        if let Some(recall) = &self.recall {
            recall.call();
        }
    }

    /// Removes the completions of a queue pair that were not polled, and the receives in `held`, which it has taken
    /// from the shared receive queues and will not complete.
    pub(crate) fn forget_completions(
        &mut self,
        qpn: u32,
        (send, recv): (CqId, CqId),
        held: impl IntoIterator<Item = SrqId>,
    ) {
        let srqs = &mut self.srqs;
        let mut free = |srq: SrqId| srqs.get_mut(srq.0).into_iter().for_each(Srq::free);
        held.into_iter().for_each(&mut free);
        for cq in [send, recv] {
            if let Some(cq) = self.cqs.get_mut(cq.0) {
                cq.purge(qpn, |frees| {
                    if let Frees::Shared(srq) = frees {
                        free(srq);
                    }
                });
            }
        }
    }
}

impl Host for Device {
    #[inline]
    fn gather_local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        self.memory.gather_local(pd, sges, offset, len, out)
    }

    fn read_local(&mut self, pd: PdId, sges: &[Sge], to: &mut [u8]) -> Result<(), MemError> {
        self.memory.read_local(pd, sges, to)
    }

    #[inline]
    fn gather_remote(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        piece: Piece,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        self.memory.gather_remote(by, rkey, va, piece, out)
    }

    #[cold]
    fn gather_again(&mut self, by: Caller, rkey: u32, va: u64, len: u32, out: &mut GatherList) -> Result<(), MemError> {
        self.memory.gather_again(by, rkey, va, len, out)
    }

    #[inline]
    fn place_local(&mut self, pd: PdId, sges: &[Sge], offset: u64, payload: &Payload<'_>) -> Result<(), MemError> {
        self.memory.place_local(pd, sges, offset, payload)
    }

    #[inline]
    fn place_remote(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        self.memory.place_remote(by, rkey, va, len, payload)
    }

    #[inline]
    fn place_late(&mut self, late: bool) {
        self.memory.place_late(late);
    }

    #[inline]
    fn check_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u64, needed: Access) -> Result<(), MemError> {
        self.memory.check_remote(by, rkey, va, len, needed)
    }

    fn atomic(&mut self, by: Caller, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        self.memory.atomic(by, rkey, va, op)
    }

    fn eight_bytes(&self, payload: &Payload<'_>) -> [u8; 8] {
        let mut bytes = [0; 8];
        if payload.len() == 8 {
            copy_payload(payload, &mut bytes);
        }
        bytes
    }

    fn check_key(&mut self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError> {
        self.memory.check_key(by, rkey, needed)
    }

    fn invalidate(&mut self, by: Caller, rkey: u32) -> Result<(), MemError> {
        self.memory.invalidate(by, rkey)
    }

    fn bind_mw(&mut self, by: Caller, bind: &MwBind) -> Result<(), MemError> {
        self.memory.bind_window(by, bind)
    }

    #[inline]
    fn srq_take(&mut self, srq: SrqId, into: &mut [Sge]) -> Option<RecvWqe> {
        let (wqe, low) = self.srqs.get_mut(srq.0)?.take(into)?;
        if low {
            self.events.push_back(NicEvent::Async(Event::SrqLimitReached(srq)));
        }
        Some(wqe)
    }

    fn xrc_srq(&self, domain: XrcdId, number: u32) -> Option<XrcSrq> {
        let id = number.wrapping_sub(self.first_srqn) & 0xff_ffff;
        let queue = self.srqs.get(id)?;
        let XrcPart { domain: own, cq, serial } = queue.xrc?;
        let takes = own == domain && self.cqs.get(cq.0).is_some_and(|cq| !cq.overflowed());
        takes.then_some(XrcSrq { number, id: SrqId(id), serial, pd: queue.pd, cq })
    }

    fn xrc_take(&mut self, srq: SrqId, keep: u32, into: &mut [Sge]) -> Option<RecvWqe> {
        if self.srqs.get(srq.0)?.len() > keep { self.srq_take(srq, into) } else { None }
    }

    #[inline]
    fn complete(&mut self, cq: CqId, wc: Wc, frees: Frees) {
        if wc.status != WcStatus::Success && matches!(frees, Frees::Sends(_)) {
            self.recall();
        }
        let Some(queue) = self.cqs.get_mut(cq.0) else { return };
        let timestamp = self.clock.ticks(self.now);
        self.completions += 1;
        match queue.push(&wc, timestamp, frees) {
            Pushed::Quiet => {}
            Pushed::Event => self.events.push_back(NicEvent::Completion(cq)),
            Pushed::Overflow => {
                self.cq_failed = true;
                self.events.push_back(NicEvent::Async(Event::CqError(cq)));
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push_back(NicEvent::Async(event));
    }

    #[inline]
    fn owes_pulls(&mut self) {
        self.pulls_owed = true;
    }

    #[inline]
    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
