//! A transport is a composition: independent choices of wire format, loss recovery, flow control and timer, and the
//! presets that name the compositions of the literature.

use std::fmt;
use std::str::FromStr;

use crate::congestion::{CongestionConfig, TcpConfig};
use crate::recovery::{Bitmap, Recovery};
use crate::time::{MS, SEC, US};
use crate::units::{self, Nanoseconds};

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
    /// One for every packet, as IRN's receivers do (§4.2.1). The sender goes back each time: the missing packet is sent over and
    /// over for a round trip, and comes however many of its copies are lost, without a timeout.
    PerPacket,
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
    /// From measured round trips (RFC 6298, Karn's rules), for real time: `srtt + 4·rttvar`, at least `min` while at most
    /// `n` packets are in flight, at least twice `min` otherwise; doubled on each timeout until the next measurement, at
    /// most `max`. In ns.
    Estimated {
        /// Lower bound, ns.
        min: u64,
        /// Upper bound, and the value before the first measurement, ns.
        max: u64,
        /// Packets in flight up to which the lower bound is `min`.
        n: u32,
    },
    /// TCP's (RFC 6298): `srtt + 4·rttvar` from progress on, at least `min`, which holds before the first measurement; doubled on each
    /// timeout until the next measurement, at most `max`. In ns.
    Tcp {
        /// Lower bound, ns.
        min: u64,
        /// Upper bound, ns.
        max: u64,
    },
}

/// A transport: one choice along each axis.
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
    /// Packets that a receiver tracks out of order, and the bound on packets in flight where there is no cap; a power of
    /// two from 64 to 65,536.
    pub window: u32,
    /// NACKs without progress before loss recovery starts (IRN §4.6), 1 or more.
    pub nack_threshold: u32,
    /// Time from when a packet is detected as lost to when it may be sent again, ns, up to a second: how long
    /// fetching it from the host's memory takes (IRN §4.5.3).
    pub retransmit_delay: u64,
    /// Whether selective recovery sends nothing again without evidence that it is lost, for hosts whose timers run out too
    /// early ([`crate::recovery::Sender::with_evidence`]); else as IRN's reference modules do.
    pub evidence: bool,
    /// How long a peer that does not answer is taken for a busy one, ns, if that is longer than its retries take; 0 is IBA's
    /// letter. With any other value a peer whose process is known to live, and not to have taken what was sent to it
    /// ([`crate::qp::PeerProcess`]), is waited for without end.
    pub patience: u64,
    /// Whether acknowledgements carry end-to-end credits (IBA 9.7.7.2). Shared receive queues never do.
    pub credits: bool,
    /// Priority of acknowledgements and congestion notifications, 0 to 7, if not that of the queue pair: the upper three bits of
    /// their traffic class. A queue in the way of data that goes in the other direction then says nothing of the way there
    /// (TIMELY §3.1, §5). Plain RoCE's are like the rest once the queue pair has answered a READ or atomic: an acknowledgement
    /// that overtook the response would read as a NAK.
    pub ack_priority: Option<u8>,
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

/// Cap on packets in flight to a peer that `auto` found to speak plain RoCE only. Nothing else slows such a sender down, and a
/// receiver that falls behind is buried under repetitions of what it has queued. The Linux rxe driver, the likely one, allows
/// itself as many (RXE_MAX_UNACKED_PSNS).
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
    /// Least time without an answer before a peer on another host counts as gone: longer than a process on a crowded host waits
    /// for a core.
    pub const PATIENCE: u64 = 2 * super::SEC;
    /// Packets in flight up to which the lower timeout holds; the paper's N.
    pub const N: u32 = super::paper::N;
}

