//! What a queue pair needs of the device it lives in.

use super::access::Access;
use super::counters::Counters;
use super::work::{MwBind, Sge, Wc};
use crate::packet::{PacketClass, Payload, Segment};
use crate::psn::Psn;
use crate::sideband::{Colour, Sideband};
use crate::slack::Piece;
use crate::telemetry::Int;
use crate::wire::{Bth, Headers, Opcode};

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
    /// No protection domain: that of an XRC target, whose requests name one by their shared receive queue.
    pub const NONE: PdId = PdId(u32::MAX);
}

impl CqId {
    /// No completion queue: that of an XRC target.
    pub const NONE: CqId = CqId(u32::MAX);
}

/// A shared receive queue that XRC requests name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// Number that requests name it by, 24 bits.
    pub number: u32,
    /// Handle.
    pub id: SrqId,
    /// Tells the queue from others that had or will have the same handle.
    pub serial: u32,
    /// Protection domain: of its buffers, and of all memory that requests naming the queue reach.
    pub pd: PdId,
    /// Where its completions go.
    pub cq: CqId,
}

/// The queue pair on whose behalf remote keys are used: regions and type 1 windows go by its domain, type 2 windows by
/// its number as well (IBA 10.6.7.2.2: type 2B).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// Number of the queue pair.
    pub qpn: u32,
}

/// Why memory could not be touched.
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
        /// First address asked for.
        addr: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The region does not grant this.
    #[error("the memory region of key {key:#x} does not grant {needed:?}")]
    Rights {
        /// The key.
        key: u32,
        /// What was asked for.
        needed: Access,
    },
    /// A memory window cannot be bound, or its key not invalidated, as asked.
    #[error("memory window: {0}")]
    Window(&'static str),
    /// An atomic's address is not a multiple of 8.
    #[error("atomic address {0:#x} is not a multiple of 8")]
    Alignment(u64),
}

/// What there is room for again once a completion was polled. A work request keeps its slot until then, as with
/// hardware, whose drivers learn of the end of a work request there and nowhere else.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frees {
    /// Of the QP's send queue, the slots before this one: those without a completion of their own, too.
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
    /// Stores the bytes as they are: an ATOMIC WRITE, which needs the right to write.
    Store([u8; 8]),
}

/// A receive WQE without its scatter list.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RecvWqe {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Elements of its scatter list.
    pub sge_count: u32,
}

/// The gather list under construction for one packet. Lives as long as the device and is reused.
#[derive(Debug)]
pub struct GatherList {
    /// Segments; the first `count` are in use.
    pub segments: [Segment; crate::packet::Gather::MAX],
    /// Segments in use.
    pub count: usize,
    /// All of them stay as they are until the packet is acknowledged ([`Gather::is_stable`]).
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
    /// Forgets all segments.
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

    /// The segments.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    /// Bytes in all segments.
    pub fn len(&self) -> usize {
        self.segments().iter().map(|s| s.len as usize).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The packet under construction: headers, and where its payload is. Lives as long as the device and is reused, so that
/// nothing is copied on the way to the port.
#[derive(Debug)]
pub struct TxSlot {
    /// BTH and extended headers.
    pub headers: Headers,
    /// Payload.
    pub gather: GatherList,
    /// What the packet is to the network.
    pub class: PacketClass,
    /// Drop precedence, for the sideband.
    pub colour: Colour,
    /// Slack in ns, for the sideband.
    pub slack: i64,
    /// Where the packet is in its message, of queue pairs that give slack; taken as soon as the packet is made.
    pub piece: Piece,
    /// Telemetry, for the sideband.
    pub telemetry: Option<Int>,
    /// The way that the packet is to take, 0 to 255, if its queue pair chooses one for each: its UDP source port less
    /// 0xc000.
    pub path: Option<u16>,
}

impl Default for TxSlot {
    fn default() -> Self {
        let headers = Headers::new(Bth::new(Opcode::RcAcknowledge, 0, Psn::new(0)));
        TxSlot {
            headers,
            gather: GatherList::default(),
            class: PacketClass::Data,
            colour: Colour::Green,
            slack: 0,
            piece: Piece::default(),
            telemetry: None,
            path: None,
        }
    }
}

impl TxSlot {
    /// Forgets what accompanied the packet before. Headers and payload are overwritten by whoever makes the next one.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.class = PacketClass::Data;
        self.colour = Colour::Green;
        self.slack = 0;
        self.telemetry = None;
        self.path = None;
    }

    /// Whether the packet takes its class's path as it is: it has neither a way nor a colour of its own.
    #[inline]
    pub fn takes_usual_path(&self) -> bool {
        self.path.is_none() && self.colour == Colour::Green
    }

    /// Returns what goes with the packet beside its bytes. `src_qp` is the number of the queue pair that made it.
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

/// Something an application may wait for that is not a completion (IBA 11.6.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A QP went to the error state through no work request of its own: the peer's request was invalid (class C).
    QpRequestError(u32),
    /// A QP went to the error state because the peer violated its rights.
    QpAccessError(u32),
    /// A QP failed outside any work request.
    QpFatal(u32),
    /// The first packet arrived on a QP in RTR.
    CommunicationEstablished(u32),
    /// A QP in SQD has no send work request under way any more.
    SqDrained(u32),
    /// The last receive WQE of a QP on a shared receive queue is consumed and it is in the error state.
    LastWqeReached(u32),
    /// A completion queue overflowed.
    CqError(CqId),
    /// A shared receive queue fell below its limit.
    SrqLimitReached(SrqId),
}

/// What is known of the process that has the queue pair at the other end, beside its packets. On one host a port knows
/// whether it lives; to a process that lives and does not run, because it has no core or a debugger has stopped it,
/// silence means nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PeerProcess {
    /// Nothing: it is on another host, or the port does not look.
    Unknown,
    /// There is none any more.
    Gone,
    /// It lives.
    Alive {
        /// Bytes handed to it since its connection was made, on the scale of `taken`.
        handed: u64,
        /// How many of them it has taken.
        taken: u64,
    },
    /// Its host's buffers hold what it has not read, and may lose it. Whether it lives is not known.
    Buffered {
        /// Bytes handed to them, on the scale of `taken`.
        handed: u64,
        /// How many of them were read.
        taken: u64,
    },
}

