//! What `irnic lab` tells of a network over time.

use std::process::Output;

use crate::support::{Folder, free_ports, irnic, listens, needs, text};
use serde_json::Value;

/// Two transfers between hosts of a star at once, to the same host, by perftest; `options` go to the lab.
fn incast(folder: &Folder, options: &[&str]) -> Option<Output> {
    needs(&["ib_write_bw"])?;
    let [one, two] = free_ports();
    let flow = |port: &str, src: u32| {
        format!(
            "(IRNIC_LAB_HOST=0 ib_write_bw -d irnic0 -n 400 -p {port} >/dev/null & {}
              IRNIC_LAB_HOST={src} ib_write_bw -d irnic0 -n 400 -p {port} 127.77.0.1 >/dev/null; wait)",
            listens(port)
        )
    };
    let script = format!("{} & {}; wait", flow(&one, 1), flow(&two, 2));
    let mut lab = irnic(folder);
    lab.args(["lab", "--topology", "star:hosts=3,rate=10G,delay=5us"]).args(options);
    lab.args(["--", "sh", "-c", &script]);
    let output = lab.output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(output)
}

/// Rows of a CSV file by the names of its columns.
fn csv(folder: &Folder, name: &str) -> Vec<Vec<(String, String)>> {
    let file = crate::support::csv(folder, name);
    let mut lines = file.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), head.len(), "{line}");
        head.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), cell.to_owned())).collect()
    };
    lines.map(row).collect()
}

fn cell<'a>(row: &'a [(String, String)], name: &str) -> &'a str {
    &row.iter().find(|(column, _)| column == name).unwrap_or_else(|| panic!("no column {name}")).1
}

fn number(row: &[(String, String)], name: &str) -> u64 {
    cell(row, name).parse().unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn what_leaves_by_any_port_is_recorded() {
    let Some(()) = needs(&["tshark"]) else { return };
    let folder = Folder::new();
    let options =
        ["--transport", "roce", "--pfc", "on", "--buffer", "60KB", "--pcap", "c.pcapng", "--pcap-port", "all"];
    if incast(&folder, &[&options[..], &["--json", "r.json"]].concat()).is_none() {
        return;
    }
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("r.json")).expect("a file")).expect("JSON");
    let mut tshark = std::process::Command::new("tshark");
    tshark.current_dir(folder.path()).args(["-r", "c.pcapng", "-T", "fields"]);
    for field in ["frame.interface_name", "eth.type", "frame.time_delta", "ip.src"] {
        tshark.args(["-e", field]);
    }
    let frames = text(&tshark.output().expect("tshark runs").stdout);
    let frames: Vec<Vec<&str>> = frames.lines().map(|line| line.split('\t').collect()).collect();
    let count = |port: &str, kind: &str| frames.iter().filter(|f| f[0] == port && f[1] == kind).count() as u64;
    let mut pauses = 0;
    for port in json["ports"].as_array().expect("ports") {
        let name = format!("{}-{}", port["from"].as_str().expect("a node"), port["to"].as_str().expect("a node"));
        assert_eq!(count(&name, "0x0800"), port["packets"].as_u64().expect("packets"), "{name}");
        pauses += count(&name, "0x8808");
    }
    assert!(pauses >= json["pauses"].as_u64().expect("pauses") && pauses > 0, "{pauses}: each XOFF, and XONs");
    assert!(frames.iter().all(|frame| !frame[2].starts_with('-')), "in order of time");
    assert!(frames.iter().all(|f| f[0] != "h1-s0" || f[3] == "127.77.0.2"), "the hosts' addresses");
    let decoded = irnic(&folder).args(["decode", "c.pcapng"]).output().expect("irnic runs");
    let decoded = text(&decoded.stdout);
    let right = decoded.lines().filter(|line| line.ends_with("ICRC ok")).count();
    assert_eq!(right, frames.iter().filter(|f| f[1] == "0x0800").count(), "each ICRC is right");
}

