//! DCQCN (Zhu et al., SIGCOMM 2015): the reaction point, which cuts its rate on congestion notification packets and
//! then recovers. It has QCN's rate increase, by timer and by bytes, and DCTCP's α.
//!
//! Notifications have two interpretations. In the paper they act on arrival. In the vendor's, as in HPCC's ns-3, they
//! are gathered: they act on α at the end of each of its periods, on the rate at the end of each decrease interval.
//!
//! α's periods are counted when α is next needed, so that only increases and gathered decreases need a timer. Increases
//! stop at the line rate, where they have no effect: an uncongested flow costs nothing.

use crate::footprint::{bits, flag, footprint, instant, left, why, width};
use irnic_units::keys::{Value, ValueError};
use irnic_units::math::power;
use irnic_units::{MAX_BYTES, MAX_NS, MAX_RATE, TIME};

use super::parameters::{Parameter, Parameters, Share, parameter, rate, share, share_text, size, switch, time};
use super::{Ack, Controller, Line};
use crate::time::{Time, US};
use crate::wire::Cnp;

/// A rate, absolute or relative to the line rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Absolute rate, bit/s.
    Rate(u64),
    /// The line rate divided by this.
    Line(u64),
}

impl Step {
    /// Formats the step for [`Step::read`] to parse.
    pub(super) fn text(self) -> String {
        match self {
            Step::Rate(bits) => rate(bits),
            Step::Line(divisor) => format!("line/{divisor}"),
        }
    }

    /// Returns the rate in bit/s, 1 or more, so that increases make progress.
    pub(super) fn of(self, line: u64) -> u64 {
        match self {
            Step::Rate(rate) => rate,
            Step::Line(divisor) => line / divisor.max(1),
        }
        .max(1)
    }

    pub(super) fn read(value: &Value<'_>) -> Result<Step, ValueError> {
        match value.text.strip_prefix("line/").and_then(|d| d.parse().ok()).filter(|d| (1..=1_000_000).contains(d)) {
            Some(divisor) => Ok(Step::Line(divisor)),
            None => value.rate(1..=MAX_RATE, "a rate such as 40M, or line/1 to line/1000000").map(Step::Rate),
        }
    }
}

/// Parameters of [`Dcqcn`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Weight of new samples in α (equations 1 and 2).
    pub g: Share,
    /// α's period without notifications, ns (K in the paper).
    pub alpha_timer: u64,
    /// Time between increases, ns (T in the paper).
    pub rate_timer: u64,
    /// Interval for which notifications are gathered, ns, as in α's periods; 0: every notification acts on arrival.
    pub decrease_interval: u64,
    /// Bytes between increases (B in the paper); `None`: only time counts.
    pub byte_counter: Option<u64>,
    /// Increases of each counter in fast recovery.
    pub f: u32,
    /// Step of additive increase.
    pub ai: Step,
    /// Step of hyper increase.
    pub hai: Step,
    /// Lowest rate.
    pub min_rate: Step,
    /// Whether a decrease sets the target even without an increase since the previous one. If not, repeated decreases
    /// leave a rate to recover to.
    pub clamp_target: bool,
    /// Minimum interval between the notification point's notifications to a flow, ns; 0 for one per marked packet.
    pub cnp_interval: u64,
}

impl DcqcnConfig {
    /// The paper's (§5.2), except the minimum rate, which it does not give: that is from its authors' ns-3.
    pub const PAPER: DcqcnConfig = DcqcnConfig {
        g: Share::new(1.0 / 256.0).unwrap(),
        alpha_timer: 55 * US,
        rate_timer: 55 * US,
        decrease_interval: 0,
        byte_counter: Some(10_000_000),
        f: 5,
        ai: Step::Rate(40_000_000),
        hai: Step::Rate(400_000_000),
        min_rate: Step::Rate(100_000_000),
        clamp_target: true,
        cnp_interval: 50 * US,
    };

