//! What the paper says, what its authors' committed results say, and between which bounds a reproduction is one: from
//! `fixtures/reference/ndp.toml`.

use serde::Deserialize;

/// A cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Scenario and metric.
    pub id: String,
    /// What the paper has, in the units of the metric.
    pub paper: Option<f64>,
    /// What the authors' committed results have.
    pub authors: Option<f64>,
    /// Smallest and largest value that reproduces it.
    pub accept: Option<[f64; 2]>,
    /// Words of the paper, or where bounds come from.
    pub text: Option<String>,
}

/// A cell of two scenarios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The scenario whose metric is compared.
    pub over: String,
    /// The scenario with whose metric it is compared.
    pub under: String,
    /// The metric of both.
    pub metric: String,
    /// How.
    pub by: By,
    /// See [`Number`].
    pub paper: Option<f64>,
    /// See [`Number`].
    pub authors: Option<f64>,
    /// See [`Number`].
    pub accept: Option<[f64; 2]>,
    /// See [`Number`].
    pub text: Option<String>,
}

/// How two values are compared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// One over the other.
    Ratio,
    /// One less the other.
    Difference,
}

/// The paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Cells of one scenario.
    pub cell: Vec<Number>,
    /// Cells of two.
    pub compare: Vec<Comparison>,
}

/// Reads it.
pub fn ndp() -> Reference {
    toml::from_str(include_str!("../../../../fixtures/reference/ndp.toml")).expect("a fixture that a test reads")
}
