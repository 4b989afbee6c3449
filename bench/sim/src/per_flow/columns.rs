//! Flows as Parquet, with a row group for each run.

use std::io::Write;
use std::sync::Arc;

use irnic_report::origin::Origin;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{COLUMNS, finished};
use crate::csv::{value, varied};
use crate::execute::{Batch, Run};

/// Returns the properties of a file, with how to get it again as metadata.
pub fn properties(origin: &Origin) -> Arc<WriterProperties> {
    let Origin { command, irnic } = origin.clone();
    let metadata = [("command", command), ("irnic", irnic)].map(|(key, text)| KeyValue::new(key.to_owned(), text));
    Arc::new(WriterProperties::builder().set_key_value_metadata(Some(metadata.into())).build())
}

/// Writes the flows of all runs.
pub fn write(out: &mut (impl Write + Send), batch: &Batch, runs: &[Run]) -> parquet::errors::Result<()> {
    let number = |name, optional| {
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(name, Physical::INT64).with_repetition(repetition).build()
    };
    let mut fields = COLUMNS.iter().map(|c| number(c.name, c.optional)).collect::<parquet::errors::Result<Vec<_>>>()?;
    let text = |name| {
        let text = Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_repetition(Repetition::REQUIRED);
        text.with_logical_type(Some(LogicalType::String)).build()
    };
    fields.push(text("case")?);
    fields.push(number("seed", false)?);
    let keys = varied(batch);
    for key in &keys {
        fields.push(text(key)?);
    }
    let fields = fields.into_iter().map(Arc::new).collect();
    let schema = Arc::new(Type::group_type_builder("flows").with_fields(fields).build()?);
    let mut writer = SerializedFileWriter::new(out, schema, properties(&batch.origin))?;
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
        let case = &batch.cases[run.case];
        let label = ByteArray::from(case.label.as_str());
        if let Some(mut to) = group.next_column()? {
            to.typed::<ByteArrayType>().write_batch(&vec![label; n], None, None)?;
            to.close()?;
        }
        if let Some(mut to) = group.next_column()? {
            to.typed::<Int64Type>().write_batch(&vec![run.seed as i64; n], None, None)?;
            to.close()?;
        }
        for key in &keys {
            let Some(mut to) = group.next_column()? else { break };
            let text = ByteArray::from(value(case, key).as_str());
            to.typed::<ByteArrayType>().write_batch(&vec![text; n], None, None)?;
            to.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}
