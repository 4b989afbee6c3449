//! TIMELY against scripted round trips and a shared port.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::congestion::CongestionConfig;
use crate::time::{MS, SEC};
use crate::wire::Cnp;

const GBIT: u64 = 1_000_000_000;
/// α as in other simulators: one round trip dominates the average, which makes numbers easier to compute by hand.
const FAST: TimelyConfig = TimelyConfig { gain: known(0.875), ..TimelyConfig::PAPER };
const LINE: Line = Line { rate: 10 * GBIT, base_rtt: 20_000, mtu: 1000 };

/// Completions are a minimum round trip apart, so that each causes a full update.
struct Flow {
    timely: Timely,
    now: Time,
}

impl Flow {
    /// At 1 Gbit/s.
    fn new(config: TimelyConfig) -> Flow {
        let config = TimelyConfig { initial: known(0.1), ..config };
        Flow { timely: Timely::new(&config, &LINE), now: Time(0) }
    }

    fn after(&mut self, ns: u64, rtt: u64, busy: bool) -> u64 {
        self.now += ns;
        self.timely.on_ack(self.now, &Ack { rtt: Some(rtt), busy, ..Ack::default() });
        self.timely.rate()
    }

    fn rtt(&mut self, us: u64) -> u64 {
        self.after(20_000, us * US, true)
    }
}

/// Asserts equality up to rounding.
#[track_caller]
fn is(rate: u64, expected: u64) {
    assert!(rate.abs_diff(expected) <= 1, "{rate} is not {expected}");
}

#[test]
fn begins_at_line_rate_or_a_share_of_it() {
    assert_eq!(Timely::new(&TimelyConfig::PAPER, &LINE).rate(), 10 * GBIT);
    is(Timely::new(&TimelyConfig { initial: known(0.25), ..TimelyConfig::PAPER }, &LINE).rate(), 2_500_000_000);
}

#[test]
fn rises_below_t_low_whatever_the_gradient() {
    let mut flow = Flow::new(FAST);
    for (rtt, expected) in [(20, 1010), (49, 1020), (30, 1030), (31, 1040)] {
        is(flow.rtt(rtt), expected * 1_000_000);
    }
    // Even a long fall does not start hyperactive increase here (Algorithm 1 returns first).
    for (rtt, expected) in [(30, 1050), (29, 1060), (28, 1070), (27, 1080), (26, 1090), (25, 1100), (24, 1110)] {
        is(flow.rtt(rtt), expected * 1_000_000);
    }
}

#[test]
fn falls_above_t_high_by_what_is_above() {
    let mut flow = Flow::new(FAST);
    // 1 - 0.8 · (1 - 500/1000) = 0.6; then 1 - 0.8 · (1 - 500/625) = 0.84, though the gradient is negative.
    is(flow.rtt(1000), 600_000_000);
    is(flow.rtt(625), 504_000_000);
    // T_high itself is between the thresholds.
    is(flow.rtt(500), 514_000_000);
}

#[test]
fn follows_the_gradient_between_the_thresholds() {
    let mut flow = Flow::new(FAST);
    // There is no gradient yet.
    is(flow.rtt(60), 1_010_000_000);
    // 0.875 · 4 µs = 3.5 µs, a gradient of 0.175: 1 - 0.8 · 0.175 = 0.86.
    is(flow.rtt(64), 868_600_000);
    // 0.125 · 3.5 µs = 0.4375 µs, 0.021875: 1 - 0.0175.
    is(flow.rtt(64), 853_399_500);
    // 0.125 · 0.4375 µs - 0.875 · 1 µs is negative: δ.
    is(flow.rtt(63), 863_399_500);
    // T_low itself is between the thresholds: a gradient counts.
    is(flow.rtt(46), 873_399_500);
    assert!(flow.rtt(50) < 873_399_500);
}

#[test]
fn a_gradient_of_nought_is_room_for_more() {
    let mut flow = Flow::new(FAST);
    for n in 1..=20 {
        is(flow.rtt(100), (1000 + 10 * n) * 1_000_000);
    }
}

