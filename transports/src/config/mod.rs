//! A transport is a composition: independent choices of wire format, loss recovery, flow control and timer, and the
//! presets that name the compositions of the literature.
//!
//! The choices are here, and what presets are made of them; `text` reads and writes them as text.

mod text;

pub use text::{ConfigError, GivenKeys, ParsedTransport};

use crate::congestion::{CongestionConfig, TcpConfig};
use crate::edge::Edge;
use crate::recovery::Recovery;
use crate::slack::Slack;
use crate::time::{MS, SEC, US};

/// What the packets look like.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WireFormat {
    /// Plain RoCEv2.
    Roce,
    /// RoCEv2 with the IRN extension on every packet; the peer must know it.
    Irn,
    /// Plain until the peer has shown that it knows the extension, then IRN.
    Auto,
}

/// How many packets may be in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// As many as the tracking window holds.
    None,
    /// BDP-FC: a static cap in packets (IRN §4.2.2).
    BdpCap(u32),
}

/// What a receiver that goes back N answers to packets out of sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Nak {
    /// One NAK until the missing packet comes (IBA 9.7.5.2.3).
    PerGap,
    /// One for every packet, as IRN's receivers do (§4.2.1). The sender goes back each time: the missing packet is sent
    /// over and over for a round trip, and comes however many of its copies are lost, without a timeout.
    PerPacket,
}

/// What of a packet out of order is placed when it comes (IRN §4.4.3). The rest waits until everything before it has
/// arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All of it.
    Any,
    /// All but what a program may watch in memory instead of waiting for a completion: the last
    /// [`WATCHED`](Placement::WATCHED) bytes of a WRITE or of the response to a READ, and the result of an atomic.
    Watched,
    /// Nothing, as plain RoCE has it. SENDs are placed all the same: their completions are in order.
    InOrder,
}

impl Placement {
    /// Bytes at the end of a message that a program may watch: a cache line.
    pub const WATCHED: usize = 64;
}

/// When silence means loss.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Timer {
    /// One fixed time in ns; `None` is the QP's Local ACK Timeout (IBA 9.7.6.1.3).
    Fixed(Option<u64>),
    /// IRN's two (§4.2.1), in ns: `low` while at most `n` packets are in flight, else `high`.
    Irn {
        /// RTO_low, ns.
        low: u64,
        /// RTO_high, ns.
        high: u64,
        /// Packets in flight up to which RTO_low holds.
        n: u32,
    },
    /// From measured round trips (RFC 6298, Karn's rules), for real time: `srtt + 4·rttvar`, at least `srtt + min`
    /// while at most `n` packets are in flight and `srtt + 2·min` otherwise; doubled on each timeout until there is
    /// news from the peer, at most `max`. In ns.
    Estimated {
        /// Least time beyond the round trip, ns.
        min: u64,
        /// Upper bound, ns. Before the first measurement the timeout is 16 times `min`, if that is less.
        max: u64,
        /// Packets in flight up to which `min` holds.
        n: u32,
    },
    /// TCP's (RFC 6298): `srtt + 4·rttvar` from progress on, at least `min`, which holds before the first measurement;
    /// doubled on each timeout until the next measurement, at most `max`. In ns.
    Tcp {
        /// Lower bound, ns.
        min: u64,
        /// Upper bound, ns.
        max: u64,
    },
}

/// Who keeps apart requests to overlapping remote memory, which IRN's receivers place in the order of arrival (§4.4.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// The application, by waiting or by fences of its own.
    Application,
    /// The NIC: a request that could overwrite what an outstanding one of its queue pair writes or reads starts when
    /// that is complete.
    Fence,
}

