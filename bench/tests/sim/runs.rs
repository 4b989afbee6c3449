//! `irnic sim` as a user runs it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, csv, irnic, needs, ring, text};
use serde_json::Value;

/// Small enough for a debug build, large enough to congest.
pub(crate) const SMALL: [&str; 4] = ["--topology", "star:hosts=8", "--duration", "500us"];

pub(crate) fn sim(folder: &Folder, args: &[&str]) -> Output {
    irnic(folder).arg("sim").args(args).output().expect("irnic runs")
}

/// What it prints.
pub(crate) fn run(folder: &Folder, args: &[&str]) -> String {
    let output = sim(folder, args);
    assert!(output.status.success(), "irnic sim {args:?}: {}\n{}", text(&output.stderr), text(&output.stdout));
    text(&output.stdout)
}

pub(crate) fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).expect(name)
}

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&read(folder, name)).expect("JSON")
}

/// The only run of the only case.
pub(crate) fn only_run(folder: &Folder, name: &str) -> Value {
    json(folder, name)["cases"][0]["runs"][0].clone()
}

pub(crate) fn refused(folder: &Folder, args: &[&str], said: &str) {
    let output = sim(folder, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with(&format!("irnic sim: {said}")), "{args:?}: {}", text(&output.stderr));
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name).display().to_string()
}

#[test]
fn the_table_tells_how_long_flows_took_and_what_the_network_did() {
    let folder = Folder::new();
    let out = run(&folder, &[&SMALL[..], &["--transport", "roce", "--pfc", "on"]].concat());
    for row in [
        "ended",
        "average slowdown",
        "average FCT [ms]",
        "p50 FCT [ms]",
        "p95 FCT [ms]",
        "p99 FCT [ms]",
        "p99.9 FCT [ms]",
        "goodput [Gbit/s]",
        "dropped",
        "retransmitted",
        "timeouts",
        "out of order",
        "PFC frames",
        "paused [ms]",
        "up to 1024 B",
        "up to 10 KB",
        "1 of 1 runs, ",
    ] {
        assert!(out.lines().any(|line| line.starts_with(row)), "no {row}:\n{out}");
    }
    assert!(out.contains("roce pfc=on"), "{out}");
}

#[test]
fn one_seed_has_no_confidence_interval() {
    let folder = Folder::new();
    for (seeds, is_known) in [("1", false), ("2", true)] {
        run(&folder, &[&SMALL[..], &["--seeds", seeds, "--json", "all.json"]].concat());
        let of_time = &json(&folder, "all.json")["cases"][0]["over_seeds"]["avg_fct_ns"];
        assert!(of_time["mean"].is_f64() && of_time["confidence95"].is_f64() == is_known, "{seeds}: {of_time}");
        assert!(is_known || of_time["confidence95"].is_null(), "{of_time}");
    }
}

#[test]
fn packets_are_recorded_where_it_was_asked() {
    let folder = Folder::new();
    let network = ["--topology", "star:hosts=3,rate=10G,delay=1us", "--workload", "incast:senders=2,each=10KB,to=0"];
    let recorded = |more: &[&str]| {
        run(&folder, &[&network[..], &["--transport", "irn", "--pcap", "c.pcapng"], more].concat());
        let decoded = irnic(&folder).args(["decode", "c.pcapng"]).output().expect("irnic runs");
        let mut lines: Vec<String> = text(&decoded.stdout).lines().map(str::to_owned).collect();
        let summary = lines.pop().expect("a summary");
        assert!(summary.ends_with("; 0 other packets"), "{summary}");
        assert!(lines.iter().all(|line| line.ends_with("ICRC ok")), "{lines:?}");
        let writes =
            |part: &str| lines.iter().filter(|line| line.contains("RDMA Write") && line.contains(part)).count();
        (lines.len(), writes("10.0.0.2 > 10.0.0.1"), writes("10.0.0.3 > 10.0.0.1"))
    };
    // Ten packets each, and as many acknowledgements.
    assert_eq!(recorded(&["--pcap-port", "h1-s0"]), (10, 10, 0));
    assert_eq!(recorded(&["--pcap-port", "s0-h0,h2-s0"]), (30, 10, 20));
    assert_eq!(recorded(&[]), (80, 20, 20));
    assert_eq!(recorded(&["--verify", "--pcap-port", "h0"]), (40, 10, 10));
    run(&folder, &[&network[..], &["--transport", "ndp", "--switch", "trimming", "--pcap", "c.pcapng"]].concat());
    let decoded = irnic(&folder).args(["decode", "c.pcapng"]).output().expect("irnic runs");
    let trimmed = text(&decoded.stdout).lines().filter(|line| line.contains(" N trimmed ")).count();
    assert!(decoded.status.success() && trimmed > 0, "{}", text(&decoded.stdout));
    let nowhere = [&network[..], &["--pcap", "c.pcapng", "--pcap-port", "s9"]].concat();
    refused(&folder, &nowhere, "--pcap-port s9: expected the ends of a link");
    refused(&folder, &["--pcap", "c.pcapng", "--seeds", "2"], "--pcap records one run");
}

