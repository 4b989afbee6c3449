//! libibverbs' public ABI on irnic: what an unmodified RDMA application links to.
//!
//! The cdylib stands in for `libibverbs.so.1`. It turns C calls into calls on an [`irnic_nic::Nic`] that lives in this
//! process, and knows nothing of headers on the wire.

pub mod abi;
pub mod calls;
pub(crate) mod errno;
mod symbols;
