//! Points of a paper's evaluation, combined with its reference: for papers whose reference has numbers and claims.

use std::borrow::Cow;
use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claims::{Claimed, Source};
use crate::compared::{Compared, Paper, PerSeed, Said};
use crate::evaluation::Entry;
use crate::words::Range;

/// A number that a paper prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Id: point and metric.
    pub id: String,
    /// Value, in the units of the metric.
    pub value: f64,
    /// What a parameter was fitted to, if this number shows that.
    pub fitted: Option<String>,
}

/// A claim of the text about one or two points, and the range accepted as agreement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The point.
    pub over: String,
    /// The point by whose value that of `over` is divided, if any.
    pub under: Option<String>,
    /// The metric.
    pub metric: String,
    /// What is accepted: words of the paper, or numbers of ours.
    pub range: Range,
    /// Whose range that is.
    #[serde(default)]
    pub source: Source,
    /// Quotation from the paper.
    pub text: String,
    /// Where that stands.
    pub place: Option<String>,
    /// What a parameter was fitted to, if the claim shows that.
    pub fitted: Option<String>,
}

impl Claim {
    /// Returns what it says of a cell.
    pub fn said(&self) -> Said {
        let Claim { text, place, source, .. } = self;
        let claimed = Claimed { text: text.clone(), place: place.clone(), source: *source };
        Said { paper: Paper::Range(self.range.bounds), claimed: Some(claimed), fitted: self.fitted.clone() }
    }
}

/// The reference values of a paper, from a file of `fixtures/reference/`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Numbers.
    pub number: Vec<Number>,
    /// Claims.
    pub claim: Vec<Claim>,
}

impl Reference {
    /// Parses a file, which a test parses as well.
    pub fn read(text: &str) -> Reference {
        toml::from_str(text).expect("a fixture that a test reads")
    }
}

/// A metric of a run.
pub trait Metric: Copy + 'static {
    /// Type of the run's results.
    type Run;

    /// Returns the name in cells.
    fn name(self) -> Cow<'static, str>;

    /// Returns the metric with a name.
    fn named(name: &str) -> Option<Self>;

    /// Returns its value; `None` if the run does not have it.
    fn of(self, run: &Self::Run) -> Option<f64>;

    /// Returns its values in two runs with the same seed that are compared.
    fn of_both(self, over: &Self::Run, under: &Self::Run) -> Option<[f64; 2]> {
        Some([self.of(over)?, self.of(under)?])
    }
}

/// A scenario with its name, and its metrics that have cells.
pub struct Point<S, M: 'static>(pub String, pub S, pub &'static [M]);

/// A cell of the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell<S, M> {
    /// Id: `table1/timely/avg_rtt`.
    pub id: String,
    /// What the paper says.
    pub said: Said,
    /// The scenario, and the one to divide by.
    pub scenarios: (S, Option<S>),
    /// The metric.
    pub metric: M,
}

impl<S, M> Entry for Cell<S, M>
where
    S: Clone + Debug + PartialEq + Sync,
    M: Metric<Run: Serialize + DeserializeOwned + Send>,
{
    type Scenario = S;
    type Run = M::Run;
    type Result = Compared;

    fn id(&self) -> &str {
        &self.id
    }

    fn needed(&self) -> impl Iterator<Item = &S> {
        let (over, under) = &self.scenarios;
        std::iter::once(over).chain(under)
    }

    fn result<'a>(&self, runs: impl Fn(&S) -> Vec<Option<&'a M::Run>>) -> Compared
    where
        M::Run: 'a,
    {
        let (over, under) = &self.scenarios;
        let values: PerSeed = match under {
            None => runs(over).into_iter().map(|run| self.metric.of(run?)).collect(),
            Some(under) => {
                let ratio = |(over, under): (Option<_>, Option<_>)| {
                    let [over, under] = self.metric.of_both(over?, under?)?;
                    Some(over / under)
                };
                runs(over).into_iter().zip(runs(under)).map(ratio).collect()
            }
        };
        Compared::new(&self.id, &self.said, values)
    }
}

