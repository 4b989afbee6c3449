//! The lab's clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Clock and speed of a lab.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Pace {
    pub clock: Clock,
    /// How many times slower than the host's it is.
    pub slower: f64,
}

/// The reference of the lab's time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The host's.
    Realtime,
    /// The host's; it stops while a process with work to do has no core.
    #[default]
    Elastic,
    /// It stops while an application acts, and then jumps to the next event.
    Virtual,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::Realtime => "realtime",
            Clock::Elastic => "elastic",
            Clock::Virtual => "virtual",
        })
    }
}

/// Clocks by their names; a factor follows the equals sign.
const CLOCKS: [(&str, Clock); 5] = [
    ("elastic", Clock::Elastic),
    ("realtime", Clock::Realtime),
    ("virtual", Clock::Virtual),
    ("dilated=", Clock::Realtime),
    ("elastic=", Clock::Elastic),
];

/// Returns the names of clocks, for completion.
pub fn clocks() -> Vec<&'static str> {
    irnic_units::keys::words(&CLOCKS)
}

/// Parses elastic, realtime, virtual, or one of them slowed down by a factor.
pub fn pace(text: &str) -> Result<Pace, String> {
    let (name, factor) = text.split_at(text.find('=').map_or(text.len(), |at| at + 1));
    let found = CLOCKS.iter().find(|(known, _)| *known == name);
    let expected = || {
        let meant = irnic_units::did_you_mean(name.trim_end_matches('='), clocks());
        format!("expected elastic, realtime, dilated=K, elastic=K or virtual{meant}")
    };
    let (_, clock) = *found.ok_or_else(expected)?;
    if !name.ends_with('=') {
        return Ok(Pace { clock, slower: 1.0 });
    }
    match factor.parse::<f64>() {
        Ok(slower) if (1.0..=1e6).contains(&slower) => Ok(Pace { clock, slower }),
        _ => Err("expected a factor from 1 to 1000000".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read() {
        for (text, slower, clock) in [
            ("elastic", 1.0, Clock::Elastic),
            ("realtime", 1.0, Clock::Realtime),
            ("dilated=100", 100.0, Clock::Realtime),
            ("elastic=2.5", 2.5, Clock::Elastic),
            ("virtual", 1.0, Clock::Virtual),
        ] {
            assert_eq!(pace(text), Ok(Pace { clock, slower }), "{text}");
        }
        for text in ["", "dilated", "elastic=", "realtime=2", "dilated=0.5", "dilated=x", "virtual=2"] {
            assert!(pace(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_completed_is_read() {
        for (text, clock) in CLOCKS {
            let factor = if text.ends_with('=') { "2" } else { "" };
            assert_eq!(pace(&format!("{text}{factor}")).map(|pace| pace.clock), Ok(clock), "{text}");
        }
    }
}
