//! Congestion control: a sender's view of the network, and the rate and window that it sets.
//!
//! A [`Controller`] is pure: it is notified of events and their times, and returns the rate and window of its queue
//! pair. The queue pair measures, paces and counts for it. Each algorithm is a file here and a line in `controllers!`,
//! so that calls are dispatched statically.
//!
//! # Custom algorithms
//!
//! A program that uses this crate can provide an algorithm: a [`Controller`], a [`ControllerFactory`] that creates one
//! for each queue pair, and [`CongestionConfig::Custom`] in the queue pair's
//! [`TransportConfig`](crate::config::TransportConfig). The one below takes its rate from notifications: switches write
//! the fair share of their port, in Mbit/s, into the first four bytes of each congestion notification packet, and a
//! flow that receives none for a given time doubles its rate.
//!
//! ```
//! use irnic_transports::congestion::{
//!     Ack, Congestion, CongestionConfig, Controller, ControllerFactory, CustomController, Line,
//! };
//! use irnic_transports::config::TransportConfig;
//! use irnic_transports::wire::Cnp;
//! use irnic_transports::Time;
//!
//! #[derive(Clone, Debug)]
//! struct FairRate {
//!     /// bit/s.
//!     rate: u64,
//!     line: u64,
//!     recovery: u64,
//!     /// When the rate is doubled.
//!     double_at: Time,
//! }
//!
//! impl Controller for FairRate {
//!     fn on_ack(&mut self, _now: Time, _ack: &Ack) {}
//!
//!     fn on_cnp(&mut self, now: Time, cnp: &Cnp) {
//!         let [a, b, c, d, ..] = cnp.0;
//!         self.rate = (u64::from(u32::from_be_bytes([a, b, c, d])) * 1_000_000).clamp(1, self.line);
//!         self.double_at = now + self.recovery;
//!     }
//!
//!     fn on_timer(&mut self, now: Time) {
//!         if now >= self.double_at {
//!             self.rate = (2 * self.rate).min(self.line);
//!             self.double_at = if self.rate < self.line { now + self.recovery } else { Time::NEVER };
//!         }
//!     }
//!
//!     fn next_deadline(&self) -> Time {
//!         self.double_at
//!     }
//!
//!     fn rate(&self) -> u64 {
//!         self.rate
//!     }
//! }
//!
//! /// The parameter of the algorithm: ns without a notification after which the rate is doubled.
//! #[derive(Debug)]
//! struct FairRateFactory {
//!     recovery: u64,
//! }
//!
//! impl ControllerFactory for FairRateFactory {
//!     fn name(&self) -> &'static str {
//!         "fair-rate"
//!     }
//!
//!     fn build(&self, line: &Line) -> Box<dyn CustomController> {
//!         let FairRateFactory { recovery } = *self;
//!         Box::new(FairRate { rate: line.rate, line: line.rate, recovery, double_at: Time::NEVER })
//!     }
//! }
//!
//! static FAIR_RATE: FairRateFactory = FairRateFactory { recovery: 55_000 };
//!
//! // Queue pairs that are created with this configuration use it.
//! let mut transport: TransportConfig = "irn-no-bdp".parse()?;
//! transport.congestion = CongestionConfig::Custom(&FAIR_RATE);
//! assert_eq!(transport.congestion.to_string(), "fair-rate");
//!
//! // What a queue pair does with it.
//! let line = Line { rate: 40_000_000_000, base_rtt: 10_000, mtu: 1024 };
//! let mut controller = Congestion::new(&transport.congestion, &line).expect("there is one");
//! assert_eq!(controller.rate(), 40_000_000_000);
//! let mut notification = Cnp::default();
//! notification.0[..4].copy_from_slice(&10_000_u32.to_be_bytes());
//! controller.on_cnp(Time(1_000), &notification);
//! assert_eq!((controller.rate(), controller.next_deadline()), (10_000_000_000, Time(56_000)));
//! controller.on_timer(Time(56_000));
//! assert_eq!(controller.metrics().rate, 20_000_000_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aimd;
mod config;
mod custom;
mod dcqcn;
mod dctcp;
mod fast;
mod hpcc;
mod parameters;
mod rocc;
mod tcp;
mod timely;

