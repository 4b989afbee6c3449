//! The transport of an experiment: given and derived parameters.

use std::str::FromStr;

use irnic_transports::config::{ConfigError, GivenKeys, ParsedTransport, TransportConfig};

/// A transport with parameters that an experiment may derive: RoCE's timer (IRN §4.3.2), the line rate and base round
/// trip that congestion control starts from, and the window of a sender without a cap.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// Configuration. Parameters left open have the preset's values.
    pub config: TransportConfig,
    name: String,
    given: Given,
}

/// The parameters that are not to be derived.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    All,
    Keys(GivenKeys),
}

impl Transport {
    /// Returns the preset with a name of [`TransportConfig::PRESETS`].
    pub fn preset(name: &str) -> Option<Transport> {
        Some(Transport {
            config: TransportConfig::preset(name)?,
            name: name.to_owned(),
            given: Given::Keys(GivenKeys::default()),
        })
    }

    /// Returns the description that the transport was parsed from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a parameter was given explicitly.
    pub fn gives(&self, key: &str) -> bool {
        match &self.given {
            Given::All => true,
            Given::Keys(keys) => keys.has(key),
        }
    }

    /// Returns whether a parameter of the retransmission timer was given explicitly.
    pub(super) fn gives_timer(&self) -> bool {
        match &self.given {
            Given::All => true,
            Given::Keys(keys) => keys.has_timer(),
        }
    }
}

impl From<TransportConfig> for Transport {
    /// Returns a transport without derived parameters.
    fn from(config: TransportConfig) -> Transport {
        Transport { config, name: config.to_string(), given: Given::All }
    }
}

impl FromStr for Transport {
    type Err = ConfigError;

    /// Parses a preset's name and parameters, as in `irn,cap=110`. Parameters not given are left open.
    fn from_str(text: &str) -> Result<Transport, ConfigError> {
        let ParsedTransport { config, given, .. } = text.parse()?;
        Ok(Transport { config, name: text.to_owned(), given: Given::Keys(given) })
    }
}
