//! Flow completion times beside those that another simulator found for the same flows: `irnic sim --beside
//! htsim:FILE`.
//!
//! A flow is identified by its hosts and, where the file has it, by its size; of several between the same hosts the one
//! that ends first is the other's that ends first. Both times are the sender's: from the flow's start until all of it
//! is acknowledged.

mod htsim;
mod ns3;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;

use irnic_fabric::input::{Error, Lines};
use irnic_fabric::sim::FlowRecord;
use irnic_fabric::summary::percentile;
use irnic_fabric::workload::{ENDLESS, Flow};
use irnic_report::table::align;

use crate::execute::{Batch, Run};

/// A simulator whose results are read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Simulator {
    Htsim,
    Ns3,
}

/// A file with results of another simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    simulator: Simulator,
    path: PathBuf,
}

impl Other {
    fn name(&self) -> &'static str {
        match self.simulator {
            Simulator::Htsim => "htsim",
            Simulator::Ns3 => "ns-3",
        }
    }

    /// Reads the file.
    pub fn read(&self) -> Result<Vec<Completed>, Error> {
        let text = Lines::read(&self.path)?;
        match self.simulator {
            Simulator::Htsim => htsim::parse(&self.path, &text),
            Simulator::Ns3 => ns3::parse(&self.path, &text),
        }
    }
}

impl FromStr for Other {
    type Err = String;

    fn from_str(text: &str) -> Result<Other, String> {
        let (simulator, path) = text.split_once(':').unwrap_or((text, ""));
        let simulator = match simulator {
            "htsim" => Simulator::Htsim,
            "ns3" => Simulator::Ns3,
            _ => return Err("expected htsim:FILE or ns3:FILE".to_owned()),
        };
        if path.is_empty() {
            return Err("expected a file after the colon".to_owned());
        }
        Ok(Other { simulator, path: path.into() })
    }
}

/// A flow that another simulator completed.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Completed {
    /// Sending host, by its id in the topology file.
    src: u32,
    /// Receiving host.
    dst: u32,
    /// Payload, if the file has it as given.
    bytes: Option<u64>,
    /// Time at which its sender had the last acknowledgement, ns.
    end: f64,
}

/// Flows that nothing tells apart.
#[derive(Default)]
struct Alike {
    /// End and start of irnic's.
    ours: Vec<(f64, f64)>,
    /// End of the other's.
    theirs: Vec<f64>,
}

/// Completion times of the flows that both completed, ns, flow by flow.
#[derive(Debug, Default, PartialEq)]
struct Compared {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    /// Flows that only irnic completed, and only the other.
    alone: [usize; 2],
}

impl Compared {
    fn of(flows: &[(Flow, FlowRecord)], others: &[Completed]) -> Compared {
        let sized = others.iter().any(|other| other.bytes.is_some());
        let ended = flows.iter().filter(|(flow, _)| flow.bytes < ENDLESS);
        let ended = ended.filter_map(|(flow, record)| Some((flow, record.acknowledged? as f64)));
        let mut all: BTreeMap<(u32, u32, u64), Alike> = BTreeMap::new();
        for (flow, end) in ended {
            let bytes = if sized { flow.bytes } else { 0 };
            all.entry((flow.src, flow.dst, bytes)).or_default().ours.push((end, flow.start as f64));
        }
        for other in others {
            all.entry((other.src, other.dst, other.bytes.unwrap_or(0))).or_default().theirs.push(other.end);
        }
        let mut compared = Compared::default();
        for Alike { mut ours, mut theirs } in all.into_values() {
            ours.sort_by(|a, b| a.0.total_cmp(&b.0));
            theirs.sort_by(f64::total_cmp);
            let both = ours.len().min(theirs.len());
            compared.alone[0] += ours.len() - both;
            compared.alone[1] += theirs.len() - both;
            for ((end, start), other) in ours.into_iter().zip(theirs) {
                compared.ours.push(end - start);
                compared.theirs.push(other - start);
            }
        }
        compared
    }

    fn rows(&self, other: &str) -> Vec<Vec<String>> {
        type Of = fn(&[f64]) -> f64;
        let statistics: [(&str, Of); 4] = [
            ("mean", |times| times.iter().sum::<f64>() / times.len() as f64),
            ("p50", |times| percentile(times, 0.5).unwrap_or_default()),
            ("p99", |times| percentile(times, 0.99).unwrap_or_default()),
            ("longest", |times| times.last().copied().unwrap_or_default()),
        ];
        let sorted = |times: &[f64]| {
            let mut times = times.to_vec();
            times.sort_by(f64::total_cmp);
            times
        };
        let (ours, theirs) = (sorted(&self.ours), sorted(&self.theirs));
        let mut rows = vec![["FCT in us", "irnic", other, "ratio"].map(str::to_owned).to_vec()];
        for (name, of) in statistics {
            let (ours, theirs) = (of(&ours), of(&theirs));
            rows.push(vec![name.to_owned(), micros(ours), micros(theirs), format!("{:.4}", ours / theirs)]);
        }
        rows
    }

    /// Returns the smallest, the median and the largest ratio of a flow's times.
    fn ratios(&self) -> [f64; 3] {
        let mut ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        [0.0, 0.5, 1.0].map(|share| percentile(&ratios, share).unwrap_or_default())
    }
}

fn micros(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

/// Returns a table for each run.
pub fn text(other: &Other, others: &[Completed], batch: &Batch, runs: &[Run]) -> String {
    let mut out = String::new();
    for (run, finished) in runs.iter().filter_map(|run| Some((run, run.result.as_ref().ok()?))) {
        let compared = Compared::of(&finished.flows, others);
        let name = if runs.len() > 1 { format!("{}, ", batch.name(run)) } else { String::new() };
        let both = compared.ours.len();
        let [ours, theirs] = compared.alone;
        let _ = write!(out, "\n{name}beside {} {}: {both} flows", other.name(), other.path.display());
        if ours + theirs > 0 {
            let _ = write!(out, "; {ours} that only irnic completed, {theirs} that only {} did", other.name());
        }
        out.push('\n');
        if both > 0 {
            align(&mut out, &compared.rows(other.name()));
            let [least, median, most] = compared.ratios();
            let _ = writeln!(out, "flow by flow: {least:.4} to {most:.4} times, median {median:.4}");
        }
    }
    out
}
