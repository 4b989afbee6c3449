//! Fetches what a NIC is about to use into the processor's cache, where a program with thousands of NICs has none of
//! them.

use super::Nic;
use crate::memory::prefetch::{fetch, fetch_all, fetch_first};

impl Nic {
    /// Fetches into the processor's cache what any call is about to need.
    #[inline]
    pub fn fetch(&self) {
        fetch_first(self, Self::HOT_LINES);
        fetch(&self.device.counters);
        fetch(&self.wheel);
    }

    /// Fetches into the processor's cache what access to the memory with a remote key is about to need.
    #[inline]
    pub fn fetch_region(&self, rkey: u32) {
        self.device.memory.fetch_key(rkey);
    }

    /// Fetches into the processor's cache what [`Self::fetch_qp`] and [`Self::fetch_region`] will look at.
    #[inline]
    pub fn fetch_place(&self, qpn: u32) {
        self.device.memory.fetch();
        if let Some(place) = self.qps.get(qpn.wrapping_sub(self.first_qpn) as usize) {
            fetch(place);
        }
    }

    /// Fetches into the processor's cache what [`Self::fetch_sender`] will look at.
    #[inline]
    pub fn fetch_front(&self) {
        self.device.memory.fetch();
        if let Some(place) = self.scheduler.front().and_then(|index| self.qps.get(index as usize)) {
            fetch(place);
        }
    }

    /// Fetches into the processor's cache what a packet to a queue pair is about to need.
    #[inline]
    pub fn fetch_qp(&self, qpn: u32) {
        if let Some(slot) = self.index(qpn).and_then(|index| self.qps[index].as_ref()) {
            fetch_all(&**slot);
        }
    }

    /// Fetches into the processor's cache what sending the next packet is about to need.
    #[inline]
    pub fn fetch_sender(&self) {
        self.device.memory.fetch_region();
        if let Some(slot) = self.scheduler.front().and_then(|index| self.qps[index as usize].as_ref()) {
            fetch_all(&**slot);
        }
    }
}
