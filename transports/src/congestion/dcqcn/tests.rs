//! DCQCN against scripted notifications.

use proptest::prelude::*;

use super::*;
use crate::congestion::{CongestionConfig, CongestionError};

const GBIT: u64 = 1_000_000_000;
const MBIT: u64 = 1_000_000;

fn flow(config: DcqcnConfig, gbit: u64) -> Dcqcn {
    Dcqcn::new(&config, &Line { rate: gbit * GBIT, base_rtt: 24_000, mtu: 1024 })
}

fn us(us: u64) -> Time {
    Time(us * US)
}

/// Runs the timer `times` times; returns the time of the last.
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
    flow.on_cnp(us(100), &Cnp::default());
    assert_eq!((flow.rate, flow.target, flow.alpha), (20 * GBIT, 40 * GBIT, 1.0));
    assert_eq!(flow.next_deadline(), us(155));
    // Less than a period later: α is still 1.
    flow.on_cnp(us(150), &Cnp::default());
    assert_eq!((flow.rate, flow.target, flow.alpha), (10 * GBIT, 20 * GBIT, 1.0));
    assert_eq!(flow.next_deadline(), us(205));
    // Two periods of 55 us after: α = (255/256)^2 = 0.99220275..., then + (1 - α)/256.
    flow.on_cnp(us(260), &Cnp::default());
    assert_eq!((flow.rate, flow.target), (5_038_986_206, 10 * GBIT));
    assert!((flow.alpha - 0.992_233_216_7).abs() < 1e-9, "{}", flow.alpha);
}