#[test]
fn five_shorter_round_trips_make_increases_five_times_as_large() {
    let mut flow = Flow::new(FAST);
    let expected = [1010, 1020, 1030, 1040, 1050, 1100, 1150];
    for (rtt, expected) in [400, 390, 380, 370, 360, 350, 340].into_iter().zip(expected) {
        is(flow.rtt(rtt), expected * 1_000_000);
    }
    // The average is -9.99… µs now; 0.125 of it and 0.875 · 1.5 µs are positive. The count starts over.
    let before = flow.timely.rate();
    assert!(flow.after(20_000, 341_500, true) < before);
    let before = flow.timely.rate();
    is(flow.rtt(330), before + 10_000_000);
}

#[test]
fn one_longer_round_trip_ends_hyperactive_increase_while_the_average_still_falls() {
    let mut flow = Flow::new(TimelyConfig::PAPER);
    let expected = [1010, 1020, 1030, 1040, 1050, 1100, 1110, 1120];
    for (rtt, expected) in [400, 390, 380, 370, 360, 350, 351, 341].into_iter().zip(expected) {
        is(flow.rtt(rtt), expected * 1_000_000);
    }
}

#[test]
fn hyperactive_increase_can_be_set() {
    let mut config: CongestionConfig = "timely,hai=3,hai-after=2".parse().unwrap();
    config.set("initial", "0.1").unwrap();
    let CongestionConfig::Timely(config) = config else { panic!("{config:?}") };
    let mut flow = Flow::new(config);
    for (rtt, expected) in [(400, 1010), (390, 1020), (380, 1050), (370, 1080)] {
        is(flow.rtt(rtt), expected * 1_000_000);
    }
}

#[test]
fn completions_within_a_minimum_round_trip_share_an_update() {
    let mut flow = Flow::new(FAST);
    is(flow.rtt(30), 1_010_000_000);
    // Four, 5 µs apart: δ/4 each.
    for expected in [1_012_500, 1_015_000, 1_017_500, 1_020_000] {
        is(flow.after(5_000, 30_000, true), expected * 1000);
    }
    // One after a long time counts as one.
    is(flow.after(400_000, 30_000, true), 1_030_000_000);
    // A quarter of 0.8 · (1 - 500/1000).
    is(flow.after(5_000, 1_000_000, true), 927_000_000);
    // Two at once count as one.
    is(flow.after(0, 1_000_000, true), 927_000_000);
}

#[test]
fn a_gradient_counts_the_same_in_one_step_or_in_four() {
    // α = 1: the rise of 4 µs is one step of 4 or four of 1, whose differences are a quarter already.
    let config = TimelyConfig { gain: known(1.0), ..TimelyConfig::PAPER };
    let (mut one, mut four) = (Flow::new(config), Flow::new(config));
    one.rtt(100);
    four.rtt(100);
    // 1010 · (1 - 0.8 · 4/20), and 1010 · (1 - 0.8 · 1/20)^4.
    is(one.rtt(104), 848_400_000);
    for us in 101..=104 {
        four.after(5_000, us * US, true);
    }
    is(four.timely.rate(), 857_840_026);
}

#[test]
fn an_idle_application_gets_no_increase_but_decreases() {
    let mut flow = Flow::new(FAST);
    for rtt in [60_000, 59_000, 58_000, 30_000] {
        is(flow.after(20_000, rtt, false), GBIT);
    }
    is(flow.after(20_000, 1_000_000, false), 600_000_000);
    is(flow.after(20_000, 30_000, true), 610_000_000);
    let mut flow = Flow::new(TimelyConfig::PATCHED);
    is(flow.after(20_000, 51_000, false), GBIT);
    assert!(flow.after(20_000, 71_000, false) < GBIT);
}

#[test]
fn one_completion_takes_half_at_most_and_the_least_rate_remains() {
    let mut flow = Flow::new(FAST);
    is(flow.rtt(60), 1_010_000_000);
    // A gradient of 4.375.
    is(flow.rtt(160), 505_000_000);
    // 1 - 0.8 · (1 - 500/50000) is less than one half.
    is(flow.rtt(50_000), 252_500_000);
    for _ in 0..10 {
        flow.rtt(50_000);
    }
    assert_eq!(flow.timely.rate(), 10_000_000);
    // As printed, Algorithm 1 computes a negative rate.
    let mut flow = Flow::new(TimelyConfig { cut: known(1.0), ..FAST });
    flow.rtt(60);
    assert_eq!(flow.rtt(160), 10_000_000);
}

