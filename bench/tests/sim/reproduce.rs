//! `irnic reproduce` as a user runs it, on networks that have hardly begun.

use std::process::Output;

use crate::support::{Folder, assert_well_formed, csv, irnic, text};
use serde_json::Value;

fn reproduce(folder: &Folder, args: &[&str]) -> Output {
    irnic(folder).args(["reproduce", "irn"]).args(args).output().expect("irnic runs")
}

/// TIMELY's paper, with connections that begin near their share of 20 Gbit/s, so that little time is enough.
fn timely(folder: &Folder, args: &[&str]) -> (String, Value) {
    let time: &[&str] = if args.contains(&"--time") { &[] } else { &["--time", "10ms"] };
    let short = [&["--warm-up", "20ms", "--timely", "initial=0.05", "--json", "cells.json"], time].concat();
    let output = irnic(folder).args(["reproduce", "timely"]).args(args).args(short).output().expect("irnic runs");
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("cells.json")).expect("cells.json");
    (text(&output.stdout), serde_json::from_str(&json).expect("JSON"))
}

fn ours(json: &Value, id: &str) -> f64 {
    let cells = json["cells"].as_array().expect("a list");
    let cell = cells.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id}"));
    cell["ours"].as_f64().unwrap_or_else(|| panic!("{cell}"))
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
    assert_eq!((cells.len(), json["workload"].as_str()), (9, Some("irn-heavy")));
    let of = |id: &str| cells.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id}"));
    let slowdown = of("table4.2/70%/no-cc/irn/avg_slowdown");
    assert_eq!(slowdown["paper"], 8.24);
    let ours = slowdown["ours"].as_f64().expect("a number");
    assert!(ours >= 1.0 && slowdown["confidence"].as_f64().expect("a number") > 0.0, "{slowdown}");
    assert!((slowdown["ratio"].as_f64().expect("a number") - ours / 8.24).abs() < 1e-9);
    assert!(of("table4.2/70%/no-cc/irn-over-roce-pfc/p99_fct")["ours"].as_f64().is_some_and(|r| r > 0.0));
    assert!(out.contains("IRN beats RoCE with PFC (no-cc): ") && out.contains("table4.2"), "{out}");
    // Results say how to get them again.
    let again = "irnic reproduce irn --only table4.2/70%/no-cc --seeds 2 --arrivals 300us";
    assert_eq!(json["command"], again);
    let only = ["--only", "table4.2/70%/no-cc/irn/avg_slowdown", "--arrivals", "300us", "--csv", "cells.csv"];
    assert!(reproduce(&folder, &only).status.success());
    let table = csv(&folder, "cells.csv");
    assert!(table.starts_with("id,ours,") && table.lines().count() == 2, "{table}");
    assert!(
        json["irnic"].as_str().is_some_and(|version| out.starts_with(&format!("{again}\nirnic {version}\n"))),
        "{out}"
    );
}

#[test]
fn the_heavy_tailed_flows_may_be_others() {
    let folder = Folder::new();
    // No message of a single packet, no percentile of theirs.
    for (workload, has) in [("irn-heavy", true), ("fixed:100KB", false)] {
        let only = "figure4.8/default/no-cc/irn-over-irn-pfc";
        let (out, json) = cells(&folder, &["--only", only, "--workload", workload]);
        let cells = json["cells"].as_array().expect("a list");
        assert_eq!((json["workload"].as_str(), cells.len()), (Some(workload), 3));
        assert!(cells.iter().all(|cell| cell["ours"].is_number() == has), "{workload}: {out}");
        assert!(cells.iter().all(|cell| cell["confidence"].is_null()), "one seed has no interval: {json}");
    }
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
    let answer = &one.1["cells"][0]["answer"];
    assert!(answer == "holds" || answer == "fails", "{answer}");
    let other = cells(&folder, &["--only", "figure4.8", "--seed", "6"]);
    assert_ne!(one.1["cells"], other.1["cells"]);
}

