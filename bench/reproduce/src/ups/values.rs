//! Results of parts of the evaluation.

use std::collections::BTreeMap;

/// Values of a run by name.
pub type Values = BTreeMap<String, f64>;

/// A line of a plot: its name, and x and y from left to right.
pub type Line = (String, Vec<(f64, f64)>);
