//! The send queue: a ring of request WQEs from posting to completion.

use super::Service;
use super::context::QpContext;
use super::host::{Frees, Host};
use super::work::{Address, MwBind, SendData, SendOp, SendWr, Sge, Wc, WcStatus};
use crate::footprint::{Item, Per, bits, each, flag, footprint, left, sequence, why, width};
use crate::psn::Psn;
use crate::room::{OutOfMemory, boxed};

/// Maximum message length, bytes.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// Error of posting a work request, which was not queued.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The device has no queue pair of this number, or no shared receive queue with this handle.
    #[error("no queue with this handle")]
    NoQueue,
    /// The QP's state does not allow it.
    #[error("work requests cannot be posted in state {0:?}")]
    State(super::attr::QpState),
    /// No room until completions are polled.
    #[error("the queue is full ({0} work requests)")]
    Full(u32),
    /// Too many scatter/gather elements.
    #[error("{given} scatter/gather elements, the queue takes {max}")]
    #[allow(missing_docs)]
    TooManySges { given: usize, max: usize },
    /// Too many inline bytes.
    #[error("{given} bytes inline, the queue takes {max}")]
    #[allow(missing_docs)]
    InlineTooLong { given: usize, max: usize },
    /// READ and atomics cannot be inline.
    #[error("only SEND and WRITE can be inline")]
    InlineOp,
    /// Longer than 1 GiB.
    #[error("a message of {0} bytes, the limit is 1 GiB")]
    MessageTooLong(u64),
    /// An atomic's local side is shorter than 8 bytes.
    #[error("an atomic returns 8 bytes, the scatter list has {0}")]
    AtomicLength(u64),
    /// ATOMIC WRITE and FLUSH have no data beyond the operation's own.
    #[error("ATOMIC WRITE and FLUSH take no data, the work request has {0} bytes")]
    NoData(u32),
    /// An atomic's remote address is not aligned.
    #[error("atomic address {0:#x} is not a multiple of 8")]
    AtomicAlignment(u64),
    /// The service does not support this operation.
    #[error("a {0:?} queue pair does not take this operation")]
    Service(Service),
    /// A datagram without destination.
    #[error("a datagram needs a destination")]
    NoAddress,
    /// A datagram that does not fit into one packet.
    #[error("a datagram of {len} bytes, the MTU is {mtu}")]
    #[allow(missing_docs)]
    DatagramTooLong { len: u64, mtu: u32 },
    /// The QP takes its receive WQEs from a shared receive queue.
    #[error("the QP has a shared receive queue: post there")]
    HasSrq,
}

/// A request WQE. The fields in the second half are valid once it has started.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    pub op: SendOp,
    pub len: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    /// Elements of its gather list, or [`INLINE`] or [`COPIED`].
    pub sge_count: u8,
    pub signaled: bool,
    pub solicited: bool,
    pub fence: Fence,

    /// First sequence number of its request packets.
    pub first: Psn,
    /// Number of sequence numbers it covers: its request packets; for a plain RoCE READ the response's (IBA 9.7.3.1).
    pub packets: u32,
    /// First sequence number of its response packets (rPSN with IRN).
    pub resp_first: Psn,
    /// Packets of its response from `resp_first` on.
    pub resp_packets: u32,
    /// Response packets that have arrived: all in plain RoCE; with IRN those before `resp_first`, of a READ begun in
    /// plain RoCE.
    pub resp_arrived: u32,
    /// Message number (IBA 9.7.7.2: SSN).
    pub ssn: Psn,
    /// recv_WQE_SN or read_WQE_SN.
    pub sn: Psn,
}

/// Conditions, besides its turn, that a WQE waits for before it starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence(u8);

impl Fence {
    pub(crate) const NONE: Fence = Fence(0);
    /// READs and atomics before it, as requested by the application (IBA 10.8.3.3).
    pub(crate) const READS: Fence = Fence(1);
    /// A request before it that it could overwrite: [`SendQueue::is_behind_overlap`].
    pub(crate) const OVERLAP: Fence = Fence(2);

    /// Returns whether it is, or includes, this one.
    #[inline]
    pub(crate) fn has(self, other: Fence) -> bool {
        self.0 & other.0 != 0
    }
}

// There is one for each send work request of each queue pair.
const _: () = assert!(size_of::<SendWqe>() == 80);

/// Maximum number of outstanding requests that a new one is compared with.
const MAX_COMPARED: u32 = 64;

/// Replaces the length of a gather list: the data is inline.
const INLINE: u8 = u8::MAX;
/// Replaces the length of a gather list: the service has copied the data.
const COPIED: u8 = u8::MAX - 1;

