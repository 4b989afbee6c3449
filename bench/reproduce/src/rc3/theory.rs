//! Theoretical completion times of RC3 and TCP (§2.2): no queues, slow start in whole round trips, and the rest at the
//! free rate.

/// Flow sizes in packets, each with the cumulative share of flows, percent (§2.4.1; NetSys/simulator).
pub const SIZES: [(u64, f64); 11] = [
    (1, 50.0),
    (2, 60.0),
    (3, 70.0),
    (5, 75.0),
    (7, 80.0),
    (40, 81.25),
    (72, 82.5),
    (137, 85.0),
    (267, 90.0),
    (1187, 95.0),
    (2107, 100.0),
];

/// The authors' line of Figure 2.7: reduction of completion times by RC3 relative to TCP, percent, by size (NetSys/RC3,
/// `baseline-result`).
pub const AUTHORS: [f64; 11] = [0.0, 0.0, 0.0, 39.94, 39.92, 66.34, 72.20, 76.05, 78.50, 79.02, 77.18];

/// A path of the model.
#[derive(Copy, Clone, Debug)]
pub struct Path {
    /// Round trip, s.
    pub rtt: f64,
    /// Free capacity, packets per second.
    pub free: f64,
    /// TCP's initial window, packets.
    pub initial: u64,
    /// Round trips before the first packet, plus the one-way trip of the last.
    pub before: f64,
}

impl Path {
    /// Internet-2 with links of 1 Gbit/s at 30 % load: a mean round trip of 43.6 ms, one before the first packet and
    /// half of one for the last.
    pub const INTERNET2: Path = Path { rtt: 0.0436, free: 0.7e9 / (1_460.0 * 8.0), initial: 4, before: 1.5 };

    /// Completion time of this many packets with TCP, s.
    pub fn tcp(&self, packets: u64) -> f64 {
        let (mut window, mut left, mut rounds) = (self.initial, packets, 0.0);
        // A window that fills the path needs no more round trips.
        while left > window && (window as f64) < self.free * self.rtt {
            left -= window;
            window *= 2;
            rounds += 1.0;
        }
        (self.before + rounds) * self.rtt + left as f64 / self.free
    }

    /// Completion time of this many packets with RC3, s.
    pub fn rc3(&self, packets: u64) -> f64 {
        self.before * self.rtt + packets as f64 / self.free
    }

    /// Reduction by RC3 relative to TCP, percent; 0 if the first window holds all.
    pub fn reduction(&self, packets: u64) -> f64 {
        if packets <= self.initial { 0.0 } else { 100.0 * (1.0 - self.rc3(packets) / self.tcp(packets)) }
    }
}

/// Means of a function of the flow size in packets, over flows and over bytes.
pub fn means(of: impl Fn(u64) -> f64) -> [f64; 2] {
    let (mut flows, mut bytes, mut all, mut before) = (0.0, 0.0, 0.0, 0.0);
    for (packets, up_to) in SIZES {
        let (share, size) = (up_to - before, packets as f64);
        flows += share * of(packets) / 100.0;
        bytes += share * size * of(packets);
        all += share * size;
        before = up_to;
    }
    [flows, bytes / all]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within 1.2 points of each number of the authors' line.
    #[test]
    fn the_model_gives_the_authors_line() {
        for ((packets, _), authors) in SIZES.into_iter().zip(AUTHORS) {
            let ours = Path::INTERNET2.reduction(packets);
            assert!((ours - authors).abs() <= 1.2, "{packets} packets: {ours:.2} %, not {authors} %");
        }
    }

    #[test]
    fn means_are_near_those_of_table_2_1() {
        let near = |ours: [f64; 2], expected: [f64; 2]| {
            assert!(ours.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.004), "{ours:?} {expected:?}");
        };
        let path = Path::INTERNET2;
        near(means(|n| path.tcp(n)), [0.129, 0.427]);
        near(means(|n| path.rc3(n)), [0.068, 0.092]);
        let mean = means(|n| n as f64)[0];
        assert!((mean - 184.475).abs() < 1e-6, "{mean}");
    }
}
