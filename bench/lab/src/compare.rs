//! Repeats the flows of a lab in `irnic sim`.

use std::fmt::Write as _;

use irnic_fabric::lab::SeenFlow;
use irnic_fabric::network::PortCounters;
use irnic_fabric::sim::{SimConfig, Simulation};
use irnic_fabric::workload::Flow;
use serde_json::{Value, json};

use crate::error::LabError;
use crate::view::Outcome;

/// Time limit of the simulation, in multiples of the lab's time.
const PATIENCE: u64 = 10;

/// A quantity of the lab, and of the simulation.
struct Row {
    name: &'static str,
    unit: &'static str,
    lab: f64,
    sim: f64,
}

/// Number of flows of a lab, number of those complete in the repetition by `irnic sim`, and quantities of both.
pub struct Comparison {
    flows: usize,
    complete: usize,
    rows: Vec<Row>,
}

/// Simulates the flows of a lab's reliable queue pairs on the network of the lab. `None` if there were none.
pub fn compare(config: &SimConfig, outcome: &Outcome) -> Result<Option<Comparison>, LabError> {
    let seen: Vec<SeenFlow> = outcome.lab.flows().into_iter().filter(|flow| flow.bytes > 0).collect();
    let [first, ..] = &seen[..] else { return Ok(None) };
    let begun = first.start;
    let lasted = seen.iter().map(|flow| flow.end).max().unwrap_or(begun).saturating_sub(begun);
    let mut config = config.clone();
    config.flows = seen.iter().map(|flow| Flow::new(flow.src, flow.dst, flow.bytes, flow.start - begun)).collect();
    config.until = lasted.saturating_mul(PATIENCE).max(1);
    let failed = |e: irnic_fabric::sim::SimError| LabError::Failed(format!("the simulation: {e}"));
    let sim = Simulation::new(config).and_then(Simulation::finish).map_err(failed)?;

    let times: Vec<f64> = seen.iter().map(|flow| flow.end.saturating_sub(flow.start) as f64).collect();
    let sim_times: Vec<f64> =
        sim.flows.iter().zip(&sim.records).filter_map(|(flow, record)| Some(record.fct(flow)? as f64)).collect();
    let bytes: u64 = seen.iter().map(|flow| flow.bytes).sum();
    let sim_bytes: u64 =
        sim.flows.iter().zip(&sim.records).filter(|(f, r)| r.fct(f).is_some()).map(|(flow, _)| flow.bytes).sum();
    let sim_last = sim.flows.iter().zip(&sim.records).filter_map(|(f, r)| Some(f.start + r.fct(f)?)).max();
    let rate = |bytes: u64, ns: f64| if ns > 0.0 { bytes as f64 * 8.0 / ns } else { 0.0 };
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64 / 1e6;
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max) / 1e6;
    let sum = |of: fn(&PortCounters) -> u64| outcome.lab.network().links().map(|l| of(&l.counters)).sum::<u64>();
    let sim_sum = |of: fn(&PortCounters) -> u64| sim.links.iter().map(|l| of(&l.counters)).sum::<u64>();
    let peak = |links: &mut dyn Iterator<Item = u64>| links.max().unwrap_or(0) as f64 / 1e3;
    let counted =
        |name, of: fn(&PortCounters) -> u64| Row { name, unit: "", lab: sum(of) as f64, sim: sim_sum(of) as f64 };
    let rows = vec![
        Row {
            name: "goodput",
            unit: "Gbit/s",
            lab: rate(bytes, lasted as f64),
            sim: rate(sim_bytes, sim_last.unwrap_or(0) as f64),
        },
        Row { name: "flow, mean", unit: "ms", lab: mean(&times), sim: mean(&sim_times) },
        Row { name: "flow, longest", unit: "ms", lab: longest(&times), sim: longest(&sim_times) },
        counted("dropped", |c| c.dropped),
        counted("lost", |c| c.lost),
        counted("marked", |c| c.marked),
        counted("trimmed", |c| c.trimmed),
        counted("pauses", |c| c.pauses),
        Row {
            name: "paused",
            unit: "ms",
            lab: sum(|c| c.paused) as f64 / 1e6,
            sim: sim_sum(|c| c.paused) as f64 / 1e6,
        },
        Row {
            name: "longest queue",
            unit: "KB",
            lab: peak(&mut outcome.lab.network().links().map(|l| l.counters.peak)),
            sim: peak(&mut sim.links.iter().map(|l| l.counters.peak)),
        },
    ];
    Ok(Some(Comparison { flows: seen.len(), complete: sim_times.len(), rows }))
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        (self.sim != 0.0).then(|| self.lab / self.sim)
    }
}

impl Comparison {
    /// Returns the table.
    pub fn text(&self) -> String {
        let mut text =
            format!("  {:<24} {:>12} {:>12} {:>7}\n", format!("{} flows", self.flows), "lab", "irnic sim", "ratio");
        for row in self.rows.iter().filter(|row| row.lab != 0.0 || row.sim != 0.0) {
            let name = if row.unit.is_empty() { row.name.to_owned() } else { format!("{} [{}]", row.name, row.unit) };
            let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.3}"));
            let digits = if row.unit.is_empty() { 0 } else { 3 };
            let _ = writeln!(text, "  {name:<24} {:>12.digits$} {:>12.digits$} {ratio:>7}", row.lab, row.sim);
        }
        if self.complete < self.flows {
            let _ = writeln!(text, "  {} of the flows were not complete in the simulation", self.flows - self.complete);
        }
        text
    }

    /// Returns the comparison as JSON.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(
            |row| json!({ "name": row.name, "unit": row.unit, "lab": row.lab, "sim": row.sim, "ratio": row.ratio() }),
        );
        json!({ "flows": self.flows, "complete": self.complete, "rows": rows.collect::<Vec<_>>() })
    }
}