impl SendWqe {
    /// Returns whether its data was copied when it was posted.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.sge_count == INLINE
    }

    /// Returns whether its service has copied its data since.
    #[inline]
    pub(crate) fn is_copied(&self) -> bool {
        self.sge_count == COPIED
    }

    /// Marks its data as copied by the service: the gather list is not read any more.
    pub(crate) fn set_copied(&mut self) {
        self.sge_count = COPIED;
    }

    /// Returns the completion of a WQE that succeeded.
    #[inline]
    pub(crate) fn success(&self, c: &QpContext) -> Wc {
        let byte_len = match self.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_) => 8,
            _ => self.len,
        };
        Wc { wr_id: self.wr_id, opcode: self.op.wc_opcode(), byte_len, qp_num: c.qpn, ..Wc::EMPTY }
    }

    /// Executes a work request that takes no packet, in its turn.
    pub(crate) fn run_local(&self, c: &QpContext, host: &mut impl Host) -> Result<(), WcStatus> {
        match &self.op {
            SendOp::LocalInvalidate(rkey) => host.invalidate(c.caller(), *rkey).map_err(|_| WcStatus::LocQpOpErr),
            &SendOp::BindMw { mw, lkey, len, access } => {
                let bind = MwBind { mw, rkey: self.rkey, lkey, addr: self.remote_addr, len, access };
                host.bind_mw(c.caller(), &bind).map_err(|_| WcStatus::MwBindErr)
            }
            _ => Ok(()),
        }
    }
}

const EMPTY: SendWqe = SendWqe {
    wr_id: 0,
    op: SendOp::Send,
    len: 0,
    remote_addr: 0,
    rkey: 0,
    sge_count: 0,
    signaled: false,
    solicited: false,
    fence: Fence::NONE,
    first: Psn::new(0),
    packets: 0,
    resp_first: Psn::new(0),
    resp_packets: 0,
    resp_arrived: 0,
    ssn: Psn::new(0),
    sn: Psn::new(0),
};

/// Per-slot destinations of messages.
#[derive(Clone, Debug)]
enum Destinations {
    /// None: all go to the peer.
    Peer,
    /// Addresses, for datagrams.
    Datagrams(Box<[Option<Address>]>),
    /// Numbers of the peer's shared receive queues, for XRC.
    Srqs(Box<[u32]>),
}

/// Ring of WQEs: `head` is the oldest incomplete one, `started` the oldest without a packet sent, `tail` the next free
/// one. All three are free-running and wrap at 2³².
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    wqes: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    destinations: Destinations,
    /// The request that each slot's waits for, if it has [`Fence::OVERLAP`]. Empty if overlaps are not checked.
    overlaps: Box<[u32]>,
    limit: u32,
    max_sge: usize,
    max_inline: usize,
    pub head: u32,
    pub started: u32,
    pub tail: u32,
    /// The slots before this one are free: a completion at or after them was polled.
    freed: u32,
}

impl SendQueue {
    pub(crate) fn new(
        limit: u32,
        max_sge: usize,
        max_inline: usize,
        service: Service,
    ) -> Result<SendQueue, OutOfMemory> {
        let slots = limit.max(1).next_power_of_two() as usize;
        Ok(SendQueue {
            wqes: boxed(EMPTY, slots)?,
            sges: boxed(Sge::default(), slots * max_sge)?,
            inline: boxed(0, slots * max_inline)?,
            destinations: match service {
                Service::Ud => Destinations::Datagrams(boxed(None, slots)?),
                Service::XrcInitiator => Destinations::Srqs(boxed(0, slots)?),
                _ => Destinations::Peer,
            },
            overlaps: Box::default(),
            limit,
            max_sge,
            max_inline,
            head: 0,
            started: 0,
            tail: 0,
            freed: 0,
        })
    }

    /// Makes requests wait for earlier ones that they could overwrite (IRN §4.4.3).
    pub(crate) fn with_overlap_fences(mut self) -> Result<SendQueue, OutOfMemory> {
        self.overlaps = boxed(0, self.wqes.len())?;
        Ok(self)
    }

