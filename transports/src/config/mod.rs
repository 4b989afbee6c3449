//! A transport is a composition: independent choices of wire format, loss recovery, flow control and timer, and the
//! presets that name the compositions of the literature.
//!
//! The choices and the presets made of them are here, with their text form in `text`; those of one paper are in
//! `discipline`.

mod discipline;
mod footprint;
mod text;

pub use discipline::{Discipline, PullConfig, Rc3Config, TltClock, TltConfig, TltFirst, TltMode};
pub use text::{ConfigError, GivenKeys, ParsedTransport};

use crate::congestion::{CongestionConfig, TcpConfig};
use crate::edge::Edge;
use crate::psn::Psn;
use crate::recovery::{Penalty, Recovery, Sender};
use crate::slack::Slack;
use crate::time::{MS, SEC, US};

/// Packet format.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WireFormat {
    /// Plain RoCEv2.
    Roce,
    /// RoCEv2 with the IRN extension on every packet; the peer must know it.
    Irn,
    /// Plain until the peer has shown that it knows the extension, then IRN.
    Auto,
}

/// Limit on packets in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// Limited only by the tracking window.
    None,
    /// BDP-FC: a static cap in packets (IRN §4.2.2).
    BdpCap(u32),
}

/// Responses of a go-back-N receiver to packets out of sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Nak {
    /// One NAK until the missing packet arrives (IBA 9.7.5.2.3).
    PerGap,
    /// One for every packet, as IRN's receivers do (§4.2.1). The sender goes back each time: the missing packet is
    /// resent repeatedly for a round trip, so it arrives without a timeout however many copies are lost.
    PerPacket,
}

/// Part of an out-of-order packet that is placed on arrival (IRN §4.4.3). The rest waits until everything before it has
/// arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All of it.
    Any,
    /// All but the bytes that a program may poll in memory instead of waiting for a completion: the last
    /// [`WATCHED`](Placement::WATCHED) bytes of a WRITE or of the response to a READ, and the result of an atomic.
    Watched,
    /// Nothing, as in plain RoCE. SENDs are placed all the same: their completions are in order.
    InOrder,
}

impl Placement {
    /// Bytes at the end of a message that a program may poll: a cache line.
    pub const WATCHED: usize = 64;
}

/// Retransmission timer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Timer {
    /// One fixed time in ns; `None` is the QP's Local ACK Timeout (IBA 9.7.6.1.3).
    Fixed(Option<u64>),
    /// The two timeouts of IRN (§4.2.1), in ns: `low` while at most `n` packets are in flight, otherwise `high`.
    Irn {
        /// RTO_low, ns.
        low: u64,
        /// RTO_high, ns.
        high: u64,
        /// Packets in flight up to which RTO_low applies.
        n: u32,
    },
    /// From measured round trips (RFC 6298, Karn's rules), for real time: `srtt + 4·rttvar`, at least `srtt + min`
    /// while at most `n` packets are in flight and `srtt + 2·min` otherwise; doubled on each timeout until the peer is
    /// heard from, at most `max`. In ns.
    Estimated {
        /// Minimum beyond the round trip, ns.
        min: u64,
        /// Upper bound, ns. Before the first measurement the timeout is 16 times `min`, if that is less.
        max: u64,
        /// Packets in flight up to which `min` applies.
        n: u32,
        /// Minimum time from the last packet received to a tail loss probe (RFC 8985 §7), ns, of requests and of IRN's
        /// responses; 0: no probes.
        probe: u64,
    },
    /// TCP's (RFC 6298): `srtt + 4·rttvar` from the last progress, at least `min`, which applies before the first
    /// measurement; doubled on each timeout until the next measurement, at most `max`. In ns.
    Tcp {
        /// Lower bound, ns.
        min: u64,
        /// Upper bound, ns.
        max: u64,
    },
}

/// How requests to overlapping remote memory, which IRN's receivers place in order of arrival (§4.4.3), are kept apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// By the application, which waits or uses fences.
    Application,
    /// By the NIC: a request that could overwrite memory written or read by an outstanding request of its queue pair
    /// starts when that one is complete.
    Fence,
}

