//! What a run is described by: keys with values as users write them, from flags and from an experiment file, and the grid that
//! several values of a key make. What the values mean is [`super::scenario`]'s business.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::SimError;

/// A key, its name being both the flag and the key in a file.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it is without, if that does not follow from other keys.
    pub default: Option<&'static str>,
    /// In the name of a case the value says enough.
    bare: bool,
}

const fn key(name: &'static str) -> Key {
    Key { name, default: None, bare: false }
}

const fn with_default(name: &'static str, default: &'static str) -> Key {
    Key { name, default: Some(default), bare: false }
}

const fn bare(name: &'static str, default: &'static str) -> Key {
    Key { name, default: Some(default), bare: true }
}

/// All keys, in the order in which a grid is gone through: the last changes fastest. Defaults are the IRN paper's default case
/// (dissertation §4.3.1); those of shared buffers are ConWeave's and HPCC's.
pub const KEYS: [Key; 35] = [
    bare("topology", "fat-tree:k=6,rate=40G,delay=2us"),
    bare("workload", "irn-heavy"),
    key("flows"),
    with_default("load", "0.7"),
    key("duration"),
    key("flows-count"),
    with_default("priority", "0"),
    with_default("switch", "input-queued"),
    key("buffer"),
    key("alpha"),
    key("ecn"),
    with_default("scheduling", "strict"),
    key("speedup"),
    with_default("routing", "ecmp"),
    with_default("qps", "per-flow"),
    with_default("quantum", "1"),
    with_default("mtu", "1024"),
    with_default("headers", "real"),
    key("link-event"),
    key("until"),
    key("sample"),
    with_default("verify", "off"),
    key("cc"),
    bare("transport", "irn"),
    key("cap"),
    key("rto-low"),
    key("rto-high"),
    key("n"),
    with_default("pfc", "off"),
    key("pfc-threshold"),
    key("xon"),
    key("pfc-alpha"),
    key("pfc-reserve"),
    key("pfc-resume"),
    key("pfc-headroom"),
];

/// The key with a name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// On the command line.
    Flag,
    /// In a file.
    Line(Arc<PathBuf>, usize),
}

/// A value as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Key.
    pub key: &'static str,
    /// Text.
    pub text: String,
    /// Where.
    pub origin: Origin,
}

impl Value {
    /// An error about it: what was `expected` instead.
    pub fn wrong(&self, expected: impl fmt::Display) -> SimError {
        let Value { key, text, .. } = self;
        match &self.origin {
            Origin::Line(path, line) => {
                SimError::Usage(format!("{}:{line}: {key} = \"{text}\": expected {expected}", path.display()))
            }
            _ => SimError::Usage(format!("--{key} {text}: expected {expected}")),
        }
    }

    /// An error about it in words of its own.
    pub fn refuse(&self, why: impl fmt::Display) -> SimError {
        match &self.origin {
            Origin::Line(path, line) => SimError::Usage(format!("{}:{line}: {}: {why}", path.display(), self.key)),
            _ => SimError::Usage(format!("--{}: {why}", self.key)),
        }
    }

    /// Reads it.
    pub fn read<T>(&self, read: impl Fn(&str) -> Option<T>, expected: impl fmt::Display) -> Result<T, SimError> {
        read(&self.text).ok_or_else(|| {
            let values: Vec<&str> = self.text.split(',').map(str::trim).collect();
            if values.len() > 1 && values.iter().all(|value| read(value).is_some()) {
                self.wrong(format!("one value; several are {}", self.several(&values)))
            } else {
                self.wrong(expected)
            }
        })
    }

    /// How several values are written.
    fn several(&self, values: &[&str]) -> String {
        let key = self.key;
        match self.origin {
            Origin::Line(..) => format!("{key} = [\"{}\"]", values.join("\", \"")),
            _ => values.iter().map(|value| format!("--{key} {value}")).collect::<Vec<_>>().join(" "),
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, SimError> {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let found = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.read(found, all.join(" or "))
    }

    /// `on` or `off`.
    pub fn switch(&self) -> Result<bool, SimError> {
        self.word(&[("on", true), ("off", false)])
    }
}

/// Values of keys; several make a grid.
pub type Values = BTreeMap<&'static str, Vec<Value>>;

/// A run in a file: its name, and what it has of its own.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What it is called in tables, if not by what it has that others have not.
    pub name: Option<String>,
    /// Instead of the common ones.
    pub values: Values,
}

/// All that is to be run, apart from seeds.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// For all runs.
    pub common: Values,
    /// Runs; none is one without anything of its own.
    pub runs: Vec<Run>,
}

/// One point of the grid.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called.
    pub label: String,
    values: BTreeMap<&'static str, Value>,
}

/// The most cases of one experiment.
const MAX_CASES: usize = 10_000;

impl Case {
    /// One that does not come from a user. Keys that there are.
    pub fn of(label: String, values: Vec<(&'static str, String)>) -> Case {
        let value = |(key, text)| (key, Value { key, text, origin: Origin::Default });
        Case { label, values: values.into_iter().map(value).collect() }
    }

    /// The value of a key, which may be its default.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.given(name).cloned().or_else(|| {
            let key = find(name)?;
            Some(Value { key: key.name, text: key.default?.to_owned(), origin: Origin::Default })
        })
    }

    /// The value of a key that has a default.
    pub fn value(&self, name: &str) -> Value {
        self.get(name).expect("a key with a default")
    }

    /// The value of a key if somebody wrote one.
    pub fn given(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Keys and values, defaults too.
    pub fn all(&self) -> impl Iterator<Item = Value> {
        KEYS.iter().filter_map(|k| self.get(k.name))
    }
}