#[test]
fn what_does_not_exist_is_refused_before_anything_runs() {
    let folder = Folder::new();
    for (args, said) in [
        (&["--only", "table4.2/71%"][..], "irnic reproduce: --only table4.2/71%: no cell matches; ids are such as"),
        (&["--arrivals", "0s"], "irnic: invalid value '0s' for '--arrivals <TIME>'"),
        (
            &["--workload", "heavy"],
            "irnic: invalid value 'heavy' for '--workload <SPEC>': unknown workload `heavy`; known are",
        ),
        (
            &["--workload", "incast"],
            "irnic: invalid value 'incast' for '--workload <SPEC>': expected Poisson arrivals of one kind, such as",
        ),
        (&["--seeds", "0"], "irnic: invalid value '0' for '--seeds <N>'"),
        (&["--json", "no/such/folder"], "irnic reproduce: --json no/such/folder: "),
    ] {
        let output = reproduce(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).starts_with(said), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn timely_has_a_fraction_of_the_round_trips_of_pfc_at_nearly_its_throughput() {
    let folder = Folder::new();
    let only = ["--only", "table1/timely", "--only", "table1/pfc"];
    let (out, json) = timely(&folder, &[&only[..], &["--jobs", "1"]].concat());
    let of = |id: &str| ours(&json, &format!("table1/{id}"));
    // Of 20 Gbit/s.
    assert!(of("timely/throughput") > 18.0 && of("pfc/throughput") > 19.4, "{out}");
    assert!(of("timely/p99_rtt") < of("pfc/p99_rtt") / 5.0 && of("timely/avg_rtt") < 100.0, "{out}");
    assert!(of("timely/pfc_frames") == 0.0 && of("pfc/pfc_frames") > 0.0, "{out}");
    assert!(of("timely/jain") > 0.8, "{out}");
    // The paper's numbers are beside it, and what is measured does not depend on how many run at a time.
    let cells = json["cells"].as_array().expect("a list");
    let paper = cells.iter().find(|c| c["id"] == "table1/timely/p99_rtt").map(|c| &c["paper"]);
    assert_eq!(paper.and_then(Value::as_f64), Some(116.0));
    assert_eq!((out, json), timely(&folder, &[&only[..], &["--jobs", "2"]].concat()));
}

#[test]
fn noise_and_fine_pacing_do_what_the_paper_says() {
    let folder = Folder::new();
    let (out, json) = timely(&folder, &["--only", "figure12/t-low-50us/200us", "--only", "figure12/t-low-50us/0us"]);
    let of = |noise: &str| ours(&json, &format!("figure12/t-low-50us/{noise}/throughput"));
    assert!(of("200us") < 0.9 * of("0us"), "{out}");
    let (out, json) = timely(&folder, &["--only", "figure16/t-low-50us/700M", "--only", "figure16/t-low-50us/line"]);
    let of = |pacing: &str| ours(&json, &format!("figure16/t-low-50us/{pacing}/p99_rtt"));
    assert!(of("700M") < of("line"), "{out}");
    let claim = "figure16/t-low-50us/700M-over-t-low-50us-line/p99_rtt";
    assert!(
        (ours(&json, claim) - of("700M") / of("line")).abs() < 1e-9 && out.contains("reduced burstiness due to pacing"),
        "{out}"
    );
}

#[test]
fn connections_that_stop_leave_their_share_to_the_others() {
    let folder = Folder::new();
    let (out, json) = timely(&folder, &["--only", "figure18/hai", "--time", "45ms"]);
    // Below T_low each completion adds δ: some 30 ms from 200 Mbit/s. Without T_low bursts of the others look like a
    // queue.
    let reached = ours(&json, "figure18/hai/reached_1.5");
    assert!((20.0..40.0).contains(&reached), "{out}");
    let cells = json["cells"].as_array().expect("a list");
    assert!(cells.iter().any(|c| c["id"] == "figure18/hai-t-low-0us/reached_1.5" && c["ours"].is_null()), "{out}");
}

#[test]
fn figures_are_drawn() {
    let folder = Folder::new();
    let only = ["--only", "figure9", "--only", "figure14/timely", "--only", "figure16/t-low-50us", "--svg", "pictures"];
    timely(&folder, &only);
    let picture = |name: &str| std::fs::read_to_string(folder.path().join("pictures").join(name)).expect(name);
    for (name, title, lines, axes) in [
        ("figure10.svg", "Figure 10: rate of one connection", 3, ["time [ms]", "rate [Gbit/s]"]),
        ("figure14.svg", "Figure 14: distribution of round trips", 1, ["round trip [µs]", "share of round trips"]),
        ("figure16.svg", "Figure 16: throughput and round trips", 2, ["throughput [Gbit/s]", "99 % round trip [µs]"]),
    ] {
        let svg = picture(name);
        assert_well_formed(&svg);
        let again = "<desc>again: irnic reproduce timely --only figure9 ";
        assert!(svg.contains(again) && svg.contains(" (irnic 0."), "{svg}");
        assert!(svg.contains(title) && axes.iter().all(|axis| svg.contains(&format!(">{axis}<"))), "{svg}");
        let drawn: Vec<&str> = svg.split("<polyline").skip(1).collect();
        assert_eq!(drawn.len(), lines, "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("points=\"\""), "{svg}");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("pictures")).expect("a folder").count(), 3);
}

