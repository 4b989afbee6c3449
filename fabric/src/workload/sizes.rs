//! Distributions of flow sizes.

use super::random::Random;

/// A distribution of flow sizes: pieces, each with its share of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Name, as written in descriptions.
    pub name: String,
    pieces: Vec<Piece>,
    /// Cumulative share of flows up to and including each piece; the last is 1.
    ends: Vec<f64>,
}

/// Sizes from `min` to `max`, bytes, both included and 1 or more.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Piece {
    shape: Shape,
    min: u64,
    max: u64,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Shape {
    /// Uniform over sizes.
    Uniform,
    /// Uniform over the logarithm: every doubling has the same probability.
    LogUniform,
}

impl Sizes {
    /// All flows of one size, 1 byte or more.
    pub fn fixed(bytes: u64) -> Sizes {
        Sizes::new(format!("fixed:{bytes}"), vec![(1.0, Piece::uniform(bytes, bytes))])
    }

    /// The heavy-tailed mix of IRN §4.3.1: 50 % single-packet messages of 32 B to 1 KB, 15 % flows of 200 KB to 3 MB.
    ///
    /// The chapter leaves open how sizes lie within those ranges, and the remaining 35 % altogether. Here the two
    /// ranges are uniform, and the 35 % between them, 1 KB to 200 KB, log-uniform: which bridges two scales without
    /// favouring either. That makes a mean of 253 KB, and 95 % of the bytes are in flows of 200 KB and more ("most of
    /// the bytes are in large flows"). Of uniform and log-uniform for the large flows (mean 1.6 or 1.03 MB), the former
    /// agrees with Table 4.2 at 30 % load, where queues matter least: an average FCT of 0.2 ms when printed with one
    /// digit, 0.15 ms at least, with an average slowdown of 1.85, implies a mean ideal FCT nearer to 77 µs (uniform)
    /// than to 60 µs (log-uniform). KB is 1000 bytes, as in the chapter's BDP of 120 KB, and so a message of 1 KB is a
    /// single packet for an MTU of 1000 as for one of 1024.
    pub fn irn_heavy() -> Sizes {
        let pieces = vec![
            (0.50, Piece::uniform(32, 1_000)),
            (0.35, Piece { shape: Shape::LogUniform, min: 1_001, max: 199_999 }),
            (0.15, Piece::uniform(200_000, 3_000_000)),
        ];
        Sizes::new("irn-heavy".to_owned(), pieces)
    }

    /// The mix of IRN §4.3.1 with the sizes of IMC10 ([`super::cdf`]) where the chapter leaves them open: 50 %
    /// single-packet messages of 32 B to 1 KB, which are all of one size in IMC10, and the other half distributed as in
    /// IMC10.
    ///
    /// The chapter derives its mix from the measurements that IMC10 is named after, and IMC10 fits its other
    /// statements: half of the flows are a packet, and 15 % have more than 137 packets of 1,460 bytes, which are 200
    /// KB, up to 2,107, which are 3 MB. That it is IMC10 remains an inference.
    pub fn irn_imc10() -> Sizes {
        let mut sizes = super::cdf::builtin("IMC10", None).expect("a name of its own");
        sizes.name = "irn-imc10".to_owned();
        sizes.pieces[0] = Piece::uniform(32, 1_000);
        sizes
    }

    /// Uniform from 500 KB to 5 MB, IRN §4.3.4 and Table 4.5.
    pub fn irn_uniform() -> Sizes {
        Sizes::new("irn-uniform".to_owned(), vec![(1.0, Piece::uniform(500_000, 5_000_000))])
    }

    /// Linear pieces of a cumulative distribution: share of flows, smallest and largest size (1 byte or more).
    pub(super) fn pieces(name: String, pieces: impl IntoIterator<Item = (f64, u64, u64)>) -> Sizes {
        Sizes::new(name, pieces.into_iter().map(|(share, min, max)| (share, Piece::uniform(min, max))).collect())
    }

    /// Builds a distribution. Shares need not add up to 1.
    fn new(name: String, pieces: Vec<(f64, Piece)>) -> Sizes {
        let total: f64 = pieces.iter().map(|(share, _)| share).sum();
        let mut sum = 0.0;
        let mut ends: Vec<f64> = pieces
            .iter()
            .map(|(share, _)| {
                sum += share;
                sum / total
            })
            .collect();
        *ends.last_mut().expect("a piece at least") = 1.0;
        Sizes { name, pieces: pieces.into_iter().map(|(_, piece)| piece).collect(), ends }
    }

