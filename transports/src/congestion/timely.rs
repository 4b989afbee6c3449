//! TIMELY (Mittal et al., SIGCOMM 2015): a rate that follows the round trip of segments and its gradient; and patched
//! TIMELY (Zhu et al., "ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT 2016), whose flows have
//! a single fixed point, at equal shares, where TIMELY's has infinitely many.
//!
//! Details left open by the paper are from the code that its authors published with it, `timely-code-snippet.cc`.
//! TIMELY ignores losses and timeouts, which are left to the transport (§5). The IRN chapter tried to use them as a
//! signal, for senders that go back N (§4.3.3): `backoff`.

use crate::footprint::{bits, footprint, left, maybe, why, width};
use irnic_units::keys::{Value, ValueError};
use irnic_units::{MAX_NS, MAX_RATE, RATE, TIME};

use super::parameters::{
    Parameter, Parameters, parameter, rate, round_trip, segment, share, share_of_line, share_text, size, switch, time,
};
use super::{Ack, Controller, Line, Share};
use crate::time::{Time, US};

/// Parameters of [`Timely`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TimelyConfig {
    /// T_low, ns: below it the rate rises, whatever the gradient (§4.3).
    pub t_low: u64,
    /// T_high, ns: above it the rate falls, whatever the gradient (§4.3).
    pub t_high: u64,
    /// δ, bit/s: an additive increase.
    pub add: u64,
    /// β, the multiplicative decrease.
    pub decrease: Share,
    /// α, the weight of a new difference of round trips in their moving average.
    pub gain: Share,
    /// N: δ per increase while round trips keep getting shorter. Patched TIMELY has no such mode.
    pub hai: u32,
    /// Number of consecutive completions with a decreasing round trip that begin that mode: "gradient < 0 for five
    /// completion events" (Algorithm 1), of which the authors' code counts differences, not their average.
    pub hai_after: u32,
    /// Round trip of the empty network, ns: the unit of the gradient, and the minimum duration of one full update
    /// (§4.3, §5).
    pub min_rtt: u64,
    /// Maximum share of the rate that one completion takes off. The authors' code has one half; 1 is Algorithm 1 as
    /// printed, where a step of 1.25 minimum round trips leads to the minimum rate.
    pub cut: Share,
    /// Bytes of a segment, which gives one round trip: see [`TimelyConfig::segment`].
    pub segment: u32,
    /// Minimum rate, bit/s.
    pub min_rate: u64,
    /// Share of the line rate with which a flow begins.
    pub initial: Share,
    /// Maximum of a uniformly distributed addition to each round trip, ns, which models the error of software
    /// timestamps (§6.1).
    pub noise: u64,
    /// Rate at which the packets of a segment leave, bit/s: see [`Controller::pacing`].
    pub pacing: u64,
    /// Share of the rate taken off by a loss, once for each recovery, and by a timeout; `None` if losses are no signal.
    pub backoff: Option<Share>,
    /// Whether patched TIMELY is used between the thresholds.
    pub patched: bool,
    /// RTT_ref, ns, of patched TIMELY: the reference round trip of its error.
    pub reference: u64,
}

/// Returns a share from a constant that is valid.
const fn known(value: f64) -> Share {
    match Share::new(value) {
        Some(share) => share,
        None => panic!("above 0 and up to 1"),
    }
}

impl TimelyConfig {
    /// §6, with gaps filled in: α as the authors' code recommends (with 0.875, as in "ECN or Delay" and HPCC's ns-3,
    /// segments sent as bursts waste a third of the link); the minimum rate, which that code calls optional, is δ;
    /// flows start at line rate as in the IRN chapter. A KB is 1000 bytes: §3.1 has 64 of them in 51 µs at 10 Gbit/s.
    pub const PAPER: TimelyConfig = TimelyConfig {
        t_low: 50 * US,
        t_high: 500 * US,
        add: 10_000_000,
        decrease: known(0.8),
        gain: known(0.02),
        hai: 5,
        hai_after: 5,
        min_rtt: 20 * US,
        cut: known(0.5),
        segment: 16_000,
        min_rate: 10_000_000,
        initial: known(1.0),
        noise: 0,
        pacing: 0,
        backoff: None,
        patched: false,
        reference: 50 * US,
    };

