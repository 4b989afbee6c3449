//! FAST*, to which TIMELY is compared (Mittal et al., SIGCOMM 2015, §6.1). FAST TCP's equation (Wei et al., IEEE/ACM
//! ToN 2006), with the window as a rate and the packets that a flow keeps in queues, α, in units of a rate.
//!
//! The rate follows the excess of a round trip over the shortest: at equilibrium a flow has R · (1 − base/RTT) = α.

use super::parameters::{
    Parameter, Parameters, Share, parameter, rate, round_trip, segment, share, share_of_line, share_text, size, time,
};
use super::{Ack, Controller, Line};
use crate::footprint::{bits, footprint, instant, left, maybe, why, width};
use crate::time::{Time, US};
use irnic_units::{MAX_RATE, RATE};

/// Parameters of [`Fast`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastConfig {
    /// α, bit/s: the share that a flow keeps in queues.
    pub alpha: u64,
    /// γ, the weight of the new rate.
    pub gamma: Share,
    /// Round trip of the empty network, ns, until a shorter one is seen: TIMELY knows it in advance (§4.2), and flows
    /// that begin in a queue would take that for the empty network for ever.
    pub min_rtt: u64,
    /// Bytes of a segment, which gives one round trip.
    pub segment: u32,
    /// Minimum rate, bit/s.
    pub min_rate: u64,
    /// Share of the line rate with which a flow begins.
    pub initial: Share,
}

impl FastConfig {
    /// The second of the three α of TIMELY's Table 1; γ is FAST's own (§IV of its paper), which TIMELY's does not
    /// mention. The rest is as for TIMELY here.
    pub const PAPER: FastConfig = FastConfig {
        alpha: 50_000_000,
        gamma: Share::new(0.5).unwrap(),
        min_rtt: 20 * US,
        segment: 16_000,
        min_rate: 10_000_000,
        initial: Share::new(1.0).unwrap(),
    };
}

impl Parameters for FastConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("alpha", |c, v| v.rate(1..=MAX_RATE, RATE).map(|x| c.alpha = x), |c| rate(c.alpha)),
        parameter("gamma", |c, v| share(v).map(|x| c.gamma = x), |c| share_text(c.gamma)),
        parameter("min-rtt", |c, v| round_trip(v).map(|x| c.min_rtt = x), |c| time(c.min_rtt)),
        parameter("segment", |c, v| segment(v).map(|x| c.segment = x), |c| size(c.segment.into())),
        parameter("min-rate", |c, v| v.rate(1..=MAX_RATE, RATE).map(|x| c.min_rate = x), |c| rate(c.min_rate)),
        parameter("initial", |c, v| share_of_line(v).map(|x| c.initial = x), |c| share_text(c.initial)),
    ];
}

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Fast {
    config: FastConfig,
    /// bit/s, between `least` and `most`.
    rate: f64,
    least: f64,
    most: f64,
    /// The shortest round trip so far, ns.
    base: u64,
    /// Time of the previous completion.
    last: Option<Time>,
}

impl Fast {
    /// Creates the controller of a new flow.
    pub fn new(config: &FastConfig, line: &Line) -> Fast {
        let most = line.rate.max(1) as f64;
        let least = (config.min_rate.max(1) as f64).min(most);
        let rate = (most * config.initial.get()).max(least);
        Fast { config: *config, rate, least, most, base: config.min_rtt.max(1), last: None }
    }
}

impl Controller for Fast {
    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let Some(rtt) = ack.rtt.map(|ns| ns.max(1)) else { return };
        self.base = self.base.min(rtt);
        // FAST updates its window once per round trip; completions within one share the update.
        let part = self.last.map_or(1.0, |then| (now.since(then) as f64 / rtt as f64).min(1.0));
        self.last = Some(now);
        let gamma = self.config.gamma.get() * part;
        let settled = self.base as f64 / rtt as f64 * self.rate + self.config.alpha as f64;
        let target = ((1.0 - gamma) * self.rate + gamma * settled).min(2.0 * self.rate);
        // As in TIMELY (§5): no increase while the rate is not used.
        if ack.busy || target < self.rate {
            self.rate = target.max(self.least).min(self.most);
        }
    }

    fn segment(&self) -> Option<u32> {
        Some(self.config.segment.max(1))
    }

    fn rate(&self) -> u64 {
        self.rate as u64
    }
}

