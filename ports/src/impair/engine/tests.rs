use super::*;
use crate::impair::Impairments;
use proptest::prelude::*;

const FRAME: Frame = Frame { bytes: 1024, wire_bytes: 1066, ect: false, red: false };
const FRAMES: u64 = 200_000;

fn engine(text: &str) -> Impairment {
    let spec = text.parse::<Impairments>().unwrap_or_else(|e| panic!("{e}")).tx;
    Impairment::new(&spec, 1, 0)
}

/// Judges [`FRAMES`] frames one microsecond apart; returns for each when its first copy arrives.
fn arrivals(engine: &mut Impairment) -> Vec<(Time, Option<Time>)> {
    let judge = |i| {
        let now = Time(i * 1000);
        (now, engine.judge(now, FRAME, 0).deliveries().next().map(|copy| copy.at))
    };
    (0..FRAMES).map(judge).collect()
}

fn losses(engine: &mut Impairment) -> Vec<bool> {
    arrivals(engine).into_iter().map(|(_, at)| at.is_none()).collect()
}

fn share(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

/// Returns the correlation coefficient of successive values.
fn autocorrelation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let spread: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>() / spread
}

fn delays(text: &str) -> Vec<f64> {
    arrivals(&mut engine(text)).iter().map(|(now, at)| at.unwrap().since(*now) as f64).collect()
}

#[test]
fn without_impairments_all_arrive_at_once() {
    let mut engine = engine("");
    for (now, at) in arrivals(&mut engine) {
        assert_eq!(at, Some(now));
    }
    assert_eq!(*engine.counters(), Counters { seen: FRAMES, ..Counters::default() });
}

#[test]
fn random_loss_meets_its_rate() {
    for (text, rate) in
        [("loss 0%", 0.0), ("loss 0.1%", 0.001), ("loss 1%", 0.01), ("loss 30%", 0.3), ("loss 100%", 1.0)]
    {
        let mut engine = engine(text);
        let lost = losses(&mut engine).iter().filter(|lost| **lost).count();
        assert!((share(lost, FRAMES as usize) - rate).abs() <= rate * 0.15, "{text}: {lost}");
        assert_eq!(engine.counters().dropped, lost as u64);
    }
}

#[test]
fn correlated_loss_keeps_its_rate_and_comes_in_bursts() {
    for (text, rate, correlation) in
        [("loss 10% 0%", 0.1, 0.0), ("loss 10% 25%", 0.1, 0.25), ("loss 1% 75%", 0.01, 0.75)]
    {
        let lost: Vec<f64> = losses(&mut engine(text)).into_iter().map(|lost| f64::from(u8::from(lost))).collect();
        let found = lost.iter().sum::<f64>() / lost.len() as f64;
        assert!((found - rate).abs() < rate * 0.2, "{text}: {found}");
        assert!((autocorrelation(&lost) - correlation).abs() < 0.05, "{text}: {}", autocorrelation(&lost));
    }
}

#[test]
fn gilbert_elliott_meets_its_stationary_loss_and_burst_length() {
    for (text, p, r, bad, good) in [
        ("loss gemodel 1% 10% 70% 0.1%", 0.01, 0.1, 0.7, 0.001),
        ("loss gemodel 1% 10%", 0.01, 0.1, 1.0, 0.0),
        ("loss gemodel 5%", 0.05, 0.95, 1.0, 0.0),
    ] {
        let lost = losses(&mut engine(text));
        let stationary = (p * bad + r * good) / (p + r);
        let found = share(lost.iter().filter(|l| **l).count(), lost.len());
        assert!((found - stationary).abs() < stationary * 0.1, "{text}: {found} for {stationary}");
        if bad == 1.0 {
            let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count();
            let mean = found * lost.len() as f64 / bursts as f64;
            assert!((mean - 1.0 / r).abs() < 0.1 / r, "{text}: bursts of {mean}");
        }
    }
}

