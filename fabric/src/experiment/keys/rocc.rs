//! Parameters of the congestion points of RoCC, as users write them: `qref=75KB,t=100us`.

use irnic_units::keys::{Value, ValueError, pairs};
use irnic_units::{self as units, MAX_BYTES, MAX_NS, quotient};

use crate::switch::{Compute, FlowTable, RoccConfig};

/// Parses parameters of congestion points: `qref=75KB,t=100us`.
pub(super) fn points(value: &Value<'_>) -> Result<RoccConfig, ValueError> {
    const NAMES: &str = "qref, qmid, qmax, chunk, alpha, beta, t, fraction, table, entries, age, sample or compute, such \
                         as qref=75KB,t=100us";
    let gain = |text: &str| text.parse().ok().filter(|gain| (0.0..=1000.0).contains(gain));
    let size = |text: &str| units::size(text).filter(|bytes| (1..=MAX_BYTES).contains(bytes));
    let mut points = RoccConfig::default();
    let mut table = TableKeys::default();
    for pair in pairs(value.text) {
        let Ok(Value { key, text }) = pair else { return Err(value.wrong(NAMES)) };
        let (read, expected) = match key {
            "qref" | "qmid" | "qmax" | "chunk" => {
                let bytes = size(text);
                *match key {
                    "qref" => &mut points.qref,
                    "qmid" => &mut points.qmid,
                    "qmax" => &mut points.qmax,
                    _ => &mut points.chunk,
                } = bytes;
                (bytes.is_some(), "a size such as 75KB")
            }
            "alpha" | "beta" => {
                let gain = gain(text);
                *if key == "alpha" { &mut points.alpha } else { &mut points.beta } = gain;
                (gain.is_some(), "a number from 0 to 1000, such as 0.3")
            }
            "t" => {
                points.period = units::time(text).filter(|ns| (1_000..=MAX_NS).contains(ns));
                (points.period.is_some(), "a time such as 40us, 1us or more")
            }
            "fraction" => {
                points.fraction = text.parse().ok().filter(|bits| *bits <= 16);
                (points.fraction.is_some(), "0 to 16 bits")
            }
            "compute" => {
                let who = [("switch", Compute::Switch), ("host", Compute::Host)];
                let who = who.into_iter().find(|(name, _)| *name == text).map(|(_, who)| who);
                points.compute = who.unwrap_or_default();
                (who.is_some(), "switch or host")
            }
            _ => match table.read(key, text) {
                Some(read) => read,
                None => return Err(value.wrong(NAMES)),
            },
        };
        if !read {
            return Err(value.refuse(format!("{key}={text}: expected {expected}")));
        }
    }
    points.table = table.table().map_err(|why| value.refuse(why))?;
    Ok(points)
}

/// The keys given for a flow table.
#[derive(Default)]
struct TableKeys {
    table: FlowTable,
    entries: Option<u32>,
    age: Option<u64>,
    sample: Option<f64>,
}

impl TableKeys {
    /// Parses a key: whether it is valid, and what was expected; `None` for an unknown key.
    fn read(&mut self, key: &str, text: &str) -> Option<(bool, &'static str)> {
        Some(match key {
            "table" => {
                let kinds = [("queue", FlowTable::Queue), ("age", FlowTable::AGE), ("elephant", FlowTable::ELEPHANT)];
                let kind = kinds.into_iter().find(|(name, _)| *name == text).map(|(_, table)| table);
                self.table = kind.unwrap_or_default();
                (kind.is_some(), "queue, age or elephant")
            }
            "entries" => {
                self.entries = text.parse().ok().filter(|n| (1..=1 << 20).contains(n));
                (self.entries.is_some(), "a number of flows, 1 to 1048576")
            }
            "age" => {
                self.age = units::time(text).filter(|ns| (1_000..=MAX_NS).contains(ns));
                (self.age.is_some(), "a time such as 200us, 1us or more")
            }
            "sample" => {
                self.sample = quotient(text).filter(|share| *share > 0.0 && *share <= 1.0);
                (self.sample.is_some(), "a share of the packets, above 0 to 1, such as 1/16")
            }
            _ => return None,
        })
    }

    /// Returns the table, or the reason why it is invalid.
    fn table(self) -> Result<FlowTable, &'static str> {
        let mut table = self.table;
        match &mut table {
            FlowTable::Queue if self.entries.is_some() || self.age.is_some() || self.sample.is_some() => {
                return Err("entries, age and sample go with table=age or table=elephant");
            }
            FlowTable::Age { .. } if self.sample.is_some() => return Err("sample goes with table=elephant"),
            FlowTable::Queue => {}
            FlowTable::Age { entries, age } => {
                *entries = self.entries;
                *age = self.age.unwrap_or(*age);
            }
            FlowTable::Elephant { entries, sample, age } => {
                *entries = self.entries.unwrap_or(*entries);
                *sample = self.sample.unwrap_or(*sample);
                *age = self.age.unwrap_or(*age);
            }
        }
        Ok(table)
    }
}