#[test]
fn never_faster_than_the_line() {
    let mut timely = Timely::new(&FAST, &LINE);
    timely.on_ack(Time(0), &Ack { rtt: Some(20_000), busy: true, ..Ack::default() });
    assert_eq!(timely.rate(), 10 * GBIT);
    // A line slower than the minimum rate.
    let slow = Line { rate: 1_000, ..LINE };
    assert_eq!(Timely::new(&TimelyConfig::PAPER, &slow).rate(), 1_000);
}

#[test]
fn only_round_trips_count() {
    let mut flow = Flow::new(FAST);
    flow.timely.on_ack(Time(1), &Ack { packets: 9, marked: true, busy: true, ..Ack::default() });
    flow.timely.on_loss(Time(2));
    flow.timely.on_timeout(Time(3));
    flow.timely.on_cnp(Time(4), &Cnp::default());
    is(flow.timely.rate(), GBIT);
    assert_eq!((flow.timely.window(), flow.timely.next_deadline()), (u32::MAX, Time::NEVER));
    assert_eq!(flow.timely.segment(), Some(16_000));
}

#[test]
fn patched_weighs_increase_and_decrease_by_the_gradient() {
    let mut flow = Flow::new(TimelyConfig::PATCHED);
    // Gradient 0, weight 1/2, error (100 - 50)/50 = 1: δ/2 + 1000 · (1 - 0.004).
    is(flow.rtt(100), 1_001_000_000);
    // 0.875 · 2 µs, gradient 0.0875, weight 0.675, error 1.04: 0.325 · δ + 1001 · (1 - 0.005616).
    is(flow.rtt(102), 998_628_384);
    // 33.46875 µs, a gradient above 1/4, weight 1, error 1.8: 998.628384 · (1 - 0.0144).
    is(flow.rtt(140), 984_248_135);
    // A gradient below -1/4, weight 0.
    is(flow.rtt(90), 994_248_135);
    // The thresholds are as before, with its β: δ; 1 - 0.008 · (1 - 500/1000).
    is(flow.rtt(49), 1_004_248_135);
    is(flow.rtt(1000), 1_000_231_142);
}

#[test]
fn noise_is_uniform_from_nought_to_its_most() {
    let mut noisy = Timely::new(&TimelyConfig { noise: 999, ..FAST }, &LINE);
    let drawn: Vec<u64> = (0..100_000).map(|n| noisy.noise(Time(n * 20_000))).collect();
    for tenth in 0..10 {
        let within = drawn.iter().filter(|ns| **ns / 100 == tenth).count();
        assert!((9_700..=10_300).contains(&within), "{tenth}: {within}");
    }
    assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&999)));
    // Flows whose round trips end at different times draw different numbers.
    let mut other = Timely::new(&TimelyConfig { noise: 999, ..FAST }, &LINE);
    let same = (0..1_000).filter(|n| other.noise(Time(n * 20_000 + 1)) == drawn[*n as usize]).count();
    assert!(same < 20, "{same}");
}

#[test]
fn noise_counts_as_round_trip() {
    // 49 µs is below T_low without noise, and with up to 100 µs of it usually above: the rate that rises by δ each time
    // then does not.
    let (mut quiet, mut noisy) = (Flow::new(FAST), Flow::new(TimelyConfig { noise: 100 * US, ..FAST }));
    for _ in 0..20 {
        quiet.rtt(49);
        noisy.rtt(49);
    }
    is(quiet.timely.rate(), 1_200_000_000);
    assert!(noisy.timely.rate() < GBIT, "{}", noisy.timely.rate());
}

#[test]
fn a_loss_takes_off_its_share_if_there_is_one() {
    let mut deaf = Flow::new(FAST);
    deaf.timely.on_loss(Time(0));
    deaf.timely.on_timeout(Time(1));
    is(deaf.timely.rate(), GBIT);
    let mut flow = Flow::new(TimelyConfig { backoff: Share::new(0.25), ..FAST });
    flow.timely.on_loss(Time(0));
    is(flow.timely.rate(), 750_000_000);
    flow.timely.on_timeout(Time(1));
    is(flow.timely.rate(), 562_500_000);
    (0..100).for_each(|n| flow.timely.on_loss(Time(n)));
    is(flow.timely.rate(), FAST.min_rate);
}

