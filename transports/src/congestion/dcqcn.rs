//! DCQCN (Zhu et al., SIGCOMM 2015): the reaction point, which halves towards and recovers from what congestion notification
//! packets say. It has QCN's rate increase, by timer and by bytes, and DCTCP's α.
//!
//! Two readings of what a notification does. In the paper it acts when it comes. In the vendor's, as HPCC's ns-3 has it,
//! notifications are gathered: α takes note at the end of each of its periods, the rate at the end of each decrease interval.
//!
//! α's periods are counted when α is next needed, so that only increases and gathered decreases need a timer. Increases stop at
//! the line rate, where they have no effect: a flow without congestion costs nothing.

use super::config::{Keys, Share, Value, rate, size, switch, time};
use super::{Ack, CongestionError, Controller, Line};
use crate::time::{Time, US};
use crate::units;

/// A part of a rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// bit/s.
    Rate(u64),
    /// The line rate divided by this.
    Line(u64),
}

impl Step {
    /// As [`Step::read`] takes it.
    fn text(self) -> String {
        match self {
            Step::Rate(bits) => rate(bits),
            Step::Line(divisor) => format!("line/{divisor}"),
        }
    }

    /// bit/s, 1 or more, so that increases get somewhere.
    fn of(self, line: u64) -> u64 {
        match self {
            Step::Rate(rate) => rate,
            Step::Line(divisor) => line / divisor.max(1),
        }
        .max(1)
    }

    fn read(value: &Value<'_>) -> Result<Step, CongestionError> {
        match value.text.strip_prefix("line/").and_then(|d| d.parse().ok()).filter(|d| (1..=1_000_000).contains(d)) {
            Some(divisor) => Ok(Step::Line(divisor)),
            None => value.rate(1..=units::MAX_RATE, "a rate such as 40M, or line/1 to line/1000000").map(Step::Rate),
        }
    }
}

/// Parameters of [`Dcqcn`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Weight of what is new in α (equations 1 and 2).
    pub g: Share,
    /// α's period without notifications, ns (K in the paper).
    pub alpha_timer: u64,
    /// Time between increases, ns (T in the paper).
    pub rate_timer: u64,
    /// 0: every notification acts when it comes. Above: gathers notifications for so long, ns, as α's periods do.
    pub decrease_interval: u64,
    /// Bytes between increases (B in the paper); `None`: time alone counts.
    pub byte_counter: Option<u64>,
    /// Increases of each counter that are fast recovery.
    pub f: u32,
    /// Step of additive increase.
    pub ai: Step,
    /// Step of hyper increase.
    pub hai: Step,
    /// Lowest rate.
    pub min_rate: Step,
    /// A decrease sets the target even if there was no increase since the one before. Without, repeated decreases leave a rate to
    /// recover to.
    pub clamp_target: bool,
    /// What the notification point leaves between two notifications to a flow, at least, ns; 0 for one per marked packet.
    pub cnp_interval: u64,
}

impl DcqcnConfig {
    /// Of the paper (§5.2), which does not name a lowest rate: that is of its authors' ns-3.
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

    /// The vendor's profile that public simulators carry, as HPCC's ns-3 runs it: steps of 5 and 50 Mbit/s for 25 Gbit/s of line
    /// rate, time alone, and a notification for every mark.
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

impl Keys for DcqcnConfig {
    const NAMES: &'static [&'static str] = &[
        "g",
        "alpha-timer",
        "rate-timer",
        "decrease-interval",
        "byte-counter",
        "f",
        "ai",
        "hai",
        "min-rate",
        "clamp-target",
        "cnp-interval",
    ];

