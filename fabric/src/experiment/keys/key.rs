//! What describes a key of experiments.

use irnic_units::keys::{SWITCH, Value, ValueError, words};

use crate::experiment::Experiment;

/// Parses a value into an experiment.
type Set = fn(&mut Experiment, &Value<'_>) -> Result<(), ValueError>;

/// A key of experiments: an option of commands, and a key in files.
#[derive(Debug)]
pub struct Key {
    name: &'static str,
    /// Placeholder of the value in the help of commands; `None` for an option without a value, which stands for `on`.
    pub value_name: Option<&'static str>,
    help: &'static str,
    /// Default value, if it does not depend on other keys.
    pub default: Option<&'static str>,
    /// For the help: what applies by default, if that depends on other keys or results do not show it.
    pub(super) unset: Option<&'static str>,
    words: fn() -> Vec<&'static str>,
    /// Whether several values on a command line are one, joined by commas, instead of a grid.
    pub joined: bool,
    /// Whether `irnic lab` has it. Its workload are processes, and how it runs is up to its own options.
    pub in_lab: bool,
    /// Whether the value alone suffices in the name of a case.
    pub(in crate::experiment) bare: bool,
    set: Set,
}

impl Key {
    /// Returns a key of `irnic sim` and `irnic lab`.
    pub(super) const fn new(name: &'static str, value_name: &'static str, help: &'static str, set: Set) -> Key {
        Key {
            name,
            value_name: Some(value_name),
            help,
            default: None,
            unset: None,
            words: Vec::new,
            joined: false,
            in_lab: true,
            bare: false,
            set,
        }
    }

    /// Returns a key with the values `on` and `off`.
    pub(super) const fn on_off(name: &'static str, help: &'static str, set: Set) -> Key {
        Key::new(name, "on|off", help, set).words(|| words(&SWITCH))
    }

    /// Returns a key whose option has no value.
    pub(super) const fn flag(name: &'static str, help: &'static str, set: Set) -> Key {
        Key { value_name: None, ..Key::new(name, "", help, set) }
    }

    pub(super) const fn default(self, default: &'static str) -> Key {
        Key { default: Some(default), ..self }
    }

    pub(super) const fn unset(self, text: &'static str) -> Key {
        Key { unset: Some(text), ..self }
    }

    pub(super) const fn words(self, words: fn() -> Vec<&'static str>) -> Key {
        Key { words, ..self }
    }

    pub(super) const fn joined(self) -> Key {
        Key { joined: true, ..self }
    }

    pub(super) const fn sim_only(self) -> Key {
        Key { in_lab: false, ..self }
    }

    pub(super) const fn bare(self) -> Key {
        Key { bare: true, ..self }
    }

    /// Returns the name, the same for the option and the key in a file.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the help, which ends with the default unless it says so earlier.
    pub fn help(&self) -> String {
        match self.default.filter(|_| self.value_name.is_some()).or(self.unset) {
            Some(default) if !self.help.contains("[default: ") => format!("{} [default: {default}]", self.help),
            _ => self.help.to_owned(),
        }
    }

    /// Returns words that values are or, if they end with a colon, begin with; not all there are.
    pub fn completions(&self) -> Vec<&'static str> {
        (self.words)()
    }

    /// Parses a value into an experiment.
    pub(in crate::experiment) fn set(&self, experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
        (self.set)(experiment, value)
    }
}