impl TransportConfig {
    /// Names of the presets.
    pub const PRESETS: [&str; 7] = ["roce", "irn", "irn-go-back-n", "irn-no-bdp", "irn-no-sack", "auto", "iwarp"];

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
        patience: 0,
        credits: true,
        ack_priority: None,
        congestion: CongestionConfig::None,
        line_rate: paper::LINE_RATE,
        base_rtt: paper::BASE_RTT,
    };

    /// TCP's timer. The dissertation says nothing of its bounds; a lower one of seconds, as RFC 6298 has it, would have made the tail that it
    /// reports impossible. It is RTO_high, which waits for the longest queues, the upper one that of [`real_time`].
    const TCP: Timer = Timer::Tcp { min: paper::RTO_HIGH, max: real_time::RTO_MAX };

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
                timer: Self::TCP,
                nack_threshold: 3,
                congestion: CongestionConfig::Tcp(TcpConfig::RFC),
                ..irn
            },
            _ => return None,
        })
    }

    /// The same composition with caps and timers for real time: caps of [`real_time::CAP`] packets, timeouts that follow
    /// the measured round trip, evidence of each loss, and patience with peers that have no core.
    #[must_use]
    pub fn for_real_time(mut self) -> TransportConfig {
        if matches!(self.flow, FlowControl::BdpCap(_)) {
            self.flow = FlowControl::BdpCap(real_time::CAP);
        }
        self.timer = Timer::Estimated { min: real_time::RTO_MIN, max: real_time::RTO_MAX, n: real_time::N };
        self.evidence = true;
        self.patience = real_time::PATIENCE;
        self
    }

    /// Whether this end understands the IRN extension, and says so.
    pub fn knows_irn(&self) -> bool {
        self.wire != WireFormat::Roce
    }

    /// Most packets in flight.
    pub fn cap(&self) -> u32 {
        match self.flow {
            FlowControl::None => self.window,
            FlowControl::BdpCap(cap) => cap.min(self.window),
        }
    }

    /// Sets one parameter by name.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let bad = |expected| ConfigError::Value { key: key.into(), value: value.into(), expected };
        let time = || units::time(value).filter(|ns| *ns > 0).ok_or(bad("a time such as 320us, 2ms or 1s"));
        let number = |range: std::ops::RangeInclusive<u32>, expected| {
            value.parse().ok().filter(|v| range.contains(v)).ok_or(bad(expected))
        };
        match key {
            "recovery" => {
                self.recovery = match value {
                    "go-back-n" => Recovery::GoBackN,
                    "selective" => Recovery::Selective,
                    "selective-no-sack" => Recovery::SelectiveWithoutSack,
                    _ => return Err(bad("go-back-n, selective or selective-no-sack")),
                }
            }
            "nak" => {
                self.nak = match value {
                    "per-gap" => Nak::PerGap,
                    "per-packet" => Nak::PerPacket,
                    _ => return Err(bad("per-gap or per-packet")),
                }
            }
            "cap" if value == "none" => self.flow = FlowControl::None,
            "cap" => self.flow = FlowControl::BdpCap(number(1..=Bitmap::<1>::MAX_BITS, "none, or 1 to 65536 packets")?),
            "window" => {
                let w = number(64..=Bitmap::<1>::MAX_BITS, "a power of two from 64 to 65536 packets")?;
                if !w.is_power_of_two() {
                    return Err(bad("a power of two from 64 to 65536 packets"));
                }
                self.window = w;
            }
            "rto" if value == "local-ack-timeout" => self.timer = Timer::Fixed(None),
            "rto" if value == "rfc6298" => self.timer = Self::TCP,
            "rto" => self.timer = Timer::Fixed(Some(time()?)),
            "rto-low" | "rto-high" | "n" => {
                let (mut low, mut high, mut n) = match self.timer {
                    Timer::Irn { low, high, n } => (low, high, n),
                    _ => (paper::RTO_LOW, paper::RTO_HIGH, paper::N),
                };
                match key {
                    "rto-low" => low = time()?,
                    "rto-high" => high = time()?,
                    _ => n = number(0..=65536, "0 to 65536 packets")?,
                }
                self.timer = Timer::Irn { low, high, n };
            }
            "rto-min" | "rto-max" if matches!(self.timer, Timer::Tcp { .. }) => {
                let to = time()?;
                if let Timer::Tcp { min, max } = &mut self.timer {
                    *(if key == "rto-min" { min } else { max }) = to;
                }
            }
            "rto-min" | "rto-max" => {
                let (mut min, mut max, n) = match self.timer {
                    Timer::Estimated { min, max, n } => (min, max, n),
                    _ => (real_time::RTO_MIN, real_time::RTO_MAX, real_time::N),
                };
                if key == "rto-min" {
                    min = time()?
                } else {
                    max = time()?
                }
                self.timer = Timer::Estimated { min, max, n };
            }
            "nack-threshold" => self.nack_threshold = number(1..=65536, "1 to 65536 NACKs")?,
            "retransmit-delay" => {
                let delay = units::time(value).filter(|ns| *ns <= MAX_RETRANSMIT_DELAY);
                self.retransmit_delay = delay.ok_or(bad("0, or a time of at most 1s such as 2us"))?;
            }
            "patience" if value == "iba" => self.patience = 0,
            "patience" => {
                let expected = bad("iba, or a time such as 2s or 1m");
                self.patience = units::time(value).filter(|ns| *ns > 0).ok_or(expected)?;
            }
            "evidence" | "credits" => {
                let on = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("on or off")),
                };
                *(if key == "credits" { &mut self.credits } else { &mut self.evidence }) = on;
            }
            "ack-priority" if value == "same" => self.ack_priority = None,
            "ack-priority" => self.ack_priority = Some(number(0..=7, "same, or a priority, 0 to 7")? as u8),
            "cc" => self.congestion = value.parse()?,
            "line-rate" => {
                self.line_rate = units::rate(value).ok_or(bad(units::RATE))?;
            }
            "base-rtt" => self.base_rtt = time()?,
            _ => match key.strip_prefix("cc.") {
                Some(key) => self.congestion.set(key, value)?,
                None => return Err(ConfigError::Key(key.into())),
            },
        }
        Ok(())
    }

    /// Whether the choices go together, and with ports of real networks if they are for `real_time`.
    pub fn check(&self, real_time: bool) -> Result<(), ConfigError> {
        if self.wire == WireFormat::Roce && self.recovery != Recovery::GoBackN {
            return Err(ConfigError::RoceRecovery);
        }
        if real_time && self.congestion.uses_telemetry() {
            return Err(ConfigError::NoTelemetry);
        }
        if let Timer::Irn { low, high, .. } = self.timer
            && low > high
        {
            return Err(ConfigError::TimerOrder { low: "rto-low", high: "rto-high" });
        }
        if let Timer::Estimated { min, max, .. } | Timer::Tcp { min, max } = self.timer
            && min > max
        {
            return Err(ConfigError::TimerOrder { low: "rto-min", high: "rto-max" });
        }
        Ok(())
    }

    /// A preset's name, then parameters: `irn,cap=110,rto-high=320us`. `real_time` chooses the preset's defaults.
    pub fn parse(text: &str, real_time: bool) -> Result<TransportConfig, ConfigError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut config = Self::preset(name).ok_or_else(|| ConfigError::Preset(name.into()))?;
        if real_time {
            config = config.for_real_time();
        }
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| ConfigError::NotKeyValue(part.into()))?;
            config.set(key.trim(), value.trim())?;
        }
        config.check(real_time)?;
        Ok(config)
    }
}