    /// "ECN or Delay", §4.3: α is 0.875, β 0.008, in the rule above T_high too, and RTT_ref is T_low.
    pub const PATCHED: TimelyConfig =
        TimelyConfig { patched: true, gain: known(0.875), decrease: known(0.008), ..TimelyConfig::PAPER };

    /// Returns the bytes of a segment, 1 or more: a completion is that of its last packet.
    pub fn segment(&self) -> u32 {
        self.segment.max(1)
    }
}

/// Valid numbers of increases.
const COUNT: &str = "1 to 1000000";

/// Parses the rate at which the packets of a segment leave, bit/s; 0 for `line`.
fn pacing(value: &Value<'_>) -> Result<u64, ValueError> {
    if value.text == "line" { Ok(0) } else { value.rate(1..=MAX_RATE, "line, or a rate such as 5G") }
}

/// Formats a rate for [`pacing`] to parse.
fn pacing_text(bits: u64) -> String {
    if bits == 0 { "line".to_owned() } else { rate(bits) }
}

/// Parses the share of the rate that a loss takes off, or `off`.
fn backoff(value: &Value<'_>) -> Result<Option<Share>, ValueError> {
    if value.text == "off" { Ok(None) } else { share(value).map(Some) }
}

impl Parameters for TimelyConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("t-low", |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.t_low = x), |c| time(c.t_low)),
        parameter("t-high", |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.t_high = x), |c| time(c.t_high)),
        parameter("add", |c, v| v.rate(1..=MAX_RATE, RATE).map(|x| c.add = x), |c| rate(c.add)),
        parameter("decrease", |c, v| share(v).map(|x| c.decrease = x), |c| share_text(c.decrease)),
        parameter("gain", |c, v| share(v).map(|x| c.gain = x), |c| share_text(c.gain)),
        parameter("hai", |c, v| v.number(1..=1_000_000, COUNT).map(|x| c.hai = x), |c| c.hai.to_string()),
        parameter(
            "hai-after",
            |c, v| v.number(1..=1_000_000, COUNT).map(|x| c.hai_after = x),
            |c| c.hai_after.to_string(),
        ),
        parameter("min-rtt", |c, v| round_trip(v).map(|x| c.min_rtt = x), |c| time(c.min_rtt)),
        parameter("cut", |c, v| share(v).map(|x| c.cut = x), |c| share_text(c.cut)),
        parameter("segment", |c, v| segment(v).map(|x| c.segment = x), |c| size(c.segment.into())),
        parameter("min-rate", |c, v| v.rate(1..=MAX_RATE, RATE).map(|x| c.min_rate = x), |c| rate(c.min_rate)),
        parameter("initial", |c, v| share_of_line(v).map(|x| c.initial = x), |c| share_text(c.initial)),
        parameter("noise", |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.noise = x), |c| time(c.noise)),
        parameter("pacing", |c, v| pacing(v).map(|x| c.pacing = x), |c| pacing_text(c.pacing)),
        parameter(
            "backoff",
            |c, v| backoff(v).map(|x| c.backoff = x),
            |c| c.backoff.map_or("off".to_owned(), share_text),
        ),
        parameter("patched", |c, v| v.switch().map(|x| c.patched = x), |c| switch(c.patched)),
        parameter("reference", |c, v| round_trip(v).map(|x| c.reference = x), |c| time(c.reference)),
    ];
}

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Timely {
    config: TimelyConfig,
    /// bit/s, between `least` and `most`.
    rate: f64,
    least: u64,
    most: u64,
    /// Time of the previous completion, and its round trip in ns.
    last: Option<(Time, u64)>,
    /// Moving average of differences of round trips, ns.
    rtt_diff: f64,
    /// Number of consecutive completions with a decreasing round trip.
    falling: u32,
    /// State of the noise generator.
    chance: u64,
}

