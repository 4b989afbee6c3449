//! Which controller, with which parameters, as text: `aimd`, `timely,t-low=50us`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{
    AimdConfig, ControllerFactory, DcqcnConfig, DctcpConfig, FastConfig, HpccConfig, MOST_WINDOW, TcpConfig,
    TimelyConfig,
};
use irnic_units::{self as units, Nanoseconds};

/// A number above 0 and up to 1.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Share(f64);

// Never NaN.
impl Eq for Share {}

impl Share {
    /// `None` unless it is above 0 and up to 1.
    pub const fn new(value: f64) -> Option<Share> {
        if value > 0.0 && value <= 1.0 { Some(Share(value)) } else { None }
    }

    /// The number.
    #[inline]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A value that somebody wrote, and its key, for errors.
#[derive(Copy, Clone, Debug)]
pub struct Value<'a> {
    key: &'a str,
    /// As written.
    pub text: &'a str,
}

impl Value<'_> {
    fn wrong(&self, expected: &str) -> CongestionError {
        CongestionError::Value { key: self.key.into(), value: self.text.into(), expected: expected.into() }
    }

    /// ns, within a range.
    pub fn time(&self, range: RangeInclusive<u64>, expected: &str) -> Result<u64, CongestionError> {
        units::time(self.text).filter(|ns| range.contains(ns)).ok_or_else(|| self.wrong(expected))
    }

    /// bit/s, within a range.
    pub fn rate(&self, range: RangeInclusive<u64>, expected: &str) -> Result<u64, CongestionError> {
        units::rate(self.text).filter(|rate| range.contains(rate)).ok_or_else(|| self.wrong(expected))
    }

    /// Bytes, within a range.
    pub fn size(&self, range: RangeInclusive<u64>, expected: &str) -> Result<u64, CongestionError> {
        units::size(self.text).filter(|bytes| range.contains(bytes)).ok_or_else(|| self.wrong(expected))
    }

    /// A whole number within a range.
    pub fn number(&self, range: RangeInclusive<u64>, expected: &str) -> Result<u64, CongestionError> {
        self.text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| self.wrong(expected))
    }

    /// A number above 0 and up to 1, or a quotient such as 1/256.
    pub fn share(&self) -> Result<Share, CongestionError> {
        let value = match self.text.split_once('/') {
            Some((a, b)) => a.trim().parse::<f64>().ok().zip(b.trim().parse::<f64>().ok()).map(|(a, b)| a / b),
            None => self.text.parse().ok(),
        };
        value.and_then(Share::new).ok_or_else(|| self.wrong("a number above 0 and up to 1, such as 0.8 or 1/256"))
    }

    /// A share of the line's rate, or `line` for all of it.
    pub fn share_of_line(&self) -> Result<Share, CongestionError> {
        match Share::new(1.0) {
            Some(all) if self.text == "line" => Ok(all),
            _ => self.share(),
        }
    }

    /// ns of a round trip.
    pub fn round_trip(&self) -> Result<u64, CongestionError> {
        self.time(1..=units::MAX_NS, "a time such as 20us, 1ns to 3600s")
    }

    /// Bytes that complete together.
    pub fn segment(&self) -> Result<u32, CongestionError> {
        self.size(1..=1 << 30, "a size such as 16KB, 1 byte to 1 GiB").map(|bytes| bytes as u32)
    }

    /// Packets of a window, or `bdp` for `None`.
    pub fn window(&self) -> Result<Option<u32>, CongestionError> {
        match self.text {
            "bdp" => Ok(None),
            _ => self.number(1..=MOST_WINDOW.into(), "bdp, or 1 to 65536 packets").map(|n| Some(n as u32)),
        }
    }

    /// `on` or `off`.
    pub fn switch(&self) -> Result<bool, CongestionError> {
        match self.text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(self.wrong("on or off")),
        }
    }
}

/// A rate as [`Value::rate`] reads it.
pub(super) fn rate(bits: u64) -> String {
    format!("{bits}bit")
}

/// A time as [`Value::time`] reads it.
pub(super) fn time(ns: u64) -> String {
    Nanoseconds(ns).to_string()
}

/// A size as [`Value::size`] reads it.
pub(super) fn size(bytes: u64) -> String {
    format!("{bytes}B")
}

/// As [`Value::window`] reads it.
pub(super) fn window(packets: Option<u32>) -> String {
    packets.map_or("bdp".to_owned(), |n| n.to_string())
}

/// As [`Value::switch`] reads it.
pub(super) fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

