//! Decides the fate of each frame. Pure: the same seed and the same frames give the same verdicts.

use irnic_transports::Time;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::distribution::quantile;
use super::grammar::{DEFAULT_LIMIT, DELAYED_LIMIT, Delay, Distribution, Ecn, Loss, Probability, Reorder, Spec};
use super::line::{Line, Queue};
use super::percent::Percent;

/// Properties of a frame that its verdict depends on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length from BTH to ICRC in bytes: the range in which a bit can be flipped.
    pub bytes: u32,
    /// Length from Ethernet header to ICRC in bytes, as `rate` counts it.
    pub wire_bytes: u32,
    /// Whether the ECN field of the IP header is not 0, that is, the transport is ECN-capable (RFC 3168).
    pub ect: bool,
    /// Whether the three low bits of the DSCP are 1: the frame may be dropped before others (TLT §4).
    pub red: bool,
}

/// Delivery of one copy of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Time of delivery of the copy: the time of the verdict or later.
    pub at: Time,
    /// Time when the copy joins the queue of `rate`: `at` without one.
    pub joined: Time,
    /// Bit to flip, counted from the frame's first: byte `bit / 8`, mask `1 << bit % 8`.
    pub flip_bit: Option<u32>,
    /// Whether to mark the copy as congestion experienced (both bits of the ECN field).
    pub mark_ce: bool,
}

/// Fate of a frame: the copies of it that arrive, none to two.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    copies: [Option<Delivery>; 2],
}

impl Verdict {
    /// Returns the copies that arrive.
    pub fn deliveries(&self) -> impl Iterator<Item = Delivery> {
        self.copies.into_iter().flatten()
    }

    /// Returns the copy that arrives if there is exactly one.
    pub fn only(&self) -> Option<Delivery> {
        match self.copies {
            [Some(copy), None] | [None, Some(copy)] => Some(copy),
            _ => None,
        }
    }

    /// Returns whether no copy arrives.
    pub fn is_drop(&self) -> bool {
        self.copies == [None; 2]
    }
}

/// Counters of frame fates. A duplicate counts as a frame of its own in all of them but `seen`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames judged.
    pub seen: u64,
    /// Frames lost by `loss`.
    pub dropped: u64,
    /// Frames marked by `ecn`: those that `loss` would have dropped, or that met a long queue.
    pub marked: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames that skipped the delay.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames delivered later than they arrived, by `delay` or by `rate`.
    pub delayed: u64,
    /// Notices of the fair rate that `rocc` has sent.
    pub notices: u64,
    /// Frames dropped because `limit` frames were already waiting, or because the queue of `trim` was full and they had
    /// payload that could not be cut off, or by `prio` or a `policy`.
    pub over_limit: u64,
    /// Of those, frames that `prio` or a `policy` dropped after they had waited, to make room for others.
    pub pushed_out: u64,
    /// Of those, frames that `prio` or a `policy` dropped, by their priority.
    pub priority_drops: [u64; 8],
    /// Frames that have left the line of `prio` or a `policy`, by their priority.
    pub priority_frames: [u64; 8],
    /// Red frames dropped because the queue before the line held as many as `red` allows.
    pub red_drops: u64,
    /// Frames whose payload `trim` or a `policy` cut off.
    pub trimmed: u64,
    /// Trimmed frames returned to their sender because the queue for frames without payload was full.
    pub returned: u64,
    /// Frames without payload, or whose payload was cut off, dropped because that queue was full.
    pub header_drops: u64,
}

/// The impairments of one direction with their state: random numbers, queue of `rate`, counters.
///
/// With `trim`, `prio` or `policy` a verdict gives the time when a copy reaches the line, which sends it, or its
/// headers, later: its fate there depends on its bytes and on future frames, and is left to [`super::port`].
#[derive(Clone, Debug)]
pub struct Impairment {
    random: Pcg64,
    loss: LossModel,
    /// Frames that `loss` would drop are marked instead.
    mark_lost: bool,
    duplicate: Trial,
    corrupt: Trial,
    delay: Delay,
    jitter: Correlated,
    reorder: Option<(Trial, u32)>,
    /// Frames delayed since the last one that skipped the delay.
    since_reorder: u32,
    line: Option<Line>,
    /// Frames not held back by `delay` wait for a line outside the engine.
    external_line: bool,
    limit: usize,
    counters: Counters,
}