    /// Draws a size, bytes.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let share = if self.pieces.len() == 1 { 0.0 } else { random.share() };
        self.pieces[self.ends.partition_point(|end| *end <= share)].draw(random)
    }

    /// The mean size, bytes.
    pub fn mean(&self) -> f64 {
        self.expect(Piece::mean)
    }

    /// The mean number of packets of at most `mtu` bytes, 1 or more.
    pub fn mean_packets(&self, mtu: u32) -> f64 {
        self.expect(|piece| piece.mean_packets(mtu.into()))
    }

    /// The smallest and the largest size that occur, bytes.
    pub fn range(&self) -> (u64, u64) {
        let least = self.pieces.iter().map(|piece| piece.min).min();
        (least.unwrap_or(1), self.pieces.iter().map(|piece| piece.max).max().unwrap_or(1))
    }

    fn expect(&self, of: impl Fn(&Piece) -> f64) -> f64 {
        let mut begin = 0.0;
        let mut sum = 0.0;
        for (piece, end) in self.pieces.iter().zip(&self.ends) {
            sum += (end - begin) * of(piece);
            begin = *end;
        }
        sum
    }
}

impl Piece {
    fn uniform(min: u64, max: u64) -> Piece {
        Piece { shape: Shape::Uniform, min, max }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        match self.shape {
            Shape::Uniform => self.min + random.below(self.max - self.min + 1),
            // A doubling, a size in it, accepted with probability proportional to 1/x: exact, and without the
            // exponential function.
            Shape::LogUniform => loop {
                let doublings = (self.max / self.min).ilog2() + 1;
                let begin = self.min << random.below(doublings.into());
                let bytes = begin + random.below(begin);
                if bytes <= self.max && random.ratio(begin, bytes) {
                    break bytes;
                }
            },
        }
    }

    fn mean(&self) -> f64 {
        match self.shape {
            Shape::Uniform => (self.min + self.max) as f64 / 2.0,
            Shape::LogUniform => (self.max - self.min + 1) as f64 / self.harmonic(|_| 1.0),
        }
    }

    fn mean_packets(&self, mtu: u64) -> f64 {
        match self.shape {
            Shape::Uniform => {
                let packets = packets_up_to(self.max, mtu) - packets_up_to(self.min - 1, mtu);
                packets as f64 / (self.max - self.min + 1) as f64
            }
            Shape::LogUniform => self.harmonic(|bytes| bytes.div_ceil(mtu) as f64) / self.harmonic(|_| 1.0),
        }
    }

    /// The sum over all sizes of a value divided by the size.
    fn harmonic(&self, value: impl Fn(u64) -> f64) -> f64 {
        (self.min..=self.max).map(|bytes| value(bytes) / bytes as f64).sum()
    }
}

/// Total packets of one flow each of 1, 2 … `bytes` bytes.
fn packets_up_to(bytes: u64, mtu: u64) -> u128 {
    let (full, rest) = (u128::from(bytes / mtu), u128::from(bytes % mtu));
    u128::from(mtu) * full * (full + 1) / 2 + rest * (full + 1)
}

#[cfg(test)]
mod tests {
    use super::super::cdf;
    use super::super::random::Purpose;
    use super::*;

    #[test]
    fn means_are_those_of_the_draws() {
        const DRAWS: u32 = 200_000;
        let mut all = vec![Sizes::fixed(65_536), Sizes::irn_heavy(), Sizes::irn_imc10(), Sizes::irn_uniform()];
        for discrete in [false, true] {
            all.extend(cdf::NAMES.map(|name| cdf::builtin(name, Some(discrete)).unwrap()));
        }
        for sizes in all {
            let mut random = Random::new(1, Purpose::Flows, 0, 0);
            let draws: Vec<u64> = (0..DRAWS).map(|_| sizes.draw(&mut random)).collect();
            let (min, max) = sizes.range();
            assert!(draws.iter().all(|bytes| (min..=max).contains(bytes)), "{}", sizes.name);
            let check = |values: &dyn Fn(u64) -> f64, mean: f64| {
                let found = draws.iter().map(|bytes| values(*bytes)).sum::<f64>() / f64::from(DRAWS);
                let square = draws.iter().map(|bytes| values(*bytes).powi(2)).sum::<f64>() / f64::from(DRAWS);
                let deviation = ((square - found * found).max(0.0) / f64::from(DRAWS)).sqrt();
                assert!((found - mean).abs() <= 4.0 * deviation, "{}: {found}, not {mean}", sizes.name);
            };
            check(&|bytes| bytes as f64, sizes.mean());
            check(&|bytes| bytes.div_ceil(1000) as f64, sizes.mean_packets(1000));
        }
    }

