//! What the paper prints, from `fixtures/reference/tlt.toml`.

use serde::Deserialize;

/// A number of the text, a table or Figure 15.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Point and metric.
    pub id: String,
    /// In the units of the metric.
    pub value: f64,
}

/// What the text says, and what is accepted as agreeing with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The point.
    pub over: String,
    /// The point by whose metric that of `over` is divided, if it is.
    pub under: Option<String>,
    /// The metric.
    pub metric: String,
    /// Smallest and largest value.
    pub range: [f64; 2],
    /// What the paper has.
    pub text: String,
}

/// The paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Numbers.
    pub number: Vec<Number>,
    /// Words of the paper.
    pub claim: Vec<Claim>,
}

/// Reads it.
pub fn tlt() -> Reference {
    toml::from_str(include_str!("../../../../fixtures/reference/tlt.toml")).expect("a fixture that a test reads")
}
