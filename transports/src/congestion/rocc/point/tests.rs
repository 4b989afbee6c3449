//! Algorithm 1 by hand, its stability as derived in the paper, and a fluid model of a queue.

use std::collections::VecDeque;
use std::f64::consts::PI;

use proptest::prelude::*;

use super::*;

const GBIT: u64 = 1_000_000_000;
const CONFIG: FairRateConfig = FairRateConfig {
    rate: 40 * GBIT,
    least: 10 * FairRateConfig::UNIT,
    qref: 150_000,
    qmid: 300_000,
    qmax: 360_000,
    chunk: 600,
    alpha: 0.25,
    beta: 1.5,
    period: 40_000,
    fraction: POINT,
};

/// Returns a port with this rate, in units, whose queue was `before` bytes long.
fn port(config: &FairRateConfig, rate: f64, before: u64) -> FairRate {
    FairRate { rate: (rate * f64::from(1 << POINT)) as i64, before, ..FairRate::new(config) }
}

/// Returns the rate after a step, in units.
fn stepped(mut port: FairRate, queue: u64) -> f64 {
    port.step(queue);
    port.rate as f64 / f64::from(1 << POINT)
}

#[test]
fn gains_are_divided_by_the_region_of_the_rate() {
    // 60,000 bytes above Q_ref are 100 chunks, 24,000 more than before are 40: 0.25 · 100 + 1.5 · 40 = 85.
    for (rate, divisor) in
        [(4000.0, 1.0), (2000.0, 1.0), (1999.0, 2.0), (1000.0, 2.0), (999.0, 4.0), (500.0, 4.0), (499.0, 8.0)]
            .into_iter()
            .chain([(250.0, 8.0), (249.0, 16.0), (125.0, 16.0), (124.0, 32.0), (30.0, 32.0)])
    {
        assert_eq!(stepped(port(&CONFIG, rate, 186_000), 210_000), rate - 85.0 / divisor, "{rate}");
        // Symmetrically below.
        let up = (rate + 85.0 / divisor).min(4000.0);
        assert_eq!(stepped(port(&CONFIG, rate, 114_000), 90_000), up, "{rate}");
    }
}

#[test]
fn a_queue_at_its_place_leaves_the_rate_alone() {
    assert_eq!(stepped(port(&CONFIG, 1333.0, 150_000), 150_000), 1333.0);
}

#[test]
fn the_longest_queue_sends_the_rate_to_the_bottom() {
    assert_eq!(stepped(port(&CONFIG, 4000.0, 359_000), 360_000), 10.0);
    assert_eq!(stepped(port(&CONFIG, 501.0, 359_000), 360_000), 10.0);
    // Up to an eighth of the link the other rules do not apply: 350 · 0.25 + 1000 / 600 · 1.5 = 90, divided by 4 and 8.
    assert_eq!(stepped(port(&CONFIG, 500.0, 359_000), 360_000), 500.0 - 90.0 / 4.0);
    assert_eq!(stepped(port(&CONFIG, 499.0, 359_000), 360_000), 499.0 - 90.0 / 8.0);
}

#[test]
fn a_queue_that_grows_fast_halves_the_rate() {
    assert_eq!(stepped(port(&CONFIG, 3001.0, 10_000), 310_000), 1500.5);
    assert_eq!(stepped(port(&CONFIG, 501.0, 0), 359_999), 250.5);
    // Less than Q_mid: (299,400 - 150,000) / 600 · 0.25 + 299,400 / 600 · 1.5 = 810.75.
    assert_eq!(stepped(port(&CONFIG, 3001.0, 0), 299_400), 3001.0 - 810.75);
    assert_eq!(stepped(port(&CONFIG, 500.0, 0), 300_000), 500.0 - (62.5 + 750.0) / 4.0);
}

#[test]
fn the_rate_stays_between_its_limits() {
    assert_eq!(stepped(port(&CONFIG, 3999.0, 0), 0), 4000.0);
    assert_eq!(stepped(port(&CONFIG, 11.0, 100_000), 350_000), 10.0);
    let mut idle = FairRate::new(&CONFIG);
    assert!(idle.is_at_rest() && idle.step(0) == 40 * GBIT && idle.is_at_rest());
    assert!(idle.step(1) == 40 * GBIT && !idle.is_at_rest());
    // A link slower than F_min has its own rate.
    let mut slow = FairRate::new(&FairRateConfig { rate: 50_000_000, ..CONFIG });
    assert_eq!((slow.rate(), slow.step(1_000_000)), (50_000_000, 50_000_000));
}

