//! Layers of settings: defaults, a file's common settings, a device's own, variables.

use irnic_nic::clock::Clock;
use irnic_ports::host::CrossMemory;
use irnic_ports::impair::Impairments;
use irnic_ports::udp::Segmentation;
use irnic_transports::config::TransportConfig;

use super::error::{ConfigError, Origin};
use super::file::{self, File};
use super::keys::{KEYS, Set, why};
use super::variables::{Given, Setting, Variables};
use super::{Config, DeviceConfig, GidLayout, Gpu, PortKind, Stats, Units};

impl Config {
    /// Loads the configuration from these variables and the file that they select.
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
                    set(&mut config, &setting.written()).map_err(|e| setting.error(e.why.to_string()))?;
                    config.given.insert(setting);
                }
            }
        }
        let none = [Vec::new()];
        let tables = if file.devices.is_empty() { &none[..] } else { &file.devices[..] };
        // One of several devices is selected by its name, not renamed.
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

    /// Checks constraints across all devices.
    fn check(&mut self, variables: &[Setting]) -> Result<(), ConfigError> {
        if self.devices.len() > 1
            && let Some(setting) = variables.iter().find(|s| ["interface", "addresses"].contains(&s.key.name))
        {
            return Err(setting.error("the file has several devices; expected IRNIC_DEVICE to choose one of them"));
        }
        for i in 0..self.devices.len() {
            let (before, [device, ..]) = self.devices.split_at_mut(i) else { continue };
            if before.iter().any(|d| d.name == device.name) {
                let why = "another device has this name; expected a name for each";
                return Err(device.given.error("name", why).unwrap_or_else(|| ConfigError::Syntax {
                    origin: Origin::File(self.file.clone().unwrap_or_default(), 1),
                    why: format!("two devices are called {}", device.name),
                }));
            }
            device.check_carrier()?;
        }
        Ok(())
    }
}

impl DeviceConfig {
    /// Returns the default settings of a device with this name.
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
            cross_memory: CrossMemory::Auto,
            spin: None,
            units: Units::Auto,
            gid_layout: GidLayout::Dense,
            clock: Clock::default(),
            kernel_stamps: false,
            gpu: Gpu::Auto,
            given: Given::default(),
        }
    }

    /// Checks that the port carries what the transport needs, and adapts the transport to it.
    fn check_carrier(&mut self) -> Result<(), ConfigError> {
        let checked = match self.port {
            PortKind::Lab(_) => Ok(()),
            _ => self.transport.check_without_telemetry(),
        };
        let notices = match self.port {
            PortKind::Lab(_) => None,
            _ => self.impair.tx.fair_rate(),
        };
        checked.and_then(|()| self.transport.fit_to_notices(notices.as_ref())).map_err(|e| {
            let why = e.to_string();
            let given = ["cc", "transport"].into_iter().find_map(|key| self.given.error(key, why.as_str()));
            given.unwrap_or(ConfigError::Syntax { origin: Origin::Variable("IRNIC_TRANSPORT".into()), why })
        })
    }

    /// Applies a layer, in the order of the keys.
    fn apply(&mut self, layer: &[Setting]) -> Result<(), ConfigError> {
        let mut last = None;
        for key in &KEYS {
            let Some(setting) = layer.iter().find(|s| std::ptr::eq(s.key, key)) else { continue };
            match key.set {
                Set::Process(_) => continue,
                Set::Device(set) => set(self, &setting.written()).map_err(|e| setting.error(e.why.to_string()))?,
                Set::Transport("transport") => {
                    self.transport =
                        TransportConfig::parse(&setting.value, true).map_err(|e| setting.error(e.to_string()))?;
                    self.given.forget_transport();
                    last = Some(setting);
                }
                Set::Transport(name) => {
                    self.transport.set(name, &setting.value).map_err(|e| setting.error(why(&e)))?;
                    last = Some(setting);
                }
            }
            self.given.insert(setting);
        }
        if let Some(setting) = last {
            self.transport.check().map_err(|e| setting.error(e.to_string()))?;
        }
        Ok(())
    }
}