    fn set(&mut self, key: &str, value: &Value<'_>) -> Option<Result<(), CongestionError>> {
        let period = || value.time(US..=units::MAX_NS, "a time of 1us or more");
        let interval = || value.time(0..=units::MAX_NS, units::TIME);
        Some(match key {
            "g" => value.share().map(|g| self.g = g),
            "alpha-timer" => period().map(|ns| self.alpha_timer = ns),
            "rate-timer" => period().map(|ns| self.rate_timer = ns),
            "decrease-interval" => interval().map(|ns| self.decrease_interval = ns),
            "byte-counter" if value.text == "off" => {
                self.byte_counter = None;
                Ok(())
            }
            "byte-counter" => {
                value.size(1..=units::MAX_BYTES, "off, or a size such as 10MB").map(|b| self.byte_counter = Some(b))
            }
            "f" => value.number(0..=1_000, "0 to 1000 increases").map(|n| self.f = n as u32),
            "ai" => Step::read(value).map(|step| self.ai = step),
            "hai" => Step::read(value).map(|step| self.hai = step),
            "min-rate" => Step::read(value).map(|step| self.min_rate = step),
            "clamp-target" => value.switch().map(|on| self.clamp_target = on),
            "cnp-interval" => interval().map(|ns| self.cnp_interval = ns),
            _ => return None,
        })
    }

    fn get(&self, key: &str) -> Option<String> {
        Some(match key {
            "g" => self.g.get().to_string(),
            "alpha-timer" => time(self.alpha_timer),
            "rate-timer" => time(self.rate_timer),
            "decrease-interval" => time(self.decrease_interval),
            "byte-counter" => self.byte_counter.map_or("off".to_owned(), size),
            "f" => self.f.to_string(),
            "ai" => self.ai.text(),
            "hai" => self.hai.text(),
            "min-rate" => self.min_rate.text(),
            "clamp-target" => switch(self.clamp_target),
            "cnp-interval" => time(self.cnp_interval),
            _ => return None,
        })
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    config: DcqcnConfig,
    /// bit/s.
    line: u64,
    /// R_C and R_T, bit/s: the lowest rate <= `rate` <= `target` <= `line`.
    rate: u64,
    target: u64,
    /// As of `alpha_at`, where a period of its begins; [`Time::NEVER`] before the first notification.
    alpha: f64,
    alpha_at: Time,
    /// There was a notification in α's period. Only if they are gathered.
    noted: bool,
    /// Gathered notifications act on the rate, a multiple of the decrease interval after the first there ever was.
    decrease_at: Time,
    first_at: Time,
    /// The next increase by time; [`Time::NEVER`] at the line rate.
    increase_at: Time,
    /// Bytes since the last increase by bytes.
    sent: u64,
    /// Increases since the last decrease, by time and by bytes (T and BC in figure 7).
    by_time: u32,
    by_bytes: u32,
}

impl Dcqcn {
    /// A flow that begins: at line rate, with α = 1.
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

    /// Brings α up to date: a period with a notification raises it (equation 1), each without lowers it (equation 2).
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

    /// Equation 1, and figure 7's "cut rate".
    fn decrease(&mut self, now: Time) {
        if self.config.clamp_target || self.by_time.max(self.by_bytes) > 0 {
            self.target = self.rate;
        }
        let least = self.config.min_rate.of(self.line).min(self.rate);
        self.rate = ((self.rate as f64 * (1.0 - self.alpha / 2.0)) as u64).clamp(least, self.rate);
        (self.by_time, self.by_bytes, self.sent) = (0, 0, 0);
        self.increase_at = now + self.config.rate_timer.max(1);
    }

    /// Equations 3 and 4. Figure 7's conditions are tested before the increase is counted, so that fast recovery has the F
    /// iterations of the text.
    fn increase(&mut self) {
        let by_bytes = if self.config.byte_counter.is_some() { self.by_bytes } else { self.by_time };
        let (least, most) = (by_bytes.min(self.by_time), by_bytes.max(self.by_time));
        if most >= self.config.f {
            let step = if least > self.config.f { self.config.hai } else { self.config.ai };
            self.target = self.target.saturating_add(step.of(self.line)).min(self.line);
        }
        // Rounded up, so that it arrives.
        self.rate = self.target - (self.target - self.rate) / 2;
        if self.rate == self.line {
            self.increase_at = Time::NEVER;
        }
    }
}

/// By squaring: the same everywhere, which `powf` need not be.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
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

