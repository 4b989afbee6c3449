//! What a lab was set to.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::args::ProgramTime;
use crate::pace::Pace;

/// The settings of a lab that its results depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lab's clock.
    pub pace: Pace,
    /// The time that programs see.
    pub program_time: ProgramTime,
    /// The random seed.
    pub seed: u64,
    /// The keys of the network, with their values.
    pub keys: Vec<(&'static str, String)>,
    /// What follows from others, such as the thresholds of ECN.
    pub resolved: Vec<(Cow<'static, str>, String)>,
}

impl Settings {
    /// Returns all of them with their names, but for keys without a value.
    pub fn all(&self) -> impl Iterator<Item = (Cow<'static, str>, Cow<'_, str>)> {
        let keys = self.keys.iter().filter(|(_, text)| !text.is_empty());
        let keys = keys.map(|(key, text)| (Cow::Borrowed(*key), Cow::Borrowed(text.as_str())));
        let resolved = self.resolved.iter();
        let resolved = resolved.map(|(key, text)| (Cow::Owned(format!("{key}, resolved")), text.as_str().into()));
        let Pace { clock, slower } = self.pace;
        let clock = if slower == 1.0 { clock.to_string() } else { format!("{clock}, {slower} times slower") };
        let others =
            [("seed", self.seed.to_string()), ("clock", clock), ("program-time", self.program_time.to_string())];
        keys.chain(resolved).chain(others.map(|(key, text)| (Cow::Borrowed(key), Cow::Owned(text))))
    }

    /// Returns the keys, and what follows from others, as JSON objects.
    pub fn json(&self) -> [Value; 2] {
        let keys = self.keys.iter().map(|(key, text)| ((*key).to_owned(), json!(text)));
        let resolved = self.resolved.iter().map(|(key, text)| (key.to_string(), json!(text)));
        [keys.collect(), resolved.collect()]
    }
}
