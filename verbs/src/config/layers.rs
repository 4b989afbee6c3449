//! One source over the other: defaults, a file's common settings, a device's own, variables.

use std::collections::BTreeMap;

use irnic_nic::clock::Clock;
use irnic_ports::impair::Impairments;
use irnic_ports::udp::Segmentation;
use irnic_transports::rc::TransportConfig;

use super::error::{ConfigError, Origin, did_you_mean};
use super::file::{self, File};
use super::keys::{KEYS, Key, OTHER_VARIABLES, Set, why};
use super::trust;
use super::{Config, DeviceConfig, PortKind, Stats};

/// A value of a key, and where it stands.
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
    fn error(&self, why: impl Into<String>) -> ConfigError {
        let (origin, value) = (self.origin.clone(), self.value.clone());
        ConfigError::Value { origin, key: self.key.name, value, why: why.into() }
    }
}

/// What was said, by key, with where it stands.
#[derive(Clone, Debug, Default)]
pub struct Given(BTreeMap<&'static str, Setting>);

impl Given {
    /// Value and origin of a key that was set.
    pub fn get(&self, key: &str) -> Option<(&str, &Origin)> {
        self.0.get(key).map(|s| (s.value.as_str(), &s.origin))
    }

    /// The error that a key's value turned out to be; `None` if the key was not set.
    pub fn error(&self, key: &str, why: impl Into<String>) -> Option<ConfigError> {
        self.0.get(key).map(|s| s.error(why))
    }
}

/// The `IRNIC_*` variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    named: BTreeMap<String, (String, Origin)>,
    /// They would be those of somebody who has fewer rights than this process.
    stranger: bool,
    /// There were some, and they were not taken.
    withheld: bool,
}

impl Variables {
    /// Those of this process; none if it runs with rights that its caller does not have.
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

    /// Whether neither variables nor files count: the process runs with rights that its caller does not have.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.stranger
    }

    /// Whether there were variables that do not count.
    pub(super) fn withheld(&self) -> bool {
        self.withheld
    }

    /// Sets one. An empty value is none.
    pub fn set(&mut self, name: &str, value: &str, origin: Origin) {
        if value.is_empty() {
            self.named.remove(name);
        } else {
            self.named.insert(name.into(), (value.into(), origin));
        }
    }

    /// Value and origin of one.
    pub fn get(&self, name: &str) -> Option<(&str, &Origin)> {
        self.named.get(name).map(|(value, origin)| (value.as_str(), origin))
    }

    /// Names, with values and origins.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &(String, Origin))> {
        self.named.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn settings(&self) -> Result<Vec<Setting>, ConfigError> {
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

impl Config {
    /// What these variables and the file that they choose say.
    pub fn load(variables: &Variables) -> Result<Config, ConfigError> {
        Config::from_layers(&file::read(variables)?, variables)
    }

    pub(super) fn from_layers(file: &File, variables: &Variables) -> Result<Config, ConfigError> {
        let settings = variables.settings()?;
        let mut config = Config {
            devices: Vec::new(),
            stats: Stats::Off,
            explain: false,
            file: file.path.clone(),
            given: Given::default(),
            ignored: file.ignored.clone(),
        };
        for layer in [&file.common, &settings] {
            for setting in layer {
                if let Set::Process(set) = setting.key.set {
                    set(&mut config, &setting.value).map_err(|why| setting.error(why))?;
                    config.given.0.insert(setting.key.name, setting.clone());
                }
            }
        }
        let none = [Vec::new()];
        let tables = if file.devices.is_empty() { &none[..] } else { &file.devices[..] };
        // One of several devices is chosen by its name, not renamed.
        let chosen = settings.iter().find(|s| s.key.name == "name").filter(|_| !file.devices.is_empty());
        let settings: Vec<Setting> =
            settings.iter().filter(|s| chosen.is_none() || s.key.name != "name").cloned().collect();
        for (index, table) in tables.iter().enumerate() {
            let mut device = DeviceConfig::new(format!("irnic{index}"));
            for layer in [&file.common, table] {
                device.apply(layer)?;
            }
            if chosen.is_some_and(|c| c.value != device.name) {
                config.devices.push(device);
                continue;
            }
            device.apply(&settings)?;
            config.devices.push(device);
        }
        if let Some(chosen) = chosen {
            let names: Vec<String> = config.devices.iter().map(|d| d.name.clone()).collect();
            config.devices.retain(|d| d.name == chosen.value);
            if config.devices.is_empty() {
                return Err(chosen.error(format!("expected a device of the file: {}", names.join(", "))));
            }
        }
        config.check(&settings)?;
        Ok(config)
    }

    /// What can only be seen of all devices together.
    fn check(&self, variables: &[Setting]) -> Result<(), ConfigError> {
        if self.devices.len() > 1
            && let Some(setting) = variables.iter().find(|s| ["interface", "addresses"].contains(&s.key.name))
        {
            return Err(setting.error("the file has several devices; expected IRNIC_DEVICE to choose one of them"));
        }
        for (i, device) in self.devices.iter().enumerate() {
            if self.devices[..i].iter().any(|d| d.name == device.name) {
                let why = "another device has this name; expected a name for each";
                return Err(device.given.error("name", why).unwrap_or_else(|| ConfigError::Syntax {
                    origin: Origin::File(self.file.clone().unwrap_or_default(), 1),
                    why: format!("two devices are called {}", device.name),
                }));
            }
        }
        Ok(())
    }
}

impl DeviceConfig {
    /// The defaults.
    pub fn new(name: String) -> DeviceConfig {
        let transport = TransportConfig::preset("auto").expect("a preset").for_real_time();
        DeviceConfig {
            name,
            interface: None,
            addresses: Vec::new(),
            port: PortKind::Auto,
            mtu: None,
            rate: None,
            transport,
            impair: Impairments::default(),
            seed: 1,
            pcap: None,
            segmentation: Segmentation::Auto,
            socket_buffer: 8 << 20,
            ring: 512 << 10,
            spin: 0,
            clock: Clock::default(),
            kernel_stamps: false,
            given: Given::default(),
        }
    }

    /// Applies a layer, in the order of the keys.
    fn apply(&mut self, layer: &[Setting]) -> Result<(), ConfigError> {
        let mut last = None;
        for key in &KEYS {
            let Some(setting) = layer.iter().find(|s| std::ptr::eq(s.key, key)) else { continue };
            match key.set {
                Set::Process(_) => continue,
                Set::Device(set) => set(self, &setting.value).map_err(|why| setting.error(why))?,
                Set::Transport("transport") => {
                    self.transport =
                        TransportConfig::parse(&setting.value, true).map_err(|e| setting.error(e.to_string()))?;
                    self.given.0.retain(|_, s| !s.key.is_of_transport());
                    last = Some(setting);
                }
                Set::Transport(name) => {
                    self.transport.set(name, &setting.value).map_err(|e| setting.error(why(&e)))?;
                    last = Some(setting);
                }
            }
            self.given.0.insert(key.name, setting.clone());
        }
        if let Some(setting) = last {
            self.transport.check(true).map_err(|e| setting.error(e.to_string()))?;
        }
        Ok(())
    }
}