/// Returns the cells of all points, and those of the paper's claims.
pub fn cells<S: Clone, M: Metric>(points: &[Point<S, M>], reference: &Reference) -> Vec<Cell<S, M>> {
    let mut cells = Vec::new();
    for Point(name, scenario, metrics) in points {
        for &metric in *metrics {
            let id = format!("{name}/{}", metric.name());
            let number = reference.number.iter().find(|n| n.id == id);
            let paper = number.map_or(Paper::Silent, |n| Paper::Number(n.value));
            let said = Said { fitted: number.and_then(|n| n.fitted.clone()), ..paper.into() };
            cells.push(Cell { id, said, scenarios: (scenario.clone(), None), metric });
        }
    }
    for claim in &reference.claim {
        let named = |name: &str| points.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        let (Some(over), Some(metric)) = (named(&claim.over), M::named(&claim.metric)) else { continue };
        let to = claim.under.as_deref().map(|to| to.split_once('/').map_or(to, |(_, of)| of));
        let suffix = to.map_or(String::new(), |to| format!("-over-{}", to.replace('/', "-")));
        let Ok(under) = claim.under.as_deref().map(|name| named(name).ok_or(())).transpose() else { continue };
        cells.push(Cell {
            id: format!("{}{suffix}/{}", claim.over, metric.name()),
            said: claim.said(),
            scenarios: (over, under),
            metric,
        });
    }
    cells
}

/// Returns what a paper says of cells, by their ids.
#[cfg(test)]
pub fn said<S, M>(cells: Vec<Cell<S, M>>) -> Vec<(String, Said)> {
    cells.into_iter().map(|cell| (cell.id, cell.said)).collect()
}

/// Panics if a number or a claim of the reference has no cell, or if two cells of the points have the same id.
#[cfg(test)]
pub fn check<S, M>(cells: &[Cell<S, M>], reference: &Reference) {
    for number in &reference.number {
        let cell = cells.iter().find(|c| c.id == number.id).unwrap_or_else(|| panic!("no {}", number.id));
        assert_eq!(cell.said.paper, Paper::Number(number.value));
    }
    let claims: Vec<&Cell<S, M>> = cells.iter().filter(|c| c.said.claimed.is_some()).collect();
    assert_eq!(claims.len(), reference.claim.len());
    for (claim, cell) in reference.claim.iter().zip(claims) {
        assert_eq!(claim.under.is_some(), cell.scenarios.1.is_some(), "{claim:?}");
        cell.said.claimed.iter().for_each(|claimed| claimed.check(&claim.range));
    }
    let mut ids: Vec<&str> = cells.iter().filter(|c| c.said.claimed.is_none()).map(|c| c.id.as_str()).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|w| w[0] != w[1]), "{ids:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Copy, Clone, Debug, PartialEq)]
    struct Twice;

    impl Metric for Twice {
        type Run = f64;

        fn name(self) -> Cow<'static, str> {
            "twice".into()
        }

        fn named(name: &str) -> Option<Twice> {
            (name == "twice").then_some(Twice)
        }

        fn of(self, run: &f64) -> Option<f64> {
            Some(2.0 * run)
        }
    }

    #[test]
    fn claims_become_cells_of_one_scenario_or_two_and_are_left_out_if_there_is_none() {
        let points = [Point("a/x".to_owned(), 1, &[Twice][..]), Point("b/y/z".to_owned(), 3, &[])];
        let claim = |over: &str, under: Option<&str>| Claim {
            over: over.to_owned(),
            under: under.map(str::to_owned),
            metric: "twice".to_owned(),
            range: Range { bounds: [0.0, 5.0], words: None },
            source: Source::Ours,
            text: String::new(),
            place: None,
            fitted: None,
        };
        let number = vec![Number { id: "a/x/twice".to_owned(), value: 4.0, fitted: None }];
        let known = vec![claim("a/x", Some("b/y/z")), claim("b/y/z", None)];
        let reference = Reference { number, claim: known };
        let all = cells(&points, &reference);
        check(&all, &reference);
        let ids: Vec<&str> = all.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["a/x/twice", "a/x-over-y-z/twice", "b/y/z/twice"]);
        let runs = |scenario: &i32| vec![Some(if *scenario == 1 { &6.0 } else { &4.0 })];
        let ours: Vec<Option<f64>> = all.iter().map(|c| c.result(runs).ours).collect();
        assert_eq!(ours, [Some(12.0), Some(1.5), Some(8.0)]);
        // Ratios are formed for each seed: 1/2 and 3/1, not 4/3.
        let seeds =
            |scenario: &i32| if *scenario == 1 { vec![Some(&1.0), Some(&3.0)] } else { vec![Some(&2.0), Some(&1.0)] };
        assert_eq!(all[1].result(seeds).ours, Some(1.75));
        let unknown = Reference { number: Vec::new(), claim: vec![claim("c", None), claim("a/x", Some("c"))] };
        assert_eq!(cells(&points, &unknown).len(), 1, "the point's own");
    }
}