#[test]
fn ecn_marks_what_understands_it_and_drops_the_rest() {
    let mut engine = engine("loss 50% ecn");
    for i in 0..1000 {
        let frame = Frame { ect: i % 2 == 0, ..FRAME };
        let verdict = engine.judge(Time(i), frame, 0);
        assert!(!(frame.ect && verdict.is_drop()));
        assert!(frame.ect || verdict.deliveries().all(|copy| !copy.mark_ce));
    }
    let Counters { dropped, marked, .. } = *engine.counters();
    assert!((200..300).contains(&dropped) && (200..300).contains(&marked), "{dropped} {marked}");
}

/// Queue of a line of 8 Gbit/s, a byte a nanosecond: all frames of 1066 bytes arrive at once, so that the `n`-th finds
/// `n` frames. Returns for each whether it was marked.
fn queued(text: &str, frames: usize, ect: bool) -> (Vec<bool>, Impairment) {
    let mut engine = engine(&format!("rate 8gbit limit 100000 {text}"));
    let frame = Frame { ect, ..FRAME };
    let marks = (0..frames).map(|_| engine.judge(Time(0), frame, 0).only().is_some_and(|copy| copy.mark_ce)).collect();
    (marks, engine)
}

#[test]
fn a_queue_marks_what_meets_more_than_its_threshold() {
    // 3 KiB are 3072 bytes: the third frame meets 2132, the fourth 3198.
    let (marks, engine) = queued("ecn 3k", 10, true);
    assert_eq!(marks, (0..10).map(|n| n > 2).collect::<Vec<_>>());
    assert_eq!(engine.counters().marked, 7);
    // Frames without ECT pass.
    let (marks, engine) = queued("ecn 3k", 10, false);
    assert!(!marks.contains(&true) && engine.counters().dropped == 0);
    // No queue, no mark: as fast as the line.
    let mut at_rate = self::engine("rate 8gbit ecn 1");
    assert!((0..100).all(|n| {
        at_rate.judge(Time(n * 1066), Frame { ect: true, ..FRAME }, 0).only().is_some_and(|copy| !copy.mark_ce)
    }));
}

#[test]
fn red_marks_the_more_the_longer_the_queue_is() {
    const RUNS: u64 = 2_000;
    let mut counts = [0u64; 40];
    for seed in 0..RUNS {
        let (marks, _) = queued(&format!("ecn 10660 31980 40% seed {seed}"), 40, true);
        counts.iter_mut().zip(marks).for_each(|(count, mark)| *count += u64::from(mark));
    }
    for (met, count) in counts.into_iter().enumerate() {
        let expected = match met {
            0..=10 => 0.0,
            11..=30 => 0.4 * (met - 10) as f64 / 20.0,
            _ => 1.0,
        };
        let found = count as f64 / RUNS as f64;
        assert!((found - expected).abs() < 0.05, "{met} frames: {found} for {expected}");
    }
}

#[test]
fn a_queue_that_marks_still_loses_what_loss_says() {
    let (marks, engine) = queued("loss 50% ecn 3k", 1000, true);
    let Counters { marked, dropped, .. } = *engine.counters();
    assert!((400..600).contains(&dropped) && marked + dropped >= 990, "{marked} {dropped}");
    assert_eq!(marks.iter().filter(|m| **m).count() as u64, marked);
}

#[test]
fn the_queue_is_told_as_frames_met_it() {
    let (_, engine) = queued("", 5, true);
    let queue = engine.queue().unwrap();
    // 0 to 4 frames of 1066 bytes; percentiles to a sixteenth.
    assert_eq!((queue.frames, queue.mean_bytes, queue.peak_bytes, queue.p99_bytes), (5, 2 * 1066, 4 * 1066, 4 * 1066));
    assert!((2 * 1066..=2 * 1066 + 2 * 1066 / 16).contains(&queue.p50_bytes), "{queue:?}");
    assert_eq!(self::engine("delay 1ms").queue(), None);
    // A frame dropped for lack of room was never in it.
    let mut full = self::engine("rate 8gbit limit 1");
    full.judge(Time(0), FRAME, 1);
    assert_eq!(full.queue().unwrap().frames, 0);
}

#[test]
fn delay_is_exact_without_jitter() {
    assert!(delays("delay 123us").iter().all(|d| *d == 123_000.0));
}

