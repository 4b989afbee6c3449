//! AIMD: TCP's congestion avoidance on a window of packets, to which IRN is compared (dissertation §4.3.4): one more
//! packet per round trip, half after a loss.

use super::parameters::{Parameter, Parameters, parameter, window, window_text};
use super::{Ack, Controller, Line, MOST_WINDOW};
use crate::footprint::{bits, footprint, width};
use crate::time::Time;

/// Parameters of [`Aimd`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AimdConfig {
    /// Initial window in packets; `None` for the bandwidth-delay product, so that flows start at line rate.
    pub initial: Option<u32>,
}

impl AimdConfig {
    /// As in the IRN chapter: flows start at line rate.
    pub const PAPER: AimdConfig = AimdConfig { initial: None };
}

impl Parameters for AimdConfig {
    const ALL: &'static [Parameter<Self>] =
        &[parameter("initial", |c, v| window(v).map(|x| c.initial = x), |c| window_text(c.initial))];
}

/// The controller; see the module.
#[derive(Clone, Debug)]
pub struct Aimd {
    window: u32,
    /// Packets acknowledged towards the next increase.
    counted: u32,
}

impl Aimd {
    /// Creates the controller of a new flow.
    pub fn new(config: &AimdConfig, line: &Line) -> Aimd {
        Aimd { window: config.initial.unwrap_or(line.window()).clamp(1, MOST_WINDOW), counted: 0 }
    }
}

impl Controller for Aimd {
    fn on_ack(&mut self, _: Time, ack: &Ack) {
        self.counted = self.counted.saturating_add(ack.packets);
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window = (self.window + 1).min(MOST_WINDOW);
        }
    }

    fn on_loss(&mut self, _: Time) {
        self.window = (self.window / 2).max(1);
        self.counted = 0;
    }

    fn on_timeout(&mut self, _: Time) {
        self.window = 1;
        self.counted = 0;
    }

    fn window(&self) -> u32 {
        self.window
    }
}

footprint!(Aimd, |at| {
    window => bits(width::COUNT),
    counted => bits(width::COUNT),
});

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(initial: u32) -> Aimd {
        let line = Line { rate: 40_000_000_000, base_rtt: 24_000, mtu: 1024 };
        Aimd::new(&AimdConfig { initial: Some(initial) }, &line)
    }

    fn acked(packets: u32) -> Ack {
        Ack { packets, ..Ack::default() }
    }

    #[test]
    fn starts_with_the_bandwidth_delay_product() {
        let line = Line { rate: 40_000_000_000, base_rtt: 24_000, mtu: 1000 };
        assert_eq!(line.bdp(), 120_000);
        assert_eq!(Aimd::new(&AimdConfig::PAPER, &line).window(), 120);
        let far = Line { rate: u64::MAX, base_rtt: u64::MAX, mtu: 0 };
        assert_eq!(Aimd::new(&AimdConfig::PAPER, &far).window(), 65_536);
    }

    #[test]
    fn one_packet_more_a_window_and_half_after_a_loss() {
        let mut flow = flow(4);
        for expected in [4, 4, 4, 5, 5, 5, 5, 5, 6] {
            flow.on_ack(Time(0), &acked(1));
            assert_eq!(flow.window(), expected);
        }
        flow.on_loss(Time(0));
        assert_eq!(flow.window(), 3);
        flow.on_loss(Time(0));
        flow.on_loss(Time(0));
        assert_eq!(flow.window(), 1);
        flow.on_ack(Time(0), &acked(1));
        assert_eq!(flow.window(), 2);
        flow.on_timeout(Time(0));
        assert_eq!(flow.window(), 1);
    }

    #[test]
    fn never_overflows() {
        let mut flow = flow(65_536);
        flow.on_ack(Time(0), &acked(u32::MAX));
        flow.on_ack(Time(0), &acked(u32::MAX));
        assert_eq!(flow.window(), 65_536);
    }
}
