//! HPCC (Li et al., SIGCOMM 2019, Algorithm 1): a window that follows the utilization of the busiest link on the path,
//! as reported by switches on every packet. It aims slightly below full utilization, so that queues stay empty, and
//! paces packets at window by round trip.
//!
//! Where the paper and its authors' published ns-3 code differ, this follows the latter: the window is at most a
//! bandwidth-delay product, the rate has a minimum, U begins as 1, and the first telemetry only begins a record. Losses
//! and timeouts are no signal. Telemetry that is outdated or brings nothing new is ignored; that of another path begins
//! a new record (§4.1, pathID).

use super::dcqcn::Step;
use super::parameters::{Parameter, Parameters, Share, parameter, share, share_text};
use super::{Ack, Controller, Line, MOST_WINDOW};
use crate::footprint::{bits, footprint, left, why, width};
use crate::telemetry::Int;
use crate::time::Time;

/// Parameters of [`Hpcc`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HpccConfig {
    /// η: target utilization of the busiest link.
    pub eta: Share,
    /// Round trips of additive increase before one in which the window follows the utilization upwards.
    pub max_stage: u32,
    /// W_AI, the addition at every update, given as a rate: its bytes are those of a base round trip.
    pub ai: Step,
    /// Lowest rate.
    pub min_rate: Step,
}

impl HpccConfig {
    /// η and maxStage of the paper (§5.1); the steps of its authors' ns-3: 10 Mbit/s for 25 Gbit/s, and at least 100
    /// Mbit/s.
    pub const PAPER: HpccConfig = HpccConfig {
        eta: Share::new(0.95).unwrap(),
        max_stage: 5,
        ai: Step::Line(2_500),
        min_rate: Step::Rate(100_000_000),
    };
}

impl Parameters for HpccConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("eta", |c, v| share(v).map(|x| c.eta = x), |c| share_text(c.eta)),
        parameter(
            "max-stage",
            |c, v| v.number(0..=1_000, "0 to 1000 round trips").map(|x| c.max_stage = x),
            |c| c.max_stage.to_string(),
        ),
        parameter("ai", |c, v| Step::read(v).map(|x| c.ai = x), |c| c.ai.text()),
        parameter("min-rate", |c, v| Step::read(v).map(|x| c.min_rate = x), |c| c.min_rate.text()),
    ];
}

/// ns per second times bits per byte: bit/s divided by this is bytes/ns.
const PER_BYTE: f64 = 8e9;

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Hpcc {
    eta: f64,
    max_stage: u32,
    line: Line,
    /// W_AI, and bounds of the window, bytes.
    step: f64,
    least: f64,
    most: f64,
    /// W and W_c, bytes.
    window: f64,
    reference: f64,
    /// U: bytes in flight on the busiest link, in units of its bandwidth-delay product; a moving average over a round
    /// trip.
    used: f64,
    /// incStage.
    stage: u32,
    /// L: the previous telemetry.
    last: Box<Int>,
    /// lastUpdateSeq: the reference window is updated by packets sent after this many of the connection.
    updated: u64,
    /// Packets acknowledged, and sent, as of the current acknowledgement.
    acked: u64,
    sent: u64,
}

impl Hpcc {
    /// Creates the controller of a new flow, at line rate.
    pub fn new(config: &HpccConfig, line: &Line) -> Hpcc {
        let bytes = |rate: u64| rate as f64 * line.base_rtt as f64 / PER_BYTE;
        let most = bytes(line.rate);
        Hpcc {
            eta: config.eta.get(),
            max_stage: config.max_stage,
            line: *line,
            step: bytes(config.ai.of(line.rate)),
            least: bytes(config.min_rate.of(line.rate).min(line.rate)),
            most,
            window: most,
            reference: most,
            used: 1.0,
            stage: 0,
            last: Box::new(Int::EMPTY),
            updated: 0,
            acked: 0,
            sent: 0,
        }
    }

