//! The grammar of impairments: the options of `tc netem` (tc-netem(8)), once for each direction.
//!
//! ```text
//! impairments := [ section { ";" section } ]
//! section     := [ "tx" | "rx" ] { option }                        without a direction: both
//! option      := ( "loss" | "drop" ) [ "random" ] PERCENT [ CORRELATION ]
//!              | ( "loss" | "drop" ) "gemodel" P [ R [ 1-H [ 1-K ] ] ]
//!              | "ecn" [ MIN [ MAX PROBABILITY ] ]                 with loss: mark instead; with rate: by queue length
//!              | ( "delay" | "latency" ) TIME [ JITTER [ CORRELATION ] ]
//!              | "distribution" ( "uniform" | "normal" | "pareto" | "paretonormal" )     with delay and jitter
//!              | "reorder" PERCENT [ CORRELATION ]                 with delay
//!              | "gap" DISTANCE                                    with reorder
//!              | "duplicate" PERCENT [ CORRELATION ]
//!              | "corrupt" PERCENT [ CORRELATION ]
//!              | "rate" RATE [ PACKETOVERHEAD ]
//!              | "trim" ROOM                                       with rate
//!              | "headers" BYTES                                   with trim
//!              | "wrr" FRAMES                                      with trim
//!              | "return"                                          with trim
//!              | "red" ROOM                                        with rate, without trim
//!              | "rocc" [ QREF [ QMID QMAX ] ] [ PERIOD ]          behind tx, with rate, without trim
//!              | "prio" [ ROOM ]                                  with rate, without trim, red, rocc
//!              | "policy" NAME { "," PARAMETER "=" VALUE }         with rate, without trim, red, rocc, prio
//!              | "limit" PACKETS
//!              | "seed" NUMBER
//! ```

use std::fmt;
use std::str::FromStr;

use irnic_transports::congestion::FairRateConfig;
use irnic_units::{BitRate, Nanoseconds, tc_link_rate, tc_size, tc_time};

use super::percent::Percent;

mod policy;
mod rocc;
mod room;
mod tokens;
pub use policy::LinePolicy;
pub use rocc::CongestionPoint;
use rocc::RoccOption;
use room::{EXPECT_ROOM, TrimOptions};
pub use room::{MAX_PACKETS, Room, Trim};
pub use tokens::ParseError;
use tokens::{Section, Token, tokens};

/// Default of `limit`: maximum number of frames that wait in one direction (netem's default).
pub const DEFAULT_LIMIT: u32 = 1_000;
/// Default of `limit` before a line of `prio`: maximum number of frames held back by `delay`, equal to the largest
/// window. Senders that release many frames at once, such as RC3, should lose them only by priority.
pub const DELAYED_LIMIT: u32 = 65_536;
/// Largest value of `limit`, in frames.
pub const MAX_LIMIT: u32 = 1_000_000;
/// Largest packet overhead of `rate`, positive or negative, in bytes.
pub const MAX_OVERHEAD: i32 = 65_535;

/// The impairments of both directions of a port, parsed by [`FromStr`] and formatted by [`Display`](fmt::Display).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Impairments {
    /// Impairments of the frames that the NIC sends.
    pub tx: Spec,
    /// Impairments of the frames that the NIC receives.
    pub rx: Spec,
}

impl Impairments {
    /// Returns whether neither direction has any impairment.
    pub fn is_empty(&self) -> bool {
        self.tx.is_empty() && self.rx.is_empty()
    }

    /// Returns these impairments with random loss in both directions; `None` if either has loss already.
    pub fn with_loss(mut self, percent: Percent) -> Option<Impairments> {
        for spec in [&mut self.tx, &mut self.rx] {
            let probability = Probability { percent, correlation: Percent::ZERO };
            if spec.loss.replace(Loss::Random(probability)).is_some() {
                return None;
            }
        }
        Some(self)
    }
}