pub use aimd::{Aimd, AimdConfig};
pub use config::{CongestionConfig, CongestionError};
pub use custom::{ControllerFactory, CustomController};
pub use dcqcn::{Dcqcn, DcqcnConfig, Step};
pub use dctcp::{Dctcp, DctcpConfig};
pub use fast::{Fast, FastConfig};
pub use hpcc::{Hpcc, HpccConfig};
pub use parameters::Share;
pub use rocc::{FairRate, FairRateConfig, FairRateHistory, Rocc, RoccConfig};
pub use tcp::{Tcp, TcpConfig};
pub use timely::{Timely, TimelyConfig};

use crate::footprint::{Ledger, Parts, Setup, left};
use crate::telemetry::Int;
use crate::time::{Time, bytes_in};
use crate::wire::Cnp;

/// Maximum window of a controller, in packets.
pub const MOST_WINDOW: u32 = 65_536;

/// Properties of the network known in advance.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Rate of the NIC's link, bit/s, 1 or more.
    pub rate: u64,
    /// Round trip of an empty network, ns, 1 or more.
    pub base_rtt: u64,
    /// Payload bytes of a full packet.
    pub mtu: u32,
}

impl Line {
    /// Returns the bandwidth-delay product in bytes.
    pub fn bdp(&self) -> u64 {
        bytes_in(self.base_rtt, self.rate)
    }

    /// Returns the bandwidth-delay product in full packets, 1 to [`MOST_WINDOW`].
    pub fn window(&self) -> u32 {
        (self.bdp() / u64::from(self.mtu.max(1))).clamp(1, MOST_WINDOW.into()) as u32
    }
}

/// Contents of an acknowledgement.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Packets that it newly acknowledges, 0 if none.
    pub packets: u32,
    /// Round trip of a segment that was sent once, ns, minus its serialization delay at the line rate (TIMELY §3).
    pub rtt: Option<u64>,
    /// Whether the receiver has seen congestion experienced since the previous acknowledgement.
    pub marked: bool,
    /// Packets of the connection acknowledged so far, and sent so far, counting retransmitted ones once: `acked`
    /// reaches the present value of `sent` a round trip later.
    pub acked: u64,
    /// See `acked`.
    pub sent: u64,
    /// Whether the application has recently had enough to send to use most of the rate (TIMELY §4.3: increases need
    /// that).
    pub busy: bool,
}

/// State of a controller, for reports and plots.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Rate in bit/s; 0 for unlimited.
    pub rate: u64,
    /// Congestion window in packets; `u32::MAX` for unlimited.
    pub window: u32,
    /// Slow start threshold in packets, of algorithms that have one.
    pub ssthresh: Option<u32>,
}

/// A port of a switch that notifies flows of its fair rate ([`FairRate`]).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Point(pub u64);

/// A congestion control algorithm, of one queue pair.
///
/// Calls are in order of time, which is the NIC's; none of them may allocate or block. After each call the queue pair
/// reads [`Controller::rate`] and [`Controller::window`], and obeys both.
pub trait Controller {
    /// Handles the departure of a packet with this many bytes of payload.
    fn on_send(&mut self, _now: Time, _bytes: u32) {}

    /// Handles an acknowledgement.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// Handles the telemetry of an acknowledged packet. Follows [`Controller::on_ack`] of the same acknowledgement.
    fn on_telemetry(&mut self, _now: Time, _int: &Int) {}

    /// Handles a congestion notification packet (RoCEv2, IBA A17.9.3).
    fn on_cnp(&mut self, _now: Time, _cnp: &Cnp) {}

    /// Handles a switch's notice of the fair rate, bit/s, of a port on the path.
    fn on_fair_rate(&mut self, _now: Time, _point: Point, _rate: u64) {}