#[test]
fn what_timely_does_not_have_is_refused() {
    let folder = Folder::new();
    for (args, said) in [
        (&["--only", "table2"][..], "irnic reproduce: --only table2: no cell matches; ids are such as table1/timely/"),
        (&["--timely", "gain=2"], "irnic reproduce: --timely: congestion control parameter gain=2: expected"),
        (&["--time", "0s"], "irnic: invalid value '0s' for '--time <TIME>'"),
        (&["--svg", "/dev/null/pictures"], "irnic reproduce: --svg /dev/null/pictures: "),
    ] {
        let output = irnic(&folder).args(["reproduce", "timely"]).args(args).output().expect("irnic runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).starts_with(said), "{args:?}: {}", text(&output.stderr));
    }
}

/// NDP's paper, of one millisecond or two.
fn ndp(folder: &Folder, args: &[&str]) -> (String, Value) {
    let short = ["--warm-up", "1ms", "--until", "3ms", "--json", "cells.json"];
    let output = irnic(folder).args(["reproduce", "ndp"]).args(args).args(short).output().expect("irnic runs");
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("cells.json")).expect("cells.json");
    (text(&output.stdout), serde_json::from_str(&json).expect("JSON"))
}

#[test]
fn ndp_ends_an_incast_at_its_optimum_and_prefers_whom_it_is_told_to() {
    let folder = Folder::new();
    let only = ["--only", "figure16/ndp/50", "--only", "figure16/ndp-preferred/100", "--only", "figure4/incast-15"];
    let (out, json) = ndp(&folder, &[&only[..], &["--jobs", "1"]].concat());
    let of = |id: &str| ours(&json, id);
    assert!((0.0..2.0).contains(&of("figure16/ndp/50/late")) && of("figure16/ndp/50/spread") < 1.25, "{out}");
    // 50 packets of 8,192 bytes alone take 0.37 ms; after 99 others it would be 33.
    assert!(of("figure16/ndp-preferred/100/preferred") < 1.5, "{out}");
    assert!(of("figure4/incast-15-packets/returned") > 5.0, "{out}");
    for id in ["figure16/ndp/50", "figure4/incast-15-packets"] {
        assert_eq!((of(&format!("{id}/dropped")), of(&format!("{id}/timeouts"))), (0.0, 0.0), "{id}");
    }
    // The paper's words and the authors' data are beside it, and what is measured does not depend on how many run at a
    // time.
    let cells = json["cells"].as_array().expect("a list");
    let spread = cells.iter().find(|c| c["id"] == "figure16/ndp/50/spread").expect("a cell");
    assert_eq!(
        (&spread["paper"], &spread["authors"], &spread["answer"]),
        (&1.2.into(), &1.071.into(), &"holds".into())
    );
    assert_eq!((out, json), ndp(&folder, &[&only[..], &["--jobs", "2"]].concat()));
}