/// The impairments of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Spec {
    /// Which frames are lost.
    pub loss: Option<Loss>,
    /// Which frames of ECN-capable transport (ECT) arrive marked (CE).
    pub ecn: Option<Ecn>,
    /// Delay of frames.
    pub delay: Option<Delay>,
    /// Which frames skip the delay.
    pub reorder: Option<Reorder>,
    /// Which frames arrive twice.
    pub duplicate: Option<Probability>,
    /// Which frames arrive with one flipped bit.
    pub corrupt: Option<Probability>,
    /// Link rate that limits frames.
    pub rate: Option<Rate>,
    /// The queues before the link of `rate`, if it trims payloads instead of dropping frames.
    pub trim: Option<Trim>,
    /// Room for red frames in the queue before the link of `rate`; further ones are dropped.
    pub colour: Option<Room>,
    /// The congestion point of the queue of `rate`, if it has one: only for frames that the NIC sends.
    pub rocc: Option<CongestionPoint>,
    /// Room in the queues before the link of `rate`, in addition to the frame on it, if they are served and dropped
    /// from by strict priority (RC3 §2.4.1).
    pub prio: Option<Room>,
    /// The queues before the link of `rate`, if described by a policy.
    pub policy: Option<LinePolicy>,
    /// Maximum number of waiting frames, [`DEFAULT_LIMIT`] if unset; further ones are dropped. With `trim`, `prio` or
    /// `policy`, only frames that `delay` holds back count; with `prio`, [`DELAYED_LIMIT`] if unset.
    pub limit: Option<u32>,
    /// Seed of the random numbers. Unset: the seed of the port.
    pub seed: Option<u64>,
}

impl Spec {
    /// Returns the marking parameters of the queue of `rate`; `None` if it does not mark.
    pub fn red(&self) -> Option<Red> {
        match self.ecn {
            Some(Ecn::Queue(red)) => Some(red),
            Some(Ecn::Lost) | None => None,
        }
    }

    /// Returns the parameters of the congestion point; `None` without one.
    pub fn fair_rate(&self) -> Option<FairRateConfig> {
        Some(self.rocc?.fair_rate(self.rate?.bits))
    }

    /// Returns whether frames wait in separate queues before the link of `rate`, in an order of their own.
    pub fn has_queues(&self) -> bool {
        self.trim.is_some() || self.prio.is_some() || self.policy.is_some()
    }

    /// Returns whether frames pass unchanged: at most `ecn`, a limit or a seed is given.
    pub fn is_empty(&self) -> bool {
        // Options that concern a queue need a rate.
        let Spec { loss, delay, reorder, duplicate, corrupt, rate, .. } = self;
        loss.is_none()
            && delay.is_none()
            && reorder.is_none()
            && duplicate.is_none()
            && corrupt.is_none()
            && rate.is_none()
    }
}

/// A probability per frame, with the correlation of successive frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Probability {
    /// Probability of the event for each frame.
    pub percent: Percent,
    /// Correlation of successive frames: probability that a frame repeats the random number of the previous one.
    pub correlation: Percent,
}

/// Which frames are lost.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each frame independently, or with the given correlation.
    Random(Probability),
    /// Losses in bursts: the Gilbert-Elliott model with a good and a bad state.
    GilbertElliott {
        /// Probability of a transition from good to bad, per frame.
        p: Percent,
        /// Probability of a transition from bad to good, per frame.
        r: Percent,
        /// Loss probability in the bad state, 1-h in the literature.
        bad: Percent,
        /// Loss probability in the good state, 1-k in the literature.
        good: Percent,
    },
}

/// Which frames are marked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The frames that `loss` would drop are marked instead.
    Lost,
    /// The frames that meet a long queue before the link of `rate` are marked.
    Queue(Red),
}

/// Marking by queue length (RED on the instantaneous length): the probability is 0 up to `min`, rises to `probability`
/// at `max`, and is 1 beyond. A step if `min` and `max` are equal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Red {
    /// Queue length in bytes up to which nothing is marked.
    pub min: u64,
    /// Queue length in bytes above which everything is marked, no less than `min`.
    pub max: u64,
    /// Probability at `max`.
    pub probability: Percent,
}

/// Delay of frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Delay {
    /// Mean in ns.
    pub ns: u64,
    /// Jitter in ns: half the width of the uniform distribution, the standard deviation of the others.
    pub jitter_ns: u64,
    /// Correlation of the jitter of successive frames.
    pub correlation: Percent,
    /// Distribution of the jitter.
    pub distribution: Distribution,
}

