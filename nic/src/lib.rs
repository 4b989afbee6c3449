//! An RDMA NIC in software.

pub mod port;
pub mod wheel;
