//! Shards: parts of a sweep with about the same run time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

/// Maximum number of shards of a sweep.
pub const MAX: usize = 100_000;

/// A shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number, counted from 1.
    pub number: usize,
    /// Total number of shards.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let expected = || "expected I/N, I being 1 to N, such as 3/64".to_owned();
        let (number, of) = text.split_once('/').ok_or_else(expected)?;
        let [number, of]: [usize; 2] = [number.parse().map_err(|_| expected())?, of.parse().map_err(|_| expected())?];
        if number == 0 && of > 0 {
            return Err(format!("shards are counted from 1: expected 1/{of} to {of}/{of}"));
        }
        if of > MAX {
            return Err(format!("expected at most {MAX} shards"));
        }
        if number == 0 || number > of { Err(expected()) } else { Ok(Shard { number, of }) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// Distributes runs by their estimated run times, in any unit: the longest first, each to the shard with the
    /// smallest sum so far. Returns the indices of this shard's runs, the longest first.
    pub fn deal(self, estimates: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..estimates.len()).collect();
        order.sort_by(|a, b| estimates[*b].total_cmp(&estimates[*a]));
        // No run counts as 0: runs without an estimate are distributed evenly.
        let least = estimates.iter().copied().filter(|e| *e > 0.0).fold(1.0, f64::min);
        // For non-negative floats, the bits have the same order.
        let mut shards: BinaryHeap<Reverse<(u64, usize)>> = (1..=self.of).map(|number| Reverse((0, number))).collect();
        let mut mine = Vec::new();
        for at in order {
            let Some(Reverse((load, number))) = shards.pop() else { break };
            if number == self.number {
                mine.push(at);
            }
            shards.push(Reverse(((f64::from_bits(load) + estimates[at].max(least)).to_bits(), number)));
        }
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(of: usize, estimates: &[f64]) -> Vec<Vec<usize>> {
        (1..=of).map(|number| Shard { number, of }.deal(estimates)).collect()
    }

    #[test]
    fn every_run_is_in_one_shard_and_shards_take_as_long() {
        let estimates: Vec<f64> = (0..100).map(|n| f64::from(n % 10 * n + 1)).collect();
        for of in [1, 3, 7, 100, 150] {
            let shards = shards(of, &estimates);
            let mut all: Vec<usize> = shards.concat();
            all.sort_unstable();
            assert_eq!(all, (0..100).collect::<Vec<_>>());
            let sums: Vec<f64> = shards.iter().map(|s| s.iter().map(|at| estimates[*at]).sum()).collect();
            let (most, mean) = (sums.iter().copied().fold(0.0, f64::max), estimates.iter().sum::<f64>() / of as f64);
            let longest = estimates.iter().copied().fold(0.0, f64::max);
            // Graham's bound for longest-first scheduling, relative to a lower bound of the optimum.
            assert!(most <= 4.0 / 3.0 * mean.max(longest) + 1.0, "{of}: {sums:?}");
            for shard in shards {
                assert!(shard.windows(2).all(|w| estimates[w[0]] >= estimates[w[1]]), "the longest first");
            }
        }
    }

    #[test]
    fn runs_of_which_nothing_is_known_are_dealt_out_evenly() {
        assert_eq!(shards(3, &[0.0; 7]), [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
    }

    #[test]
    fn numbers_are_from_one_on() {
        assert_eq!("3/7".parse(), Ok(Shard { number: 3, of: 7 }));
        for (text, said) in [
            ("0/7", "shards are counted from 1: expected 1/7 to 7/7"),
            ("8/7", "expected I/N, I being 1 to N, such as 3/64"),
            ("0/0", "expected I/N, I being 1 to N, such as 3/64"),
            ("3", "expected I/N, I being 1 to N, such as 3/64"),
            ("1/100001", "expected at most 100000 shards"),
        ] {
            assert_eq!(text.parse::<Shard>(), Err(said.to_owned()), "{text}");
        }
    }
}
