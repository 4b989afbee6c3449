//! The device interface that a queue pair requires.

use super::access::Access;
use super::counters::Counters;
use super::work::{MwBind, Sge, Wc};
use crate::packet::{PacketClass, Payload, Segment};
use crate::psn::Psn;
use crate::sideband::{Colour, Sideband};
use crate::slack::Piece;
use crate::telemetry::Int;
use crate::wire::{Bth, FastHead, Headers, Opcode};

/// Handle of a protection domain.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);
/// Handle of a completion queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);
/// Handle of a shared receive queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// Handle of an extended reliable connection domain.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct XrcdId(pub u32);

impl PdId {
    /// No protection domain: that of an XRC target, whose requests select one through their shared receive queue.
    pub const NONE: PdId = PdId(u32::MAX);
}

impl CqId {
    /// No completion queue: that of an XRC target.
    pub const NONE: CqId = CqId(u32::MAX);
}

/// A shared receive queue named by XRC requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// Number in requests, 24 bits.
    pub number: u32,
    /// Handle.
    pub id: SrqId,
    /// Distinguishes the queue from earlier and later users of its handle.
    pub serial: u32,
    /// Protection domain of its buffers, and of all memory accessed by requests that name the queue.
    pub pd: PdId,
    /// Completion queue.
    pub cq: CqId,
}

/// The queue pair on whose behalf remote keys are used: regions and type 1 windows are checked by its domain, type 2
/// windows by its number as well (IBA 10.6.7.2.2: type 2B).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// Number of the queue pair.
    pub qpn: u32,
}

/// Error of a memory access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemError {
    /// No region has this key, or it was invalidated.
    #[error("no memory region has the key {0:#x}")]
    Key(u32),
    /// The region belongs to another protection domain.
    #[error("the memory region of key {0:#x} belongs to another protection domain")]
    Domain(u32),
    /// Part of the range lies outside the region.
    #[error("{len} bytes at {addr:#x} are not all inside the memory region of key {key:#x}")]
    Bounds {
        /// The key.
        key: u32,
        /// First address requested.
        addr: u64,
        /// Bytes requested.
        len: u64,
    },
    /// The region does not grant this access.
    #[error("the memory region of key {key:#x} does not grant {needed:?}")]
    Rights {
        /// The key.
        key: u32,
        /// Access requested.
        needed: Access,
    },
    /// A memory window cannot be bound, or its key not invalidated, as requested.
    #[error("memory window: {0}")]
    Window(&'static str),
    /// An atomic's address is not a multiple of 8.
    #[error("atomic address {0:#x} is not a multiple of 8")]
    Alignment(u64),
    /// The driver of an accelerator could not copy from or to its memory.
    #[error("the driver cannot copy memory of the region of key {0:#x}")]
    Copy(u32),
}

/// Slots freed when a completion is polled. A work request keeps its slot until then, as with hardware, whose drivers
/// learn of its completion only there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frees {
    /// The slots of the QP's send queue before this one, including those without a completion of their own.
    Sends(u32),
    /// A slot of the QP's receive queue.
    Receive,
    /// A slot of a shared receive queue.
    Shared(SrqId),
}

/// An atomic operation on 8 bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AtomicOp {
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        add: u64,
    },
    /// Stores the bytes unchanged: an ATOMIC WRITE, which needs write access.
    Store([u8; 8]),
}

/// A receive WQE without its scatter list.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Elements of its scatter list.
    pub sge_count: u32,
}

/// The gather list being built for a packet. Lives as long as the device and is reused.
#[derive(Debug)]
pub struct GatherList {
    /// Segments; the first `count` are in use.
    pub segments: [Segment; crate::packet::Gather::MAX],
    /// Segments in use.
    pub count: usize,
    /// Whether all of them stay unchanged until the packet is acknowledged ([`Gather::is_stable`]).
    ///
    /// [`Gather::is_stable`]: crate::packet::Gather::is_stable
    pub stable: bool,
}

impl Default for GatherList {
    fn default() -> Self {
        GatherList { segments: [Segment { addr: 0, len: 0 }; crate::packet::Gather::MAX], count: 0, stable: false }
    }
}

