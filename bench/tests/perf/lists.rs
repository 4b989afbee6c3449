//! Lists, repetitions and intervals of `irnic perf`: what is printed, what files hold, and that they agree.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Folder, assert_well_formed, free_port, irnic, needs, perf, run_perf as run, text};
use serde_json::Value;

const LISTS: [&str; 13] = [
    "write-bw",
    "-n",
    "20",
    "-t",
    "8",
    "-s",
    "4K,64K",
    "--loss",
    "0,2",
    "--transport",
    "roce,cap=9,irn",
    "--repeat",
    "3",
];
const FILES: [&str; 8] = ["--csv", "r.csv", "--svg", "r.svg", "--html", "r.html", "--out_json_file", "r.json"];

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn json(folder: &Folder) -> Value {
    serde_json::from_str(&read(folder, "r.json")).expect("JSON")
}

/// Lines of CSV by the names of their columns. None of the cells here holds a comma.
struct Csv {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Csv {
    fn read(folder: &Folder) -> Csv {
        let all = crate::support::csv(folder, "r.csv");
        let mut lines = all.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let names = lines.next().expect("a head");
        let rows: Vec<Vec<String>> = lines.collect();
        assert!(rows.iter().all(|row| row.len() == names.len()), "{all}");
        Csv { names, rows }
    }

    fn column(&self, name: &str) -> Vec<&str> {
        let at =
            self.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("{name} in {:?}", self.names));
        self.rows.iter().map(|row| row[at].as_str()).collect()
    }
}