impl Impairment {
    /// Creates the impairments described by `spec`. `seed` is used unless `spec` has one. `stream` separates the random
    /// numbers of directions and ports that share a seed.
    pub fn new(spec: &Spec, seed: u64, stream: u64) -> Impairment {
        let seed = Impairment::seed(spec, seed, stream);
        let delay = spec.delay.unwrap_or_default();
        // A line with queues has its own room: only delayed frames count.
        let external_line = spec.has_queues();
        let at_once = external_line && spec.delay.is_none();
        let usual = if spec.prio.is_some() { DELAYED_LIMIT } else { DEFAULT_LIMIT };
        let limit = if at_once { usize::MAX } else { spec.limit.unwrap_or(usual) as usize };
        Impairment {
            random: Pcg64::seed_from_u64(seed),
            loss: LossModel::new(spec.loss),
            mark_lost: spec.ecn == Some(Ecn::Lost),
            duplicate: Trial::new(spec.duplicate.unwrap_or_default()),
            corrupt: Trial::new(spec.corrupt.unwrap_or_default()),
            delay,
            jitter: Correlated::new(delay.correlation),
            reorder: spec.reorder.map(|Reorder { probability, gap }| (Trial::new(probability), gap)),
            since_reorder: 0,
            line: spec.rate.filter(|_| !external_line).map(|rate| Line::new(rate, spec.red(), spec.colour)),
            external_line,
            limit,
            counters: Counters::default(),
        }
    }

    /// Returns the seed of a direction.
    pub(super) fn seed(spec: &Spec, seed: u64, stream: u64) -> u64 {
        // The golden ratio in 64 bits spreads small stream numbers.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        spec.seed.unwrap_or(seed) ^ stream.wrapping_mul(SPREAD)
    }

