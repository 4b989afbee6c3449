//! The congestion point: the fair rate of a port, from the length of its queue (Algorithm 1 and its auto-tuning).

use crate::time::US;

/// Parameters of a [`FairRate`].
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FairRateConfig {
    /// F_max, bit/s: the rate of the link.
    pub rate: u64,
    /// F_min, bit/s.
    pub least: u64,
    /// Q_ref, bytes: the target queue length. Below `qmid`, and that below `qmax`.
    pub qref: u64,
    /// Q_mid, bytes: growth of the queue since the last step that halves the rate.
    pub qmid: u64,
    /// Q_max, bytes: queue length at which the rate drops to the minimum.
    pub qmax: u64,
    /// ΔQ, bytes: the unit of queue lengths in the control law, 1 or more.
    pub chunk: u64,
    /// α̃, 0 to 1000: weight of the distance from Q_ref.
    pub alpha: f64,
    /// β̃, 0 to 1000: weight of the growth of the queue.
    pub beta: f64,
    /// T, ns, 1 or more: time between steps.
    pub period: u64,
    /// Fractional bits of the rate, in units of [`FairRateConfig::UNIT`], 0 to 16. The authors' code has none: steps of
    /// less than a unit vanish there, and many flows leave the queue short of Q_ref.
    pub fraction: u32,
}

/// Q_ref, Q_mid, Q_max, α̃ and β̃ of the evaluation by the rate of the link, bit/s.
const TABLE: [(u64, [u64; 3], [f64; 2]); 3] = [
    (10_000_000_000, [75_000, 150_000, 210_000], [0.3, 1.5]),
    (40_000_000_000, [150_000, 300_000, 360_000], [0.3, 1.5]),
    (100_000_000_000, [300_000, 600_000, 660_000], [0.45, 2.25]),
];

impl FairRateConfig {
    /// ΔF, bit/s: the unit of rates in the control law.
    pub const UNIT: u64 = 10_000_000;

    /// Returns the evaluation's parameters at a link rate, bit/s: those of 10, 40 and 100 Gbit/s, interpolated
    /// linearly; outside that range those of the nearest, with queues above it in proportion to the rate. The
    /// evaluation has no gains for 10 Gbit/s; those of 40 are used.
    pub fn of_link(rate: u64) -> FairRateConfig {
        let ([qref, qmid, qmax], [alpha, beta]) = at(rate);
        FairRateConfig {
            rate,
            least: 10 * Self::UNIT,
            qref,
            qmid,
            qmax,
            chunk: 600,
            alpha,
            beta,
            period: 40 * US,
            fraction: POINT,
        }
    }
}

/// Returns the row of a rate; see [`FairRateConfig::of_link`].
fn at(rate: u64) -> ([u64; 3], [f64; 2]) {
    let [first, .., last] = TABLE;
    if rate <= first.0 {
        return (first.1, first.2);
    }
    let of = |bytes: u64, times: u64, by: u64| (u128::from(bytes) * u128::from(times) / u128::from(by)) as u64;
    let between = TABLE.windows(2).find(|pair| rate <= pair[1].0);
    let Some(&[low, high]) = between.and_then(|pair| pair.first_chunk::<2>()) else {
        return (last.1.map(|bytes| of(bytes, rate, last.0)), last.2);
    };
    let (into, width) = (rate - low.0, high.0 - low.0);
    let queue = |n: usize| low.1[n] + of(high.1[n] - low.1[n], into, width);
    let gain = |n: usize| low.2[n] + (high.2[n] - low.2[n]) * (into as f64 / width as f64);
    ([queue(0), queue(1), queue(2)], [gain(0), gain(1)])
}

/// Fractional bits of all numbers here.
const POINT: u32 = 16;

/// The fair rate of one port.
#[derive(Clone, Debug)]
pub struct FairRate {
    /// F, in units, and its limits.
    rate: i64,
    least: i64,
    most: i64,
    /// Q_old, bytes.
    before: u64,
    qref: u64,
    qmid: u64,
    qmax: u64,
    chunk: u64,
    alpha: i64,
    beta: i64,
    /// Low bits of the rate that are cut off.
    cut: u32,
}

