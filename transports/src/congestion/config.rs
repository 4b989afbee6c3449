//! Choice and parameters of the controller, as text: `aimd`, `timely,t-low=50us`.

use std::fmt;
use std::str::FromStr;

use irnic_units::did_you_mean;
use irnic_units::keys::{Value, ValueError, pairs};

use super::parameters::Parameters;
use super::{
    AimdConfig, ControllerFactory, DcqcnConfig, DctcpConfig, FastConfig, HpccConfig, RoccConfig, TcpConfig,
    TimelyConfig,
};

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

    /// Returns the parameters that differ from another configuration of its kind; of another kind, all.
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

/// Writes the first preset of its kind, then the differences, or with `{:#}` all parameters, in the form parsed by
/// [`FromStr`]. A custom algorithm is written as its name alone.
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
        // Nothing has the parameters of its kind.
        let other = if f.alternate() { &CongestionConfig::None } else { preset };
        for (key, value) in self.changes(other) {
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
    #[error(
        "congestion control \"{name}\" does not exist; choose {there_are}{}",
        did_you_mean(name, there_are.split(", "))
    )]
    #[allow(missing_docs)]
    Preset { name: String, there_are: String },
    /// Unknown parameter.
    #[error(
        "congestion control parameter \"{key}\" does not exist; there are: {there_are}{}",
        did_you_mean(key, there_are.split(", "))
    )]
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