/// A transport: one choice along each axis. Presets create one whose fields can then be set; more fields will be added.
#[non_exhaustive]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// Packet format.
    pub wire: WireFormat,
    /// Loss recovery of outgoing streams (in the IRN format; plain RoCE can only go back N).
    pub recovery: Recovery,
    /// Responses to packets out of sequence if this end goes back N.
    pub nak: Nak,
    /// Flow control of outgoing streams.
    pub flow: FlowControl,
    /// Retransmission timer.
    pub timer: Timer,
    /// Packets that a receiver tracks out of order, and the limit on packets in flight without a cap; a power of two
    /// from 64 to 65,536.
    pub window: u32,
    /// NACKs without progress before loss recovery starts (IRN §4.6), 1 or more.
    pub nack_threshold: u32,
    /// Delay from detecting a loss to the earliest retransmission, ns, up to a second: the time to fetch the packet
    /// from host memory (IRN §4.5.3).
    pub retransmit_delay: u64,
    /// Whether packets are only resent on evidence of their loss, for hosts whose timers expire early
    /// ([`crate::recovery::Sender::with_evidence`]): selective recovery uses RACK (RFC 8985), otherwise IRN's reference
    /// modules apply.
    pub evidence: bool,
    /// Part of an out-of-order packet that is placed at once (IRN).
    pub placement: Placement,
    /// Time for which an unresponsive peer is considered busy, ns, if longer than its retries take; 0 follows IBA
    /// literally. With any other value, a peer whose process is known to be alive, and not to have read the packets
    /// sent to it ([`crate::qp::PeerProcess`]), is waited for indefinitely.
    pub patience: u64,
    /// Whether acknowledgements carry end-to-end credits (IBA 9.7.7.2). Shared receive queues never do.
    pub credits: bool,
    /// Plain RoCE: packets of a message between requests for an acknowledgement, 1 to 65,536, so that a long message
    /// frees its packets in time. `None`: only the last packet requests one, and any without which the sender could not
    /// go on, as IRN's comparison with RoCE assumes (§4.4.2).
    pub ack_every: Option<u32>,
    /// Priority of acknowledgements and congestion notifications, 0 to 7, if not that of the queue pair: the upper
    /// three bits of their traffic class. Queues on the path of reverse data then do not distort measurements of the
    /// forward path (TIMELY §3.1, §5). Plain RoCE's use the common priority once the queue pair has answered a READ or
    /// atomic: an acknowledgement that overtook the response would read as a NAK.
    pub ack_priority: Option<u8>,
    /// How requests of one reliable connection to overlapping remote memory are kept apart. Plain RoCE places requests
    /// in order.
    pub overlap: Overlap,
    /// The mechanism that selects and marks the packets of reliable connections, in addition to loss recovery.
    pub discipline: Discipline,
    /// Time that outgoing packets may wait in queues, for switches that schedule by it.
    pub slack: Slack,
    /// Handling of packets that have waited long in switches, as shown by their slack.
    pub edge: Edge,
    /// Congestion control of outgoing streams.
    pub congestion: CongestionConfig,
    /// Rate of the NIC's link, bit/s, and round trip of an empty network, ns: the initial values of congestion control.
    pub line_rate: u64,
    /// See `line_rate`.
    pub base_rtt: u64,
}

/// Parameters of the paper, with their sections.
pub mod paper {
    use super::US;
    /// BDP cap in packets of 1 KB, IRN §4.3.1.
    pub const BDP_CAP: u32 = 110;
    /// RTO_low, IRN §4.3.1.
    pub const RTO_LOW: u64 = 100 * US;
    /// RTO_high, IRN §4.3.1.
    pub const RTO_HIGH: u64 = 320 * US;
    /// N, IRN §4.3.1.
    pub const N: u32 = 3;
    /// Rate of the links, bit/s, IRN §4.3.1.
    pub const LINE_RATE: u64 = 40_000_000_000;
    /// Round trip of the longest path: twelve links of 2 µs, IRN §4.3.1.
    pub const BASE_RTT: u64 = 24 * US;
}

/// Cap on packets in flight to a peer that `auto` found to support only plain RoCE. Nothing else slows such a sender
/// down, and a slow receiver is flooded with retransmissions of packets still in its queue. The Linux rxe driver, the
/// likely peer, has the same limit (RXE_MAX_UNACKED_PSNS).
pub const PLAIN_CAP: u32 = 128;

/// Packets of a plain RoCE message between requests for an acknowledgement.
pub const ACK_EVERY: u32 = 16;

/// Maximum time to refetch a packet, ns.
pub const MAX_RETRANSMIT_DELAY: u64 = SEC;

/// Real-time defaults; `docs/transports.md` explains their choice.
pub mod real_time {
    use super::{MS, US};
    /// Cap on packets in flight, and window of the bitmaps.
    pub const CAP: u32 = 4096;
    /// Minimum retransmission timeout: beyond the scheduling noise of a busy polling host.
    pub const RTO_MIN: u64 = 250 * US;
    /// Maximum retransmission timeout.
    pub const RTO_MAX: u64 = 64 * MS;
    /// Minimum time without an answer before a peer on another host is considered dead: longer than a process on an
    /// overloaded host waits for a core.
    pub const PATIENCE: u64 = 2 * super::SEC;
    /// Minimum time to a tail loss probe: beyond the response time of a polling host.
    pub const TLP: u64 = 50 * US;
    /// Packets in flight up to which the lower timeout applies; the paper's N.
    pub const N: u32 = super::paper::N;
}

