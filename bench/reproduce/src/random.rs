//! Random numbers that are the same on every machine.

/// A number below `most` derived from a seed and another number (SplitMix64).
pub fn below(seed: u64, n: u32, most: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(n) << 32 | 1);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ (z >> 31)) * u128::from(most)) >> 64) as u64
}
