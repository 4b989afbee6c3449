//! What is left behind when applications end: statistics and captures; and what `irnic config` and `irnic devinfo` say.

use std::process::{Child, Command, Output, Stdio};

use crate::support::{Folder, await_listener, free_port, irnic, needs, text};
use serde_json::Value;

fn finish(child: Child) -> Output {
    child.wait_with_output().expect("an end")
}

/// 200 messages of 4096 bytes each way between two processes with these options of `irnic run` each; checks that they
/// pass.
fn pingpong(folder: &Folder, server: &[&str], client: &[&str]) -> [Output; 2] {
    between(folder, "ibv_rc_pingpong -g 0 -n 200 -p", server, client)
}

/// Runs an application between two processes with these options of `irnic run` each: its server with a port behind the
/// words, its client with the port and an address. Checks that both succeed.
fn between(folder: &Folder, application: &str, server: &[&str], client: &[&str]) -> [Output; 2] {
    let port = free_port();
    let start = |options: &[&str], host: &[&str]| -> Child {
        let mut command: Command = irnic(folder);
        command.args(["run", "--address", "127.0.0.1"]).args(options);
        command.arg("--").args(application.split(' ')).arg(&port).args(host);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start(server, &[]);
    // Its client does not try twice.
    await_listener(&port);
    let client = start(client, &["127.0.0.1"]);
    let outputs = [finish(client), finish(server)];
    for output in &outputs {
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
    outputs
}

fn files(folder: &Folder, extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder.path()).expect("a directory").map(|e| e.expect("an entry").path());
    entries.filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

#[test]
fn statistics_as_json_add_up() {
    // ibv_rc_pingpong ends with the last message, and what its last acknowledgement lost then nobody answers; perftest
    // waits for its peer.
    let Some(()) = needs(&["ib_send_lat"]) else { return };
    let folder = Folder::new();
    let stats = ["--stats=stats-%p.json"];
    let client = [&stats[..], &["--impair", "tx loss 5%"]].concat();
    between(&folder, "ib_send_lat -F -s 4096 -n 200 -p", &stats, &client);
    let files = files(&folder, "json");
    assert_eq!(files.len(), 2, "{files:?}");
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("JSON");
    let stats: Vec<Value> = files.iter().map(read).collect();
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).expect(path);
    for s in &stats {
        let device = &s["devices"][0];
        let [qp] = &device["queue_pairs"].as_array().unwrap()[..] else { panic!("{device}") };
        assert_eq!((&qp["destroyed"], &qp["service"], &device["name"]), (&true.into(), &"RC".into(), &"irnic0".into()));
        for (of_qp, of_device) in [
            ("/sent_pkts", "/counters/sent_pkts"),
            ("/rcvd_pkts", "/counters/rcvd_pkts"),
            ("/retransmitted", "/counters/retransmitted_pkts"),
            ("/timeouts", "/counters/local_ack_timeout_err"),
        ] {
            assert_eq!(number(qp, of_qp), number(device, of_device), "{of_qp}");
            assert_eq!(number(qp, of_qp), number(device, &format!("/total{of_qp}")), "{of_qp}");
        }
        // 200 messages of 4096 bytes each way.
        assert_eq!(number(device, "/counters/rcvd_bytes"), 200 * 4096);
        let rtt = |name| number(qp, &format!("/rtt_ns/{name}"));
        assert!(rtt("samples") > 0 && rtt("min") <= rtt("p50") && rtt("p50") <= rtt("p99") && rtt("p99") <= rtt("max"));
    }
    // One end lost what the other did not get.
    let (impaired, plain) = if stats[0]["devices"][0]["impairments"].is_null() { (1, 0) } else { (0, 1) };
    let tx = &stats[impaired]["devices"][0]["impairments"]["tx"];
    let (seen, dropped) = (number(tx, "/seen"), number(tx, "/dropped"));
    assert_eq!(seen, number(&stats[impaired], "/devices/0/counters/sent_pkts"));
    assert!(dropped > 0, "5 % of {seen}");
    assert!(number(&stats[plain], "/devices/0/port/rx_frames") <= seen - dropped);
}

#[test]
fn statistics_as_text_go_to_standard_error() {
    let Some(()) = needs(&["ibv_rc_pingpong"]) else { return };
    let folder = Folder::new();
    let [client, server] = pingpong(&folder, &[], &["--stats"]);
    let summary = text(&client.stderr);
    assert!(summary.starts_with("irnic: irnic0 of process "), "{summary}");
    assert!(
        summary.contains("819200 bytes received") && summary.contains("RC QP 0x") && summary.contains("RTT p50"),
        "{summary}"
    );
    assert_eq!(text(&server.stderr), "");
}

/// An application that opens a device and leaves a line unfinished, in its stream or written.
const UNFINISHED: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
    void **(*list)(int *) = (void **(*)(int *))dlsym(verbs, "ibv_get_device_list");
    void *(*open)(void *) = (void *(*)(void *))dlsym(verbs, "ibv_open_device");
    if (!open(list(NULL)[0]))
        return 1;
    printf("its last %s", argv[2]);
    if (!strcmp(argv[1], "written"))
        fflush(stdout);
    return 0;
}
"#;

