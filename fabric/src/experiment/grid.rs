//! Grids: several values for some keys, and the cases that result from all combinations.

use std::collections::BTreeMap;

use irnic_units::keys::{Value, ValueError};

use super::keys::{KEYS, Key, find, in_reading_order};
use super::{Experiment, Extensions, Origin, TextError, Written};

/// Values by key; a key with several values spans a grid.
pub type Values = BTreeMap<&'static str, Vec<Written>>;

/// A run of a file: its name, and its own values.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Name in tables. By default the name is derived from the values that differ.
    pub name: Option<String>,
    /// Values that override the common ones.
    pub values: Values,
}

/// All runs of an experiment, without seeds.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// Values for all runs.
    pub common: Values,
    /// Runs; an empty list is a single run without values of its own.
    pub runs: Vec<Run>,
}

/// One point of the grid.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name.
    pub label: String,
    values: BTreeMap<&'static str, Written>,
}

/// Maximum number of cases of one experiment.
const MAX_CASES: usize = 10_000;

impl Case {
    /// Returns a case without written values: one that a program describes.
    pub fn named(label: String) -> Case {
        Case { label, values: BTreeMap::new() }
    }

    /// Returns the experiment that the values describe.
    pub fn experiment(&self) -> Result<Experiment, TextError> {
        self.experiment_with(&Extensions::default())
    }

    /// Returns the experiment that the values describe, which may name extensions.
    pub fn experiment_with(&self, extensions: &Extensions) -> Result<Experiment, TextError> {
        self.read_before(None, extensions)
    }

    /// Reads the values of the keys before `end`, or of all.
    fn read_before(&self, end: Option<&str>, extensions: &Extensions) -> Result<Experiment, TextError> {
        let texts = self.values.iter().map(|(key, written)| (*key, written.text.clone()));
        let (written, extensions) = (Some(texts.collect()), extensions.clone());
        let mut experiment = Experiment { written, extensions, ..Experiment::default() };
        let known = experiment.extensions.clone();
        for key in in_reading_order().take_while(|key| Some(key.name()) != end) {
            let Some(written) = self.given(key.name()) else { continue };
            let fits = |part: &Value<'_>| {
                let before = self.read_before(Some(key.name()), &known);
                before.is_ok_and(|mut experiment| key.set(&mut experiment, part).is_ok())
            };
            key.set(&mut experiment, &written.value()).map_err(|error| {
                if error.key == key.name() { written.error(error.why, fits) } else { self.error(error) }
            })?;
        }
        Ok(experiment)
    }

    /// Returns an error of the experiment together with the place at which the value was written.
    pub fn error(&self, error: ValueError) -> TextError {
        match self.get(&error.key) {
            Some(written) => TextError::Value { written, why: error.why },
            None => {
                let key = find(&error.key).map_or("experiment", Key::name);
                TextError::Value {
                    written: Written { key, text: error.value, origin: Origin::Default },
                    why: error.why,
                }
            }
        }
    }

    /// Returns the value of a key, or its default.
    pub fn get(&self, name: &str) -> Option<Written> {
        self.given(name).cloned().or_else(|| {
            let key = find(name)?;
            Some(Written { key: key.name(), text: key.default?.to_owned(), origin: Origin::Default })
        })
    }

    /// Returns the text of the value of a key that has a default.
    ///
    /// # Panics
    /// If the key has none.
    pub fn text(&self, name: &str) -> String {
        self.get(name).expect("a key with a default").text
    }

    /// Returns the value of a key if it was given.
    pub fn given(&self, name: &str) -> Option<&Written> {
        self.values.get(name)
    }

    /// Returns all keys and values, including defaults.
    pub fn all(&self) -> impl Iterator<Item = Written> {
        KEYS.iter().filter_map(|k| self.get(k.name()))
    }
}

