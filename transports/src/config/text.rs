//! Transports as text: a preset's name, then parameters, such as `irn,cap=110,rto-high=320us`.

use std::fmt;
use std::str::FromStr;

use irnic_units::keys::{Key, Value, ValueError, pairs};
use irnic_units::{MAX_NS, MAX_RATE, Nanoseconds, RATE, did_you_mean};

use super::discipline::{self, Discipline};
use super::{
    ACK_EVERY, FlowControl, MAX_RETRANSMIT_DELAY, Nak, Overlap, Placement, Timer, TransportConfig, WireFormat, paper,
    real_time,
};
use crate::congestion::{CongestionConfig, FairRateConfig, RoccConfig};
use crate::edge::{self, Edge};
use crate::recovery::{Bitmap, Recovery};
use crate::slack::{self, Slack};

/// Valid numbers of packets.
const CAP: &str = "none, or 1 to 65536 packets";
const WINDOW: &str = "a power of two from 64 to 65536 packets";

/// Valid timeouts.
const TIMEOUT: &str = "a time such as 320us, 2ms or 1s";

/// A parameter.
pub(super) type TransportKey = Key<TransportConfig, ConfigError>;

/// All parameters.
static KEYS: [&[TransportKey]; 3] = [&RECOVERY, &discipline::KEYS, &NETWORK];

/// Those of loss recovery and acknowledgements.
static RECOVERY: [TransportKey; 19] = [
    Key::new("recovery", |t, v| set(&mut t.recovery, recovery(v))),
    Key::new("nak", |t, v| set(&mut t.nak, nak(v))),
    Key::new("cap", |t, v| set(&mut t.flow, cap(v))),
    Key::new("window", |t, v| set(&mut t.window, window(v))),
    Key::new("rto", timer),
    Key::new("rto-low", timer),
    Key::new("rto-high", timer),
    Key::new("n", timer),
    Key::new("rto-min", timer),
    Key::new("rto-max", timer),
    Key::new("nack-threshold", |t, v| set(&mut t.nack_threshold, v.number(1..=65536, "1 to 65536 NACKs"))),
    Key::new("retransmit-delay", |t, v| {
        set(&mut t.retransmit_delay, v.time(0..=MAX_RETRANSMIT_DELAY, "0, or a time of at most 1s such as 2us"))
    }),
    Key::new("evidence", |t, v| set(&mut t.evidence, v.switch())),
    Key::new("placement", |t, v| set(&mut t.placement, v.word(&PLACEMENTS))),
    Key::new("patience", |t, v| set(&mut t.patience, patience(v))),
    Key::new("credits", |t, v| set(&mut t.credits, v.switch())),
    Key::new("ack-every", |t, v| set(&mut t.ack_every, ack_every(v))),
    Key::new("ack-priority", |t, v| set(&mut t.ack_priority, ack_priority(v))),
    Key::new("overlap", |t, v| set(&mut t.overlap, v.word(&OVERLAPS))),
];

/// Those of the network and of congestion control.
static NETWORK: [TransportKey; 5] = [
    Key::new("slack", |t, v| set(&mut t.slack, v.read(|text| text.parse().ok(), slack::EXPECTED))),
    Key::new("edge", |t, v| set(&mut t.edge, v.read(|text| text.parse().ok(), edge::EXPECTED))),
    Key::new("cc", congestion),
    Key::new("line-rate", |t, v| set(&mut t.line_rate, v.rate(1..=MAX_RATE, RATE))),
    Key::new("base-rtt", |t, v| set(&mut t.base_rtt, timeout(v))),
];

const PLACEMENTS: [(&str, Placement); 3] =
    [("any", Placement::Any), ("watched", Placement::Watched), ("in-order", Placement::InOrder)];
const OVERLAPS: [(&str, Overlap); 2] = [("application", Overlap::Application), ("fence", Overlap::Fence)];

/// Stores a parsed value.
pub(super) fn set<T>(to: &mut T, read: Result<T, ValueError>) -> Result<(), ConfigError> {
    *to = read?;
    Ok(())
}

fn congestion(config: &mut TransportConfig, value: &Value<'_>) -> Result<(), ConfigError> {
    config.congestion = value.text.parse()?;
    Ok(())
}

pub(super) fn needs(value: &Value<'_>, what: &'static str) -> ConfigError {
    ConfigError::Needs { key: value.key.into(), what }
}

