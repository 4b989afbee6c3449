//! What the paper prints, from `fixtures/reference/timely.toml`.

use serde::Deserialize;

/// A number of Table 1 or of the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Scenario and metric.
    pub id: String,
    /// In the units of the metric.
    pub value: f64,
}

/// What the text says of two scenarios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The scenario whose metric is divided.
    pub over: String,
    /// The scenario by whose metric it is divided.
    pub under: String,
    /// The metric of both.
    pub metric: String,
    /// Smallest and largest ratio of the two that it allows.
    pub range: [f64; 2],
    /// Words of the paper.
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
pub fn timely() -> Reference {
    toml::from_str(include_str!("../../../../fixtures/reference/timely.toml")).expect("a fixture that a test reads")
}