/// The device as a queue pair sees it: memory, completion queues, shared receive queues, counters.
///
/// All methods that name memory check key, protection domain, bounds and rights themselves; a queue pair cannot touch
/// memory in any other way.
pub trait Host {
    /// Lists the memory under `sges` from `offset` on for `len` bytes.
    fn gather_local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError>;

    /// Copies the beginning of the memory under `sges`, as long as `to`.
    fn read_local(&mut self, pd: PdId, sges: &[Sge], to: &mut [u8]) -> Result<(), MemError>;

    /// Lists remotely readable memory.
    fn gather_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u32, out: &mut GatherList)
    -> Result<(), MemError>;

    /// Lists remotely readable memory that was sent before. A peer that has it all may have let go of it, and the
    /// application with it: fails also if the memory itself has gone.
    fn gather_again(&mut self, by: Caller, rkey: u32, va: u64, len: u32, out: &mut GatherList) -> Result<(), MemError>;

    /// Copies `payload` to the memory under `sges`, from `offset` on. All or nothing.
    fn place_local(&mut self, pd: PdId, sges: &[Sge], offset: u64, payload: &Payload<'_>) -> Result<(), MemError>;

    /// Copies `payload` to remotely writable memory, if all of the `len` bytes at `va`, no less than the payload, are.
    fn place_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u64, payload: &Payload<'_>)
    -> Result<(), MemError>;

    /// Checks a remote range without touching it.
    fn check_remote(&mut self, by: Caller, rkey: u32, va: u64, len: u64, needed: Access) -> Result<(), MemError>;

    /// Checks whether a remote key grants a right, whatever the range.
    fn check_key(&mut self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError>;

    /// Carries out an atomic; returns the value before.
    fn atomic(&mut self, by: Caller, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError>;

    /// Returns the bytes of a payload that has eight.
    fn eight_bytes(&self, payload: &Payload<'_>) -> [u8; 8];

    /// Invalidates a remote key: of a region of the caller's protection domain, or of a type 2 window that is bound to
    /// it.
    fn invalidate(&mut self, by: Caller, rkey: u32) -> Result<(), MemError>;

    /// Binds a memory window.
    fn bind_mw(&mut self, by: Caller, bind: &MwBind) -> Result<(), MemError>;

    /// Takes the next receive WQE of a shared receive queue, and its scatter list into the beginning of `into`; `None`
    /// if there is none.
    fn srq_take(&mut self, srq: SrqId, into: &mut [Sge]) -> Option<RecvWqe>;

    /// Looks up a shared receive queue of an XRC domain by its number, 24 bits. `None` if there is none that takes
    /// messages.
    fn xrc_srq(&self, domain: XrcdId, number: u32) -> Option<XrcSrq>;

    /// Does the same with an XRC domain's shared receive queue, if more than `keep` are there.
    fn xrc_take(&mut self, srq: SrqId, keep: u32, into: &mut [Sge]) -> Option<RecvWqe>;

    /// Delivers a completion, and what it makes room for when it is polled.
    fn complete(&mut self, cq: CqId, wc: Wc, frees: Frees);

    /// Delivers an event.
    fn event(&mut self, event: Event);

    /// The queue pair that is being served owes its peer pulls (NDP): one device paces those of all of its queue pairs.
    fn owes_pulls(&mut self);

    /// The device's counters.
    fn counters(&mut self) -> &mut Counters;
}
