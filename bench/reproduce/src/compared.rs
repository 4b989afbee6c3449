//! Comparison of a paper's values with ours, the same for every paper.

use irnic_fabric::summary::mean_and_confidence;
use serde::Serialize;

use irnic_report::junit;

use crate::claims::{Answer, Claimed, Judged};

/// The value of the paper for a cell.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Paper {
    /// A number of a table.
    Number(f64),
    /// A claim in words, as the smallest and the largest value.
    Range([f64; 2]),
    /// None: not shown, or only in a figure.
    Silent,
}

/// The comparison of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Id of the cell.
    pub id: String,
    /// The value of the paper.
    pub paper: Paper,
    /// Mean over the seeds; `None` if a run has no result.
    pub ours: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean; `None` with one seed.
    pub confidence: Option<f64>,
    /// Our value over the paper's, if that is a number other than 0.
    pub ratio: Option<f64>,
    /// Whether our value agrees, if the paper has a claim or 0.
    pub answer: Option<Answer>,
    /// The claim.
    #[serde(flatten)]
    pub claimed: Option<Claimed>,
    /// What a parameter was fitted to, if this value shows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
}

/// What a paper says of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The value.
    pub paper: Paper,
    /// The claim.
    pub claimed: Option<Claimed>,
    /// What a parameter was fitted to, if the value shows that.
    pub fitted: Option<String>,
}

impl From<Paper> for Said {
    fn from(paper: Paper) -> Said {
        Said { paper, claimed: None, fitted: None }
    }
}

/// Returns the mean of values, one for each seed, and half of its 95 % confidence interval, which one value has not.
pub fn mean(values: Option<Vec<f64>>) -> (Option<f64>, Option<f64>) {
    let Some(values) = values.filter(|values| !values.is_empty()) else { return (None, None) };
    let (mean, confidence) = mean_and_confidence(&values);
    (Some(mean), (values.len() > 1).then_some(confidence))
}

impl Compared {
    /// Compares the values, one for each seed.
    pub fn new(id: &str, said: &Said, values: PerSeed) -> Compared {
        let values: Option<Vec<f64>> = values.into_iter().collect();
        let (ours, confidence) = mean(values);
        Compared::of(id, said, ours, confidence)
    }

    /// Compares a mean over seeds, ± half of its confidence interval.
    pub fn of(id: &str, said: &Said, ours: Option<f64>, confidence: Option<f64>) -> Compared {
        let half = confidence.unwrap_or(0.0);
        Compared {
            id: id.to_owned(),
            paper: said.paper,
            ours,
            confidence,
            ratio: match said.paper {
                Paper::Number(paper) if paper != 0.0 => ours.map(|o| o / paper),
                _ => None,
            },
            answer: match said.paper {
                Paper::Range(range) => ours.map(|o| Answer::of(o, half, range)),
                Paper::Number(0.0) => ours.map(|o| Answer::of(o, half, [0.0, 0.0])),
                _ => None,
            },
            claimed: said.claimed.clone(),
            fitted: said.fitted.clone(),
        }
    }
}

impl Judged for Compared {
    fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref()
    }

    fn fitted(&self) -> Option<&str> {
        self.fitted.as_deref()
    }

    fn answer(&self) -> Option<Answer> {
        self.answer
    }

    fn has_range(&self) -> bool {
        matches!(self.paper, Paper::Range(_))
    }

    fn number(&self) -> Option<[f64; 2]> {
        match self.paper {
            Paper::Number(printed) if printed != 0.0 => Some([printed, self.ours?]),
            _ => None,
        }
    }
}

impl From<&Compared> for junit::Case {
    fn from(cell: &Compared) -> junit::Case {
        let paper = match cell.paper {
            Paper::Number(paper) => format!("the paper has {paper}"),
            Paper::Range([least, most]) => format!("the paper has {least} to {most}"),
            Paper::Silent => "the paper says nothing".to_owned(),
        };
        judged(&cell.id, cell.ours, cell.confidence, &paper, cell.answer)
    }
}

/// Returns a cell as a test case, which is skipped if there are no bounds, a run has no result, or the seeds do not
/// decide.
pub fn judged(
    id: &str,
    ours: Option<f64>,
    confidence: Option<f64>,
    paper: &str,
    answer: Option<Answer>,
) -> junit::Case {
    let half = confidence.map_or_else(String::new, |half| format!(" (95 %: ± {half})"));
    let ours = ours.map_or_else(|| "no result".to_owned(), |ours| format!("ours is {ours}{half}"));
    let said = format!("{ours}, {paper}");
    let verdict = match answer {
        Some(Answer::Holds) => junit::Verdict::Passed,
        Some(Answer::Fails) => junit::Verdict::Failed(said.clone()),
        Some(Answer::Undecided) | None => junit::Verdict::Skipped(said.clone()),
    };
    junit::Case { name: id.to_owned(), verdict, output: said, took: None }
}

/// A value for each seed; `None` where a run has none.
pub type PerSeed = Vec<Option<f64>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn result(paper: Paper, values: &[Option<f64>]) -> Compared {
        Compared::new("a", &paper.into(), values.to_vec())
    }

    #[test]
    fn means_are_compared_with_the_papers_number_and_range() {
        let number = result(Paper::Number(4.0), &[Some(1.0), Some(3.0)]);
        assert_eq!((number.ours, number.ratio, number.answer), (Some(2.0), Some(0.5), None));
        assert!(number.confidence > Some(0.0) && result(Paper::Silent, &[Some(1.0)]).confidence.is_none());
        let range = result(Paper::Range([1.0, 1.75]), &[Some(0.5), Some(3.0)]);
        assert_eq!((range.ours, range.ratio, range.answer), (Some(1.75), None, Some(Answer::Undecided)));
        let none = [0.0, 1.0].map(|v| result(Paper::Number(0.0), &[Some(v)]));
        assert_eq!(none.map(|r| (r.ratio, r.answer)), [(None, Some(Answer::Holds)), (None, Some(Answer::Fails))]);
    }

    #[test]
    fn a_run_without_a_result_leaves_the_cell_without() {
        let cell = result(Paper::Range([0.0, 9.0]), &[Some(1.0), None]);
        assert_eq!((cell.ours, cell.confidence, cell.answer), (None, None, None));
        assert_eq!(result(Paper::Silent, &[]).ours, None);
    }
}