fn recovery(value: &Value<'_>) -> Result<Recovery, ValueError> {
    let read = |text: &str| match text {
        "go-back-n" => Some(Recovery::GoBackN),
        "selective" => Some(Recovery::Selective),
        "selective-no-sack" => Some(Recovery::SelectiveWithoutSack),
        _ => None,
    };
    value.read(read, "go-back-n, selective or selective-no-sack")
}

fn nak(value: &Value<'_>) -> Result<Nak, ValueError> {
    value.word(&[("per-gap", Nak::PerGap), ("per-packet", Nak::PerPacket)])
}

fn cap(value: &Value<'_>) -> Result<FlowControl, ValueError> {
    match value.text {
        "none" => Ok(FlowControl::None),
        _ => value.number(1..=Bitmap::<1>::MAX_BITS, CAP).map(FlowControl::BdpCap),
    }
}

pub(super) fn window(value: &Value<'_>) -> Result<u32, ValueError> {
    let most = Bitmap::<1>::MAX_BITS;
    let read = |text: &str| text.parse().ok().filter(|n: &u32| (64..=most).contains(n) && n.is_power_of_two());
    value.read(read, WINDOW)
}

/// Sets a parameter of the retransmission timer.
fn timer(config: &mut TransportConfig, value: &Value<'_>) -> Result<(), ConfigError> {
    config.timer = config.timer.with(value)?;
    Ok(())
}

fn timeout(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(1..=MAX_NS, TIMEOUT)
}

fn patience(value: &Value<'_>) -> Result<u64, ValueError> {
    match value.text {
        "iba" => Ok(0),
        _ => value.time(1..=MAX_NS, "iba, or a time such as 2s or 1m"),
    }
}

fn ack_every(value: &Value<'_>) -> Result<Option<u32>, ValueError> {
    match value.text {
        "none" => Ok(None),
        _ => value.number(1..=65536, "none, or 1 to 65536 packets").map(Some),
    }
}

fn ack_priority(value: &Value<'_>) -> Result<Option<u8>, ValueError> {
    match value.text {
        "same" => Ok(None),
        _ => value.number(0..=7, "same, or a priority, 0 to 7").map(Some),
    }
}

impl TransportConfig {
    /// Sets one parameter by name.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match (KEYS.iter().find_map(|keys| Key::find(keys, key)), key.strip_prefix("cc.")) {
            (Some(found), _) => (found.set)(self, &Value { key, text: value }),
            (None, Some(parameter)) => Ok(self.congestion.set(parameter, value)?),
            (None, None) => Err(ConfigError::Key(key.into())),
        }
    }

    /// Checks that the choices are compatible.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.wire == WireFormat::Roce && self.recovery != Recovery::GoBackN {
            return Err(ConfigError::RoceRecovery);
        }
        if self.wire == WireFormat::Roce && self.overlap == Overlap::Fence {
            return Err(ConfigError::RoceOverlap);
        }
        if self.wire == WireFormat::Irn && self.ack_every != Some(ACK_EVERY) {
            return Err(ConfigError::IrnAcks);
        }
        self.check_discipline()?;
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

    /// Checks that the transport works in a network without telemetry, that is, any but simulated and emulated ones.
    ///
    /// # Errors
    /// [`ConfigError::NoTelemetry`] with HPCC, [`ConfigError::NoSlack`] with slack, [`ConfigError::NoEdge`] with edge.
    pub fn check_without_telemetry(&self) -> Result<(), ConfigError> {
        self.check_without_slack()?;
        if self.congestion.uses_telemetry() { Err(ConfigError::NoTelemetry) } else { Ok(()) }
    }

    /// Checks that the transport works in a network whose switches send no fair-rate notices.
    ///
    /// # Errors
    /// [`ConfigError::NoNotices`] with RoCC, [`ConfigError::NoSlack`] with slack, [`ConfigError::NoEdge`] with edge.
    pub fn check_without_notices(&self) -> Result<(), ConfigError> {
        self.check_without_slack()?;
        if self.congestion.uses_fair_rate() { Err(ConfigError::NoNotices) } else { Ok(()) }
    }

    /// Checks that the transport works in a network that does not carry slack, that is, any but simulated ones.
    fn check_without_slack(&self) -> Result<(), ConfigError> {
        match (self.slack, self.edge) {
            (Slack::None, Edge::Off) => Ok(()),
            (Slack::None, _) => Err(ConfigError::NoEdge),
            _ => Err(ConfigError::NoSlack),
        }
    }

    /// Adapts RoCC's reaction point, if any, to the network's congestion points. A recovery timer with its default
    /// value becomes 1.375 of their period, and a default minimum rate becomes theirs if that is less.
    ///
    /// # Errors
    /// [`ConfigError::NoNotices`] with RoCC and no point, [`ConfigError::RoccRecovery`] if the recovery timer is not
    /// longer than the period: rates would never settle.
    pub fn fit_to_notices(&mut self, point: Option<&FairRateConfig>) -> Result<(), ConfigError> {
        let CongestionConfig::Rocc(reaction) = &mut self.congestion else { return self.check_without_notices() };
        let Some(point) = point else { return Err(ConfigError::NoNotices) };
        if reaction.recovery == RoccConfig::PAPER.recovery {
            reaction.recovery = point.period / 8 * 11;
        }
        if reaction.min_rate == RoccConfig::PAPER.min_rate {
            reaction.min_rate = reaction.min_rate.min(point.least).max(1);
        }
        let RoccConfig { recovery, .. } = *reaction;
        if recovery <= point.period {
            return Err(ConfigError::RoccRecovery(Nanoseconds(recovery), Nanoseconds(point.period)));
        }
        Ok(())
    }

    /// Parses a preset's name, then parameters: `irn,cap=110,rto-high=320us`. `real_time` selects the preset's
    /// defaults.
    pub fn parse(text: &str, real_time: bool) -> Result<TransportConfig, ConfigError> {
        ParsedTransport::parse(text, real_time).map(|parsed| parsed.config)
    }
}

