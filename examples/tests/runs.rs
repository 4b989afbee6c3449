//! The example runs, says what is so, and is as short as the documents promise.

use std::process::Command;

/// All numbers in a line.
fn numbers(line: &str) -> Vec<f64> {
    line.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn all_flows_complete_and_every_byte_is_accounted_for() {
    let output = Command::new(env!("CARGO_BIN_EXE_trimmed-incast")).output().expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 8 + 2, "{text}");

    // Eight flows of 1 MB by one link of 40 Gbit/s take 1.6 ms at least, and none is alone.
    let flows: Vec<Vec<f64>> = lines[1..9].iter().map(|line| numbers(line)).collect();
    assert!(flows.iter().all(|flow| flow.len() == 4 && flow[2] > 1.0), "{text}");
    let last = flows.iter().map(|flow| flow[1]).fold(0.0, f64::max);
    assert!(last > 1_600.0 && last < 4_000.0, "{text}");

    let [sent, delivered, trimmed, dropped] = numbers(lines[9])[..] else { panic!("{text}") };
    assert_eq!((sent, dropped), (delivered, 0.0), "{text}");
    assert!(trimmed > 0.0, "{text}");
    // What was trimmed, and nothing else, had to be sent again; a receiver names some of it twice.
    let again: f64 = flows.iter().map(|flow| flow[3]).sum();
    assert!(again >= trimmed, "{text}");

    let [sent, delivered, trimmed, dropped] = numbers(lines[10])[..] else { panic!("{text}") };
    assert_eq!(sent, delivered + trimmed + dropped, "{text}");
}

/// A grid with the package's own parts beside irnic's, in the words of `irnic sim`.
#[test]
fn the_command_line_knows_parts_of_ones_own() {
    let arguments = ["--topology", "star:hosts=9", "--workload", "incast:senders=8,bytes=2MB", "--json", "-"];
    let grid = ["--switch", "own-trimming", "--switch", "trimming", "--cc", "halving", "--cc", "none"];
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-sim"));
        command.args(arguments).args(more).output().expect("the example starts")
    };
    let output = run(&grid);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = json["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 4, "{json}");
    for case in cases {
        let run = &case["runs"][0];
        // Neither switch drops anything: what was trimmed was sent again.
        let again = run["retransmitted_packets"].as_u64().expect("a number");
        assert!(run["ending"] == "complete" && run["dropped_packets"] == 0 && again > 0, "{case}");
    }
    let text = json.to_string();
    assert!(text.contains("own-trimming") && text.contains("halving"), "{text}");
    let output = run(&["--cc", "doubling"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Packets of an unmodified program pass the package's own switch, which trims some of them for a slow link.
#[test]
fn applications_in_a_lab_pass_a_switch_of_ones_own() {
    if Command::new("ib_write_bw").arg("--version").output().is_err() {
        irnic_testkit::skipped("there is no ib_write_bw");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("lab.json");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let script = format!(
        "IRNIC_LAB_HOST=0 ib_write_bw -d irnic0 -p {port} -s 65536 -n 100 &
         {}
         IRNIC_LAB_HOST=1 ib_write_bw -d irnic0 -p {port} -s 65536 -n 100 127.77.0.1 && wait $!",
        irnic_testkit::wait::shell_for_listener(port)
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-lab"));
    command.args(["--topology", "dumbbell:left=1,right=1,rate=10G,bottleneck=1G", "--transport", "ndp"]);
    command.args(["--switch", "own-trimming", "--json"]).arg(&report).args(["--", "sh", "-c", &script]);
    let output = command.output().expect("the example starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
    let number = |key: &str| json[key].as_u64().expect("a number");
    assert!(number("dropped") == 0 && number("trimmed") > 0, "{json}");
}

#[test]
fn what_is_outside_is_short() {
    for (file, most) in [
        (include_str!("../src/trimming.rs"), 120),
        (include_str!("../src/controller.rs"), 60),
        (include_str!("../src/main.rs"), 60),
        (include_str!("../src/sim.rs"), 30),
        (include_str!("../src/lab.rs"), 30),
    ] {
        assert!(file.lines().count() <= most, "{} lines, {most} at most", file.lines().count());
    }
}