impl FairRate {
    /// Creates the state of a port whose queue was never used: its rate is that of the link.
    pub fn new(config: &FairRateConfig) -> FairRate {
        let units = |bits: u64| i64::try_from((u128::from(bits) << POINT) / u128::from(FairRateConfig::UNIT));
        let most = units(config.rate).unwrap_or(i64::MAX >> POINT).max(1);
        let gain = |gain: f64| (gain.clamp(0.0, 1000.0) * f64::from(1 << POINT)).round() as i64;
        FairRate {
            rate: most,
            least: units(config.least).unwrap_or(most).min(most),
            most,
            before: 0,
            qref: config.qref,
            qmid: config.qmid,
            qmax: config.qmax,
            chunk: config.chunk.max(1),
            alpha: gain(config.alpha),
            beta: gain(config.beta),
            cut: POINT.saturating_sub(config.fraction),
        }
    }

    /// Returns F, bit/s.
    #[inline]
    pub fn rate(&self) -> u64 {
        ((self.rate as u128 * u128::from(FairRateConfig::UNIT)) >> POINT) as u64
    }

    /// Returns whether a step with an empty queue would change nothing.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.before == 0 && self.rate == self.most
    }

    /// Returns the divisor of the gains: one of six powers of two, by the ratio of the rate to the link's.
    fn divisor(&self) -> i128 {
        let mut level = 2;
        while level < 64 && i128::from(self.rate) * level < i128::from(self.most) {
            level *= 2;
        }
        level / 2
    }

    /// Ends a period with `queue` bytes waiting. Returns the new rate, bit/s.
    pub fn step(&mut self, queue: u64) -> u64 {
        let grown = queue as i128 - self.before as i128;
        let high = self.rate > self.most / 8;
        let rate = if high && queue >= self.qmax {
            i128::from(self.least)
        } else if high && grown >= self.qmid.into() {
            i128::from(self.rate / 2)
        } else {
            let far = queue as i128 - self.qref as i128;
            let change = i128::from(self.alpha) * far + i128::from(self.beta) * grown;
            i128::from(self.rate) - change / (self.divisor() * self.chunk as i128)
        };
        let rate = rate >> self.cut << self.cut;
        self.rate = rate.clamp(self.least.into(), self.most.into()) as i64;
        self.before = queue;
        self.rate()
    }
}

/// Inputs of a step, from which another node can compute the next rate of a [`FairRate`] (§3.3.6 of the dissertation):
/// its parameters, and F and the queue of the previous step. Fractions have 16 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairRateHistory {
    /// F, in units of [`FairRateConfig::UNIT`], with a fraction.
    pub rate: u32,
    /// F_min and F_max, in the format of `rate`.
    pub least: u32,
    /// See `least`.
    pub most: u32,
    /// Bytes that waited at that step.
    pub queue: u32,
    /// Q_ref, bytes.
    pub qref: u32,
    /// Q_mid, bytes.
    pub qmid: u32,
    /// Q_max, bytes.
    pub qmax: u32,
    /// ΔQ, bytes, 1 or more.
    pub chunk: u32,
    /// α̃, with a fraction.
    pub alpha: u32,
    /// β̃, with a fraction.
    pub beta: u32,
    /// Fractional bits of the rate, 0 to 16.
    pub fraction: u8,
}

impl FairRateHistory {
    /// Returns the next rate with `queue` bytes, bit/s: that of [`FairRate::step`].
    pub fn step(&self, queue: u64) -> u64 {
        let mut point = FairRate {
            rate: self.rate.into(),
            least: self.least.min(self.most).into(),
            most: self.most.into(),
            before: self.queue.into(),
            qref: self.qref.into(),
            qmid: self.qmid.into(),
            qmax: self.qmax.into(),
            chunk: self.chunk.max(1).into(),
            alpha: self.alpha.into(),
            beta: self.beta.into(),
            cut: POINT.saturating_sub(self.fraction.into()),
        };
        point.step(queue)
    }
}

impl FairRate {
    /// Returns the inputs of the next step; `None` if a number exceeds 32 bits, as with links of 656 Gbit/s and more.
    pub fn history(&self) -> Option<FairRateHistory> {
        let short = |number: u64| u32::try_from(number).ok();
        let shorter = |number: i64| u32::try_from(number).ok();
        Some(FairRateHistory {
            rate: shorter(self.rate)?,
            least: shorter(self.least)?,
            most: shorter(self.most)?,
            queue: short(self.before)?,
            qref: short(self.qref)?,
            qmid: short(self.qmid)?,
            qmax: short(self.qmax)?,
            chunk: short(self.chunk)?,
            alpha: shorter(self.alpha)?,
            beta: shorter(self.beta)?,
            fraction: (POINT - self.cut.min(POINT)) as u8,
        })
    }
}

#[cfg(test)]
mod tests;
