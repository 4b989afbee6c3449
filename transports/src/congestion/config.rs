//! Choice and parameters of the controller, as text: `aimd`, `timely,t-low=50us`.

use std::fmt;
use std::str::FromStr;

use irnic_units::keys::{Key, Value, ValueError, pairs};
use irnic_units::{MAX_NS, Nanoseconds, quotient};

use super::{
    AimdConfig, ControllerFactory, DcqcnConfig, DctcpConfig, FastConfig, HpccConfig, MOST_WINDOW, RoccConfig,
    TcpConfig, TimelyConfig,
};

/// A number above 0 and up to 1.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Share(f64);

// Never NaN.
impl Eq for Share {}

impl Share {
    /// Returns `None` unless the value is above 0 and at most 1.
    pub const fn new(value: f64) -> Option<Share> {
        if value > 0.0 && value <= 1.0 { Some(Share(value)) } else { None }
    }

    /// Returns the number.
    #[inline]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A parameter of an algorithm: a row of its parameter table.
pub(super) struct Parameter<C: 'static> {
    key: Key<C>,
    get: fn(&C) -> String,
}

/// Returns a named parameter. `set` parses the text that `get` returns.
pub(super) const fn parameter<C>(
    name: &'static str,
    set: fn(&mut C, &Value<'_>) -> Result<(), ValueError>,
    get: fn(&C) -> String,
) -> Parameter<C> {
    Parameter { key: Key::new(name, set), get }
}

/// Parameters of an algorithm.
pub(super) trait Parameters: Sized + 'static {
    /// All parameters.
    const ALL: &'static [Parameter<Self>];

    /// Returns the parameter with this name.
    fn named(name: &str) -> Option<&'static Parameter<Self>> {
        Self::ALL.iter().find(|parameter| parameter.key.name == name)
    }
}

/// Parses a number above 0 and at most 1, or a quotient such as 1/256.
pub(super) fn share(value: &Value<'_>) -> Result<Share, ValueError> {
    value.read(|text| quotient(text).and_then(Share::new), "a number above 0 and up to 1, such as 0.8 or 1/256")
}

/// Parses a share of the line rate, or `line` for all of it.
pub(super) fn share_of_line(value: &Value<'_>) -> Result<Share, ValueError> {
    match Share::new(1.0) {
        Some(all) if value.text == "line" => Ok(all),
        _ => share(value),
    }
}

/// Parses a round trip, ns.
pub(super) fn round_trip(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(1..=MAX_NS, "a time such as 20us, 1ns to 3600s")
}

/// Parses the bytes of a segment.
pub(super) fn segment(value: &Value<'_>) -> Result<u32, ValueError> {
    value.size(1..=1 << 30, "a size such as 16KB, 1 byte to 1 GiB").map(|bytes| bytes as u32)
}

/// Parses a window in packets, or `bdp` for `None`.
pub(super) fn window(value: &Value<'_>) -> Result<Option<u32>, ValueError> {
    match value.text {
        "bdp" => Ok(None),
        _ => value.number(1..=MOST_WINDOW, "bdp, or 1 to 65536 packets").map(Some),
    }
}

/// Formats a share for [`share`] to parse.
pub(super) fn share_text(share: Share) -> String {
    share.get().to_string()
}

/// Formats a rate for [`Value::rate`] to parse.
pub(super) fn rate(bits: u64) -> String {
    format!("{bits}bit")
}

/// Formats a time for [`Value::time`] to parse.
pub(super) fn time(ns: u64) -> String {
    Nanoseconds(ns).to_string()
}

/// Formats a size for [`Value::size`] to parse.
pub(super) fn size(bytes: u64) -> String {
    format!("{bytes}B")
}

/// Formats a window for [`window`] to parse.
pub(super) fn window_text(packets: Option<u32>) -> String {
    packets.map_or("bdp".to_owned(), |n| n.to_string())
}

/// Formats a switch for [`Value::switch`] to parse.
pub(super) fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

/// A choice of controller, with its parameters.
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
    /// See [`super::Rocc`].
    Rocc(RoccConfig),
    /// See [`super::Tcp`].
    Tcp(TcpConfig),
    /// See [`super::Timely`].
    Timely(TimelyConfig),
    /// An algorithm outside this crate. Text cannot name it: [`FromStr`] does not know it.
    Custom(&'static dyn ControllerFactory),
}

