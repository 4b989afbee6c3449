//! The paths of a sender that chooses one for each packet (NDP §3.1.1, §3.2.3): a permutation of all of them, and a
//! scoreboard by which those that lose a disproportionate share of packets are temporarily excluded.

use crate::footprint::{bits, footprint, left, times, why, width};
use crate::room::{OutOfMemory, boxed};

/// Criteria of a bad path. The paper has no numbers; these are its authors' (`NdpSrc::is_bad_path` of their simulator).
mod limits {
    /// Minimum number of answers about a path for a judgement.
    pub(super) const ANSWERS: u32 = 100;
    /// Minimum number of positive ones for a ratio.
    pub(super) const ACKS: u32 = 10;
    /// Threshold of NACKs per ACK, in percent.
    pub(super) const PERCENT: u64 = 30;
    /// Threshold of that ratio relative to all paths', in percent.
    pub(super) const TIMES_MEAN_PERCENT: u64 = 125;
}

/// How paths that lose a disproportionate share of packets are avoided. The paper leaves them out "for a while"
/// (§3.2.3); its number is a count that grows with each answer that finds a path bad, and shrinks with each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Penalty {
    /// Not at all.
    Off,
    /// A path misses as many of its turns as it has counted, then is used once: irnic's reading, by which a path that
    /// works again comes back.
    Skip,
    /// A path is not used while it has counted anything: the authors' code (`NdpSrc::choose_route`), by which only
    /// answers to packets still in flight bring a path back.
    Exclude,
}

/// Statistics of one path.
#[derive(Copy, Clone, Debug, Default)]
struct Score {
    acks: u32,
    nacks: u32,
    /// Number of its turns to be skipped before it is used once.
    avoid: u32,
    skipped: u32,
}

/// The paths to one destination, and whose turn it is.
#[derive(Clone, Debug)]
pub struct Paths {
    /// A permutation.
    order: Box<[u16]>,
    at: usize,
    /// By path; empty if there is nothing to choose, or paths are never excluded.
    scores: Box<[Score]>,
    /// All paths together.
    all: Score,
    random: u32,
    /// [`Penalty::Exclude`].
    excludes: bool,
}

impl Paths {
    /// Maximum number of paths.
    pub const MAX: u16 = 1 << 14;

    /// Creates `n` paths, 1 to [`Self::MAX`], numbered from 0. The same `seed` gives the same order.
    pub fn new(n: u16, penalty: Penalty, seed: u32) -> Result<Paths, OutOfMemory> {
        let n = n.clamp(1, Self::MAX);
        let mut order = boxed(0, usize::from(n))?;
        order.iter_mut().zip(0..).for_each(|(way, number)| *way = number);
        let scored = if penalty != Penalty::Off && n > 1 { usize::from(n) } else { 0 };
        let scores = boxed(Score::default(), scored)?;
        // Any state but 0 will do.
        let random = seed.wrapping_mul(0x9e37_79b9) | 1;
        let excludes = penalty == Penalty::Exclude;
        let mut paths = Paths { order, at: 0, scores, all: Score::default(), random, excludes };
        paths.permute();
        Ok(paths)
    }

    /// Clears all statistics, and begins with the order of another `seed`.
    pub fn restart(&mut self, seed: u32) {
        self.random = seed.wrapping_mul(0x9e37_79b9) | 1;
        self.scores.fill(Score::default());
        self.all = Score::default();
        self.order.iter_mut().zip(0..).for_each(|(way, number)| *way = number);
        self.permute();
    }

    /// Returns the number of paths.
    pub fn count(&self) -> u16 {
        self.order.len() as u16
    }

    /// Returns a random number below `limit` (xorshift, and Lemire's reduction without its correction: at most 2¹⁴ of
    /// 2³²).
    #[inline]
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        ((u64::from(self.random) * limit as u64) >> 32) as usize
    }

    /// Shuffles (Fisher and Yates).
    fn permute(&mut self) {
        self.at = 0;
        for last in (1..self.order.len()).rev() {
            let with = self.below(last + 1);
            self.order.swap(last, with);
        }
    }

    /// Returns the path of the next packet: each in its turn of the permutation, except those excluded. If all are
    /// excluded, one is used all the same.
    #[inline]
    pub fn next_path(&mut self) -> u16 {
        for _ in 0..self.order.len() {
            let way = self.turn();
            match self.scores.get_mut(usize::from(way)) {
                Some(score) if self.excludes && score.avoid > 0 => {}
                Some(score) if score.skipped < score.avoid => score.skipped += 1,
                Some(score) => {
                    score.skipped = 0;
                    return way;
                }
                None => return way,
            }
        }
        self.turn()
    }

    #[inline]
    fn turn(&mut self) -> u16 {
        if self.at == self.order.len() {
            self.permute();
        }
        self.at += 1;
        self.order[self.at - 1]
    }

    /// Returns a path other than `path`, on which a packet was lost, if there is another.
    pub fn other_path(&mut self, path: u16) -> u16 {
        let mut other = self.next_path();
        // A permutation may begin with the last path of the previous one.
        for _ in 0..2 {
            if other != path {
                break;
            }
            other = self.turn();
        }
        other
    }

    /// Records that a packet arrived on a path.
    #[inline]
    pub fn arrived(&mut self, path: u16) {
        self.note(path, 1, 0);
    }

    /// Records that a packet lost its payload on a path (weight 1), or was returned or lost (weight 3).
    #[inline]
    pub fn failed(&mut self, path: u16, weight: u32) {
        self.note(path, 0, weight);
    }

    #[inline]
    fn note(&mut self, path: u16, acks: u32, nacks: u32) {
        let Some(score) = self.scores.get_mut(usize::from(path)) else { return };
        for of in [&mut *score, &mut self.all] {
            if of.acks.max(of.nacks) > u32::MAX / 2 {
                (of.acks, of.nacks) = (of.acks / 2, of.nacks / 2);
            }
            of.acks += acks;
            of.nacks += nacks;
        }
        if score.is_bad(&self.all) {
            score.avoid = score.avoid.saturating_add(1);
        } else {
            score.avoid = score.avoid.saturating_sub(1);
        }
    }
}

