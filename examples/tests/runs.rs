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

#[test]
fn what_is_outside_is_short() {
    for (file, most) in [
        (include_str!("../src/trimming.rs"), 120),
        (include_str!("../src/controller.rs"), 60),
        (include_str!("../src/main.rs"), 60),
    ] {
        assert!(file.lines().count() <= most, "{} lines, {most} at most", file.lines().count());
    }
}
