//! Values of the paper and of its authors' committed results, and the bounds of a successful reproduction: from
//! `fixtures/reference/ndp.toml`.

use serde::Deserialize;

/// A cell of one scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Id: scenario and metric.
    pub id: String,
    /// Value of the paper, in the units of the metric.
    pub paper: Option<f64>,
    /// Value of the authors' committed results.
    pub authors: Option<f64>,
    /// Smallest and largest value accepted as reproduction.
    pub accept: Option<[f64; 2]>,
    /// Quotation from the paper, or origin of the bounds.
    pub text: Option<String>,
}

/// A cell that compares two scenarios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The first scenario.
    pub over: String,
    /// The scenario that it is compared with.
    pub under: String,
    /// The metric of both.
    pub metric: String,
    /// The operation.
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

/// Comparison of two values.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// One over the other.
    Ratio,
    /// One less the other.
    Difference,
}

/// The reference values of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Cells of one scenario.
    pub cell: Vec<Number>,
    /// Cells of two.
    pub compare: Vec<Comparison>,
}

/// Parses the file.
pub fn ndp() -> Reference {
    toml::from_str(include_str!("../../../../fixtures/reference/ndp.toml")).expect("a fixture that a test reads")
}