impl Score {
    /// Returns whether a path loses more than its share. The ratio of all paths together stands for the mean of their
    /// ratios.
    fn is_bad(&self, all: &Score) -> bool {
        let (acks, nacks) = (u64::from(self.acks), u64::from(self.nacks));
        self.acks + self.nacks > limits::ANSWERS
            && self.acks > limits::ACKS
            && nacks * 100 > acks * limits::PERCENT
            && nacks * u64::from(all.acks.max(1)) * 100 > u64::from(all.nacks) * acks * limits::TIMES_MEAN_PERCENT
    }
}

footprint!(Paths, |_setup| {
    order => bits(order.len() as u64 * 14).when(order.len() > 1, why::OFF).heap(size_of_val(&**order)),
    at => bits(14).when(order.len() > 1, why::OFF),
    scores => times(scores.len() as u64, Score::default()).heap(size_of_val(&**scores)),
    all => times(1, Score::default()).when(!scores.is_empty(), why::OFF),
    random => bits(32).when(order.len() > 1, why::OFF),
    excludes => left("which rule it is: the NIC is built for it"),
});

footprint!(Score, |at| {
    acks => bits(width::COUNT),
    nacks => bits(width::COUNT),
    avoid => bits(width::COUNT),
    skipped => bits(width::COUNT),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_turn_in_each_permutation() {
        let mut paths = Paths::new(16, Penalty::Skip, 7).unwrap();
        let mut orders = Vec::new();
        for _ in 0..20 {
            let order: Vec<u16> = (0..16).map(|_| paths.next_path()).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16).collect::<Vec<_>>());
            orders.push(order);
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 20, "each permutation is another");
        let again: Vec<u16> = std::iter::repeat_with(|| paths.clone().next_path()).take(2).collect();
        assert_eq!(again[0], again[1]);
    }

    #[test]
    fn a_way_that_fails_is_left_out_and_comes_back() {
        let share = |penalty| {
            let mut paths = Paths::new(8, penalty, 1).unwrap();
            let mut used = 0;
            for n in 0..16_000u32 {
                let path = paths.next_path();
                // Path 3 trims two packets of three.
                if path == 3 && n % 3 > 0 {
                    paths.failed(3, 1)
                } else {
                    paths.arrived(path)
                }
                used += u32::from(n >= 8_000 && path == 3);
            }
            // It works again. Statistics are kept, so recovery takes time.
            let mut later = 0;
            for n in 0..1_500_000u32 {
                let path = paths.next_path();
                paths.arrived(path);
                later += u32::from(n >= 1_492_000 && path == 3);
            }
            (used, later)
        };
        assert_eq!(share(Penalty::Off), (1_000, 1_000));
        let (bad, good) = share(Penalty::Skip);
        assert!(bad < 200 && good > 800, "{bad} {good}");
        // Without packets in flight there are no answers that bring it back.
        assert_eq!(share(Penalty::Exclude), (0, 0));
    }

    #[test]
    fn ways_that_are_all_as_bad_are_all_used() {
        let mut paths = Paths::new(4, Penalty::Skip, 1).unwrap();
        let mut used = [0; 4];
        for n in 0..8_000 {
            let path = paths.next_path();
            used[usize::from(path)] += 1;
            if n % 2 == 0 { paths.failed(path, 1) } else { paths.arrived(path) }
        }
        assert!(used.iter().all(|n| *n > 1_500), "{used:?}");
    }

    #[test]
    fn a_lost_packet_takes_another_way_if_there_is_one() {
        for n in [1, 2, 5] {
            let mut paths = Paths::new(n, Penalty::Skip, 3).unwrap();
            for _ in 0..100 {
                assert_eq!(paths.other_path(0) == 0, n == 1);
            }
        }
    }
}
