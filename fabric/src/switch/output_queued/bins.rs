//! Bins of flows: one for each flow with queued packets, distinguished exactly, not by a hash.

use std::net::IpAddr;

use crate::network::{PacketId, Packets};

/// The key of a flow: sender and queue pair.
type Key = (IpAddr, u32);

/// The bins of the flows of an output. A bin is empty when it is assigned to a flow and when it is given back; its
/// allocation is reused.
#[derive(Debug)]
pub(super) struct Bins<B> {
    bins: Vec<(Key, B)>,
    /// Unassigned bins.
    free: Vec<u32>,
    /// Flows with a bin, sorted.
    known: Vec<(Key, u32)>,
}

impl<B> Default for Bins<B> {
    fn default() -> Self {
        Bins { bins: Vec::new(), free: Vec::new(), known: Vec::new() }
    }
}

impl<B: Default> Bins<B> {
    /// The bin of a packet's flow, if it has one.
    pub(super) fn find(&self, packets: &Packets, id: PacketId) -> Option<u32> {
        let key = packets.flow(id);
        self.known.binary_search_by(|(known, _)| known.cmp(&key)).ok().map(|at| self.known[at].1)
    }

    /// The bin of a packet's flow, and whether it was assigned just now.
    pub(super) fn find_or_add(&mut self, packets: &Packets, id: PacketId) -> (u32, bool) {
        let key = packets.flow(id);
        match self.known.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => (self.known[at].1, false),
            Err(at) => {
                let bin = self.free.pop().unwrap_or_else(|| {
                    self.bins.push((key, B::default()));
                    self.bins.len() as u32 - 1
                });
                self.bins[bin as usize].0 = key;
                self.known.insert(at, (key, bin));
                (bin, true)
            }
        }
    }

    /// Takes back an empty bin from its flow.
    pub(super) fn give_back(&mut self, bin: u32) {
        let key = self.bins[bin as usize].0;
        if let Ok(at) = self.known.binary_search_by(|(known, _)| known.cmp(&key)) {
            self.known.remove(at);
            self.free.push(bin);
        }
    }

    /// The assigned bins, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &B)> {
        self.known.iter().map(|(_, bin)| (*bin, self.get(*bin)))
    }

    /// A bin.
    #[inline]
    pub(super) fn get(&self, bin: u32) -> &B {
        &self.bins[bin as usize].1
    }

    /// A bin, mutably.
    #[inline]
    pub(super) fn get_mut(&mut self, bin: u32) -> &mut B {
        &mut self.bins[bin as usize].1
    }
}