#[test]
fn ndp_spreads_better_by_the_source_and_leaves_slow_links_out() {
    let folder = Folder::new();
    let only = ["--only", "uplink-trimming", "--only", "figure22/penalty/", "--only", "figure22/no-penalty/"];
    let (out, json) = ndp(&folder, &[&only[..], &["--svg", "pictures"]].concat());
    let of = |id: &str| ours(&json, id);
    let trimmed = |who: &str| of(&format!("uplink-trimming/128/{who}/trimmed_on_uplinks"));
    assert!(trimmed("random") > 5.0 * trimmed("source") && trimmed("random") > 0.5, "{out}");
    assert!(of("figure22/penalty/min") > of("figure22/no-penalty/min") + 1.0, "{out}");
    let ratio = of("uplink-trimming/128/random-over-source/trimmed_on_uplinks");
    assert!(ratio > 5.0 && out.contains("what the paper says: "), "{out}");
    drawn(&folder, "figure22.svg", "Figure 22: a permutation with a slow link", 2);
}

/// Figures 2 and 11 by their closed forms, and 23 as far as a few milliseconds show.
#[test]
fn ndps_switch_does_not_collapse_and_trims_what_oversubscribed_links_do_not_carry() {
    let folder = Folder::new();
    let only = ["figure2/cp-by-chance/5/", "figure2/ndp-by-chance/5/", "figure11/ndp/iw-5", "figure23/5/ndp"];
    let args: Vec<&str> = only.iter().flat_map(|id| ["--only", *id]).collect();
    let (out, json) = ndp(&folder, &args);
    let of = |id: &str| ours(&json, id);
    // Packets of 8,274 bytes and headers of 70, of all senders.
    assert!((of("figure2/cp-by-chance/5/fair_share") - 100.0 * 7_924.0 / 8_204.0).abs() < 1.0, "{out}");
    assert!(of("figure2/ndp-by-chance/5/worst_tenth") > of("figure2/cp-by-chance/5/worst_tenth") + 10.0, "{out}");
    // Five packets of 1,106 bytes in the time that one, its pull of 74 and two times 6 µs take.
    assert!((of("figure11/ndp/iw-5/wire") - 100.0 * 5.0 * 884.8 / 12_944.0).abs() < 1.0, "{out}");
    assert!(of("figure23/5/ndp/trimmed_by_first") > 20.0 && of("figure23/5/ndp/uplinks") > 50.0, "{out}");
    assert!(of("figure23/5/ndp/p99_fct") > 10.0 * of("figure23/5/ndp/p50_fct"), "{out}");
}

#[test]
fn ndps_figures_are_drawn() {
    let folder = Folder::new();
    ndp(&folder, &["--only", "figure16/ndp/1", "--only", "figure11", "--svg", "pictures"]);
    drawn(&folder, "figure11.svg", "Figure 11: two hosts back to back by initial window", 1);
    drawn(&folder, "figure16.svg", "Figure 16: incast of 50 packets each by its senders", 2);
}

fn drawn(folder: &Folder, name: &str, title: &str, lines: usize) {
    let svg = std::fs::read_to_string(folder.path().join("pictures").join(name)).expect(name);
    assert_well_formed(&svg);
    assert!(svg.contains(title) && svg.matches("<polyline").count() == lines, "{name}: {svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("points=\"\""), "{svg}");
}

#[test]
fn what_ndp_does_not_have_is_refused() {
    let folder = Folder::new();
    for (args, said) in [
        (&["--only", "figure8"][..], "irnic reproduce: --only figure8: no cell matches; ids are such as figure14/"),
        (&["--until", "6ms"], "irnic reproduce: --until: expected at least 2 ms after --warm-up"),
        (&["--quick", "--until", "9ms"], "irnic: the argument '--quick' cannot be used with '--until <TIME>'"),
        (&["--svg", "/dev/null/pictures", "--only", "figure21"], "irnic reproduce: --svg /dev/null/pictures: "),
        (&["--svg", "a.svg"], "irnic reproduce: --svg a.svg: expected a folder for the figures"),
    ] {
        let output = irnic(&folder).args(["reproduce", "ndp"]).args(args).output().expect("irnic runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(said), "{args:?}: {}", text(&output.stderr));
    }
}

/// IRN with TLT and without, on a few flows: a tail without timeouts, and red queues no longer than they may be.
#[test]
fn tlt_leaves_no_loss_to_a_timeout() {
    let folder = Folder::new();
    let args = ["reproduce", "tlt", "--only", "figure6/irn", "--flows", "100", "--json", "cells.json"];
    let output = irnic(&folder).args(args).output().expect("irnic runs");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}\n{out}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("cells.json")).expect("cells")).expect("JSON");
    let of = |id: &str| ours(&json, &format!("figure6/{id}"));
    assert!(of("irn/timeouts") > 0.0 && of("irn-tlt/timeouts") == 0.0 && of("irn-tlt/important_loss") == 0.0, "{out}");
    assert!(of("irn-tlt/fg_p999") < of("irn/fg_p999"), "{out}");
    let (red, important) = (of("irn-tlt/red_queue"), of("irn-tlt/important"));
    assert!(red > 190.0 && red <= 200.0 && important < 10.0, "{out}");
    assert!(out.contains("what the text says: "), "{out}");
    let refused = irnic(&folder).args(["reproduce", "tlt", "--only", "figure99"]).output().expect("irnic runs");
    assert_eq!(refused.status.code(), Some(2));
}