#[test]
fn the_network_is_written_over_time() {
    let folder = Folder::new();
    let options =
        ["--sample", "500us", "--series", "s.csv", "--port-series", "p.csv", "--html", "r.html", "--json", "r.json"];
    // Some of these fall into the transfers, whenever they begin.
    let events: Vec<String> = (1..1_000).map(|n| format!("rate:h0-s0={}G@{}ms", 9 + n % 2, n * 20)).collect();
    let events = events.join(",");
    let Some(output) = incast(&folder, &[&options[..], &["--link-event", &events]].concat()) else { return };
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("r.json")).expect("a file")).expect("JSON");

    let series = csv(&folder, "s.csv");
    assert!(series.len() > 100, "{} moments", series.len());
    let rising = |name| series.windows(2).all(|w| number(&w[0], name) <= number(&w[1], name));
    for name in ["at_ns", "delivered_bytes", "dropped", "marked", "pauses"] {
        assert!(rising(name), "{name}");
    }
    let last = series.last().expect("a row");
    // 400 messages of 64 KiB from each of two.
    assert!(number(last, "delivered_bytes") >= 2 * 400 * 65_536, "{last:?}");
    assert!(number(last, "delivered_bytes") < 2 * 400 * 65_536 * 11 / 10, "{last:?}");
    assert_eq!(number(last, "goodput_bytes"), 2 * 400 * 65_536, "what arrived twice counts once");
    // Two at 10 Gbit/s into one.
    assert!(series.iter().any(|row| number(row, "longest_queue_bytes") > 20_000), "no queue");
    assert!(series.iter().all(|row| number(row, "delivered_bps") < 10_400_000_000), "faster than the link");

    let ports = csv(&folder, "p.csv");
    let of = |from: &str, to: &str| {
        ports.iter().filter(|row| (cell(row, "from"), cell(row, "to")) == (from, to)).collect::<Vec<_>>()
    };
    let link = json["ports"].as_array().expect("ports").iter().find(|p| p["from"] == "s0" && p["to"] == "h0");
    let link = link.expect("the link to host 0");
    let bottleneck = of("s0", "h0");
    assert_eq!(bottleneck.len(), series.len(), "a row for each moment");
    let end = bottleneck.last().expect("a row");
    for (column, key) in
        [("bytes", "bytes"), ("packets", "packets"), ("dropped", "dropped"), ("paused_ns", "paused_ns")]
    {
        assert_eq!(Some(number(end, column)), link[key].as_u64(), "{column}");
    }
    let queue = |rows: &[&Vec<(String, String)>]| rows.iter().map(|r| number(r, "queue_bytes")).max().unwrap_or(0);
    assert!(queue(&bottleneck) > queue(&of("s0", "h1")), "the queue is where two flows meet");

    let report = std::fs::read_to_string(folder.path().join("r.html")).expect("a report");
    let data = report.split("<script id=\"plots\" type=\"application/json\">").nth(1).expect("plots");
    let plots: Value = serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON");
    let ids: Vec<&str> = plots.as_array().expect("plots").iter().filter_map(|p| p["id"].as_str()).collect();
    assert!(ids.starts_with(&["goodput", "throughput", "queues"]), "{ids:?}");
    assert!(report.contains("<span>s0 to h0</span>") && report.contains("<th>h1 h0</th>"), "{report}");
    // What happened to links is marked, and the result says how to get it again.
    let marked = plots[1]["events"].as_array().expect("events");
    assert!(marked.iter().any(|event| event["text"] == "h0-s0 at 9G"), "{marked:?}");
    assert_eq!(json["faults"][0]["what"], "h0-s0 at 10G", "{}", json["faults"][0]);
    let command = json["command"].as_str().expect("a command");
    assert!(command.starts_with("irnic lab --topology star:hosts=3,rate=10G,delay=5us --sample 500us"), "{command}");
    let (err, version) = (text(&output.stderr), json["irnic"].as_str().expect("a version"));
    assert!(err.contains(&format!("  again: {command} (irnic {version})")), "{err}");
    assert!(report.contains("again: irnic lab "), "{report}");
    let highest =
        plots[2]["lines"].as_array().expect("lines").iter().flat_map(|l| l["points"].as_array().expect("points"));
    assert!(highest.filter_map(|p| p[1].as_f64()).any(|kb| kb > 20.0), "{}", plots[2]);
}