impl Timer {
    /// TCP's timer. The dissertation does not give its bounds; a lower one of seconds, as in RFC 6298, would have made
    /// its reported tail impossible. Here it is RTO_high, which outlasts the longest queues, and the upper one is that
    /// of [`real_time`].
    pub(super) const TCP: Timer = Timer::Tcp { min: paper::RTO_HIGH, max: real_time::RTO_MAX };

    /// Returns the timer with one of its parameters changed, converted to a kind that has that parameter if necessary.
    fn with(self, value: &Value<'_>) -> Result<Timer, ValueError> {
        Ok(match (value.key, self) {
            ("rto", _) => match value.text {
                "local-ack-timeout" => Timer::Fixed(None),
                "rfc6298" => Timer::TCP,
                _ => Timer::Fixed(Some(timeout(value)?)),
            },
            ("rto-low", timer) => {
                let (_, high, n) = timer.irn();
                Timer::Irn { low: timeout(value)?, high, n }
            }
            ("rto-high", timer) => {
                let (low, _, n) = timer.irn();
                Timer::Irn { low, high: timeout(value)?, n }
            }
            ("n", timer) => {
                let (low, high, _) = timer.irn();
                Timer::Irn { low, high, n: value.number(0..=65536, "0 to 65536 packets")? }
            }
            ("rto-min", Timer::Tcp { max, .. }) => Timer::Tcp { min: timeout(value)?, max },
            (_, Timer::Tcp { min, .. }) => Timer::Tcp { min, max: timeout(value)? },
            ("rto-min", timer) => {
                let (_, max, n, probe) = timer.estimated();
                Timer::Estimated { min: timeout(value)?, max, n, probe }
            }
            (_, timer) => {
                let (min, _, n, probe) = timer.estimated();
                Timer::Estimated { min, max: timeout(value)?, n, probe }
            }
        })
    }

    /// Returns the parameters of IRN's timer, or their defaults.
    fn irn(self) -> (u64, u64, u32) {
        match self {
            Timer::Irn { low, high, n } => (low, high, n),
            _ => (paper::RTO_LOW, paper::RTO_HIGH, paper::N),
        }
    }

    /// Returns the parameters of the estimated timer, or their defaults.
    fn estimated(self) -> (u64, u64, u32, u64) {
        match self {
            Timer::Estimated { min, max, n, probe } => (min, max, n, probe),
            _ => (real_time::RTO_MIN, real_time::RTO_MAX, real_time::N, 0),
        }
    }
}

/// The parameters given in a text, in order. The others have their preset's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenKeys(Vec<String>);

