//! perftest's flags, as `irnic perf` has them: what each changes can be seen from outside.

use std::process::{Command, Output, Stdio};

use crate::support::{Folder, free_port, irnic, needs, perf, run_perf as run, text};
use serde_json::Value;

/// What a run writes as JSON.
fn json(folder: &Folder, args: &[&str]) -> Value {
    run(folder, &[args, &["--out_json_file", "r.json"]].concat());
    let written = std::fs::read_to_string(folder.path().join("r.json")).expect("a file");
    serde_json::from_str(&written).expect("JSON")
}

/// The packets of a run, decoded.
fn packets(folder: &Folder, args: &[&str]) -> String {
    run(folder, &[args, &["--pcap", "r.pcapng"]].concat());
    let output = irnic(folder).args(["decode", "r.pcapng"]).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs server and client with the same options; returns their outputs.
fn two(folder: &Folder, args: &[&str], host: &str) -> [Output; 2] {
    let port = free_port();
    let start = |more: &[&str]| {
        let mut command = perf(folder, &[args, more, &["-p", &port]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start(&["--server"]);
    let client = start(&[host]);
    [client, server].map(|process| process.wait_with_output().expect("irnic ends"))
}

#[test]
fn every_flag_of_perftest_is_known() {
    const PROGRAMS: [(&str, &str); 6] = [
        ("ib_write_bw", "write-bw"),
        ("ib_write_lat", "write-lat"),
        ("ib_send_bw", "send-bw"),
        ("ib_send_lat", "send-lat"),
        ("ib_read_bw", "read-bw"),
        ("ib_atomic_bw", "atomic-bw"),
    ];
    if needs(&PROGRAMS.map(|(program, _)| program)).is_none() {
        return;
    }
    let folder = Folder::new();
    let mut count = 0;
    for (program, test) in PROGRAMS {
        let help = Command::new(program).arg("--help").output().expect("perftest runs");
        let options = text(&help.stdout).replace(['=', ','], " ");
        let flags = options.lines().filter(|line| line.trim_start().starts_with('-'));
        for flag in flags.flat_map(|line| line.split_whitespace().take(2)).filter(|word| word.starts_with('-')) {
            let output = perf(&folder, &[test, flag, "--loss", "nonsense"]).output().expect("irnic runs");
            if ["-h", "--help", "-V", "--version"].contains(&flag) {
                assert!(output.status.success(), "{flag}");
                continue;
            }
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{test} {flag}: {said}");
            assert!(!said.contains("unexpected argument"), "{test} {flag}: {said}");
            assert_eq!(said.lines().count(), 1, "{test} {flag}: {said}");
            count += 1;
        }
    }
    assert!(count > 300, "{count} flags");
}

#[test]
fn flags_that_make_no_sense_here_are_refused_with_the_reason() {
    let folder = Folder::new();
    for (args, part) in [
        (&["-c", "UD"][..], "--connection UD: perf counts and verifies every byte"),
        (&["--odp"], "--odp: a NIC in software pins no memory"),
        (&["--sl", "3"], "--sl 3: a service level is a priority in a VLAN tag"),
        (&["--ib-port", "2"], "--ib-port 2: irnic's NIC has one port"),
        (&["--force-link", "IB"], "--force-link IB: the link is Ethernet"),
        (&["-z"], "-R connects the queue pairs by rdma_cm"),
        (&["--aes_xts"], "--aes_xts: it is about encryption"),
        (&["-T", "3"], "--rdma_cm"),
        (&["--cpu_util"], "--duration"),
        (&["--tos", "3", "-R", "--tclass", "3"], "cannot be used with"),
        (&["-D", "1", "-f", "1"], "--margin 1: expected 0 or more, and less than half of --duration 1"),
        (&["-H"], "--report-histogram belongs to latency"),
        (&["--rate_limit", "1", "--rate_units", "p"], "--rate_units p: the NIC paces bytes"),
        (&["--use-srq"], "receives are what send-bw and send-lat post"),
        (&["--output", "latency"], "use it with a -lat test"),
        (&["--run_infinitely", "-s", "4K,8K"], "the first run would never end"),
        (&["--report-counters", "nonsense"], "--report-counters nonsense: no such counter"),
        (&["--ib-dev", "nonsense"], "--ib-dev nonsense: there is no such device; there are "),
        (&["--gid-index", "999"], "--gid-index 999: "),
        (&["-x", "0", "--port", "mem"], "mem has no addresses"),
        (&["--source_ip", "127.0.0.1"], "use it with --server or a host"),
    ] {
        let output = perf(&folder, &[&["write-bw"], args].concat()).output().expect("irnic runs");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
    for args in [["--connection", "RC"], ["--sl", "0"], ["--force-link", "ethernet"], ["--rate_limit_type", "HW"]] {
        run(&folder, &[&["write-bw", "-n", "5", "-s", "64"], &args[..]].concat());
    }
}

/// The IP header of each packet, as Wireshark reads it.
#[test]
fn traffic_class_and_hop_limit_are_in_every_packet() {
    if needs(&["tshark"]).is_none() {
        return;
    }
    let folder = Folder::new();
    for (args, expected) in
        [(&["--tclass", "104", "-L", "7"][..], "0x68\t7"), (&["-R", "-T", "32"], "0x20\t64"), (&[], "0x02\t64")]
    {
        let out = packets(&folder, &[&["write-bw", "-n", "20", "-s", "4K"], args].concat());
        assert!(out.contains("RDMA Write"), "{out}");
        let mut tshark = Command::new("tshark");
        tshark.current_dir(folder.path()).args(["-r", "r.pcapng", "-T", "fields", "-e", "ip.dsfield", "-e", "ip.ttl"]);
        let seen = text(&tshark.output().expect("tshark runs").stdout);
        assert!(seen.lines().count() > 20 && seen.lines().all(|line| line == expected), "{args:?}: {seen}");
    }
}

#[test]
fn rdma_cm_connects_each_queue_pair_and_parts_again() {
    let folder = Folder::new();
    for port in ["mem", "shm", "udp"] {
        let out = packets(&folder, &["write-bw", "-R", "-q", "70", "-n", "5", "-s", "64", "--port", port]);
        for (message, least) in [("REQ ", 70), ("REP ", 70), ("RTU ", 70), ("DREQ ", 70), ("DREP ", 70)] {
            let count = out.lines().filter(|line| line.contains(&format!("  {message}"))).count();
            assert!(count >= least, "{port}: {count} {message}\n{out}");
        }
        let first_data = out.find("RDMA Write").expect("data");
        assert!(out.find("  RTU ").expect("an RTU") < first_data, "connected before data moves");
        assert!(out.find("  DREQ ").expect("a DREQ") > first_data);
    }
    assert!(!packets(&folder, &["write-bw", "-n", "5"]).contains("  REQ "), "only with -R");
}

#[test]
fn rdma_cm_connects_two_processes_over_a_network_that_loses() {
    let folder = Folder::new();
    for (port, test) in [("udp", "send-bw"), ("shm", "read-lat")] {
        let args = [test, "--port", port, "-R", "-n", "50", "-s", "4K", "--retry_count", "6", "--impair", "loss 5%"];
        for output in two(&folder, &args, "127.0.0.1") {
            assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        }
    }
    // One end alone: the other says so, instead of waiting for it.
    let port = free_port();
    let start = |args: &[&str]| perf(&folder, args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
    let server = start(&["write-bw", "--server", "-p", &port, "-R"]).expect("irnic starts");
    let client = start(&["write-bw", "127.0.0.1", "-p", &port]).expect("irnic starts");
    for process in [server, client] {
        let output = process.wait_with_output().expect("irnic ends");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--rdma_cm is "), "{}", text(&output.stderr));
    }
}

#[test]
fn a_gid_index_chooses_the_address() {
    let folder = Folder::new();
    let devices = irnic(&folder).args(["devinfo", "--json"]).output().expect("irnic runs");
    let devices: Value = serde_json::from_slice(&devices.stdout).expect("JSON");
    let name = devices[0]["name"].as_str().expect("a name");
    let gids = devices[0]["gids"].as_array().expect("GIDs");
    for gid in gids {
        let (index, address) = (gid["index"].to_string(), gid["address"].as_str().expect("an address"));
        // A link-local address says nothing without its interface.
        if address.starts_with("fe80") {
            continue;
        }
        let out = packets(&folder, &["write-bw", "-n", "5", "-s", "64", "-d", name, "-x", &index]);
        let all = out.lines().filter(|line| line.contains(" > "));
        assert!(all.clone().count() > 5 && all.clone().all(|l| l.matches(address).count() >= 2), "{address}: {out}");
    }
}

#[test]
fn a_device_brings_its_settings() {
    let folder = Folder::new();
    let config = "[[device]]\nname = \"slow\"\nport = \"udp\"\ntransport = \"roce,window=256\"\nimpair = \"loss 1%\"\nmtu = 1024\n";
    let path = folder.write("irnic.toml", config);
    let mut command = perf(&folder, &["write-bw", "-n", "20", "-d", "slow", "--out_json_file", "r.json"]);
    let output = command.env("IRNIC_CONFIG", &path).output().expect("irnic runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(folder.path().join("r.json")).expect("a file");
    let info = &serde_json::from_str::<Value>(&written).expect("JSON")["test_info"];
    assert_eq!((&info["Device"], &info["Mtu"], &info["Impairment"]), (&"udp".into(), &1024.into(), &"loss 1%".into()));
    assert!(info["Transport"].as_str().is_some_and(|t| t.starts_with("roce")), "{info}");
}

#[test]
fn completions_raise_events_only_if_they_are_waited_for() {
    let folder = Folder::new();
    for test in ["send-lat", "read-bw", "send-bw", "atomic-lat"] {
        for port in ["mem", "udp"] {
            let args = [test, "-n", "100", "--port", port];
            let by_events = json(&folder, &[&args[..], &["-e"]].concat());
            assert!(by_events["results"]["cq_events"].as_u64() >= Some(1), "{test}: {by_events}");
            assert_eq!(by_events["test_info"]["CQ_events"], "ON");
            assert!(json(&folder, &args)["results"]["cq_events"].is_null());
        }
    }
    // One message at a time raises one event each, at least at the end that waits for it.
    let events = json(&folder, &["read-lat", "-n", "100", "-e"])["results"]["cq_events"].as_u64();
    assert!(events >= Some(100), "{events:?}");
}

#[test]
fn receives_may_be_shared_and_regions_may_be_several() {
    let folder = Folder::new();
    let args = ["send-bw", "-q", "4", "-n", "300", "-s", "2K", "-r", "16", "-b"];
    let shared = json(&folder, &[&args[..], &["--use-srq"]].concat());
    assert_eq!((&shared["test_info"]["Using_SRQ"], &shared["results"]["n_iterations"]), (&"ON".into(), &1200.into()));
    run(&folder, &["send-lat", "-n", "50", "--use-srq"]);
    run(&folder, &[&args[..], &["--recv_post_list", "5"]].concat());
    run(&folder, &[&args[..], &["--recv_post_list", "5", "--use-srq"]].concat());
    for test in ["write-bw", "read-bw", "atomic-bw", "send-bw"] {
        let out = packets(&folder, &[test, "-q", "3", "-n", "20", "--mr_per_qp"]);
        if test != "send-bw" {
            let keys: std::collections::BTreeSet<&str> =
                out.split("rkey=").skip(1).map(|rest| rest.split_whitespace().next().unwrap_or("")).collect();
            assert_eq!(keys.len(), 3, "{test}: {keys:?}");
        }
    }
    for args in [&["send-bw", "--use-srq", "-q", "3"][..], &["read-bw", "--mr_per_qp", "-q", "2", "-b"]] {
        let args = [args, &["-n", "100", "-s", "4K", "--port", "shm"]].concat();
        for output in two(&folder, &args, "127.0.0.1") {
            assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn the_server_asks_in_a_reversed_test() {
    let folder = Folder::new();
    let sources = |args: &[&str]| {
        let out = packets(&folder, &[&["send-bw", "-n", "20", "-s", "64"], args].concat());
        let sends = out.lines().filter(|line| line.contains("RC Send Only") || line.contains("IRN Send Only"));
        sends.map(|line| line.split_whitespace().nth(1).unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    let (ordinary, reversed) = (sources(&[]), sources(&["--reversed"]));
    assert!(ordinary.len() >= 20 && ordinary.iter().all(|source| source == "127.0.0.1"), "{ordinary:?}");
    assert!(reversed.len() >= 20 && reversed.iter().all(|source| source == "127.0.0.2"), "{reversed:?}");
    let [client, server] = two(&folder, &["write-bw", "--reversed", "-n", "50", "-s", "4K"], "127.0.0.1");
    let last = |output: &Output| text(&output.stdout).lines().rev().nth(1).map(str::to_owned);
    assert_eq!(last(&client), last(&server));
    assert!(last(&client).is_some_and(|line| line.trim_start().starts_with("4096")), "{client:?}");
}

#[test]
fn what_is_shown_is_what_was_asked_for() {
    let folder = Folder::new();
    let number = run(&folder, &["write-bw", "-n", "20", "-s", "4K", "--output", "bandwidth"]);
    assert!(number.trim().parse::<f64>().is_ok_and(|n| n > 0.0), "{number}");
    let number = run(&folder, &["send-lat", "-n", "20", "--output", "latency"]);
    assert!(number.trim().parse::<f64>().is_ok_and(|n| n > 0.0), "{number}");

    let out =
        run(&folder, &["write-bw", "-D", "0.3", "-s", "4K", "--cpu_util", "-W", "hw_counters/sent_acks,out_of_buffer"]);
    assert!(out.contains("MsgRate[Mpps]    CPU_Util[%]"), "{out}");
    assert!(out.contains("\n   sent_acks ") && out.contains("\n   out_of_buffer 0\n"), "{out}");
    let cpu = json(&folder, &["write-bw", "-D", "0.3", "-s", "4K", "--cpu_util"])["results"]["CPU_util"].as_f64();
    assert!(cpu.is_some_and(|cpu| (0.0..=100.0).contains(&cpu)), "{cpu:?}");

    for (flag, sorted) in [("-H", true), ("-U", false)] {
        let out = run(&folder, &["read-lat", "-n", "50", flag]);
        let lines = out.lines().skip_while(|line| *line != "#, usec").skip(1).map_while(|line| line.split_once(", "));
        let samples: Vec<f64> = lines.map(|(_, usec)| usec.parse().expect("a number")).collect();
        assert_eq!(samples.len(), 50, "{out}");
        assert!(!sorted || samples.is_sorted(), "{samples:?}");
    }
    let both = json(&folder, &["send-bw", "-b", "-n", "100", "-s", "4K", "--report-both"]);
    let result = &both["results"];
    let of = |end: &str| result[end]["BW_average"].as_f64().expect("a bandwidth");
    let sum = result["BW_average"].as_f64().expect("a bandwidth");
    assert!((of("sent_by_client") + of("sent_by_server") - sum).abs() < 1e-6 * sum, "{both}");

    assert_eq!(json(&folder, &["write-bw", "-n", "100", "-s", "4K", "-N"])["results"]["BW_peak"], 0.0);
    let output = perf(&folder, &["write-bw", "-n", "20", "-y", "1e9"]).output().expect("irnic runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--limit_msgrate 1000000000: 65536 B reached "), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(" 65536 "), "the result is told all the same");
    run(&folder, &["write-bw", "-n", "20", "-y", "0", "-w", "0"]);
}

#[test]
fn what_is_not_measured_is_not_counted() {
    let folder = Folder::new();
    let whole = json(&folder, &["read-bw", "-n", "100", "-t", "20", "-s", "4K"]);
    let warm = json(&folder, &["read-bw", "-n", "100", "-t", "20", "-s", "4K", "--perform_warm_up"]);
    let requests = |json: &Value| json["results"]["peer_counters"]["rx_read_requests"].as_u64().expect("a counter");
    assert_eq!((requests(&whole), requests(&warm)), (100, 120));
    let measured = warm["results"]["n_iterations"].as_u64().expect("messages");
    assert!((80..=100).contains(&measured), "{measured}");
    for test in ["send-bw", "read-lat"] {
        let json = json(&folder, &[test, "-D", "0.4", "-f", "0.15", "-s", "1K"]);
        let measured = json["results"]["n_iterations"].as_u64().expect("messages");
        let sent = json["results"]["counters"]["sent_pkts"].as_u64().expect("a counter");
        assert!(measured > 0 && measured < sent, "{test}: {measured} of {sent}");
    }
    run(&folder, &["read-bw", "-n", "5", "--wait_destroy", "0.1"]);
    let gap = json(&folder, &["read-lat", "-n", "20", "--latency_gap", "2000"]);
    assert!(gap["results"]["seconds"].as_f64() >= Some(19.0 * 0.002), "{gap}");
}
