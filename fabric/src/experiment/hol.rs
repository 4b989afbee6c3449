//! Countermeasures against head-of-line blocking, and alternatives to PFC, as users write them:
//! `escape,pool=8,period=2x,nack=on`, `lb,wait=100us`, `gfc,b1=281KB,bm=300KB`, `credits`.

use irnic_units::keys::{Key, Value, ValueError, pairs};
use irnic_units::{MAX_BYTES, MAX_NS, SIZE, TIME};

use crate::switch::{BreakerConfig, EscapeConfig, HolConfig, Order, Period, Remedy};

/// Limit on the tokens of an output, and on the flows of an input.
const MOST: u16 = 4_096;
const FRAMES: &str = "a number of frames, 1 to 4096";

static ESCAPE: [Key<EscapeConfig>; 7] = [
    Key::new("pool", |c, v| v.number(1..=MOST, FRAMES).map(|n| c.pool = n)),
    Key::new("flows", |c, v| v.number(1..=MOST, "a number of flows, 1 to 4096").map(|n| c.flows = n)),
    Key::new("period", |c, v| period(v).map(|period| c.period = period)),
    Key::new("reclaim", |c, v| v.time(1..=MAX_NS, TIME).map(|ns| c.reclaim = Some(ns))),
    Key::new("nack", |c, v| v.switch().map(|on| c.nack = on)),
    Key::new("order", |c, v| v.word(&[("strict", Order::Strict), ("printed", Order::Printed)]).map(|o| c.order = o)),
    Key::new("tag", |c, v| v.number(0..=64, "0 to 64 bytes").map(|bytes| c.tag = bytes)),
];

static BREAKER: [Key<BreakerConfig>; 1] = [Key::new("wait", |c, v| v.time(1..=MAX_NS, TIME).map(|ns| c.wait = ns))];

/// How switches keep their inputs from overflowing, with PFC [on](super::Experiment::pfc).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkFlowControl {
    /// They pause and resume neighbours (IEEE 802.1Qbb).
    #[default]
    Pfc,
    /// They limit the rate of neighbours (GFC), with a shared buffer.
    Gfc(GfcGiven),
    /// They grant credits to neighbours (InfiniBand), with a buffer for each input.
    Credits,
}

/// The parameters of GFC that were given.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GfcGiven {
    /// Bytes of an input at which its neighbour is first slowed down. Default: XOFF's threshold.
    pub first: Option<u64>,
    /// Limit on the bytes of an input. Default: twice the headroom of PFC and ten packets more.
    pub most: Option<u64>,
    /// Number of stages. Default: 24 ([`crate::switch::GfcConfig::LEVELS`]).
    pub levels: Option<u8>,
}

static GFC: [Key<GfcGiven>; 3] = [
    Key::new("b1", |c, v| v.size(1..=MAX_BYTES, SIZE).map(|bytes| c.first = Some(bytes))),
    Key::new("bm", |c, v| v.size(1..=MAX_BYTES, SIZE).map(|bytes| c.most = Some(bytes))),
    Key::new("levels", |c, v| v.number(1..=31, "1 to 31 stages").map(|n| c.levels = Some(n))),
];

/// Parses the parameters of a mechanism.
fn keys<C>(
    value: &Value<'_>,
    name: &str,
    rest: &str,
    keys: &'static [Key<C>],
    config: &mut C,
) -> Result<(), ValueError> {
    for pair in (!rest.is_empty()).then(|| pairs(rest)).into_iter().flatten() {
        let pair = pair.map_err(|part| value.refuse(format!("{part}: expected KEY=VALUE")))?;
        let Some(key) = Key::find(keys, pair.key) else {
            let known = keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
            return Err(value.refuse(format!("{name} has no {}; it takes {known}", pair.key)));
        };
        (key.set)(config, &pair).map_err(|error| value.refuse(error))?;
    }
    Ok(())
}

/// A mechanism: its name, and the parser of its parameters.
type Mechanism<T> = (&'static str, fn(&Value<'_>, &str) -> Result<T, ValueError>);

/// Parses a mechanism of a table and its parameters.
fn mechanism<T>(value: &Value<'_>, known: &[Mechanism<T>], expected: &str) -> Result<T, ValueError> {
    let (name, rest) = value.text.split_once(',').unwrap_or((value.text, ""));
    let (_, read) = known.iter().find(|(known, _)| *known == name).ok_or_else(|| value.wrong(expected))?;
    read(value, rest)
}

/// Returns a mechanism without parameters.
fn alone<T>(value: &Value<'_>, rest: &str, mechanism: T, expected: &str) -> Result<T, ValueError> {
    if rest.is_empty() { Ok(mechanism) } else { Err(value.wrong(expected)) }
}

/// Values accepted by [`flow_control`], for messages.
const FLOW_CONTROL: &str = "pfc, credits, or gfc and parameters as in gfc,b1=281KB,bm=300KB";

pub(super) const FLOW_CONTROLS: [Mechanism<LinkFlowControl>; 3] = [
    ("pfc", |value, rest| alone(value, rest, LinkFlowControl::Pfc, FLOW_CONTROL)),
    ("credits", |value, rest| alone(value, rest, LinkFlowControl::Credits, FLOW_CONTROL)),
    ("gfc", |value, rest| {
        let mut given = GfcGiven::default();
        keys(value, "gfc", rest, &GFC, &mut given)?;
        Ok(LinkFlowControl::Gfc(given))
    }),
];

/// Parses link-level flow control: PFC, credits, or GFC with its parameters.
pub(super) fn flow_control(value: &Value<'_>) -> Result<LinkFlowControl, ValueError> {
    mechanism(value, &FLOW_CONTROLS, FLOW_CONTROL)
}

/// Parses Δ^esc: a multiple of the link's delay, or a time.
fn period(value: &Value<'_>) -> Result<Period, ValueError> {
    match value.text.strip_suffix('x') {
        Some(times) => {
            let times = times.parse().ok().filter(|times: &f64| (0.1..=1000.0).contains(times));
            let expected = "0.1x to 1000x, times the delay of a link, or a time such as 50us";
            times.map(Period::Delays).ok_or_else(|| value.wrong(expected))
        }
        None => {
            value.time(1..=MAX_NS, "a time such as 50us, or times the delay of a link, such as 2x").map(Period::Fixed)
        }
    }
}

/// Values accepted by [`hol`], for messages.
const REMEDY: &str = "off, escape, lb or dlb, and parameters as in escape,pool=8,nack=on or lb,wait=100us";

pub(super) const REMEDIES: [Mechanism<Option<HolConfig>>; 4] = [
    ("off", |value, rest| alone(value, rest, None, REMEDY)),
    ("escape", |value, rest| {
        let mut config = EscapeConfig::default();
        keys(value, "escape", rest, &ESCAPE, &mut config)?;
        Ok(Some(HolConfig::Escape(config)))
    }),
    ("lb", |value, rest| breaker(value, "lb", rest, Remedy::Drop).map(Some)),
    ("dlb", |value, rest| breaker(value, "dlb", rest, Remedy::Rotate).map(Some)),
];

fn breaker(value: &Value<'_>, name: &str, rest: &str, remedy: Remedy) -> Result<HolConfig, ValueError> {
    let mut config = BreakerConfig::new(remedy);
    keys(value, name, rest, &BREAKER, &mut config)?;
    Ok(HolConfig::Breaker(config))
}

/// Parses countermeasures: none, or a mechanism with its parameters.
pub(super) fn hol(value: &Value<'_>) -> Result<Option<HolConfig>, ValueError> {
    mechanism(value, &REMEDIES, REMEDY)
}
