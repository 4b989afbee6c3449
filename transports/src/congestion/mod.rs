//! Congestion control: what a sender sees of the network, and the rate and window that it sets for itself.
//!
//! A [`Controller`] is pure: it is told what happened and when, and says how fast and how far ahead its queue pair may send. Who
//! measures, paces and counts is the queue pair and the NIC. Each algorithm is a file here and a line in `controllers!`.

mod aimd;
mod config;
mod dcqcn;
mod dctcp;
mod fast;
mod hpcc;
mod tcp;
mod timely;

pub use aimd::{Aimd, AimdConfig};
pub use config::{CongestionConfig, CongestionError, Share};
pub use dcqcn::{Dcqcn, DcqcnConfig, Step};
pub use dctcp::{Dctcp, DctcpConfig};
pub use fast::{Fast, FastConfig};
pub use hpcc::{Hpcc, HpccConfig};
pub use tcp::{Tcp, TcpConfig};
pub use timely::{Timely, TimelyConfig};

use crate::telemetry::Int;
use crate::time::Time;

/// Packets of the largest window of a controller.
pub const MOST_WINDOW: u32 = 65_536;

/// What a controller knows of its surroundings from the beginning.
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
    /// Bytes that are on their way at the line rate: the bandwidth-delay product.
    pub fn bdp(&self) -> u64 {
        (u128::from(self.rate) * u128::from(self.base_rtt) / 8_000_000_000) as u64
    }

    /// The same in full packets, 1 to [`MOST_WINDOW`].
    pub fn window(&self) -> u32 {
        (self.bdp() / u64::from(self.mtu.max(1))).clamp(1, MOST_WINDOW.into()) as u32
    }
}

/// What an acknowledgement says.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Packets that it newly acknowledges, 0 if none.
    pub packets: u32,
    /// Round trip of a segment that was sent once, ns, without what sending it took at the line rate (TIMELY §3).
    pub rtt: Option<u64>,
    /// Its receiver has seen congestion experienced since the acknowledgement before.
    pub marked: bool,
    /// Packets of the connection that are acknowledged, and that were ever sent, those sent again counted once: the first reaches
    /// what the second is now a round trip later.
    pub acked: u64,
    /// See `acked`.
    pub sent: u64,
    /// The application had enough to send, of late, to use most of the rate (TIMELY §4.3: increases need that).
    pub busy: bool,
}

/// A congestion control algorithm. Calls come in the order of time, which is the NIC's; none of them allocates.
pub trait Controller {
    /// A packet with so many bytes of payload leaves.
    fn on_send(&mut self, _now: Time, _bytes: u32) {}
    /// An acknowledgement has come.
    fn on_ack(&mut self, now: Time, ack: &Ack);
    /// What switches wrote on a packet that it answers, after [`Controller::on_ack`] of the same acknowledgement.
    fn on_telemetry(&mut self, _now: Time, _int: &Int) {}
    /// A congestion notification packet has come (RoCEv2, IBA A17.9.3).
    fn on_cnp(&mut self, _now: Time) {}
    /// A packet is found to be lost, once for each recovery.
    fn on_loss(&mut self, _now: Time) {}
    /// A retransmission timeout.
    fn on_timeout(&mut self, _now: Time) {}
    /// The deadline has come. Is also called when it has not, and must then do nothing.
    fn on_timer(&mut self, _now: Time) {}
    /// When [`Controller::on_timer`] is due.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }
    /// Bytes of a segment, the round trip of each of which is to be measured; `None` if round trips are of no interest.
    fn segment(&self) -> Option<u32> {
        None
    }
    /// bit/s at which the packets of one segment leave, whatever the rate between segments (TIMELY §5, "additional pacing
    /// opportunities"); 0 for as fast as the link is.
    fn pacing(&self) -> u64 {
        0
    }
    /// bit/s; 0 for as fast as the link is.
    fn rate(&self) -> u64 {
        0
    }
    /// Packets that may be in flight, 1 or more; `u32::MAX` for any number.
    fn window(&self) -> u32 {
        u32::MAX
    }
    /// Whether the window holds packets that are thought to be in the network, those sent again among them (RFC 6675's pipe). Else it
    /// holds all that are not acknowledged cumulatively, and what is sent again waits for none.
    fn counts_pipe(&self) -> bool {
        false
    }
}

/// Makes the enum of all controllers, through which calls go without a table of functions.
macro_rules! controllers {
    ($($name:ident),+ $(,)?) => {
        /// Any controller.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub enum Congestion {
            $($name($name)),+
        }

        impl Congestion {
            /// The controller that a configuration asks for, if it asks for one.
            pub fn new(config: &CongestionConfig, line: &Line) -> Option<Congestion> {
                match config {
                    CongestionConfig::None => None,
                    $(CongestionConfig::$name(config) => Some(Congestion::$name($name::new(config, line)))),+
                }
            }
        }

        impl Controller for Congestion {
            #[inline]
            fn on_send(&mut self, now: Time, bytes: u32) {
                match self { $(Congestion::$name(c) => c.on_send(now, bytes)),+ }
            }
            #[inline]
            fn on_ack(&mut self, now: Time, ack: &Ack) {
                match self { $(Congestion::$name(c) => c.on_ack(now, ack)),+ }
            }
            fn on_telemetry(&mut self, now: Time, int: &Int) {
                match self { $(Congestion::$name(c) => c.on_telemetry(now, int)),+ }
            }
            fn on_cnp(&mut self, now: Time) {
                match self { $(Congestion::$name(c) => c.on_cnp(now)),+ }
            }
            fn on_loss(&mut self, now: Time) {
                match self { $(Congestion::$name(c) => c.on_loss(now)),+ }
            }
            fn on_timeout(&mut self, now: Time) {
                match self { $(Congestion::$name(c) => c.on_timeout(now)),+ }
            }
            fn on_timer(&mut self, now: Time) {
                match self { $(Congestion::$name(c) => c.on_timer(now)),+ }
            }
            #[inline]
            fn next_deadline(&self) -> Time {
                match self { $(Congestion::$name(c) => c.next_deadline()),+ }
            }
            fn segment(&self) -> Option<u32> {
                match self { $(Congestion::$name(c) => c.segment()),+ }
            }
            fn pacing(&self) -> u64 {
                match self { $(Congestion::$name(c) => c.pacing()),+ }
            }
            #[inline]
            fn rate(&self) -> u64 {
                match self { $(Congestion::$name(c) => c.rate()),+ }
            }
            #[inline]
            fn window(&self) -> u32 {
                match self { $(Congestion::$name(c) => c.window()),+ }
            }
            fn counts_pipe(&self) -> bool {
                match self { $(Congestion::$name(c) => c.counts_pipe()),+ }
            }
        }
    };
}

controllers!(Aimd, Dcqcn, Dctcp, Fast, Hpcc, Tcp, Timely);
