//! TCP: slow start, congestion avoidance and fast recovery (RFC 5681, with selective acknowledgements: RFC 6675) on a
//! window of packets in the network. With the transport preset `iwarp`, which has TCP's retransmission timer and its
//! three duplicate acknowledgements, this is what IRN is compared to in the dissertation's §4.3.6.

use super::parameters::{Parameter, Parameters, parameter, window, window_text};
use super::{Ack, Controller, ControllerMetrics, Line, MOST_WINDOW};
use crate::footprint::{bits, flag, footprint, width};
use crate::time::Time;

/// Parameters of [`Tcp`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Initial window in packets; `None` for the bandwidth-delay product.
    pub initial: Option<u32>,
    /// Slow start threshold in packets; `None` for the bandwidth-delay product.
    pub ssthresh: Option<u32>,
}

impl TcpConfig {
    /// Four segments of 1 KB, and slow start until the first loss (RFC 5681 §3.1).
    pub const RFC: TcpConfig = TcpConfig { initial: Some(4), ssthresh: Some(MOST_WINDOW) };
}

impl Parameters for TcpConfig {
    const ALL: &'static [Parameter<Self>] = &[
        parameter("initial", |c, v| window(v).map(|x| c.initial = x), |c| window_text(c.initial)),
        parameter("ssthresh", |c, v| window(v).map(|x| c.ssthresh = x), |c| window_text(c.ssthresh)),
    ];
}

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// cwnd and ssthresh, packets.
    window: u32,
    ssthresh: u32,
    /// Packets acknowledged towards the next increase in congestion avoidance.
    counted: u32,
    /// In fast recovery, until more than `recover` packets of the connection are acknowledged.
    recovering: bool,
    recover: u64,
    /// A timeout has occurred, without progress since.
    silent: bool,
    /// Packets acknowledged, and sent, as of the latest acknowledgement.
    acked: u64,
    sent: u64,
}

impl Tcp {
    /// Creates the controller of a new flow.
    pub fn new(config: &TcpConfig, line: &Line) -> Tcp {
        let packets = |n: Option<u32>| n.unwrap_or(line.window()).clamp(1, MOST_WINDOW);
        Tcp {
            window: packets(config.initial),
            ssthresh: packets(config.ssthresh),
            counted: 0,
            recovering: false,
            recover: 0,
            silent: false,
            acked: 0,
            sent: 0,
        }
    }

    /// Returns half of what is in flight as of the latest acknowledgement (RFC 5681, equation 4).
    fn half(&self) -> u32 {
        let flight = self.sent.saturating_sub(self.acked).min(MOST_WINDOW.into()) as u32;
        (flight / 2).max(2)
    }

    fn set(&mut self, window: u32) {
        self.window = window.clamp(1, MOST_WINDOW);
        self.counted = 0;
    }
}

impl Controller for Tcp {
    fn on_ack(&mut self, _: Time, ack: &Ack) {
        (self.acked, self.sent) = (ack.acked, ack.sent);
        self.silent &= ack.packets == 0;
        if self.recovering {
            // The window stays until everything sent before it began is acknowledged (RFC 6675 §5, step 5.2).
            self.recovering = self.acked < self.recover;
        } else if ack.packets > 0 && self.window < self.ssthresh {
            self.set(self.window + 1);
        } else {
            self.counted = self.counted.saturating_add(ack.packets);
            if self.counted >= self.window {
                let rest = self.counted - self.window;
                self.set(self.window + 1);
                self.counted = rest;
            }
        }
    }

    fn on_loss(&mut self, _: Time) {
        // Losses of packets in flight at a timeout do not start a recovery (RFC 6675 §5.1).
        if self.recovering || self.acked < self.recover {
            return;
        }
        // Packets released beyond the window by the first NACKs do not count (RFC 5681 §3.2, step 2).
        self.ssthresh = self.half().min((self.window / 2).max(2));
        self.recovering = true;
        self.recover = self.sent;
        self.set(self.ssthresh);
    }