    /// Handles a loss; called once for each recovery.
    fn on_loss(&mut self, _now: Time) {}

    /// Handles a retransmission timeout.
    fn on_timeout(&mut self, _now: Time) {}

    /// Runs due timers. It is also called before the deadline, and must then do nothing.
    fn on_timer(&mut self, _now: Time) {}

    /// Returns when [`Controller::on_timer`] is due.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Returns the bytes of a segment, the unit of round-trip measurement; `None` if round trips are not needed. Called
    /// once.
    fn segment(&self) -> Option<u32> {
        None
    }

    /// Returns the rate in bit/s at which the packets of one segment leave, whatever the rate between segments (TIMELY
    /// §5, "additional pacing opportunities"); 0 for unlimited. Called once.
    fn pacing(&self) -> u64 {
        0
    }

    /// Returns the rate in bit/s; 0 for unlimited.
    fn rate(&self) -> u64 {
        0
    }

    /// Returns the packets that may be in flight, 1 or more; `u32::MAX` for unlimited.
    fn window(&self) -> u32 {
        u32::MAX
    }

    /// Returns whether the window counts packets estimated to be in the network, including retransmitted ones (RFC
    /// 6675's pipe). Otherwise it counts all that are not acknowledged cumulatively, and retransmissions are not
    /// limited by it.
    fn counts_pipe(&self) -> bool {
        false
    }

    /// Returns the controller's current state. Algorithms with more than rate and window override it.
    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics { rate: self.rate(), window: self.window(), ssthresh: None }
    }
}

/// Generates the enum of all controllers, which dispatches calls without a vtable.
macro_rules! controllers {
    ($($name:ident),+ $(,)?) => {
        /// The controller of a queue pair, of any algorithm.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub enum Congestion {
            $($name($name)),+,
            Custom(Box<dyn CustomController>),
        }

        impl Congestion {
            /// Creates the controller selected by a configuration, if any.
            pub fn new(config: &CongestionConfig, line: &Line) -> Option<Congestion> {
                match config {
                    CongestionConfig::None => None,
                    $(CongestionConfig::$name(config) => Some(Congestion::$name($name::new(config, line)))),+,
                    CongestionConfig::Custom(factory) => Some(Congestion::Custom(factory.build(line))),
                }
            }
        }

        impl Parts for Congestion {
            fn list(&self, at: &Setup, ledger: &mut Ledger) {
                match self {
                    $(Congestion::$name(controller) => controller.list(at, ledger)),+,
                    Congestion::Custom(_) => ledger.enter(at, "custom", left("unknown: a controller from outside")),
                }
            }
        }

        /// Calls the same method of each variant.
        macro_rules! each {
            ($any:expr, $controller:ident => $call:expr) => {
                match $any {
                    $(Congestion::$name($controller) => $call),+,
                    Congestion::Custom($controller) => $call,
                }
            };
        }
    };
}

controllers!(Aimd, Dcqcn, Dctcp, Fast, Hpcc, Rocc, Tcp, Timely);

impl Controller for Congestion {
    irnic_units::delegate!(each:
        #[inline]
        fn on_send(&mut self, now: Time, bytes: u32);
        #[inline]
        fn on_ack(&mut self, now: Time, ack: &Ack);
        fn on_telemetry(&mut self, now: Time, int: &Int);
        fn on_cnp(&mut self, now: Time, cnp: &Cnp);
        fn on_fair_rate(&mut self, now: Time, point: Point, rate: u64);
        fn on_loss(&mut self, now: Time);
        fn on_timeout(&mut self, now: Time);
        fn on_timer(&mut self, now: Time);
        #[inline]
        fn next_deadline(&self) -> Time;
        fn segment(&self) -> Option<u32>;
        fn pacing(&self) -> u64;
        #[inline]
        fn rate(&self) -> u64;
        #[inline]
        fn window(&self) -> u32;
        fn metrics(&self) -> ControllerMetrics;
        fn counts_pipe(&self) -> bool;
    );
}
