//! The configuration in force, as an equivalent file.

use serde_json::{Map, Value, json};

use super::keys::KEYS;
use super::{Config, DeviceConfig, Given};

fn origin(given: &Given, key: &str) -> String {
    given.get(key).map_or_else(|| "default".into(), |(_, origin)| origin.to_string())
}

/// Returns a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04X}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Returns the default value of a device's key; `None` if it depends on the host, or there is none.
fn default_of(device: &DeviceConfig, key: &str) -> Option<String> {
    Some(match key {
        "name" => device.name.clone(),
        "port" | "transport" | "segmentation" | "cross-memory" | "spin" | "units" | "gpu" => "auto".into(),
        "seed" => device.seed.to_string(),
        "socket-buffer" => device.socket_buffer.to_string(),
        "ring" => device.ring.to_string(),
        "clock" => device.clock.to_string(),
        "timestamps" => "poll".into(),
        "gid-layout" => "dense".into(),
        _ => return None,
    })
}

impl Config {
    /// Returns the settings of the process, all of which are off by default.
    fn of_process(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let keys = KEYS.iter().filter(|k| !k.is_of_device());
        keys.map(|k| (k.name, self.given.get(k.name).map_or("off", |(value, _)| value)))
    }

    /// Returns the settings as `irnic.toml`, each value followed by its origin.
    pub fn to_toml(&self) -> String {
        let mut out = match &self.file {
            Some(path) => format!("# file: {}\n", path.display()),
            None => "# no file\n".into(),
        };
        for (name, value) in self.of_process() {
            out += &format!("{name} = {}  # {}\n", quoted(value), origin(&self.given, name));
        }
        for device in &self.devices {
            out += "\n[[device]]\n";
            for key in KEYS.iter().filter(|k| k.is_of_device()) {
                match device.given.get(key.name) {
                    Some((value, from)) => out += &format!("{} = {}  # {from}\n", key.name, quoted(value)),
                    None => match default_of(device, key.name) {
                        Some(value) => out += &format!("{} = {}  # default\n", key.name, quoted(&value)),
                        None if key.is_of_transport() => {}
                        None => out += &format!("# {}: {}\n", key.name, key.default.replace('`', "")),
                    },
                }
            }
            out += &format!("# transport in full: {}\n", device.transport);
        }
        out
    }

    /// Returns the settings as JSON: each key is an object of value and origin.
    pub fn to_json(&self) -> Value {
        let entry = |value: Option<String>, from: String| json!({ "value": value, "origin": from });
        let devices = self.devices.iter().map(|device| {
            let mut map = Map::new();
            for key in KEYS.iter().filter(|k| k.is_of_device()) {
                let value = device.given.get(key.name).map(|(value, _)| value.to_owned());
                let value = value.or_else(|| default_of(device, key.name));
                map.insert(key.name.into(), entry(value, origin(&device.given, key.name)));
            }
            map.insert("transport-in-full".into(), device.transport.to_string().into());
            Value::Object(map)
        });
        let mut all = json!({
            "file": self.file.as_ref().map(|f| f.display().to_string()),
            "devices": devices.collect::<Vec<_>>(),
        });
        for (name, value) in self.of_process() {
            all[name] = entry(Some(value.into()), origin(&self.given, name));
        }
        all
    }
}