/// A stream whose receiver asks for each packet (NDP §3.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PullConfig {
    /// Packets that go unasked: NDP's initial window, 1 to 4,096.
    pub window: u32,
    /// Ways to choose from, 1 to 256: UDP source ports from 0xc000 on. 0 for as many as the simulated network has, and
    /// 1 in a real one, which does not say.
    pub paths: u16,
    /// Whether ways that lose packets out of proportion are left out for a while (§3.2.3).
    pub penalty: bool,
    /// Whether packets that were sent back are taken notice of (§3.2.4).
    pub returns: bool,
    /// Rate of this end's pulls, in thousandths of what fills [`TransportConfig::line_rate`] with full packets.
    pub rate: u32,
    /// Class of this end's pulls, 0 to 7: those of lower classes go first.
    pub class: u8,
}

impl PullConfig {
    /// [`Self::rate`] that fills the line.
    pub const FULL_RATE: u32 = 1000;
    /// The paper's initial window (§6.2; most of its authors' scripts have 23).
    pub const WINDOW: u32 = 30;
}

/// Whether TLT (EuroSys 2021) marks packets as important, and by which rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltMode {
    /// It does not.
    Off,
    /// By those of windows with selective recovery in the IRN format, else by those of rates.
    On,
    /// One packet of each stream at a time, which is echoed (§5.1).
    Window,
    /// The last packet, the first and the last of each round of retransmissions, and one in so many; no echo (§5.2).
    Rate,
}

/// What keeps the clock of a stream with a window going when its echo has come and nothing may be sent (§5.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltClock {
    /// The first packet that is lost if one is, else a packet without payload.
    Adaptive,
    /// The first packet that is lost, or else the first that is not acknowledged.
    Mtu,
    /// A packet without payload, whatever is lost; and what is lost is left to the recovery.
    Probe,
}

/// Which packet of a stream is the first important one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltFirst {
    /// The last of the initial window (§5.1).
    Window,
    /// The first, as the authors' RDMA simulator has it.
    Packet,
}

/// TLT.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TltConfig {
    /// Whether, and how.
    pub mode: TltMode,
    /// With windows.
    pub clock: TltClock,
    /// With windows.
    pub first: TltFirst,
    /// With rates: one packet in so many is important, 0 for none.
    pub every: u32,
}

impl TltConfig {
    /// Nothing is marked. What is given beside holds once something is.
    pub const OFF: TltConfig =
        TltConfig { mode: TltMode::Off, clock: TltClock::Adaptive, first: TltFirst::Window, every: 96 };
}

/// RC3 (NSDI 2014; dissertation chapter 2): a second loop sends, from the last packet back, what the window does not
/// let go yet, at lower priorities.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rc3Config {
    /// Packets that go at the first of the low priorities, 1 to 65,536; each further one takes ten times as many as the
    /// one before it (§2.1.1). 0: RC3 is off.
    pub slots: u32,
    /// Low priorities, 1 to 7. What is left goes at the last.
    pub levels: u8,
    /// Packets behind the first that is not acknowledged up to which low priority sends, and that both ends track at
    /// least; a power of two from 64 to 65,536.
    pub reach: u32,
}

impl Rc3Config {
    /// Nothing goes at low priority. What is given beside holds once something does: three priorities, of which the
    /// last begins at the 441st packet from the end, and a reach of the largest bandwidth-delay product of §2.4.
    pub const OFF: Rc3Config = Rc3Config { slots: 0, levels: 3, reach: 8192 };
    /// Packets of the first priority (§2.1.1).
    pub const SLOTS: u32 = 40;

    /// Whether packets go at low priority.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.slots > 0
    }

    /// Returns how many priorities below its stream's the `k`-th packet from the end goes, counted from 1: the first
    /// for the last `slots` packets, the second for ten times as many before those, and so on.
    pub fn level(&self, k: u32) -> u8 {
        let (mut level, mut size, mut end) = (1, u64::from(self.slots), u64::from(self.slots));
        while u64::from(k) > end && level < self.levels {
            level += 1;
            size *= 10;
            end += size;
        }
        level
    }
}

