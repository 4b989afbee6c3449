//! The keys of experiments: names of command-line options, and of keys in files.
//!
//! Each is described once, in the file of its category: name, help, default, completions, parser. Commands make their
//! options of [`CATEGORIES`].

mod key;
mod network;
mod parse;
mod rocc;
mod run;
mod switches;
#[cfg(test)]
mod tests;
mod transport;
mod workload;

use std::sync::LazyLock;

pub use key::Key;
pub use network::link_named;

/// Keys that belong together, in the order of the help.
#[derive(Debug)]
pub struct Category {
    /// Heading in the help.
    pub name: &'static str,
    /// The keys.
    pub keys: &'static [Key],
}

/// All keys, in the order of the help.
pub static CATEGORIES: [Category; 5] = [
    Category { name: "Network", keys: &network::KEYS },
    Category { name: "Switches", keys: &switches::KEYS },
    Category { name: "Transport", keys: &transport::KEYS },
    Category { name: "Workload", keys: &workload::KEYS },
    Category { name: "Run", keys: &run::KEYS },
];

/// All keys, in the order in which a grid is enumerated: the last varies fastest. Their defaults are those of
/// [`Experiment::default`](super::Experiment::default).
pub static KEYS: LazyLock<Vec<&'static Key>> =
    LazyLock::new(|| ORDER.into_iter().map(|name| find(name).expect("a key of a category")).collect());

/// The order of [`KEYS`]. Names and order of cases depend on it, and so do the results of all grids.
const ORDER: [&str; 54] = [
    "topology",
    "workload",
    "flows",
    "load",
    "duration",
    "flows-count",
    "priority",
    "switch",
    "switch-at",
    "policy-event",
    "data-queue",
    "header-queue",
    "wrr",
    "trim",
    "return-headers",
    "buffer",
    "queue-limit",
    "alpha",
    "colour-threshold",
    "ecn",
    "rocc",
    "flow-control",
    "hol",
    "scheduling",
    "preempt",
    "speedup",
    "routing",
    "detour",
    "deadlock",
    "qps",
    "service",
    "setup-rtts",
    "handshake",
    "quantum",
    "mtu",
    "headers",
    "link-event",
    "until",
    "sample",
    "verify",
    "cc",
    "transport",
    "slack",
    "cap",
    "rto-low",
    "rto-high",
    "n",
    "pfc",
    "pfc-threshold",
    "xon",
    "pfc-alpha",
    "pfc-reserve",
    "pfc-resume",
    "pfc-headroom",
];

/// Keys that are parsed before the others, which depend on them.
const FIRST: [&str; 4] = ["topology", "pfc", "switch", "transport"];
/// The key that is parsed last: its limit depends on the others.
const LAST: &str = "xon";

/// Returns all keys in the order in which their values are parsed.
pub(super) fn in_reading_order() -> impl Iterator<Item = &'static Key> {
    let rest = KEYS.iter().copied().filter(|key| !FIRST.contains(&key.name()) && key.name() != LAST);
    FIRST.iter().filter_map(|name| find(name)).chain(rest).chain(find(LAST))
}

/// Returns the key with a name.
pub fn find(name: &str) -> Option<&'static Key> {
    CATEGORIES.iter().flat_map(|category| category.keys).find(|key| key.name() == name)
}