/// Distribution of the jitter of a delay.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Uniform between mean - jitter and mean + jitter.
    #[default]
    Uniform,
    /// The normal distribution.
    Normal,
    /// A heavy tail: the Pareto distribution with exponent 3, shifted and scaled to the mean and standard deviation.
    Pareto,
    /// One quarter normal, three quarters Pareto.
    ParetoNormal,
}

impl Distribution {
    const NAMES: [(&str, Distribution); 4] = [
        ("uniform", Distribution::Uniform),
        ("normal", Distribution::Normal),
        ("pareto", Distribution::Pareto),
        ("paretonormal", Distribution::ParetoNormal),
    ];
}

/// Which frames skip the delay and so overtake others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Probability that a frame skips the delay if allowed to.
    pub probability: Probability,
    /// A frame may skip the delay only after `gap` - 1 frames since the last one that did were delayed. 1 or more.
    pub gap: u32,
}

/// Link rate that limits frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Rate in bit/s, 1 or more.
    pub bits: u64,
    /// Bytes added to the length of each frame, negative to subtract.
    pub overhead: i32,
}

const EXPECT_OPTION: &str = "loss, delay, distribution, reorder, gap, duplicate, corrupt, rate, trim, headers, wrr, return, \
     red, rocc, prio, policy, limit, ecn or seed (tx or rx begin a section)";
const EXPECT_ONCE: &str = "each option once in a direction";
const EXPECT_PERCENT: &str = "a percentage of 0% to 100% with at most 6 decimals, such as 0.1%";
const EXPECT_LOSS: &str = "a percentage such as 0.1%, or random, or gemodel";
const EXPECT_TIME: &str = "a time of whole nanoseconds up to an hour, such as 10us, 1.5ms or 800ns (no unit: us)";
const EXPECT_RATE: &str = "a rate up to 1000tbit with its unit, such as 10gbit or 800mbit (bps: bytes per second)";
const EXPECT_OVERHEAD: &str = "an overhead of -65535 to 65535 bytes";
const EXPECT_DISTRIBUTION: &str = "uniform, normal, pareto or paretonormal";
const EXPECT_GAP: &str = "a distance of 1 or more packets";
const EXPECT_LIMIT: &str = "1 to 1000000 packets";
const EXPECT_SEED: &str = "a seed, a number of 0 to 18446744073709551615";
const EXPECT_SECTION: &str = "each direction once (a section without tx or rx is both)";
const NEED_DELAY: &str = "a delay above 0 beside reorder: what is not delayed cannot be overtaken";
const NEED_REORDER: &str = "reorder beside gap";
const NEED_JITTER: &str = "a delay and a jitter above 0 beside distribution, such as delay 100us 10us";
const EXPECT_MIN: &str = "a queue length such as 30k or 100kb (both of 1024 bytes), up to a terabyte";
const EXPECT_MAX: &str = "a queue length no shorter than the first, and a probability after it: ecn 5k 200k 1%";
const NEED_LOSS: &str = "loss beside ecn, to mark what would be lost, or a queue length after it, such as ecn 100k";
const NEED_RATE: &str = "rate beside ecn with a queue length: without it there is no queue";
const NEED_RATE_FOR_RED: &str = "rate beside red: without it there is no queue";
const NO_ECN: &str = "trim or ecn with a queue length, not both: a queue that trims does not mark";
const NO_RED: &str = "trim or red, not both";

impl<'a> Section<'a> {
    fn percent_or(&mut self, default: Percent) -> Result<Percent, ParseError> {
        Ok(self.take_if_number(EXPECT_PERCENT, Percent::parse)?.unwrap_or(default))
    }

    fn probability(&mut self) -> Result<Probability, ParseError> {
        let percent = self.take(EXPECT_PERCENT, Percent::parse)?;
        Ok(Probability { percent, correlation: self.percent_or(Percent::ZERO)? })
    }

