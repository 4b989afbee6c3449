//! Prefetches NIC state into the processor's cache, for programs with thousands of NICs, none of which is in the cache.

use super::Nic;
use crate::memory::prefetch::{fetch, fetch_all, fetch_first};

impl Nic {
    /// Prefetches what any call needs.
    #[inline]
    pub fn fetch(&self) {
        fetch_first(self, Self::HOT_LINES);
        fetch(&self.device.counters);
        fetch(&self.wheel);
    }

    /// Prefetches what access to memory by a remote key needs.
    #[inline]
    pub fn fetch_region(&self, rkey: u32) {
        self.device.memory.fetch_key(rkey);
    }

    /// Prefetches what [`Self::fetch_qp`] and [`Self::fetch_region`] will read.
    #[inline]
    pub fn fetch_place(&self, qpn: u32) {
        self.device.memory.fetch();
        if let Some(place) = self.qps.get(qpn.wrapping_sub(self.first_qpn) as usize) {
            fetch(place);
        }
    }

    /// Prefetches what [`Self::fetch_sender`] will read.
    #[inline]
    pub fn fetch_front(&self) {
        self.device.memory.fetch();
        if let Some(place) = self.scheduler.front().and_then(|index| self.qps.get(index as usize)) {
            fetch(place);
        }
    }

    /// Prefetches what receiving a packet to a queue pair needs.
    #[inline]
    pub fn fetch_qp(&self, qpn: u32) {
        if let Some(slot) = self.index(qpn).and_then(|index| self.qps[index].as_ref()) {
            fetch_all(&**slot);
        }
    }

    /// Prefetches what sending the next packet needs.
    #[inline]
    pub fn fetch_sender(&self) {
        self.device.memory.fetch_region();
        if let Some(slot) = self.scheduler.front().and_then(|index| self.qps[index as usize].as_ref()) {
            fetch_all(&**slot);
        }
    }
}