#[test]
fn parameters_have_names() {
    for (key, value) in [
        ("t-low", "0"),
        ("t-high", "1ms"),
        ("add", "40M"),
        ("decrease", "1/2"),
        ("gain", "0.5"),
        ("hai", "1"),
        ("hai-after", "3"),
        ("min-rtt", "8us"),
        ("cut", "1"),
        ("segment", "64KB"),
        ("min-rate", "1M"),
        ("initial", "1/4"),
        ("noise", "50us"),
        ("pacing", "700M"),
        ("backoff", "0.5"),
        ("patched", "on"),
        ("reference", "60us"),
    ] {
        let mut config = CongestionConfig::Timely(TimelyConfig::PAPER);
        config.set(key, value).unwrap();
        assert_ne!(config, CongestionConfig::Timely(TimelyConfig::PAPER), "{key}={value}");
        assert!(TimelyConfig::named(key).is_some(), "{key}");
        assert!(config.set(key, "-1").is_err(), "{key}");
    }
    assert_eq!("timely,pacing=1G,pacing=line".parse(), Ok(CongestionConfig::Timely(TimelyConfig::PAPER)));
    assert_eq!("timely,initial=0.5,initial=line".parse(), Ok(CongestionConfig::Timely(TimelyConfig::PAPER)));
    assert_eq!("timely-patched".parse(), Ok(CongestionConfig::Timely(TimelyConfig::PATCHED)));
    assert!("timely,min-rtt=0".parse::<CongestionConfig>().is_err());
}

fn any_share() -> impl Strategy<Value = Share> {
    (1e-9..=1.0).prop_map(known)
}

prop_compose! {
    /// Fields are public: they may have any value.
    fn any_config()(
        times in any::<[u64; 5]>(), rates in any::<[u64; 3]>(), counts in any::<[u32; 3]>(), patched in any::<bool>(),
        decrease in any_share(), gain in any_share(), cut in any_share(), initial in any_share(),
        backoff in prop::option::of(any_share()),
    ) -> TimelyConfig {
        let ([t_low, t_high, min_rtt, reference, noise], [add, min_rate, pacing], [hai, hai_after, segment]) =
            (times, rates, counts);
        TimelyConfig {
            t_low, t_high, add, decrease, gain, hai, hai_after, min_rtt, cut, segment, min_rate, initial, noise, pacing,
            backoff, patched, reference,
        }
    }
}

/// Nanoseconds of all magnitudes.
fn any_ns() -> impl Strategy<Value = u64> {
    prop_oneof![0..200 * US, 0..2 * MS, any::<u64>()]
}

fn any_acks() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((any_ns(), any_ns(), any::<bool>()), 0..60)
}