#[test]
fn the_report_begins_a_line_after_all_that_the_application_wrote() {
    let Some(()) = needs(&["cc", "script"]) else { return };
    let folder = Folder::new();
    folder.write("app.c", UNFINISHED);
    let built = Command::new("cc").args(["-o", "app", "app.c", "-ldl"]).current_dir(folder.path()).status().unwrap();
    assert!(built.success());
    let start = |how: &str, line: &str| {
        let run = format!("run --address 127.0.0.1 --stats -- ./app {how} '{line}'");
        format!("{} {run}", env!("CARGO_BIN_EXE_irnic"))
    };
    let shell = |script: String| {
        let output = irnic(&folder);
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder.path());
        for (name, value) in output.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        text(&command.stdin(Stdio::null()).output().expect("sh starts").stdout)
    };
    for (line, expected) in
        [("word", "its last word\nirnic: irnic0 of "), ("line\n", "its last line\nirnic: irnic0 of ")]
    {
        let piped = shell(format!("{} 2>&1", start("kept", line)));
        assert!(piped.starts_with(expected), "{piped}");
        for how in ["kept", "written"] {
            let filed = shell(format!("{} >file 2>&1; cat file", start(how, line)));
            assert!(filed.starts_with(expected), "{filed}");
            // On a terminal of 80 columns: from wherever the line ended to the beginning of another.
            let shown = shell(format!("script -qc \"stty cols 80; {}\" /dev/null", start(how, line)));
            let spaces = format!("{}\rirnic: irnic0 of ", " ".repeat(80));
            let end = expected.split_once('\n').unwrap().0;
            assert!(shown.starts_with(end) && shown.contains(&spaces), "{shown:?}");
        }
    }
}

#[test]
fn two_processes_with_one_name_for_captures_write_two_that_wireshark_reads() {
    let Some(()) = needs(&["ibv_rc_pingpong", "tshark"]) else { return };
    let folder = Folder::new();
    // Of an earlier run.
    folder.write("cap.pcapng", "");
    pingpong(&folder, &["--pcap", "cap.pcapng"], &["--pcap", "cap.pcapng"]);
    let captures = files(&folder, "pcapng");
    assert_eq!(captures.len(), 2, "{captures:?}");
    let frames: Vec<usize> = captures
        .iter()
        .map(|path| {
            let output = Command::new("tshark").arg("-r").arg(path).args(["-Y", "infiniband"]).output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout).lines().count()
        })
        .collect();
    // Every message is at least four packets of 1024 bytes, or one of 4096; both ends see both ways.
    assert!(frames.iter().all(|n| *n >= 400), "{frames:?}");
}

#[test]
fn the_configuration_is_printed_with_origins_and_reads_back() {
    let folder = Folder::new();
    folder.write("irnic.toml", "rate = '40G'\n[[device]]\nname = 'a'\naddresses = '127.0.0.1'\n");
    let print = |args: &[&str]| {
        let output = irnic(&folder).env("IRNIC_MTU", "1024").args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let toml = print(&["config"]);
    for line in ["rate = \"40G\"  # irnic.toml:1", "mtu = \"1024\"  # IRNIC_MTU", "seed = \"1\"  # default"] {
        assert!(toml.lines().any(|l| l == line), "{line} is not in\n{toml}");
    }
    let json: Value = serde_json::from_str(&print(&["config", "--json"])).unwrap();
    assert_eq!(json["devices"][0]["name"]["value"], "a");
    folder.write("irnic.toml", &toml);
    let again: Value = serde_json::from_str(&print(&["config", "--json"])).unwrap();
    assert_eq!(again["devices"][0]["rate"]["value"], "40G");
    let output = irnic(&folder).env("IRNIC_SPIN", "-1").arg("config").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn devinfo_says_what_ibv_devinfo_says() {
    let folder = Folder::new();
    let output = irnic(&folder).env("IRNIC_ADDRESSES", "127.0.0.1").args(["devinfo", "--json"]).output().unwrap();
    let own: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = &own[0];
    assert_eq!((&own["name"], &own["gids"][0]["address"]), (&"irnic0".into(), &"127.0.0.1".into()));
    assert_eq!(own["gids"][0]["type"], "RoCE v2");
    let plain = irnic(&folder).env("IRNIC_ADDRESSES", "127.0.0.1").arg("devinfo").output().unwrap();
    assert!(text(&plain.stdout).contains("GID[0]:                 127.0.0.1, RoCE v2"), "{}", text(&plain.stdout));
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let output = irnic(&folder).args(["run", "--address", "127.0.0.1", "--", "ibv_devinfo", "-v"]).output().unwrap();
    let theirs = text(&output.stdout);
    let value = |name: &str| {
        let line = theirs.lines().find(|l| l.trim_start().starts_with(&format!("{name}:"))).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    for name in ["max_qp", "max_qp_wr", "max_sge", "max_cqe", "max_mr", "max_srq_wr", "max_qp_rd_atom"] {
        assert_eq!(own["limits"][name].to_string(), value(name), "{name}");
    }
    assert_eq!(own["node_guid"], value("node_guid"));
    assert_eq!(
        (own["state"].as_str().unwrap(), own["active_mtu"].to_string()),
        (value("state").as_str(), value("active_mtu"))
    );
}

#[test]
fn devices_that_share_a_name_for_captures_get_one_each() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    let device = |last: u8| format!("[[device]]\naddresses = '127.0.0.{last}'\n");
    folder.write("irnic.toml", &format!("pcap = 'x.pcapng'\n{}{}{}", device(2), device(3), device(4)));
    let output = irnic(&folder).args(["run", "--", "ibv_devinfo"]).output().unwrap();
    let out = text(&output.stdout);
    assert!(["irnic0", "irnic1", "irnic2"].iter().all(|name| out.contains(name)), "{out}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert_eq!(files(&folder, "pcapng").len(), 3);
}