    #[test]
    fn discrete_draws_are_those_that_are_listed_as_often_as_they_say() {
        const DRAWS: u32 = 100_000;
        let packets = [1, 2, 3, 5, 7, 40, 72, 137, 267, 1187, 2107];
        let shares = [0.5, 0.1, 0.1, 0.05, 0.05, 0.0125, 0.0125, 0.025, 0.05, 0.05, 0.05];
        for seed in 0..4 {
            let (sizes, mut random) = (cdf::builtin("IMC10", None).unwrap(), Random::new(seed, Purpose::Flows, 0, 0));
            let mut found = std::collections::BTreeMap::new();
            for _ in 0..DRAWS {
                *found.entry(sizes.draw(&mut random)).or_insert(0u32) += 1;
            }
            assert!(found.keys().copied().eq(packets.map(|n| n * 1460)), "{found:?}");
            for (count, share) in found.values().zip(shares) {
                let deviation = (share * (1.0 - share) / f64::from(DRAWS)).sqrt();
                let error = f64::from(*count) / f64::from(DRAWS) - share;
                assert!(error.abs() < 5.0 * deviation, "seed {seed}, {share}: off by {error}");
            }
        }
    }

    #[test]
    fn the_heavy_tail_is_as_the_paper_says() {
        let sizes = Sizes::irn_heavy();
        assert_eq!(sizes.range(), (32, 3_000_000));
        assert!((sizes.mean() - 253_000.0).abs() < 1_000.0, "{}", sizes.mean());
        let mut random = Random::new(1, Purpose::Flows, 0, 0);
        let draws: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        let share = |min, max| draws.iter().filter(|b| (min..=max).contains(*b)).count() as f64 / draws.len() as f64;
        assert!((share(32, 1_000) - 0.50).abs() < 0.01);
        assert!((share(200_000, 3_000_000) - 0.15).abs() < 0.01);
        // Log-uniform: as many below the geometric mean of its range as above.
        assert!((share(1_001, 14_149) - 0.175).abs() < 0.01);
        let large: u64 = draws.iter().filter(|bytes| **bytes >= 200_000).sum();
        let all: u64 = draws.iter().sum();
        assert!((0.94..0.96).contains(&(large as f64 / all as f64)));
    }

    #[test]
    fn imc10_fits_the_papers_description_of_its_tail() {
        let sizes = Sizes::irn_imc10();
        assert_eq!((sizes.range(), sizes.ends[0], sizes.pieces[0].max), ((32, 2_107 * 1_460), 0.5, 1_000));
        assert!((sizes.mean() - 268_862.0).abs() < 1.0, "{}", sizes.mean());
        let large = sizes.pieces.iter().position(|piece| piece.min > 137 * 1_460).unwrap();
        assert!((sizes.ends[large - 1] - 0.85).abs() < 1e-12);
        let bytes_of = |piece: &Piece| if piece.min > 137 * 1_460 { piece.mean() } else { 0.0 };
        assert!(sizes.expect(bytes_of) / sizes.mean() > 0.95, "most of the bytes are in large flows");
    }

    #[test]
    fn packets_of_uniform_sizes_are_counted_exactly() {
        for (min, max, mtu) in [(1, 1, 1), (1, 10, 4), (5, 5, 4), (3, 17, 5), (32, 1_000, 1_000), (999, 1_001, 1_000)] {
            let sum: u64 = (min..=max).map(|bytes: u64| bytes.div_ceil(mtu)).sum();
            let mean = sum as f64 / (max - min + 1) as f64;
            assert_eq!(Piece::uniform(min, max).mean_packets(mtu), mean, "{min} to {max}, {mtu}");
        }
    }
}