    fn loss(&mut self) -> Result<Loss, ParseError> {
        match self.rest.first().map(|t| t.text) {
            Some("random") => {
                self.next();
                Ok(Loss::Random(self.probability()?))
            }
            Some("gemodel") => {
                self.next();
                let p = self.take(EXPECT_PERCENT, Percent::parse)?;
                let r = self.percent_or(p.complement())?;
                let bad = self.percent_or(Percent::HUNDRED)?;
                Ok(Loss::GilbertElliott { p, r, bad, good: self.percent_or(Percent::ZERO)? })
            }
            Some(text) if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
                Ok(Loss::Random(self.probability()?))
            }
            _ => self.take(EXPECT_LOSS, |_| None),
        }
    }

    fn delay(&mut self) -> Result<Delay, ParseError> {
        let ns = self.take(EXPECT_TIME, tc_time)?;
        let Some(jitter_ns) = self.take_if_number(EXPECT_TIME, tc_time)? else {
            return Ok(Delay { ns, ..Delay::default() });
        };
        Ok(Delay { ns, jitter_ns, correlation: self.percent_or(Percent::ZERO)?, distribution: Distribution::default() })
    }

    fn ecn(&mut self) -> Result<Ecn, ParseError> {
        let Some(min) = self.take_if_number(EXPECT_MIN, tc_size)? else { return Ok(Ecn::Lost) };
        let max = self.take_if_number(EXPECT_MAX, |text| tc_size(text).filter(|max| *max >= min))?;
        Ok(Ecn::Queue(match max {
            None => Red { min, max: min, probability: Percent::HUNDRED },
            Some(max) => Red { min, max, probability: self.take(EXPECT_PERCENT, Percent::parse)? },
        }))
    }

    fn rate(&mut self) -> Result<Rate, ParseError> {
        let bits = self.take(EXPECT_RATE, tc_link_rate)?;
        let in_range = |o: &i32| (-MAX_OVERHEAD..=MAX_OVERHEAD).contains(o);
        let overhead = self.take_if_number(EXPECT_OVERHEAD, |text| text.parse().ok().filter(in_range))?;
        Ok(Rate { bits, overhead: overhead.unwrap_or(0) })
    }

    /// Parses the options of a section. `receives` is whether it applies to received frames.
    fn spec(&mut self, receives: bool) -> Result<Spec, ParseError> {
        let mut options = Options::default();
        while let Some(word) = self.next() {
            if !options.read(word, self)? {
                return Err(word.error(EXPECT_ONCE));
            }
        }
        options.check(receives)
    }
}

