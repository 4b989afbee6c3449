//! Statistics of one queue pair, for a final summary.

use std::fmt;

use super::counters::QpCounts;
use crate::room::boxed;

/// Statistics of a queue pair since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QpStats {
    /// Its counters.
    pub counts: QpCounts,
    /// Round trips measured, ns: one packet at a time, sent once, until its acknowledgement (Karn).
    pub rtt: RttHistogram,
}

/// Counters of the halves; the queue pair has the rest.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Tally {
    pub retransmitted: u64,
    pub timeouts: u64,
    pub rnr_naks: u64,
}

/// Buckets per power of two: a value is accurate to one part in 16.
const SUB: u32 = 16;
/// Values from 2³⁴ ns (17 s) share the last bucket.
const TOP: u32 = 34;
const BUCKETS: usize = (SUB + (TOP - SUB.ilog2()) * SUB) as usize;

/// A log-linear histogram of times in ns, just under 2 KiB, allocated on the first record.
#[derive(Clone, PartialEq, Eq)]
pub struct RttHistogram {
    /// Empty before the first, then [`BUCKETS`].
    buckets: Box<[u32]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for RttHistogram {
    fn default() -> Self {
        RttHistogram { buckets: Box::default(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl fmt::Debug for RttHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RttHistogram({} from {} to {} ns)", self.count, self.min(), self.max)
    }
}

impl RttHistogram {
    /// Bytes of heap memory.
    pub(crate) const HEAP: usize = BUCKETS * size_of::<u32>();

    #[inline]
    fn bucket(ns: u64) -> usize {
        if ns < u64::from(SUB) {
            return ns as usize;
        }
        let shift = ns.ilog2() - SUB.ilog2();
        // The upper bits of the mantissa, below the leading one, count within a power of two.
        let index = shift * SUB + (ns >> shift) as u32;
        (index as usize).min(BUCKETS - 1)
    }

    /// Returns the largest value of a bucket.
    fn upper(bucket: usize) -> u64 {
        let (bucket, sub) = (bucket as u64, u64::from(SUB));
        if bucket < sub {
            return bucket;
        }
        let shift = bucket / sub - 1;
        ((bucket % sub + sub + 1) << shift) - 1
    }

    /// Records a time in ns; a first one is dropped if there is no memory.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.buckets.is_empty() && !self.make() {
            return;
        }
        let bucket = &mut self.buckets[Self::bucket(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Allocates the buckets. Returns false if there is no memory.
    #[cold]
    #[inline(never)]
    fn make(&mut self) -> bool {
        boxed(0, BUCKETS).map(|buckets| self.buckets = buckets).is_ok()
    }

    /// Returns the number of times recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the minimum in ns, 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Returns the maximum in ns, 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean in ns, 0 if there is none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// Returns the time in ns that `p` percent (0 to 100) of all do not exceed, to one part in 16; 0 if there is none.
    pub fn percentile(&self, p: f64) -> u64 {
        let wanted = ((p.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &n) in self.buckets.iter().enumerate() {
            seen += u64::from(n);
            if seen >= wanted {
                return if bucket == BUCKETS - 1 { self.max } else { Self::upper(bucket).clamp(self.min, self.max) };
            }
        }
        self.max
    }

    /// Adds the times recorded in another, if there is memory.
    pub fn merge(&mut self, other: &RttHistogram) {
        if other.count == 0 || self.buckets.is_empty() && !self.make() {
            return;
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_without_gap_or_overlap() {
        let mut next = 0;
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(RttHistogram::bucket(next), bucket, "from {next}");
            let upper = RttHistogram::upper(bucket);
            assert_eq!(RttHistogram::bucket(upper), bucket, "to {upper}");
            // At most a sixteenth of its values wide.
            assert!(upper - next <= next / 16, "{next} to {upper}");
            next = upper + 1;
        }
        assert_eq!(next.next_power_of_two(), 1 << TOP);
        assert_eq!(RttHistogram::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn it_stays_within_its_memory() {
        assert!(size_of::<[u32; BUCKETS]>() + size_of::<RttHistogram>() <= 2048);
        let mut h = RttHistogram::default();
        assert_eq!(h.buckets.len(), 0);
        h.merge(&RttHistogram::default());
        assert_eq!(h.buckets.len(), 0);
        h.record(1);
        assert_eq!(h.buckets.len(), BUCKETS);
    }

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut h = RttHistogram::default();
        assert_eq!((h.percentile(50.0), h.min(), h.max(), h.mean()), (0, 0, 0, 0));
        for us in 1..=1000 {
            h.record(us * 1000);
        }
        for (p, exact) in [(0.0, 1_000), (1.0, 10_000), (50.0, 500_000), (99.0, 990_000), (100.0, 1_000_000)] {
            let found = h.percentile(p);
            assert!(found >= exact && found - exact <= exact / 16, "p{p}: {found} for {exact}");
        }
        assert_eq!((h.count(), h.min(), h.max(), h.mean()), (1000, 1_000, 1_000_000, 500_500));
        h.record(u64::MAX);
        assert_eq!(h.percentile(100.0), u64::MAX);
        h.clear();
        h.record(7);
        assert_eq!((h.count(), h.mean(), h.min(), h.percentile(100.0)), (1, 7, 7, 7));
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut a, mut b, mut both) = (RttHistogram::default(), RttHistogram::default(), RttHistogram::default());
        for i in 0..500u64 {
            let ns = i * i * 37;
            if i % 3 == 0 {
                a.record(ns)
            } else {
                b.record(ns)
            }
            both.record(ns);
        }
        a.merge(&b);
        assert!(a == both);
    }
}
