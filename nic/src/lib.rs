//! An RDMA NIC in software: the firmware ([`Nic`]) and what carries its packets in real time ([`port`]).
//!
//! The core is a pure state machine around [`irnic_transports::qp::Qp`]: objects and their lifecycle, memory protection and
//! placement, the transmit scheduler, timers, the hardware clock. It does no I/O and reads no clock. [`port`], [`impair`] and
//! [`attach`] are its habitat in real time.

pub mod attach;
pub mod cache;
pub mod calibration;
pub mod clock;
mod cq;
mod device;
pub mod impair;
mod memory;
mod multicast;
mod nic;
pub mod port;
mod srq;
pub mod wheel;

pub use cq::Arm;
pub use device::NicEvent;
pub use irnic_transports::pacer;
pub use irnic_transports::qp::QpConfig;
pub use memory::{Mr, MrChanges, Mw, MwKind, RegisterError, copy_payload};
pub use nic::{Limits, Nic, NicConfig, NicError};