impl FromStr for TransportConfig {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        TransportConfig::parse(text, false)
    }
}

/// Why a transport's description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Unknown preset.
    #[error(
        "transport \"{0}\" does not exist; choose roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto or iwarp"
    )]
    Preset(String),
    /// Unknown parameter.
    #[error(
        "transport parameter \"{0}\" does not exist; there are recovery, nak, cap, window, rto, rto-low, rto-high, n, rto-min, \
         rto-max, nack-threshold, retransmit-delay, evidence, patience, credits, ack-priority, cc, cc.…, line-rate and base-rtt"
    )]
    Key(String),
    /// Bad value.
    #[error("transport parameter {key}={value}: expected {expected}")]
    #[allow(missing_docs)]
    Value { key: String, value: String, expected: &'static str },
    /// Congestion control.
    #[error(transparent)]
    Congestion(#[from] crate::congestion::CongestionError),
    /// No equals sign.
    #[error("\"{0}\" is not of the form parameter=value")]
    NotKeyValue(String),
    /// Plain RoCE receivers discard what is out of order.
    #[error("plain RoCE can only recover by go-back-n; use an irn transport for recovery=selective")]
    RoceRecovery,
    /// An algorithm that needs what only the simulated network has.
    #[error("hpcc needs telemetry of the switches, which only the simulated network has: irnic sim --cc hpcc")]
    NoTelemetry,
    /// Timers in the wrong order.
    #[error("{low} is longer than {high}")]
    #[allow(missing_docs)]
    TimerOrder { low: &'static str, high: &'static str },
}

impl fmt::Display for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.wire {
            WireFormat::Roce => "roce",
            WireFormat::Irn => "irn",
            WireFormat::Auto => "auto",
        };
        let recovery = match self.recovery {
            Recovery::GoBackN => "go-back-n",
            Recovery::Selective => "selective",
            Recovery::SelectiveWithoutSack => "selective-no-sack",
        };
        let nak = match self.nak {
            Nak::PerGap => "per-gap",
            Nak::PerPacket => "per-packet",
        };
        write!(f, "{wire},recovery={recovery},nak={nak}")?;
        match self.flow {
            FlowControl::None => write!(f, ",cap=none")?,
            FlowControl::BdpCap(cap) => write!(f, ",cap={cap}")?,
        }
        match self.timer {
            Timer::Fixed(None) => write!(f, ",rto=local-ack-timeout")?,
            Timer::Fixed(Some(t)) => write!(f, ",rto={}", Nanoseconds(t))?,
            Timer::Irn { low, high, n } => {
                write!(f, ",rto-low={},rto-high={},n={n}", Nanoseconds(low), Nanoseconds(high))?
            }
            Timer::Tcp { min, max } => {
                write!(f, ",rto=rfc6298,rto-min={},rto-max={}", Nanoseconds(min), Nanoseconds(max))?
            }
            Timer::Estimated { min, max, .. } => {
                write!(f, ",rto-min={},rto-max={}", Nanoseconds(min), Nanoseconds(max))?
            }
        }
        let on = |flag| if flag { "on" } else { "off" };
        let (evidence, credits) = (on(self.evidence), on(self.credits));
        write!(f, ",window={},nack-threshold={}", self.window, self.nack_threshold)?;
        write!(f, ",retransmit-delay={}", Nanoseconds(self.retransmit_delay))?;
        write!(f, ",evidence={evidence}")?;
        match self.patience {
            0 => write!(f, ",patience=iba")?,
            patience => write!(f, ",patience={}", Nanoseconds(patience))?,
        }
        write!(f, ",credits={credits}")?;
        if let Some(priority) = self.ack_priority {
            write!(f, ",ack-priority={priority}")?;
        }
        if self.congestion != CongestionConfig::None {
            let text = self.congestion.to_string();
            let mut parts = text.split(',');
            write!(f, ",cc={}", parts.next().unwrap_or_default())?;
            for part in parts {
                write!(f, ",cc.{part}")?;
            }
            write!(f, ",line-rate={}bit,base-rtt={}", self.line_rate, Nanoseconds(self.base_rtt))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_compositions() {
        let irn = TransportConfig::preset("irn").unwrap();
        assert_eq!((irn.recovery, irn.cap()), (Recovery::Selective, 110));
        assert_eq!(irn.timer, Timer::Irn { low: 100 * US, high: 320 * US, n: 3 });
        for (name, recovery, cap, wire) in [
            ("roce", Recovery::GoBackN, 4096, WireFormat::Roce),
            ("irn-go-back-n", Recovery::GoBackN, 110, WireFormat::Irn),
            ("irn-no-bdp", Recovery::Selective, 4096, WireFormat::Irn),
            ("irn-no-sack", Recovery::SelectiveWithoutSack, 110, WireFormat::Irn),
            ("auto", Recovery::Selective, 110, WireFormat::Auto),
            ("iwarp", Recovery::Selective, 4096, WireFormat::Irn),
        ] {
            let c = TransportConfig::preset(name).unwrap();
            assert_eq!((c.recovery, c.cap(), c.wire), (recovery, cap, wire), "{name}");
        }
    }

    #[test]
    fn display_parses_back() {
        for name in TransportConfig::PRESETS {
            assert_eq!(TransportConfig::preset(name).map(|c| c.patience), Some(0), "virtual time has IBA's letter");
            assert_eq!(TransportConfig::parse(&format!("{name},patience=iba"), true).map(|c| c.patience), Ok(0));
            for real_time in [false, true] {
                let c = TransportConfig::parse(&format!("{name},retransmit-delay=2us"), real_time).unwrap();
                assert_eq!(c.patience, if real_time { 2 * SEC } else { 0 });
                assert_eq!(c.retransmit_delay, 2 * US);
                assert_eq!(TransportConfig::parse(&c.to_string(), real_time), Ok(c), "{c}");
            }
        }
    }

    #[test]
    fn congestion_control_is_a_parameter_like_others() {
        let text = "irn,cc=timely-patched,cc.t-low=30us,line-rate=10G,base-rtt=40us";
        let config = TransportConfig::parse(text, true).unwrap();
        let mut expected: CongestionConfig = "timely-patched".parse().unwrap();
        expected.set("t-low", "30us").unwrap();
        assert_eq!((config.congestion, config.line_rate, config.base_rtt), (expected, 10_000_000_000, 40 * US));
        assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
    }

    #[test]
    fn acknowledgements_have_the_priority_of_the_rest_unless_told_otherwise() {
        let read = |text| TransportConfig::parse(text, false).map(|c| c.ack_priority);
        assert_eq!((read("irn"), read("irn,ack-priority=7")), (Ok(None), Ok(Some(7))));
        assert_eq!(read("irn,ack-priority=7,ack-priority=same"), Ok(None));
        let config = TransportConfig::parse("irn,ack-priority=7", true).unwrap();
        assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
        assert!(matches!(read("irn,ack-priority=8"), Err(ConfigError::Value { .. })));
    }

    #[test]
    fn a_receiver_answers_each_gap_once_unless_told_otherwise() {
        for name in TransportConfig::PRESETS {
            assert_eq!(TransportConfig::preset(name).unwrap().nak, Nak::PerGap, "{name}");
        }
        let config: TransportConfig = "roce,nak=per-packet".parse().unwrap();
        assert_eq!((config.nak, config.to_string().parse()), (Nak::PerPacket, Ok(config)));
    }

    #[test]
    fn iwarp_is_tcp_on_irns_packets() {
        let iwarp = TransportConfig::preset("iwarp").unwrap();
        assert_eq!((iwarp.nack_threshold, iwarp.flow), (3, FlowControl::None));
        assert_eq!(iwarp.congestion, CongestionConfig::Tcp(TcpConfig::RFC));
        assert_eq!(iwarp.timer, Timer::Tcp { min: 320 * US, max: 64 * MS });
        let other: TransportConfig = "iwarp,rto-min=50us,rto-max=1s,cc.initial=10".parse().unwrap();
        assert_eq!(other.timer, Timer::Tcp { min: 50 * US, max: SEC });
        assert_eq!((other.congestion.to_string(), other.to_string().parse()), ("tcp,initial=10".to_owned(), Ok(other)));
        // The timer goes with other transports, too.
        assert_eq!("irn,rto=rfc6298".parse::<TransportConfig>().unwrap().timer, iwarp.timer);
        assert!("iwarp,rto-min=1s".parse::<TransportConfig>().is_err());
    }

    #[test]
    fn what_needs_telemetry_is_for_the_simulated_network_alone() {
        assert!(TransportConfig::parse("irn,cc=hpcc", false).is_ok());
        assert_eq!(TransportConfig::parse("irn,cc=hpcc", true), Err(ConfigError::NoTelemetry));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (text, part) in [
            ("roce,nak=twice", "nak=twice: expected per-gap or per-packet"),
            ("tcp", "\"tcp\" does not exist"),
            ("irn,cap", "parameter=value"),
            ("irn,cap=0", "cap=0: expected none, or 1 to 65536"),
            ("irn,window=100", "power of two"),
            ("irn,colour=red", "\"colour\" does not exist"),
            ("irn,rto-low=1s", "rto-low is longer than rto-high"),
            ("roce,recovery=selective", "go-back-n"),
            ("irn,rto-high=5", "such as 320us"),
            ("irn,rto-low=0", "such as 320us"),
            ("roce,rto=0ns", "such as 320us"),
            ("irn,retransmit-delay=2", "retransmit-delay=2: expected 0, or a time of at most 1s such as 2us"),
            ("irn,retransmit-delay=2s", "at most 1s"),
            ("irn,patience=0", "patience=0: expected iba, or a time such as 2s"),
            ("irn,patience=long", "expected iba"),
            ("irn,cc=cubic", "congestion control \"cubic\" does not exist; choose none, aimd"),
            ("irn,cc.t-low=1us", "\"t-low\" does not exist"),
            ("irn,cc=timely,cc.t-low=x", "t-low=x: expected"),
            ("irn,line-rate=fast", "such as 40G"),
        ] {
            let e = TransportConfig::parse(text, false).unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
