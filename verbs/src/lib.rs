//! libibverbs' public ABI on irnic: what an unmodified RDMA application links to.
//!
//! The cdylib stands in for `libibverbs.so.1`. It turns C calls into calls on an [`irnic_nic::Nic`] that lives in this
//! process, and knows nothing of headers on the wire.
//!
//! [`mod@unit`] is the processing unit: NIC, port, lock, and who runs them. [`device`] and [`config`] say which devices there
//! are, [`start`] opens one. The other modules are the objects of the verbs, one each.

pub mod abi;
mod ah;
pub mod calls;
pub mod carrier;
mod channel;
pub mod config;
pub mod context;
mod cq;
mod cq_ex;
pub mod device;
pub(crate) mod errno;
mod event;
mod explain;
pub mod gid;
mod mr;
mod mw;
pub mod output;
mod pd;
mod post;
mod qp;
mod qp_ex;
mod srq;
pub mod start;
pub mod stats;
mod symbols;
mod turn;
pub mod unit;
