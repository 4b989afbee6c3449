//! An RDMA NIC in software.

pub mod port;
