//! RoCC (Menikkumbura et al., CoNEXT 2020): switches compute the fair rate of a port and notify the flows that wait
//! there; a flow adopts the rate in the notice, and doubles it when notices cease.
//!
//! [`Rocc`] is the reaction point, the controller of a queue pair (Algorithm 2). [`FairRate`] is the congestion point,
//! a port of a switch (Algorithm 1).

mod point;

pub use point::{FairRate, FairRateConfig, FairRateHistory};

use crate::footprint::{bits, footprint, instant, left, maybe, why, width};
use irnic_units::{MAX_NS, MAX_RATE, RATE, TIME};

use super::parameters::{Parameter, Parameters, parameter, rate, time};
use super::{Ack, Controller, Line, Point};
use crate::time::{Time, US};

/// Parameters of [`Rocc`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RoccConfig {
    /// Delay from the arrival of a notice to the rate change, ns: a NIC's processing time (§6.1).
    pub reaction: u64,
    /// Time without an applicable notice after which the rate doubles, ns. Longer than the switches' period, or rates
    /// never settle.
    pub recovery: u64,
    /// Minimum rate, bit/s.
    pub min_rate: u64,
}

impl RoccConfig {
    /// The paper's evaluation: a reaction within 15 µs, at least 100 Mbit/s. The recovery timer is from its authors'
    /// code, 1.375 of the period of 40 µs.
    pub const PAPER: RoccConfig = RoccConfig { reaction: 15 * US, recovery: 55 * US, min_rate: 100_000_000 };
}

impl Parameters for RoccConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("reaction", |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.reaction = x), |c| time(c.reaction)),
        parameter("recovery", |c, v| v.time(1..=MAX_NS, TIME).map(|x| c.recovery = x), |c| time(c.recovery)),
        parameter("min-rate", |c, v| v.rate(1..=MAX_RATE, RATE).map(|x| c.min_rate = x), |c| rate(c.min_rate)),
    ];
}

/// A notice that has arrived and has not taken effect yet.
#[derive(Copy, Clone, Debug)]
struct Pending {
    due: Time,
    point: Point,
    rate: u64,
}

/// Maximum number of pending notices: each switch of a path sends one per period, which is longer than a reaction.
/// Notices beyond that are dropped.
const PENDING: usize = 8;

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Rocc {
    config: RoccConfig,
    /// R_cur, bit/s, between `least` and `most`; at `most` there is no limiter.
    rate: u64,
    least: u64,
    most: u64,
    /// CP_cur: the point that the rate is from.
    point: Option<Point>,
    /// Time at which the rate doubles.
    recover: Time,
    /// The first `waiting` are valid, in order of arrival.
    pending: [Pending; PENDING],
    waiting: usize,
}

impl Rocc {
    /// Creates the controller of a new flow, at line rate.
    pub fn new(config: &RoccConfig, line: &Line) -> Rocc {
        let most = line.rate.max(1);
        Rocc {
            config: *config,
            rate: most,
            least: config.min_rate.clamp(1, most),
            most,
            point: None,
            recover: Time::NEVER,
            pending: [Pending { due: Time::NEVER, point: Point(0), rate: 0 }; PENDING],
            waiting: 0,
        }
    }

    /// Returns when the oldest pending notice takes effect.
    #[inline]
    fn reacts(&self) -> Time {
        if self.waiting > 0 { self.pending[0].due } else { Time::NEVER }
    }

    /// Adopts a rate from the switch of the present one, or a lower one from any.
    fn take(&mut self, Pending { due, point, rate }: Pending) {
        if self.point.is_none_or(|current| current == point) || rate <= self.rate {
            self.rate = rate.clamp(self.least, self.most);
            self.point = Some(point);
            self.recover = due + self.config.recovery;
        }
    }

    /// Doubles the rate after a time without notices.
    fn double(&mut self) {
        self.recover = if self.rate >= self.most { Time::NEVER } else { self.recover + self.config.recovery };
        self.rate = self.rate.saturating_mul(2).min(self.most);
    }
}

impl Controller for Rocc {
    fn on_ack(&mut self, _: Time, _: &Ack) {}

    fn on_fair_rate(&mut self, now: Time, point: Point, rate: u64) {
        let notice = Pending { due: now + self.config.reaction, point, rate };
        if self.config.reaction == 0 {
            self.take(notice);
        } else if let Some(free) = self.pending.get_mut(self.waiting) {
            *free = notice;
            self.waiting += 1;
        }
    }

    fn on_timer(&mut self, now: Time) {
        while self.next_deadline() <= now {
            if self.reacts() <= self.recover {
                let notice = self.pending[0];
                self.pending.copy_within(1..self.waiting, 0);
                self.waiting -= 1;
                self.take(notice);
            } else {
                self.double();
            }
        }
    }

    #[inline]
    fn next_deadline(&self) -> Time {
        self.reacts().min(self.recover)
    }

    #[inline]
    fn rate(&self) -> u64 {
        self.rate
    }
}