/// Queues at Q_ref and the shares of several bottlenecks, where DCQCN has others.
#[test]
fn rocc_rests_at_its_reference_and_shares_as_the_paper_says() {
    let folder = Folder::new();
    let only = ["--only", "figure3.5/40G/10", "--only", "figure3.9a", "--only", "figure3.10/mix"];
    let args = [&["reproduce", "rocc", "--quick", "--json", "cells.json"], &only[..]].concat();
    let output = irnic(&folder).args(args).output().expect("irnic runs");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}\n{out}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("cells.json")).expect("cells")).expect("JSON");
    for (id, paper, off) in [
        ("figure3.5/40G/10/queue", 150.0, 0.05),
        ("figure3.5/40G/10/share", 4.0, 0.02),
        ("figure3.9a/rocc/d0", 5.0, 0.03),
        ("figure3.9a/rocc/d5", 5.0, 0.03),
        ("figure3.9a/rocc/d1-4", 8.75, 0.02),
        ("figure3.10/mix/queue", 75.0, 0.05),
        ("figure3.10/mix/d0", 6.0, 0.03),
    ] {
        let ours = ours(&json, id);
        assert!((ours / paper - 1.0).abs() < off, "{id}: {ours}\n{out}");
    }
    assert!(ours(&json, "figure3.9a/dcqcn/d0") < 4.5 && ours(&json, "figure3.9a/hpcc/d5") > 6.0, "{out}");
    let refused = irnic(&folder).args(["reproduce", "rocc", "--only", "figure9"]).output().expect("irnic runs");
    assert_eq!(refused.status.code(), Some(2));
}

/// Round trips tell the queue; acknowledgements that go first tell nothing of the way back.
#[test]
fn timelys_round_trips_are_the_queue() {
    let folder = Folder::new();
    let args =
        ["--only", "figure2/pfc", "--only", "figure4", "--warm-up", "100ms", "--time", "100ms", "--svg", "pictures"];
    let output =
        irnic(&folder).args(["reproduce", "timely", "--json", "cells.json"]).args(args).output().expect("irnic runs");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read(folder.path().join("cells.json")).expect("cells.json");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let of = |id: &str| ours(&json, id);
    for p in ["p10", "p50", "p99"] {
        assert!((of(&format!("figure2/pfc/{p}_rtt_over_queue")) - 1.0).abs() < 0.1, "{out}");
    }
    let [alone, congested, first] =
        ["alone", "congested", "acks-first"].map(|case| of(&format!("figure4/{case}/p99_rtt")));
    assert!(congested > alone * 1.05 && (first / alone - 1.0).abs() < 0.1, "{out}");
    for (name, lines) in [("figure2.svg", 2), ("figure4.svg", 3)] {
        let svg = std::fs::read_to_string(folder.path().join("pictures").join(name)).expect(name);
        assert_well_formed(&svg);
        assert_eq!(svg.matches("<polyline").count(), lines, "{svg}");
    }
}