#[test]
fn jitter_has_its_mean_deviation_and_range() {
    for (text, mean, deviation, low, high) in [
        ("delay 100us 10us", 100e3, 5.77e3, 90e3, 110e3),
        ("delay 100us 10us distribution normal", 100e3, 10e3, 60e3, 140e3),
        ("delay 100us 10us distribution pareto", 99.8e3, 7.4e3, 94e3, 140e3),
        ("delay 100us 10us distribution paretonormal", 99.8e3, 7.8e3, 80e3, 140e3),
        // Times before now become now.
        ("delay 1us 10us", 3.03e3, 3.5e3, 0.0, 11e3),
    ] {
        let delays = delays(text);
        let found = delays.iter().sum::<f64>() / delays.len() as f64;
        let spread = (delays.iter().map(|d| (d - found).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
        assert!((found - mean).abs() < 300.0, "{text}: mean {found}");
        assert!((spread - deviation).abs() < 500.0, "{text}: deviation {spread}");
        assert!(delays.iter().all(|d| (low..=high).contains(d)), "{text}");
    }
}

#[test]
fn correlated_jitter_has_its_correlation() {
    for (text, correlation) in
        [("delay 1ms 100us 0%", 0.0), ("delay 1ms 100us 25%", 0.25), ("delay 1ms 100us 90%", 0.9)]
    {
        let found = autocorrelation(&delays(text));
        assert!((found - correlation).abs() < 0.02, "{text}: {found}");
    }
}

#[test]
fn reordered_frames_skip_the_delay() {
    let mut engine = engine("delay 10ms reorder 25%");
    let skipped = arrivals(&mut engine).iter().filter(|(now, at)| *at == Some(*now)).count();
    assert!((share(skipped, FRAMES as usize) - 0.25).abs() < 0.01);
    assert_eq!(engine.counters().reordered, skipped as u64);
    assert_eq!(engine.counters().delayed, FRAMES - skipped as u64);
}

#[test]
fn a_gap_lets_every_nth_frame_skip_the_delay() {
    for (i, (now, at)) in arrivals(&mut engine("delay 10ms reorder 100% gap 5")).into_iter().enumerate() {
        let skips = i % 5 == 4;
        assert_eq!(at, Some(if skips { now } else { now + 10_000_000 }));
    }
}

#[test]
fn duplicates_arrive_twice_and_fare_alone() {
    let mut engine = engine("duplicate 20% loss 50%");
    let copies: usize = (0..FRAMES).map(|i| engine.judge(Time(i), FRAME, 0).deliveries().count()).sum();
    let Counters { duplicated, dropped, .. } = *engine.counters();
    assert!((share(duplicated as usize, FRAMES as usize) - 0.2).abs() < 0.01);
    assert_eq!(copies as u64, FRAMES + duplicated - dropped);
    assert!((share(copies, FRAMES as usize) - 0.6).abs() < 0.01);
}

#[test]
fn corruption_flips_any_bit_of_the_frame() {
    let mut engine = engine("corrupt 50%");
    let frame = Frame { bytes: 20, wire_bytes: 62, ect: false, red: false };
    let mut flips = [0u32; 160];
    for i in 0..FRAMES {
        for copy in engine.judge(Time(i), frame, 0).deliveries() {
            if let Some(bit) = copy.flip_bit {
                flips[bit as usize] += 1;
            }
        }
    }
    assert!((share(flips.iter().sum::<u32>() as usize, FRAMES as usize) - 0.5).abs() < 0.01);
    assert!(flips.iter().all(|n| (450..800).contains(n)), "{flips:?}");
    let empty = engine.judge(Time::ZERO, Frame { bytes: 0, ..frame }, 0);
    assert_eq!(empty.deliveries().next().unwrap().flip_bit, None);
}

#[test]
fn at_a_rate_frames_leave_back_to_back() {
    // 1066 bytes at 8 Gbit/s are 1066 ns; frames come every 1000 ns.
    let found = arrivals(&mut engine("rate 8gbit"));
    for (i, (_, at)) in found.iter().enumerate() {
        assert_eq!(*at, Some(Time((i as u64 + 1) * 1066)));
    }
    // With the preamble, checksum and gap of Ethernet.
    assert_eq!(arrivals(&mut engine("rate 8gbit 24"))[9].1, Some(Time(10 * 1090)));
    assert_eq!(arrivals(&mut engine("rate 8gbit -66"))[9].1, Some(Time(9000 + 1000)));
    assert_eq!(arrivals(&mut engine("rate 8gbit -65535"))[9].1, Some(Time(9000)));
    assert_eq!(arrivals(&mut engine("rate 8gbit delay 5us"))[9].1, Some(Time(5000 + 10 * 1066)));
}

#[test]
fn a_rate_holds_to_the_nanosecond_over_many_small_frames() {
    // 64 bytes at 400 Gbit/s: 1.28 ns.
    let mut engine = engine("rate 400gbit");
    let frame = Frame { bytes: 22, wire_bytes: 64, ect: false, red: false };
    let last = (0..1_000_000).filter_map(|_| engine.judge(Time::ZERO, frame, 0).deliveries().next()).last().unwrap();
    assert_eq!(last.at, Time(1_280_000));
}

#[test]
fn a_frame_that_overtakes_still_takes_its_time_on_the_line() {
    let mut engine = engine("delay 10us reorder 100% gap 2 rate 8gbit");
    let mut at = |now| engine.judge(Time(now), FRAME, 0).deliveries().next().unwrap().at.0;
    assert_eq!([at(0), at(0), at(0)], [11_066, 1066, 10_000 + 3 * 1066]);
}

#[test]
fn what_exceeds_the_limit_is_dropped() {
    let mut engine = engine("delay 1ms limit 3 duplicate 100%");
    assert_eq!(engine.judge(Time::ZERO, FRAME, 1).deliveries().count(), 2);
    assert_eq!(engine.judge(Time::ZERO, FRAME, 2).deliveries().count(), 1);
    assert_eq!(engine.judge(Time::ZERO, FRAME, 3).deliveries().count(), 0);
    assert_eq!(engine.counters().over_limit, 3);
}

#[test]
fn the_seed_decides_and_streams_differ() {
    let text = "loss 10% delay 100us 50us duplicate 5% corrupt 5%";
    let spec = |text: &str| text.parse::<Impairments>().unwrap().tx;
    let verdicts = |spec: &Spec, seed, stream| {
        let mut engine = Impairment::new(spec, seed, stream);
        (0..1000).map(|i| engine.judge(Time(i), FRAME, 0)).collect::<Vec<_>>()
    };
    let plain = spec(text);
    let seeded = spec(&format!("{text} seed 7"));
    assert_eq!(verdicts(&plain, 7, 0), verdicts(&plain, 7, 0));
    assert_eq!(verdicts(&plain, 7, 0), verdicts(&seeded, 99, 0));
    assert_ne!(verdicts(&plain, 7, 0), verdicts(&plain, 8, 0));
    assert_ne!(verdicts(&plain, 7, 0), verdicts(&plain, 7, 1));
}

proptest! {
    #[test]
    fn verdicts_are_sane_for_every_description(
        loss in 0..=100u32, delay in 1..1_000_000u64, jitter in 0..2_000_000u64, shape in 0..4usize, reorder in 0..=100u32,
        gap in 1..5u32, duplicate in 0..=100u32, corrupt in 0..=100u32, rate in 1..1_000_000_000_000u64,
        seed: u64, frames in prop::collection::vec((0..10_000u32, 0..100_000u64, 0..20usize), 1..100),
    ) {
        let shape = ["uniform", "normal", "pareto", "paretonormal"][if jitter == 0 { 0 } else { shape }];
        let distribution = if jitter == 0 { String::new() } else { format!("distribution {shape}") };
        let mut engine = engine(&format!(
            "loss {loss} delay {delay}ns {jitter}ns {distribution} reorder {reorder} gap {gap} duplicate {duplicate} \
             corrupt {corrupt} rate {rate} limit 10 seed {seed}"
        ));
        let mut now = Time::ZERO;
        for (bytes, pause, held) in frames {
            now += pause;
            let verdict = engine.judge(now, Frame { bytes, wire_bytes: bytes + 42, ect: false, red: false }, held);
            for copy in verdict.deliveries() {
                prop_assert!(copy.at >= now && !copy.mark_ce && held < 10);
                prop_assert!(copy.flip_bit.is_none_or(|bit| bit < bytes * 8));
            }
        }
    }
}
