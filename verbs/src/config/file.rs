//! `irnic.toml`: top-level settings apply to every device, `[[device]]` tables to one each.

use std::io;
use std::path::{Path, PathBuf};

use irnic_units::toml as lines;
use toml::de::DeValue;

use super::error::{ConfigError, Origin, did_you_mean};
use super::keys::{KEYS, Key, key};
use super::trust::{self, Ignored};
use super::variables::{Setting, Variables};

/// The table of a device.
const DEVICE: &str = "device";

/// Contents of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub path: Option<PathBuf>,
    /// Settings of all devices, and of the process.
    pub common: Vec<Setting>,
    /// Settings of each device.
    pub devices: Vec<Vec<Setting>>,
    /// Files found before it and ignored.
    pub ignored: Vec<Ignored>,
}

/// Iterates over the default places of the file: `./irnic.toml`, and the user's.
fn places() -> impl Iterator<Item = PathBuf> {
    let home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    std::iter::once(PathBuf::from("irnic.toml")).chain(home.map(|h| h.join("irnic/irnic.toml")))
}

/// Reads the file in `IRNIC_CONFIG`, regardless of its owner; else the first one found that other users cannot have
/// written.
pub(super) fn read(variables: &Variables) -> Result<File, ConfigError> {
    let unreadable = |path: &Path, origin: &Origin, e: io::Error| ConfigError::Unreadable {
        origin: origin.clone(),
        path: path.display().to_string(),
        error: match e.kind() {
            io::ErrorKind::InvalidData => "not UTF-8".into(),
            _ => e.to_string(),
        },
    };
    if let Some((path, origin)) = variables.get("IRNIC_CONFIG") {
        let path = Path::new(path);
        return parse(path, &std::fs::read_to_string(path).map_err(|e| unreadable(path, origin, e))?);
    }
    let mut none = File::default();
    if variables.is_of_stranger() {
        none.ignored.extend(variables.withheld().then_some(Ignored::VARIABLES));
        return Ok(none);
    }
    for path in places() {
        let unreadable = |e| unreadable(&path, &Origin::File(path.clone(), 1), e);
        match trust::open_trusted(&path).map_err(unreadable)? {
            Some(Ok(file)) => {
                let file = parse(&path, &io::read_to_string(file).map_err(unreadable)?)?;
                return Ok(File { ignored: none.ignored, ..file });
            }
            Some(Err(file)) => none.ignored.push(file.into()),
            None => {}
        }
    }
    Ok(none)
}

/// Parses the text of the file at `path`.
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
    match text_of(value.get_ref()) {
        Some(value) => Ok(Setting { key, value, origin }),
        None => Err(ConfigError::Syntax { origin, why: format!("{name} is a string, a number, or on or off") }),
    }
}

/// Returns a value as the variable would contain it.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Array(items) = value else { return lines::word(value) };
    let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    Some(items.iter().map(text).collect::<Option<Vec<String>>>()?.join(","))
}