#[test]
fn parts_of_a_workload_have_their_own_loads_and_lines() {
    let folder = Folder::new();
    let workload = "fixed:20KB,load=0.4+foreground:flows=1,share=0.1";
    let args = [&SMALL[..], &["--workload", workload, "--workload", "fixed:1KB", "--json", "s.json"]].concat();
    let out = run(&folder, &args);
    // One is too long a word for the head of a column.
    assert!(out.starts_with(&format!("[1] {workload}\n[2] fixed:1KB\n\n")), "{out}");
    let line = |name: &str| {
        let mut lines = out.lines().filter(|line| line.starts_with(name));
        lines.next_back().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    // The second case has no such part: nothing to take a mean of.
    assert_eq!(line("class 1, foreground").expect("a class")[3..], ["0", "-", "-", "-", "-", "-", "-", "-"]);
    assert!(line("class 0, fixed").is_some(), "{out}");
    // 40 % and 7 % of 8 hosts, of 40 Gbit/s each, for 0.5 ms: 8 MB and 1.4 MB with headers.
    let classes = &json(&folder, "s.json")["cases"][0]["runs"][0]["by_class"];
    let flows = |class: usize| classes[class]["flows"].as_u64().expect("a number");
    assert!((250..450).contains(&flows(0)) && (126..=168).contains(&flows(1)), "{classes}");
    assert_eq!(flows(1) % 7, 0, "{classes}");
    refused(
        &folder,
        &["--workload", "irn-heavy+foreground:share=5%"],
        "--workload: foreground: share=5%: expected a share of --load, above 0 and below 1, such as 0.05",
    );
}

#[test]
fn discrete_distributions_have_the_sizes_that_are_listed() {
    let folder = Folder::new();
    // ns-2's columns, in packets; cut off after IMC10's fifth size.
    let ns2 = "1 1 0\n1 1 0.5\n2 1 0.6\n3 1 0.7\n5 1 0.75\n7 1 1\n";
    std::fs::write(folder.path().join("packets.txt"), ns2).expect("packets.txt");
    let sizes = |workload: &str| -> BTreeSet<u64> {
        run(&folder, &[&SMALL[..], &["--workload", workload, "--per-flow", "f.csv"]].concat());
        csv(&folder, "f.csv").lines().skip(1).map(|l| l.split(',').nth(2).unwrap().parse().unwrap()).collect()
    };
    let packets = [1, 2, 3, 5, 7];
    assert_eq!(sizes("cdf:packets.txt,unit=1460,discrete=on"), packets.map(|n| n * 1460).into());
    assert!(sizes("cdf:packets.txt,unit=1460").len() > 100);
    let imc10 = BTreeSet::from([1, 2, 3, 5, 7, 40, 72, 137, 267, 1187, 2107].map(|n| n * 1460));
    assert!(sizes("cdf:IMC10").is_subset(&imc10));
    refused(&folder, &["--workload", "cdf:packets.txt,discrete=1"], "--workload: cdf: discrete=1: expected on or off");
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_any_number_of_jobs() {
    let outputs = |jobs: &str| {
        let folder = Folder::new();
        let grid = ["--transport", "irn", "--transport", "roce", "--load", "0.5", "--load", "0.9", "--seeds", "2"];
        let files =
            ["--json", "a.json", "--per-flow", "a.csv", "--series", "s.csv", "--html", "a.html", "--jobs", jobs];
        run(&folder, &[&SMALL[..], &grid, &files].concat());
        ["a.json", "a.csv", "s.csv", "a.html"].map(|name| read(&folder, name))
    };
    let (one, three) = (outputs("1"), outputs("3"));
    assert!(one == three, "files differ");
    // And another seed gives other flows.
    let of_seed = |seed: &str| -> Vec<&str> {
        let flows = one[1].lines().filter_map(|line| line.split_once(",load=0.5 irn,"));
        flows.filter(|(_, rest)| rest.split(',').next() == Some(seed)).map(|(flow, _)| flow).collect()
    };
    assert!(of_seed("1").len() > 10 && of_seed("2").len() > 10 && of_seed("1") != of_seed("2"));
}

#[test]
fn what_several_threads_cannot_share_out_one_runs_and_says_why() {
    let folder = Folder::new();
    let said = |more: &[&str]| {
        let args = ["--topology", "dumbbell", "--duration", "30us", "--threads", "2"];
        let out = sim(&folder, &[&args[..], more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr).to_owned()
    };
    assert_eq!(said(&[]), "");
    let alone = "irnic sim: --threads: on one thread: ";
    assert_eq!(said(&["--qps", "reused"]), format!("{alone}queue pairs that several flows share\n"));
    assert_eq!(said(&["--pcap", "a.pcapng"]), format!("{alone}--pcap records packets one after another\n"));
    let several = said(&["--verify", "--seeds", "2"]);
    assert_eq!(several, "irnic sim: --threads: 2 runs on one thread: packets with bytes\n");
}

#[test]
fn all_transports_get_the_same_flows() {
    let folder = Folder::new();
    run(&folder, &[&SMALL[..], &["--transport", "irn", "--transport", "roce", "--per-flow", "f.csv"]].concat());
    let csv = csv(&folder, "f.csv");
    let of = |case: &str| -> Vec<String> {
        let lines = csv.lines().filter(|line| line.contains(case));
        lines.map(|line| line.split(',').take(4).collect::<Vec<_>>().join(",")).collect()
    };
    assert!(!of(",irn,1,").is_empty());
    assert_eq!(of(",irn,1,"), of(",roce,1,"));
}

/// The lines of a CSV file, each as its fields by column.
fn table(csv: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("a header");
    lines.map(|fields| head.iter().copied().zip(fields).collect()).collect()
}

#[test]
fn csv_has_a_line_for_each_case_and_seed_with_its_settings() {
    let folder = Folder::new();
    let grid = ["--transport", "irn", "--transport", "roce", "--load", "0.2", "--load", "0.4", "--seeds", "2"];
    let files = ["--csv", "s.csv", "--json", "s.json", "--per-flow", "f.csv", "--series", "q.csv"];
    run(&folder, &[&SMALL[..], &grid, &files].concat());
    let json: Value = serde_json::from_str(&read(&folder, "s.json")).expect("JSON");
    let first = read(&folder, "s.csv");
    let again = "# again: irnic sim --topology star:hosts=8 --duration 500us --transport irn --transport roce --load 0.2 \
                 --load 0.4 --seeds 2 (irnic ";
    assert!(first.starts_with(again) && first.lines().filter(|line| line.starts_with('#')).count() == 1, "{first}");
    let summaries = csv(&folder, "s.csv");
    let lines = table(&summaries);
    let runs = json["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .flat_map(|case| case["runs"].as_array().expect("runs").iter().map(move |run| (&case["settings"], run)));
    let runs: Vec<_> = runs.collect();
    assert_eq!((lines.len(), runs.len()), (8, 8), "{summaries}");
    for (line, (settings, run)) in lines.iter().zip(runs) {
        for key in ["transport", "load", "topology", "mtu"] {
            assert_eq!(line[key], settings[key].as_str().expect("a setting"), "{key}");
        }
        assert_eq!(line["seed"], run["seed"].to_string());
        assert_eq!(line["sent_packets"], run["sent_packets"].to_string());
        let mean: f64 = line["avg_fct_ns"].parse().expect("a number");
        assert_eq!(Some(mean), run["all"]["fct_ns"]["mean"].as_f64());
    }
    // Files with many lines for each run have the settings that differ.
    for name in ["f.csv", "q.csv"] {
        let text = csv(&folder, name);
        let (_, settings) = text.lines().next().and_then(|head| head.split_once(",case,seed,")).expect("a header");
        assert_eq!(BTreeSet::from_iter(settings.split(',')), BTreeSet::from(["load", "transport"]), "{name}");
        let all = table(&text);
        assert!(
            all.iter().any(|line| (line["transport"], line["load"], line["seed"]) == ("roce", "0.4", "2")),
            "{name}"
        );
        assert!(all.iter().all(|line| line["case"].contains(line["transport"])), "{name}");
    }
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn flows_are_written_as_csv_and_as_parquet() {
        let folder = Folder::new();
        // An end in the middle leaves flows that are not complete.
        let until = ["--until", "300us", "--transport", "irn,cap=64"];
        run(&folder, &[&SMALL[..], &until, &["--per-flow", "f.csv"]].concat());
        run(&folder, &[&SMALL[..], &until, &["--per-flow", "f.parquet"]].concat());
        let csv = csv(&folder, "f.csv");
        let mut lines = csv.lines();
        let names: Vec<&str> = lines.next().expect("a heading").split(',').collect();
        assert_eq!(names[..6], ["src", "dst", "bytes", "start_ns", "fct_ns", "ideal_ns"]);
        let file = std::fs::File::open(folder.path().join("f.parquet")).expect("a file");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let said = reader.metadata().file_metadata().key_value_metadata().expect("metadata");
        let command = said.iter().find(|of| of.key == "command").and_then(|of| of.value.as_deref());
        assert!(command.is_some_and(|command| command.starts_with("irnic sim --topology star:hosts=8 ")), "{said:?}");
        let mut unfinished = 0;
        let mut rows = reader.get_row_iter(None).expect("rows");
        for line in lines {
            let row = rows.next().expect("as many rows").expect("a row");
            // The label has a comma in it.
            let fields = line.replace("\"irn,cap=64 pfc=off\"", "label").replace(",", " ,");
            let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
            for ((name, field), expected) in row.get_column_iter().zip(fields) {
                let found = match field {
                    Field::Null => String::new(),
                    Field::Long(n) => n.to_string(),
                    Field::Str(label) => {
                        assert_eq!(label, "irn,cap=64 pfc=off");
                        "label".to_owned()
                    }
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(found, expected, "{name} of {line}");
                unfinished += u32::from(name == "fct_ns" && *field == Field::Null);
            }
        }
        assert!(rows.next().is_none());
        assert!(unfinished > 0, "some flows are not complete");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_that_was_not_built_is_refused_before_the_run() {
    let folder = Folder::new();
    let args = [&SMALL[..], &["--per-flow", "f.parquet"]].concat();
    refused(
        &folder,
        &args,
        "--per-flow f.parquet: irnic was built without Parquet; build it with `cargo build --release ",
    );
    assert!(!folder.path().join("f.parquet").exists());
}

#[test]
fn an_experiment_file_makes_a_grid_and_flags_replace_what_it_says() {
    let folder = Folder::new();
    folder.write(
        "e.toml",
        "topology = \"star:hosts=8\"\nduration = \"500us\"\nload = [0.3, 0.6]\nseeds = 2\n\
         [[run]]\nname = \"IRN\"\ntransport = \"irn\"\n[[run]]\ntransport = \"roce\"\npfc = true\n",
    );
    run(&folder, &["--experiment", "e.toml", "--json", "e.json"]);
    let all = json(&folder, "e.json");
    let labels: Vec<&str> = all["cases"].as_array().unwrap().iter().map(|c| c["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["IRN load=0.3", "IRN load=0.6", "load=0.3 roce pfc=on", "load=0.6 roce pfc=on"]);
    for case in all["cases"].as_array().unwrap() {
        let seeds: Vec<u64> = case["runs"].as_array().unwrap().iter().map(|r| r["seed"].as_u64().unwrap()).collect();
        assert_eq!(seeds, [1, 2]);
        assert!(case["runs"].as_array().unwrap().iter().all(|r| r["ending"] == "complete"));
    }
    run(&folder, &["--experiment", "e.toml", "--load", "0.1", "--seeds", "1", "--seed", "7", "--json", "f.json"]);
    let all = json(&folder, "f.json");
    let labels: Vec<&str> = all["cases"].as_array().unwrap().iter().map(|c| c["label"].as_str().unwrap()).collect();
    assert_eq!((labels, all["seeds"].clone()), (vec!["IRN", "roce pfc=on"], serde_json::json!([7])));
}

#[test]
fn real_bytes_change_nothing() {
    let folder = Folder::new();
    let congested = ["--transport", "irn", "--buffer", "30KB", "--workload", "irn-heavy+incast:senders=6,bytes=1MB"];
    run(&folder, &[&SMALL[..], &congested, &["--json", "a.json"]].concat());
    run(&folder, &[&SMALL[..], &congested, &["--json", "b.json", "--verify"]].concat());
    let (phantom, real) = (only_run(&folder, "a.json"), only_run(&folder, "b.json"));
    assert!(phantom["dropped_packets"].as_u64().unwrap() > 0, "nothing was lost: {phantom}");
    assert_eq!(phantom, real);
}

#[test]
fn files_of_the_ns3_simulators_are_read_as_they_are() {
    let folder = Folder::new();
    folder.write("flows.txt", "3\n0 127 3 20000 2.0\n1 127 3 30000 2.0\n5 6 3 1000 2.000001\n");
    let topology = fixture("topologies/leaf_spine_128_100G_OS2.txt");
    let shared = ["--switch", "shared-buffer", "--buffer", "9MB", "--pfc", "on", "--alpha", "1", "--pfc-alpha", "1/8"];
    let files = [
        "--topology",
        &topology,
        "--flows",
        "flows.txt",
        "--per-flow",
        "f.csv",
        "--series",
        "s.csv",
        "--sample",
        "1ms",
    ];
    run(&folder, &[&files[..], &shared].concat());
    let flows = csv(&folder, "f.csv");
    let starts: Vec<String> =
        flows.lines().skip(1).map(|l| l.split(',').take(4).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(starts, ["0,127,20000,2000000000", "1,127,30000,2000000000", "5,6,1000,2000001000"]);
    // Nothing is told of the two seconds in which nothing happens.
    let series = csv(&folder, "s.csv");
    assert!(series.lines().nth(1).unwrap().starts_with("2000000000,"), "{series}");
}

#[test]
fn a_deadlock_is_told_with_its_cycle() {
    let folder = Folder::new();
    ring(&folder);
    let args = ["--topology", "ring.txt", "--flows", "flows.txt", "--json", "d.json"];
    let out = run(&folder, &[&args[..], &["--transport", "roce", "--pfc", "on"]].concat());
    assert!(out.contains("deadlock, each node waits for the next: "), "{out}");
    let found = only_run(&folder, "d.json");
    assert_eq!(found["ending"], "deadlock");
    let nodes: Vec<u64> = found["deadlock"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(nodes.len(), 7, "{nodes:?}");
    for at in 0..7 {
        assert_eq!(nodes[(at + 1) % 7], (nodes[at] - 7 + 1) % 7 + 7, "{nodes:?}");
    }
    run(&folder, &[&args[..], &["--transport", "irn"]].concat());
    assert_eq!(only_run(&folder, "d.json")["ending"], "complete");
}

#[test]
fn a_link_that_fails_loses_packets_and_irn_sends_them_again() {
    let folder = Folder::new();
    let flow = ["--topology", "star:hosts=2", "--workload", "permutation:bytes=1MB"];
    let events = ["--link-event", "down:1-2@50us", "--link-event", "up:1@70us", "--json", "l.json"];
    run(&folder, &[&flow[..], &events].concat());
    let found = only_run(&folder, "l.json");
    assert_eq!((&found["ending"], &found["all"]["complete"]), (&"complete".into(), &2.into()));
    assert!(found["lost_packets"].as_u64() > Some(0) && found["retransmitted_packets"].as_u64() > Some(0), "{found}");
}

/// Ctrl-C for a process, once it catches that and has computed for so long.
fn interrupt_after(child: &Child, computed: Duration) {
    let proc = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("a process");
    let catches = || {
        let status = proc("status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
        // Bit 0 is signal 1, SIGINT is 2.
        u64::from_str_radix(caught, 16).expect("a mask") & 1 << 1 != 0
    };
    // Of what follows the name, which may have blanks, the twelfth number; a tick is 10 ms.
    let ticks = || -> u128 {
        let stat = proc("stat");
        let rest = stat.rsplit_once(')').expect("a name").1;
        rest.split_whitespace().nth(11).expect("utime").parse().expect("a number")
    };
    let patience = Instant::now() + irnic_testkit::wait::HANG;
    while !catches() || ticks() * 10 < computed.as_millis() {
        assert!(Instant::now() < patience, "nothing happens");
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
}

#[test]
fn what_was_run_until_ctrl_c_is_told() {
    let folder = Folder::new();
    let mut command = irnic(&folder);
    command.args(["sim", "--duration", "100ms", "--json", "i.json", "--record", "r.csv"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    interrupt_after(&child, Duration::ZERO);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("irnic sim: interrupted; the results are those up to then"));
    assert!(text(&output.stderr).contains("--record: nothing is written of a run that was interrupted"));
    assert!(!folder.path().join("r.csv").exists());
    assert!(
        text(&output.stdout).contains("interrupted") || text(&output.stdout).contains("failed"),
        "{}",
        text(&output.stdout)
    );
    assert_eq!(json(&folder, "i.json")["cases"].as_array().map(Vec::len), Some(1));
}

#[test]
fn ctrl_c_among_several_runs_tells_how_many_were_done_and_shows_those_alone() {
    let folder = Folder::new();
    folder.write(
        "e.toml",
        "topology = \"star:hosts=4\"\n[[run]]\nname = \"short\"\nduration = \"50us\"\n\
         [[run]]\nname = \"long\"\nworkload = \"permutation:bytes=100GB\"\n\
         [[run]]\nname = \"later\"\nduration = \"50us\"\n",
    );
    let mut command = irnic(&folder);
    command.args(["sim", "--experiment", "e.toml", "--jobs", "1", "--json", "i.json", "--per-flow", "f.csv"]);
    command.args(["--html", "r.html"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // The first run takes some hundredths of a second, the second hours.
    interrupt_after(&child, Duration::from_secs(2));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let said = "irnic sim: interrupted: 1 of 3 runs was done, 1 under way, 1 never begun; the results are those of runs that were done\n";
    assert_eq!(text(&output.stderr), said);
    let out = text(&output.stdout);
    let row = |name: &str| {
        let line = out.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {out}"));
        line[name.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(row("ended"), ["complete", "interrupted", "never begun"]);
    assert_eq!(row("packets sent")[1..], ["-", "-"]);
    assert_ne!(row("packets sent")[0], "-");
    let endings: Vec<Value> = json(&folder, "i.json")["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|c| c["runs"][0]["ending"].clone())
        .collect();
    assert_eq!(endings, ["complete", "interrupted", "never-begun"]);
    assert!(csv(&folder, "f.csv").lines().skip(1).all(|line| line.contains(",short,1,")));
    let report = read(&folder, "r.html");
    for part in ["1 of 3 runs was done, 1 under way, 1 never begun", "<td class=\"bad\">never begun</td>"] {
        assert!(report.contains(part), "{part}");
    }
}

/// Each third of the flows has a transport, or all have the same one: the flows are the same.
#[test]
fn transports_share_a_network_and_are_told_apart() {
    let folder = Folder::new();
    let thirds = "fixed:200KB,load=0.15+fixed:200KB,load=0.15+fixed:200KB,load=0.15";
    let mut args = vec!["--topology", "leaf-spine:leaves=2,spines=2,hosts=2,rate=10G", "--duration", "5ms"];
    args.extend(["--workload", thirds, "--json", "all.json"]);
    for transport in ["irn+roce+iwarp", "irn", "roce", "iwarp"] {
        args.extend(["--transport", transport]);
    }
    let out = run(&folder, &args);
    let said = |line: &str| out.lines().any(|l| l.starts_with(line));
    for (class, transport) in ["irn", "roce", "iwarp"].iter().enumerate() {
        assert!(said(&format!("class {class}, fixed, {transport} ")), "{out}");
        assert!(said(&format!("class {class}, fixed  ")), "{out}");
    }
    let heads: Vec<&str> = out.lines().filter(|l| l.ends_with("Gbit/s")).collect();
    assert_eq!(heads.len(), 4, "{out}");
    let all = json(&folder, "all.json");
    let of = |case: usize, what: &str| {
        let classes = all["cases"][case]["runs"][0]["by_class"].as_array().expect("classes").iter();
        classes.map(|class| class[what].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    for case in 1..4 {
        assert_eq!((of(case, "flows"), of(case, "bytes")), (of(0, "flows"), of(0, "bytes")));
    }
    let resolved = all["cases"][0]["resolved"]["transport"].as_str().expect("text");
    let wires: Vec<&str> = resolved.split(" + ").map(|t| t.split(',').next().unwrap_or(t)).collect();
    assert_eq!(wires, ["irn", "roce", "irn"]);
    refused(
        &folder,
        &["--transport", "irn+roce"],
        "--transport: 2 transports for one part of the workload; expected one",
    );
}

/// Wireshark and `irnic decode` see what switches of RoCC send, whoever does the arithmetic.
#[test]
fn notices_are_icmp_messages() {
    let Some(()) = needs(&["tshark"]) else { return };
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/wireshark/irnic.lua");
    let folder = Folder::new();
    let seen = |compute: &str| {
        let run = ["sim", "--topology", "star:hosts=4,rate=40G,delay=1us", "--workload", "incast:senders=3,each=300KB"];
        let options = ["--transport", "irn,cap=none", "--cc", "rocc", "--buffer", "5MB", "--pcap", "c.pcapng"];
        let points = ["--rocc", compute, "--pcap-port", "s0-h1"];
        let output = irnic(&folder).args(run).args(options).args(points).output().expect("irnic runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut tshark = std::process::Command::new("tshark");
        tshark.current_dir(folder.path()).args(["-X", script, "-r", "c.pcapng", "-Y", "icmp.type == 253"]);
        tshark.args(["-T", "fields", "-o", "ip.check_checksum:TRUE"]);
        let own = ["version", "port", "rate", "queue", "before", "queue_before", "q_ref", "alpha", "src", "qp"];
        let own = own.map(|name| format!("irnic_rocc.{name}"));
        let icmp = ["icmp.checksum.status", "ip.checksum.status", "frame.len", "ip.dst", "icmp.code"];
        for field in icmp.into_iter().chain(own.iter().map(String::as_str)) {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("tshark runs");
        assert!(output.status.success() && !text(&output.stderr).contains("Lua"), "{}", text(&output.stderr));
        let decoded = irnic(&folder).args(["decode", "c.pcapng"]).output().expect("irnic runs");
        let decoded = text(&decoded.stdout);
        let notices: Vec<String> =
            decoded.lines().filter(|line| line.contains("RATE NOTICE")).map(str::to_owned).collect();
        let lines: Vec<Vec<String>> =
            text(&output.stdout).lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
        assert!(!lines.is_empty() && lines.len() == notices.len(), "{lines:?}\n{decoded}");
        for fields in &lines {
            // Good checksums are 1.
            assert!(fields[0] == "1" && fields[1].starts_with('1') && fields[4] == "0", "{fields:?}");
            assert!(fields[3].starts_with("10.0.0.2") && fields[13] == "10.0.0.2", "{fields:?}");
        }
        (lines, notices)
    };
    let ((short, rates), (long, computed)) = (seen("compute=switch"), seen("compute=host"));
    // Hosts come to the same rates as switches, at the same times but for the longer notices.
    let rate = |line: &String| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix("rate="))
            .unwrap_or_else(|| panic!("{line}"))
            .to_owned()
    };
    assert_eq!(rates.iter().map(rate).collect::<Vec<_>>(), computed.iter().map(rate).collect::<Vec<_>>());
    for (fields, line) in short.iter().zip(&rates) {
        // 90 bytes and the frame check sequence.
        assert_eq!((fields[2].as_str(), fields[5].as_str(), fields[9].as_str()), ("90", "1", ""), "{fields:?}");
        assert_eq!(format!("{}kbit/s", fields[7]), rate(line));
    }
    for fields in &long {
        assert_eq!((fields[2].as_str(), fields[5].as_str(), fields[7].as_str()), ("126", "2", ""), "{fields:?}");
        assert_eq!((fields[11].as_str(), &fields[12][..3]), ("150000", "0.3"), "{fields:?}");
    }
}

/// Two leaves with two spines, at whose hosts open-loop flows of a packet and more meet.
const OPEN: [&str; 12] = [
    "--topology",
    "leaf-spine:leaves=2,spines=2,hosts=4,rate=10G,uplink=10G",
    "--switch",
    "output-queued",
    "--buffer",
    "1GB",
    "--service",
    "uc",
    "--quantum",
    "65536",
    "--seed",
    "3",
];

#[test]
fn a_recorded_schedule_is_replayed_and_other_networks_are_refused() {
    let folder = crate::support::Folder::new();
    let sim = |args: &[&str]| {
        let output = crate::support::irnic(&folder).arg("sim").args(args).output().expect("irnic runs");
        (output.status.code(), crate::support::text(&output.stdout), crate::support::text(&output.stderr))
    };
    let kinds: &[&str] = if cfg!(feature = "parquet") { &["a.csv", "a.parquet"] } else { &["a.csv"] };
    let mut said = Vec::new();
    for &file in kinds {
        let workload = ["--workload", "fixed:20KB", "--load", "0.8", "--duration", "300us", "--scheduling", "random"];
        let (code, _, error) = sim(&[&OPEN[..], &workload, &["--record", file, "--record-hops"]].concat());
        assert_eq!(code, Some(0), "{error}");
        let network = [&OPEN[..6], &OPEN[10..]].concat();
        for by in ["slack", "priority", "vector"] {
            let scheduling = if by == "slack" { "lstf" } else { "rank" };
            let args = [&network[..], &["--replay", file, "--replay-by", by, "--scheduling", scheduling]].concat();
            let (code, out, error) = sim(&args);
            assert_eq!(code, Some(0), "{error}");
            assert!(by != "vector" || out.contains("the worst by 0 ns"), "{out}");
            said.push(out);
        }
        let (code, _, error) = sim(&["--replay", file, "--topology", "star:hosts=8,rate=10G"]);
        assert!(code == Some(2) && error.contains("expected the network, the routing and the seed"), "{error}");
    }
    // Parquet has what CSV has, and LSTF is not static priorities.
    let printed = |said: &String| said.split("again: ").next().expect("a table").to_owned();
    let said: Vec<String> = said.iter().map(printed).collect();
    assert!(said.len() == 3 || said[..3] == said[3..]);
    assert_ne!(said[0], said[1]);
    let (code, _, error) = sim(&["--replay", "a.csv", "--workload", "irn-heavy"]);
    assert_eq!((code, error.trim()), (Some(2), "irnic sim: --replay: does not go with --workload"));
    std::fs::write(folder.path().join("b.csv"), "flow,psn\n").expect("written");
    let interrupted =
        ["--replay", "a.csv", "--replay-by", "vector", "--switch", "output-queued", "--scheduling", "lstf"];
    let (code, _, error) = sim(&[&interrupted[..], &["--preempt", "on"]].concat());
    let said = "irnic sim: --preempt: does not go with --replay-by vector, which has packets sent in one piece";
    assert_eq!((code, error.trim()), (Some(2), said));
    let (code, _, error) = sim(&["--replay", "b.csv"]);
    assert_eq!((code, error.trim()), (Some(2), "irnic sim: --replay b.csv:1: no column `src`"));
}