impl Timely {
    /// Creates the controller of a new flow.
    pub fn new(config: &TimelyConfig, line: &Line) -> Timely {
        let most = line.rate.max(1);
        let least = config.min_rate.clamp(1, most);
        let rate = most as f64 * config.initial.get();
        let mut new = Timely { config: *config, rate, least, most, last: None, rtt_diff: 0.0, falling: 0, chance: 0 };
        new.set(rate);
        new
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.max(self.least as f64).min(self.most as f64);
    }

    /// Returns the addition to a round trip that ends at `now`. Flows draw different numbers because their round trips
    /// end at different times, which act as seeds (SplitMix64).
    fn noise(&mut self, now: Time) -> u64 {
        self.chance = (self.chance ^ now.0).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        ((u128::from(z) * (u128::from(self.config.noise) + 1)) >> 64) as u64
    }

    /// Returns the rate after a completion (Algorithm 1). `part` is the time since the previous completion as a
    /// fraction of a minimum round trip, at most 1.
    fn target(&self, rtt: u64, gradient: f64, part: f64) -> f64 {
        let c = &self.config;
        // §5 scales an update by the number of completions in a minimum round trip; the authors' code by the time since
        // the previous one, which is equivalent and needs no count.
        let (rate, add, decrease) = (self.rate, c.add as f64 * part, c.decrease.get() * part);
        let ns = rtt as f64;
        if rtt < c.t_low {
            rate + add
        } else if rtt > c.t_high {
            rate * (1.0 - decrease * (1.0 - c.t_high as f64 / ns))
        } else if c.patched {
            // "ECN or Delay", w: from 0 at a gradient of -1/4 to 1 at 1/4.
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let reference = c.reference.max(1) as f64;
            add * (1.0 - weight) + rate * (1.0 - decrease * weight * ((ns - reference) / reference))
        } else if gradient <= 0.0 {
            let n = if self.falling >= c.hai_after { f64::from(c.hai.max(1)) } else { 1.0 };
            rate + n * add
        } else {
            // Not scaled: differences over parts of a round trip add up to that over the whole.
            rate * (1.0 - c.decrease.get() * gradient)
        }
    }
}

impl Controller for Timely {
    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        let rtt = if self.config.noise == 0 { rtt } else { rtt.saturating_add(self.noise(now)) };
        let gain = self.config.gain.get();
        let min_rtt = self.config.min_rtt.max(1) as f64;
        let (part, new_diff) = match self.last {
            Some((then, before)) => ((now.since(then) as f64 / min_rtt).min(1.0), rtt as f64 - before as f64),
            None => (1.0, 0.0),
        };
        self.last = Some((now, rtt));
        self.rtt_diff = (1.0 - gain) * self.rtt_diff + gain * new_diff;
        let gradient = self.rtt_diff / min_rtt;
        self.falling = if new_diff < 0.0 { self.falling.saturating_add(1) } else { 0 };
        let target = self.target(rtt, gradient, part).max(self.rate * (1.0 - self.config.cut.get()));
        // §5: increase only if the application has used 80 % of the rate.
        if ack.busy || target < self.rate {
            self.set(target);
        }
    }

    fn on_loss(&mut self, _: Time) {
        if let Some(share) = self.config.backoff {
            self.set(self.rate * (1.0 - share.get()));
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.on_loss(now);
    }

    fn segment(&self) -> Option<u32> {
        Some(self.config.segment())
    }

    fn pacing(&self) -> u64 {
        self.config.pacing
    }

    fn rate(&self) -> u64 {
        (self.rate as u64).clamp(self.least, self.most)
    }
}

footprint!(Timely, |at| {
    config => left(why::SHARED),
    rate => bits(width::RATE),
    least => left(why::SHARED),
    most => left(why::SHARED),
    last => maybe(2 * width::TIME),
    rtt_diff => bits(width::FIXED),
    falling => bits(8),
    chance => bits(64),
});

#[cfg(test)]
mod tests;