impl GatherList {
    /// Removes all segments.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
        self.stable = false;
    }

    /// Adds a segment. A queue pair's limit on scatter/gather elements keeps this within bounds.
    #[inline]
    pub fn push(&mut self, addr: u64, len: u32) {
        self.segments[self.count] = Segment { addr, len };
        self.count += 1;
    }

    /// Returns the segments.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    /// Returns the bytes in all segments.
    pub fn len(&self) -> usize {
        self.segments().iter().map(|s| s.len as usize).sum()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The packet being built: headers, and the location of its payload. Lives as long as the device and is reused, so that
/// nothing is copied on the way to the port.
#[derive(Debug)]
pub struct TxSlot {
    /// BTH and extended headers.
    pub headers: Headers,
    /// Headers of a packet of the fast path, instead of `headers`.
    pub fast: FastHead,
    /// Payload.
    pub gather: GatherList,
    /// Class of the packet.
    pub class: PacketClass,
    /// Drop precedence, for the sideband.
    pub colour: Colour,
    /// Slack in ns, for the sideband.
    pub slack: i64,
    /// Position of the packet in its message, for queue pairs that set slack; consumed as soon as the packet is built.
    pub piece: Piece,
    /// Telemetry, for the sideband.
    pub telemetry: Option<Int>,
    /// Whether the queue pair is known to have nothing more to send now.
    pub is_last: bool,
    /// Whether the queue pair's next packets are the rest of a message, and nothing else goes before them
    /// ([`Qp::poll_fast_rest`](super::Qp::poll_fast_rest)).
    pub rest: bool,
    /// Path of the packet, 0 to 255, if its queue pair chooses one for each: its UDP source port minus 0xc000.
    pub path: Option<u16>,
}

impl Default for TxSlot {
    fn default() -> Self {
        let headers = Headers::new(Bth::new(Opcode::RcAcknowledge, 0, Psn::new(0)));
        TxSlot {
            headers,
            fast: FastHead::EMPTY,
            gather: GatherList::default(),
            class: PacketClass::Data,
            colour: Colour::Green,
            slack: 0,
            piece: Piece::default(),
            telemetry: None,
            is_last: false,
            rest: false,
            path: None,
        }
    }
}

impl TxSlot {
    /// Clears what accompanied the previous packet. Headers and payload are overwritten by the next one.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.class = PacketClass::Data;
        self.colour = Colour::Green;
        self.slack = 0;
        self.telemetry = None;
        self.is_last = false;
        self.rest = false;
        self.path = None;
    }

    /// Returns whether the packet takes its class's path unchanged, without a path or a colour of its own.
    #[inline]
    pub fn takes_usual_path(&self) -> bool {
        self.path.is_none() && self.colour == Colour::Green
    }

    /// Returns the packet's out-of-band data. `src_qp` is the number of the queue pair that built it.
    #[inline]
    pub fn sideband(&self, src_qp: u32) -> Sideband<'_> {
        let TxSlot { telemetry, slack, colour, .. } = self;
        Sideband {
            telemetry: telemetry.as_ref(),
            slack: *slack,
            waited: 0,
            src_qp,
            colour: *colour,
            trimmed: false,
            returned: false,
        }
    }
}

/// Result of [`Qp::poll_fast`](super::Qp::poll_fast).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fast {
    /// A packet was built, with this many bytes of payload.
    Built(u32),
    /// There is nothing to send.
    Nothing,
    /// [`Qp::poll_transmit`](super::Qp::poll_transmit) has to find out what to send. Nothing has changed.
    FullPath,
}

/// What [`Qp::receive_fast`](super::Qp::receive_fast) has done with a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has received the frame.
    All,
    /// It has received the first of the two packets that the frame stands for.
    First,
    /// Nothing has changed.
    Nothing,
}

/// An event, other than a completion, that an application may wait for (IBA 11.6.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A QP went to the error state without an error of its own work requests: the peer's request was invalid (class
    /// C).
    QpRequestError(u32),
    /// A QP went to the error state because the peer violated its rights.
    QpAccessError(u32),
    /// A QP failed outside any work request.
    QpFatal(u32),
    /// The first packet arrived on a QP in RTR.
    CommunicationEstablished(u32),
    /// A QP in SQD has no send work request in progress any more.
    SqDrained(u32),
    /// The last receive WQE of a QP on a shared receive queue is consumed and it is in the error state.
    LastWqeReached(u32),
    /// A completion queue overflowed.
    CqError(CqId),
    /// A shared receive queue fell below its limit.
    SrqLimitReached(SrqId),
}

/// A pull that was granted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PullTurn {
    /// Whether the queue pair has more.
    pub more: bool,
    /// Time until the next one of any queue pair, ps: that of a full packet on the receiver's link.
    pub interval: u64,
}

/// Information about the process that owns the peer queue pair, in addition to its packets. On one host a port knows
/// whether it is alive; a process that is alive but does not run, because it is not scheduled or stopped by a debugger,
/// may be silent for any time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PeerProcess {
    /// None: the process is on another host, or the port does not provide any.
    Unknown,
    /// The process is dead.
    Dead,
    /// The process is alive.
    Alive {
        /// Bytes passed to it since its connection was established, on the scale of `answered`.
        handed: u64,
        /// Bytes that it has read, and whose answers have left it.
        answered: u64,
    },
    /// The progress of a process that reads from its host's buffers, which may lose data. Whether it is alive is
    /// unknown.
    Buffered {
        /// Bytes passed to them, on the scale of `answered`.
        handed: u64,
        /// Bytes that were read, and whose answers have left.
        answered: u64,
        /// Which process reads them.
        reader: Reader,
    },
}