    fn on_cnp(&mut self, now: Time) {
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
            // A late timer is not made up for.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::CongestionConfig;

    const GBIT: u64 = 1_000_000_000;
    const MBIT: u64 = 1_000_000;

    fn flow(config: DcqcnConfig, gbit: u64) -> Dcqcn {
        Dcqcn::new(&config, &Line { rate: gbit * GBIT, base_rtt: 24_000, mtu: 1024 })
    }

    fn us(us: u64) -> Time {
        Time(us * US)
    }

    /// Lets the timer come `times` times; when the last did.
    fn recover(flow: &mut Dcqcn, times: u32) -> Time {
        let mut now = Time::ZERO;
        for _ in 0..times {
            now = flow.next_deadline();
            flow.on_timer(now);
        }
        now
    }

    #[test]
    fn a_flow_starts_at_line_rate_without_a_timer() {
        for config in [DcqcnConfig::PAPER, DcqcnConfig::VENDOR] {
            let mut flow = flow(config, 40);
            flow.on_send(us(1), 20_000_000);
            flow.on_timer(us(1_000));
            assert_eq!((flow.rate(), flow.next_deadline()), (40 * GBIT, Time::NEVER));
        }
    }

    #[test]
    fn notifications_cut_by_half_of_alpha_and_the_first_by_half() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        flow.on_cnp(us(100));
        assert_eq!((flow.rate, flow.target, flow.alpha), (20 * GBIT, 40 * GBIT, 1.0));
        assert_eq!(flow.next_deadline(), us(155));
        // Less than a period later: α is still 1.
        flow.on_cnp(us(150));
        assert_eq!((flow.rate, flow.target, flow.alpha), (10 * GBIT, 20 * GBIT, 1.0));
        assert_eq!(flow.next_deadline(), us(205));
        // Two periods of 55 us after: α = (255/256)^2 = 0.99220275..., then + (1 - α)/256.
        flow.on_cnp(us(260));
        assert_eq!((flow.rate, flow.target), (5_038_986_206, 10 * GBIT));
        assert!((flow.alpha - 0.992_233_216_7).abs() < 1e-9, "{}", flow.alpha);
    }