    /// The vendor's profile in public simulators, as HPCC's ns-3 runs it: steps of 5 and 50 Mbit/s per 25 Gbit/s of
    /// line rate, time alone, and a notification for every mark.
    pub const VENDOR: DcqcnConfig = DcqcnConfig {
        g: Share::new(1.0 / 256.0).unwrap(),
        alpha_timer: US,
        rate_timer: 300 * US,
        decrease_interval: 4 * US,
        byte_counter: None,
        f: 1,
        ai: Step::Line(5_000),
        hai: Step::Line(500),
        min_rate: Step::Rate(100_000_000),
        clamp_target: false,
        cnp_interval: 0,
    };
}

fn period(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(US..=MAX_NS, "a time of 1us or more")
}

fn byte_counter(value: &Value<'_>) -> Result<Option<u64>, ValueError> {
    if value.text == "off" { Ok(None) } else { value.size(1..=MAX_BYTES, "off, or a size such as 10MB").map(Some) }
}

impl Parameters for DcqcnConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("g", |c, v| share(v).map(|x| c.g = x), |c| share_text(c.g)),
        parameter("alpha-timer", |c, v| period(v).map(|x| c.alpha_timer = x), |c| time(c.alpha_timer)),
        parameter("rate-timer", |c, v| period(v).map(|x| c.rate_timer = x), |c| time(c.rate_timer)),
        parameter(
            "decrease-interval",
            |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.decrease_interval = x),
            |c| time(c.decrease_interval),
        ),
        parameter(
            "byte-counter",
            |c, v| byte_counter(v).map(|x| c.byte_counter = x),
            |c| c.byte_counter.map_or("off".to_owned(), size),
        ),
        parameter("f", |c, v| v.number(0..=1_000, "0 to 1000 increases").map(|x| c.f = x), |c| c.f.to_string()),
        parameter("ai", |c, v| Step::read(v).map(|x| c.ai = x), |c| c.ai.text()),
        parameter("hai", |c, v| Step::read(v).map(|x| c.hai = x), |c| c.hai.text()),
        parameter("min-rate", |c, v| Step::read(v).map(|x| c.min_rate = x), |c| c.min_rate.text()),
        parameter("clamp-target", |c, v| v.switch().map(|x| c.clamp_target = x), |c| switch(c.clamp_target)),
        parameter(
            "cnp-interval",
            |c, v| v.time(0..=MAX_NS, TIME).map(|x| c.cnp_interval = x),
            |c| time(c.cnp_interval),
        ),
    ];
}

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    config: DcqcnConfig,
    /// Line rate, bit/s.
    line: u64,
    /// R_C and R_T, bit/s: minimum rate <= `rate` <= `target` <= `line`.
    rate: u64,
    target: u64,
    /// Value at `alpha_at`, the start of one of its periods; [`Time::NEVER`] before the first notification.
    alpha: f64,
    alpha_at: Time,
    /// Whether α's period had a notification. Used only if they are gathered.
    noted: bool,
    /// Time at which gathered notifications act on the rate, a multiple of the decrease interval after the first one.
    decrease_at: Time,
    first_at: Time,
    /// Time of the next increase by time; [`Time::NEVER`] at the line rate.
    increase_at: Time,
    /// Bytes since the last increase by bytes.
    sent: u64,
    /// Increases since the last decrease, by time and by bytes (T and BC in figure 7).
    by_time: u32,
    by_bytes: u32,
}

impl Dcqcn {
    /// Creates the controller of a new flow: at line rate, with α = 1.
    pub fn new(config: &DcqcnConfig, line: &Line) -> Dcqcn {
        Dcqcn {
            config: *config,
            line: line.rate,
            rate: line.rate,
            target: line.rate,
            alpha: 1.0,
            alpha_at: Time::NEVER,
            noted: false,
            decrease_at: Time::NEVER,
            first_at: Time::NEVER,
            increase_at: Time::NEVER,
            sent: 0,
            by_time: 0,
            by_bytes: 0,
        }
    }