/// Who reads what was passed to the buffers of a peer's host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The peer's process.
    Peer,
    /// Another process, which forwards to the peer's. How far that has read is unknown.
    Forwarder,
    /// First another process, then the peer's: bytes count once more when they are forwarded.
    ForwarderThenPeer,
}

/// The device as seen by a queue pair: memory, completion queues, shared receive queues, counters.
///
/// All methods that name memory check key, protection domain, bounds and rights themselves; a queue pair has no other
/// access to memory.
pub trait Host {
    /// Lists the memory under `sges`, a message, from `offset` on for `len` bytes. Clears [`GatherList::stable`] if it
    /// lists a copy, which is unchanged until the next call.
    fn gather_local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError>;

    /// Copies the beginning of the memory under `sges`, for the length of `to`.
    fn read_local(&mut self, pd: PdId, sges: &[Sge], to: &mut [u8]) -> Result<(), MemError>;

    /// Lists remotely readable memory: a piece of a response, which begins at `va`.
    fn gather_remote(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        piece: Piece,
        out: &mut GatherList,
    ) -> Result<(), MemError>;

    /// Lists remotely readable memory for a retransmission. A peer that has all of it, and the application with it, may
    /// have released the memory: this also fails if it is unmapped.
    fn gather_again(&mut self, by: Caller, rkey: u32, va: u64, len: u32, out: &mut GatherList) -> Result<(), MemError>;

    /// Copies `payload` to the memory under `sges`, from `offset` on. All or nothing.
    fn place_local(&mut self, pd: PdId, sges: &[Sge], offset: u64, payload: &Payload<'_>) -> Result<(), MemError>;

    /// Copies `payload` to remotely writable memory, if all of the `len` bytes at `va`, at least the payload, are.
    fn place_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u64, payload: &Payload<'_>)
    -> Result<(), MemError>;

    /// Begins or ends a time in which payloads may be placed late: nothing depends on them before the last of their
    /// message is placed, which still comes and reports errors of all.
    fn place_late(&mut self, late: bool);

    /// Calls `place`, in such a time if `late`.
    #[inline]
    fn placing<R>(&mut self, late: bool, place: impl FnOnce(&mut Self) -> R) -> R
    where
        Self: Sized,
    {
        if late {
            self.place_late(true);
        }
        let placed = place(self);
        if late {
            self.place_late(false);
        }
        placed
    }

    /// Checks a remote range without accessing it.
    fn check_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u64, needed: Access) -> Result<(), MemError>;

    /// Checks whether a remote key grants a right, whatever the range.
    fn check_key(&mut self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError>;

    /// Executes an atomic; returns the previous value.
    fn atomic(&mut self, by: Caller, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError>;

    /// Returns the bytes of an eight-byte payload.
    fn eight_bytes(&self, payload: &Payload<'_>) -> [u8; 8];

    /// Invalidates a remote key: of a region of the caller's protection domain, or of a type 2 window that is bound to
    /// it.
    fn invalidate(&mut self, by: Caller, rkey: u32) -> Result<(), MemError>;

    /// Binds a memory window.
    fn bind_mw(&mut self, by: Caller, bind: &MwBind) -> Result<(), MemError>;

    /// Takes the next receive WQE of a shared receive queue, copying its scatter list to the beginning of `into`;
    /// `None` if there is none.
    fn srq_take(&mut self, srq: SrqId, into: &mut [Sge]) -> Option<RecvWqe>;

    /// Looks up a shared receive queue of an XRC domain by its number, 24 bits. `None` if none with this number accepts
    /// messages.
    fn xrc_srq(&self, domain: XrcdId, number: u32) -> Option<XrcSrq>;

    /// Does the same with an XRC domain's shared receive queue if it has more than `keep` WQEs.
    fn xrc_take(&mut self, srq: SrqId, keep: u32, into: &mut [Sge]) -> Option<RecvWqe>;

    /// Delivers a completion, and the slots to free when it is polled.
    fn complete(&mut self, cq: CqId, wc: Wc, frees: Frees);

    /// Delivers an event.
    fn event(&mut self, event: Event);

    /// Notifies the device that the queue pair being served owes its peer pulls (NDP): it paces those of all its queue
    /// pairs.
    fn owes_pulls(&mut self);

    /// Returns the device's counters.
    fn counters(&mut self) -> &mut Counters;
}