/// The options of a section: those that need no other are in `spec`, the others with their words until all are read.
#[derive(Default)]
struct Options<'a> {
    spec: Spec,
    distribution: Option<(Token<'a>, Distribution)>,
    reorder: Option<(Token<'a>, Probability)>,
    gap: Option<(Token<'a>, u32)>,
    ecn: Option<(Token<'a>, Ecn)>,
    red: Option<(Token<'a>, Room)>,
    rocc: Option<RoccOption<'a>>,
    prio: Option<(Token<'a>, Option<Room>)>,
    policy: Option<(Token<'a>, LinePolicy)>,
    trim: TrimOptions<'a>,
}

impl<'a> Options<'a> {
    /// Parses the values of the option that begins with `word`. Returns whether it is the first of its kind.
    fn read(&mut self, word: Token<'a>, section: &mut Section<'a>) -> Result<bool, ParseError> {
        let spec = &mut self.spec;
        Ok(match word.text {
            "loss" | "drop" => spec.loss.replace(section.loss()?).is_none(),
            "delay" | "latency" => spec.delay.replace(section.delay()?).is_none(),
            "duplicate" => spec.duplicate.replace(section.probability()?).is_none(),
            "corrupt" => spec.corrupt.replace(section.probability()?).is_none(),
            "rate" => spec.rate.replace(section.rate()?).is_none(),
            "reorder" => self.reorder.replace((word, section.probability()?)).is_none(),
            "ecn" => self.ecn.replace((word, section.ecn()?)).is_none(),
            "trim" | "headers" | "wrr" | "return" => self.trim.read(word, section)?,
            "red" => self.red.replace((word, section.take(EXPECT_ROOM, Room::parse)?)).is_none(),
            "rocc" => self.rocc.replace(RoccOption::read(word, section)?).is_none(),
            "prio" => self.prio.replace((word, section.take_if_number(EXPECT_ROOM, Room::parse)?)).is_none(),
            "policy" => self.policy.replace((word, LinePolicy::read(section)?)).is_none(),
            "distribution" => {
                let named = |text: &str| Distribution::NAMES.iter().find(|(name, _)| *name == text);
                let (_, shape) = section.take(EXPECT_DISTRIBUTION, named)?;
                self.distribution.replace((word, *shape)).is_none()
            }
            "gap" => {
                let read = |text: &str| text.parse().ok().filter(|gap: &u32| *gap > 0);
                self.gap.replace((word, section.take(EXPECT_GAP, read)?)).is_none()
            }
            "limit" => {
                let read = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                spec.limit.replace(section.take(EXPECT_LIMIT, read)?).is_none()
            }
            "seed" => spec.seed.replace(section.take(EXPECT_SEED, |text| text.parse().ok())?).is_none(),
            _ => return Err(word.error(EXPECT_OPTION)),
        })
    }

    /// Returns the impairments that the options describe. `receives` is whether they apply to received frames.
    fn check(mut self, receives: bool) -> Result<Spec, ParseError> {
        self.check_delay()?;
        self.check_marks()?;
        self.check_queues(receives)?;
        self.spec.trim = self.trim.check(self.spec.rate.is_some())?;
        Ok(self.spec)
    }

    /// Adds what needs a delay: the distribution of its jitter, and which frames skip it.
    fn check_delay(&mut self) -> Result<(), ParseError> {
        let spec = &mut self.spec;
        if let Some((word, shape)) = self.distribution {
            let delay = spec.delay.as_mut().filter(|d| d.ns > 0 && d.jitter_ns > 0);
            delay.ok_or_else(|| word.error(NEED_JITTER))?.distribution = shape;
        }
        if let Some((word, probability)) = self.reorder {
            if spec.delay.is_none_or(|d| d.ns == 0) {
                return Err(word.error(NEED_DELAY));
            }
            spec.reorder = Some(Reorder { probability, gap: 1 });
        }
        if let Some((word, distance)) = self.gap {
            spec.reorder.as_mut().ok_or_else(|| word.error(NEED_REORDER))?.gap = distance;
        }
        Ok(())
    }

    /// Adds which frames are marked, and the room for red ones.
    fn check_marks(&mut self) -> Result<(), ParseError> {
        let (spec, trims) = (&mut self.spec, self.trim.is_any());
        if let Some((word, which)) = self.ecn {
            match which {
                Ecn::Lost if spec.loss.is_none() => return Err(word.error(NEED_LOSS)),
                Ecn::Queue(_) if spec.rate.is_none() => return Err(word.error(NEED_RATE)),
                Ecn::Queue(_) if trims => return Err(word.error(NO_ECN)),
                Ecn::Lost | Ecn::Queue(_) => spec.ecn = Some(which),
            }
        }
        if let Some((word, room)) = self.red {
            if spec.rate.is_none() || trims {
                return Err(word.error(if spec.rate.is_none() { NEED_RATE_FOR_RED } else { NO_RED }));
            }
            spec.colour = Some(room);
        }
        Ok(())
    }

    /// Adds the congestion point, and the queues of `prio` or `policy`.
    fn check_queues(&mut self, receives: bool) -> Result<(), ParseError> {
        let (spec, trims) = (&mut self.spec, self.trim.is_any());
        let rate = spec.rate.map(|rate| rate.bits);
        spec.rocc = self.rocc.take().map(|rocc| rocc.check(rate, trims, receives)).transpose()?;
        let other = trims || spec.rocc.is_some() || spec.colour.is_some() || spec.red().is_some();
        if let Some((word, room)) = self.prio {
            let other = other || self.policy.is_some();
            if spec.rate.is_none() || other {
                return Err(word.error(if other { room::PRIO_ALONE } else { room::PRIO_NEEDS_RATE }));
            }
            spec.prio = Some(room.unwrap_or(Room::Packets(spec.limit.unwrap_or(DEFAULT_LIMIT))));
        }
        if let Some((word, policy)) = self.policy.take() {
            if spec.rate.is_none() || other {
                return Err(word.error(if other { policy::ALONE } else { policy::NEED_RATE }));
            }
            spec.policy = Some(policy);
        }
        Ok(())
    }
}

impl FromStr for Impairments {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Impairments, ParseError> {
        let tokens = tokens(text);
        let (mut tx, mut rx) = (None, None);
        let mut rest = &tokens[..];
        while !rest.is_empty() {
            let length = rest.iter().position(|t| t.text == ";").unwrap_or(rest.len());
            let end = rest.get(length).map_or(text.chars().count() + 1, |t| t.column);
            let mut section = Section { rest: &rest[..length], end };
            rest = &rest[(length + 1).min(rest.len())..];
            let Some(first) = section.rest.first().copied() else { continue };
            let (to_tx, to_rx) = match first.text {
                "tx" => (true, false),
                "rx" => (false, true),
                _ => (true, true),
            };
            if !(to_tx && to_rx) {
                section.next();
            }
            if to_tx && tx.is_some() || to_rx && rx.is_some() {
                return Err(first.error(EXPECT_SECTION));
            }
            let spec = section.spec(to_rx)?;
            if to_tx {
                tx = Some(spec.clone());
            }
            if to_rx {
                rx = Some(spec);
            }
        }
        Ok(Impairments { tx: tx.unwrap_or_default(), rx: rx.unwrap_or_default() })
    }
}

impl fmt::Display for Impairments {
    /// Writes the canonical form, which parses to an equal value. Writes nothing if there are no impairments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = Spec::default();
        match (self.tx == none, self.rx == none) {
            _ if self.tx == self.rx => write!(f, "{}", self.tx),
            (false, true) => write!(f, "tx {}", self.tx),
            (true, _) => write!(f, "rx {}", self.rx),
            (false, false) => write!(f, "tx {}; rx {}", self.tx, self.rx),
        }
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.percent)?;
        if self.correlation == Percent::ZERO { Ok(()) } else { write!(f, " {}", self.correlation) }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        match self.loss {
            Some(Loss::Random(probability)) => parts.push(format!("loss {probability}")),
            Some(Loss::GilbertElliott { p, r, bad, good }) => parts.push(format!("loss gemodel {p} {r} {bad} {good}")),
            None => {}
        }
        match self.ecn {
            Some(Ecn::Lost) => parts.push("ecn".to_owned()),
            Some(Ecn::Queue(Red { min, max, probability })) if min == max && probability == Percent::HUNDRED => {
                parts.push(format!("ecn {min}"));
            }
            Some(Ecn::Queue(Red { min, max, probability })) => parts.push(format!("ecn {min} {max} {probability}")),
            None => {}
        }
        if let Some(Delay { ns, jitter_ns, correlation, distribution }) = self.delay {
            parts.push(format!("delay {}", Nanoseconds(ns)));
            if jitter_ns != 0 || correlation != Percent::ZERO {
                parts.push(Nanoseconds(jitter_ns).to_string());
            }
            if correlation != Percent::ZERO {
                parts.push(correlation.to_string());
            }
            if let Some((name, _)) = Distribution::NAMES[1..].iter().find(|(_, shape)| *shape == distribution) {
                parts.push(format!("distribution {name}"));
            }
        }
        if let Some(Reorder { probability, gap }) = self.reorder {
            parts.push(format!("reorder {probability}"));
            if gap != 1 {
                parts.push(format!("gap {gap}"));
            }
        }
        parts.extend(self.duplicate.map(|probability| format!("duplicate {probability}")));
        parts.extend(self.corrupt.map(|probability| format!("corrupt {probability}")));
        if let Some(Rate { bits, overhead }) = self.rate {
            parts.push(format!("rate {}", BitRate(bits)));
            if overhead != 0 {
                parts.push(overhead.to_string());
            }
        }
        parts.extend(self.trim.map(|trim| trim.to_string()));
        parts.extend(self.colour.map(|room| format!("red {room}")));
        parts.extend(self.rocc.map(|rocc| rocc.to_string()));
        parts.extend(self.prio.map(|room| format!("prio {room}")));
        parts.extend(self.policy.as_ref().map(|policy| policy.to_string()));
        parts.extend(self.limit.map(|limit| format!("limit {limit}")));
        parts.extend(self.seed.map(|seed| format!("seed {seed}")));
        f.write_str(&parts.join(" "))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
