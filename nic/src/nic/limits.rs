//! The limits of a NIC.

use std::ops::Range;

use irnic_transports::Gather;
use irnic_transports::qp::MAX_RD_ATOMIC;

use super::{Nic, NicConfig};

/// The limits of a NIC, as `ibv_query_device(3)` reports them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of queue pairs.
    pub qps: u32,
    /// Maximum number of work requests in a queue.
    pub wrs: u32,
    /// Maximum number of scatter/gather elements of a work request.
    pub sges: u32,
    /// Maximum number of bytes of inline data of a work request.
    pub inline: u32,
    /// Maximum number of READs and atomics outstanding on a queue pair, in each direction.
    pub rd_atomics: u8,
    /// Maximum number of completion queues.
    pub cqs: u32,
    /// Maximum number of completions in a queue.
    pub cqes: u32,
    /// Maximum number of shared receive queues.
    pub srqs: u32,
    /// Maximum number of protection domains.
    pub pds: u32,
    /// Maximum number of memory regions.
    pub mrs: u32,
    /// Maximum number of memory windows.
    pub mws: u32,
    /// Maximum number of multicast groups with an attached queue pair.
    pub multicast_groups: u32,
}

impl NicConfig {
    /// Returns the limits of a NIC that has this configuration.
    pub fn limits(&self) -> Limits {
        Limits {
            qps: self.max_qps,
            wrs: Nic::MAX_WR,
            sges: Gather::MAX as u32,
            inline: Nic::MAX_INLINE,
            rd_atomics: MAX_RD_ATOMIC,
            cqs: self.max_cqs,
            cqes: Nic::MAX_CQE,
            srqs: self.max_cqs,
            pds: self.max_cqs,
            mrs: self.max_mrs,
            mws: self.max_mrs,
            multicast_groups: Nic::MAX_GROUPS as u32,
        }
    }
}

impl Nic {
    /// Returns the limits of this NIC.
    pub fn limits(&self) -> Limits {
        self.config.limits()
    }

    /// Returns the range of this NIC's queue pair numbers. No other NIC at the same address may use them.
    pub fn qp_numbers(&self) -> Range<u32> {
        self.config.first_qpn..self.config.first_qpn + self.config.max_qps
    }
}
