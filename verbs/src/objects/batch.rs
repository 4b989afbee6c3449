//! Work requests under construction by `ibv_wr_*`.

use std::ops::Range;

use irnic_transports::qp::{Address, SendData, SendOp, SendWr, Sge};

use crate::abi::consts::*;
use crate::errno::{Errno, Result, invalid};

/// A work request under construction.
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) flags: u32,
    pub(crate) op: SendOp,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) to: Option<Address>,
    pub(crate) remote_srqn: u32,
    pub(crate) data: Data,
}

/// Place of a work request's data in its batch.
pub(crate) enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

/// Work requests since `ibv_wr_start`, and the first error. Its memory is reused for the next batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<Request>,
    /// Scatter/gather elements of all of them.
    pub(crate) sges: Vec<Sge>,
    /// Inline data of all of them.
    pub(crate) bytes: Vec<u8>,
    pub(crate) failure: Option<Errno>,
}

impl Batch {
    /// Removes all work requests, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.bytes.clear();
        self.failure = None;
    }

    /// Returns the last work request begun.
    pub(crate) fn last(&mut self) -> Result<&mut Request> {
        self.requests.last_mut().ok_or_else(|| invalid!("no work request was begun"))
    }

    /// Returns a work request in the form to be posted.
    pub(crate) fn work_request(&self, r: &Request) -> SendWr<'_> {
        SendWr {
            wr_id: r.wr_id,
            op: r.op,
            data: match &r.data {
                Data::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
                Data::Inline(range) => SendData::Inline(&self.bytes[range.clone()]),
            },
            remote_addr: r.remote_addr,
            rkey: r.rkey,
            signaled: r.flags & IBV_SEND_SIGNALED != 0,
            solicited: r.flags & IBV_SEND_SOLICITED != 0,
            fence: r.flags & IBV_SEND_FENCE != 0,
            to: r.to,
            remote_srqn: r.remote_srqn,
        }
    }
}