footprint!(Rocc, |at| {
    config => left(why::SHARED),
    rate => bits(width::RATE),
    least => left(why::SHARED),
    most => left(why::SHARED),
    point => maybe(64),
    recover => instant(),
    pending => bits(pending.len() as u64 * (width::TIME + 64 + width::RATE)),
    waiting => bits(4),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::CongestionConfig;

    const GBIT: u64 = 1_000_000_000;
    const LINE: Line = Line { rate: 40 * GBIT, base_rtt: 6_000, mtu: 1024 };
    const NEAR: Point = Point(1);
    const FAR: Point = Point(2);

    /// A flow that reacts without delay.
    fn prompt() -> Rocc {
        Rocc::new(&RoccConfig { reaction: 0, ..RoccConfig::PAPER }, &LINE)
    }

    #[test]
    fn begins_at_line_rate_and_waits_for_nothing() {
        let flow = Rocc::new(&RoccConfig::PAPER, &LINE);
        assert_eq!((flow.rate(), flow.next_deadline()), (40 * GBIT, Time::NEVER));
    }

    #[test]
    fn obeys_a_notice_after_the_time_of_reaction() {
        let mut flow = Rocc::new(&RoccConfig::PAPER, &LINE);
        flow.on_fair_rate(Time(1_000), NEAR, 4 * GBIT);
        assert_eq!((flow.rate(), flow.next_deadline()), (40 * GBIT, Time(16_000)));
        flow.on_timer(Time(15_999));
        assert_eq!(flow.rate(), 40 * GBIT);
        flow.on_timer(Time(16_000));
        assert_eq!((flow.rate(), flow.next_deadline()), (4 * GBIT, Time(71_000)));
    }

    #[test]
    fn obeys_the_switch_of_its_rate_and_lower_rates_of_any() {
        let mut flow = prompt();
        flow.on_fair_rate(Time(0), NEAR, 4 * GBIT);
        flow.on_fair_rate(Time(10), FAR, 5 * GBIT);
        assert_eq!((flow.rate(), flow.next_deadline()), (4 * GBIT, Time(55_000)));
        flow.on_fair_rate(Time(20), NEAR, 6 * GBIT);
        assert_eq!((flow.rate(), flow.next_deadline()), (6 * GBIT, Time(55_020)));
        flow.on_fair_rate(Time(30), FAR, 5 * GBIT);
        flow.on_fair_rate(Time(40), NEAR, 6 * GBIT);
        assert_eq!((flow.rate(), flow.next_deadline()), (5 * GBIT, Time(55_030)));
        // An equal rate is low enough (Algorithm 2).
        flow.on_fair_rate(Time(50), NEAR, 5 * GBIT);
        flow.on_fair_rate(Time(60), FAR, 7 * GBIT);
        assert_eq!((flow.rate(), flow.next_deadline()), (5 * GBIT, Time(55_050)));
    }

    #[test]
    fn doubles_up_to_the_line_when_it_hears_nothing() {
        let mut flow = prompt();
        flow.on_fair_rate(Time(0), NEAR, 11 * GBIT);
        for (at, rate) in [(55_000, 22), (110_000, 40)] {
            flow.on_timer(Time(at - 1));
            flow.on_timer(Time(at));
            assert_eq!(flow.rate(), rate * GBIT);
        }
        flow.on_timer(Time(165_000));
        assert_eq!((flow.rate(), flow.next_deadline()), (40 * GBIT, Time::NEVER));
    }

    #[test]
    fn a_late_call_does_what_was_due_in_its_order() {
        let mut flow = Rocc::new(&RoccConfig::PAPER, &LINE);
        flow.on_fair_rate(Time(0), NEAR, GBIT);
        flow.on_fair_rate(Time(50_000), NEAR, 3 * GBIT);
        flow.on_fair_rate(Time(56_000), NEAR, 5 * GBIT);
        // 1 from 15 µs, 3 from 65 µs, 5 from 71 µs, 10 from 126 µs.
        flow.on_timer(Time(130_000));
        assert_eq!((flow.rate(), flow.next_deadline()), (10 * GBIT, Time(181_000)));
    }

    #[test]
    fn keeps_the_least_rate_and_forgets_notices_beyond_its_room() {
        let mut flow = prompt();
        flow.on_fair_rate(Time(0), NEAR, 1);
        assert_eq!(flow.rate(), 100_000_000);
        let mut flow = Rocc::new(&RoccConfig::PAPER, &LINE);
        for n in 1..=PENDING as u64 + 1 {
            flow.on_fair_rate(Time(0), NEAR, n * GBIT);
        }
        flow.on_timer(Time(20_000));
        assert_eq!(flow.rate(), PENDING as u64 * GBIT);
    }

    #[test]
    fn needs_fair_rates_only() {
        let config: CongestionConfig = "rocc,recovery=137500ns".parse().unwrap();
        assert_eq!(config, CongestionConfig::Rocc(RoccConfig { recovery: 137_500, ..RoccConfig::PAPER }));
        assert!(config.uses_fair_rate() && !config.uses_ecn() && !config.uses_telemetry());
        assert_eq!((config.cnp_interval(), CongestionConfig::None.uses_fair_rate()), (None, false));
    }
}
