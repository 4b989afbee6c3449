//! Management datagrams of the communication manager (IBA chapter 12): what queue pair 1 sends and receives.
//!
//! A MAD is the whole payload of a UD SEND to queue pair 1: a common header of 24 bytes and 232 bytes of message.
//! Offsets are those of the kernel's `include/rdma/ibta_vol1_c12.h`, checked against the rxe captures.

mod route;

pub use route::{Destination, destination};

/// Length of every MAD in bytes.
pub const MAD_LEN: usize = 256;

/// Queue pair number of the general services interface, at which the communication manager receives.
pub const GSI_QPN: u32 = 1;

/// Q_Key of the general services interface.
pub const GSI_QKEY: u32 = 0x8001_0000;
