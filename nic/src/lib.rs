//! An RDMA NIC in software.

pub mod pacer;
pub mod port;
pub mod wheel;
