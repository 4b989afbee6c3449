//! Which requests have come before, where not all can be let in.

use std::net::IpAddr;

use irnic_transports::wire::ip::to_ipv6;

/// Remembers requests that were turned away, to know those that come again: whoever means it repeats its request, whoever
/// floods a listener with forged ones sends each once.
///
/// A table of a fixed size, 256 KiB, made when it is first needed. A newer request may push an older one out; that one
/// then has to come a third time.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Upper halves of keys, at places by their lower bits; 0 for none.
    tags: Vec<u32>,
}

/// Number of places, a power of two.
const PLACES: usize = 1 << 16;

impl Seen {
    /// Remembers a request. Returns whether it was remembered already.
    pub(crate) fn note(&mut self, key: u64) -> bool {
        if self.tags.is_empty() {
            self.tags = vec![0; PLACES];
        }
        let tag = (key >> 32) as u32 | 1;
        std::mem::replace(&mut self.tags[key as usize % PLACES], tag) == tag
    }
}

/// The key of a request from `peer`: `adapter` and `request` are its numbers. Who does not know `secret` cannot choose
/// requests that push out others.
pub(crate) fn key(secret: u64, peer: IpAddr, adapter: u64, request: u32) -> u64 {
    let peer = u128::from(to_ipv6(peer));
    [peer as u64, (peer >> 64) as u64, adapter, request.into()]
        .into_iter()
        .fold(mix(secret), |key, word| mix(key ^ word))
}

/// A permutation whose output bits depend on all input bits (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_the_second_time() {
        let key = |n: u32| key(7, IpAddr::from([192, 0, 2, 1]), 0xad, n);
        let mut seen = Seen::default();
        let known = (0..10_000).filter(|n| seen.note(key(*n))).count();
        assert_eq!(known, 0);
        let known = (0..10_000).filter(|n| seen.note(key(*n))).count();
        assert!(known > 8000, "{known} of 10,000 are known");
    }

    #[test]
    fn requests_differ_by_each_of_their_numbers() {
        let peer = |n: u8| IpAddr::from([192, 0, 2, n]);
        let keys = [key(1, peer(1), 2, 3), key(2, peer(1), 2, 3), key(1, peer(2), 2, 3), key(1, peer(1), 3, 3)];
        let mut seen = Seen::default();
        assert!(!keys.into_iter().chain([key(1, peer(1), 2, 4)]).any(|key| seen.note(key)));
        assert!(keys.into_iter().all(|key| seen.note(key)));
    }
}