#[test]
fn without_a_fraction_small_steps_vanish() {
    let whole = FairRateConfig { fraction: 0, ..CONFIG };
    // 0.25 · 250 / 32 = 1.95 units up from the bottom become one, and 0.25 · 100 / 32 none.
    assert_eq!(stepped(port(&whole, 20.0, 0), 0), 21.0);
    assert_eq!(stepped(port(&whole, 20.0, 90_000), 90_000), 20.0);
    assert_eq!(stepped(port(&CONFIG, 20.0, 90_000), 90_000), 20.0 + 25.0 / 32.0);
}

#[test]
fn parameters_follow_the_link() {
    let of = |rate: u64| {
        let c = FairRateConfig::of_link(rate);
        assert!(c.qref < c.qmid && c.qmid < c.qmax);
        ([c.qref, c.qmid, c.qmax].map(|q| q / 1000), c.alpha, c.beta)
    };
    assert_eq!(of(10 * GBIT), ([75, 150, 210], 0.3, 1.5));
    assert_eq!(of(GBIT), of(10 * GBIT));
    assert_eq!(of(25 * GBIT), ([112, 225, 285], 0.3, 1.5));
    assert_eq!(of(40 * GBIT), ([150, 300, 360], 0.3, 1.5));
    assert_eq!(of(100 * GBIT), ([300, 600, 660], 0.45, 2.25));
    assert_eq!(of(400 * GBIT), ([1200, 2400, 2640], 0.45, 2.25));
}

/// Returns the phase margin in degrees of the loop of `n` flows, by the paper's linear model (§5): G(s) = K (1 + s /
/// z₁) e^(-sT) / s² with K = κ N α / T and z₁ = α / ((β + α / 2) T), κ = (ΔF / 8) / ΔQ.
fn phase_margin(n: f64, alpha: f64, beta: f64) -> f64 {
    let period = CONFIG.period as f64 / 1e9;
    let k = FairRateConfig::UNIT as f64 / 8.0 / CONFIG.chunk as f64 * n * alpha / period;
    let zero = alpha / ((beta + alpha / 2.0) * period);
    // |G| falls with the frequency.
    let gain = |w: f64| k * (1.0 + (w / zero).powi(2)).sqrt() / (w * w);
    let (mut low, mut high) = (1.0_f64, 1e9_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        *if gain(middle) > 1.0 { &mut low } else { &mut high } = middle;
    }
    ((low / zero).atan() - low * period) * 180.0 / PI
}

#[test]
fn fixed_gains_are_stable_for_few_flows_or_for_many() {
    for (n, alpha, beta, degrees) in [
        (2.0, 0.3, 3.0, 49.0),
        (10.0, 0.3, 3.0, -63.0),
        (2.0, 0.0093, 0.0937, 21.0),
        (32.0, 0.0093, 0.0937, 55.0),
        (128.0, 0.0093, 0.0937, 25.0),
    ] {
        let margin = phase_margin(n, alpha, beta);
        assert!((margin - degrees).abs() <= 1.0, "{n} flows, {alpha}, {beta}: {margin}");
    }
}

#[test]
fn auto_tuned_gains_are_stable_for_any_number() {
    for (rate, least, most) in [(40, 35.0, 42.0), (100, 29.0, 42.0)] {
        let config = FairRateConfig::of_link(rate * GBIT);
        let margins = (1..=128).map(|n| {
            let n = f64::from(n);
            let divisor = port(&config, (rate * 100) as f64 / n, 0).divisor() as f64;
            phase_margin(n, config.alpha / divisor, config.beta / divisor)
        });
        let (low, high) = margins.fold((f64::MAX, f64::MIN), |(low, high), m| (low.min(m), high.max(m)));
        assert!((low - least).abs() <= 1.0 && (high - most).abs() <= 1.0, "{rate} Gbit/s: {low} to {high}");
    }
}