#[test]
fn the_timer_recovers_fast_five_times_then_adds() {
    let mut flow = flow(DcqcnConfig::PAPER, 40);
    flow.on_cnp(us(0), &Cnp::default());
    flow.on_cnp(us(50), &Cnp::default());
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
fn without_clamping_only_an_increase_lets_the_next_decrease_set_the_target() {
    let mut flow = flow(DcqcnConfig { clamp_target: false, ..DcqcnConfig::PAPER }, 40);
    for (at, gbit) in [(100, 20), (150, 10), (200, 5)] {
        flow.on_cnp(us(at), &Cnp::default());
        assert_eq!((flow.rate, flow.target), (gbit * GBIT, 40 * GBIT), "one episode");
    }
    // At 255 µs: halfway back to the rate before the first.
    recover(&mut flow, 1);
    assert_eq!((flow.rate, flow.target), (22_500 * MBIT, 40 * GBIT));
    // A new episode, after a period of 55 µs: 22.5 · (1 − 255/512).
    flow.on_cnp(us(260), &Cnp::default());
    assert_eq!((flow.rate, flow.target), (11_293_945_312, 22_500 * MBIT));
    // An increase by bytes counts as well.
    flow.on_send(us(261), 10_000_000);
    assert_eq!((flow.rate, flow.target), (16_896_972_656, 22_500 * MBIT));
    flow.on_cnp(us(262), &Cnp::default());
    assert_eq!(flow.target, 16_896_972_656);
    flow.on_cnp(us(263), &Cnp::default());
    assert_eq!(flow.target, 16_896_972_656);
}

#[test]
fn the_byte_counter_recovers_fast_five_times_then_adds() {
    let mut flow = flow(DcqcnConfig::PAPER, 40);
    flow.on_cnp(us(0), &Cnp::default());
    flow.on_cnp(us(50), &Cnp::default());
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
    // A notification resets all counters, including bytes towards the next increase.
    flow.on_send(us(54), 9_000_000);
    flow.on_cnp(us(54), &Cnp::default());
    let cut = flow.rate;
    flow.on_send(us(55), 9_000_000);
    assert_eq!((flow.rate, flow.by_time, flow.by_bytes), (cut, 0, 0));
    assert_eq!(flow.next_deadline(), us(109));
}

#[test]
fn hyper_increase_needs_more_than_five_of_both() {
    let mut flow = flow(DcqcnConfig::PAPER, 40);
    flow.on_cnp(us(0), &Cnp::default());
    flow.on_cnp(us(50), &Cnp::default());
    let bytes = |flow: &mut Dcqcn, times| (0..times).for_each(|_| flow.on_send(us(60), 10_000_000));
    // Fast recovery ends when either has five.
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
    flow.on_cnp(us(0), &Cnp::default());
    // 20 Gbit/s below, halved until less than one is left: 35 increases.
    assert_eq!(recover(&mut flow, 35), us(55 * 35));
    assert_eq!((flow.rate, flow.next_deadline()), (40 * GBIT, Time::NEVER));
    flow.on_send(us(2_000), 20_000_000);
    assert_eq!(flow.by_bytes, 0);
    // α continues: 55 ms are 1000 periods, (255/256)^1000 = 0.019955.
    flow.on_cnp(us(55_000), &Cnp::default());
    assert!((39_600 * MBIT..39_602 * MBIT).contains(&flow.rate), "{}", flow.rate);
}

#[test]
fn the_lowest_rate_is_kept() {
    let mut flow = flow(DcqcnConfig::PAPER, 40);
    (0..100).for_each(|n| flow.on_cnp(us(n), &Cnp::default()));
    assert_eq!(flow.rate, 100 * MBIT);
    let slow = Line { rate: 50 * MBIT, base_rtt: 1, mtu: 1024 };
    let mut flow = Dcqcn::new(&DcqcnConfig::PAPER, &slow);
    flow.on_cnp(us(1), &Cnp::default());
    assert_eq!(flow.rate, 50 * MBIT);
}

#[test]
fn the_vendors_acts_once_for_all_notifications_in_an_interval() {
    let mut flow = flow(DcqcnConfig::VENDOR, 25);
    flow.on_cnp(us(10), &Cnp::default());
    assert_eq!((flow.rate, flow.next_deadline()), (25 * GBIT, us(14)));
    // In the second period of 1 us, and twice: α = ((255/256 * 255/256) + 1/256) * (255/256)^2 = 0.98834210...
    flow.on_cnp(Time(11_300), &Cnp::default());
    flow.on_cnp(Time(11_700), &Cnp::default());
    flow.on_timer(Time(13_999));
    assert_eq!(flow.rate, 25 * GBIT);
    flow.on_timer(us(14));
    assert_eq!((flow.rate, flow.target), (12_645_723_667, 25 * GBIT));
    assert_eq!(flow.next_deadline(), us(314));
    // The next interval has begun at 14 us, whenever its first notification comes.
    flow.on_cnp(us(17), &Cnp::default());
    assert_eq!(flow.next_deadline(), us(18));
    flow.on_cnp(us(18), &Cnp::default());
    flow.on_timer(us(18));
    // α is its (255/256)^3 * 255/256 + 1/256. There was no increase since: the target stays.
    assert_eq!((flow.rate, flow.target), (6_468_946_743, 25 * GBIT));
}

#[test]
fn the_vendors_increases_by_time_once_fast_once_additive_then_hyper() {
    let mut flow = flow(DcqcnConfig::VENDOR, 25);
    flow.on_cnp(us(0), &Cnp::default());
    recover(&mut flow, 1);
    let (cut, target) = (flow.rate, flow.target);
    flow.on_send(us(5), u32::MAX);
    assert_eq!((flow.rate, target), (cut, 25 * GBIT));
    assert_eq!(recover(&mut flow, 1), us(304));
    let recovered = flow.rate;
    assert_eq!(recovered, target - (target - cut) / 2);
    // There was an increase since the decrease: the target is the rate.
    flow.on_cnp(us(310), &Cnp::default());
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
    for wrong in ["g=0", "alpha-timer=0", "rate-timer=999ns", "ai=line/0", "f=-1", "clamp-target=1", "byte-counter=0"] {
        let error = format!("dcqcn,{wrong}").parse::<CongestionConfig>().unwrap_err();
        assert!(matches!(error, CongestionError::Value(_)), "{wrong}");
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
    let wait = prop_oneof![0..200 * US, 0..=irnic_units::MAX_NS];
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

/// Generates a configuration, including ones that cannot be written as text.
fn config() -> impl Strategy<Value = DcqcnConfig> {
    let any_at_all = (
        (1e-9..=1.0_f64, number(), number(), number(), prop::option::of(number())),
        (any::<u32>(), step(), step(), step(), any::<bool>()),
    )
        .prop_map(
            |((g, alpha_timer, rate_timer, decrease_interval, byte_counter), (f, ai, hai, min_rate, clamp_target))| {
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
            Signal::Cnp => flow.on_cnp(now, &Cnp::default()),
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

    /// Additive increases take at most line / AI timers, the rest is halved 64 times, each decrease is pending once.
    #[test]
    fn without_notifications_the_line_rate_comes_back(
        vendor: bool, f in 0..20_u32, divisor in 1..2_000_u64, rate in 1..=irnic_units::MAX_RATE,
        cnps in prop::collection::vec(0..200 * US, 1..200)
    ) {
        let base = if vendor { DcqcnConfig::VENDOR } else { DcqcnConfig::PAPER };
        let config = DcqcnConfig { f, ai: Step::Line(divisor), min_rate: Step::Rate(1), ..base };
        let mut flow = Dcqcn::new(&config, &Line { rate, base_rtt: 1, mtu: 1024 });
        let mut now = Time::ZERO;
        for wait in cnps {
            now += wait;
            flow.on_timer(now);
            flow.on_cnp(now, &Cnp::default());
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

    /// α is as with a continuously running timer.
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
            flow.on_cnp(Time(now), &Cnp::default());
            prop_assert!((flow.alpha - alpha).abs() < 1e-12, "{} is not {alpha}", flow.alpha);
        }
    }
}