/// The lines of the table, in words.
fn table(out: &str) -> Vec<Vec<&str>> {
    let from = out.lines().position(|line| line.trim_start().starts_with("transport ")).expect("a table");
    let lines = out.lines().skip(from + 1).take_while(|line| !line.starts_with("---") && !line.contains("medians"));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn every_combination_is_a_line_and_all_files_agree_with_it() {
    let folder = Folder::new();
    let out = run(&folder, &[&LISTS[..], &FILES].concat());
    let rows = table(&out);
    let cases: Vec<String> = rows.iter().map(|row| row[..4].join(" ")).collect();
    let expected = [
        "roce 0% 4096 3",
        "roce 2% 4096 3",
        "roce 0% 65536 3",
        "roce 2% 65536 3",
        "irn 0% 4096 3",
        "irn 2% 4096 3",
        "irn 0% 65536 3",
        "irn 2% 65536 3",
    ];
    assert_eq!(cases, expected, "{out}");

    let json = json(&folder);
    assert_eq!(json["test_info"]["BW_unit"], "MiB/sec");
    assert_eq!(json["test_info"]["Repetitions"], 3);
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 8);
    for (row, result) in rows.iter().zip(results) {
        let number = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name}: {result}"));
        assert_eq!((row[0], row[1]), (result["transport"].as_str().unwrap(), result["loss"].as_str().unwrap()));
        assert_eq!(row[4], "60", "20 messages, three times");
        for (cell, name) in [(5, "BW_average"), (6, "BW_average_min"), (7, "BW_average_max")] {
            assert_eq!(row[cell], format!("{:.2}", number(name)), "{name}");
        }
        assert_eq!(number("BW_average"), number("BW_average_MiB_sec"));
        assert!((number("BW_average_Gb_sec") / number("BW_average_MiB_sec") - 8.0 * 1.048576e-3).abs() < 1e-9);
        // The median is one of the three, and the others are its bounds.
        let runs = result["runs"].as_array().expect("runs");
        let mut of_runs: Vec<f64> = runs.iter().map(|run| run["BW_average"].as_f64().unwrap()).collect();
        of_runs.sort_by(f64::total_cmp);
        assert_eq!(of_runs, [number("BW_average_min"), number("BW_average"), number("BW_average_max")]);
        let seeds: Vec<u64> = runs.iter().map(|run| run["Seed"].as_u64().unwrap()).collect();
        assert_eq!(seeds, [1, 2, 3], "each repetition loses other packets");
        let sent = |value: &Value| value["counters"]["sent_pkts"].as_u64().unwrap();
        assert_eq!(sent(result), runs.iter().map(sent).sum::<u64>());
        let lost = runs.iter().map(|run| run["impairments"]["tx"]["dropped"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(result["loss"] == "0%", lost == 0 && result["loss_percent"] == 0.0, "{result}");
    }

    let csv = Csv::read(&folder);
    assert_eq!(csv.rows.len(), 24);
    // Repetitions take turns, and losses within each.
    let of = |name| csv.column(name);
    assert_eq!(of("repetition")[..9], ["1", "1", "1", "1", "1", "1", "1", "1", "2"]);
    assert_eq!(of("loss_percent")[..8], ["0", "0", "0", "0", "2", "2", "2", "2"]);
    assert_eq!(of("transport")[..4], ["roce", "roce", "irn", "irn"]);
    assert!(of("n_iterations").iter().all(|n| *n == "20"));
    for (at, average) in of("BW_average_Gb_sec").into_iter().enumerate() {
        let find = |result: &&Value| {
            result["transport"] == of("transport")[at]
                && result["loss_percent"].to_string().parse::<f64>().ok() == of("loss_percent")[at].parse().ok()
                && result["MsgSize"].as_u64() == of("MsgSize")[at].parse().ok()
        };
        let result = results.iter().find(find).expect("its combination");
        let repetition = of("repetition")[at].parse::<usize>().unwrap() - 1;
        let reported = result["runs"][repetition]["BW_average_Gb_sec"].as_f64().unwrap();
        assert!((reported / average.parse::<f64>().unwrap() - 1.0).abs() < 1e-12, "{reported} {average}");
    }

    let svg = read(&folder, "r.svg");
    assert_well_formed(&svg);
    // Goodput and packets sent again, for each size, with a line for each transport.
    assert_eq!(svg.matches("<polyline").count(), 2 * 2 * 2);
    assert!(svg.matches(" spread\"").count() >= 8, "an interval at each point of goodput");
    for part in ["packets lost each way [%]", "payload delivered [MiB/sec]", ", messages of 4096 B", ">roce<", ">irn<"]
    {
        assert!(svg.contains(part), "{part}");
    }
    let html = read(&folder, "r.html");
    let data = html.split("<script id=\"plots\" type=\"application/json\">").nth(1).expect("plots");
    let plots: Value = serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON");
    assert_eq!(plots.as_array().map(Vec::len), Some(4));
    let line = &plots[2]["lines"][1];
    assert_eq!(
        (&plots[2]["y"]["label"], line["points"].as_array().map(Vec::len)),
        (&"payload delivered [MiB/sec]".into(), Some(2))
    );
    let drawn = line["points"][1][1].as_f64().expect("a number");
    let reported = results[7]["BW_average"].as_f64().expect("a number");
    assert!((drawn / reported - 1.0).abs() < 1e-3, "{drawn} is drawn, {reported} reported");
    assert_eq!(line["spread"].as_array().map(Vec::len), Some(2));
}

#[test]
fn every_output_says_how_to_get_it_again_and_what_was_set() {
    let folder = Folder::new();
    let network = "tx rate 1gbit ecn 30k 100k 50%";
    let args = ["write-bw", "-n", "5", "-s", "4K", "--transport", "irn,cc=dcqcn", "--impair", network];
    let out = run(&folder, &[&args[..], &FILES].concat());
    let json = json(&folder);
    let (command, version) = (json["command"].as_str().expect("a command"), json["irnic"].as_str().expect("a version"));
    let given = "irnic perf write-bw -n 5 -s 4K --transport irn,cc=dcqcn --impair 'tx rate 1gbit ecn 30k 100k 50%'";
    assert!(command.starts_with(given) && version.starts_with(env!("CARGO_PKG_VERSION")), "{command} {version}");
    let again = format!("again: {command} (irnic {version})");
    assert!(read(&folder, "r.csv").starts_with(&format!("# {again}\n")), "{}", read(&folder, "r.csv"));
    let [svg, html] = ["r.svg", "r.html"].map(|name| read(&folder, name));
    assert_well_formed(&svg);
    let info = &json["test_info"];
    let [transport, marking] = [&info["Transports"][0], &info["ECN_marking"]].map(|text| text.as_str().expect("text"));
    // What was not given has its default: DCQCN's gain, and the recovery of losses.
    assert!(transport.contains(",recovery=selective,") && transport.contains(",cc.g="), "{transport}");
    assert_eq!(marking, "sent: RED, kmin 30720 bytes, kmax 102400 bytes, pmax 50%; received: off");
    assert_eq!(info["Impairment_resolved"], "tx ecn 30720 102400 50% rate 1gbit limit 1000");
    let head = format!(" Command         : {command}\n Version         : {version}\n");
    for (what, text, origin) in [("text", &out, &head), ("SVG", &svg, &again), ("page", &html, &again)] {
        for part in [origin, transport, marking] {
            assert!(text.contains(part), "{what}: {part}: {text}");
        }
    }
    assert!(html.contains("<th>Iterations</th><td>5</td>") && svg.contains("\nIterations: 5"), "{svg}");
    // A number alone is a number alone.
    assert_eq!(run(&folder, &[&args[..], &["--output", "bandwidth"]].concat()).lines().count(), 1);
}

#[test]
fn gigabits_are_gigabits_everywhere() {
    let folder = Folder::new();
    let args = ["write-bw", "-D", "0.3", "-s", "4K", "-i", "0.1", "--report_gbits"];
    let out = run(&folder, &[&args[..], &FILES].concat());
    assert_eq!(out.matches("BW average[Gb/sec]").count(), 2, "intervals and the result: {out}");
    assert!(!out.contains("MiB/sec"), "{out}");
    assert!(read(&folder, "r.svg").contains("payload delivered [Gb/sec]"));
    let json = json(&folder);
    assert_eq!(json["test_info"]["BW_unit"], "Gb/sec");
    assert_eq!(json["results"]["BW_average"], json["results"]["BW_average_Gb_sec"]);
}

#[test]
fn intervals_make_up_the_run() {
    let folder = Folder::new();
    for (test, head) in [("write-bw", "BW average[MiB/sec]"), ("read-lat", "t_typical[usec]")] {
        let out = run(&folder, &[&[test, "-D", "0.5", "-s", "4K", "-i", "0.1"], &FILES[..]].concat());
        let lines: Vec<&str> = out.lines().skip_while(|line| !line.contains("interval[sec]")).collect();
        assert!(lines[0].contains(head), "{out}");
        let rows: Vec<&&str> = lines[1..].iter().take_while(|line| !line.starts_with("---")).collect();
        let json = json(&folder);
        let intervals = json["results"]["intervals"].as_array().expect("intervals");
        assert_eq!((rows.len(), intervals.len() >= 2), (intervals.len(), true), "{out}");
        let number =
            |interval: &Value, name: &str| interval[name].as_f64().unwrap_or_else(|| panic!("{name}: {interval}"));
        for (row, interval) in rows.iter().zip(intervals) {
            let times = format!("{:.2}-{:.2}", number(interval, "from_sec"), number(interval, "to_sec"));
            assert!(row.contains(&times), "{row}: {times}");
        }
        assert!(intervals.windows(2).all(|pair| pair[0]["to_sec"] == pair[1]["from_sec"]), "{json}");
        let sum: u64 = intervals.iter().map(|i| i["n_iterations"].as_u64().unwrap()).sum();
        assert_eq!(json["results"]["n_iterations"].as_u64(), Some(sum), "{json}");
        let svg = read(&folder, "r.svg");
        assert_well_formed(&svg);
        assert!(svg.contains("time since the start of the run [s]"), "{svg}");
    }
}

#[test]
fn sizes_alone_stay_perftests_table() {
    let folder = Folder::new();
    let out = run(&folder, &[&["write-bw", "-n", "5", "-s", "4K,64K"], &FILES[..]].concat());
    let rows: Vec<&str> = out.lines().skip_while(|line| !line.contains("#bytes")).skip(1).collect();
    assert!(rows[0].starts_with(" 4096 ") && rows[1].starts_with(" 65536 ") && rows[2].starts_with("---"), "{out}");
    let json = json(&folder);
    let sizes: Vec<u64> = json["results"].as_array().unwrap().iter().map(|r| r["MsgSize"].as_u64().unwrap()).collect();
    assert_eq!((sizes, json["results"][0]["counters"]["sent_pkts"].is_u64()), (vec![4096, 65536], true));
    assert!(read(&folder, "r.svg").contains("message size [bytes]"));
}

#[test]
fn latencies_are_compared_too() {
    let folder = Folder::new();
    let args = ["send-lat", "-n", "30", "--transport", "roce,irn", "--loss", "0,1", "--repeat", "2"];
    let out = run(&folder, &[&args[..], &FILES].concat());
    assert_eq!(table(&out).len(), 4, "{out}");
    let json = json(&folder);
    for (row, result) in table(&out).iter().zip(json["results"].as_array().expect("a list")) {
        assert_eq!(row[5], format!("{:.2}", result["t_typical_usec"].as_f64().unwrap()), "{out}");
        assert!(result["t_typical_usec_min"].as_f64() <= result["t_typical_usec_max"].as_f64());
    }
    assert_eq!(Csv::read(&folder).column("t_99_usec").len(), 8);
    let svg = read(&folder, "r.svg");
    assert!(svg.contains("latency [usec]") && svg.contains(">irn, 99 %<"), "{svg}");
}

#[test]
fn parameters_tell_transports_apart_where_presets_do_not() {
    let folder = Folder::new();
    let args = ["write-bw", "-n", "5", "-s", "64", "--transport", "irn,cap=9,irn,cap=20", "--csv", "r.csv"];
    let out = run(&folder, &args);
    assert!(out.contains("\n irn,cap=9 ") && out.contains("\n irn,cap=20 "), "{out}");
    assert!(read(&folder, "r.csv").contains("\nwrite-bw,\"irn,cap=9\",,64,"), "a cell with a comma is quoted");
}

#[test]
fn two_processes_run_the_same_lists() {
    let folder = Folder::new();
    for port in ["udp", "shm"] {
        let (tcp, lists) = (free_port(), ["write-bw", "-n", "10", "-s", "4K,8K", "--loss", "0,3", "--repeat", "2"]);
        let args = [&lists[..], &["--transport", "roce,irn", "--port", port, "-p", &tcp]].concat();
        let start = |more: &[&str]| {
            let mut command = perf(&folder, &[&args[..], more].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
        };
        let server = start(&["--server"]);
        let client = start(&["127.0.0.1", "--out_json_file", "r.json"]);
        let [client, server] = [client, server].map(|process| process.wait_with_output().expect("irnic ends"));
        for output in [&client, &server] {
            assert!(output.status.success(), "{port}: {}", text(&output.stderr));
        }
        let (client, server) = (text(&client.stdout), text(&server.stdout));
        let (here, there) = (table(&client), table(&server));
        assert_eq!(here.len(), 8, "{client}");
        assert_eq!(here.iter().map(|r| &r[..8]).collect::<Vec<_>>(), there.iter().map(|r| &r[..8]).collect::<Vec<_>>());
        let json = json(&folder);
        let lost = |result: &Value| {
            let runs = result["runs"].as_array().unwrap().iter();
            runs.map(|run| run["impairments"]["tx"]["dropped"].as_u64().unwrap()).sum::<u64>()
        };
        let results = json["results"].as_array().unwrap();
        assert!(results.iter().filter(|r| r["loss"] == "3%").map(lost).sum::<u64>() > 0, "{json}");
        assert_eq!(results.iter().filter(|r| r["loss"] == "0%").map(lost).sum::<u64>(), 0);
    }
}

#[test]
fn a_run_that_fails_does_not_end_the_others() {
    let folder = Folder::new();
    let args = ["write-bw", "-n", "5", "-u", "1", "--transport", "irn,rto-max=1ms", "--loss", "0,100"];
    let output = perf(&folder, &[&args[..], &FILES].concat()).output().expect("irnic runs");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("irnic perf: write-bw, 100% loss, 65536 B: ") && said.lines().count() == 1, "{said}");
    let json = json(&folder);
    assert!(json["results"][0]["BW_average"].as_f64() > Some(0.0), "{json}");
    assert!(json["results"][1]["failed"][0].as_str().is_some_and(|why| why.contains("retry")), "{json}");
    assert!(read(&folder, "r.html").contains("100% loss, 65536 B: "), "the report says so too");
    assert_eq!(Csv::read(&folder).rows.len(), 1);
}

/// Reads until a line has `part`.
fn read_until(out: &mut impl BufRead, part: &str) -> String {
    let mut all = String::new();
    while !all.contains(part) {
        assert!(out.read_line(&mut all).expect("a line") > 0, "{part} in {all}");
    }
    all
}

fn interrupt(process: &Child) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
}