impl Settings {
    /// Flags replace what a file says, in all its runs.
    pub fn override_with(&mut self, flags: Values) {
        for (key, values) in flags {
            // Two ways to say what is sent: the flag replaces the other one, too.
            let other = match key {
                "flows" => Some("workload"),
                "workload" => Some("flows"),
                _ => None,
            };
            for of_run in std::iter::once(&mut self.common).chain(self.runs.iter_mut().map(|r| &mut r.values)) {
                of_run.remove(key);
                other.and_then(|other| of_run.remove(other));
            }
            self.common.insert(key, values);
        }
    }

    /// Every combination.
    pub fn cases(&self) -> Result<Vec<Case>, SimError> {
        let alone = [Run::default()];
        let runs = if self.runs.is_empty() { &alone[..] } else { &self.runs };
        let mut cases = Vec::new();
        for run in runs {
            let mut values = self.common.clone();
            values.extend(run.values.clone());
            let n = values.values().try_fold(1usize, |n, v| n.checked_mul(v.len())).unwrap_or(usize::MAX);
            if n.saturating_add(cases.len()) > MAX_CASES {
                return Err(SimError::Usage(format!("more than {MAX_CASES} combinations of values")));
            }
            cases.extend((0..n).map(|at| {
                let mut rest = at;
                let mut case = Case { label: String::new(), values: BTreeMap::new() };
                for key in KEYS.iter().rev() {
                    if let Some(list) = values.get(key.name) {
                        case.values.insert(key.name, list[rest % list.len()].clone());
                        rest /= list.len();
                    }
                }
                if let Some(name) = &run.name {
                    let several = |k: &Key| values.get(k.name).is_some_and(|list| list.len() > 1);
                    case.label = [name.clone(), label(&case, &several)].join(" ").trim().to_owned();
                }
                case
            }));
        }
        name(&mut cases);
        Ok(cases)
    }
}

/// What is particular to a case.
fn label(case: &Case, particular: &dyn Fn(&Key) -> bool) -> String {
    let parts = KEYS.iter().filter(|k| particular(k)).filter_map(|k| {
        let text = case.get(k.name)?.text;
        Some(if k.bare { text } else { format!("{}={text}", k.name) })
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Names those that have none by what differs.
fn name(cases: &mut [Case]) {
    let differs = |k: &Key| cases.iter().any(|c| c.get(k.name).map(|v| v.text) != cases[0].get(k.name).map(|v| v.text));
    let differing: Vec<&str> = KEYS.iter().filter(|k| differs(k)).map(|k| k.name).collect();
    let usual = |k: &Key| {
        if differing.is_empty() { ["transport", "pfc"].contains(&k.name) } else { differing.contains(&k.name) }
    };
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for case in cases {
        if case.label.is_empty() {
            case.label = label(case, &usual);
        }
        let times = seen.entry(case.label.clone()).or_default();
        *times += 1;
        if *times > 1 {
            case.label = format!("{} #{times}", case.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&'static str, &[&str])]) -> Values {
        let value = |key, text: &&str| Value { key, text: (*text).to_owned(), origin: Origin::Flag };
        pairs.iter().map(|(key, texts)| (*key, texts.iter().map(|t| value(key, t)).collect())).collect()
    }

    fn labels(settings: &Settings) -> Vec<String> {
        settings.cases().unwrap().into_iter().map(|c| c.label).collect()
    }

    #[test]
    fn several_values_make_a_grid_and_name_it() {
        let common = values(&[("load", &["0.5", "0.7"]), ("transport", &["irn", "roce"]), ("mtu", &["1024"])]);
        let settings = Settings { common, runs: Vec::new() };
        assert_eq!(labels(&settings), ["load=0.5 irn", "load=0.5 roce", "load=0.7 irn", "load=0.7 roce"]);
        assert_eq!(labels(&Settings::default()), ["irn pfc=off"]);
    }

    #[test]
    fn runs_replace_what_is_common() {
        let run = |name: Option<&str>, pairs| Run { name: name.map(str::to_owned), values: values(pairs) };
        let mut settings = Settings {
            common: values(&[("load", &["0.7"]), ("pfc", &["off"])]),
            runs: vec![
                run(Some("IRN"), &[("load", &["0.5", "0.9"])]),
                run(None, &[("transport", &["roce"]), ("pfc", &["on"])]),
            ],
        };
        assert_eq!(labels(&settings), ["IRN load=0.5", "IRN load=0.9", "load=0.7 roce pfc=on"]);
        settings.override_with(values(&[("load", &["0.1"])]));
        assert_eq!(labels(&settings), ["IRN", "roce pfc=on"]);
        assert!(settings.cases().unwrap().iter().all(|c| c.value("load").text == "0.1"));
    }

    #[test]
    fn a_flag_for_flows_replaces_a_workload() {
        let mut settings = Settings { common: values(&[("workload", &["incast"])]), runs: Vec::new() };
        settings.override_with(values(&[("flows", &["f.txt"])]));
        let case = &settings.cases().unwrap()[0];
        assert!(case.given("workload").is_none() && case.given("flows").is_some());
    }

    #[test]
    fn equal_cases_are_told_apart() {
        let run = Run { name: Some("a".into()), values: Values::new() };
        assert_eq!(labels(&Settings { common: Values::new(), runs: vec![run.clone(), run] }), ["a", "a #2"]);
    }
}