/// A transport: one choice along each axis. Presets make one, whose fields can then be set; more fields will come.
#[non_exhaustive]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// Packet format.
    pub wire: WireFormat,
    /// Loss recovery of what this end sends (in the IRN format; plain RoCE can only go back N).
    pub recovery: Recovery,
    /// What this end answers to packets out of sequence if it goes back N.
    pub nak: Nak,
    /// Flow control of what this end sends.
    pub flow: FlowControl,
    /// Retransmission timer.
    pub timer: Timer,
    /// Packets that a receiver tracks out of order, and the bound on packets in flight where there is no cap; a power
    /// of two from 64 to 65,536.
    pub window: u32,
    /// NACKs without progress before loss recovery starts (IRN §4.6), 1 or more.
    pub nack_threshold: u32,
    /// Time from when a packet is detected as lost to when it may be sent again, ns, up to a second: how long
    /// fetching it from the host's memory takes (IRN §4.5.3).
    pub retransmit_delay: u64,
    /// Whether nothing is sent again without evidence that it is lost, for hosts whose timers run out too early
    /// ([`crate::recovery::Sender::with_evidence`]): selective recovery goes by RACK (RFC 8985), else as IRN's
    /// reference modules do.
    pub evidence: bool,
    /// What of a packet out of order is placed at once (IRN).
    pub placement: Placement,
    /// How long a peer that does not answer is taken for a busy one, ns, if that is longer than its retries take; 0 is
    /// IBA's letter. With any other value a peer whose process is known to live, and not to have taken what was sent to
    /// it ([`crate::qp::PeerProcess`]), is waited for without end.
    pub patience: u64,
    /// Whether acknowledgements carry end-to-end credits (IBA 9.7.7.2). Shared receive queues never do.
    pub credits: bool,
    /// Priority of acknowledgements and congestion notifications, 0 to 7, if not that of the queue pair: the upper
    /// three bits of their traffic class. A queue in the way of data that goes in the other direction then says nothing
    /// of the way there (TIMELY §3.1, §5). Plain RoCE's are like the rest once the queue pair has answered a READ or
    /// atomic: an acknowledgement that overtook the response would read as a NAK.
    pub ack_priority: Option<u8>,
    /// Who keeps apart requests of one reliable connection to overlapping remote memory. Plain RoCE places requests in
    /// order.
    pub overlap: Overlap,
    /// Whether receivers ask for each packet, NDP's way, on reliable connections. Loss recovery, cap and NACKs are
    /// those of other packets then.
    pub pull: Option<PullConfig>,
    /// Whether packets of reliable connections are marked as important and unimportant (TLT).
    pub tlt: TltConfig,
    /// Least time from the last sign of life to a tail loss probe (RFC 8985 §7), ns; 0: there are none. On reliable
    /// connections: of requests and of IRN's responses with [`Timer::Estimated`], else of requests.
    pub tlp: u64,
    /// Whether reliable connections send what the window holds back at lower priorities (RC3).
    pub rc3: Rc3Config,
    /// How long packets of what this end sends may wait in queues, for switches that schedule by it.
    pub slack: Slack,
    /// What this end does with packets that have waited long in switches, which their slack tells.
    pub edge: Edge,
    /// Congestion control of what this end sends.
    pub congestion: CongestionConfig,
    /// Rate of the NIC's link, bit/s, and round trip of an empty network, ns: what congestion control starts from.
    pub line_rate: u64,
    /// See `line_rate`.
    pub base_rtt: u64,
}

/// The paper's numbers, and where they stand in it.
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

/// Cap on packets in flight to a peer that `auto` found to speak plain RoCE only. Nothing else slows such a sender
/// down, and a receiver that falls behind is buried under repetitions of what it has queued. The Linux rxe driver, the
/// likely one, allows itself as many (RXE_MAX_UNACKED_PSNS).
pub const PLAIN_CAP: u32 = 128;

