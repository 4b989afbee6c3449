//! Why the NIC refuses a call.

use std::fmt;
use std::net::IpAddr;

use irnic_transports::qp::{MemError, ModifyError, PdId, Service};
use irnic_transports::room::OutOfMemory;

/// Why an object cannot be created, changed or destroyed. Nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// No object has this handle.
    #[error("no {0} with this handle")]
    NotFound(Object),
    /// Too many of them.
    #[error("the device holds no more {0}s")]
    Full(Object),
    /// Others still depend on it.
    #[error("the {0} is in use")]
    InUse(Object),
    /// A number is above its limit.
    #[error("{what} = {value}: the limit is {limit}")]
    #[allow(missing_docs)]
    Limit { what: Quantity, value: u32, limit: u32 },
    /// Completions were lost: the queue was full when one came (IBA 10.2.6.4).
    #[error("the completion queue overflowed")]
    CqOverflow,
    /// A queue pair in another protection domain than its shared receive queue.
    #[error("the shared receive queue belongs to another protection domain")]
    Domain,
    /// Not a multicast address.
    #[error("{0} is not a multicast address")]
    NotMulticast(IpAddr),
    /// Something that only datagram queue pairs do.
    #[error("a {0:?} queue pair receives no multicast")]
    Service(Service),
    /// The process has no memory for it.
    #[error(transparent)]
    NoMemory(#[from] OutOfMemory),
    /// A queue pair refuses attributes.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A memory window refuses what is asked of it.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// Why a region cannot be registered.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is no memory for it.
    #[error(transparent)]
    NoMemory(#[from] OutOfMemory),
    /// The device has no room.
    #[error("the device holds at most {0} memory regions")]
    Full(usize),
    /// The range wraps around the address space.
    #[error("{len} bytes at {addr:#x} do not fit into the address space")]
    #[allow(missing_docs)]
    Range { addr: u64, len: u64 },
    /// Remote write or atomic access without local write (IBA 10.6.3.1).
    #[error("remote write and atomic access need local write access")]
    Access,
    /// No such protection domain.
    #[error("no protection domain {0:?}")]
    Pd(PdId),
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
            Object::MemoryRegion => "memory region",
            Object::MemoryWindow => "memory window",
            Object::MulticastGroup => "multicast group",
            Object::MulticastMembership => "multicast membership",
        })
    }
}

/// A number with a limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    /// Send work requests.
    SendWorkRequests,
    /// Receive work requests.
    ReceiveWorkRequests,
    /// Scatter/gather elements.
    ScatterGatherElements,
    /// Inline bytes.
    InlineBytes,
    /// Completion queue entries.
    CompletionQueueEntries,
    /// Completions that wait in a queue which is to become smaller.
    CompletionsWaiting,
    /// Work requests of a shared receive queue.
    WorkRequests,
    /// Work requests that wait in a queue which is to become smaller.
    WorkRequestsWaiting,
    /// Work requests below which a shared receive queue raises an event.
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
