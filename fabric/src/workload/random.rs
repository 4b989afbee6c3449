//! Random numbers that are identical on every machine and in every release.

use irnic_units::math::logarithm;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// The purpose of random numbers. Each purpose of each host has its own generator, so that none depends on how many
/// numbers another drew.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Purpose {
    /// Starts and sizes of flows.
    Flows = 1,
    /// Destinations of flows.
    Destinations = 2,
    /// Participants of an incast.
    Incast = 3,
    /// Pairs of a permutation.
    Permutation = 4,
    /// Times of a generator's packets.
    Packets = 5,
    /// Flows of a closed-loop connection.
    Loops = 6,
    /// Servers of a client.
    Servers = 7,
}

/// A random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64);

impl Random {
    /// The generator for a purpose in one part of the workload. `index` is the host, or the number of the repetition.
    pub(crate) fn new(seed: u64, purpose: Purpose, part: u8, index: u32) -> Random {
        // Seeds that differ in one bit must give unrelated generators, which streams of one PCG are not.
        let mut state = mix(seed) ^ (purpose as u64) << 40 ^ u64::from(part) << 32 ^ u64::from(index);
        let mut word = || {
            state = mix(state);
            u128::from(state)
        };
        Random(Pcg64::new(word() << 64 | word(), word() << 64 | word()))
    }

    /// Uniform, `0..limit`, by Lemire's method. `limit` is 1 or more.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let unfair = limit.wrapping_neg() % limit;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(limit);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform, 0 to below 1, of 53 bits.
    pub(crate) fn share(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * SCALE
    }

    /// Exponential with mean 1. Does not use the platform's logarithm, whose last bit may differ between platforms.
    pub(crate) fn exponential(&mut self) -> f64 {
        -logarithm(1.0 - self.share())
    }

    /// True with probability `numerator / denominator`, which is at most 1.
    pub(crate) fn ratio(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

/// SplitMix64: the next word after `state`, every bit of which depends on every bit of `state`.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_range_and_reach_all_of_it() {
        let mut random = Random::new(1, Purpose::Flows, 0, 0);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[random.below(7) as usize] += 1;
        }
        // A thousand each, deviation 29.
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn exponential_draws_have_mean_and_deviation_one() {
        const DRAWS: u32 = 100_000;
        let mut random = Random::new(1, Purpose::Flows, 0, 0);
        let draws: Vec<f64> = (0..DRAWS).map(|_| random.exponential()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(DRAWS);
        let square = draws.iter().map(|x| x * x).sum::<f64>() / f64::from(DRAWS);
        // Deviation of the mean 0.003, of the mean square 0.014.
        assert!((mean - 1.0).abs() < 0.015, "{mean}");
        assert!((square - 2.0).abs() < 0.07, "{square}");
        assert!(draws.iter().all(|x| *x >= 0.0));
    }

    #[test]
    fn every_seed_purpose_part_and_host_has_its_own_generator() {
        let mut first: Vec<u64> = Vec::new();
        for seed in 0..4 {
            for purpose in [Purpose::Flows, Purpose::Destinations, Purpose::Incast, Purpose::Permutation] {
                for (part, index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    first.push(Random::new(seed, purpose, part, index).below(u64::MAX));
                }
            }
        }
        let count = first.len();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), count);
    }
}
