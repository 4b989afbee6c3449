//! `irnic lab --clock virtual`: time that waits for programs. What a lab came to is compared with what it came to
//! before, and its time with what had to happen: how fast this machine is does not matter.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Folder, free_port, irnic, listens, needs, skipped, text};
use serde_json::Value;

/// A file of `tests/programs/exchange.c` compiled in a folder; `None` if it cannot be here.
fn exchange() -> Option<Folder> {
    needs(&["gcc", "mkfifo", "timeout"])?;
    for header in ["infiniband/verbs.h", "rdma/rdma_cma.h"] {
        if !Path::new("/usr/include").join(header).exists() {
            skipped(&format!("there is no /usr/include/{header}"));
            return None;
        }
    }
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/exchange.c");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder.path()).args(["-o", "exchange"]).arg(source).args(["-lrdmacm", "-libverbs"]);
    let output = gcc.output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(folder)
}

/// Runs a script in a lab with virtual time.
fn lab(folder: &Folder, topology: &str, options: &[&str], script: &str) -> (Output, Value) {
    let mut command = irnic(folder);
    command.args(["lab", "--clock", "virtual", "--topology", topology, "--json", "lab.json"]).args(options);
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    let json = std::fs::read(folder.path().join("lab.json")).unwrap_or_default();
    let json: Value = serde_json::from_slice(&json).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!((&json["late_frames"], &json["clock"]["kind"]), (&0.into(), &"virtual".into()), "{json}");
    (output, json)
}

fn jumps(json: &Value) -> u64 {
    json["jumps_without_poll"]["count"].as_u64().unwrap_or_else(|| panic!("{json}"))
}

/// What two processes do that wait for each other in verbs and rdma_cm alone: the capture, and the counters of all
/// ports.
fn conversation(folder: &Folder, loss: &str, how: &str) -> (Vec<u8>, Value) {
    let script = format!(
        "rm -f ready; mkfifo ready
        IRNIC_LAB_HOST=0 ./exchange listen 100 {how} > ready & read word < ready
        IRNIC_LAB_HOST=1 ./exchange 127.77.0.1 100 {how}; status=$?; wait; exit $status"
    );
    let topology = format!("leaf-spine:leaves=2,spines=2,hosts=1,rate=10G,delay=2us,loss={loss}");
    let options = ["--pcap", "lab.pcapng", "--pcap-port", "h0-s0,s0-h0", "--virtual-patience", "60s"];
    let (output, mut json) = lab(folder, &topology, &options, &script);
    assert_eq!(jumps(&json), 0, "{json}");
    assert!(text(&output.stderr).contains("virtual time: no jump without a poll"), "{}", text(&output.stderr));
    (json["host_ns"], json["busy"]) = (Value::Null, Value::Null);
    // Which process it was, and how often it asked the kernel, is this machine's business; what its NIC did is not.
    for process in json["processes"].as_array_mut().unwrap() {
        (process["pid"], process["port"]) = (Value::Null, Value::Null);
    }
    (std::fs::read(folder.path().join("lab.pcapng")).unwrap(), json)
}

#[test]
fn programs_that_wait_in_verbs_do_the_same_each_time_on_a_busy_machine_as_well() {
    let Some(folder) = exchange() else { return };
    for (loss, how) in [("0", ""), ("1%", ""), ("1%", "events")] {
        let (packets, counters) = conversation(&folder, loss, how);
        assert_eq!(counters["lost"].as_u64().unwrap() > 0, loss != "0", "{counters}");
        let done = AtomicBool::new(false);
        let (again, others) = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let result = conversation(&folder, loss, how);
            done.store(true, Ordering::Relaxed);
            result
        });
        assert_eq!(counters, others, "{loss} {how}");
        assert!(packets == again, "{loss} {how}: the captures differ");
        // 100 messages of 3 packets each way, and their acknowledgements.
        assert!(counters["frames"].as_u64().unwrap() >= 1_200, "{counters}");
    }
}