#[test]
fn goodput_is_what_arrived_for_the_first_time() {
    if needs(&["ib_write_bw"]).is_none() {
        return;
    }
    for transport in ["roce", "irn"] {
        let folder = Folder::new();
        let [port] = free_ports();
        let script = format!(
            "IRNIC_LAB_HOST=0 ib_write_bw -d irnic0 -n 300 -p {port} >/dev/null & {}
             IRNIC_LAB_HOST=1 ib_write_bw -d irnic0 -n 300 -p {port} 127.77.0.1 >/dev/null && wait",
            listens(&port)
        );
        let mut lab = irnic(&folder);
        lab.args(["lab", "--topology", "star:hosts=2,rate=10G,delay=5us,loss=1%", "--transport", transport]);
        lab.args(["--series", "s.csv", "--html", "r.html", "--json", "r.json", "--", "sh", "-c", &script]);
        let output = lab.output().expect("irnic runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let series = csv(&folder, "s.csv");
        let last = series.last().expect("a row");
        assert_eq!(number(last, "goodput_bytes"), 300 * 65_536, "{transport}: {last:?}");
        assert!(number(last, "delivered_bytes") > 300 * 65_536, "{transport}: nothing was sent twice: {last:?}");
        // As the firmware counts.
        let json = std::fs::read(folder.path().join("r.json")).expect("a file");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        let processes = json["processes"].as_array().expect("processes").iter();
        let placed: u64 = processes.filter_map(|process| process["counters"]["rcvd_bytes"].as_u64()).sum();
        assert_eq!(placed, 300 * 65_536, "{transport}");
        let report = std::fs::read_to_string(folder.path().join("r.html")).expect("a report");
        let data = report.split("<script id=\"plots\" type=\"application/json\">").nth(1).expect("plots");
        let plots: Value = serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON");
        let lines = plots[0]["lines"].as_array().expect("lines");
        let dashed: Vec<bool> = lines.iter().filter_map(|line| line["dashed"].as_bool()).collect();
        assert_eq!((&plots[0]["id"], &dashed[..]), (&"goodput".into(), &[false, true][..]), "{transport}");
        assert!(report.contains("<h3>Goodput</h3>"), "{transport}");
    }
}

#[test]
fn results_have_the_settings_and_what_follows_from_them() {
    let folder = Folder::new();
    let network = ["lab", "--topology", "star:hosts=2,rate=10G", "--transport", "roce", "--cc", "dcqcn"];
    let files = ["--json", "r.json", "--csv", "r.csv", "--html", "r.html", "--program-time", "lab", "--seed", "7"];
    let script = ["--", "sh", "-c", "\"$0\" ctl stats > stats.json", env!("CARGO_BIN_EXE_irnic")];
    let output = irnic(&folder).args(network).args(files).args(script).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let marking = "RED, kmin 1250 bytes, kmax 50000 bytes, pmax 0.01";
    // A running lab says so too: whose time rates are in that programs print.
    for name in ["r.json", "stats.json"] {
        let json = std::fs::read(folder.path().join(name)).expect("a file");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!((&json["program_time"], &json["seed"]), (&"lab".into(), &7.into()), "{name}");
        assert_eq!((&json["settings"]["cc"], &json["resolved"]["ecn"]), (&"dcqcn".into(), &marking.into()), "{name}");
    }
    let report = std::fs::read_to_string(folder.path().join("r.html")).expect("a report");
    for row in [format!("<th>ecn, resolved</th><td>{marking}</td>"), "<th>program-time</th><td>lab</td>".into()] {
        assert!(report.contains(&row), "{row}: {report}");
    }
    assert!(text(&output.stderr).contains(&format!("  ecn: {marking}\n")), "{}", text(&output.stderr));
    let table = crate::support::csv(&folder, "r.csv");
    let head: Vec<&str> = table.lines().next().expect("names").split(',').collect();
    for column in ["seed", "topology", "cc", "resolved_ecn", "program_time"] {
        assert_eq!(head.iter().filter(|name| **name == column).count(), 1, "{column}: {head:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_at_once() {
    let folder = Folder::new();
    let lab = irnic(&folder).args(["lab", "--topology", "star:hosts=2", "--series", "no/s.csv", "--", "true"]).output();
    let lab = lab.expect("irnic runs");
    assert_eq!(lab.status.code(), Some(2), "{}", text(&lab.stderr));
    assert!(text(&lab.stderr).contains("no/s.csv"), "{}", text(&lab.stderr));
}
