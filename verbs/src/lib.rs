//! libibverbs' public ABI on irnic: what an unmodified RDMA application links to.

#![warn(unreachable_pub)]

pub mod abi;
pub mod calls;
pub mod config;
pub mod device;
mod errno;
mod explain;
pub mod gid;
mod objects;
pub mod output;
mod runtime;
mod stats;
mod symbols;
