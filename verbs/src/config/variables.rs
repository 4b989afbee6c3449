//! Settings with their origin, and the environment variables for them.

use std::collections::BTreeMap;

use irnic_units::keys::Value;

use super::error::{ConfigError, Origin, did_you_mean};
use super::keys::{KEYS, Key, OTHER_VARIABLES};
use super::trust;

/// A value of a key, and its origin.
#[derive(Clone)]
pub(super) struct Setting {
    pub key: &'static Key,
    pub value: String,
    pub origin: Origin,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {:?} ({})", self.key.name, self.value, self.origin)
    }
}

impl Setting {
    /// Returns key and value, for parsing.
    pub(super) fn written(&self) -> Value<'_> {
        Value { key: self.key.name, text: &self.value }
    }

    /// Returns an error about the value.
    pub(super) fn error(&self, why: impl Into<String>) -> ConfigError {
        let (origin, value) = (self.origin.clone(), self.value.clone());
        ConfigError::Value { origin, key: self.key.name, value, why: why.into() }
    }
}

/// Explicit settings with their origins, by key.
#[derive(Clone, Debug, Default)]
pub struct Given(BTreeMap<&'static str, Setting>);

impl Given {
    /// Records a setting, replacing an earlier one of its key.
    pub(super) fn insert(&mut self, setting: &Setting) {
        self.0.insert(setting.key.name, setting.clone());
    }

    /// Removes the settings of a device's transport.
    pub(super) fn forget_transport(&mut self) {
        self.0.retain(|_, s| !s.key.is_of_transport());
    }

    /// Returns value and origin of a key that was set.
    pub fn get(&self, key: &str) -> Option<(&str, &Origin)> {
        self.0.get(key).map(|s| (s.value.as_str(), &s.origin))
    }

    /// Returns an error about a key's value; `None` if the key was not set.
    pub fn error(&self, key: &str, why: impl Into<String>) -> Option<ConfigError> {
        self.0.get(key).map(|s| s.error(why))
    }
}

/// The `IRNIC_*` variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    named: BTreeMap<String, (String, Origin)>,
    /// They would belong to a caller with fewer rights than this process.
    stranger: bool,
    /// There were some, and they were ignored.
    withheld: bool,
}

impl Variables {
    /// Returns the variables of this process; none if it runs with rights that its caller does not have.
    pub fn from_environment() -> Result<Variables, ConfigError> {
        let mut variables = Variables { stranger: trust::is_secure(), ..Variables::default() };
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|n| n.starts_with("IRNIC_")) else { continue };
            if variables.stranger {
                variables.withheld = true;
                continue;
            }
            let Some(value) = value.to_str() else {
                let origin = Origin::Variable(name.into());
                return Err(ConfigError::Syntax { origin, why: "the value is not UTF-8".into() });
            };
            variables.set(name, value, Origin::Variable(name.into()));
        }
        Ok(variables)
    }

    /// Returns whether neither variables nor files count: the process runs with rights that its caller does not have.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.stranger
    }

    /// Returns whether there were variables that were ignored.
    pub(super) fn withheld(&self) -> bool {
        self.withheld
    }

    /// Sets a variable. An empty value removes it.
    pub fn set(&mut self, name: &str, value: &str, origin: Origin) {
        if value.is_empty() {
            self.named.remove(name);
        } else {
            self.named.insert(name.into(), (value.into(), origin));
        }
    }

    /// Returns value and origin of a variable.
    pub fn get(&self, name: &str) -> Option<(&str, &Origin)> {
        self.named.get(name).map(|(value, origin)| (value.as_str(), origin))
    }

    /// Iterates over names, with values and origins.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &(String, Origin))> {
        self.named.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the settings in the variables, in the order of the keys.
    pub(super) fn settings(&self) -> Result<Vec<Setting>, ConfigError> {
        let names = KEYS.iter().map(|k| k.variable).chain(OTHER_VARIABLES.iter().map(|(name, _)| *name));
        for (name, (_, origin)) in &self.named {
            if !names.clone().any(|n| n == name) {
                let advice = did_you_mean(name, names);
                return Err(ConfigError::Unknown {
                    origin: origin.clone(),
                    what: "variable",
                    name: name.clone(),
                    advice,
                });
            }
        }
        let given = KEYS.iter().filter_map(|key| {
            let (value, origin) = self.named.get(key.variable)?.clone();
            Some(Setting { key, value, origin })
        });
        Ok(given.collect())
    }
}
