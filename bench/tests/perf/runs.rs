//! `irnic perf` as a user runs it. No number is judged, only that the run ends as it should and says what it should.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{free_port, needs, text};
use serde_json::Value;

const TESTS: [&str; 8] =
    ["send-bw", "send-lat", "write-bw", "write-lat", "read-bw", "read-lat", "atomic-bw", "atomic-lat"];

fn perf(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_irnic"));
    command.arg("perf").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    perf(args).output().expect("irnic runs")
}

fn assert_success(args: &[&str], output: &Output) {
    assert!(output.status.success(), "irnic perf {args:?}: {}\n{}", text(&output.stderr), text(&output.stdout));
}

/// Columns of the line of results.
fn columns(output: &Output) -> Vec<String> {
    let out = text(&output.stdout);
    let line = out.lines().rev().nth(1).unwrap_or_default();
    line.split_whitespace().map(str::to_owned).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a JSON file")).expect("JSON")
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(args: &[&str]) -> Server {
    Server(perf(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts"))
}

fn finish(mut server: Server) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let read = |from: Option<&mut dyn std::io::Read>, to: &mut Vec<u8>| from.map(|from| from.read_to_end(to));
    let _ = read(server.0.stdout.as_mut().map(|s| s as _), &mut stdout);
    let _ = read(server.0.stderr.as_mut().map(|s| s as _), &mut stderr);
    Output { status: server.0.wait().expect("irnic ends"), stdout, stderr }
}

/// Runs server and client with the same arguments; returns their outputs.
fn two_processes(args: &[&str]) -> [Output; 2] {
    let port = free_port();
    let server = start(&[args, &["--server", "-p", &port]].concat());
    let client = run(&[args, &["localhost", "-p", &port]].concat());
    [client, finish(server)]
}

#[test]
fn every_test_runs_in_one_process_without_loss() {
    for test in TESTS {
        let output = run(&[test, "-n", "300"]);
        assert_success(&[test], &output);
        assert_eq!(columns(&output)[1], "300", "{test}");
    }
}

#[test]
fn every_test_runs_through_loss_reordering_duplicates_and_corruption() {
    for test in TESTS {
        for transport in ["roce", "irn", "irn-go-back-n", "irn-no-sack", "auto", "iwarp", "ndp"] {
            let impair = "loss 1% reorder 5% duplicate 1% corrupt 0.5% delay 5us";
            let args = [test, "-n", "100", "--transport", transport, "--impair", impair];
            assert_success(&args, &run(&args));
        }
    }
}

#[test]
fn options_of_perftest_change_the_run() {
    for args in [
        &["write-bw", "-q", "4", "-t", "5", "-Q", "3", "-l", "5", "-s", "4K", "-n", "503"][..],
        &["write-bw", "-t", "1", "-n", "50"],
        &["send-bw", "-q", "3", "-r", "16", "-s", "5000", "-b", "-n", "300", "-m", "1024"],
        &["send-bw", "-s", "64", "-I", "64", "-n", "1000"],
        &["write-bw", "-b", "-n", "200"],
        &["read-bw", "-o", "2", "-b", "-s", "8192", "-n", "200"],
        &["atomic-bw", "-A", "CMP_AND_SWAP", "-q", "2", "-b", "-n", "200"],
        &["write-bw", "--no-verify", "-D", "0.2", "-F", "-u", "16"],
        &["read-lat", "-D", "0.2", "-s", "1"],
        &["write-lat", "-s", "100K", "-n", "100", "--impair", "loss 1%"],
        &["send-bw", "--port", "udp", "-n", "200", "--impair", "loss 1%"],
        &["write-bw", "--port", "shm", "-n", "200"],
        &["write-bw", "--port", "udp", "-n", "200"],
    ] {
        assert_success(args, &run(args));
    }
}

#[test]
fn all_sizes_take_their_turn() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("all.json");
    let args = ["write-bw", "-a", "-n", "5", "--out_json_file", file.to_str().expect("a name")];
    assert_success(&args, &run(&args));
    let sizes: Vec<u64> =
        json(&file)["results"].as_array().expect("a list").iter().filter_map(|r| r["MsgSize"].as_u64()).collect();
    assert_eq!(sizes, (1..=23).map(|shift| 1 << shift).collect::<Vec<u64>>());
}

#[test]
fn tables_have_the_heads_of_perftest() {
    for (args, head) in [
        (&["write-bw"][..], "#bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps]"),
        (&["write-bw", "--report_gbits"], "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"),
        (
            &["write-lat"],
            "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec] \
             99.9% percentile[usec]",
        ),
    ] {
        let output = run(&[args, &["-n", "10"]].concat());
        let words: Vec<Vec<String>> =
            text(&output.stdout).lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect();
        let head: Vec<&str> = head.split_whitespace().collect();
        assert!(words.iter().any(|line| *line == head), "{args:?}: {}", text(&output.stdout));
    }
}

#[test]
fn json_has_the_keys_of_perftest_and_the_counters() {
    let dir = tempfile::tempdir().expect("a directory");
    for (test, keys) in [
        ("send-bw", &["MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate"][..]),
        (
            "read-lat",
            &["MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "t_99.9"],
        ),
    ] {
        let output = perf(&[test, "-n", "100", "--out_json", "--seed", "7"]).current_dir(dir.path()).output();
        assert_success(&[test], &output.expect("irnic runs"));
        let json = json(&dir.path().join("perftest_out.json"));
        for key in keys {
            assert!(json["results"][key].is_number(), "{test}: {key} in {json}");
        }
        assert_eq!(json["results"]["n_iterations"], 100);
        assert!(json["results"]["counters"]["sent_pkts"].as_u64() >= Some(100), "{json}");
        assert_eq!(json["test_info"]["Seed"], 7);
    }
}

#[test]
fn the_queue_of_an_impaired_network_is_told_and_so_is_how_a_rate_limit_held() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("out.json");
    let network = "tx rate 1gbit ecn 20k 60k 50%";
    for port in ["mem", "shm", "udp"] {
        let args = ["write-bw", "-n", "200", "--port", port, "--impair", network, "--transport", "irn,cc=dcqcn"];
        let more = ["--rate", "2G", "--rate_limit", "1500M", "--out_json_file", file.to_str().expect("UTF-8")];
        let output = run(&[&args[..], &more].concat());
        assert_success(&args, &output);
        let printed = text(&output.stdout);
        assert!(printed.contains(" Queue of frames sent     : mean "), "{printed}");
        assert!(printed.contains("limit 1500 Mb/sec: error over 10 ms "), "{printed}");
        let json = json(&file);
        let [tx, rx] = ["tx", "rx"].map(|way| &json["impairments"][way]);
        let peak = tx["queue_peak_bytes"].as_u64().expect("a queue");
        assert!(tx["queue_p50_bytes"].as_u64() <= Some(peak) && tx["marked"].as_u64() > Some(0), "{tx}");
        assert!(rx["queue_peak_bytes"].is_null() && rx["seen"].is_number(), "{rx}");
        // Marks have come through, and were answered with notifications.
        assert!(json["results"]["counters"]["rp_cnp_handled"].as_u64() > Some(0), "{port}: {json}");
        assert!(json["results"]["pacing"]["windows"].as_u64() > Some(0), "{json}");
    }
}

#[test]
fn every_test_runs_in_two_processes() {
    for port in ["udp", "shm"] {
        for test in TESTS {
            let [client, server] = two_processes(&[test, "--port", port, "-n", "100"]);
            assert_success(&[test, port, "client"], &client);
            assert_success(&[test, port, "server"], &server);
            assert_eq!(columns(&client), columns(&server), "{test} over {port}: both tell the same");
        }
    }
}

#[test]
fn two_processes_run_through_loss_in_both_directions_and_by_time() {
    for args in [
        &["write-bw", "--port", "udp", "-n", "200", "--impair", "loss 1%"][..],
        &["send-bw", "--port", "shm", "-n", "200", "-b", "--impair", "tx loss 1% corrupt 1%"],
        &["send-bw", "--port", "shm", "-D", "0.3", "-q", "2"],
        &["read-bw", "--port", "shm", "-s", "1M", "-n", "20", "-b"],
        &["write-bw", "--port", "shm", "-a", "-n", "5"],
    ] {
        let [client, server] = two_processes(args);
        assert_success(args, &client);
        assert_success(args, &server);
    }
}

/// All data meets at the receiver's line, whose queue holds eight frames: what does not fit comes as headers, or goes
/// back, and is asked for. Nothing waits for a timer, which takes ten seconds here.
#[test]
fn pulled_streams_of_two_processes_pass_a_line_that_trims() {
    let dir = tempfile::tempdir().expect("a directory");
    let line = "rx rate 1gbit trim 8 headers 8k return";
    for (port, impair) in [("shm", line), ("udp", line), ("shm", "rx rate 1gbit policy trimming,data=34KB,headers=8KB")]
    {
        let file = dir.path().join(format!("{port}.json"));
        let args = ["write-bw", "--port", port, "-q", "8", "-n", "100", "-s", "65536", "-m", "4096"];
        let more = ["--transport", "ndp,line-rate=1G,rto-max=10s", "--impair", impair];
        let args = [&args[..], &more].concat();
        let peer = free_port();
        let server =
            start(&[&args[..], &["--server", "-p", &peer, "--out_json_file", file.to_str().expect("UTF-8")]].concat());
        let other = dir.path().join(format!("{port}-client.json"));
        let to_other = ["--out_json_file", other.to_str().expect("UTF-8")];
        let client = run(&[&args[..], &["localhost", "-p", &peer], &to_other].concat());
        assert_success(&args, &client);
        assert_success(&args, &finish(server));
        let ends = [json(&file), json(&other)];
        let rx = &ends[0]["impairments"]["rx"];
        assert!(rx["trimmed"].as_u64() > Some(0) && rx["over_limit"] == 0, "{port}: {rx}");
        // A process that had no core for long may find more headers, acknowledgements and pulls than the queue holds:
        // those alone cost the other end timeouts.
        let count = |value: &Value| value.as_u64().expect("a count");
        for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let timeouts = count(&end["results"]["counters"]["local_ack_timeout_err"]);
            let dropped = |end: &Value| {
                let rx = &end["impairments"]["rx"];
                count(&rx["header_drops"]) + count(&rx["over_limit"])
            };
            let drops = dropped(end) + dropped(other);
            assert!(timeouts <= drops, "{port}: {timeouts} timeouts, {drops} headers dropped: {end}");
        }
    }
}