    /// Brings α up to date: each period with a notification raises it (equation 1), each without lowers it (equation
    /// 2).
    fn age(&mut self, now: Time) {
        let period = self.config.alpha_timer.max(1);
        let mut periods = now.since(self.alpha_at) / period;
        if periods == 0 {
            return;
        }
        self.alpha_at += periods * period;
        if std::mem::take(&mut self.noted) {
            self.raise();
            periods -= 1;
        }
        self.alpha *= power(1.0 - self.config.g.get(), periods);
    }

    fn raise(&mut self) {
        self.alpha += self.config.g.get() * (1.0 - self.alpha);
    }

    /// Applies equation 1 and figure 7's "cut rate".
    fn decrease(&mut self, now: Time) {
        if self.config.clamp_target || self.by_time.max(self.by_bytes) > 0 {
            self.target = self.rate;
        }
        let least = self.config.min_rate.of(self.line).min(self.rate);
        self.rate = ((self.rate as f64 * (1.0 - self.alpha / 2.0)) as u64).clamp(least, self.rate);
        (self.by_time, self.by_bytes, self.sent) = (0, 0, 0);
        self.increase_at = now + self.config.rate_timer.max(1);
    }

    /// Applies equations 3 and 4. Figure 7's conditions are tested before the increase is counted, so that fast
    /// recovery has the F iterations of the text.
    fn increase(&mut self) {
        let by_bytes = if self.config.byte_counter.is_some() { self.by_bytes } else { self.by_time };
        let (least, most) = (by_bytes.min(self.by_time), by_bytes.max(self.by_time));
        if most >= self.config.f {
            let step = if least > self.config.f { self.config.hai } else { self.config.ai };
            self.target = self.target.saturating_add(step.of(self.line)).min(self.line);
        }
        // Rounded up, so that it reaches the target.
        self.rate = self.target - (self.target - self.rate) / 2;
        if self.rate == self.line {
            self.increase_at = Time::NEVER;
        }
    }
}

impl Controller for Dcqcn {
    fn on_send(&mut self, _: Time, bytes: u32) {
        let Some(limit) = self.config.byte_counter else { return };
        if self.increase_at == Time::NEVER {
            return;
        }
        self.sent = self.sent.saturating_add(u64::from(bytes));
        if self.sent >= limit {
            self.sent %= limit.max(1);
            self.increase();
            self.by_bytes = self.by_bytes.saturating_add(1);
        }
    }

    fn on_ack(&mut self, _: Time, _: &Ack) {}

    fn on_cnp(&mut self, now: Time, _cnp: &Cnp) {
        self.age(now);
        let interval = self.config.decrease_interval;
        if interval == 0 {
            self.decrease(now);
            self.raise();
            self.alpha_at = now;
            return;
        }
        if self.alpha_at == Time::NEVER {
            self.alpha_at = now;
            self.first_at = now;
        } else {
            self.noted = true;
        }
        let left = interval - now.since(self.first_at) % interval;
        self.decrease_at = self.decrease_at.min(now + left);
    }

    fn on_timer(&mut self, now: Time) {
        if self.increase_at <= now && self.increase_at < self.decrease_at {
            // Increases missed by a late timer are not made up for.
            self.increase_at = now + self.config.rate_timer.max(1);
            self.increase();
            self.by_time = self.by_time.saturating_add(1);
        }
        if self.decrease_at <= now && now != Time::NEVER {
            self.decrease_at = Time::NEVER;
            self.age(now);
            self.decrease(now);
        }
    }

    fn next_deadline(&self) -> Time {
        self.increase_at.min(self.decrease_at)
    }

    fn rate(&self) -> u64 {
        self.rate
    }
}

footprint!(Dcqcn, |at| {
    config => left(why::SHARED),
    line => left(why::SHARED),
    rate => bits(width::RATE),
    target => bits(width::RATE),
    alpha => bits(width::FIXED),
    alpha_at => instant(),
    noted => flag(),
    decrease_at => instant(),
    first_at => instant(),
    increase_at => instant(),
    sent => bits(32),
    by_time => bits(8),
    by_bytes => bits(8),
});

#[cfg(test)]
mod tests;