impl TransportConfig {
    /// Names of the presets.
    pub const PRESETS: [&str; 8] =
        ["roce", "irn", "irn-go-back-n", "irn-no-bdp", "irn-no-sack", "auto", "iwarp", "ndp"];

    const IRN: TransportConfig = TransportConfig {
        wire: WireFormat::Irn,
        recovery: Recovery::Selective,
        nak: Nak::PerGap,
        flow: FlowControl::BdpCap(paper::BDP_CAP),
        timer: Timer::Irn { low: paper::RTO_LOW, high: paper::RTO_HIGH, n: paper::N },
        window: real_time::CAP,
        nack_threshold: 1,
        retransmit_delay: 0,
        evidence: false,
        placement: Placement::Any,
        patience: 0,
        credits: true,
        ack_every: Some(ACK_EVERY),
        ack_priority: None,
        overlap: Overlap::Application,
        discipline: Discipline::None,
        slack: Slack::None,
        edge: Edge::Off,
        congestion: CongestionConfig::None,
        line_rate: paper::LINE_RATE,
        base_rtt: paper::BASE_RTT,
    };

    /// Returns a preset with the paper's caps and timers, for virtual time.
    pub fn preset(name: &str) -> Option<TransportConfig> {
        let irn = Self::IRN;
        Some(match name {
            "roce" => TransportConfig {
                wire: WireFormat::Roce,
                recovery: Recovery::GoBackN,
                flow: FlowControl::None,
                timer: Timer::Fixed(None),
                ..irn
            },
            "irn" => irn,
            "irn-go-back-n" => TransportConfig { recovery: Recovery::GoBackN, ..irn },
            "irn-no-bdp" => TransportConfig { flow: FlowControl::None, ..irn },
            "irn-no-sack" => TransportConfig { recovery: Recovery::SelectiveWithoutSack, ..irn },
            "auto" => TransportConfig { wire: WireFormat::Auto, ..irn },
            // iWARP's transport, TCP, on IRN's packets (dissertation §4.3.6).
            "iwarp" => TransportConfig {
                flow: FlowControl::None,
                timer: Timer::TCP,
                nack_threshold: 3,
                congestion: CongestionConfig::Tcp(TcpConfig::RFC),
                ..irn
            },
            // NDP (SIGCOMM 2017) on IRN's packets. A round trip is at most 400 us with full queues (§3.2).
            "ndp" => TransportConfig {
                flow: FlowControl::None,
                timer: Timer::Fixed(Some(MS)),
                window: 512,
                discipline: Discipline::Pull(PullConfig {
                    window: PullConfig::WINDOW,
                    paths: 0,
                    penalty: Penalty::Skip,
                    returns: true,
                    rate: PullConfig::FULL_RATE,
                    class: 0,
                }),
                ..irn
            },
            _ => return None,
        })
    }

    /// Returns the composition with caps and timers for real time: caps of [`real_time::CAP`] packets, timeouts that
    /// follow the measured round trip, evidence of each loss, and patience with peers that are not scheduled.
    #[must_use]
    pub fn for_real_time(mut self) -> TransportConfig {
        if matches!(self.flow, FlowControl::BdpCap(_)) {
            self.flow = FlowControl::BdpCap(real_time::CAP);
        }
        let pulled = self.discipline.pull().is_some();
        let probe = if pulled { 0 } else { real_time::TLP };
        self.timer = Timer::Estimated { min: real_time::RTO_MIN, max: real_time::RTO_MAX, n: real_time::N, probe };
        self.evidence = true;
        self.placement = Placement::Watched;
        self.patience = real_time::PATIENCE;
        if pulled {
            self.window = real_time::CAP;
        }
        self
    }

    /// Returns whether the retransmission timer follows the round trip as in real time.
    pub(crate) fn has_estimated_timer(&self) -> bool {
        matches!(self.timer, Timer::Estimated { .. })
    }

    /// Returns whether this end supports the IRN extension, and announces it.
    pub fn knows_irn(&self) -> bool {
        self.wire != WireFormat::Roce
    }

    /// Returns the maximum number of packets in flight.
    pub fn cap(&self) -> u32 {
        match self.flow {
            FlowControl::None => self.window,
            FlowControl::BdpCap(cap) => cap.min(self.window),
        }
    }

    /// Returns the sender of IRN's responses to READs and atomics, the first with `first`. Where receivers pull, pulls
    /// recover what is lost.
    pub(crate) fn response_stream(&self, first: Psn) -> Sender {
        let recovery = if self.discipline.pull().is_some() { Recovery::GoBackN } else { self.recovery };
        Sender::new(recovery, first, self.cap(), self.nack_threshold).with_evidence(self.evidence)
    }
}

#[cfg(test)]
mod tests;