#[test]
fn ends_with_different_options_say_which() {
    let port = free_port();
    let server = start(&["write-bw", "--server", "-p", &port, "-s", "4096"]);
    let client = run(&["write-bw", "localhost", "-p", &port, "-s", "8192"]);
    let server = finish(server);
    for (output, here, there) in [(client, "8192", "4096"), (server, "4096", "8192")] {
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let expected = format!("--size is {here} here and {there} at the peer");
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn a_server_ignores_connections_from_other_programs() {
    let port = free_port();
    let args = ["write-bw", "--port", "shm", "-n", "100"];
    let server = start(&[&args[..], &["--server", "-p", &port]].concat());
    let connect = || loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port.parse().expect("a number"))) {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // A port scan, one that says nothing, and one that says something else.
    drop(connect());
    let _silent = connect();
    connect().write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a connection");
    let client = run(&[&args[..], &["localhost", "-p", &port]].concat());
    assert_success(&args, &client);
    assert_success(&args, &finish(server));
}

#[test]
fn a_peer_that_is_not_irnic_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port().to_string();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.write_all(b"SSH-2.0\n");
        // Until the client has gone.
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let output = run(&["write-bw", "127.0.0.1", "-p", &port]);
    stranger.join().expect("the stranger ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("\"SSH-2.0\""), "{}", text(&output.stderr));
}