/// Parameters that have names.
pub trait Keys {
    /// Their names.
    const NAMES: &'static [&'static str];

    /// Sets one; `None` if there is none of that name.
    fn set(&mut self, key: &str, value: &Value<'_>) -> Option<Result<(), CongestionError>>;

    /// The value of one, as [`Keys::set`] takes it.
    fn get(&self, key: &str) -> Option<String>;
}

/// Which controller, and its parameters.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CongestionConfig {
    /// None: packets leave as fast as the link takes them.
    #[default]
    None,
    /// See [`super::Aimd`].
    Aimd(AimdConfig),
    /// See [`super::Dcqcn`].
    Dcqcn(DcqcnConfig),
    /// See [`super::Dctcp`].
    Dctcp(DctcpConfig),
    /// See [`super::Fast`].
    Fast(FastConfig),
    /// See [`super::Hpcc`].
    Hpcc(HpccConfig),
    /// See [`super::Tcp`].
    Tcp(TcpConfig),
    /// See [`super::Timely`].
    Timely(TimelyConfig),
    /// An algorithm that is not part of this crate. Text cannot name it: [`FromStr`] does not know it.
    Custom(&'static dyn ControllerFactory),
}

impl CongestionConfig {
    /// All names, with what each stands for.
    pub const PRESETS: &'static [(&'static str, CongestionConfig)] = &[
        ("none", CongestionConfig::None),
        ("aimd", CongestionConfig::Aimd(AimdConfig::PAPER)),
        ("dcqcn", CongestionConfig::Dcqcn(DcqcnConfig::PAPER)),
        ("dcqcn-vendor", CongestionConfig::Dcqcn(DcqcnConfig::VENDOR)),
        ("dctcp", CongestionConfig::Dctcp(DctcpConfig::PAPER)),
        ("fast", CongestionConfig::Fast(FastConfig::PAPER)),
        ("timely", CongestionConfig::Timely(TimelyConfig::PAPER)),
        ("timely-patched", CongestionConfig::Timely(TimelyConfig::PATCHED)),
        ("tcp", CongestionConfig::Tcp(TcpConfig::RFC)),
        ("hpcc", CongestionConfig::Hpcc(HpccConfig::PAPER)),
    ];

    /// Whether packets are sent as ECN-capable, so that switches mark them instead of dropping them.
    pub fn uses_ecn(&self) -> bool {
        match self {
            CongestionConfig::Dcqcn(_) | CongestionConfig::Dctcp(_) => true,
            CongestionConfig::Custom(factory) => factory.uses_ecn(),
            _ => false,
        }
    }

    /// Whether packets are sent with telemetry for switches to write on: what only the simulated network has.
    pub fn uses_telemetry(&self) -> bool {
        match self {
            CongestionConfig::Hpcc(_) => true,
            CongestionConfig::Custom(factory) => factory.uses_telemetry(),
            _ => false,
        }
    }

    /// How often a receiver that sees marks says so in a congestion notification packet, ns; `None` for never.
    pub fn cnp_interval(&self) -> Option<u64> {
        match self {
            CongestionConfig::Dcqcn(c) => Some(c.cnp_interval),
            CongestionConfig::Custom(factory) => factory.cnp_interval(),
            _ => None,
        }
    }

    fn keys(&self) -> &'static [&'static str] {
        match self {
            CongestionConfig::None | CongestionConfig::Custom(_) => &[],
            CongestionConfig::Aimd(_) => AimdConfig::NAMES,
            CongestionConfig::Dcqcn(_) => DcqcnConfig::NAMES,
            CongestionConfig::Dctcp(_) => DctcpConfig::NAMES,
            CongestionConfig::Fast(_) => FastConfig::NAMES,
            CongestionConfig::Hpcc(_) => HpccConfig::NAMES,
            CongestionConfig::Tcp(_) => TcpConfig::NAMES,
            CongestionConfig::Timely(_) => TimelyConfig::NAMES,
        }
    }

    /// The parameters in which it differs from another of its kind.
    pub fn changes(&self, other: &CongestionConfig) -> Vec<(&'static str, String)> {
        let differs = |key: &&'static str| self.get(key) != other.get(key);
        self.keys().iter().copied().filter(differs).filter_map(|key| Some((key, self.get(key)?))).collect()
    }

    /// The value of a parameter, as [`CongestionConfig::set`] takes it.
    pub fn get(&self, key: &str) -> Option<String> {
        match self {
            CongestionConfig::None | CongestionConfig::Custom(_) => None,
            CongestionConfig::Aimd(c) => c.get(key),
            CongestionConfig::Fast(c) => c.get(key),
            CongestionConfig::Hpcc(c) => c.get(key),
            CongestionConfig::Tcp(c) => c.get(key),
            CongestionConfig::Timely(c) => c.get(key),
            CongestionConfig::Dcqcn(c) => c.get(key),
            CongestionConfig::Dctcp(c) => c.get(key),
        }
    }

    /// Sets one parameter by name.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), CongestionError> {
        let value = Value { key, text };
        let set = match self {
            CongestionConfig::None | CongestionConfig::Custom(_) => None,
            CongestionConfig::Aimd(c) => c.set(key, &value),
            CongestionConfig::Dcqcn(c) => c.set(key, &value),
            CongestionConfig::Dctcp(c) => c.set(key, &value),
            CongestionConfig::Fast(c) => c.set(key, &value),
            CongestionConfig::Hpcc(c) => c.set(key, &value),
            CongestionConfig::Tcp(c) => c.set(key, &value),
            CongestionConfig::Timely(c) => c.set(key, &value),
        };
        set.unwrap_or_else(|| {
            Err(CongestionError::Key {
                key: key.into(),
                there_are: if self.keys().is_empty() { "none without it".to_owned() } else { self.keys().join(", ") },
            })
        })
    }
}

