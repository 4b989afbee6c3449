//! `irnic rtt` as a user runs it. No time is judged.

use std::process::{Command, Output, Stdio};

use crate::support::{assert_well_formed, text};
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_irnic"));
    command.arg("rtt").args(args).stdin(Stdio::null()).output().expect("irnic runs")
}

#[test]
fn round_trips_are_told_by_three_clocks_idle_and_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let [json, svg] = ["rtt.json", "rtt.svg"].map(|name| dir.path().join(name));
    let [json_name, svg_name] = [&json, &svg].map(|path| path.to_str().expect("UTF-8"));
    for (port, requested, stamps) in [("udp", "kernel", "kernel"), ("udp", "poll", "poll"), ("shm", "poll", "sender")] {
        let args = ["-n", "20", "-s", "9000", "--port", port, "--timestamps", requested, "--clock", "1GHz,drift=50"];
        let output = run(&[&args[..], &["--load", "1", "--json", json_name, "--svg", svg_name]].concat());
        assert!(output.status.success(), "{port}: {}", text(&output.stderr));
        let printed = text(&output.stdout);
        for part in ["Round trips of 20 segments of 9000 bytes", "idle", "load of 1 thread", "p99.9", "fitted line: "] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("a file")).expect("JSON");
        assert_eq!((&json["timestamps"], &json["clock"]), (&stamps.into(), &"1000MHz,drift=50".into()));
        let cases = json["cases"].as_array().expect("cases");
        assert_eq!(cases.iter().map(|c| c["load_threads"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1)]);
        for case in cases {
            for clock in ["nic_ns", "calibrated_ns", "software_ns"] {
                let value = |name: &str| case[clock][name].as_u64().unwrap_or_else(|| panic!("{clock} {name}: {case}"));
                assert_eq!(value("samples"), 20);
                assert!(value("min") <= value("p50") && value("p50") <= value("p99"), "{case}");
            }
            // The application wakes up after the acknowledgement has come, and posts before the packets leave.
            assert!(case["software_ns"]["max"].as_u64() >= case["nic_ns"]["min"].as_u64(), "{case}");
        }
        let picture = std::fs::read_to_string(&svg).expect("a file");
        assert_eq!(picture.matches("<polyline").count(), 6);
        assert_well_formed(&picture);
    }
}

/// A NIC that looks every 100 ms knows all the same when an acknowledgement came, where that is stamped by others than
/// itself.
#[test]
fn a_nic_that_looks_late_sees_the_round_trip_of_the_network() {
    let interval = 100_000_000;
    for args in [["--port", "shm", "--timestamps", "poll"], ["--port", "udp", "--timestamps", "kernel"]] {
        let output = run(&[&args[..], &["-n", "5", "--look-every", "100ms", "--json", "-"]].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let p = |clock: &str, name: &str| json["cases"][0][clock][name].as_u64().expect("a number");
        // Whoever waits for the completion waits for the look.
        assert!(p("software_ns", "p50") >= interval / 2 && p("nic_ns", "min") < interval / 2, "{args:?}: {json:#}");
    }
}

#[test]
fn json_goes_to_standard_output_alone() {
    let output = run(&["-n", "1", "--json", "-", "--port", "shm"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(1));
}

#[test]
fn bad_arguments_are_told_in_one_line() {
    for (args, part) in [
        (&["-s", "2M"][..], "--size 2M: expected 1 byte to 1 MiB"),
        (&["--clock", "fast"], "--clock fast: expected a frequency"),
        (&["--look-every", "50"], "--look-every 50: expected a time"),
        (&["--port", "mem"], "--port"),
        (&["-n", "0"], "0"),
        (&["-n", "1", "--port", "shm", "--svg", "/nowhere/at/all"], "--svg /nowhere/at/all"),
    ] {
        let output = run(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
}