    /// MeasureInflight: processes `int`. Returns false if it brings nothing new.
    fn measure(&mut self, int: &Int) -> bool {
        let per_base = 1.0 / self.line.base_rtt as f64;
        let (mut most, mut span) = (0.0, 0.0);
        for (new, old) in int.hops().iter().zip(self.last.hops()) {
            if new.at <= old.at {
                continue;
            }
            let elapsed = (new.at - old.at) as f64;
            let sent = new.sent.saturating_sub(old.sent) as f64;
            // qlen / (B · T) + txRate / B.
            let used =
                (new.queued.min(old.queued) as f64 * per_base + sent / elapsed) * PER_BYTE / new.rate.max(1) as f64;
            if used > most {
                (most, span) = (used, elapsed);
            }
        }
        if span == 0.0 {
            return false;
        }
        *self.last = *int;
        let weight = (span * per_base).min(1.0);
        self.used = (1.0 - weight) * self.used + weight * most;
        true
    }

    /// ComputeWind.
    fn compute(&mut self, update: bool) {
        let follows = self.used >= self.eta || self.stage >= self.max_stage;
        let window = if follows { self.reference * self.eta / self.used } else { self.reference } + self.step;
        self.window = window.max(self.least).min(self.most);
        if update {
            self.stage = if follows { 0 } else { self.stage + 1 };
            self.reference = self.window;
        }
    }
}

impl Controller for Hpcc {
    fn on_ack(&mut self, _: Time, ack: &Ack) {
        (self.acked, self.sent) = (ack.acked, ack.sent);
    }

    fn on_telemetry(&mut self, _: Time, int: &Int) {
        if self.last.hops().is_empty() || self.last.way() != int.way() {
            *self.last = *int;
            self.updated = self.sent;
            return;
        }
        if !self.measure(int) {
            return;
        }
        let update = self.acked > self.updated;
        self.compute(update);
        if update {
            self.updated = self.sent;
        }
    }

    fn rate(&self) -> u64 {
        ((self.window / self.line.base_rtt as f64 * PER_BYTE) as u64).clamp(1, self.line.rate)
    }

    fn window(&self) -> u32 {
        // A packet may leave while less than the window is in flight.
        let packets = self.window / f64::from(self.line.mtu.max(1));
        let whole = packets as u32;
        whole.saturating_add((f64::from(whole) < packets).into()).clamp(1, MOST_WINDOW)
    }
}