    /// Returns the verdict on a frame that arrives at `now` while `held` frames are waiting. `now` should not decrease.
    pub fn judge(&mut self, now: Time, frame: Frame, held: usize) -> Verdict {
        self.counters.seen += 1;
        let first = self.fate(now, frame, held);
        let mut verdict = Verdict { copies: [first, None] };
        if self.duplicate.hits(&mut self.random) {
            self.counters.duplicated += 1;
            let held = held + usize::from(first.is_some_and(|copy| copy.at > now));
            verdict.copies[1] = self.fate(now, frame, held);
        }
        verdict
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the counters, to update for fates decided after the verdict.
    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Returns the queue length of `rate`; `None` without a `rate`, or with `trim`, `prio` or `policy`.
    pub fn queue(&self) -> Option<Queue> {
        self.line.as_ref().map(Line::queue)
    }

    /// Returns the queue length of `rate` in red frames alone; `None` without `red`.
    pub fn red_queue(&self) -> Option<Queue> {
        self.line.as_ref().and_then(Line::red_queue)
    }

    /// Decides on one copy, in netem's order: loss, corruption, limit, delay.
    fn fate(&mut self, now: Time, frame: Frame, held: usize) -> Option<Delivery> {
        let lost = self.loss.hits(&mut self.random);
        let spared = lost && self.mark_lost && frame.ect;
        if lost && !spared {
            self.counters.dropped += 1;
            return None;
        }
        let mut flip_bit = None;
        if frame.bytes > 0 && self.corrupt.hits(&mut self.random) {
            self.counters.corrupted += 1;
            flip_bit = Some(below(self.random.next_u64(), u64::from(frame.bytes) * 8) as u32);
        }
        if held >= self.limit {
            self.counters.over_limit += 1;
            return None;
        }
        let Some((joined, at, queued)) = self.departure(now, &frame) else {
            self.counters.red_drops += 1;
            return None;
        };
        let mark_ce = spared || queued && frame.ect;
        self.counters.marked += u64::from(mark_ce);
        self.counters.delayed += u64::from(at > now && !self.external_line);
        Some(Delivery { at, joined, flip_bit, mark_ce })
    }

    /// Returns when a frame joins the queue and when it leaves, and whether the queue marks it; `None` if the queue is
    /// full.
    fn departure(&mut self, now: Time, frame: &Frame) -> Option<(Time, Time, bool)> {
        let skips = match &mut self.reorder {
            Some((trial, gap)) => self.since_reorder >= *gap - 1 && trial.hits(&mut self.random),
            None => false,
        };
        let ready = if skips {
            self.since_reorder = 0;
            self.counters.reordered += 1;
            now
        } else {
            self.since_reorder = self.since_reorder.saturating_add(1);
            now + self.delay()
        };
        let Impairment { line, random, .. } = self;
        let Some(line) = line else { return Some((ready, ready, false)) };
        if !line.has_room(now, ready, frame) {
            return None;
        }
        let (at, marks) = if skips { line.overtake(now, frame, random) } else { line.send(ready, frame, random) };
        Some((ready, at, marks))
    }

    /// Draws a delay in ns.
    fn delay(&mut self) -> u64 {
        let Delay { ns, jitter_ns, distribution, .. } = self.delay;
        if jitter_ns == 0 {
            return ns;
        }
        let draw = self.jitter.draw(&mut self.random);
        if distribution == Distribution::Uniform {
            return (ns + below(draw, 2 * jitter_ns + 1)).saturating_sub(jitter_ns);
        }
        // 52 bits and half a step, which is exact and yields neither 0 nor 1.
        let u = ((draw >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
        let jitter = (quantile(distribution, u) * jitter_ns as f64).round() as i64;
        ns.saturating_add_signed(jitter)
    }
}

/// Scales a uniform draw to `0..bound`.
fn below(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// Uniform draws, each of which repeats the previous one with the probability of the correlation.
///
/// Netem instead mixes the previous value into the new one, which concentrates values around the middle, so that `loss
/// 1% 50%` loses next to nothing. Here the probability stays as configured, and the correlation of successive draws is
/// exact.
#[derive(Clone, Debug)]
struct Correlated {
    last: Option<u64>,
    repeat: Option<u64>,
}

impl Correlated {
    fn new(correlation: Percent) -> Correlated {
        Correlated { last: None, repeat: correlation.threshold() }
    }

    fn draw(&mut self, random: &mut Pcg64) -> u64 {
        if self.repeat == Some(0) {
            return random.next_u64();
        }
        match self.last {
            Some(last) if self.repeat.is_none_or(|threshold| random.next_u64() < threshold) => last,
            _ => *self.last.insert(random.next_u64()),
        }
    }
}

/// An event that happens with a given probability for each frame.
#[derive(Clone, Debug)]
struct Trial {
    threshold: Option<u64>,
    draws: Correlated,
}

impl Trial {
    fn new(probability: Probability) -> Trial {
        Trial { threshold: probability.percent.threshold(), draws: Correlated::new(probability.correlation) }
    }

    fn hits(&mut self, random: &mut Pcg64) -> bool {
        match self.threshold {
            Some(0) => false,
            Some(threshold) => self.draws.draw(random) < threshold,
            None => true,
        }
    }
}

#[derive(Clone, Debug)]
enum LossModel {
    Random(Trial),
    GilbertElliott { to_bad: Trial, to_good: Trial, in_bad: Trial, in_good: Trial, bad: bool },
}

impl LossModel {
    fn new(loss: Option<Loss>) -> LossModel {
        let plain = |percent| Trial::new(Probability { percent, correlation: Percent::ZERO });
        match loss {
            None => LossModel::Random(Trial::new(Probability::default())),
            Some(Loss::Random(probability)) => LossModel::Random(Trial::new(probability)),
            Some(Loss::GilbertElliott { p, r, bad, good }) => LossModel::GilbertElliott {
                to_bad: plain(p),
                to_good: plain(r),
                in_bad: plain(bad),
                in_good: plain(good),
                bad: false,
            },
        }
    }

    /// Returns whether the next frame is lost. As in netem, the current state decides, and the state then changes for
    /// the next frame.
    fn hits(&mut self, random: &mut Pcg64) -> bool {
        match self {
            LossModel::Random(trial) => trial.hits(random),
            LossModel::GilbertElliott { to_bad, to_good, in_bad, in_good, bad } => {
                let (change, lost) = if *bad { (to_good, in_bad) } else { (to_bad, in_good) };
                *bad ^= change.hits(random);
                lost.hits(random)
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
