//! Fault rules as JSON.

use irnic_fabric::lab::Placed;
use serde_json::{Value, json};

/// Formats rules as JSON.
pub fn rules(rules: &[Placed]) -> Value {
    let one = |placed: &Placed| {
        let Placed { id, rule, matches, applied } = placed;
        json!({ "rule": id, "text": rule.to_string(), "matches": matches, "applied": applied })
    };
    rules.iter().map(one).collect()
}
