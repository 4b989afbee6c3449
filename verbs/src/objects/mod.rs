//! The objects of libibverbs behind the pointers held by C.
//!
//! Each begins with the structure that C sees, holds its device or processing unit, and is looked up by `from_c`. The
//! functions of libibverbs that create, use and destroy them are in [`calls`](crate::calls).

mod ah;
mod batch;
mod channel;
mod context;
mod cq;
mod device;
mod event;
mod mr;
mod mw;
mod pd;
mod qp;
mod srq;
mod turn;
mod users;
mod xrcd;

pub(crate) use ah::Ah;
pub(crate) use batch::{Batch, Data, Request};
pub(crate) use channel::{Channel, CqPtr};
pub(crate) use context::Context;
pub(crate) use cq::Cq;
pub(crate) use device::{Device, devices};
pub(crate) use event::{AsyncEvent, acknowledge};
pub(crate) use mr::Mr;
pub(crate) use mw::Mw;
pub(crate) use pd::{Pd, Td};
pub(crate) use qp::Qp;
pub(crate) use srq::Srq;
pub(crate) use turn::Turn;
pub(crate) use xrcd::Xrcd;