impl GivenKeys {
    /// Returns whether the parameter of this name was given.
    pub fn has(&self, key: &str) -> bool {
        self.iter().any(|given| given == key)
    }

    /// Returns whether a timeout was given: `rto`, or a parameter with that prefix.
    pub fn has_timer(&self) -> bool {
        self.iter().any(|given| given.starts_with("rto"))
    }

    /// Returns the names of the parameters.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A parsed transport, with a record of which parameters were given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedTransport {
    /// Name of the preset, one of [`TransportConfig::PRESETS`].
    pub preset: &'static str,
    /// The transport.
    pub config: TransportConfig,
    /// The parameters given in the text.
    pub given: GivenKeys,
}

impl ParsedTransport {
    /// Parses a preset's name, then parameters: `irn,cap=110,rto-high=320us`. `real_time` selects the preset's
    /// defaults.
    pub fn parse(text: &str, real_time: bool) -> Result<ParsedTransport, ConfigError> {
        let (name, parameters) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim();
        let preset = TransportConfig::PRESETS.into_iter().find(|preset| *preset == name);
        let found = preset.and_then(|preset| Some((preset, TransportConfig::preset(preset)?)));
        let (preset, mut config) = found.ok_or_else(|| ConfigError::Preset(name.into()))?;
        if real_time {
            config = config.for_real_time();
        }
        let pairs: Result<Vec<_>, _> = parameters.into_iter().flat_map(pairs).collect();
        let pairs = pairs.map_err(|part| ConfigError::NotKeyValue(part.trim().into()))?;
        // A text may give the parameters of a discipline before it.
        for now in 0..discipline::STEPS {
            for Value { key, text } in pairs.iter().filter(|pair| discipline::step(pair.key) == now) {
                config.set(key, text)?;
            }
        }
        let given = GivenKeys(pairs.iter().map(|pair| pair.key.to_owned()).collect());
        let pulled = config.discipline.pull().is_some();
        if let Timer::Estimated { probe, .. } = &mut config.timer
            && !given.has("tlp")
        {
            *probe = if real_time && !pulled { real_time::TLP } else { 0 };
        }
        config.check()?;
        Ok(ParsedTransport { preset, config, given })
    }
}

/// Parses a transport for virtual time.
impl FromStr for ParsedTransport {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        ParsedTransport::parse(text, false)
    }
}

/// Parses a transport for virtual time.
impl FromStr for TransportConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        TransportConfig::parse(text, false)
    }
}

