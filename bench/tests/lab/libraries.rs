//! What single faults do to the libraries of AI clusters: `bench/lab-faults.sh`, and its table in docs/ai.md.
//! `IRNIC_BLESS=1` with `IRNIC_APPLICATIONS=long` writes that anew.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Folder, irnic, needs, skipped, text};

const BEGIN: &str = "<!-- made by bench/lab-faults.sh -->\n";
const END: &str = "<!-- end of bench/lab-faults.sh -->\n";
/// Of NCCL: 4.096 µs * 2^20.
const LOCAL_ACK_TIMEOUT: u64 = 4_294_967_296;
/// For how long the link is down, and the priority paused, ns.
const HELD: u64 = 50_000_000;

/// A line of the script's CSV.
struct Run {
    cell: [String; 3],
    ns: u64,
    timeouts: u64,
    error: String,
}

/// Runs the cells that match. Returns the runs, and the table that the script prints.
fn runs(only: &str) -> (Vec<Run>, String) {
    let folder = Folder::new();
    let of_irnic = irnic(&folder);
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("lab-faults.sh"));
    for (key, value) in of_irnic.get_envs() {
        match value {
            Some(value) => script.env(key, value),
            None => script.env_remove(key),
        };
    }
    let csv = folder.path().join("runs.csv");
    script.env("IRNIC", of_irnic.get_program());
    script.env("WHEELS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels"));
    let output = script.args(["--only", only, "--csv"]).arg(&csv).output().expect("bash starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let csv = std::fs::read_to_string(csv).expect("the runs");
    let run = |line: &str| {
        let cells: Vec<&str> = line.split(',').map(|cell| cell.trim_matches('"')).collect();
        let [application, transport, fault, ns, timeouts, _, error] = cells[..] else { panic!("{line}") };
        let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
        let cell = [application, transport, fault].map(str::to_owned);
        Run { cell, ns: number(ns), timeouts: number(timeouts), error: error.to_owned() }
    };
    (csv.lines().skip(1).map(run).collect(), text(&output.stdout))
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ai.md")
}

/// The cells of a table by application, transport and fault.
fn cells(table: &str) -> HashMap<[String; 3], String> {
    let row = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = table.lines().map(row);
    let faults = rows.next().expect("a head");
    let rows: Vec<Vec<String>> = rows.skip(1).collect();
    let of = |row: &Vec<String>| {
        let key = |fault: &String| [row[0].clone(), row[1].clone(), fault.clone()];
        faults.iter().zip(row).skip(2).map(|(fault, cell)| (key(fault), cell.clone())).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of).collect()
}

/// What can be said of every run, whatever the machine does meanwhile.
fn is_as_it_has_to_be(run: &Run) {
    let [application, transport, fault] = run.cell.each_ref().map(String::as_str);
    let Run { ns, timeouts, error, .. } = run;
    let said = format!("{:?}: {ns} ns, {timeouts} timeouts, {error:?}", run.cell);
    match (application, transport, fault) {
        (_, "roce", "no fault") => assert!(error.is_empty() && *timeouts == 0, "{said}"),
        ("allreduce", "roce", "a lone packet lost") => {
            assert!(error.is_empty() && *timeouts > 0 && *ns >= LOCAL_ACK_TIMEOUT, "{said}")
        }
        ("allreduce", "irn", "a lone packet lost") => assert!(error.is_empty() && *ns < LOCAL_ACK_TIMEOUT, "{said}"),
        ("allreduce", _, "link down" | "priority paused") => assert!(error.is_empty() && *ns >= HELD, "{said}"),
        (_, _, "host dead") => assert!(!error.is_empty(), "{said}"),
        (_, _, "no fault" | "a packet lost" | "a lone packet lost" | "priority paused") => {
            assert!(error.is_empty(), "{said}")
        }
        _ => {}
    }
}

#[test]
fn single_faults_do_what_the_page_says() {
    let Some(()) = needs(&["gcc", "python3", "/usr/bin/python3"]) else { return };
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skipped("libibverbs-dev is not installed");
    }
    let long = std::env::var("IRNIC_APPLICATIONS").is_ok_and(|form| ["all", "long"].contains(&form.as_str()));
    // NIXL and Mooncake are fetched, and NCCL's patience with a host that is dead is that of 34 s.
    let (runs, table) = runs(if long { "." } else { "^allreduce[|]irn[|](a |link down)" });
    assert!(!runs.is_empty());
    runs.iter().for_each(is_as_it_has_to_be);
    let text = std::fs::read_to_string(page()).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (there, after) = rest.split_once(END).expect("it ends");
    if long && std::env::var_os("IRNIC_BLESS").is_some() {
        std::fs::write(page(), format!("{before}{BEGIN}{table}{END}{after}")).expect("the page");
        return;
    }
    let there = cells(there);
    for run in &runs {
        let cell = there.get(&run.cell).unwrap_or_else(|| panic!("docs/ai.md has no {:?}", run.cell));
        // Times are others each time; that it fails, and what the library says, is not.
        let says = if run.error.is_empty() { !cell.contains(" after ") } else { cell.starts_with(&run.error) };
        assert!(says, "{:?}: {:?}; docs/ai.md: {cell}", run.cell, run.error);
    }
}
