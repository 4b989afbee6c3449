//! The firmware of an RDMA NIC as a pure state machine: [`Nic`].
//!
//! Around [`irnic_transports::qp::Qp`] it has what queue pairs share: objects and their lifecycle, memory protection and placement,
//! the transmit scheduler, timers, the hardware clock. It does no I/O and reads no clock: packets and time go in, packets,
//! completions and deadlines come out. What carries its packets in real time is `irnic-ports`, in virtual time `irnic-fabric`.

#![deny(unsafe_code)]

pub mod calibration;
pub mod clock;
mod cq;
mod device;
mod error;
pub mod frame;
mod loopback;
#[allow(unsafe_code, reason = "regions are the application's memory")]
mod memory;
mod multicast;
mod nic;
mod scheduler;
mod srq;
pub mod wheel;

pub use cq::Arm;
pub use device::NicEvent;
pub use error::{NicError, Object, Quantity, RegisterError};
pub use irnic_transports::pacer;
pub use irnic_transports::qp::QpConfig;
pub use loopback::loopback;
pub use memory::{Mr, MrChanges, Mw, MwKind, copy_payload, prefetch};
pub use nic::{Limits, Nic, NicConfig};