/// Evaluates an expression with the configuration of an algorithm, or another if that has no parameters.
macro_rules! with_parameters {
    ($of:expr, $config:ident => $some:expr, $none:expr) => {
        match $of {
            CongestionConfig::None | CongestionConfig::Custom(_) => $none,
            CongestionConfig::Aimd($config) => $some,
            CongestionConfig::Dcqcn($config) => $some,
            CongestionConfig::Dctcp($config) => $some,
            CongestionConfig::Fast($config) => $some,
            CongestionConfig::Hpcc($config) => $some,
            CongestionConfig::Rocc($config) => $some,
            CongestionConfig::Tcp($config) => $some,
            CongestionConfig::Timely($config) => $some,
        }
    };
}

impl CongestionConfig {
    /// All names, each with its configuration.
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
        ("rocc", CongestionConfig::Rocc(RoccConfig::PAPER)),
    ];

    /// Returns whether packets are sent as ECN-capable, so that switches mark them instead of dropping them.
    pub fn uses_ecn(&self) -> bool {
        match self {
            CongestionConfig::Dcqcn(_) | CongestionConfig::Dctcp(_) => true,
            CongestionConfig::Custom(factory) => factory.uses_ecn(),
            _ => false,
        }
    }

    /// Returns whether packets are sent with telemetry for switches to fill in: available only in the simulated
    /// network.
    pub fn uses_telemetry(&self) -> bool {
        match self {
            CongestionConfig::Hpcc(_) => true,
            CongestionConfig::Custom(factory) => factory.uses_telemetry(),
            _ => false,
        }
    }

    /// Returns whether the rate is taken from notices of switches.
    pub fn uses_fair_rate(&self) -> bool {
        match self {
            CongestionConfig::Rocc(_) => true,
            CongestionConfig::Custom(factory) => factory.uses_fair_rate(),
            _ => false,
        }
    }

    /// Returns the minimum interval between congestion notification packets from a receiver that sees marks, ns; `None`
    /// if it sends none.
    pub fn cnp_interval(&self) -> Option<u64> {
        match self {
            CongestionConfig::Dcqcn(c) => Some(c.cnp_interval),
            CongestionConfig::Custom(factory) => factory.cnp_interval(),
            _ => None,
        }
    }

    /// Returns the names of the parameters.
    fn keys(&self) -> Vec<&'static str> {
        fn names<C: Parameters>(_: &C) -> Vec<&'static str> {
            C::ALL.iter().map(|parameter| parameter.key.name).collect()
        }
        with_parameters!(self, config => names(config), Vec::new())
    }

    /// Returns the parameters that differ from another configuration of its kind.
    pub fn changes(&self, other: &CongestionConfig) -> Vec<(&'static str, String)> {
        let keys = self.keys().into_iter().filter(|key| self.get(key) != other.get(key));
        keys.filter_map(|key| Some((key, self.get(key)?))).collect()
    }

    /// Returns the value of a parameter, as [`CongestionConfig::set`] takes it.
    pub fn get(&self, key: &str) -> Option<String> {
        fn get<C: Parameters>(config: &C, key: &str) -> Option<String> {
            C::named(key).map(|parameter| (parameter.get)(config))
        }
        with_parameters!(self, config => get(config, key), None)
    }

    /// Sets one parameter by name.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), CongestionError> {
        fn set<C: Parameters>(config: &mut C, value: &Value<'_>) -> Option<Result<(), ValueError>> {
            C::named(value.key).map(|parameter| (parameter.key.set)(config, value))
        }
        match with_parameters!(self, config => set(config, &Value { key, text }), None) {
            Some(set) => Ok(set?),
            None => Err(CongestionError::Key {
                key: key.into(),
                there_are: if self.keys().is_empty() { "none without it".to_owned() } else { self.keys().join(", ") },
            }),
        }
    }
}

/// Writes the first preset of its kind, then the differences, in the form parsed by [`FromStr`]. A custom algorithm is
/// written as its name alone.
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

/// Parses a preset's name, then parameters: `aimd,initial=10`.
impl FromStr for CongestionConfig {
    type Err = CongestionError;

    fn from_str(text: &str) -> Result<CongestionConfig, CongestionError> {
        let (name, parameters) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim();
        let found = Self::PRESETS.iter().find(|(n, _)| *n == name);
        let mut config = found.map(|(_, c)| *c).ok_or_else(|| {
            let names: Vec<&str> = Self::PRESETS.iter().map(|(name, _)| *name).collect();
            CongestionError::Preset { name: name.into(), there_are: names.join(", ") }
        })?;
        for pair in parameters.into_iter().flat_map(pairs) {
            let Value { key, text } = pair.map_err(|part| CongestionError::NotKeyValue(part.trim().into()))?;
            config.set(key, text)?;
        }
        Ok(config)
    }
}

/// Error in the description of a controller.
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
    #[error("congestion control parameter {0}")]
    Value(#[from] ValueError),
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
