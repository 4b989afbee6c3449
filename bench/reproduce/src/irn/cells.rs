//! Cells of the IRN chapter: how each is computed, and the value of the paper.

use std::borrow::Cow;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::summary::Summary;

use super::reference::Reference;
use super::scenario::{Cc, Scenario, System};
use crate::compared::{Paper, Said};
use crate::points;

/// A cell of the results.
pub type Cell = points::Cell<Experiment, OfClass>;

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
}

/// A metric of a class of flows, for workloads with several parts, or of all.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OfClass(Metric, Option<usize>);

impl points::Metric for OfClass {
    type Run = Summary;

    fn name(self) -> Cow<'static, str> {
        self.0.name().into()
    }

    fn named(name: &str) -> Option<OfClass> {
        Metric::named(name).map(|metric| OfClass(metric, None))
    }

    fn of(self, summary: &Summary) -> Option<f64> {
        let group = match self.1 {
            None => &summary.all,
            Some(class) => summary.by_class.get(class)?,
        };
        let single = || summary.by_size.first().map(|bucket| &bucket.group.fct).filter(|fct| fct.count > 0);
        let ns = 1e-9;
        Some(match self.0 {
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

/// Returns a cell: the value of a system in a scenario, or its ratio to that of another with the same flows.
fn cell(id: String, said: Said, scenario: &Scenario, (over, under): (System, Option<System>), metric: Metric) -> Cell {
    let parts = scenario.workload.parts.len() > 1;
    let class = parts.then(|| usize::from(metric == Metric::Completion));
    let scenarios = (scenario.experiment(over), under.map(|system| scenario.experiment(system)));
    Cell { id, said, scenarios, metric: OfClass(metric, class) }
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
                let id = format!("{table}/{}/{}/{name}/{}", row.label, row.cc, metric.name());
                let fitted = row.fitted.clone().filter(|_| under == Some(System::RocePfc));
                let said = Said { fitted, ..Paper::Number(value).into() };
                cells.push(cell(id, said, &scenario, (System::Irn, under), metric));
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
            let id = format!("{}/{}", claim.id, metric.name());
            cells.push(cell(id, claim.said(), &scenario, (over, under), metric));
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
        assert!(
            cells.iter().any(|c| c.id == "table4.2/70%/no-cc/irn/avg_slowdown" && c.said.paper == Paper::Number(8.24))
        );
    }
}