/// The ring locks up without Escape, and with it goes on in order; HPCC converges on what would be a deadlock.
#[test]
fn escape_clears_the_rings_deadlock_and_harms_nobody() {
    let folder = Folder::new();
    let only = ["--only", "figure4.8/line-rate", "--only", "figure4.9/100KB"];
    let args = [&["reproduce", "escape", "--quick", "--json", "cells.json"], &only[..]].concat();
    let output = irnic(&folder).args(args).output().expect("irnic runs");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}\n{out}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("cells.json")).expect("cells")).expect("JSON");
    let of = |id: &str| ours(&json, id);
    assert!(of("figure4.8/line-rate/pfc/deadlock_ms") < 2.0 && of("figure4.8/line-rate/escape/gap_ms") < 1.0, "{out}");
    let after = of("figure4.9/100KB/pfc/after/deadlock_ms");
    assert!((50.0..51.0).contains(&after), "{after}\n{out}");
    assert!((of("figure4.9/100KB/escape/after/per_flow") / 1.25 - 1.0).abs() < 0.1, "{out}");
    for id in
        ["figure4.8/line-rate/escape/harm", "figure4.9/100KB/escape/before/harm", "figure4.9/100KB/escape/after/harm"]
    {
        assert_eq!(of(id), 0.0, "{id}\n{out}");
    }
    let refused = irnic(&folder).args(["reproduce", "escape", "--only", "figure9"]).output().expect("irnic runs");
    assert_eq!(refused.status.code(), Some(2));
}

/// The large network, hardly begun; flows that come and go; and pictures of both.
#[test]
fn rocc_shares_a_large_network_and_follows_flows_that_come_and_go() {
    let folder = Folder::new();
    let only = ["--only", "table3.3/rocc/", "--only", "table3.3/hpcc/", "--only", "figure3.12/hadoop-70/rocc"];
    let more = ["--only", "figure3.14/hadoop-70/rocc", "--only", "figure3.6", "--svg", "pictures"];
    let args = ["reproduce", "rocc", "--warm-up", "5ms", "--time", "1ms", "--json", "cells.json"];
    let output = irnic(&folder).args(args).args(only).args(more).output().expect("irnic runs");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}\n{out}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("cells.json")).expect("cells")).expect("JSON");
    let of = |id: &str| ours(&json, id);
    // 100 Gbit/s over 300 is 333 Mbit/s; in a millisecond rates have only come down from 40 Gbit/s.
    assert!(of("table3.3/rocc/active") > 1_700.0 && of("table3.3/rocc/used") > 95.0, "{out}");
    assert!(of("table3.3/rocc/rate") < 2_000.0 && of("table3.3/rocc/notices") > 1_000.0, "{out}");
    assert!(of("table3.3/hpcc/used") < 97.0 && of("table3.3/hpcc/notices") == 0.0, "{out}");
    let times = ["mean_small", "mean_medium"].map(|bin| of(&format!("figure3.12/hadoop-70/rocc/{bin}")));
    assert!(times[0] > 6.0 && times[1] > times[0], "{out}");
    assert!(of("figure3.14/hadoop-70/rocc/queue_core") > 50.0 && of("figure3.14/hadoop-70/rocc/queue_egress") < 20.0);
    // F is C/N of 3, 96 and 3 again.
    for (step, share) in [("rate_3", 13.33), ("rate_96", 40.0 / 96.0), ("rate_3_down", 13.33)] {
        assert!((of(&format!("figure3.6/{step}")) / share - 1.0).abs() < 0.03, "{step}: {out}");
    }
    for (name, lines) in [("figure3.6.svg", 2), ("figure3.12.svg", 1)] {
        let svg = std::fs::read_to_string(folder.path().join("pictures").join(name)).expect(name);
        assert_well_formed(&svg);
        assert!(svg.matches("<polyline").count() == lines && !svg.contains("NaN"), "{name}: {svg}");
    }
}

