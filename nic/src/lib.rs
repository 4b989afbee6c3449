//! An RDMA NIC in software.

pub mod clock;
pub mod impair;
pub mod pacer;
pub mod port;
pub mod wheel;