#[test]
fn what_was_measured_until_ctrl_c_is_told_and_written() {
    let folder = Folder::new();
    // A run without end, and a list in its midst.
    let endless = ["write-bw", "--run_infinitely", "-D", "0.2", "-s", "4K"];
    let list = [
        "write-bw",
        "-s",
        "4K",
        "-D",
        "0.3",
        "-i",
        "0.1",
        "--transport",
        "irn,roce",
        "--loss",
        "0,1",
        "--repeat",
        "50",
    ];
    for (args, until) in [(&endless[..], "\n 0.2"), (&list, "\n write-bw, irn, 1% loss")] {
        let mut command = perf(&folder, &[args, &FILES].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts");
        let mut out = BufReader::new(process.stdout.take().expect("its output"));
        read_until(&mut out, until);
        interrupt(&process);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("text");
        let ended = process.wait_with_output().expect("irnic ends");
        assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
        assert!(rest.lines().any(|line| line.contains(" 4096 ")), "{rest}");
        let json = json(&folder);
        assert_eq!(json["test_info"]["Interrupted"], true);
        let first = if args == endless { &json["results"] } else { &json["results"][0] };
        assert!(first["n_iterations"].as_u64() > Some(0), "{json}");
        assert!(
            Csv::read(&folder).rows.len()
                == if args == endless { 1 } else { 3 + usize::from(rest.contains("roce, 1%")) }
        );
        assert_well_formed(&read(&folder, "r.svg"));
        for name in ["r.json", "r.csv", "r.svg", "r.html"] {
            std::fs::remove_file(folder.path().join(name)).expect("it was written");
        }
    }
}

#[test]
fn an_end_whose_peer_was_interrupted_tells_what_it_has() {
    let folder = Folder::new();
    let tcp = free_port();
    let args = ["write-bw", "--run_infinitely", "-D", "0.2", "-s", "4K", "-p", &tcp];
    let start = |more: &str| {
        let mut command = perf(&folder, &[&args[..], &[more]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start("--server");
    let mut client = start("127.0.0.1");
    let mut out = BufReader::new(client.stdout.take().expect("its output"));
    read_until(&mut out, "\n 0.2");
    interrupt(&server);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let [client, server] = [client, server].map(|process| process.wait_with_output().expect("irnic ends"));
    assert_eq!((client.status.code(), server.status.code()), (Some(130), Some(130)));
    assert_eq!(text(&client.stderr), "irnic perf: the peer was interrupted; the results are those up to then\n");
    assert!(rest.lines().any(|line| line.starts_with(" 4096 ")), "{rest}");
}

#[test]
fn a_list_that_the_peer_interrupts_keeps_what_was_whole() {
    let folder = Folder::new();
    let tcp = free_port();
    let args = ["write-bw", "-D", "0.2", "-s", "4K", "--loss", "0,1", "--repeat", "100", "-p", &tcp];
    let start = |more: &[&str]| {
        let mut command = perf(&folder, &[&args[..], more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start(&["--server", "--out_json_file", "r.json"]);
    let mut client = start(&["127.0.0.1", "-i", "0.1"]);
    let mut out = BufReader::new(client.stdout.take().expect("its output"));
    read_until(&mut out, "1% loss, 4096 B, 2 of 100\n");
    interrupt(&client);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let [client, server] = [client, server].map(|process| process.wait_with_output().expect("irnic ends"));
    assert_eq!((client.status.code(), server.status.code()), (Some(130), Some(130)), "{}", text(&server.stderr));
    assert_eq!((table(&rest).len(), table(&text(&server.stdout)).len()), (2, 2));
    for result in json(&folder)["results"].as_array().expect("a list") {
        assert!(result["BW_average_min"].as_f64() > Some(0.0), "the server has seen nothing of the last: {result}");
    }
}

/// What a browser makes of the report and of the picture: no text lies over another, none is cut off, in light and
/// dark.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body><pre id="found"></pre><div id="picture">SVG</div><script>
const boxes = (root) => [...root.querySelectorAll("svg text")].map((t) => ({ said: t.textContent, box: t.getBoundingClientRect(),
  colour: t.ownerDocument.defaultView.getComputedStyle(t).fill, limits: t.ownerSVGElement.getBoundingClientRect() }));
const meet = ({ box: a }, { box: b }) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
const look = (root) => {
  const all = boxes(root);
  const over = all.flatMap((a, n) => all.slice(n + 1).filter((b) => meet(a, b)).map((b) => a.said + " / " + b.said));
  const cut = all.filter(({ box, limits }) => box.left < limits.left - 1 || box.right > limits.right + 1 || box.bottom > limits.bottom + 1);
  return { texts: all.map((t) => t.said), over, cut: cut.map((t) => t.said), colour: all.length ? all[0].colour : "",
    bars: root.querySelectorAll("path.spread").length };
};
const frame = document.body.appendChild(document.createElement("iframe"));
frame.style = "width: 1200px; height: 900px; border: 0";
frame.onload = () => {
  const found = { report: look(frame.contentDocument), picture: look(document.getElementById("picture")),
    dark: matchMedia("(prefers-color-scheme: dark)").matches };
  document.getElementById("found").textContent = JSON.stringify(found);
};
frame.srcdoc = REPORT;
</script>"#;

fn probe(folder: &Folder, page: &Path, more: &[&str]) -> Value {
    let address = format!("file://{}", page.display());
    let dom = irnic_testkit::browser::open(folder.path(), &address, 10_000, &[&["--dump-dom"], more].concat());
    let dom = text(&dom);
    let begin = dom.find("<pre id=\"found\">").unwrap_or_else(|| panic!("no page: {dom}")) + 16;
    let found = dom[begin..].split("</pre>").next().expect("an end");
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {found}"))
}

#[test]
fn pictures_are_legible_in_a_browser() {
    if needs(&["chromium"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let transports = "roce,window=256,cap=256,roce,window=512,cap=512,irn";
    let args = ["write-bw", "-n", "20", "-t", "8", "--loss", "0,0.1,1", "--transport", transports, "--repeat", "3"];
    run(&folder, &[&args[..], &FILES].concat());
    let quoted = serde_json::to_string(&read(&folder, "r.html")).expect("JSON").replace("</", "<\\/");
    let page = PROBE.replace("REPORT", &quoted).replace(">SVG<", &format!(">{}<", read(&folder, "r.svg")));
    let page = folder.write("probe.html", &page);
    let light = probe(&folder, &page, &[]);
    let dark = probe(&folder, &page, &["--blink-settings=preferredColorScheme=0"]);
    assert_eq!((&light["dark"], &dark["dark"]), (&false.into(), &true.into()), "{light}\n{dark}");
    for found in [&light, &dark] {
        for what in ["report", "picture"] {
            let found = &found[what];
            assert_eq!((found["over"].to_string(), found["cut"].to_string()), ("[]".into(), "[]".into()), "{found}");
            let texts = found["texts"].to_string();
            assert!(texts.contains("packets lost each way [%]") && texts.contains("[MiB/sec]"), "{texts}");
            assert!(found["bars"].as_u64() >= Some(9), "an interval at each point: {found}");
        }
    }
    for what in ["report", "picture"] {
        assert_ne!(light[what]["colour"], dark[what]["colour"], "letters are other in the dark: {light}");
    }
}

#[test]
fn lists_without_a_test_are_of_write_bw() {
    let folder = Folder::new();
    let list = ["perf", "--transport", "roce,irn", "--loss", "0", "-s", "64", "-n", "8", "--csv", "a.csv"];
    let output = irnic(&folder).args(list).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let csv = std::fs::read_to_string(folder.path().join("a.csv")).expect("a file");
    assert_eq!(csv.lines().filter(|line| line.starts_with("write-bw,")).count(), 2, "{csv}");
    // What is wrong is told as ever.
    let output = irnic(&folder).args(["perf", "--transport", "tcp"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
