//! Why a call was refused.

use std::net::SocketAddr;

use thiserror::Error;

/// Why a call was refused. Nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CmError {
    /// No such id: never made, or destroyed.
    #[error("no such id")]
    UnknownId,
    /// The id is in a state in which the call makes no sense.
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
    /// Another id of this manager has the port, and one of the two means it at every address.
    #[error("{0} is in use at some addresses")]
    AddrOverlaps(SocketAddr),
    /// Another id of this manager has the service id.
    #[error("service id {0:#018x} is in use")]
    ServiceInUse(u64),
    /// A port of 0: the caller chooses.
    #[error("an address without a port")]
    NoPort,
    /// The id has neither an address nor a service id.
    #[error("an id that is bound to nothing")]
    NotBound,
    /// More private data than the message has room for.
    #[error("{len} bytes of private data, {room} at most")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that there is room for.
        room: usize,
    },
    /// A value out of range.
    #[error("{0} out of range")]
    Range(&'static str),
    /// The connection stands already.
    #[error("connected already")]
    Connected,
    /// No more ids.
    #[error("no more ids")]
    Resources,
}

impl CmError {
    /// Returns Linux's errno for the error, as the kernel would answer.
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