    fn on_timeout(&mut self, _: Time) {
        // A repeated loss of a packet causes no further decrease (RFC 5681 §3.1).
        if !self.silent {
            self.ssthresh = self.half();
        }
        self.silent = true;
        self.recovering = false;
        self.recover = self.sent;
        self.set(1);
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn counts_pipe(&self) -> bool {
        true
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics { rate: 0, window: self.window, ssthresh: Some(self.ssthresh) }
    }
}

footprint!(Tcp, |at| {
    window => bits(width::COUNT),
    ssthresh => bits(width::COUNT),
    counted => bits(width::COUNT),
    recovering => flag(),
    recover => bits(32),
    silent => flag(),
    acked => bits(32),
    sent => bits(32),
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::congestion::CongestionConfig;

    const LINE: Line = Line { rate: 40_000_000_000, base_rtt: 24_000, mtu: 1000 };

    /// A sender with its window full.
    struct Loop {
        flow: Tcp,
        acked: u64,
        sent: u64,
    }

    impl Loop {
        fn new(initial: u32) -> Loop {
            let config = TcpConfig { initial: Some(initial), ..TcpConfig::RFC };
            Loop { flow: Tcp::new(&config, &LINE), acked: 0, sent: initial.into() }
        }

        fn ack(&mut self, packets: u32) -> u32 {
            self.acked += u64::from(packets);
            let ack = Ack { packets, acked: self.acked, sent: self.sent, ..Ack::default() };
            self.flow.on_ack(Time(0), &ack);
            self.sent = self.sent.max(self.acked + u64::from(self.flow.window()));
            self.flow.window()
        }

        fn round(&mut self) -> u32 {
            let end = self.sent;
            while self.acked < end {
                self.ack(1);
            }
            self.flow.window()
        }
    }

    #[test]
    fn slow_start_doubles_the_window_each_round_trip_up_to_ssthresh() {
        let mut sender = Loop::new(4);
        assert_eq!([0; 4].map(|_| sender.round()), [8, 16, 32, 64]);
        // Of 64 acknowledgements 36 lead up to 100, and 28 count towards the next increase; then it grows by one per
        // round trip.
        sender.flow.ssthresh = 100;
        assert_eq!([0; 3].map(|_| sender.round()), [100, 101, 102]);
    }

    #[test]
    fn congestion_avoidance_is_a_packet_more_a_window() {
        let mut sender = Loop::new(4);
        sender.flow.ssthresh = 4;
        let windows: Vec<u32> = (0..9).map(|_| sender.ack(1)).collect();
        assert_eq!(windows, [4, 4, 4, 5, 5, 5, 5, 5, 6]);
        // An acknowledgement of several packets counts them all.
        assert_eq!((sender.ack(5), sender.ack(1)), (6, 7));
    }

    /// RFC 6675 §5 with 20 packets in flight, of which the first and the sixth are lost.
    #[test]
    fn fast_recovery_halves_the_window_and_ends_at_what_was_sent() {
        let mut sender = Loop::new(20);
        sender.flow.ssthresh = 20;
        assert_eq!([sender.ack(0), sender.ack(0), sender.ack(0)], [20; 3]);
        sender.flow.on_loss(Time(0));
        assert_eq!((sender.flow.ssthresh, sender.flow.window(), sender.flow.recover), (10, 10, 20));
        // Once for all packets in flight.
        sender.flow.on_loss(Time(0));
        assert_eq!(sender.flow.ssthresh, 10);
        // Fifteen more arrive, the sixth does not; then the retransmitted first.
        assert_eq!([0; 15].map(|_| sender.ack(0)), [10; 15]);
        assert_eq!(sender.ack(5), 10);
        assert!(sender.flow.recovering);
        // The sixth: all twenty have arrived, and congestion avoidance continues.
        assert_eq!(sender.ack(15), 10);
        assert!(!sender.flow.recovering);
        let windows: Vec<u32> = (0..10).map(|_| sender.ack(1)).collect();
        assert_eq!((windows[8], windows[9]), (10, 11));
    }

    #[test]
    fn after_a_timeout_the_window_is_one_and_doubles_up_to_half_of_what_was_in_flight() {
        let mut sender = Loop::new(32);
        sender.ack(1);
        assert_eq!((sender.acked, sender.sent), (1, 34));
        sender.flow.on_timeout(Time(0));
        // 31 were in flight at the last acknowledgement.
        assert_eq!((sender.flow.window(), sender.flow.ssthresh), (1, 15));
        // Again, without progress: ssthresh stays.
        sender.flow.on_timeout(Time(0));
        assert_eq!((sender.flow.window(), sender.flow.ssthresh), (1, 15));
        // Losses of packets in flight start no recovery.
        sender.flow.on_loss(Time(0));
        assert_eq!((sender.flow.window(), sender.flow.ssthresh), (1, 15));
        for n in 2..=15 {
            assert_eq!(sender.ack(1), n);
        }
        assert_eq!(sender.ack(1), 15);
        // The next timeout counts anew; with at most one packet in flight, ssthresh is two.
        sender.acked = 34;
        (sender.sent, sender.flow.recover) = (34, 0);
        sender.ack(1);
        (sender.flow.sent, sender.flow.acked) = (36, 35);
        sender.flow.on_timeout(Time(0));
        assert_eq!(sender.flow.ssthresh, 2);
    }

    #[test]
    fn parameters_can_be_written() {
        let expected = TcpConfig { initial: Some(10), ssthresh: None };
        assert_eq!("tcp,initial=10,ssthresh=bdp".parse(), Ok(CongestionConfig::Tcp(expected)));
        assert_eq!("tcp".parse(), Ok(CongestionConfig::Tcp(TcpConfig::RFC)));
        let flow = Tcp::new(&TcpConfig { initial: None, ssthresh: None }, &LINE);
        assert_eq!((flow.window, flow.ssthresh), (120, 120));
        assert_eq!(flow.metrics(), ControllerMetrics { rate: 0, window: 120, ssthresh: Some(120) });
        let config = CongestionConfig::Tcp(TcpConfig::RFC);
        assert_eq!((config.uses_ecn(), config.uses_telemetry(), config.cnp_interval()), (false, false, None));
    }

    proptest! {
        #[test]
        fn the_window_stays_in_bounds_whatever_comes(
            initial in 1..=65_536_u32,
            events in prop::collection::vec((0..8_u8, prop_oneof![0..3_u32, any::<u32>()], any::<u64>(), any::<u64>()), 0..300),
        ) {
            let mut flow = Tcp::new(&TcpConfig { initial: Some(initial), ..TcpConfig::RFC }, &LINE);
            for (what, packets, acked, sent) in events {
                let before = flow.window;
                match what {
                    0 => flow.on_timeout(Time(0)),
                    1 => flow.on_loss(Time(0)),
                    _ => flow.on_ack(Time(0), &Ack { packets, acked, sent, ..Ack::default() }),
                }
                prop_assert!((1..=65_536).contains(&flow.window) && (2..=65_536).contains(&flow.ssthresh), "{flow:?}");
                // Acknowledgements raise it by one at most, except at the end of a recovery.
                prop_assert!(what < 2 || flow.window <= (before + 1).max(flow.ssthresh), "{flow:?}");
            }
        }

        /// No stall: after any history, the window grows again.
        #[test]
        fn it_grows_again(events in prop::collection::vec(0..4_u8, 0..300)) {
            let mut sender = Loop::new(10);
            for what in events {
                match what {
                    0 => sender.flow.on_timeout(Time(0)),
                    1 => sender.flow.on_loss(Time(0)),
                    n => _ = sender.ack(u32::from(n) - 2),
                }
            }
            sender.round();
            sender.round();
            let window = sender.flow.window;
            for _ in 0..20 {
                sender.round();
            }
            prop_assert!(sender.flow.window >= (window + 19).min(65_536), "{} is not 19 more than {window}", sender.flow.window);
        }
    }
}
