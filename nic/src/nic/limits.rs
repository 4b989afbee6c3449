//! What a NIC holds at the most.

use std::ops::Range;

use irnic_transports::Gather;
use irnic_transports::qp::MAX_RD_ATOMIC;

use super::{Nic, NicConfig};

/// The most that a NIC holds of everything, as `ibv_query_device(3)` asks for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Work requests in a queue.
    pub wrs: u32,
    /// Scatter/gather elements of a work request.
    pub sges: u32,
    /// Bytes of inline data of a work request.
    pub inline: u32,
    /// READs and atomics that a queue pair may have outstanding, each way.
    pub rd_atomics: u8,
    /// Completion queues.
    pub cqs: u32,
    /// Completions in a queue.
    pub cqes: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Protection domains.
    pub pds: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Memory windows.
    pub mws: u32,
    /// Multicast groups with a member here.
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

    /// Returns the numbers that this NIC's queue pairs may have: no other NIC at the same address has one of them.
    pub fn qp_numbers(&self) -> Range<u32> {
        self.config.first_qpn..self.config.first_qpn + self.config.max_qps
    }
}
