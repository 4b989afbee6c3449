//! Cells of the IRN chapter: how each is computed, and the value of the paper.

use irnic_fabric::summary::Summary;

use super::reference::Reference;
use super::scenario::{Cc, Scenario, System};
use crate::compared::{Compared, Paper, PerSeed};

/// A cell of the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Id: `table4.2/70%/no-cc/irn/avg_slowdown`.
    pub id: String,
    /// The value of the paper.
    pub paper: Paper,
    /// Conditions under which systems are compared.
    pub scenario: Scenario,
    /// The system, and the one to divide by.
    pub systems: (System, Option<System>),
    /// The metric.
    pub metric: Metric,
    /// Quotation from the paper, for a claim.
    pub text: Option<String>,
}

/// A metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Average slowdown.
    AvgSlowdown,
    /// Average FCT, s.
    AvgFct,
    /// 99th percentile of the FCT, s.
    P99Fct,
    /// 95th percentile of the FCT of single-packet messages, s.
    P95Single,
    /// 99th percentile of the FCT of single-packet messages, s.
    P99Single,
    /// 99.9th percentile of the FCT of single-packet messages, s.
    P999Single,
    /// Time at which the last flow of an incast is complete, s.
    Completion,
}

impl Metric {
    const ALL: [(&'static str, Metric); 7] = [
        ("avg_slowdown", Metric::AvgSlowdown),
        ("avg_fct", Metric::AvgFct),
        ("p99_fct", Metric::P99Fct),
        ("p95_single_packet", Metric::P95Single),
        ("p99_single_packet", Metric::P99Single),
        ("p999_single_packet", Metric::P999Single),
        ("completion", Metric::Completion),
    ];

    /// The metrics of the tables, in order.
    pub const TABLE: [Metric; 3] = [Metric::AvgSlowdown, Metric::AvgFct, Metric::P99Fct];

    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, m)| *m == self).map_or("", |(name, _)| name)
    }

    fn named(name: &str) -> Option<Metric> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
    }

    /// The value of a run in which all flows are complete. `class`: of this class of flows only.
    fn of(self, summary: &Summary, class: Option<usize>) -> Option<f64> {
        let group = match class {
            None => &summary.all,
            Some(class) => summary.by_class.get(class)?,
        };
        let single = || summary.by_size.first().map(|bucket| &bucket.group.fct).filter(|fct| fct.count > 0);
        let ns = 1e-9;
        Some(match self {
            Metric::AvgSlowdown => group.slowdown.mean,
            Metric::AvgFct => group.fct.mean * ns,
            Metric::P99Fct => group.fct.p99 * ns,
            Metric::P95Single => single()?.p95 * ns,
            Metric::P99Single => single()?.p99 * ns,
            Metric::P999Single => single()?.p999 * ns,
            Metric::Completion => group.fct.max * ns,
        })
    }
}

impl Cell {
    /// The class of flows that the metric refers to, for workloads with several parts.
    fn class(&self) -> Option<usize> {
        let parts = self.scenario.workload.parts.len() > 1;
        parts.then(|| usize::from(self.metric == Metric::Completion))
    }

    /// Computes the value from the runs of a scenario and a system, one for each seed.
    pub fn result<'a>(&self, runs: impl Fn(&Scenario, System) -> Vec<Option<&'a Summary>>) -> Compared {
        let of = |system| -> PerSeed {
            let each = runs(&self.scenario, system).into_iter();
            each.map(|summary| self.metric.of(summary?, self.class())).collect()
        };
        // Both have the same flows: each pair gives a ratio.
        let (over, under) = self.systems;
        Compared::new(&self.id, self.paper, self.text.as_deref(), of(over), under.map(of))
    }

    /// Returns the systems that it needs.
    pub fn needed(&self) -> impl Iterator<Item = System> + use<> {
        let (over, under) = self.systems;
        std::iter::once(over).chain(under)
    }
}

/// All cells of the IRN chapter; rows and figures are variations of the default case.
pub fn irn(reference: &Reference, default: &Scenario) -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in &reference.row {
        let table = format!("table{}", row.table);
        let (Some(scenario), Some(cc)) = (Scenario::named(&table, &row.label, default), Cc::named(&row.cc)) else {
            continue;
        };
        let scenario = Scenario { cc, ..scenario };
        for (name, values, under) in [
            ("irn", row.irn, None),
            ("irn-over-roce-pfc", row.over_roce_pfc, Some(System::RocePfc)),
            ("irn-over-irn-pfc", row.over_irn_pfc, Some(System::IrnPfc)),
        ] {
            for (metric, value) in Metric::TABLE.into_iter().zip(values) {
                cells.push(Cell {
                    id: format!("{table}/{}/{}/{name}/{}", row.label, row.cc, metric.name()),
                    paper: Paper::Number(value),
                    scenario: scenario.clone(),
                    systems: (System::Irn, under),
                    metric,
                    text: None,
                });
            }
        }
    }
    for claim in &reference.claim {
        let parts: Vec<&str> = claim.id.split('/').collect();
        let [figure, label, cc, ratio] = parts[..] else { continue };
        let systems = ratio.split_once("-over-").map(|(a, b)| (System::named(a), System::named(b)));
        let scenario = Scenario::named(figure, label, default);
        let (Some((Some(over), under)), Some(scenario), Some(cc)) = (systems, scenario, Cc::named(cc)) else {
            continue;
        };
        let scenario = Scenario { cc, ..scenario };
        for metric in claim.metrics.iter().filter_map(|m| Metric::named(m)) {
            cells.push(Cell {
                id: format!("{}/{}", claim.id, metric.name()),
                paper: match claim.range {
                    None => Paper::Silent,
                    Some([least, most]) if least == most => Paper::Number(least),
                    Some(range) => Paper::Range(range),
                },
                scenario: scenario.clone(),
                systems: (over, under),
                metric,
                text: Some(claim.text.clone()),
            });
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_of_the_fixture_is_left_out() {
        let reference = super::super::reference::irn();
        let cells = irn(&reference, &Scenario::default_case(&super::super::scenario::WORKLOAD.parse().unwrap(), 1));
        let claims: usize = reference.claim.iter().map(|c| c.metrics.len()).sum();
        assert_eq!(cells.len(), 3 * 22 * 9 + claims);
        assert!(cells.iter().any(|c| c.id == "table4.2/70%/no-cc/irn/avg_slowdown" && c.paper == Paper::Number(8.24)));
    }
}