proptest! {
    #[test]
    fn the_rate_stays_within_its_bounds(
        config in prop_oneof![Just(TimelyConfig::PAPER), Just(TimelyConfig::PATCHED), any_config()],
        rate in prop_oneof![1..=400 * GBIT, any::<u64>()],
        acks in any_acks(),
    ) {
        let mut timely = Timely::new(&config, &Line { rate, ..LINE });
        let most = rate.max(1);
        for (now, rtt, busy) in acks {
            // Not even in order.
            timely.on_ack(Time(now), &Ack { rtt: Some(rtt), busy, ..Ack::default() });
            prop_assert!((config.min_rate.clamp(1, most)..=most).contains(&timely.rate()));
            prop_assert!(timely.rate.is_finite() && timely.rtt_diff.is_finite());
        }
    }

    #[test]
    fn an_empty_network_is_always_taken_again(patched in any::<bool>(), acks in any_acks()) {
        let config = if patched { TimelyConfig::PATCHED } else { TimelyConfig::PAPER };
        let mut flow = Flow::new(config);
        for (ns, rtt, busy) in acks {
            flow.after(ns % SEC, rtt, busy);
        }
        // From the minimum rate to the line rate are 999 steps of δ.
        for _ in 0..999 {
            let before = flow.timely.rate();
            let after = flow.rtt(20);
            is(after, (before + 10_000_000).min(10 * GBIT));
        }
        prop_assert_eq!(flow.timely.rate(), 10 * GBIT);
    }

    /// Within a zone; across zones Algorithm 1 is not monotone: a hyperactive increase is more than T_low's, and just
    /// above T_high nearly nothing is taken off, while just below a gradient may do so.
    #[test]
    fn a_longer_round_trip_gives_no_higher_rate(
        patched in any::<bool>(),
        acks in any_acks(),
        ns in any_ns(),
        (zone, a, b) in prop_oneof![Just((0, 50 * US)), Just((50 * US, 500 * US + 1)), Just((500 * US + 1, u64::MAX))]
            .prop_flat_map(|(from, to)| (Just(from), from..to, from..to)),
    ) {
        let config = if patched { TimelyConfig::PATCHED } else { TimelyConfig::PAPER };
        let mut flow = Flow::new(config);
        for (ns, rtt, busy) in acks {
            flow.after(ns % SEC, rtt, busy);
        }
        let rate = |rtt| Flow { timely: flow.timely.clone(), now: flow.now }.after(ns, rtt, true);
        prop_assert!(rate(a.max(b)) <= rate(a.min(b)), "from {zone}");
        // Patched TIMELY has no hyperactive increase: it is monotone across T_low too.
        if patched && zone == 0 {
            prop_assert!(rate(b + 50 * US) <= rate(a));
        }
    }
}

/// Units that leave together, at the flow's rate.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Paced {
    /// A segment as a burst (§3.3).
    Segments,
    /// Every 1000 bytes of it; it completes with the last, whose round trip is then measured.
    Packets,
}

/// Behaviour of flows in the second half of the time.
#[derive(Debug)]
struct Seen {
    /// Utilization of the bottleneck.
    utilization: f64,
    /// Minimum and maximum of a flow, relative to a fair share.
    least: f64,
    most: f64,
    /// Round trips, us.
    mean: u64,
    p99: u64,
}

/// Simulates flows of `config` that begin at these rates, bit/s, and have endless segments, each from a host of its
/// own. They leave through one port of 10 Gbit/s, whose queue is unlimited. Segments cut through the network, so that
/// the round trip of an empty one is `LINE.base_rtt`. Hosts are late by up to the sending time, by a different amount
/// each time, so that flows do not synchronize.
fn bottleneck(config: TimelyConfig, rates: &[u64], paced: Paced, time: u64) -> Seen {
    let begin = |rate: &u64| {
        let initial = known(*rate as f64 / LINE.rate as f64);
        Timely::new(&TimelyConfig { initial, ..config }, &LINE)
    };
    let mut flows: Vec<Timely> = rates.iter().map(begin).collect();
    let unit = if paced == Paced::Packets { 1000 } else { u64::from(config.segment()) };
    let (bits, units) = (8 * unit, u64::from(config.segment()) / unit);
    let wire = bits * SEC / LINE.rate;
    let mut seed = 1u64;
    let mut late = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % wire
    };
    // For each flow, the scheduled time of its last transmission, its next delay, and the units acknowledged. They
    // begin within 1 ms.
    let mut last: Vec<(u64, u64)> = (0..rates.len() as u64).map(|n| (n * MS / rates.len() as u64, late())).collect();
    let mut acked = vec![0u64; rates.len()];
    let due = |flow: &Timely, (last, late): (u64, u64)| last + bits * SEC / flow.rate() + late;
    let mut next: Vec<u64> = flows.iter().zip(&last).map(|(flow, last)| due(flow, *last)).collect();
    // Flow, departure time, arrival time of its acknowledgement.
    let mut way: VecDeque<(usize, u64, u64)> = VecDeque::new();
    let (mut now, mut free) = (0, 0);
    let mut used = vec![0u64; rates.len()];
    let mut rtts = Vec::new();
    while now < time {
        let (at, n) = next.iter().copied().zip(0..).min().unwrap();
        if let Some((n, left, arrived)) = way.front().copied().filter(|(_, _, arrived)| *arrived <= at.max(now)) {
            way.pop_front();
            now = arrived.max(now);
            acked[n] += 1;
            used[n] += u64::from(now >= time / 2);
            if acked[n].is_multiple_of(units) {
                let rtt = arrived - left - wire;
                flows[n].on_ack(Time(arrived), &Ack { rtt: Some(rtt), busy: true, ..Ack::default() });
                // Lazily: units that have not left yet leave at the new rate (§5).
                next[n] = due(&flows[n], last[n]);
                if now >= time / 2 {
                    rtts.push(rtt);
                }
            }
            continue;
        }
        now = at.max(now);
        free = free.max(now + LINE.base_rtt / 2) + wire;
        way.push_back((n, now, free + LINE.base_rtt / 2));
        last[n] = (now.saturating_sub(last[n].1), late());
        next[n] = due(&flows[n], last[n]);
    }
    rtts.sort_unstable();
    let all = (LINE.rate as u128 * u128::from(time - time / 2) / u128::from(bits * SEC)) as f64;
    let of_fair = |units: u64| units as f64 * rates.len() as f64 / all;
    Seen {
        utilization: used.iter().sum::<u64>() as f64 / all,
        least: of_fair(*used.iter().min().unwrap()),
        most: of_fair(*used.iter().max().unwrap()),
        mean: rtts.iter().sum::<u64>() / rtts.len() as u64 / US,
        p99: rtts[rtts.len() * 99 / 100] / US,
    }
}

