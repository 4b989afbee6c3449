//! Values of the paper and of its authors' committed results, and the bounds of a successful reproduction: from
//! `fixtures/reference/ndp.toml`.

use serde::{Deserialize, Serialize};

use crate::claims::{Claimed, Source};
use crate::words::Range;

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
    /// What is accepted as reproduction: words of the paper, or numbers of ours.
    pub accept: Option<Range>,
    /// Whose range that is.
    #[serde(default)]
    pub source: Source,
    /// Quotation from the paper, or origin of the bounds.
    pub text: Option<String>,
    /// Where that stands.
    pub place: Option<String>,
    /// What a parameter was fitted to, if the value shows that.
    pub fitted: Option<String>,
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
    pub accept: Option<Range>,
    /// See [`Number`].
    #[serde(default)]
    pub source: Source,
    /// See [`Number`].
    pub text: Option<String>,
    /// See [`Number`].
    pub place: Option<String>,
    /// See [`Number`].
    pub fitted: Option<String>,
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

/// Reference values and bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Said {
    /// Value of the paper.
    pub paper: Option<f64>,
    /// Value of the authors' committed results.
    pub authors: Option<f64>,
    /// Smallest and largest value accepted as reproduction.
    pub accept: Option<[f64; 2]>,
    /// The claim that these bounds are of.
    #[serde(flatten)]
    pub claimed: Option<Claimed>,
    /// What a parameter was fitted to, if the value shows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
}

#[cfg(test)]
impl From<Said> for crate::compared::Said {
    fn from(said: Said) -> crate::compared::Said {
        use crate::compared::Paper;
        let printed = said.paper.or(said.authors).map_or(Paper::Silent, Paper::Number);
        let paper = said.accept.map_or(printed, Paper::Range);
        crate::compared::Said { paper, claimed: said.claimed, fitted: said.fitted }
    }
}

/// Returns what is said of a cell.
macro_rules! said {
    ($of:expr) => {{
        let of = $of;
        let text = || of.text.clone().unwrap_or_default();
        let claimed = || Claimed { text: text(), place: of.place.clone(), source: of.source };
        Said {
            paper: of.paper,
            authors: of.authors,
            accept: of.accept.as_ref().map(|range| range.bounds),
            claimed: of.accept.is_some().then(claimed),
            fitted: of.fitted.clone(),
        }
    }};
}

impl Number {
    /// Returns what is said of the cell.
    pub fn said(&self) -> Said {
        said!(self)
    }
}

impl Comparison {
    /// Returns what is said of the cell.
    pub fn said(&self) -> Said {
        said!(self)
    }
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
