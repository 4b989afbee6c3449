//! Every flow of every run, as CSV or, with the feature `parquet`, as Parquet.

#[cfg(feature = "parquet")]
pub mod columns;

use std::io::{self, Write};
use std::path::Path;

use irnic_fabric::sim::FlowRecord;
use irnic_fabric::workload::Flow;

use irnic_report::csv::field;

use crate::csv::{tail, tail_names, varied};
use crate::execute::{Batch, Finished, Run};

/// File format of flows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Comma-separated values.
    Csv,
    /// Typed columns; absent values are null.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Kind {
    /// Returns the kind for the file name extension of an option, or the reason why this build does not support it.
    #[cfg_attr(
        feature = "parquet",
        allow(unused_variables, reason = "with Parquet there is nothing that it cannot write")
    )]
    pub fn of(option: &str, path: &Path) -> Result<Kind, String> {
        match path.extension() {
            #[cfg(feature = "parquet")]
            Some(end) if end == "parquet" => Ok(Kind::Parquet),
            #[cfg(not(feature = "parquet"))]
            Some(end) if end == "parquet" => Err(format!(
                "{option} {}: irnic was built without Parquet; build it with `cargo build --release --features parquet`, or \
                 choose a name that ends in .csv",
                path.display()
            )),
            _ => Ok(Kind::Csv),
        }
    }
}

/// A column of whole numbers.
struct Column {
    name: &'static str,
    value: fn(&Flow, &FlowRecord) -> Option<u64>,
    /// Whether incomplete flows have no value.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "CSV leaves the field empty"))]
    optional: bool,
}

const fn always(name: &'static str, value: fn(&Flow, &FlowRecord) -> Option<u64>) -> Column {
    Column { name, value, optional: false }
}

const fn sometimes(name: &'static str, value: fn(&Flow, &FlowRecord) -> Option<u64>) -> Column {
    Column { name, value, optional: true }
}

/// Columns; `case`, `seed`, and the settings that differ between cases follow.
const COLUMNS: [Column; 11] = [
    always("src", |f, _| Some(f.src.into())),
    always("dst", |f, _| Some(f.dst.into())),
    always("bytes", |f, _| Some(f.bytes)),
    always("start_ns", |f, _| Some(f.start)),
    sometimes("fct_ns", |f, r| r.fct(f)),
    always("ideal_ns", |_, r| Some(r.ideal)),
    always("priority", |f, _| Some(f.priority.into())),
    always("class", |f, _| Some(f.class.into())),
    sometimes("acknowledged_ns", |_, r| r.acknowledged),
    always("retransmitted", |_, r| Some(r.retransmitted)),
    always("timeouts", |_, r| Some(r.timeouts)),
];

/// Writes the flows of all runs.
pub fn write(out: &mut (impl Write + Send), kind: Kind, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    match kind {
        Kind::Csv => csv(out, batch, runs),
        #[cfg(feature = "parquet")]
        Kind::Parquet => columns::write(out, batch, runs).map_err(io::Error::other),
    }
}

fn finished(runs: &[Run]) -> impl Iterator<Item = (&Run, &Finished)> {
    runs.iter().filter_map(|run| Some((run, run.result.as_ref().ok()?)))
}

fn csv(out: &mut impl Write, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    let keys = varied(batch);
    out.write_all(batch.origin.comment().as_bytes())?;
    writeln!(out, "{},case,seed{}", names.join(","), tail_names(&keys))?;
    for (run, finished) in finished(runs) {
        let case = &batch.cases[run.case];
        let (label, settings) = (field(&case.label), tail(case, &keys));
        for (flow, record) in &finished.flows {
            for column in &COLUMNS {
                if let Some(value) = (column.value)(flow, record) {
                    write!(out, "{value}")?;
                }
                out.write_all(b",")?;
            }
            writeln!(out, "{label},{}{settings}", run.seed)?;
        }
    }
    Ok(())
}
