//! What switches do against head-of-line blocking, as users write it: `escape,pool=8,period=2x,nack=on`.

use irnic_units::keys::{Key, Value, ValueError, pairs};
use irnic_units::{MAX_NS, TIME};

use crate::switch::{EscapeConfig, HolConfig, Order, Period};

/// Most tokens of an output, and flows of an input.
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

/// Reads Δ^esc: a multiple of the link's delay, or a time.
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

/// Reads what switches do: nothing, or one of the ways with its parameters.
pub(super) fn hol(value: &Value<'_>) -> Result<Option<HolConfig>, ValueError> {
    let (name, rest) = value.text.split_once(',').unwrap_or((value.text, ""));
    match name {
        "off" if rest.is_empty() => Ok(None),
        "escape" => {
            let mut config = EscapeConfig::default();
            for pair in (!rest.is_empty()).then(|| pairs(rest)).into_iter().flatten() {
                let pair = pair.map_err(|part| value.refuse(format!("{part}: expected KEY=VALUE")))?;
                let Some(key) = Key::find(&ESCAPE, pair.key) else {
                    let known = ESCAPE.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
                    return Err(value.refuse(format!("escape has no {}; it takes {known}", pair.key)));
                };
                (key.set)(&mut config, &pair).map_err(|error| value.refuse(error))?;
            }
            Ok(Some(HolConfig::Escape(config)))
        }
        _ => Err(value.wrong("off, or escape and parameters as in escape,pool=8,nack=on")),
    }
}