/// The first preset of its kind, then what differs from that: [`FromStr`] reads it. Of a custom algorithm the name
/// alone.
impl fmt::Display for CongestionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let CongestionConfig::Custom(factory) = self {
            return f.write_str(factory.name());
        }
        let kind = std::mem::discriminant(self);
        let Some((name, preset)) = Self::PRESETS.iter().find(|(_, c)| std::mem::discriminant(c) == kind) else {
            return Err(fmt::Error);
        };
        f.write_str(name)?;
        for (key, value) in self.changes(preset) {
            write!(f, ",{key}={value}")?;
        }
        Ok(())
    }
}

/// A preset's name, then parameters: `aimd,initial=10`.
impl FromStr for CongestionConfig {
    type Err = CongestionError;

    fn from_str(text: &str) -> Result<CongestionConfig, CongestionError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let found = Self::PRESETS.iter().find(|(n, _)| *n == name);
        let mut config = found.map(|(_, c)| *c).ok_or_else(|| {
            let names: Vec<&str> = Self::PRESETS.iter().map(|(name, _)| *name).collect();
            CongestionError::Preset { name: name.into(), there_are: names.join(", ") }
        })?;
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| CongestionError::NotKeyValue(part.into()))?;
            config.set(key.trim(), value.trim())?;
        }
        Ok(config)
    }
}

/// Why a controller's description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CongestionError {
    /// Unknown name.
    #[error("congestion control \"{name}\" does not exist; choose {there_are}")]
    #[allow(missing_docs)]
    Preset { name: String, there_are: String },
    /// Unknown parameter.
    #[error("congestion control parameter \"{key}\" does not exist; there are: {there_are}")]
    #[allow(missing_docs)]
    Key { key: String, there_are: String },
    /// Bad value.
    #[error("congestion control parameter {key}={value}: expected {expected}")]
    #[allow(missing_docs)]
    Value { key: String, value: String, expected: String },
    /// No equals sign.
    #[error("\"{0}\" is not of the form parameter=value")]
    NotKeyValue(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_parameters() {
        assert_eq!("none".parse(), Ok(CongestionConfig::None));
        let config = "aimd, initial=10".parse();
        assert_eq!(config, Ok(CongestionConfig::Aimd(AimdConfig { initial: Some(10) })));
        assert_eq!("aimd,initial=bdp".parse(), Ok(CongestionConfig::Aimd(AimdConfig::PAPER)));
    }

    #[test]
    fn display_parses_back() {
        for (name, config) in CongestionConfig::PRESETS {
            assert_eq!(config.to_string().parse(), Ok(*config), "{name}: {config}");
            for key in config.keys() {
                let value = config.get(key).unwrap();
                let mut again = *config;
                assert_eq!((again.set(key, &value), again), (Ok(()), *config), "{name}: {key}={value}");
            }
        }
        assert_eq!("timely, t-low=7us".parse::<CongestionConfig>().unwrap().to_string(), "timely,t-low=7us");
    }

    #[test]
    fn errors_say_what_there_is() {
        let said = |text: &str| text.parse::<CongestionConfig>().unwrap_err().to_string();
        assert!(said("cubic").starts_with("congestion control \"cubic\" does not exist; choose none, "));
        assert_eq!(said("aimd,x=1"), "congestion control parameter \"x\" does not exist; there are: initial");
        assert_eq!(
            said("aimd,initial=0"),
            "congestion control parameter initial=0: expected bdp, or 1 to 65536 packets"
        );
        assert_eq!(said("aimd,initial"), "\"initial\" is not of the form parameter=value");
    }
}
