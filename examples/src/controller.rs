//! A congestion controller: a window that is halved once a loss is noticed, and grows by a packet with each window that
//! arrives.

use irnic_transports::Time;
use irnic_transports::congestion::{Ack, Controller, ControllerFactory, CustomController, Line};

/// The window of one queue pair, packets and a fraction.
#[derive(Clone, Debug)]
struct Halving {
    window: f64,
}

impl Controller for Halving {
    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        self.window += f64::from(ack.packets) / self.window;
    }

    fn on_loss(&mut self, _now: Time) {
        self.window = (self.window / 2.0).max(1.0);
    }

    fn on_timeout(&mut self, _now: Time) {
        self.window = 1.0;
    }

    fn window(&self) -> u32 {
        self.window as u32
    }
}

/// Makes the controllers: the algorithm and its parameter.
#[derive(Debug)]
pub struct HalvingFactory {
    /// Window at the beginning, packets, 1 or more.
    pub initial: u32,
}

impl ControllerFactory for HalvingFactory {
    fn name(&self) -> &'static str {
        "halving"
    }

    fn build(&self, _line: &Line) -> Box<dyn CustomController> {
        Box::new(Halving { window: f64::from(self.initial.max(1)) })
    }
}
