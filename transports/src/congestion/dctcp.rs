//! DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) on a window of packets: once per window it shrinks by half the share
//! of marked packets.
//!
//! By default there is no slow start: a flow starts as with AIMD, in congestion avoidance. Losses halve the window, as
//! in TCP (RFC 8257 §3.5). With `ssthresh` the rest follows TCP as well (RFC 8257 §3.4): slow start up to that, and the
//! window counts packets in the network (RFC 6675).

use super::parameters::{Parameter, Parameters, Share, parameter, share, share_text, window, window_text};
use super::{Ack, Controller, ControllerMetrics, Line, MOST_WINDOW};
use crate::footprint::{bits, flag, footprint, left, maybe, why, width};
use crate::time::Time;
use irnic_units::keys::{Value, ValueError};

/// Parameters of [`Dctcp`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DctcpConfig {
    /// Initial window in packets; `None` for the bandwidth-delay product, so that flows start at line rate.
    pub initial: Option<u32>,
    /// Weight of a window in α (equation 1).
    pub g: Share,
    /// Slow start threshold in packets; `None` without slow start.
    pub ssthresh: Option<u32>,
}

impl DctcpConfig {
    /// The paper's g (§4), and the start of the IRN chapter.
    pub const PAPER: DctcpConfig = DctcpConfig { initial: None, g: Share::new(1.0 / 16.0).unwrap(), ssthresh: None };
}

impl Parameters for DctcpConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("initial", |c, v| window(v).map(|x| c.initial = x), |c| window_text(c.initial)),
        parameter("g", |c, v| share(v).map(|x| c.g = x), |c| share_text(c.g)),
        parameter("ssthresh", |c, v| slow_start(v).map(|x| c.ssthresh = x), |c| slow_start_text(c.ssthresh)),
    ];
}

fn slow_start(value: &Value<'_>) -> Result<Option<u32>, ValueError> {
    match value.text {
        "none" => Ok(None),
        _ => value.number(1..=MOST_WINDOW, "none, or 1 to 65536 packets").map(Some),
    }
}

fn slow_start_text(packets: Option<u32>) -> String {
    packets.map_or("none".to_owned(), |n| n.to_string())
}

/// Maximum window in packets.
const MOST: f64 = MOST_WINDOW as f64;

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Dctcp {
    g: f64,
    /// Packets, 1 to [`MOST`]. Fractional: decreases are often of less than one.
    window: f64,
    /// Window up to which it grows by a packet with each acknowledgement; `None` without slow start.
    ssthresh: Option<f64>,
    /// Packets acknowledged towards the next increase.
    counted: u32,
    /// Share of marked packets, averaged over windows.
    alpha: f64,
    /// Packets acknowledged in this window, and the number of them acknowledged with a mark.
    packets: u64,
    marked: u64,
    /// An acknowledgement of no packets was marked; the mark is applied to the next that acknowledges some.
    owed: bool,
    /// The window ends when more than this many packets of the connection are acknowledged: all that were sent when it
    /// began.
    end: u64,
    /// No decrease or increase until more than this many packets are acknowledged: those sent before a decrease carry
    /// no new information.
    decreased: u64,
    /// Value of `acked` once everything in flight at the last acknowledgement is acknowledged.
    ahead: u64,
}

impl Dctcp {
    /// Creates the controller of a new flow, with α = 1 (RFC 8257).
    pub fn new(config: &DctcpConfig, line: &Line) -> Dctcp {
        Dctcp {
            g: config.g.get(),
            window: f64::from(config.initial.unwrap_or(line.window())).clamp(1.0, MOST),
            ssthresh: config.ssthresh.map(f64::from),
            counted: 0,
            alpha: 1.0,
            packets: 0,
            marked: 0,
            owed: false,
            end: 0,
            decreased: 0,
            ahead: 0,
        }
    }

    fn shrink(&mut self, to: f64) {
        self.window = to.max(1.0);
        self.ssthresh = self.ssthresh.map(|_| self.window.max(2.0));
        self.counted = 0;
        self.decreased = self.ahead;
    }
}

