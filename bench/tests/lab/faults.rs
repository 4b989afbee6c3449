//! Faults on demand: a lab, applications in it, and tests that tell it what is to happen, from a shell, Python and
//! Rust.

#[path = "../../clients/lab_control.rs"]
#[allow(dead_code, reason = "a part of the client suffices here")]
mod lab_control;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, irnic, needs, text};
use lab_control::Lab;
use serde_json::Value;

/// Two hosts and a switch. READ or WRITE of 40 messages, one at a time, so that each waits for its answer.
const NETWORK: [&str; 4] = ["--topology", "star:hosts=2,rate=10G,delay=1us", "--mtu", "1024"];

fn clients() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// A lab that runs a script, with irnic in PATH and what the clients need.
fn lab(folder: &Folder, options: &[&str], command: &[&str]) -> Command {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_irnic"));
    let mut path = vec![program.parent().expect("its directory").to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut lab = irnic(folder);
    lab.arg("lab").args(NETWORK).args(["--json", "lab.json"]).args(options).arg("--").args(command);
    lab.env("PATH", std::env::join_paths(path).expect("a path")).env("PYTHONPATH", clients());
    lab.env("CLIENTS", clients());
    lab
}

fn run(folder: &Folder, options: &[&str], command: &[&str]) -> (Output, Value) {
    let output = lab(folder, options, command).output().expect("irnic starts");
    let file = std::fs::read(folder.path().join("lab.json")).unwrap_or_default();
    (output, serde_json::from_slice(&file).unwrap_or_default())
}

/// Starts a server on host 0 and a client on host 1 of `$TEST`, a program of perftest's, and waits for both.
const PAIR: &str = r#"
pair() {
    IRNIC_LAB_HOST=0 IRNIC_STATS=$PWD/server.json "$@" -d irnic0 -p $PORT >server.txt 2>&1 &
    server=$!
    until grep -q "$(printf ':%04X ' $PORT).* 0A " /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done
    IRNIC_LAB_HOST=1 IRNIC_STATS=$PWD/client.json "$@" -d irnic0 -p $PORT 127.77.0.1 >client.txt 2>&1 || return 1
    wait $server
}
"#;

/// A counter of the device of a process.
fn counter(folder: &Folder, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(folder.path().join(file)).expect("statistics");
    let stats: Value = serde_json::from_str(&text).expect("JSON");
    stats["devices"][0]["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
}

#[test]
fn a_shell_drops_the_third_acknowledgement_and_it_is_sent_again() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let port = crate::support::free_port();
    let script = format!(
        r#"set -e
        PORT={port}
        . "$CLIENTS/irnic-lab.sh"
        {PAIR}
        rule=$(lab_rule drop ack from 0 to 1 nth 3)
        pair ib_write_bw -n 40 -t 1 -s 4096 --cq-mod 1
        echo "rule $rule matches $(lab_matches $rule) applied $(lab_applied $rule)"
        lab clear $rule
        lab rules
        if lab clear $rule; then exit 9; fi"#
    );
    let (output, report) = run(&folder, &["--transport", "roce"], &["sh", "-c", &script]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    let matches: u64 = lines[0].split(' ').nth(3).and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(matches >= 40 && lines[0].starts_with("rule 1 ") && lines[0].ends_with(" applied 1"), "{out}");
    assert_eq!(lines[1..], [r#"{"ok":true,"cleared":1}"#, r#"{"ok":true,"rules":[]}"#]);
    assert!(err.contains("irnic: there is no rule 1; `rules` has those there are\n"), "{err}");
    assert_eq!((&report["lost"], &report["dropped"]), (&1.into(), &0.into()));
    assert!(counter(&folder, "client.json", "retransmitted_pkts") > 0, "{report}");
}

#[test]
fn python_corrupts_a_read_response_and_takes_a_link_down() {
    let Some(()) = needs(&["ib_read_bw", "python3"]) else { return };
    let folder = Folder::new();
    let port = crate::support::free_port();
    folder.write("pair.sh", &format!("PORT={port}\n{PAIR}\npair ib_read_bw -n 20000 -t 1 -s 4096 || exit 1\n"));
    let script = r#"
import subprocess
from irnic_lab import Lab, Refused

with Lab() as lab:
    began = lab.ask("time")["ns"]
    corrupt = lab.ask("corrupt read-response from 0 nth 7")["rule"]
    slow = lab.ask("delay 300us read-request from h1 nth 9")["rule"]
    twice = lab.ask("duplicate read-request nth 12")["rule"]
    down = lab.ask("drop data to 1 nth 50 count 3")["rule"]
    pair = subprocess.Popen(["sh", "pair.sh"])
    while lab.rule(slow)["applied"] == 0:
        assert pair.poll() is None, "it ends too early"
    # Where processes wait for a core, nothing may be sent within 2 ms.
    while lab.ask("stats")["lost"] <= 3:
        assert pair.poll() is None, "it ends too early"
        link = lab.ask("link down h1-s0 for 2ms")
        while lab.ask("time")["ns"] < link["at_ns"] + 2_000_000:
            pass
    assert began <= link["at_ns"] <= lab.ask("time")["ns"], link
    assert lab.ask("pause 0 host 1 for 500us")["at_ns"] > link["at_ns"]
    assert pair.wait() == 0, open("client.txt").read()
    for rule, applied in [(corrupt, 1), (slow, 1), (twice, 1), (down, 3)]:
        assert lab.rule(rule)["applied"] == applied, lab.ask("rules")
    stats = lab.ask("stats")
    assert stats["hosts"] == 2, stats
    assert len(stats["rules"]) == 4
    try:
        lab.ask("drop acks")
    except Refused as why:
        assert str(why).startswith('"acks": expected from, to, qp, nth, count, or a kind of frame: any, '), why
    else:
        raise AssertionError("taken")
print("done")
"#;
    let (output, _) = run(&folder, &["--transport", "roce"], &["python3", "-c", script]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out == "done\n", "{out}{err}");
    assert!(counter(&folder, "client.json", "rx_icrc_encapsulated") == 1, "the frame that was corrupted");
}

#[test]
fn processes_hear_that_the_link_of_their_host_fails_and_returns() {
    let Some(()) = needs(&["cc", "/usr/include/infiniband/verbs.h"]) else { return };
    let folder = Folder::new();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs/port.c");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-o", "port"]).arg(source).arg("-libverbs").current_dir(folder.path());
    assert!(cc.status().expect("cc").success());
    // The third process comes while the link is down; host 1 does not hear of it.
    let script = r#"set -e
        . "$CLIENTS/irnic-lab.sh"
        says() { until [ "$(wc -l <$1)" -ge $2 ]; do sleep 0.02; done; }
        touch near far late
        IRNIC_LAB_HOST=0 ./port 2 >near & near=$!
        IRNIC_LAB_HOST=1 ./port 1 >far & far=$!
        says near 1; says far 1
        lab link down h0-s0 >/dev/null
        says near 2
        IRNIC_LAB_HOST=0 ./port 1 >late & late=$!
        says late 1
        lab link up h0-s0 >/dev/null
        wait $near; wait $late
        lab link down h1-s0 >/dev/null
        wait $far
        cat near late far"#;
    let (output, _) = run(&folder, &[], &["sh", "-c", script]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let lines: Vec<&str> = out.lines().collect();
    let near = ["open: active", "port error: down", "port active: active"];
    let late = ["open: down", "port active: active"];
    let far = ["open: active", "port error: down"];
    assert_eq!(lines, [&near[..], &late, &far].concat(), "{out}{err}");
}

/// A lab that goes on until it is told to end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls until there is something.
fn eventually<T>(what: &str, mut call: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(it) = call() {
            return it;
        }
        assert!(begun.elapsed() < irnic_testkit::wait::HANG, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rust_kills_a_host_and_the_other_ends_with_an_error() {
    use std::os::unix::fs::PermissionsExt;

    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let port = crate::support::free_port();
    // Without end, until it fails.
    let script = format!(
        r#"PORT={port}
        {PAIR}
        (sleep 300; kill $$) &
        pair ib_write_bw -D 100 -s 4096 -u 8
        echo "client $?"
        kill %1 2>/dev/null"#
    );
    let mut started = lab(&folder, &["--control", "control", "--transport", "roce"], &["sh", "-c", &script]);
    let started = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts");
    let mut started = Running(started);
    let place = folder.path().join("control");
    let mut lab = eventually("there is a control socket", || Lab::at(&place).ok());
    assert_eq!(std::fs::metadata(&place).expect("its file").permissions().mode() & 0o777, 0o600);
    let error = lab.ask("kill 7").expect_err("there is no host 7").to_string();
    assert!(error.contains("\\\"7\\\": expected a host, 0 to 1"), "{error}");
    eventually("they talk to each other", || {
        let stats: Value = serde_json::from_str(&lab.ask("stats").ok()?).ok()?;
        stats["pairs"].as_array()?.iter().find(|pair| pair["arrived"].as_u64() > Some(1_000)).map(drop)
    });
    let killed: Value = serde_json::from_str(&lab.ask("kill 0").expect("it has a process")).expect("JSON");
    assert_eq!(killed["killed"].as_array().map(Vec::len), Some(1), "{killed}");
    // The same connection, and others.
    assert!(Lab::at(&place).expect("it is there").ask("time").expect("a time").starts_with("{\"ok\":true,\"ns\":"));
    eventually("the other host ends", || started.0.try_wait().ok()?);
    let mut out = String::new();
    std::io::Read::read_to_string(started.0.stdout.as_mut().expect("a pipe"), &mut out).expect("output");
    assert_eq!(out, "client 1\n");
    let said = std::fs::read_to_string(folder.path().join("client.txt")).expect("what it said");
    assert!(said.contains("Completion with error") || said.contains("status 12"), "{said}");
    assert_eq!(lab.ask("time").expect_err("it has ended").kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(!place.exists(), "nothing is left behind");
}

#[test]
fn ctl_says_what_is_wrong() {
    let folder = Folder::new();
    let refused = |socket: &str, args: &[&str]| {
        let output = irnic(&folder).env("IRNIC_LAB_CONTROL", socket).arg("ctl").args(args).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    // Other tests' labs may be running.
    let (code, error) = refused("", &["time"]);
    let none_or_several = error.contains("no lab runs") || error.contains("labs run; choose one by\n  --socket @");
    assert!(code == Some(0) || code == Some(1) && none_or_several, "{error}");
    let (code, error) = refused("/nonexistent/control", &["time"]);
    assert_eq!(
        (code, &*error),
        (Some(1), "irnic: the lab at /nonexistent/control: No such file or directory (os error 2)\n")
    );
    assert_eq!(refused("x", &[]).0, Some(2));
    // Tests run in no lab.
    assert_eq!(Lab::here().expect_err("there is none").kind(), std::io::ErrorKind::NotFound);
    // In a lab.
    let script = "irnic ctl time; echo $?; irnic ctl drop acks 2>&1 >/dev/null; echo $?
        irnic ctl --socket @nobody time; echo $?";
    let (output, _) = run(&folder, &[], &["sh", "-c", script]);
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("{\"ok\":true,\"ns\":") && lines[1] == "0", "{out}");
    assert!(lines[2].starts_with("irnic: \"acks\": expected from, ") && lines[3] == "1", "{out}");
    assert_eq!(lines[4..], ["1"]);
    // A socket that is there is somebody's.
    folder.write("taken", "");
    let (output, _) = run(&folder, &["--control", "taken"], &["true"]);
    let error = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && error.starts_with("irnic: --control taken: Address already in use"),
        "{error}"
    );
}
