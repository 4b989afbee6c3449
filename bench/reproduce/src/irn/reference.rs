//! Values printed in papers, from `fixtures/reference/`.

use serde::Deserialize;

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
}

/// A claim in the text of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Figure, scenario, congestion control, and ratio.
    pub id: String,
    /// Metrics it applies to.
    pub metrics: Vec<String>,
    /// Smallest and largest ratio allowed by the claim; equal if it names a single one. `None`: not shown by the paper.
    pub range: Option<[f64; 2]>,
    /// Quotation from the paper.
    pub text: String,
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
        assert!(reference.claim.iter().all(|c| c.range.is_none_or(|r| r[0] <= r[1]) && c.id.split('/').count() == 4));
    }
}