footprint!(Hpcc, |at| {
    eta => left(why::SHARED),
    max_stage => left(why::SHARED),
    line => left(why::SHARED),
    step => left(why::SHARED),
    least => left(why::SHARED),
    most => left(why::SHARED),
    window => bits(width::FIXED),
    reference => bits(width::FIXED),
    used => bits(width::FIXED),
    stage => bits(8),
    last => bits(8 * u64::from(Int::LEN)).heap(size_of::<Int>()),
    updated => bits(32),
    acked => bits(32),
    sent => bits(32),
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::CongestionConfig;
    use crate::telemetry::Hop;

    const GBIT: u64 = 1_000_000_000;

    /// One byte per ns, and 10,000 in a round trip.
    const LINE: Line = Line { rate: 8 * GBIT, base_rtt: 10_000, mtu: 1000 };

    /// W_AI of 100 bytes: 80 Mbit/s.
    fn flow() -> Hpcc {
        Hpcc::new(&HpccConfig { ai: Step::Rate(80_000_000), ..HpccConfig::PAPER }, &LINE)
    }

    /// Telemetry of two switches, whose ports have 8 and 4 Gbit/s: (clock, bytes sent, bytes queued) of each.
    fn int(a: (u64, u64, u64), b: (u64, u64, u64)) -> Int {
        let mut int = Int::EMPTY;
        for (port, rate, (at, sent, queued)) in [(1, 8 * GBIT, a), (2, 4 * GBIT, b)] {
            int.push(port, Hop { rate, at, sent, queued });
        }
        int.answer()
    }

    fn tell(flow: &mut Hpcc, acked: u64, sent: u64, int: Int) {
        flow.on_ack(Time(0), &Ack { packets: 1, acked, sent, ..Ack::default() });
        flow.on_telemetry(Time(0), &int);
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
    }

    #[test]
    fn a_flow_starts_at_line_rate_with_the_bandwidth_delay_product() {
        let flow = flow();
        assert_eq!((flow.window(), flow.rate()), (10, 8 * GBIT));
        // Steps of the ns-3 code: 16 Mbit/s at 40 Gbit/s, in 24 µs 48 bytes; 100 Mbit/s are 300.
        let flow = Hpcc::new(&HpccConfig::PAPER, &Line { rate: 40 * GBIT, base_rtt: 24_000, mtu: 1000 });
        assert_eq!((flow.step, flow.least, flow.most, flow.window()), (48.0, 300.0, 120_000.0, 120));
        let far = Hpcc::new(&HpccConfig::PAPER, &Line { rate: u64::MAX, base_rtt: u64::MAX, mtu: 0 });
        assert_eq!((far.window(), far.rate()), (65_536, u64::MAX));
        let slow = Hpcc::new(&HpccConfig::PAPER, &Line { rate: 1, base_rtt: 1, mtu: 1000 });
        assert_eq!((slow.window(), slow.rate()), (1, 1));
    }

    /// Algorithm 1, line by line, T = 10,000 ns, η = 0.95, W_AI = 100.
    #[test]
    fn the_window_follows_the_busiest_link() {
        let mut flow = flow();
        // The first begins the record, and lastUpdateSeq = snd_nxt = 10.
        tell(&mut flow, 1, 10, int((1_000, 0, 0), (2_000, 0, 0)));
        assert_eq!((flow.window, flow.used, flow.updated), (10_000.0, 1.0, 10));

        // Switch 1: 1000 B in 2000 ns of 1 B/ns = 0.5; switch 2: 800 B in 2000 ns of 0.5 B/ns = 0.8. Queues: min(·, 0)
        // = 0. u = 0.8, τ = 2000: U = 0.8 · 1 + 0.2 · 0.8 = 0.96 ≥ η. Packet 2 was sent before packet 10: W_c stays.
        tell(&mut flow, 2, 11, int((3_000, 1_000, 500), (4_000, 800, 600)));
        near(flow.used, 0.96);
        // W = 10,000 / (0.96 / 0.95) + 100 = 9895.8333 + 100.
        near(flow.window, 9_995.833_333_333);
        assert_eq!((flow.reference, flow.stage, flow.updated), (10_000.0, 0, 10));
        // R = W / T: 0.99958333 B/ns of 8 Gbit/s.
        assert_eq!((flow.rate(), flow.window()), (7_996_666_666, 10));

        // Switch 1: 2000 / 2000 = 1, and min(500, 500) of 10,000 B = 0.05. Switch 2: 1000 / 2000 of 0.5 = 1, and
        // min(1500, 600) of 5000 B = 0.12. u = 1.12: U = 0.8 · 0.96 + 0.2 · 1.12 = 0.992. A packet after the tenth: W_c
        // moves.
        tell(&mut flow, 11, 20, int((5_000, 3_000, 500), (6_000, 1_800, 1_500)));
        near(flow.used, 0.992);
        // W = 10,000 · 0.95 / 0.992 + 100.
        near(flow.window, 9_676.612_903_226);
        near(flow.reference, 9_676.612_903_226);
        assert_eq!((flow.stage, flow.updated), (0, 20));

        // Two round trips later τ is T: U = u. Switch 1: 8000 / 20,000 = 0.4; switch 2: 2000 / 20,000 of 0.5 = 0.2.
        // Queues are empty. U < η: W = W_c + 100, W_c and incStage stay as packet 12 was sent before packet 20.
        tell(&mut flow, 12, 21, int((25_000, 11_000, 0), (26_000, 3_800, 0)));
        near(flow.used, 0.4);
        near(flow.window, 9_776.612_903_226);
        near(flow.reference, 9_676.612_903_226);
        assert_eq!(flow.stage, 0);
        // Not added twice.
        tell(&mut flow, 13, 22, int((45_000, 19_000, 0), (46_000, 5_800, 0)));
        near(flow.window, 9_776.612_903_226);
    }

    /// One switch of 8 Gbit/s of which the flow uses a share, acknowledged one window at a time.
    struct Loop {
        flow: Hpcc,
        at: u64,
        sent: u64,
        acked: u64,
    }

    impl Loop {
        fn new(mut flow: Hpcc, window: f64) -> Loop {
            (flow.window, flow.reference) = (window, window);
            let mut new = Loop { flow, at: 0, sent: 0, acked: 0 };
            new.round(0.5, 0);
            new
        }

        fn round(&mut self, used: f64, queued: u64) {
            (self.at, self.acked) = (self.at + 10_000, self.acked + 10);
            self.sent += (used * 10_000.0) as u64;
            let mut int = Int::EMPTY;
            int.push(1, Hop { rate: 8 * GBIT, at: self.at, sent: self.sent, queued });
            tell(&mut self.flow, self.acked, self.acked + 5, int.answer());
        }
    }

    #[test]
    fn five_steps_and_then_what_the_link_has_left() {
        let mut sender = Loop::new(flow(), 1_000.0);
        for n in 1..=5 {
            sender.round(0.5, 0);
            assert_eq!((sender.flow.window, sender.flow.stage), (1_000.0 + 100.0 * f64::from(n), n));
        }
        // W = 1500 / (0.5 / 0.95) + 100.
        sender.round(0.5, 0);
        near(sender.flow.window, 2_950.0);
        assert_eq!(sender.flow.stage, 0);
        // Without such steps it follows at once; never beyond the bandwidth-delay product.
        let eager = HpccConfig { max_stage: 0, ai: Step::Rate(80_000_000), ..HpccConfig::PAPER };
        let mut sender = Loop::new(Hpcc::new(&eager, &LINE), 1_000.0);
        sender.round(0.5, 0);
        near(sender.flow.window, 2_000.0);
        sender.round(0.1, 0);
        assert_eq!(sender.flow.window, 10_000.0);
    }

    #[test]
    fn a_queue_counts_only_while_it_stands() {
        let mut sender = Loop::new(flow(), 5_000.0);
        // The queue is new: U = 0.95. W = 5000 + 100.
        sender.round(0.95, 5_000);
        near(sender.flow.window, 5_100.0);
        // The queue persists: U = 0.95 + 0.5. W = 5100 · 0.95 / 1.45 + 100.
        sender.round(0.95, 5_000);
        near(sender.flow.window, 5_100.0 * 0.95 / 1.45 + 100.0);
        // Never below 100 Mbit/s: 125 bytes.
        (0..20).for_each(|_| sender.round(1.0, 1_000_000));
        assert_eq!((sender.flow.window, sender.flow.window()), (125.0, 1));
        assert_eq!(sender.flow.rate(), 100_000_000);
    }

    #[test]
    fn what_is_old_or_says_nothing_changes_nothing() {
        let mut flow = flow();
        tell(&mut flow, 1, 10, int((1_000, 0, 0), (2_000, 0, 0)));
        tell(&mut flow, 2, 11, int((3_000, 1_000, 500), (4_000, 800, 600)));
        let before = format!("{:?}", Hpcc { acked: 0, sent: 0, ..flow.clone() });
        for again in [int((3_000, 1_000, 500), (4_000, 800, 600)), int((2_000, 500, 9), (3_000, 400, 9)), Int::EMPTY] {
            let mut same = flow.clone();
            if again != Int::EMPTY {
                tell(&mut same, 12, 20, again);
                assert_eq!(format!("{:?}", Hpcc { acked: 0, sent: 0, ..same }), before);
            }
        }
    }

    #[test]
    fn another_way_begins_a_new_record() {
        let mut flow = flow();
        tell(&mut flow, 1, 10, int((1_000, 0, 0), (2_000, 0, 0)));
        let mut other = Int::EMPTY;
        other.push(7, Hop { rate: GBIT, at: 1_000_000, sent: 1 << 40, queued: 1 << 20 });
        tell(&mut flow, 11, 20, other.answer());
        // No second telemetry of this path yet.
        assert_eq!((flow.window, flow.used, flow.updated), (10_000.0, 1.0, 20));
        // Then: 1000 B in 10,000 ns of 0.125 B/ns = 0.8, and a queue of 1250 of 1250 B: U = 1.8.
        let mut next = Int::EMPTY;
        next.push(7, Hop { rate: GBIT, at: 1_010_000, sent: (1 << 40) + 1_000, queued: 1_250 });
        tell(&mut flow, 21, 30, next.answer());
        near(flow.used, 1.8);
    }

    #[test]
    fn without_telemetry_nothing_changes() {
        let mut flow = flow();
        for n in 0..100 {
            flow.on_ack(
                Time(n),
                &Ack { packets: 1, marked: true, rtt: Some(1 << 40), acked: n, sent: n, ..Ack::default() },
            );
            flow.on_loss(Time(n));
            flow.on_timeout(Time(n));
        }
        assert_eq!((flow.window(), flow.rate()), (10, 8 * GBIT));
    }

    #[test]
    fn parameters_can_be_written() {
        let expected = HpccConfig {
            eta: Share::new(0.9).unwrap(),
            max_stage: 0,
            ai: Step::Rate(50_000_000),
            min_rate: Step::Line(40),
        };
        assert_eq!("hpcc,eta=0.9,max-stage=0,ai=50M,min-rate=line/40".parse(), Ok(CongestionConfig::Hpcc(expected)));
        let config = CongestionConfig::Hpcc(HpccConfig::PAPER);
        assert_eq!((config.uses_telemetry(), config.uses_ecn(), config.cnp_interval()), (true, false, None));
        for wrong in ["hpcc,eta=0", "hpcc,max-stage=-1", "hpcc,ai=0", "hpcc,g=1"] {
            assert!(wrong.parse::<CongestionConfig>().is_err(), "{wrong}");
        }
    }

    fn hops() -> impl Strategy<Value = Vec<(u32, Hop)>> {
        let number = || prop_oneof![0..100_000_u64, any::<u64>()];
        let hop = (0..3_u32, number(), number(), number(), number())
            .prop_map(|(port, rate, at, sent, queued)| (port, Hop { rate, at, sent, queued }));
        prop::collection::vec(hop, 0..7)
    }

    proptest! {
        #[test]
        fn window_and_rate_stay_in_bounds_whatever_comes(
            rate in prop_oneof![1..1_000_u64, any::<u64>().prop_map(|r| r.max(1))],
            base_rtt in 1..=u64::MAX,
            mtu in any::<u32>(),
            eta in 1e-9..=1.0_f64,
            max_stage in 0..10_u32,
            acks in prop::collection::vec((hops(), any::<u64>(), any::<u64>()), 0..100),
        ) {
            let config = HpccConfig { eta: Share::new(eta).unwrap(), max_stage, ..HpccConfig::PAPER };
            let mut flow = Hpcc::new(&config, &Line { rate, base_rtt, mtu });
            for (hops, acked, sent) in acks {
                let mut int = Int::EMPTY;
                hops.into_iter().for_each(|(port, hop)| int.push(port, hop));
                tell(&mut flow, acked, sent, int.answer());
                prop_assert!((flow.least..=flow.most).contains(&flow.window), "{flow:?}");
                prop_assert!((flow.least..=flow.most).contains(&flow.reference), "{flow:?}");
                prop_assert!(flow.used >= 0.0, "{flow:?}");
                prop_assert!((1..=rate).contains(&flow.rate()) && (1..=65_536).contains(&flow.window()), "{flow:?}");
            }
        }

        /// Higher utilization reduces the window more.
        #[test]
        fn more_use_is_never_a_larger_window(
            queued in 0..100_000_u64, share in 1..200_u32, more in 1..100_u32, rounds in 1..10_u32, window in 1_000..10_000_u32,
        ) {
            let end = |share: u32, queued| {
                let mut sender = Loop::new(flow(), window.into());
                (0..rounds).for_each(|_| sender.round(f64::from(share) / 100.0, queued));
                sender.flow.window
            };
            prop_assert!(end(share + more, queued) <= end(share, queued) + 1e-6 || share < 95);
            prop_assert!(end(share, queued + u64::from(more) * 100) <= end(share, queued) + 1e-6 || share < 95);
        }

        /// No stall: after any history, an empty link is filled in a few round trips.
        #[test]
        fn an_empty_link_is_taken(rounds in prop::collection::vec((0..300_u32, 0..1_000_000_u64), 0..100)) {
            let mut sender = Loop::new(flow(), 10_000.0);
            for (used, queued) in rounds {
                sender.round(f64::from(used) / 100.0, queued);
            }
            // By a half each sixth round trip at least, from 125 bytes.
            (0..60).for_each(|_| sender.round(0.475, 0));
            prop_assert_eq!(sender.flow.window, 10_000.0);
        }
    }
}
