//! A lab that is looked at while it runs: `irnic top`, the page in a browser, metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::support::{Folder, free_port, irnic, listens, needs, text};
use irnic_testkit::wait::until;
use serde_json::Value;

/// A lab in which two hosts write to a third for as long as this value lives.
struct Running {
    lab: Child,
    live: String,
    metrics: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: no memory is passed. The child was not waited for.
        unsafe { libc::kill(self.lab.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.lab.wait();
    }
}

fn start(folder: &Folder) -> Option<Running> {
    start_on(folder, "leaf-spine:leaves=2,spines=2,hosts=2,rate=1G,delay=20us")
}

fn start_on(folder: &Folder, topology: &str) -> Option<Running> {
    needs(&["ib_write_bw"])?;
    let flow = |src: u32| {
        let port = free_port();
        format!(
            "(IRNIC_LAB_HOST=2 ib_write_bw -d irnic0 -D 300 -p {port} >/dev/null & {}
              IRNIC_LAB_HOST={src} ib_write_bw -d irnic0 -D 300 -p {port} 127.77.0.3 >/dev/null)",
            listens(&port)
        )
    };
    let script = format!("{} & {} & wait", flow(0), flow(1));
    let mut command = irnic(folder);
    command.args(["lab", "--topology", topology, "--link-event", "rate:h3-s1=999M@2ms"]);
    command.args(["--transport", "roce", "--pfc", "on", "--live", "0", "--metrics", "127.0.0.1:0", "--live-public"]);
    command.args(["--", "sh", "-c", &script]);
    let mut lab = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("irnic runs");
    let mut lines = BufReader::new(lab.stderr.take().expect("a pipe")).lines();
    let mut address = |what: &str| {
        let line = lines.next().expect("a line").expect("UTF-8");
        let begin = line.find(what).unwrap_or_else(|| panic!("{what}: {line}")) + what.len();
        line[begin..].split('/').next().expect("an address").to_owned()
    };
    let (live, metrics) = (address("live at http://"), address("metrics at http://"));
    let running = Running { lab, live, metrics };
    // The rest must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Some(running)
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// Waits until frames of both senders arrive at host 2, and acknowledgements at them.
fn await_frames(lab: &Running) -> Value {
    let mut stats = Value::Null;
    until("round trips of two senders", || {
        stats = serde_json::from_str(&get(&lab.live, "/stats.json")).expect("JSON");
        let processes = stats["processes"].as_array().map_or(&[][..], Vec::as_slice);
        let queue_pairs = processes.iter().filter_map(|process| process["queue_pairs"].as_array()).flatten();
        let measured = queue_pairs.filter(|qp| qp["rtt_ns"]["samples"].as_u64() > Some(0)).count();
        processes.len() == 4 && measured >= 2 && stats["delivered_bytes"].as_u64() > Some(1_000_000)
    });
    stats
}

/// The socket at which a lab answers, by the process of its launcher.
fn socket(stats: &Value) -> String {
    let table = std::fs::read_to_string("/proc/net/unix").expect("a table");
    let begin = format!("@irnic-lab-{}-", stats["pid"]);
    let mut names = table.lines().filter_map(|line| line.split_whitespace().nth(7));
    names.find(|name| name.starts_with(&begin) && name.ends_with("-stats")).expect("a name").to_owned()
}

#[test]
fn a_running_lab_tells_processes_ports_and_queues() {
    let folder = Folder::new();
    let Some(lab) = start(&folder) else { return };
    let stats = await_frames(&lab);
    assert_eq!((&stats["hosts"], &stats["late_frames"], &stats["slower"]), (&4.into(), &0.into(), &1.0.into()));
    assert_eq!(stats["tiers"], serde_json::json!([0, 0, 0, 0, 1, 1, 2, 2]));
    let mut hosts: Vec<u64> =
        stats["processes"].as_array().expect("processes").iter().filter_map(|p| p["host"].as_u64()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, [0, 1, 2, 2]);
    assert!(stats["processes"][0]["name"].as_str().is_some_and(|name| name.contains("ib_write_bw")), "{stats}");
    assert!(stats["processes"][0]["slot"].as_u64() > Some(0), "{stats}");

    // `irnic top` sees what goes on.
    let socket = socket(&stats);
    let top = |options: &[&str]| {
        let top =
            irnic(&folder).args(["top", "--socket", &socket, "--once"]).args(options).output().expect("irnic runs");
        assert!(top.status.success(), "{}", text(&top.stderr));
        text(&top.stdout)
    };
    let later: Value = serde_json::from_str(&top(&["--json"])).expect("JSON");
    assert!(later["delivered_bytes"].as_u64() > stats["delivered_bytes"].as_u64(), "{later}");
    assert!(later["lab_ns"].as_u64() > stats["lab_ns"].as_u64());
    // Two queue pairs send, two receive as much or less. Four links of 20 us, there and back: no round trip is shorter.
    let processes = later["processes"].as_array().expect("processes");
    let queue_pairs = || {
        processes.iter().flat_map(|p| p["queue_pairs"].as_array().expect("queue pairs").iter().map(move |qp| (p, qp)))
    };
    let number = |qp: &Value, name: &str| qp[name].as_u64().unwrap_or_else(|| panic!("{name}: {qp}"));
    for host in [0, 1] {
        let (_, qp) = queue_pairs().find(|(p, qp)| p["host"] == host && qp["service"] == "RC").expect("a sender");
        assert!(number(qp, "sent_bytes") > 0 && qp["peer"]["address"] == "127.77.0.3" && qp["state"] == "RTS", "{qp}");
        let rtt = &qp["rtt_ns"];
        assert!(number(rtt, "samples") > 0 && number(rtt, "min") >= 160_000, "{qp}");
        assert!(number(rtt, "min") <= number(rtt, "mean") && number(rtt, "mean") <= number(rtt, "max"), "{qp}");
        let (_, other) = queue_pairs().find(|(_, other)| other["number"] == qp["peer"]["number"]).expect("a receiver");
        assert_eq!(other["peer"]["number"], qp["number"]);
        assert!(number(other, "rcvd_bytes") > 0, "{other}");
    }
    assert!(processes.iter().all(|p| p["state"] == "runs"), "{later}");
    let at = |counter: &str| processes.iter().map(|p| number(&p["counters"], counter)).sum::<u64>();
    assert!(at("sent_bytes") >= at("rcvd_bytes") && at("rcvd_bytes") > 0);
    let screen = top(&[]);
    for part in [
        "leaf-spine",
        "no frame was late",
        "PROCESSES",
        "ib_write_bw",
        "QUEUE PAIRS",
        "LOAD OF HOSTS",
        "QUEUES OF PORTS",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    // Two senders at 1 Gbit/s, and one receiver: it is the busiest.
    let first = screen.lines().skip_while(|line| !line.contains("LOAD OF HOSTS")).nth(1).expect("a host");
    assert!(first.trim_start().starts_with("h2 "), "{screen}");
    let first = screen.lines().skip_while(|line| !line.contains("QUEUE PAIRS")).nth(1).expect("a queue pair");
    assert!(first.contains("RC") && first.contains("bit/s") && first.contains(" 0x"), "{screen}");
    assert!(!screen.contains('\x1b'), "no terminal, no colours: {screen}");

    // Prometheus.
    let metrics = get(&lab.metrics, "/metrics");
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().expect("a number")
    };
    let received = value("node_infiniband_port_data_received_bytes_total{device=\"h2\",port=\"1\"}");
    assert!(received > 1e6 && received == value("irnic_lab_port_transmitted_bytes_total{from=\"s1\",to=\"h2\"}"));
    assert_eq!(value("irnic_lab_processes{device=\"h2\"}"), 2.0);
    assert!(value("irnic_lab_nic_rcvd_bytes_total{device=\"h2\"}") > 1e6);
    assert_eq!(value("node_infiniband_rx_atomic_requests_total{device=\"h2\",port=\"1\"}"), 0.0);
    assert!(value("irnic_lab_queue_pairs") >= 4.0);
    let sent = metrics.lines().filter(|l| l.starts_with("irnic_lab_qp_transmitted_bytes_total{device=\"h0\","));
    assert!(sent.clone().any(|l| l.contains("peer=\"h2\"") && !l.ends_with(" 0")), "{metrics}");
}

/// Looks until a process is in a state, in one of the lists.
fn await_state(lab: &Running, list: &str, pid: &Value, state: &str) -> Value {
    loop {
        let stats: Value = serde_json::from_str(&get(&lab.live, "/stats.json")).expect("JSON");
        let found = stats[list].as_array().expect("a list").iter().find(|p| p["pid"] == *pid && p["state"] == state);
        if let Some(found) = found {
            return found.clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_process_that_is_stopped_or_killed_leaves_what_it_told_last() {
    let folder = Folder::new();
    let Some(lab) = start(&folder) else { return };
    let stats = await_frames(&lab);
    let sender = stats["processes"].as_array().expect("processes").iter().find(|p| p["host"] == 0).expect("a sender");
    // SAFETY: no memory is passed.
    let signal = |signal| unsafe { libc::kill(sender["pid"].as_i64().expect("a process") as libc::pid_t, signal) };
    signal(libc::SIGSTOP);
    let silent = await_state(&lab, "processes", &sender["pid"], "silent");
    let sent = |process: &Value| process["counters"]["sent_bytes"].as_u64();
    assert!(sent(&silent) >= sent(sender) && sent(&silent) > Some(0), "{silent}");
    assert_eq!(sent(&await_state(&lab, "processes", &sender["pid"], "silent")), sent(&silent));
    signal(libc::SIGCONT);
    await_state(&lab, "processes", &sender["pid"], "runs");
    signal(libc::SIGKILL);
    let last = await_state(&lab, "ended", &sender["pid"], "gone");
    assert!(sent(&last) >= sent(&silent) && !last["queue_pairs"].as_array().expect("a list").is_empty(), "{last}");
}

#[test]
fn what_processes_told_is_what_they_say_themselves() {
    if needs(&["ib_write_bw"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let port = free_port();
    let script = format!(
        "IRNIC_LAB_HOST=0 IRNIC_STATS=server.json ib_write_bw -d irnic0 -n 300 -p {port} >/dev/null & {}
         IRNIC_LAB_HOST=1 IRNIC_STATS=client.json ib_write_bw -d irnic0 -n 300 -p {port} \
           127.77.0.1 >/dev/null; wait",
        listens(&port)
    );
    let lab = irnic(&folder)
        .args([
            "lab",
            "--topology",
            "star:hosts=2,rate=1G,delay=20us,loss=1%",
            "--json",
            "lab.json",
            "--html",
            "lab.html",
        ])
        .args(["--", "sh", "-c", &script])
        .output()
        .expect("irnic runs");
    assert!(lab.status.success(), "{}", text(&lab.stderr));
    let json = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.path().join(name)).expect(name)).expect("JSON")
    };
    let report = json("lab.json");
    let processes = report["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 2, "{report}");
    for (name, host) in [("server.json", 0), ("client.json", 1)] {
        let (own, reported) = (json(name), processes.iter().find(|p| p["host"] == host).expect("a process"));
        let device = &own["devices"][0];
        assert_eq!((&reported["pid"], &reported["state"]), (&own["process"], &"ended".into()), "{name}");
        assert_eq!((&reported["counters"], &reported["port"]), (&device["counters"], &device["port"]), "{name}");
        let queue_pairs = device["queue_pairs"].as_array().expect("queue pairs");
        assert_eq!(reported["queue_pairs"].as_array().map(Vec::len), Some(queue_pairs.len()), "{name}");
        let own_total = device["total"].as_object().expect("numbers");
        for (key, value) in own_total.iter().filter(|(key, _)| *key != "rtt_ns") {
            assert_eq!(reported["total"][key], *value, "{name}: {key}");
        }
        for key in ["samples", "min", "mean", "p50", "p99", "max"] {
            assert_eq!(reported["total"]["rtt_ns"][key], device["total"]["rtt_ns"][key], "{name}: {key}");
        }
        let command = reported["command"].as_str().expect("its command");
        assert!(command.starts_with("sh") && reported["status"].is_null(), "{reported}");
    }
    let client = &processes.iter().find(|p| p["host"] == 1).expect("a client")["total"];
    assert!(client["retransmitted"].as_u64() > Some(0) && client["retransmitted_bytes"].as_u64() > Some(0), "{client}");
    assert!(client["rtt_ns"]["min"].as_u64() >= Some(80_000), "two links of 20 us, there and back: {client}");
    let [sent, again] = ["sent_bytes", "retransmitted_bytes"].map(|name| client[name].as_u64().expect("a number"));
    assert_eq!(sent - again, 300 * 65_536);
    let html = std::fs::read_to_string(folder.path().join("lab.html")).expect("a report");
    assert!(html.contains("<h2>Processes</h2>") && html.contains("<h2>Queue pairs</h2>"));
    assert!(html.contains("ib_write_bw") && html.contains("<td>exited</td>"));
}

#[test]
fn a_process_of_a_lab_knows_where_it_answers() {
    let folder = Folder::new();
    let lab = irnic(&folder)
        .args([
            "lab",
            "--topology",
            "star:hosts=3",
            "--quiet",
            "--",
            env!("CARGO_BIN_EXE_irnic"),
            "top",
            "--once",
            "--json",
        ])
        .output()
        .expect("irnic runs");
    assert!(lab.status.success(), "{}", text(&lab.stderr));
    let stats: Value = serde_json::from_slice(&lab.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&lab.stdout)));
    assert_eq!((&stats["hosts"], stats["ports"].as_array().map(Vec::len)), (&3.into(), Some(6)));
    let refused =
        irnic(&folder).args(["top", "--socket", "@irnic-lab-0-0-stats", "--once"]).output().expect("irnic runs");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("@irnic-lab-0-0-stats: Connection refused"), "{}", text(&refused.stderr));
}

#[test]
fn others_read_a_lab_only_if_that_is_said() {
    let folder = Folder::new();
    for option in ["--live", "--metrics"] {
        let lab = irnic(&folder).args(["lab", option, "0.0.0.0:0", "--", "true"]).output().expect("irnic runs");
        assert_eq!(lab.status.code(), Some(2));
        assert!(text(&lab.stderr).contains("--live-public"), "{}", text(&lab.stderr));
    }
}

/// A browser of so many points, which does not look at the clock.
fn browser(folder: &Folder, size: &str, address: &str, what: &str) -> Vec<u8> {
    let size = format!("--window-size={size}");
    let options = ["--hide-scrollbars", what, &size];
    irnic_testkit::browser::open(folder.path(), &format!("http://{address}/"), 6_000, &options)
}

#[test]
fn a_browser_shows_the_network_its_load_and_the_last_minute() {
    if needs(&["chromium"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let Some(lab) = start(&folder) else { return };
    await_frames(&lab);
    irnic_testkit::wait::until("there are two points of the curves", || {
        let stats: Value = serde_json::from_str(&get(&lab.live, "/stats.json")).expect("JSON");
        stats["history"].as_array().is_some_and(|samples| samples.len() > 2)
    });
    for (size, width) in [("390,844", 390), ("1280,800", 1280)] {
        let shot = folder.path().join("shot.png");
        browser(&folder, size, &lab.live, &format!("--screenshot={}", shot.display()));
        let png = std::fs::read(&shot).expect("a picture");
        assert_eq!(png[1..4], *b"PNG");
        assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), width);
        if let Some(kept) = std::env::var_os("SHOTS") {
            std::fs::copy(&shot, std::path::Path::new(&kept).join(format!("live-{width}.png"))).expect("a copy");
        }
    }
    let dom = text(&browser(&folder, "1280,800", &lab.live, "--dump-dom"));
    let count = |part: &str| dom.matches(part).count();
    assert!(dom.contains("<span id=\"state\" class=\"\">runs</span>"), "{dom}");
    // 4 hosts, 4 switches; 8 links, of which some are busy.
    assert_eq!(
        (count("<circle class=\"node"), count("<rect class=\"node"), count("class=\"link ")),
        (4, 4, 8),
        "{dom}"
    );
    assert!(count("class=\"link l3\"") + count("class=\"link l4\"") >= 1, "the receiver's link is busy: {dom}");
    assert_eq!(count("class=\"node busy\""), 3, "hosts with processes: {dom}");
    assert_eq!(count("class=\"curve\""), 6, "{dom}");
    // Two queue pairs at each end of two flows are in the table, with their round trips.
    let begin = dom.find("id=\"qps\"").expect("a table");
    let table = &dom[begin..begin + dom[begin..].find("</table>").expect("its end")];
    assert!(table.matches("<td>RC</td>").count() >= 4 && table.contains(" us</td>"), "{table}");
    assert!(table.contains("<td>h0</td><td>h2</td>") && table.contains("bit/s</td>"), "{table}");
    assert!(dom.contains("<td>h2</td>") && dom.contains("ib_write_bw") && dom.contains("no frame was late"), "{dom}");
}

#[test]
fn names_of_hosts_do_not_run_into_each_other() {
    if needs(&["chromium"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let Some(lab) = start_on(&folder, "fat-tree:k=4,rate=1G,delay=20us") else { return };
    await_frames(&lab);
    for (size, all) in [("390,844", false), ("600,844", true), ("1300,844", true)] {
        let dom = text(&browser(&folder, size, &lab.live, "--dump-dom"));
        let map = dom.split("id=\"map\"").nth(1).expect("a map").split("</svg>").next().expect("its end");
        // Where names stand, and how many letters they have.
        let named = map.split("<text x=\"").skip(1).filter_map(|part| {
            let (x, rest) = part.split_once('"')?;
            let name = rest.split_once('>')?.1.split('<').next()?;
            name.starts_with('h').then(|| (x.parse::<f64>().expect("a number"), name.len()))
        });
        let mut named: Vec<(f64, usize)> = named.collect();
        named.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(named.len() == 16, all, "{size}: {named:?}");
        assert!(named.len() >= 4, "{size}: {named:?}");
        // Letters of 12 pixels are 7 to 8 wide.
        let apart = |two: &[(f64, usize)]| two[1].0 - two[0].0 >= 3.7 * (two[0].1 + two[1].1) as f64;
        assert!(named.windows(2).all(apart), "{size}: {named:?}");
    }
    let stats: Value = serde_json::from_str(&get(&lab.live, "/stats.json")).expect("JSON");
    assert_eq!(stats["faults"][0]["what"], "h3-s1 at 0.999G", "link events are reported: {}", stats["faults"]);
}
