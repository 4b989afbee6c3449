//! The errors of calls on the NIC.

use std::fmt;
use std::net::IpAddr;

use irnic_transports::qp::{MemError, ModifyError, PdId, Service};
use irnic_transports::room::OutOfMemory;

/// Error of a call that creates, changes or destroys an object. Nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// No object has this handle.
    #[error("no {0} with this handle")]
    NotFound(Object),
    /// The NIC has no room for another object of this kind.
    #[error("the device holds no more {0}s")]
    Full(Object),
    /// Other objects still depend on it.
    #[error("the {0} is in use")]
    InUse(Object),
    /// A number exceeds its limit.
    #[error("{what} = {value}: the limit is {limit}")]
    #[allow(missing_docs)]
    Limit { what: Quantity, value: u32, limit: u32 },
    /// The completion queue overflowed, so completions were lost (IBA 10.2.6.4).
    #[error("the completion queue overflowed")]
    CqOverflow,
    /// The queue pair and its shared receive queue belong to different protection domains.
    #[error("the shared receive queue belongs to another protection domain")]
    Domain,
    /// The address is not a multicast address.
    #[error("{0} is not a multicast address")]
    NotMulticast(IpAddr),
    /// A queue pair has a queue or domain that its service does not use, or lacks one that it needs: an XRC domain
    /// belongs only to a target, a shared receive queue to any service but XRC.
    #[error("a {0:?} queue pair has no use for the queues or the XRC domain given, or needs one")]
    Queues(Service),
    /// The shared receive queue is not in an XRC domain.
    #[error("the shared receive queue is in no XRC domain, and has no number")]
    NotXrc,
    /// Only datagram queue pairs (UD) support this.
    #[error("a {0:?} queue pair receives no multicast")]
    Service(Service),
    /// The process is out of memory.
    #[error(transparent)]
    NoMemory(#[from] OutOfMemory),
    /// The queue pair rejects the attributes.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The memory window rejects the request.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// Error of registering a memory region.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The process is out of memory.
    #[error(transparent)]
    NoMemory(#[from] OutOfMemory),
    /// The device has as many regions as it can hold.
    #[error("the device holds at most {0} memory regions")]
    Full(usize),
    /// The range wraps around the end of the address space.
    #[error("{len} bytes at {addr:#x} do not fit into the address space")]
    #[allow(missing_docs)]
    Range { addr: u64, len: u64 },
    /// Remote write or atomic access was requested without local write (IBA 10.6.3.1).
    #[error("remote write and atomic access need local write access")]
    Access,
    /// The protection domain does not exist.
    #[error("no protection domain {0:?}")]
    Pd(PdId),
    /// A region keeps its kind of memory, the host's or an accelerator's, and the latter its range.
    #[error("a region of an accelerator's memory cannot get another range")]
    Kind,
}

/// A kind of object of the NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Object {
    /// Queue pair.
    QueuePair,
    /// Completion queue.
    CompletionQueue,
    /// Shared receive queue.
    SharedReceiveQueue,
    /// Protection domain.
    ProtectionDomain,
    /// Extended reliable connection domain.
    XrcDomain,
    /// Memory region.
    MemoryRegion,
    /// Memory window.
    MemoryWindow,
    /// Multicast group.
    MulticastGroup,
    /// A queue pair's membership in a multicast group.
    MulticastMembership,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::QueuePair => "queue pair",
            Object::CompletionQueue => "completion queue",
            Object::SharedReceiveQueue => "shared receive queue",
            Object::ProtectionDomain => "protection domain",
            Object::XrcDomain => "XRC domain",
            Object::MemoryRegion => "memory region",
            Object::MemoryWindow => "memory window",
            Object::MulticastGroup => "multicast group",
            Object::MulticastMembership => "multicast membership",
        })
    }
}

/// A number that has a limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    /// Work requests of a send queue.
    SendWorkRequests,
    /// Work requests of a receive queue.
    ReceiveWorkRequests,
    /// Scatter/gather elements of a work request.
    ScatterGatherElements,
    /// Bytes of inline data.
    InlineBytes,
    /// Entries of a completion queue.
    CompletionQueueEntries,
    /// Completions waiting in a queue that is to become smaller.
    CompletionsWaiting,
    /// Work requests of a shared receive queue.
    WorkRequests,
    /// Work requests waiting in a shared receive queue that is to become smaller.
    WorkRequestsWaiting,
    /// Limit of a shared receive queue: an event is raised when fewer work requests are left.
    SrqLimit,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::SendWorkRequests => "send work requests",
            Quantity::ReceiveWorkRequests => "receive work requests",
            Quantity::ScatterGatherElements => "scatter/gather elements",
            Quantity::InlineBytes => "inline bytes",
            Quantity::CompletionQueueEntries => "completion queue entries",
            Quantity::CompletionsWaiting => "completions waiting",
            Quantity::WorkRequests => "work requests",
            Quantity::WorkRequestsWaiting => "work requests waiting",
            Quantity::SrqLimit => "shared receive queue limit",
        })
    }
}

pub(crate) fn limit(what: Quantity, value: u32, limit: u32) -> Result<(), NicError> {
    if value > limit { Err(NicError::Limit { what, value, limit }) } else { Ok(()) }
}