#[test]
fn timeouts_of_seconds_pass_in_the_networks_time() {
    let Some(folder) = exchange() else { return };
    // 4.096 us · 2^18, eight times.
    let (output, json) =
        lab(&folder, "star:hosts=2,rate=10G,delay=2us", &[], "IRNIC_LAB_HOST=0 timeout 300 ./exchange nobody 18");
    assert_eq!((text(&output.stdout).trim(), jumps(&json)), ("transport retry counter exceeded", 0), "{json}");
    assert!(json["lab_ns"].as_u64().unwrap() >= 8 * (4_096 << 18), "{json}");
}

#[test]
fn time_goes_on_without_a_program_that_looks_at_memory_and_the_summary_tells() {
    let Some(()) = needs(&["ib_write_lat"]) else { return };
    let folder = Folder::new();
    let port = free_port();
    let program = format!("ib_write_lat -d irnic0 -p {port} -n 20");
    let script = format!(
        "IRNIC_LAB_HOST=0 {program} > server.txt & server=$!
        {}; IRNIC_LAB_HOST=1 {program} 127.77.0.1 > client.txt 2>&1; wait $server",
        listens(&port)
    );
    let (output, json) = lab(&folder, "star:hosts=2,rate=10G,delay=2us", &["--virtual-patience", "20ms"], &script);
    let (jumps, summary) = (jumps(&json), text(&output.stderr));
    assert!(jumps > 0 && json["jumps_without_poll"]["first_ns"].is_u64(), "{json}");
    assert!(
        summary.contains(&format!("virtual time: {jumps} jumps without a poll: not deterministic after")),
        "{summary}"
    );
}

#[test]
fn time_goes_on_once_a_process_is_killed_that_kept_it() {
    let Some(folder) = exchange() else { return };
    // The sender stops wherever it is. Time stands still then: what awaits its timeout ends after the sender does.
    let script = "mkfifo ready
        IRNIC_LAB_HOST=0 ./exchange listen 100000000 > ready & listener=$!
        read word < ready
        IRNIC_LAB_HOST=1 ./exchange 127.77.0.1 100000000 & sender=$!
        sleep 1; kill -STOP $sender
        IRNIC_LAB_HOST=2 timeout 300 ./exchange nobody 14 > nobody.txt & waiter=$!
        sleep 2; test -s nobody.txt && echo early
        kill -KILL $sender; wait $waiter; status=$?
        kill -KILL $listener; exit $status";
    let (output, json) = lab(&folder, "star:hosts=3,rate=10G,delay=2us", &["--virtual-patience", "3600s"], script);
    assert_eq!(text(&output.stdout), "", "it was not kept");
    let said = std::fs::read_to_string(folder.path().join("nobody.txt")).unwrap();
    assert_eq!((said.trim(), jumps(&json)), ("transport retry counter exceeded", 0), "{json}");
}

#[test]
fn a_file_says_it_too_and_says_what_is_wrong() {
    let folder = Folder::new();
    for (clock, expected) in
        [("virtual", None), ("virtual=2", Some("expected elastic, realtime, dilated=K, elastic=K or virtual"))]
    {
        let file = format!("topology = 'star:hosts=2'\nclock = '{clock}'\n[[host]]\nhost = 0\ncommand = 'true'\n");
        folder.write("lab.toml", &file);
        let output = irnic(&folder).args(["lab", "lab.toml"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.success(), expected.is_none(), "{said}");
        assert!(said.contains(expected.unwrap_or("virtual time: no jump without a poll")), "{said}");
    }
}

#[test]
fn a_connection_request_that_is_lost_is_repeated_by_the_labs_time() {
    let Some(folder) = exchange() else { return };
    let script = format!(
        "{} ctl drop qp 1 nth 1 > rule.txt; mkfifo ready
        IRNIC_LAB_HOST=0 ./exchange listen 1 > ready & read word < ready
        IRNIC_LAB_HOST=1 ./exchange 127.77.0.1 1; status=$?; wait; exit $status",
        env!("CARGO_BIN_EXE_irnic")
    );
    let run = || {
        let _ = std::fs::remove_file(folder.path().join("ready"));
        let (_, json) = lab(&folder, "star:hosts=2,rate=10G,delay=2us", &["--virtual-patience", "60s"], &script);
        assert_eq!((&json["lost"], jumps(&json)), (&1.into(), 0), "{json}");
        json["lab_ns"].as_u64().unwrap()
    };
    let first = run();
    assert!(first > 10_000_000, "{first}");
    assert_eq!(run(), first);
}
