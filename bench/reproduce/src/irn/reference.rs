//! Values printed in papers, from `fixtures/reference/`.

use serde::Deserialize;

use crate::claims::{Claimed, Source};
use crate::compared::{Paper, Said};
use crate::words::Range;

/// Three numbers: average slowdown, average FCT, 99th percentile of the FCT.
pub type Triple = [f64; 3];

/// A row of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Number of the table.
    pub table: String,
    /// Parameter varied in the row.
    pub label: String,
    /// Congestion control.
    pub cc: String,
    /// IRN without PFC; FCTs in seconds.
    pub irn: Triple,
    /// IRN over RoCE with PFC.
    pub over_roce_pfc: Triple,
    /// IRN over IRN with PFC.
    pub over_irn_pfc: Triple,
    /// What a parameter was fitted to, if the ratios over RoCE with PFC show that.
    pub fitted: Option<String>,
}

/// A claim in the text of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Figure, scenario, congestion control, and ratio.
    pub id: String,
    /// Metrics it applies to.
    pub metrics: Vec<String>,
    /// What is accepted: words of the paper, or numbers of ours. `None`: not shown by the paper.
    pub range: Option<Range>,
    /// Whose range that is.
    #[serde(default)]
    pub source: Source,
    /// Quotation from the paper.
    pub text: String,
    /// Where that stands.
    pub place: Option<String>,
}

impl Claim {
    /// Returns what it says of a cell.
    pub fn said(&self) -> Said {
        let Claim { text, place, source, .. } = self;
        let paper = self.range.as_ref().map_or(Paper::Silent, |range| Paper::Range(range.bounds));
        let claimed = Claimed { text: text.clone(), place: place.clone(), source: *source };
        Said { paper, claimed: Some(claimed), fitted: None }
    }
}

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Tables.
    pub row: Vec<Row>,
    /// Claims in text and figures.
    pub claim: Vec<Claim>,
}

/// The IRN chapter.
pub fn irn() -> Reference {
    toml::from_str(include_str!("../../../../fixtures/reference/irn.toml")).expect("a fixture that a test reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_irn_chapter_has_seven_tables_of_three_columns() {
        let reference = irn();
        for cc in ["no-cc", "timely", "dcqcn"] {
            let tables: Vec<&str> = reference.row.iter().filter(|r| r.cc == cc).map(|r| r.table.as_str()).collect();
            assert_eq!(tables.len(), 22, "{cc}");
        }
        // Six rows are the default case, with equal values.
        let defaults = reference.row.iter().filter(|r| r.cc == "no-cc" && r.irn == [8.24, 0.0009, 0.0153]);
        assert_eq!(defaults.filter(|r| r.over_roce_pfc == [0.269, 0.350, 0.301]).count(), 7);
        for claim in &reference.claim {
            assert_eq!(claim.id.split('/').count(), 4);
            let claimed = claim.said().claimed.expect("a claim");
            claim.range.iter().for_each(|range| claimed.check(range));
        }
    }
}