/// The longest time that fetching a packet again may take, ns.
pub const MAX_RETRANSMIT_DELAY: u64 = SEC;

/// Real-time defaults; `docs/transports.md` says how they were chosen.
pub mod real_time {
    use super::{MS, US};
    /// Cap on packets in flight, and window of the bitmaps.
    pub const CAP: u32 = 4096;
    /// Least retransmission timeout: beyond the scheduling noise of a busy polling host.
    pub const RTO_MIN: u64 = 250 * US;
    /// Most.
    pub const RTO_MAX: u64 = 64 * MS;
    /// Least time without an answer before a peer on another host counts as gone: longer than a process on a crowded
    /// host waits for a core.
    pub const PATIENCE: u64 = 2 * super::SEC;
    /// Least time to a tail loss probe: beyond what a polling host takes to answer.
    pub const TLP: u64 = 50 * US;
    /// Packets in flight up to which the lower timeout holds; the paper's N.
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
        ack_priority: None,
        overlap: Overlap::Application,
        pull: None,
        tlt: TltConfig::OFF,
        tlp: 0,
        rc3: Rc3Config::OFF,
        slack: Slack::None,
        edge: Edge::Off,
        congestion: CongestionConfig::None,
        line_rate: paper::LINE_RATE,
        base_rtt: paper::BASE_RTT,
    };

    /// A preset with the paper's caps and timers, for virtual time.
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
                pull: Some(PullConfig {
                    window: PullConfig::WINDOW,
                    paths: 0,
                    penalty: true,
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
    /// follow the measured round trip, evidence of each loss, and patience with peers that have no core.
    #[must_use]
    pub fn for_real_time(mut self) -> TransportConfig {
        if matches!(self.flow, FlowControl::BdpCap(_)) {
            self.flow = FlowControl::BdpCap(real_time::CAP);
        }
        self.timer = Timer::Estimated { min: real_time::RTO_MIN, max: real_time::RTO_MAX, n: real_time::N };
        self.evidence = true;
        self.placement = Placement::Watched;
        self.patience = real_time::PATIENCE;
        self.tlp = real_time::TLP;
        if self.pull.is_some() {
            (self.window, self.tlp) = (real_time::CAP, 0);
        }
        self
    }

    /// Whether the retransmission timer follows the round trip as in real time.
    pub(crate) fn has_estimated_timer(&self) -> bool {
        matches!(self.timer, Timer::Estimated { .. })
    }

    /// Whether the retransmission timer has tail loss probes. Where TLT, RC3 or pulls see to tails it has none.
    pub(crate) fn probes_with_timer(&self) -> bool {
        let tails = self.pull.is_some() || self.has_tlt_window() || self.rc3.is_on();
        self.tlp > 0 && self.has_estimated_timer() && !tails
    }

    /// Whether this end understands the IRN extension, and says so.
    pub fn knows_irn(&self) -> bool {
        self.wire != WireFormat::Roce
    }

    /// Whether TLT marks packets by the rules of windows.
    pub fn has_tlt_window(&self) -> bool {
        let windows = self.wire == WireFormat::Irn && self.recovery == Recovery::Selective;
        self.tlt.mode == TltMode::Window || self.tlt.mode == TltMode::On && windows
    }

    /// Whether TLT marks packets by the rules of rates.
    pub fn has_tlt_rate(&self) -> bool {
        self.tlt.mode != TltMode::Off && !self.has_tlt_window()
    }

    /// Packets from the first one missing on that both ends of a stream of requests keep track of.
    pub fn tracked(&self) -> u32 {
        if self.rc3.is_on() { self.window.max(self.rc3.reach) } else { self.window }
    }

    /// Most packets in flight.
    pub fn cap(&self) -> u32 {
        match self.flow {
            FlowControl::None => self.window,
            FlowControl::BdpCap(cap) => cap.min(self.window),
        }
    }
}

#[cfg(test)]
mod tests;
