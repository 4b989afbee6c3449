//! Every flow of every run, as CSV or Parquet.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use irnic_fabric::sim::FlowRecord;
use irnic_fabric::workload::Flow;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::execute::Finished;
use super::{Batch, Run};

/// How flows are written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Comma-separated values.
    Csv,
    /// Columns, typed; absent values are null.
    Parquet,
}

impl Kind {
    /// By the end of a file's name.
    pub fn of(path: &Path) -> Kind {
        match path.extension() {
            Some(end) if end == "parquet" => Kind::Parquet,
            _ => Kind::Csv,
        }
    }
}

/// A column of whole numbers.
struct Column {
    name: &'static str,
    value: fn(&Flow, &FlowRecord) -> Option<u64>,
    /// Flows that are not complete have none.
    optional: bool,
}

const fn always(name: &'static str, value: fn(&Flow, &FlowRecord) -> Option<u64>) -> Column {
    Column { name, value, optional: false }
}

const fn sometimes(name: &'static str, value: fn(&Flow, &FlowRecord) -> Option<u64>) -> Column {
    Column { name, value, optional: true }
}

/// Columns; `case` and `seed` follow.
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
        Kind::Parquet => columns(out, batch, runs).map_err(io::Error::other),
    }
}

fn finished(runs: &[Run]) -> impl Iterator<Item = (&Run, &Finished)> {
    runs.iter().filter_map(|run| Some((run, run.result.as_ref().ok()?)))
}

fn csv(out: &mut impl Write, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    writeln!(out, "{},case,seed", names.join(","))?;
    for (run, finished) in finished(runs) {
        let case = quoted(&batch.cases[run.case].label);
        for (flow, record) in &finished.flows {
            for column in &COLUMNS {
                if let Some(value) = (column.value)(flow, record) {
                    write!(out, "{value}")?;
                }
                out.write_all(b",")?;
            }
            writeln!(out, "{case},{}", run.seed)?;
        }
    }
    Ok(())
}

/// A text as a field of CSV (RFC 4180).
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn columns(out: &mut (impl Write + Send), batch: &Batch, runs: &[Run]) -> parquet::errors::Result<()> {
    let number = |name, optional| {
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(name, Physical::INT64).with_repetition(repetition).build()
    };
    let mut fields = COLUMNS.iter().map(|c| number(c.name, c.optional)).collect::<parquet::errors::Result<Vec<_>>>()?;
    let text = Type::primitive_type_builder("case", Physical::BYTE_ARRAY).with_repetition(Repetition::REQUIRED);
    fields.push(text.with_logical_type(Some(LogicalType::String)).build()?);
    fields.push(number("seed", false)?);
    let fields = fields.into_iter().map(Arc::new).collect();
    let schema = Arc::new(Type::group_type_builder("flows").with_fields(fields).build()?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(WriterProperties::builder().build()))?;
    // A row group for each run.
    for (run, finished) in finished(runs) {
        let mut group = writer.next_row_group()?;
        for column in &COLUMNS {
            let found: Vec<Option<u64>> = finished.flows.iter().map(|(f, r)| (column.value)(f, r)).collect();
            let values: Vec<i64> = found.iter().flatten().map(|v| *v as i64).collect();
            let present: Vec<i16> = found.iter().map(|v| i16::from(v.is_some())).collect();
            let Some(mut to) = group.next_column()? else { break };
            to.typed::<Int64Type>().write_batch(&values, column.optional.then_some(&present[..]), None)?;
            to.close()?;
        }
        let n = finished.flows.len();
        let label = ByteArray::from(batch.cases[run.case].label.as_str());
        if let Some(mut to) = group.next_column()? {
            to.typed::<ByteArrayType>().write_batch(&vec![label; n], None, None)?;
            to.close()?;
        }
        if let Some(mut to) = group.next_column()? {
            to.typed::<Int64Type>().write_batch(&vec![run.seed as i64; n], None, None)?;
            to.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}
