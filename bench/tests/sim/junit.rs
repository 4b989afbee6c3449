//! JUnit's XML, of what irnic judges, read by a library that others use.

use crate::support::{Folder, irnic};
use quick_junit::{Report, TestCaseStatus};

/// The names of the cases, and which failed with what.
fn read(folder: &Folder, name: &str, suite: &str) -> Vec<(String, Option<String>)> {
    let text = std::fs::read_to_string(folder.path().join(name)).expect("a file");
    let report = Report::deserialize_from_str(&text).expect("JUnit");
    assert!(report.test_suites.len() == 1 && report.test_suites[0].name.as_str() == suite, "{text}");
    assert!(report.time.is_some() && report.test_suites[0].time.is_some(), "{text}");
    let cases = report.test_suites[0].test_cases.iter().map(|case| {
        let failed = match &case.status {
            TestCaseStatus::NonSuccess { message, .. } => Some(message.as_ref().expect("a reason").to_string()),
            _ => None,
        };
        (case.name.to_string(), failed)
    });
    cases.collect()
}

#[test]
fn the_doctor_has_a_case_for_each_thing() {
    let folder = Folder::new();
    let output = irnic(&folder).env("IRNIC_MTU", "77").args(["doctor", "--junit", "a.xml"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let cases = read(&folder, "a.xml", "irnic doctor");
    let of = |name: &str| cases.iter().find(|(case, _)| case == name).map(|(_, failed)| failed.clone());
    assert!(of("settings").flatten().is_some_and(|why| why.contains("IRNIC_MTU")), "{cases:?}");
    assert_eq!((of("library"), of("library 2")), (Some(None), Some(None)));
    let output = irnic(&folder).args(["doctor", "--junit", "no/such/place"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_lab_has_a_case_for_each_command() {
    let folder = Folder::new();
    let hosts = "[[host]]\nhost = 0\ncommand = 'true'\n[[host]]\nhost = 1\ncommand = 'exit 3'\n";
    folder.write("lab.toml", &format!("topology = 'star:hosts=2'\n{hosts}"));
    let lab = ["lab", "lab.toml", "--junit", "a.xml", "--quiet"];
    assert_eq!(irnic(&folder).args(lab).status().expect("it runs").code(), Some(3));
    let cases = read(&folder, "a.xml", "irnic lab");
    let failed: Vec<_> = cases.iter().map(|(_, failed)| failed.as_deref()).collect();
    assert_eq!(failed, [None, Some("exit status 3")], "{cases:?}");
    let text = std::fs::read_to_string(folder.path().join("a.xml")).expect("a file");
    assert_eq!(text.matches(" time=").count(), 4, "the report, its suite, and two commands: {text}");
}

#[test]
fn a_paper_has_a_case_for_each_number() {
    let folder = Folder::new();
    let paper = ["reproduce", "ndp", "--quick", "--only", "figure11"];
    let output = irnic(&folder).args(paper).args(["--json", "a.json", "--junit", "a.xml"]).output().expect("it runs");
    assert!(output.status.success());
    let cases = read(&folder, "a.xml", "irnic reproduce ndp");
    let json = std::fs::read_to_string(folder.path().join("a.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let cells = json["cells"].as_array().expect("cells");
    assert!(!cells.is_empty() && cells.len() == cases.len());
    for (cell, (name, failed)) in cells.iter().zip(&cases) {
        assert_eq!(cell["id"].as_str(), Some(name.as_str()));
        assert_eq!(cell["answer"] == "fails", failed.is_some(), "{name}");
    }
}