    #[inline]
    fn slot(&self, index: u32) -> usize {
        index as usize & (self.wqes.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &SendWqe {
        &self.wqes[self.slot(index)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut SendWqe {
        let slot = self.slot(index);
        &mut self.wqes[slot]
    }

    #[inline]
    pub(crate) fn sges(&self, index: u32) -> &[Sge] {
        let slot = self.slot(index);
        &self.sges[slot * self.max_sge..][..usize::from(self.wqes[slot].sge_count)]
    }

    #[inline]
    pub(crate) fn inline_data(&self, index: u32) -> &[u8] {
        let slot = self.slot(index);
        &self.inline[slot * self.max_inline..][..self.wqes[slot].len as usize]
    }

    /// Returns the destination of datagram `index`.
    #[inline]
    pub(crate) fn to(&self, index: u32) -> Option<&Address> {
        let Destinations::Datagrams(to) = &self.destinations else { return None };
        to.get(self.slot(index))?.as_ref()
    }

    /// Returns the shared receive queue that request `index` names (XRC).
    #[cold]
    pub(crate) fn remote_srqn(&self, index: u32) -> Option<u32> {
        let Destinations::Srqs(numbers) = &self.destinations else { return None };
        numbers.get(self.slot(index)).copied()
    }

    #[inline(never)]
    fn set_destination(&mut self, slot: usize, wr: &SendWr<'_>) {
        match &mut self.destinations {
            Destinations::Peer => {}
            Destinations::Datagrams(to) => to[slot] = wr.to,
            Destinations::Srqs(numbers) => numbers[slot] = wr.remote_srqn & 0xff_ffff,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns the number of work requests that can be posted.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.limit.saturating_sub(self.tail.wrapping_sub(self.freed))
    }

    /// Removes the last `n` WQEs posted that have not started.
    pub(crate) fn retract(&mut self, n: u32) {
        self.tail = self.tail.wrapping_sub(n.min(self.tail.wrapping_sub(self.started)));
    }

    pub(crate) fn clear(&mut self) {
        (self.head, self.started) = (self.tail, self.tail);
    }

    /// Removes every WQE, including those whose completions were not polled.
    pub(crate) fn reset(&mut self) {
        self.clear();
        self.freed = self.tail;
    }

    /// Handles a polled completion: the slots before `next` are free.
    #[inline]
    pub(crate) fn free(&mut self, next: u32) {
        if next.wrapping_sub(self.freed) <= self.tail.wrapping_sub(self.freed) {
            self.freed = next;
        }
    }

    /// Returns the latest incomplete request that a new one could overwrite. If there are more than [`MAX_COMPARED`],
    /// one of the others is assumed to be overlapped.
    #[cold]
    fn overlapped(&self, wr: &SendWr<'_>, len: u32) -> Option<u32> {
        let (own, kind) = (wr.op.remote_len(len), wr.op);
        let outstanding = self.len();
        if own == 0 || !kind.changes_remote() {
            return None;
        }
        let before = |back: u32| self.tail.wrapping_sub(back);
        let meets = |index: &u32| {
            let earlier = self.get(*index);
            let apart = wr.remote_addr.wrapping_sub(earlier.remote_addr);
            let theirs = earlier.op.remote_len(earlier.len);
            let overlap = apart < u64::from(theirs) || (apart.wrapping_neg() < u64::from(own) && theirs > 0);
            overlap && kind.must_follow(&earlier.op)
        };
        let latest = (1..=outstanding.min(MAX_COMPARED)).map(before).find(meets);
        latest.or_else(|| (outstanding > MAX_COMPARED).then(|| before(MAX_COMPARED + 1)))
    }

    /// Returns whether a WQE with [`Fence::OVERLAP`] still waits.
    #[cold]
    pub(crate) fn is_behind_overlap(&self, index: u32) -> bool {
        let awaited = self.overlaps.get(self.slot(index)).map(|awaited| awaited.wrapping_sub(self.head));
        awaited.is_some_and(|awaited| awaited < index.wrapping_sub(self.head))
    }

    /// Appends a work request. Returns whether it has to wait for an earlier one that it could overwrite.
    #[inline]
    pub(crate) fn post(&mut self, wr: &SendWr<'_>) -> Result<bool, PostError> {
        if self.room() == 0 {
            return Err(PostError::Full(self.limit));
        }
        let slot = self.slot(self.tail);
        let (mut len, sge_count) = match wr.data {
            SendData::Sges(sges) => {
                if sges.len() > self.max_sge {
                    return Err(PostError::TooManySges { given: sges.len(), max: self.max_sge });
                }
                let len = sges.iter().map(|s| u64::from(s.len)).sum();
                if len > u64::from(MAX_MESSAGE) {
                    return Err(PostError::MessageTooLong(len));
                }
                self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges);
                (len as u32, sges.len() as u8)
            }
            SendData::Inline(data) => {
                if data.len() > self.max_inline {
                    return Err(PostError::InlineTooLong { given: data.len(), max: self.max_inline });
                }
                if wr.op.is_read_or_atomic() {
                    return Err(PostError::InlineOp);
                }
                self.inline[slot * self.max_inline..][..data.len()].copy_from_slice(data);
                (data.len() as u32, INLINE)
            }
        };
        if wr.op.is_newer() && len != 0 {
            return Err(PostError::NoData(len));
        }
        if let SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_) = wr.op {
            // Bytes beyond the result are not accessed, as with rxe and mlx5.
            if !wr.op.is_newer() {
                if len < 8 {
                    return Err(PostError::AtomicLength(u64::from(len)));
                }
                len = 8;
            }
            if !wr.remote_addr.is_multiple_of(8) {
                return Err(PostError::AtomicAlignment(wr.remote_addr));
            }
        }
        if !matches!(self.destinations, Destinations::Peer) {
            self.set_destination(slot, wr);
        }
        let mut fence = if wr.fence { Fence::READS } else { Fence::NONE };
        if !self.overlaps.is_empty()
            && let Some(awaited) = self.overlapped(wr, len)
        {
            self.overlaps[slot] = awaited;
            fence = Fence(fence.0 | Fence::OVERLAP.0);
        }
        self.wqes[slot] = SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            len,
            remote_addr: wr.remote_addr,
            rkey: wr.rkey,
            sge_count,
            signaled: wr.signaled,
            solicited: wr.solicited,
            fence,
            ..EMPTY
        };
        self.tail = self.tail.wrapping_add(1);
        Ok(fence.has(Fence::OVERLAP))
    }

    /// Ends every WQE: the oldest with `status`, the others flushed (IBA 10.10.2.2).
    pub(crate) fn flush(&mut self, c: &QpContext, mut status: WcStatus, host: &mut impl Host) {
        while self.head != self.tail {
            let w = self.get(self.head);
            let opcode = w.op.wc_opcode();
            let wc = Wc { wr_id: w.wr_id, status, opcode, qp_num: c.qpn, ..Wc::EMPTY };
            self.head = self.head.wrapping_add(1);
            host.complete(c.send_cq, wc, Frees::Sends(self.head));
            status = WcStatus::WrFlushErr;
        }
        self.clear();
    }

    /// Returns the started WQE that covers request sequence number `psn`. `hint` is where the search starts, and is
    /// updated.
    #[inline]
    pub(crate) fn find(&self, psn: Psn, hint: &mut u32) -> Option<u32> {
        let started = self.started.wrapping_sub(self.head);
        let covers = |index: u32| {
            let w = self.get(index);
            let k = psn.distance(w.first);
            k >= 0 && (k as u32) < w.packets
        };
        for step in 0..2 {
            let index = hint.wrapping_add(step);
            if index.wrapping_sub(self.head) < started && covers(index) {
                *hint = index;
                return Some(index);
            }
        }
        // The last WQE that starts at or before `psn`; a WQE without packets (local operations) is never the last.
        let (mut low, mut high) = (0, started);
        while low < high {
            let middle = (low + high) / 2;
            if psn.before(self.get(self.head.wrapping_add(middle)).first) { high = middle } else { low = middle + 1 }
        }
        let index = self.head.wrapping_add(low.checked_sub(1)?);
        *hint = index;
        covers(index).then_some(index)
    }
}

footprint!(SendQueue, |at| {
    wqes => each(Per::SendWqe, EMPTY, size_of::<SendWqe>() + max_sge * size_of::<Sge>() + max_inline),
    sges => left("in the work requests"),
    inline => left("in the work requests"),
    destinations => left("of datagrams and XRC"),
    overlaps => left("in host memory: the driver finds overlaps (IRN §4.4.3)"),
    limit => bits(width::INDEX),
    max_sge => bits(8),
    max_inline => left(why::HOST),
    head => bits(width::INDEX),
    started => bits(width::INDEX),
    tail => bits(width::INDEX),
    freed => left("in host memory: the driver counts what was polled"),
});

footprint!(SendWqe, |at| {
    wr_id => bits(64),
    // The operation and its operands, two for an atomic. Other operations have a gather list element in their place.
    op => bits(4 + 128),
    len => bits(width::LENGTH),
    remote_addr => bits(width::ADDRESS),
    rkey => bits(width::KEY),
    sge_count => bits(8),
    signaled => flag(),
    solicited => flag(),
    fence => bits(if at.fences { 2 } else { 1 }),
    first => sequence(),
    packets => left("follows from length and MTU"),
    resp_first => sequence().when(at.irn, "of plain RoCE it is `first`"),
    resp_packets => left("follows from length and MTU"),
    resp_arrived => sequence().when(at.plain, "with IRN, in the bitmap of responses"),
    ssn => sequence(),
    sn => sequence().is(Item::WqeNumber).when(at.irn, why::IRN),
});