/// Returns the mean queue in bytes, and the mean rate of a flow in Mbit/s, in the last ten of 40 ms: `n` sources that
/// begin at line rate share a link, and follow notices 20 µs later. Sources without queued bytes double. At 500 KB the
/// queue pauses them, as PFC does.
fn fluid(n: u64, config: &FairRateConfig) -> (f64, f64) {
    const DELAY: u64 = 20;
    let (mut point, mut queue, mut source) = (FairRate::new(config), 0.0_f64, config.rate);
    let mut notices: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut heard, mut sums) = (0, (0.0, 0.0));
    for us in 1..=40_000_u64 {
        let bytes = |rate: u64| rate as f64 / 8e6;
        queue = (queue + n as f64 * bytes(source) - bytes(config.rate)).clamp(0.0, 500_000.0);
        if us % (config.period / 1000) == 0 {
            let rate = point.step(queue as u64);
            if queue > 0.0 {
                notices.push_back((us + DELAY, rate));
            }
        }
        if let Some(&(_, rate)) = notices.front().filter(|(at, _)| *at == us) {
            notices.pop_front();
            (source, heard) = (rate.min(config.rate), us);
        } else if us - heard == 55 {
            (source, heard) = ((2 * source).min(config.rate), us);
        }
        if us > 30_000 {
            sums = (sums.0 + queue, sums.1 + source as f64);
        }
    }
    (sums.0 / 1e4, sums.1 / 1e10)
}

#[test]
fn a_fluid_rests_at_the_reference_whatever_the_number_of_flows() {
    // 100 flows have F_min at 10 Gbit/s: nothing is left to empty a queue with.
    for (rate, numbers) in [(10, &[2, 10][..]), (40, &[2, 10, 100]), (100, &[2, 10, 100])] {
        let config = FairRateConfig::of_link(rate * GBIT);
        for &n in numbers {
            let (queue, share) = fluid(n, &config);
            let fair = rate as f64 * 1e3 / n as f64;
            assert!((share / fair - 1.0).abs() < 0.01, "{rate} Gbit/s, {n} flows: {share} Mbit/s");
            assert!((queue / config.qref as f64 - 1.0).abs() < 0.02, "{rate} Gbit/s, {n} flows: {queue} bytes");
        }
    }
}

#[test]
fn without_a_fraction_a_fluid_of_many_flows_rests_short_of_the_reference() {
    let config = FairRateConfig { fraction: 0, ..FairRateConfig::of_link(40 * GBIT) };
    let (queue, share) = fluid(100, &config);
    assert!((100_000.0..135_000.0).contains(&queue) && (share - 400.0).abs() < 8.0, "{queue} bytes, {share} Mbit/s");
}

proptest! {
    #[test]
    fn no_queue_and_no_parameters_lead_out_of_the_limits(
        rates in any::<[u64; 2]>(),
        queues in any::<[u64; 3]>(),
        gains in any::<[f64; 2]>(),
        rest in any::<(u64, u32)>(),
        waiting in proptest::collection::vec(any::<u64>(), 1..20),
    ) {
        let config = FairRateConfig {
            rate: rates[0].max(1), least: rates[1], qref: queues[0], qmid: queues[1], qmax: queues[2],
            chunk: rest.0, alpha: gains[0], beta: gains[1], period: 1, fraction: rest.1,
        };
        let mut port = FairRate::new(&config);
        for queue in waiting {
            prop_assert!(port.step(queue) <= config.rate.max(FairRateConfig::UNIT));
            prop_assert!(port.rate >= port.least && port.rate <= port.most);
        }
    }
}

proptest! {
    #[test]
    fn whoever_knows_the_history_comes_to_the_same_rate(
        gbit in 1..600_u64, fraction in 0..=16_u32, queues in prop::collection::vec(0..2_000_000_u64, 1..60)
    ) {
        let config = FairRateConfig { fraction, ..FairRateConfig::of_link(gbit * GBIT) };
        let mut port = FairRate::new(&config);
        for queue in queues {
            let history = port.history().expect("numbers of a link below 656 Gbit/s are short");
            prop_assert_eq!(history.step(queue), port.step(queue));
        }
    }
}

#[test]
fn there_is_no_history_of_what_has_no_room_in_it() {
    assert_eq!(FairRate::new(&FairRateConfig::of_link(800 * GBIT)).history(), None);
}