/// Every other flow begins with a ninth of the next one's rate, and all together at the port's rate.
fn unequal(flows: u64) -> Vec<u64> {
    (0..flows).map(|n| LINE.rate / flows * [2, 18][n as usize % 2] / 10).collect()
}

/// The gain of the authors' code.

#[test]
fn the_port_stays_busy_and_its_queue_short() {
    for (config, paced) in
        [(FAST, Paced::Packets), (TimelyConfig::PAPER, Paced::Packets), (TimelyConfig::PAPER, Paced::Segments)]
    {
        for flows in [2, 10, 64] {
            let seen = bottleneck(config, &unequal(flows), paced, 400 * MS);
            let case = (config.gain, paced, flows, &seen);
            assert!(seen.utilization > 0.9, "{case:?}");
            // The highest are between the thresholds; most are below, as queues are empty at times.
            assert!((50..500).contains(&seen.p99) && (20..200).contains(&seen.mean), "{case:?}");
        }
    }
}

#[test]
fn bursts_of_segments_need_the_slower_average() {
    let fast = bottleneck(FAST, &unequal(10), Paced::Segments, 200 * MS);
    let slow = bottleneck(TimelyConfig::PAPER, &unequal(10), Paced::Segments, 200 * MS);
    assert!(fast.utilization < 0.75, "{fast:?}");
    assert!(slow.utilization > 0.97, "{slow:?}");
}

#[test]
fn patched_flows_come_to_equal_shares_and_the_queue_of_the_fixed_point() {
    for (flows, paced) in
        [(2, Paced::Segments), (2, Paced::Packets), (10, Paced::Segments), (10, Paced::Packets), (64, Paced::Packets)]
    {
        let seen = bottleneck(TimelyConfig::PATCHED, &unequal(flows), paced, 400 * MS);
        let case = (flows, paced, &seen);
        assert!(seen.least > 0.9 && seen.most < 1.1 && seen.utilization > 0.99, "{case:?}");
        // As derived by "ECN or Delay": T_low · (1 + N δ / (β C)), which for 64 flows is 450 us, almost T_high.
        let expected = 50 + 50 * flows * 10 / 80;
        assert!(seen.mean.abs_diff(expected) * 10 <= expected, "{case:?}, not {expected} us");
    }
    let seen = bottleneck(TimelyConfig::PATCHED, &[LINE.rate; 2], Paced::Segments, 400 * MS);
    assert!(seen.least > 0.9 && seen.most < 1.1 && seen.utilization > 0.99, "{seen:?}");
}

/// "ECN or Delay" proves that any shares may be a fixed point.
#[test]
fn shares_need_not_become_equal_without_the_patch() {
    let seen = bottleneck(FAST, &unequal(2), Paced::Packets, 400 * MS);
    assert!(seen.most > 2.0 * seen.least && seen.utilization > 0.9, "{seen:?}");
}
