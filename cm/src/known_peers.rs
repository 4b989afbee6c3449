//! Requests and peers seen before, for admission under overload.

use std::net::IpAddr;

use irnic_transports::wire::ip::to_ipv6;

/// Remembers requests that were turned away, and peers that have confirmed a connection.
///
/// A genuine client repeats its request, whereas a flood of forged requests contains each once. A peer that has
/// confirmed a connection is not forged: it has received the answer sent to its address.
#[derive(Debug)]
pub(crate) struct KnownPeers {
    /// Mixed into keys: without it, requests that evict others cannot be constructed.
    secret: u64,
    requests: Table<{ 1 << 16 }>,
    peers: Table<{ 1 << 10 }>,
}

impl KnownPeers {
    pub(crate) fn new(secret: u64) -> KnownPeers {
        KnownPeers { secret, requests: Table::default(), peers: Table::default() }
    }

    /// Remembers a request of a peer by the sender's GUID and the request's number. Returns whether the request or its
    /// peer was known.
    pub(crate) fn request(&mut self, peer: IpAddr, guid: u64, number: u32) -> bool {
        let known = self.peers.has(self.key(peer, 0, 0));
        known || self.requests.note(self.key(peer, guid, number))
    }

    /// Remembers that a peer has confirmed a connection.
    pub(crate) fn confirmed(&mut self, peer: IpAddr) {
        self.peers.note(self.key(peer, 0, 0));
    }

    fn key(&self, peer: IpAddr, guid: u64, number: u32) -> u64 {
        let peer = u128::from(to_ipv6(peer));
        let words = [peer as u64, (peer >> 64) as u64, guid, number.into()];
        words.into_iter().fold(mix(self.secret), |key, word| mix(key ^ word))
    }
}

/// A fixed-size table, a power of two, allocated on first use. A new entry may evict an older one.
#[derive(Debug, Default)]
struct Table<const PLACES: usize> {
    /// Upper halves of keys, indexed by their lower bits; 0 for none.
    tags: Vec<u32>,
}

impl<const PLACES: usize> Table<PLACES> {
    fn tag(key: u64) -> u32 {
        (key >> 32) as u32 | 1
    }

    fn has(&self, key: u64) -> bool {
        self.tags.get(key as usize % PLACES) == Some(&Self::tag(key))
    }

    /// Adds a key. Returns whether it was there already.
    fn note(&mut self, key: u64) -> bool {
        if self.tags.is_empty() {
            self.tags = vec![0; PLACES];
        }
        std::mem::replace(&mut self.tags[key as usize % PLACES], Self::tag(key)) == Self::tag(key)
    }
}

/// A permutation in which each output bit depends on all input bits (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn a_request_is_known_the_second_time() {
        let mut seen = KnownPeers::new(7);
        let mut known = || (0..10_000).filter(|n| seen.request(peer(1), 0xad, *n)).count();
        assert_eq!(known(), 0);
        let known = known();
        assert!(known > 8000, "{known} of 10,000 are known");
    }

    #[test]
    fn requests_differ_by_each_of_their_numbers() {
        let requests = [(peer(1), 2, 3), (peer(2), 2, 3), (peer(1), 3, 3), (peer(1), 2, 4)];
        let mut seen = KnownPeers::new(1);
        assert!(!requests.iter().any(|&(peer, guid, number)| seen.request(peer, guid, number)));
        assert!(requests.iter().all(|&(peer, guid, number)| seen.request(peer, guid, number)));
    }

    #[test]
    fn requests_of_a_peer_that_has_confirmed_are_known() {
        let mut seen = KnownPeers::new(1);
        seen.confirmed(peer(1));
        assert!(seen.request(peer(1), 2, 3));
        assert!(!seen.request(peer(2), 2, 3));
    }
}
