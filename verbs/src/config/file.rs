//! `irnic.toml`: settings at the top hold for every device, `[[device]]` tables for one each.

use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::error::{ConfigError, Origin, did_you_mean};
use super::keys::{KEYS, Key, key};
use super::layers::{Setting, Variables};
use super::lines;

/// The table of a device.
const DEVICE: &str = "device";

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub path: Option<PathBuf>,
    /// Settings of all devices, and of the process.
    pub common: Vec<Setting>,
    /// Settings of each device.
    pub devices: Vec<Vec<Setting>>,
}

/// The file to read: the one that `IRNIC_CONFIG` names, `./irnic.toml`, or the user's; `None` if there is none.
pub fn find(variables: &Variables) -> Option<PathBuf> {
    if let Some((path, _)) = variables.get("IRNIC_CONFIG") {
        return Some(path.into());
    }
    let here = PathBuf::from("irnic.toml");
    if here.exists() {
        return Some(here);
    }
    let home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    home.map(|h| h.join("irnic/irnic.toml")).filter(|p| p.exists())
}

/// Reads the file, if there is one.
pub(super) fn read(variables: &Variables) -> Result<File, ConfigError> {
    let Some(path) = find(variables) else { return Ok(File::default()) };
    let text = std::fs::read_to_string(&path).map_err(|e| ConfigError::Unreadable {
        origin: variables.get("IRNIC_CONFIG").map_or(Origin::File(path.clone(), 1), |(_, origin)| origin.clone()),
        path: path.display().to_string(),
        error: match e.kind() {
            io::ErrorKind::InvalidData => "not UTF-8".into(),
            _ => e.to_string(),
        },
    })?;
    parse(&path, &text)
}

/// What the text of the file at `path` says.
pub(super) fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
    let at = |offset: usize| Origin::File(path.into(), lines::line(text, offset));
    let table = lines::parse(text)
        .map_err(|(line, why)| ConfigError::Syntax { origin: Origin::File(path.into(), line), why })?;
    let mut file = File { path: Some(path.into()), ..File::default() };
    let not_tables = |origin| ConfigError::Syntax { origin, why: "devices are tables: write [[device]]".into() };
    for (name, value) in table.get_ref() {
        if name.get_ref() != DEVICE {
            file.common.push(setting(name.get_ref(), value, at(name.span().start), |_| true)?);
            continue;
        }
        let DeValue::Array(devices) = value.get_ref() else {
            return Err(not_tables(at(name.span().start)));
        };
        for device in devices.iter() {
            let DeValue::Table(device) = device.get_ref() else {
                return Err(not_tables(at(device.span().start)));
            };
            let one = |(name, value): (&toml::Spanned<_>, _)| {
                let name: &toml::Spanned<std::borrow::Cow<'_, str>> = name;
                setting(name.get_ref(), value, at(name.span().start), Key::is_of_device)
            };
            file.devices.push(device.iter().map(one).collect::<Result<_, _>>()?);
        }
    }
    Ok(file)
}

fn setting(
    name: &str,
    value: &toml::Spanned<DeValue<'_>>,
    origin: Origin,
    allowed: fn(&Key) -> bool,
) -> Result<Setting, ConfigError> {
    let Some(key) = key(name) else {
        let names = KEYS.iter().filter(|k| allowed(k)).map(|k| k.name);
        return Err(ConfigError::Unknown { origin, what: "key", name: name.into(), advice: did_you_mean(name, names) });
    };
    if !allowed(key) {
        let why = format!("{name} is not a device's: write it above the first [[device]]");
        return Err(ConfigError::Syntax { origin, why });
    }
    match words(value.get_ref()) {
        Some(value) => Ok(Setting { key, value, origin }),
        None => Err(ConfigError::Syntax { origin, why: format!("{name} is a string, a number, or on or off") }),
    }
}

/// A value as the variable would have it.
fn words(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Array(items) = value else { return lines::word(value) };
    let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    Some(items.iter().map(text).collect::<Option<Vec<String>>>()?.join(","))
}