impl Grid {
    /// Overrides the values of a file in all its runs by flags.
    pub fn override_with(&mut self, flags: Values) {
        for (key, values) in flags {
            // There are two keys for what is sent: a flag overrides the other one as well.
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

    /// Returns every combination.
    pub fn cases(&self) -> Result<Vec<Case>, TextError> {
        let alone = [Run::default()];
        let runs = if self.runs.is_empty() { &alone[..] } else { &self.runs };
        let mut cases = Vec::new();
        for run in runs {
            let mut values = self.common.clone();
            values.extend(run.values.clone());
            let n = values.values().try_fold(1usize, |n, v| n.checked_mul(v.len())).unwrap_or(usize::MAX);
            if n.saturating_add(cases.len()) > MAX_CASES {
                return Err(TextError::TooManyCases(MAX_CASES));
            }
            cases.extend((0..n).map(|at| {
                let mut rest = at;
                let mut case = Case { label: String::new(), values: BTreeMap::new() };
                for key in KEYS.iter().rev() {
                    if let Some(list) = values.get(key.name()) {
                        case.values.insert(key.name(), list[rest % list.len()].clone());
                        rest /= list.len();
                    }
                }
                if let Some(name) = &run.name {
                    let several = |k: &Key| values.get(k.name()).is_some_and(|list| list.len() > 1);
                    case.label = [name.clone(), label(&case, &several)].join(" ").trim().to_owned();
                }
                case
            }));
        }
        name(&mut cases);
        Ok(cases)
    }
}

/// Names a case by its particular values.
fn label(case: &Case, particular: &dyn Fn(&Key) -> bool) -> String {
    let parts = KEYS.iter().filter(|k| particular(k)).filter_map(|k| {
        let text = case.get(k.name())?.text;
        Some(if k.bare { text } else { format!("{}={text}", k.name()) })
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Names the unnamed cases by the values that differ.
fn name(cases: &mut [Case]) {
    let differs =
        |k: &Key| cases.iter().any(|c| c.get(k.name()).map(|v| v.text) != cases[0].get(k.name()).map(|v| v.text));
    let differing: Vec<&str> = KEYS.iter().filter(|k| differs(k)).map(|k| k.name()).collect();
    let usual = |k: &Key| {
        if differing.is_empty() { ["transport", "pfc"].contains(&k.name()) } else { differing.contains(&k.name()) }
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
        let value = |key, text: &&str| Written::flag(key, text);
        pairs.iter().map(|(key, texts)| (*key, texts.iter().map(|t| value(key, t)).collect())).collect()
    }

    fn labels(settings: &Grid) -> Vec<String> {
        settings.cases().unwrap().into_iter().map(|c| c.label).collect()
    }

    #[test]
    fn several_values_make_a_grid_and_name_it() {
        let common = values(&[("load", &["0.5", "0.7"]), ("transport", &["irn", "roce"]), ("mtu", &["1024"])]);
        let settings = Grid { common, runs: Vec::new() };
        assert_eq!(labels(&settings), ["load=0.5 irn", "load=0.5 roce", "load=0.7 irn", "load=0.7 roce"]);
        assert_eq!(labels(&Grid::default()), ["irn pfc=off"]);
    }

    #[test]
    fn runs_replace_what_is_common() {
        let run = |name: Option<&str>, pairs| Run { name: name.map(str::to_owned), values: values(pairs) };
        let mut settings = Grid {
            common: values(&[("load", &["0.7"]), ("pfc", &["off"])]),
            runs: vec![
                run(Some("IRN"), &[("load", &["0.5", "0.9"])]),
                run(None, &[("transport", &["roce"]), ("pfc", &["on"])]),
            ],
        };
        assert_eq!(labels(&settings), ["IRN load=0.5", "IRN load=0.9", "load=0.7 roce pfc=on"]);
        settings.override_with(values(&[("load", &["0.1"])]));
        assert_eq!(labels(&settings), ["IRN", "roce pfc=on"]);
        assert!(settings.cases().unwrap().iter().all(|c| c.text("load") == "0.1"));
    }

    #[test]
    fn a_flag_for_flows_replaces_a_workload() {
        let mut settings = Grid { common: values(&[("workload", &["incast"])]), runs: Vec::new() };
        settings.override_with(values(&[("flows", &["f.txt"])]));
        let case = &settings.cases().unwrap()[0];
        assert!(case.given("workload").is_none() && case.given("flows").is_some());
    }

    #[test]
    fn equal_cases_are_told_apart() {
        let run = Run { name: Some("a".into()), values: Values::new() };
        assert_eq!(labels(&Grid { common: Values::new(), runs: vec![run.clone(), run] }), ["a", "a #2"]);
    }
}
