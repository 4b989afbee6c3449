//! `irnic reproduce` as a user runs it, on networks that have hardly begun.

mod support;

use std::process::Output;

use serde_json::Value;
use support::{Folder, irnic, text};

fn reproduce(folder: &Folder, args: &[&str]) -> Output {
    irnic(folder).args(["reproduce", "irn"]).args(args).output().expect("irnic runs")
}

fn cells(folder: &Folder, args: &[&str]) -> (String, Value) {
    let output = reproduce(folder, &[args, &["--arrivals", "300us", "--json", "cells.json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("cells.json")).expect("cells.json");
    (text(&output.stdout), serde_json::from_str(&json).expect("JSON"))
}

#[test]
fn cells_have_the_papers_number_ours_and_a_confidence_interval() {
    let folder = Folder::new();
    let (out, json) = cells(&folder, &["--only", "table4.2/70%/no-cc", "--seeds", "2"]);
    let cells = json["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 9);
    let of = |id: &str| cells.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id}"));
    let slowdown = of("table4.2/70%/no-cc/irn/avg_slowdown");
    assert_eq!(slowdown["paper"], 8.24);
    let ours = slowdown["ours"].as_f64().expect("a number");
    assert!(ours >= 1.0 && slowdown["confidence"].as_f64().expect("a number") > 0.0, "{slowdown}");
    assert!((slowdown["ratio"].as_f64().expect("a number") - ours / 8.24).abs() < 1e-9);
    assert!(of("table4.2/70%/no-cc/irn-over-roce-pfc/p99_fct")["ours"].as_f64().is_some_and(|r| r > 0.0));
    assert!(out.contains("IRN beats RoCE with PFC (no-cc): ") && out.contains("table4.2"), "{out}");
}

#[test]
fn congestion_control_has_columns_of_its_own() {
    let folder = Folder::new();
    let (out, json) = cells(&folder, &["--only", "table4.2/30%/dcqcn/irn/", "--only", "table4.2/30%/no-cc/irn/"]);
    let cells = json["cells"].as_array().expect("a list");
    let fct = |cc: &str| {
        let id = format!("table4.2/30%/{cc}/irn/avg_fct");
        cells.iter().find(|c| c["id"] == id.as_str()).and_then(|c| c["ours"].as_f64()).expect("a number")
    };
    // Flows that are told to slow down take longer, on average.
    assert!(cells.len() == 6 && fct("dcqcn") > fct("no-cc"), "{out}");
}

#[test]
fn the_same_seed_gives_the_same_file() {
    let folder = Folder::new();
    let args = ["--only", "figure4.8", "--seed", "5"];
    let one = cells(&folder, &[&args[..], &["--jobs", "1"]].concat());
    assert_eq!(one, cells(&folder, &[&args[..], &["--jobs", "2"]].concat()));
    let holds = &one.1["cells"][0]["holds"];
    assert!(holds.is_boolean(), "{holds}");
    let other = cells(&folder, &["--only", "figure4.8", "--seed", "6"]);
    assert_ne!(one.1["cells"], other.1["cells"]);
}

#[test]
fn what_does_not_exist_is_refused_before_anything_runs() {
    let folder = Folder::new();
    for (args, said) in [
        (&["--only", "table4.2/71%"][..], "irnic reproduce: --only table4.2/71%: no cell begins so; ids are such as"),
        (&["--arrivals", "0s"], "irnic: invalid value '0s' for '--arrivals <TIME>'"),
        (&["--seeds", "0"], "irnic: invalid value '0' for '--seeds <N>'"),
        (&["--json", "no/such/folder"], "irnic reproduce: --json no/such/folder: "),
    ] {
        let output = reproduce(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).starts_with(said), "{args:?}: {}", text(&output.stderr));
    }
}