#[test]
fn bad_arguments_are_told_in_one_line() {
    for (args, part) in [
        (&["write-bw", "-s", "3x"][..], "--size 3x: expected"),
        (&["write-bw", "-n", "4"], "--iters 4: expected 5 to"),
        (&["write-bw", "--transport", "tcp"], "choose roce, irn"),
        (&["write-bw", "--impair", "loss lots"], "at column 6"),
        (&["write-bw", "--impair", "rate 1gbit ecn 5k 2k 1%"], "at column 19"),
        (&["write-bw", "--rate", "fast"], "--rate fast: expected a rate such as 40G"),
        (&["read-bw", "--rate_limit", "1G"], "use it with send-bw or write-bw"),
        (&["write-bw", "--port", "18515"], "the TCP port is -p 18515"),
        (&["write-bw", "--port", "mem", "--server"], "choose udp or shm"),
        (&["write-bw", "-m", "1500"], "expected 256, 512, 1024, 2048 or 4096"),
        (&["write-lat", "-q", "2"], "leave out -q"),
        (&["write-bw", "--no-such-flag"], "--no-such-flag"),
        (&["teleport-bw"], "write-bw"),
        (&["write-bw", "--pcap", "/nowhere/at/all"], "--pcap /nowhere/at/all"),
    ] {
        let output = run(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn an_interrupted_run_tells_what_it_has() {
    use std::io::{BufRead, BufReader};
    let mut server = start(&["write-bw", "-D", "60", "-s", "4096", "-i", "0.1"]);
    let mut out = BufReader::new(server.0.stdout.take().expect("its output"));
    let mut line = String::new();
    // The heads of the table and of the intervals come first. On a busy machine an interval may be long.
    let begins = |line: &str| line.trim_start().split_once('-').and_then(|(at, _)| at.parse::<f64>().ok());
    while begins(&line).is_none_or(|at| at < 0.2) {
        line.clear();
        assert!(out.read_line(&mut line).expect("a line") > 0, "an interval");
    }
    let pid = server.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    let rest: Vec<String> = out.lines().map(|line| line.expect("a line")).collect();
    assert!(rest.iter().any(|line| line.starts_with(" 4096 ")), "partial results: {rest:?}");
    assert_eq!(server.0.wait().expect("irnic ends").code(), Some(130));
}

#[test]
fn a_dead_network_is_told_with_what_to_do() {
    let output = run(&["write-bw", "-n", "5", "-u", "8", "--transport", "irn,rto-max=1ms", "--impair", "loss 100%"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("transport retry counter exceeded") && error.contains("raise -u"), "{error}");
}

#[test]
fn a_capture_decodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.pcapng");
    let name = file.to_str().expect("a name");
    for port in ["mem", "udp", "shm"] {
        let args = ["write-bw", "-n", "20", "--port", port, "--pcap", name, "--impair", "loss 1%"];
        assert_success(&args, &run(&args));
        let decoded = Command::new(env!("CARGO_BIN_EXE_irnic")).args(["decode", name]).output().expect("irnic runs");
        assert!(decoded.status.success(), "{port}: {}", text(&decoded.stderr));
        assert!(text(&decoded.stdout).contains("RDMA Write"), "{port}");
    }
}

/// What notifies the sender of the line's fair rate is in its captures, and Wireshark finds nothing wrong with it.
#[test]
fn a_line_notifies_its_flows_of_their_rate() {
    let folder = tempfile::tempdir().expect("a folder");
    let [capture, json] = ["c.pcapng", "perf.json"].map(|name| folder.path().join(name).display().to_string());
    let args =
        ["write-bw", "-n", "100", "-q", "2", "-t", "16", "--transport", "irn,cc=rocc,line-rate=2G", "--port", "mem"];
    let network = ["--impair", "tx rate 1gbit limit 10000 rocc", "--pcap", &capture];
    let args = [&args[..], &network, &["--out_json", "--out_json_file", &json]].concat();
    let output = run(&args);
    assert_success(&args, &output);
    assert!(text(&output.stdout).contains("   rocc: fair rate "), "{}", text(&output.stdout));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).expect("JSON")).expect("JSON");
    let line = &json["impairments"]["tx"];
    let notices = line["notices"].as_u64().expect("a count");
    assert!(notices > 0 && line["fair_rate"].as_u64().is_some_and(|rate| rate <= 1_000_000_000), "{line}");
    let decoded = Command::new(env!("CARGO_BIN_EXE_irnic")).args(["decode", &capture]).output().expect("irnic runs");
    let shown = text(&decoded.stdout).lines().filter(|line| line.contains("RATE NOTICE")).count() as u64;
    assert!((1..=notices).contains(&shown), "{shown} of {notices}");
    if needs(&["tshark"]).is_some() {
        let mut tshark = Command::new("tshark");
        tshark.args(["-r", &capture, "-Y", "icmp.type == 253 && icmp.checksum.status == 1 && ip.src == 192.0.0.8"]);
        let seen = tshark.output().expect("tshark runs");
        assert_eq!(text(&seen.stdout).lines().count() as u64, shown, "{}", text(&seen.stderr));
    }
    let refused = run(&["write-bw", "--transport", "irn,cc=rocc"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("rocc needs switches that send notices"), "{}", text(&refused.stderr));
}

/// A line that drops red frames first: with TLT a burst loses those alone, and what is verified arrives all the same.
#[test]
fn a_line_with_room_for_few_red_frames_drops_what_is_unimportant() {
    for port in ["mem", "shm", "udp"] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("perf.json");
        let args = ["write-bw", "-s", "32K", "-n", "40", "-q", "16", "-t", "1", "--port", port];
        let network = ["--transport", "irn,tlt=on", "--impair", "tx rate 1gbit limit 1000 red 30"];
        let json_of = ["--out_json", "--out_json_file", file.to_str().expect("a name")];
        let args = [&args[..], &network, &json_of].concat();
        assert_success(&args, &run(&args));
        let json = json(&file);
        let count = |name: &str| find(&json, name).iter().sum::<u64>();
        assert!(count("tlt_important_pkts") > 0 && count("tlt_echoes") > 0, "{port}: {json}");
        assert!(count("red_drops") > 0 && count("retransmitted_pkts") > 0, "{port}: {json}");
    }
}

/// RC3 through lines with strict priorities. What goes at low priority has a class of its own on the wire, its answers
/// have the same, and the message needs few of the window's packets.
#[test]
fn the_end_of_a_message_goes_and_is_answered_at_low_priority() {
    const LINE: &str = "delay 10ms rate 1gbit prio 5m";
    let folder = tempfile::tempdir().expect("a folder");
    let name = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (file, capture) = (name("perf.json"), name("run.pcapng"));
    let args =
        ["send-bw", "-s", "1000000", "-m", "1024", "-n", "5", "-t", "1", "--tclass", "226", "--out_json_file", &file];
    let count = |json: &Value, name: &str| json[name].as_u64().expect(name);
    let low = |line: &Value| (4..7).map(|p| count(line, &format!("priority_{p}_frames"))).sum::<u64>();
    // Of the packets most go at low priority, of the answers some, and there is room for all.
    let has_low = |line: &Value, most: bool| {
        let own = count(line, "priority_7_frames");
        assert!(low(line) > if most { own } else { 0 }, "{line}");
        assert_eq!((low(line) + own, count(line, "over_limit")), (count(line, "delayed"), 0), "{line}");
    };
    let has_met = |json: &Value| {
        let counters = &json["results"]["counters"];
        assert!(count(counters, "rc3_low_pkts") > 1000 && count(counters, "rc3_crossings") > 0, "{counters}");
        assert!(count(counters, "rc3_low_acked") > count(counters, "rc3_sent_twice"), "{counters}");
    };
    let on = ["--transport", "iwarp,rto-min=2ms,rc3=on"];
    let here = [&args[..], &on, &["--impair", LINE, "--pcap", &capture]].concat();
    let output = run(&here);
    assert_success(&here, &output);
    assert!(text(&output.stdout).contains("   priority 7: "), "{}", text(&output.stdout));
    let run_here = json(Path::new(&file));
    has_met(&run_here);
    has_low(&run_here["impairments"]["tx"], true);
    has_low(&run_here["impairments"]["rx"], false);
    if needs(&["tshark"]).is_some() {
        let mut tshark = Command::new("tshark");
        // Class selector 6, and the ECN field as it was.
        tshark.args(["-r", &capture, "-Y", "ip.dsfield.dscp == 48 && ip.dsfield.ecn == 2"]);
        let seen = tshark.output().expect("tshark runs");
        assert!(text(&seen.stdout).lines().count() > 40, "{}", text(&seen.stderr));
    }
    let off = [&args[..], &["--transport", "iwarp,rto-min=2ms", "--impair", LINE]].concat();
    assert_success(&off, &run(&off));
    let line = &json(Path::new(&file))["impairments"]["tx"];
    assert_eq!((low(line), count(line, "priority_7_frames")), (0, count(line, "delayed")));
    // Each end's line is before what it receives: the packets at the server, their answers at the client.
    for port in ["shm", "udp"] {
        let line = format!("rx {LINE}");
        let (tcp_port, at_server) = (free_port(), name("server.json"));
        let both = [&args[..args.len() - 2], &on, &["--impair", &line, "--port", port, "-p", &tcp_port]].concat();
        let server = start(&[&both[..], &["--server", "--out_json_file", &at_server]].concat());
        let client = run(&[&both[..], &["localhost", "--out_json_file", &file]].concat());
        assert_success(&both, &client);
        assert_success(&both, &finish(server));
        let [client, server] = [&file, &at_server].map(|file| json(Path::new(file)));
        has_met(&client);
        has_low(&server["impairments"]["rx"], true);
        has_low(&client["impairments"]["rx"], false);
    }
}

/// Returns all numbers of a name, wherever they stand.
fn find(json: &Value, name: &str) -> Vec<u64> {
    match json {
        Value::Object(all) => {
            let own = all.get(name).and_then(Value::as_u64);
            own.into_iter().chain(all.values().flat_map(|value| find(value, name))).collect()
        }
        Value::Array(all) => all.iter().flat_map(|value| find(value, name)).collect(),
        _ => Vec::new(),
    }
}