#[test]
fn schedules_are_replayed_by_a_vector_exactly_and_by_least_slack_nearly() {
    let folder = Folder::new();
    let args = ["reproduce", "ups", "--arrivals", "4ms", "--json", "cells.json", "--svg", "plots"];
    let rows =
        ["table5.1/vector", "table5.1/default", "figure5.1/random", "table5.1/sjf/overdue", "congestion/default"];
    let rows = rows.iter().flat_map(|row| ["--only", row]);
    let output = irnic(&folder).args(args).args(rows).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("cells.json")).expect("cells.json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["arrivals_ns"], 4_000_000);
    for metric in ["overdue", "late", "worst_us"] {
        assert_eq!(ours(&json, &format!("table5.1/vector/{metric}")), 0.0);
    }
    let points: f64 = (0..=4).map(|n| ours(&json, &format!("congestion/default/points-{n}"))).sum();
    assert!((99.0..100.1).contains(&points), "{points}");
    assert!(ours(&json, "table5.1/default/late") < 0.01 && ours(&json, "figure5.1/random/ratio-50") <= 1.0);
    let svg = std::fs::read_to_string(folder.path().join("plots/figure5.1.svg")).expect("figure5.1.svg");
    assert_well_formed(&svg);
}

#[test]
fn delays_of_the_datacenter_are_drawn_with_their_tails() {
    let folder = Folder::new();
    let args = ["reproduce", "ups", "--quick", "--only", "figure5.3/fat-tree/fifo_avg_s", "--svg", "plots"];
    let output = irnic(&folder).args(args).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(folder.path().join("plots/figure5.3.svg")).expect("figure5.3.svg");
    assert_well_formed(&svg);
    assert!(svg.matches("<polyline").count() == 2 && !svg.contains("NaN"), "{svg}");
}

#[test]
fn shares_over_time_are_drawn_and_even_out() {
    let folder = Folder::new();
    let args =
        ["reproduce", "ups", "--only", "figure5.4/fq", "--only", "figure5.5", "--json", "cells.json", "--svg", "plots"];
    let output = irnic(&folder).args(args).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("cells.json")).expect("cells.json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    // Flows start until 5 ms; then FQ gives all the same.
    assert!(ours(&json, "figure5.4/fq/jain_5ms") < 0.95 && ours(&json, "figure5.4/fq/jain_10ms") > 0.999);
    for (name, lines) in [("figure5.4.svg", 2), ("figure5.5.svg", 5)] {
        let svg = std::fs::read_to_string(folder.path().join("plots").join(name)).expect(name);
        assert_well_formed(&svg);
        assert!(svg.matches("<polyline").count() == lines && !svg.contains("NaN"), "{name}: {svg}");
    }
}

/// What help and docs say can be run alone.
#[test]
fn ids_of_help_and_docs_are_those_of_cells() {
    let folder = Folder::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let pages = std::fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    let mut said: String = pages.map(|path| std::fs::read_to_string(path).expect("a page")).collect();
    let mut ids: Vec<(String, String)> = Vec::new();
    for paper in ["irn", "timely", "ndp", "tlt", "rc3", "rocc", "escape", "ups", "openqueue"] {
        let output = irnic(&folder).args(["reproduce", paper, "--help"]).output().expect("irnic runs");
        let help = text(&output.stdout);
        let (_, rest) = help.split_once("id starts with ID, such as ").unwrap_or_else(|| panic!("{paper}: {help}"));
        let (such, _) = rest.split_once(';').expect("may be repeated");
        let such = such.split([',', ' ', '\n']).filter(|id| !id.is_empty() && *id != "or");
        ids.extend(such.map(|id| (paper.to_owned(), id.to_owned())));
        said += &help;
    }
    for line in said.lines().flat_map(|line| line.split("irnic reproduce ").skip(1)) {
        let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '`').collect();
        let only = words.windows(2).filter(|pair| pair[0] == "--only");
        ids.extend(only.map(|pair| (words[0].to_owned(), pair[1].to_owned())));
    }
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() > 40, "{ids:?}");
    let mut unknown = String::new();
    for (paper, id) in ids {
        let output = irnic(&folder).args(["reproduce", &paper, "--only", &id, "--list"]).output().expect("irnic runs");
        let listed = text(&output.stdout);
        if !output.status.success() || listed.is_empty() || !listed.lines().all(|line| line.starts_with(&id)) {
            unknown += &format!("{paper} --only {id}: {}", text(&output.stderr));
        }
    }
    assert_eq!(unknown, "");
}