impl Controller for Dctcp {
    fn on_ack(&mut self, _: Time, ack: &Ack) {
        self.ahead = ack.sent;
        if ack.acked > self.end {
            if self.packets > 0 {
                let share = self.marked as f64 / self.packets as f64;
                self.alpha += self.g * (share - self.alpha);
                (self.packets, self.marked) = (0, 0);
            }
            self.end = self.ahead;
        }
        self.owed |= ack.marked;
        let marked = self.owed && ack.packets > 0;
        self.packets = self.packets.saturating_add(u64::from(ack.packets));
        if marked {
            self.owed = false;
            self.marked = self.marked.saturating_add(u64::from(ack.packets));
        }
        if ack.acked <= self.decreased {
            return;
        }
        if marked {
            self.shrink(self.window * (1.0 - self.alpha / 2.0));
            return;
        }
        if ack.packets > 0 && self.ssthresh.is_some_and(|ssthresh| self.window < ssthresh) {
            self.window = (self.window + 1.0).min(MOST);
            return;
        }
        self.counted = self.counted.saturating_add(ack.packets);
        if self.counted >= self.window() {
            self.counted -= self.window();
            self.window = (self.window + 1.0).min(MOST);
        }
    }

    fn on_loss(&mut self, _: Time) {
        self.shrink(self.window / 2.0);
    }

    fn on_timeout(&mut self, _: Time) {
        // A repeated loss of a packet causes no further decrease (RFC 5681 §3.1).
        let half = if self.window > 1.0 { self.ssthresh.map(|_| (self.window / 2.0).max(2.0)) } else { self.ssthresh };
        self.shrink(1.0);
        self.ssthresh = half;
    }

    fn window(&self) -> u32 {
        self.window as u32
    }

    fn counts_pipe(&self) -> bool {
        self.ssthresh.is_some()
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics { rate: 0, window: self.window(), ssthresh: self.ssthresh.map(|packets| packets as u32) }
    }
}

