//! `irnic lab --program-time lab`: programs see the lab's time, so that the rates that they print are the network's.

use std::path::Path;
use std::process::Command;

use crate::support::{Folder, free_port, irnic, listens, needs, skipped, text};
use irnic_testkit::retry::attempts;
use serde_json::Value;

#[test]
fn clocks_and_deadlines_of_programs_are_the_labs() {
    if needs(&["gcc"]).is_none() {
        return;
    }
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skipped("there is no /usr/include/infiniband/verbs.h");
    }
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/lab_time.c");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder.path()).args(["-o", "lab_time"]).arg(source).args(["-pthread", "-libverbs"]);
    let output = gcc.output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let args = ["lab", "--program-time", "lab", "--clock", "dilated=50", "--topology", "star:hosts=2", "--"];
    let output = irnic(&folder).args(args).arg("./lab_time").output().expect("irnic runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with("all clocks follow the lab\n"), "{}", text(&output.stdout));
    let said = text(&output.stderr);
    assert!(said.contains("  rates that programs print are the network's: they see the lab's time"), "{said}");
}

#[test]
fn perftest_prints_the_rate_of_the_link() {
    if needs(&["ib_write_bw"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let port = free_port();
    let bandwidth = format!("ib_write_bw -d irnic0 -p {port} -s 65536 -n 100");
    let script = format!(
        "IRNIC_LAB_HOST=0 {bandwidth} > server.txt & {}; IRNIC_LAB_HOST=1 {bandwidth} 127.77.0.1 && wait",
        listens(&port)
    );
    let mut lab = irnic(&folder);
    lab.args(["lab", "--program-time", "lab", "--clock", "elastic=20", "--json", "lab.json"]);
    lab.args(["--topology", "star:hosts=2,rate=1G,delay=5us", "--", "sh", "-c", &script]);
    let run = || {
        let output = lab.output().expect("irnic runs");
        let said = text(&output.stdout);
        if output.status.success() { Ok(said) } else { Err(said + &text(&output.stderr)) }
    };
    let said = attempts("lab: perftest in the lab's time", run).unwrap_or_else(|why| panic!("{why}"));
    let line = said.lines().find(|line| line.split_whitespace().next() == Some("65536"));
    let fields: Vec<f64> = line.into_iter().flat_map(str::split_whitespace).filter_map(|f| f.parse().ok()).collect();
    let json = std::fs::read(folder.path().join("lab.json")).expect("a file");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let pair = json["pairs"].as_array().expect("pairs").iter().find(|pair| pair["from"] == 1).expect("the client's");
    let network = pair["throughput_bps"].as_f64().expect("a rate");
    // In bytes of 2^20, without headers.
    let printed = fields.get(3).expect("an average") * 8.0 * 1_048_576.0;
    assert!((0.85..1.0).contains(&(printed / network)), "{printed} of {network}: {said}");
}