footprint!(Fast, |at| {
    config => left(why::SHARED),
    rate => bits(width::RATE),
    least => left(why::SHARED),
    most => left(why::SHARED),
    base => instant(),
    last => maybe(width::TIME),
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::CongestionConfig;

    const LINE: Line = Line { rate: 10_000_000_000, base_rtt: 20_000, mtu: 1000 };

    /// At 1 Gbit/s; α is 50 Mbit/s, γ 1/2.
    fn flow() -> Fast {
        Fast::new(&FastConfig { initial: Share::new(0.1).unwrap(), ..FastConfig::PAPER }, &LINE)
    }

    fn ack(flow: &mut Fast, at: u64, rtt: u64, busy: bool) -> u64 {
        flow.on_ack(Time(at), &Ack { rtt: Some(rtt), busy, ..Ack::default() });
        flow.rate()
    }

    #[test]
    fn half_way_to_what_leaves_alpha_in_queues() {
        let mut flow = flow();
        // The shortest so far: 1000/2 + (1000 + 50)/2.
        assert_eq!(ack(&mut flow, 0, 20_000, true), 1_025_000_000);
        // Twice as long: 1025/2 + (1025/2 + 50)/2.
        assert_eq!(ack(&mut flow, 40_000, 40_000, true), 793_750_000);
        // A quarter of a round trip later, a quarter of it: 793.75 · 7/8 + (793.75/2 + 50)/8.
        assert_eq!(ack(&mut flow, 50_000, 40_000, true), 750_390_625);
        // A new shortest one: 750.390625 + 50/2.
        assert_eq!(ack(&mut flow, 150_000, 10_000, true), 775_390_625);
    }

    #[test]
    fn rests_where_alpha_is_in_queues() {
        // 500 · (1 − 20/RTT) = 50 at 22.2 µs.
        let mut flow = flow();
        ack(&mut flow, 0, 20_000, true);
        flow.rate = 500e6;
        let at_rest = |at: u64, flow: &mut Fast| ack(flow, at, 22_222, true);
        assert!((1..100).map(|n| at_rest(n * 30_000, &mut flow)).all(|r| r.abs_diff(500_000_000) < 100_000));
    }

    #[test]
    fn at_most_doubles_and_keeps_its_bounds() {
        let mut flow = Fast::new(&"fast,alpha=9G,initial=0.01".parse::<CongestionConfig>().map(fast).unwrap(), &LINE);
        assert_eq!(ack(&mut flow, 0, 20_000, true), 200_000_000);
        for n in 1..20 {
            ack(&mut flow, n * 30_000, 20_000, true);
        }
        assert_eq!(flow.rate(), 10_000_000_000);
        let mut flow = self::flow();
        for n in 0..100 {
            ack(&mut flow, n * 3_000_000_000, if n == 0 { 1 } else { 3_000_000_000 }, true);
        }
        // It halves each time until α's half balances that: 25 / (1 − 1/2).
        assert!(flow.rate().abs_diff(50_000_000) < 1_000, "{}", flow.rate());
    }

    #[test]
    fn an_idle_application_gets_no_increase() {
        let mut flow = flow();
        assert_eq!(ack(&mut flow, 0, 20_000, false), 1_000_000_000);
        assert!(ack(&mut flow, 40_000, 40_000, false) < 1_000_000_000);
    }

    #[test]
    fn only_round_trips_count() {
        let mut flow = flow();
        flow.on_ack(Time(1), &Ack { packets: 9, marked: true, busy: true, ..Ack::default() });
        flow.on_loss(Time(2));
        flow.on_timeout(Time(3));
        assert_eq!((flow.rate(), flow.window(), flow.segment()), (1_000_000_000, u32::MAX, Some(16_000)));
    }

    fn fast(config: CongestionConfig) -> FastConfig {
        let CongestionConfig::Fast(config) = config else { panic!("{config:?}") };
        config
    }

    proptest! {
        #[test]
        fn the_rate_stays_within_its_bounds(
            alpha in 1..=MAX_RATE,
            acks in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..60),
        ) {
            let mut flow = Fast::new(&FastConfig { alpha, ..FastConfig::PAPER }, &LINE);
            for (at, rtt, busy) in acks {
                let rate = ack(&mut flow, at, rtt, busy);
                prop_assert!((10_000_000..=10_000_000_000).contains(&rate));
            }
        }
    }
}