footprint!(Dctcp, |at| {
    g => left(why::SHARED),
    window => bits(width::FIXED),
    ssthresh => maybe(width::FIXED),
    counted => bits(width::COUNT),
    alpha => bits(width::FIXED),
    packets => bits(32),
    marked => bits(32),
    owed => flag(),
    end => bits(32),
    decreased => bits(32),
    ahead => bits(32),
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::CongestionConfig;

    const LINE: Line = Line { rate: 10_000_000_000, base_rtt: 24_000, mtu: 1000 };

    fn flow(initial: u32) -> Dctcp {
        Dctcp::new(&DctcpConfig { initial: Some(initial), ..DctcpConfig::PAPER }, &LINE)
    }

    /// A sender that keeps its window full; every packet is acknowledged alone.
    struct Loop {
        flow: Dctcp,
        acked: u64,
        sent: u64,
    }

    impl Loop {
        fn new(initial: u32) -> Loop {
            Loop { flow: flow(initial), acked: 0, sent: u64::from(initial) }
        }

        fn ack(&mut self, marked: bool) {
            self.acked += 1;
            self.flow
                .on_ack(Time(0), &Ack { packets: 1, marked, acked: self.acked, sent: self.sent, ..Ack::default() });
            self.sent = self.sent.max(self.acked + u64::from(self.flow.window()));
        }

        /// Acknowledges all packets in flight.
        fn round(&mut self, marked: impl Fn(u64) -> bool) {
            let end = self.sent;
            let mut n = 0;
            while self.acked < end {
                self.ack(marked(n));
                n += 1;
            }
        }
    }

    #[test]
    fn starts_with_the_bandwidth_delay_product() {
        assert_eq!(Dctcp::new(&DctcpConfig::PAPER, &LINE).window(), 30);
        let far = Line { rate: u64::MAX, base_rtt: u64::MAX, mtu: 0 };
        assert_eq!(Dctcp::new(&DctcpConfig::PAPER, &far).window(), 65_536);
        let near = Line { rate: 1, base_rtt: 1, mtu: 1000 };
        assert_eq!(Dctcp::new(&DctcpConfig::PAPER, &near).window(), 1);
    }

    #[test]
    fn without_marks_the_window_grows_by_a_packet_a_round_trip_and_alpha_decays() {
        let mut sender = Loop::new(4);
        let mut alpha = 1.0;
        for round in 1..10 {
            sender.round(|_| false);
            assert_eq!(sender.flow.window, f64::from(4 + round));
            // α is updated when the next window begins.
            assert!((sender.flow.alpha - alpha).abs() < 1e-12);
            alpha *= 15.0 / 16.0;
        }
    }

    /// RFC 8257 §3.4: TCP's slow start, and a mark ends it with α's share of the window.
    #[test]
    fn with_ssthresh_the_window_doubles_each_round_trip_until_a_mark() {
        let mut config = DctcpConfig { initial: Some(10), ..DctcpConfig::PAPER };
        config.ssthresh = Some(1_000);
        let flow = Dctcp::new(&config, &LINE);
        assert!(flow.counts_pipe() && !Dctcp::new(&DctcpConfig::PAPER, &LINE).counts_pipe());
        let mut sender = Loop { flow, acked: 0, sent: 10 };
        let windows = [(); 4].map(|()| {
            sender.round(|_| false);
            sender.flow.window()
        });
        assert_eq!(windows, [20, 40, 80, 160]);
        sender.ack(true);
        let left = 160.0 * (1.0 - sender.flow.alpha / 2.0);
        assert!((sender.flow.window - left).abs() < 1e-9 && sender.flow.ssthresh == Some(sender.flow.window));
        // Then congestion avoidance, once the packets in flight are acknowledged.
        let window = sender.flow.window();
        sender.round(|_| false);
        sender.round(|_| false);
        assert!((window..=window + 2).contains(&sender.flow.window()), "{}", sender.flow.window());
        sender.flow.on_timeout(Time(0));
        assert_eq!((sender.flow.window(), sender.flow.ssthresh.map(|s| s as u32 / 2)), (1, Some(window / 4)));
    }

    #[test]
    fn when_all_are_marked_the_window_halves_once_a_round_trip() {
        let mut sender = Loop::new(32);
        sender.ack(true);
        // α is 1 until the first update.
        assert_eq!(sender.flow.window, 16.0);
        for _ in 1..32 {
            sender.ack(true);
            assert_eq!(sender.flow.window, 16.0);
        }
        assert_eq!((sender.acked, sender.sent), (32, 32 + 16));
        for window in [8.0, 4.0, 2.0, 1.0, 1.0] {
            sender.round(|_| true);
            assert_eq!((sender.flow.window, sender.flow.alpha), (window, 1.0));
        }
    }

    #[test]
    fn when_half_are_marked_alpha_becomes_a_half() {
        let mut sender = Loop::new(32);
        // Packets 2, 4, ... of 32: the window is 16 at once. α = 15/16 + 1/16 * 1/2 = 31/32 when the next begins.
        sender.round(|n| n % 2 == 1);
        assert_eq!((sender.flow.window, sender.flow.alpha), (16.0, 1.0));
        // 16 more: the window is 31/64 less. After them α = 31/32 - 1/16 * (31/32 - 1/2) = 481/512.
        sender.round(|n| n % 2 == 1);
        assert_eq!((sender.flow.window, sender.flow.alpha), (16.0 * 33.0 / 64.0, 31.0 / 32.0));
        sender.ack(false);
        assert_eq!(sender.flow.alpha, 481.0 / 512.0);
        // The window of 8.25 sends 8.
        assert_eq!(sender.flow.window(), 8);
        for _ in 0..200 {
            sender.flow.window = 8.0;
            sender.round(|n| n % 2 == 1);
        }
        assert!((sender.flow.alpha - 0.5).abs() < 0.02, "{}", sender.flow.alpha);
    }

    #[test]
    fn a_small_alpha_takes_little() {
        let mut sender = Loop::new(100);
        sender.flow.alpha = 0.01;
        sender.ack(true);
        assert_eq!(sender.flow.window, 99.5);
        // Packets in flight at that time do not raise the window; those sent later do.
        (1..100).for_each(|_| sender.ack(false));
        assert_eq!(sender.flow.window, 99.5);
        (0..99).for_each(|_| sender.ack(false));
        assert_eq!(sender.flow.window, 100.5);
    }

    #[test]
    fn an_acknowledgement_of_several_counts_them_all() {
        let mut flow = flow(16);
        let ack = |packets, marked, acked, sent| Ack { packets, marked, acked, sent, ..Ack::default() };
        flow.on_ack(Time(0), &ack(4, false, 4, 16));
        flow.on_ack(Time(0), &ack(12, true, 16, 28));
        assert_eq!((flow.alpha, flow.window), (1.0, 8.0));
        // F = 12/16, α = 1 - 1/16 * 1/4 = 63/64, known before the next decrease, which is due to packets sent after the
        // previous one.
        flow.on_ack(Time(0), &ack(4, true, 20, 32));
        assert_eq!((flow.alpha, flow.window), (63.0 / 64.0, 8.0));
        flow.on_ack(Time(0), &ack(9, true, 29, 40));
        assert_eq!((flow.alpha, flow.window), (63.0 / 64.0, 8.0 * 65.0 / 128.0));
    }

    #[test]
    fn a_mark_without_packets_counts_for_the_next() {
        let mut flow = flow(16);
        let ack = |packets, marked, acked| Ack { packets, marked, acked, sent: 20, ..Ack::default() };
        flow.on_ack(Time(0), &ack(4, false, 4));
        flow.on_ack(Time(0), &ack(0, true, 4));
        assert_eq!((flow.window, flow.marked), (16.0, 0));
        flow.on_ack(Time(0), &ack(2, false, 6));
        assert_eq!((flow.window, flow.marked), (8.0, 2));
        flow.on_ack(Time(0), &ack(2, false, 8));
        assert_eq!(flow.marked, 2);
    }

    #[test]
    fn a_loss_halves_and_a_timeout_leaves_one_packet() {
        let mut sender = Loop::new(32);
        sender.flow.alpha = 0.01;
        sender.ack(false);
        sender.flow.on_loss(Time(0));
        assert_eq!((sender.flow.window, sender.flow.alpha), (16.0, 0.01));
        // A mark from before the loss causes no further decrease.
        sender.ack(true);
        assert_eq!(sender.flow.window, 16.0);
        sender.flow.on_loss(Time(0));
        sender.flow.on_loss(Time(0));
        assert_eq!(sender.flow.window, 4.0);
        sender.flow.on_timeout(Time(0));
        assert_eq!(sender.flow.window(), 1);
        sender.flow.on_loss(Time(0));
        assert_eq!(sender.flow.window(), 1);
        sender.round(|_| false);
        sender.round(|_| false);
        assert_eq!(sender.flow.window(), 2);
    }

    #[test]
    fn parameters_can_be_written() {
        let expected = DctcpConfig { initial: Some(10), g: Share::new(0.5).unwrap(), ssthresh: None };
        assert_eq!("dctcp,initial=10,g=1/2".parse(), Ok(CongestionConfig::Dctcp(expected)));
        assert_eq!("dctcp,initial=bdp".parse(), Ok(CongestionConfig::Dctcp(DctcpConfig::PAPER)));
        let config = CongestionConfig::Dctcp(DctcpConfig::PAPER);
        assert_eq!((config.uses_ecn(), config.cnp_interval()), (true, None));
        assert!("dctcp,initial=65537".parse::<CongestionConfig>().is_err());
        assert!("dctcp,g=2".parse::<CongestionConfig>().is_err());
    }

    fn acks() -> impl Strategy<Value = Vec<(u8, Ack)>> {
        let number = || prop_oneof![0..1000_u64, any::<u64>()];
        let ack = (prop_oneof![0..3_u32, any::<u32>()], any::<bool>(), number(), number())
            .prop_map(|(packets, marked, acked, sent)| Ack { packets, marked, acked, sent, ..Ack::default() });
        prop::collection::vec((0..20_u8, ack), 0..300)
    }

    proptest! {
        #[test]
        fn window_and_alpha_stay_in_bounds_whatever_comes(initial in 1..=65_536_u32, g in 1e-9..=1.0_f64, acks in acks()) {
            let mut flow = Dctcp::new(&DctcpConfig { initial: Some(initial), g: Share::new(g).unwrap(), ssthresh: None }, &LINE);
            for (what, ack) in acks {
                let before = flow.window;
                match what {
                    0 => flow.on_timeout(Time(0)),
                    1 => flow.on_loss(Time(0)),
                    _ => flow.on_ack(Time(0), &ack),
                }
                prop_assert!((1.0..=65_536.0).contains(&flow.window), "{:?}", flow);
                prop_assert!((0.0..=1.0).contains(&flow.alpha), "{:?}", flow);
                prop_assert!(flow.window <= before + 1.0);
                prop_assert!(what == 0 || flow.window >= (before / 2.0).max(1.0));
            }
        }

        /// No stall: after any history, unmarked packets raise the window again by one per round trip.
        #[test]
        fn without_marks_the_window_grows_again(marks in prop::collection::vec(any::<bool>(), 0..300), timeout: bool) {
            let mut sender = Loop::new(30);
            marks.into_iter().for_each(|marked| sender.ack(marked));
            if timeout {
                sender.flow.on_timeout(Time(0));
            }
            sender.round(|_| false);
            let window = sender.flow.window;
            (0..20).for_each(|_| sender.round(|_| false));
            prop_assert!(sender.flow.window >= window + 19.0, "{} is not 19 more than {window}", sender.flow.window);
        }
    }
}
