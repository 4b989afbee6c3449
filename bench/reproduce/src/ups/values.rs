//! Results of a part of the evaluation.

use std::collections::BTreeMap;

/// Numbers of a run by their names.
pub type Values = BTreeMap<String, f64>;

/// A line of a picture: its name, x and y from left to right.
pub type Line = (String, Vec<(f64, f64)>);
