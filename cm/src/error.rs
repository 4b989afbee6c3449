//! Errors of calls.

use std::net::SocketAddr;

use thiserror::Error;

/// Error of a call, which has changed nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmError {
    /// No such id: never created, or destroyed.
    #[error("no such id")]
    UnknownId,
    /// The id is in a state in which the call is invalid.
    #[error("{call} of an id that is {state}")]
    State {
        /// The call.
        call: &'static str,
        /// The id's state.
        state: &'static str,
    },
    /// Another id of this manager has the address.
    #[error("{0} is in use")]
    AddrInUse(SocketAddr),
    /// Another id of this manager has the port, and one of the two is bound to all addresses.
    #[error("{0} is in use at some addresses")]
    AddrOverlaps(SocketAddr),
    /// Another id of this manager has the service id.
    #[error("service id {0:#018x} is in use")]
    ServiceInUse(u64),
    /// Port 0, which is the caller's to resolve.
    #[error("an address without a port")]
    NoPort,
    /// The id has neither an address nor a service id.
    #[error("an id that is bound to nothing")]
    NotBound,
    /// More private data than the message can hold.
    #[error("{len} bytes of private data, {room} at most")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        room: usize,
    },
    /// A value out of range.
    #[error("{0} out of range")]
    Range(&'static str),
    /// The connection is already established.
    #[error("connected already")]
    Connected,
    /// No id is free.
    #[error("no more ids")]
    Resources,
}

impl CmError {
    /// Returns the Linux errno that the kernel would return.
    pub fn errno(&self) -> i32 {
        match self {
            CmError::UnknownId => 2,                                   // ENOENT
            CmError::Connected => 106,                                 // EISCONN
            CmError::Resources => 12,                                  // ENOMEM
            CmError::AddrInUse(_) | CmError::ServiceInUse(_) => 98,    // EADDRINUSE
            CmError::AddrOverlaps(_) => 99,                            // EADDRNOTAVAIL
            CmError::NoPort | CmError::NotBound => 22,                 // EINVAL
            CmError::State { .. } | CmError::PrivateData { .. } => 22, // EINVAL
            CmError::Range(_) => 22,                                   // EINVAL
        }
    }
}