/// Error in the description of a transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Unknown preset.
    #[error(
        "transport \"{0}\" does not exist; choose roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp{meant}",
        meant = did_you_mean(.0, TransportConfig::PRESETS)
    )]
    Preset(String),
    /// Unknown parameter.
    #[error("transport parameter \"{0}\" does not exist; expected {keys} or cc.PARAMETER{meant}",
        keys = KEYS.iter().copied().flatten().map(|key| key.name).collect::<Vec<_>>().join(", "),
        meant = did_you_mean(.0, KEYS.iter().copied().flatten().map(|key| key.name)))]
    Key(String),
    /// Bad value.
    #[error("transport parameter {0}")]
    Value(#[from] ValueError),
    /// Congestion control.
    #[error(transparent)]
    Congestion(#[from] crate::congestion::CongestionError),
    /// No equals sign.
    #[error("\"{0}\" is not of the form parameter=value")]
    NotKeyValue(String),
    /// Plain RoCE receivers discard packets out of order.
    #[error("plain RoCE can only recover by go-back-n; use an irn transport for recovery=selective")]
    RoceRecovery,
    /// Plain RoCE receivers place requests in order.
    #[error("plain RoCE places requests in order; leave out overlap=fence, or use an irn transport")]
    RoceOverlap,
    /// IRN acknowledges every packet.
    #[error("IRN acknowledges every packet; leave out ack-every, or use roce or auto")]
    IrnAcks,
    /// An algorithm that needs telemetry, which only simulated and emulated networks have.
    #[error("hpcc needs telemetry of the switches, which only irnic sim and irnic lab have")]
    NoTelemetry,
    /// An algorithm that needs notifications from switches.
    #[error(
        "rocc needs switches that send notices: those of irnic sim, or a line of one's own: --impair 'tx rate 1gbit rocc'"
    )]
    NoNotices,
    /// Packets on a real wire cannot carry slack.
    #[error("slack goes beside the bytes of packets, which only irnic sim has")]
    NoSlack,
    /// Packets on a real wire do not show how long they have waited.
    #[error("edge goes by slack, which lies beside the bytes of packets: only irnic sim has that")]
    NoEdge,
    /// RoCC's recovery timer expires before the next notice arrives.
    #[error("rocc: recovery={0} is no longer than the period of notices, {1}; expected 1.375 of it")]
    RoccRecovery(Nanoseconds, Nanoseconds),
    /// A parameter of a discipline that is not selected.
    #[error("transport parameter {key} needs {what}")]
    #[allow(missing_docs)]
    Needs { key: String, what: &'static str },
    /// Two disciplines.
    #[error("{0} and {1} exclude each other; leave out {1}")]
    Exclusive(&'static str, &'static str),
    /// What is lost or sent early has to be placed and acknowledged out of order.
    #[error("{0} needs the packets of IRN and recovery=selective: irn, irn-no-bdp or iwarp")]
    Selective(&'static str),
    /// The delay of fetching a packet again is not modelled with disciplines.
    #[error("{0} sends packets again at once; leave out retransmit-delay")]
    Delay(&'static str),
    /// Only the IRN extension has what the discipline needs.
    #[error("{0} needs the packets of IRN")]
    Wire(&'static str),
    /// Pulls are the congestion control.
    #[error("{0} has no congestion control but its pulls; leave out cc")]
    PulledCongestion(&'static str),
    /// The packet format is not known from the beginning.
    #[error("{0} marks packets from the first on, whose format auto does not know yet; use an irn transport, or roce")]
    AutoFormat(&'static str),
    /// Timers in the wrong order.
    #[error("{low} is longer than {high}")]
    #[allow(missing_docs)]
    TimerOrder { low: &'static str, high: &'static str },
}

pub(super) fn on(flag: bool) -> &'static str {
    if flag { "on" } else { "off" }
}

/// Returns the word of a value.
pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, of)| *of == value).map_or("", |(word, _)| word)
}

/// Writes the wire format and the parameters, in the form parsed by [`TransportConfig::parse`]. Those of congestion
/// control are written if they differ from its preset's, or with `{:#}` all.
impl fmt::Display for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.wire {
            WireFormat::Roce => "roce",
            WireFormat::Irn if self.discipline.pull().is_some() => "ndp",
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
        let (evidence, credits) = (on(self.evidence), on(self.credits));
        write!(f, ",window={},nack-threshold={}", self.window, self.nack_threshold)?;
        write!(f, ",retransmit-delay={}", Nanoseconds(self.retransmit_delay))?;
        write!(f, ",evidence={evidence}")?;
        if self.knows_irn() && self.placement != Placement::Any {
            write!(f, ",placement={}", word(&PLACEMENTS, self.placement))?;
        }
        match self.patience {
            0 => write!(f, ",patience=iba")?,
            patience => write!(f, ",patience={}", Nanoseconds(patience))?,
        }
        write!(f, ",credits={credits}")?;
        match self.ack_every {
            Some(ACK_EVERY) => {}
            Some(packets) => write!(f, ",ack-every={packets}")?,
            None => write!(f, ",ack-every=none")?,
        }
        if let Some(priority) = self.ack_priority {
            write!(f, ",ack-priority={priority}")?;
        }
        if self.overlap != Overlap::Application {
            write!(f, ",overlap={}", word(&OVERLAPS, self.overlap))?;
        }
        self.fmt_discipline(f)?;
        if self.slack != Slack::None {
            write!(f, ",slack={}", self.slack)?;
        }
        if self.edge != Edge::Off {
            write!(f, ",edge={}", self.edge)?;
        }
        if self.congestion != CongestionConfig::None {
            let text = if f.alternate() { format!("{:#}", self.congestion) } else { self.congestion.to_string() };
            let mut parts = text.split(',');
            write!(f, ",cc={}", parts.next().unwrap_or_default())?;
            for part in parts {
                write!(f, ",cc.{part}")?;
            }
        }
        if self.congestion != CongestionConfig::None || matches!(self.discipline, Discipline::Tlp(_)) {
            write!(f, ",line-rate={}bit,base-rtt={}", self.line_rate, Nanoseconds(self.base_rtt))?;
        }
        Ok(())
    }
}
