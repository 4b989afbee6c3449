//! Schedules as Parquet, with one row group.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use irnic_fabric::schedule::{Schedule, Scheduled};
use irnic_report::origin::Origin;
use parquet::basic::{Repetition, Type as Physical};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::Int64Type;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{COLUMNS, MAX_HOPS, Rows, hops, of_hop};
use crate::per_flow::columns::properties;

/// Writes a schedule. Packets with fewer hops than others have 0 in the remaining columns.
pub fn write(out: &mut (impl Write + Send), origin: &Origin, schedule: &Schedule) -> Result<()> {
    let number = |name: &str| {
        let kind = Type::primitive_type_builder(name, Physical::INT64).with_repetition(Repetition::REQUIRED);
        kind.build().map(Arc::new)
    };
    let hops = hops(schedule);
    let mut fields = COLUMNS.iter().map(|c| number(c.name)).collect::<Result<Vec<_>>>()?;
    for name in (0..hops).flat_map(of_hop) {
        fields.push(number(&name)?);
    }
    let schema = Arc::new(Type::group_type_builder("packets").with_fields(fields).build()?);
    let mut writer = SerializedFileWriter::new(out, schema, properties(origin))?;
    let mut group = writer.next_row_group()?;
    let mut column = |values: Vec<i64>| -> Result<()> {
        let Some(mut to) = group.next_column()? else { return Ok(()) };
        to.typed::<Int64Type>().write_batch(&values, None, None)?;
        to.close()
    };
    let packets = schedule.packets();
    for of in &COLUMNS {
        column(packets.iter().map(|packet| (of.get)(packet) as i64).collect())?;
    }
    for hop in 0..hops {
        let start = |at: usize| schedule.starts(at).get(hop).copied().unwrap_or_default();
        column((0..packets.len()).map(|at| start(at).0.into()).collect())?;
        column((0..packets.len()).map(|at| start(at).1 as i64).collect())?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Reads a schedule.
pub fn read(file: File) -> std::result::Result<Schedule, String> {
    rows(file).map_err(|e| format!(": {e}")).map(Rows::schedule)
}

fn rows(file: File) -> Result<Rows> {
    let reader = SerializedFileReader::new(file)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let place = |name: &str| schema.columns().iter().position(|column| column.name() == name);
    let column = |name: &str, found: usize| -> Result<Vec<i64>> {
        if schema.column(found).physical_type() != Physical::INT64 {
            return Err(ParquetError::General(format!("column `{name}` is not of whole numbers of 64 bits")));
        }
        let mut values = Vec::new();
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = group.metadata().num_rows() as usize;
            get_typed_column_reader::<Int64Type>(group.get_column_reader(found)?).read_records(
                rows,
                None,
                None,
                &mut values,
            )?;
        }
        Ok(values)
    };
    let mut rows = Rows { packets: Vec::new(), starts: Vec::new() };
    for of in &COLUMNS {
        let found = place(of.name).ok_or_else(|| ParquetError::General(format!("no column `{}`", of.name)))?;
        let values = column(of.name, found)?;
        rows.packets.resize(values.len(), Scheduled::default());
        rows.packets.iter_mut().zip(values).for_each(|(packet, value)| (of.set)(packet, value as u64));
    }
    for [switch, start] in (0..MAX_HOPS).map(of_hop) {
        let (Some(switches), Some(starts)) = (place(&switch), place(&start)) else { break };
        let both = column(&switch, switches)?.into_iter().zip(column(&start, starts)?);
        rows.starts.push(both.map(|(switch, start)| (switch as u32, start as u64)).collect());
    }
    Ok(rows)
}