    #[test]
    fn the_timer_recovers_fast_five_times_then_adds() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        flow.on_cnp(us(0));
        flow.on_cnp(us(50));
        for (n, mbit) in [15_000, 17_500, 18_750, 19_375].into_iter().enumerate() {
            assert_eq!(recover(&mut flow, 1), us(105 + 55 * n as u64));
            assert_eq!((flow.rate, flow.target), (mbit * MBIT, 20 * GBIT));
        }
        recover(&mut flow, 1);
        assert_eq!((flow.rate, flow.target), (19_687_500_000, 20 * GBIT));
        recover(&mut flow, 1);
        assert_eq!((flow.rate, flow.target), (19_863_750_000, 20_040 * MBIT));
        recover(&mut flow, 1);
        assert_eq!((flow.rate, flow.target), (19_971_875_000, 20_080 * MBIT));
        // Without the byte counter's help there is no hyper increase.
        recover(&mut flow, 100);
        assert_eq!(flow.target, 24_080 * MBIT);
    }

    #[test]
    fn the_byte_counter_recovers_fast_five_times_then_adds() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        flow.on_cnp(us(0));
        flow.on_cnp(us(50));
        flow.on_send(us(51), 9_999_999);
        assert_eq!(flow.rate, 10 * GBIT);
        flow.on_send(us(51), 1);
        assert_eq!((flow.rate, flow.target), (15 * GBIT, 20 * GBIT));
        for rate in [17_500_000_000, 18_750_000_000, 19_375_000_000, 19_687_500_000_u64] {
            flow.on_send(us(52), 10_000_000);
            assert_eq!((flow.rate, flow.target), (rate, 20 * GBIT));
        }
        flow.on_send(us(53), 10_000_000);
        assert_eq!((flow.rate, flow.target), (19_863_750_000, 20_040 * MBIT));
        // A notification starts all counters anew, the bytes that were on their way to the next increase too.
        flow.on_send(us(54), 9_000_000);
        flow.on_cnp(us(54));
        let cut = flow.rate;
        flow.on_send(us(55), 9_000_000);
        assert_eq!((flow.rate, flow.by_time, flow.by_bytes), (cut, 0, 0));
        assert_eq!(flow.next_deadline(), us(109));
    }

    #[test]
    fn hyper_increase_needs_more_than_five_of_both() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        flow.on_cnp(us(0));
        flow.on_cnp(us(50));
        let bytes = |flow: &mut Dcqcn, times| (0..times).for_each(|_| flow.on_send(us(60), 10_000_000));
        // Fast recovery is over when either has five.
        recover(&mut flow, 5);
        bytes(&mut flow, 1);
        assert_eq!(flow.target, 20_040 * MBIT);
        bytes(&mut flow, 5);
        assert_eq!((flow.by_time, flow.by_bytes, flow.target), (5, 6, 20_240 * MBIT));
        recover(&mut flow, 1);
        assert_eq!(flow.target, 20_280 * MBIT);
        recover(&mut flow, 1);
        assert_eq!(flow.target, 20_680 * MBIT);
        bytes(&mut flow, 1);
        assert_eq!(flow.target, 21_080 * MBIT);
    }

    #[test]
    fn counters_and_timer_rest_at_the_line_rate() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        flow.on_cnp(us(0));
        // 20 Gbit/s below, halved until less than one is left: 35 increases.
        assert_eq!(recover(&mut flow, 35), us(55 * 35));
        assert_eq!((flow.rate, flow.next_deadline()), (40 * GBIT, Time::NEVER));
        flow.on_send(us(2_000), 20_000_000);
        assert_eq!(flow.by_bytes, 0);
        // α goes on: 55 ms are 1000 periods, (255/256)^1000 = 0.019955.
        flow.on_cnp(us(55_000));
        assert!((39_600 * MBIT..39_602 * MBIT).contains(&flow.rate), "{}", flow.rate);
    }

    #[test]
    fn the_lowest_rate_is_kept() {
        let mut flow = flow(DcqcnConfig::PAPER, 40);
        (0..100).for_each(|n| flow.on_cnp(us(n)));
        assert_eq!(flow.rate, 100 * MBIT);
        let slow = Line { rate: 50 * MBIT, base_rtt: 1, mtu: 1024 };
        let mut flow = Dcqcn::new(&DcqcnConfig::PAPER, &slow);
        flow.on_cnp(us(1));
        assert_eq!(flow.rate, 50 * MBIT);
    }

    #[test]
    fn the_vendors_acts_once_for_all_notifications_in_an_interval() {
        let mut flow = flow(DcqcnConfig::VENDOR, 25);
        flow.on_cnp(us(10));
        assert_eq!((flow.rate, flow.next_deadline()), (25 * GBIT, us(14)));
        // In the second period of 1 us, and twice: α = ((255/256 * 255/256) + 1/256) * (255/256)^2 = 0.98834210...
        flow.on_cnp(Time(11_300));
        flow.on_cnp(Time(11_700));
        flow.on_timer(Time(13_999));
        assert_eq!(flow.rate, 25 * GBIT);
        flow.on_timer(us(14));
        assert_eq!((flow.rate, flow.target), (12_645_723_667, 25 * GBIT));
        assert_eq!(flow.next_deadline(), us(314));
        // The next interval has begun at 14 us, whenever its first notification comes.
        flow.on_cnp(us(17));
        assert_eq!(flow.next_deadline(), us(18));
        flow.on_cnp(us(18));
        flow.on_timer(us(18));
        // α is its (255/256)^3 * 255/256 + 1/256. There was no increase since: the target stays.
        assert_eq!((flow.rate, flow.target), (6_468_946_743, 25 * GBIT));
    }

    #[test]
    fn the_vendors_increases_by_time_once_fast_once_additive_then_hyper() {
        let mut flow = flow(DcqcnConfig::VENDOR, 25);
        flow.on_cnp(us(0));
        recover(&mut flow, 1);
        let (cut, target) = (flow.rate, flow.target);
        flow.on_send(us(5), u32::MAX);
        assert_eq!((flow.rate, target), (cut, 25 * GBIT));
        assert_eq!(recover(&mut flow, 1), us(304));
        let recovered = flow.rate;
        assert_eq!(recovered, target - (target - cut) / 2);
        // There was an increase since the decrease: the target is the rate.
        flow.on_cnp(us(310));
        assert_eq!(recover(&mut flow, 1), us(312));
        assert_eq!(flow.target, recovered);
        for step in [0, 5, 55, 105] {
            recover(&mut flow, 1);
            assert_eq!(flow.target, recovered + step * MBIT);
        }
    }

    #[test]
    fn the_vendors_steps_scale_with_the_line_rate() {
        assert_eq!(DcqcnConfig::VENDOR.ai.of(100 * GBIT), 20 * MBIT);
        assert_eq!(DcqcnConfig::VENDOR.hai.of(100 * GBIT), 200 * MBIT);
        assert_eq!(Step::Line(0).of(0), 1);
    }

    #[test]
    fn every_parameter_can_be_written() {
        let text = "dcqcn, g=1/16, alpha-timer=50us, rate-timer=300us, decrease-interval=4us, byte-counter=150KB, f=1, ai=line/5000, \
                    hai=50M, min-rate=line/100, clamp-target=off, cnp-interval=0";
        let expected = DcqcnConfig {
            g: Share::new(0.0625).unwrap(),
            alpha_timer: 50_000,
            rate_timer: 300_000,
            decrease_interval: 4_000,
            byte_counter: Some(150_000),
            f: 1,
            ai: Step::Line(5_000),
            hai: Step::Rate(50 * MBIT),
            min_rate: Step::Line(100),
            clamp_target: false,
            cnp_interval: 0,
        };
        assert_eq!(text.parse(), Ok(CongestionConfig::Dcqcn(expected)));
        assert_eq!(
            "dcqcn-vendor,byte-counter=off".parse::<CongestionConfig>(),
            Ok(CongestionConfig::Dcqcn(DcqcnConfig::VENDOR))
        );
        let paper = CongestionConfig::Dcqcn(DcqcnConfig::PAPER);
        assert_eq!((paper.uses_ecn(), paper.cnp_interval()), (true, Some(50 * US)));
        for wrong in
            ["g=0", "alpha-timer=0", "rate-timer=999ns", "ai=line/0", "f=-1", "clamp-target=1", "byte-counter=0"]
        {
            let error = format!("dcqcn,{wrong}").parse::<CongestionConfig>().unwrap_err();
            assert!(matches!(error, CongestionError::Value { .. }), "{wrong}");
        }
    }

    #[derive(Copy, Clone, Debug)]
    enum Signal {
        Cnp,
        Send(u32),
        Timer,
        Wait(u64),
    }

    fn signals() -> impl Strategy<Value = Vec<Signal>> {
        let wait = prop_oneof![0..200 * US, 0..=units::MAX_NS];
        let signal = prop_oneof![
            3 => Just(Signal::Cnp),
            2 => any::<u32>().prop_map(Signal::Send),
            3 => Just(Signal::Timer),
            4 => wait.prop_map(Signal::Wait),
        ];
        prop::collection::vec(signal, 0..200)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u64>().prop_map(Step::Rate),
            any::<u64>().prop_map(Step::Line),
            (1..1000_u64).prop_map(Step::Line)
        ]
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 1..1_000_000_u64, any::<u64>()]
    }

    /// Also what cannot be written.
    fn config() -> impl Strategy<Value = DcqcnConfig> {
        let any_at_all = (
            (1e-9..=1.0_f64, number(), number(), number(), prop::option::of(number())),
            (any::<u32>(), step(), step(), step(), any::<bool>()),
        )
            .prop_map(
                |(
                    (g, alpha_timer, rate_timer, decrease_interval, byte_counter),
                    (f, ai, hai, min_rate, clamp_target),
                )| {
                    let g = Share::new(g).unwrap();
                    let cnp_interval = 0;
                    DcqcnConfig {
                        g,
                        alpha_timer,
                        rate_timer,
                        decrease_interval,
                        byte_counter,
                        f,
                        ai,
                        hai,
                        min_rate,
                        clamp_target,
                        cnp_interval,
                    }
                },
            );
        prop_oneof![Just(DcqcnConfig::PAPER), Just(DcqcnConfig::VENDOR), any_at_all]
    }

    fn play(flow: &mut Dcqcn, signals: &[Signal], mut check: impl FnMut(&Dcqcn)) -> Time {
        let mut now = Time::ZERO;
        for signal in signals {
            match *signal {
                Signal::Cnp => flow.on_cnp(now),
                Signal::Send(bytes) => flow.on_send(now, bytes),
                Signal::Timer => flow.on_timer(now),
                Signal::Wait(ns) => now += ns,
            }
            check(flow);
        }
        now
    }

    proptest! {
        #[test]
        fn rate_target_and_alpha_stay_in_bounds(config in config(), rate in 1_u64.., signals in signals()) {
            let mut flow = Dcqcn::new(&config, &Line { rate, base_rtt: 1, mtu: 1024 });
            let least = config.min_rate.of(rate).min(rate);
            play(&mut flow, &signals, |flow| {
                assert!(least <= flow.rate && flow.rate <= flow.target && flow.target <= rate, "{flow:?}");
                assert!((0.0..=1.0).contains(&flow.alpha), "{flow:?}");
                assert!(flow.increase_at != Time::NEVER || flow.rate == rate, "{flow:?}");
            });
        }

        #[test]
        fn a_timer_that_is_early_does_nothing(config in config(), signals in signals()) {
            let mut flow = Dcqcn::new(&config, &Line { rate: 10 * GBIT, base_rtt: 1, mtu: 1024 });
            let now = play(&mut flow, &signals, |_| ());
            if now < flow.next_deadline() {
                let before = format!("{flow:?}");
                flow.on_timer(now);
                flow.on_timer(flow.next_deadline() - 1);
                prop_assert_eq!(before, format!("{flow:?}"));
            }
        }

        /// Additive increases take at most line / AI timers, what is left is halved 64 times, each decrease is pending once.
        #[test]
        fn without_notifications_the_line_rate_comes_back(
            vendor: bool, f in 0..20_u32, divisor in 1..2_000_u64, rate in 1..=units::MAX_RATE,
            cnps in prop::collection::vec(0..200 * US, 1..200)
        ) {
            let base = if vendor { DcqcnConfig::VENDOR } else { DcqcnConfig::PAPER };
            let config = DcqcnConfig { f, ai: Step::Line(divisor), min_rate: Step::Rate(1), ..base };
            let mut flow = Dcqcn::new(&config, &Line { rate, base_rtt: 1, mtu: 1024 });
            let mut now = Time::ZERO;
            for wait in cnps {
                now += wait;
                flow.on_timer(now);
                flow.on_cnp(now);
            }
            // An AI of less than a bit/s is one: a slow line has no more steps than bits.
            for _ in 0..u64::from(f) + 2 * divisor + 64 + 2 {
                if flow.next_deadline() == Time::NEVER {
                    break;
                }
                let before = flow.clone();
                prop_assert!(flow.next_deadline() >= now);
                now = flow.next_deadline();
                flow.on_timer(now);
                prop_assert!(flow.next_deadline() > now);
                let raised = flow.rate > before.rate || flow.target > before.target || flow.rate == rate;
                // A step of one bit/s may round away for the rate, as it waits for its target.
                prop_assert!(raised || before.decrease_at <= now || flow.by_time <= f, "{:?}", flow);
            }
            prop_assert_eq!((flow.rate, flow.next_deadline()), (rate, Time::NEVER));
        }

        /// α as with a timer that runs all the time.
        #[test]
        fn alpha_is_as_if_its_timer_ran(gathers: bool, waits in prop::collection::vec(1..300_000_u64, 1..100)) {
            let config = DcqcnConfig { alpha_timer: 10 * US, ..if gathers { DcqcnConfig::VENDOR } else { DcqcnConfig::PAPER } };
            let mut flow = Dcqcn::new(&config, &Line { rate: 10 * GBIT, base_rtt: 1, mtu: 1024 });
            let (g, period) = (1.0 / 256.0, 10 * US);
            let (mut now, mut alpha, mut due, mut seen) = (0, 1.0, 0, false);
            for (n, wait) in waits.into_iter().enumerate() {
                now += wait;
                while n > 0 && due <= now {
                    alpha = (1.0 - g) * alpha + if std::mem::take(&mut seen) { g } else { 0.0 };
                    due += period;
                }
                if gathers {
                    seen = n > 0;
                } else {
                    alpha = (1.0 - g) * alpha + g;
                }
                if n == 0 || !gathers {
                    due = now + period;
                }
                flow.on_timer(Time(now));
                flow.on_cnp(Time(now));
                prop_assert!((flow.alpha - alpha).abs() < 1e-12, "{} is not {alpha}", flow.alpha);
            }
        }
    }
}
