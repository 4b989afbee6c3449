//! The traffic of NCCL's all-reduce, `bench/applications/allreduce.c`, which checks every byte, with each transport
//! over each port, without loss and with.

use std::path::Path;
use std::process::{Child, Output, Stdio};

use crate::support::{Folder, free_ports, irnic, needs, skipped, text};

/// Builds the program in a folder, if this machine has what it takes.
fn built() -> Option<Folder> {
    needs(&["gcc"])?;
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        skipped("libibverbs-dev is not installed");
        return None;
    }
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("applications/allreduce.c");
    let mut gcc = std::process::Command::new("gcc");
    gcc.current_dir(folder.path()).args(["-O2", "-o", "allreduce"]).arg(source).arg("-libverbs");
    let output = gcc.output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(folder)
}

/// Has ranks reduce, each with options of its own for `irnic run`. Returns their statistics.
fn reduce(folder: &Folder, size: &str, ranks: &[Vec<&str>]) -> Vec<serde_json::Value> {
    reduce_with("auto", folder, size, ranks)
}

/// Has ranks reduce like [`reduce`], with `IRNIC_CROSS_MEMORY`.
fn reduce_with(cross_memory: &str, folder: &Folder, size: &str, ranks: &[Vec<&str>]) -> Vec<serde_json::Value> {
    let ports: [String; 4] = free_ports();
    let hosts: Vec<String> = ports[..ranks.len()].iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let start = |(rank, options): (usize, &Vec<&str>)| -> Child {
        let mut command = irnic(folder);
        command.env("IRNIC_CROSS_MEMORY", cross_memory);
        command.args(["run", "--mtu", "1024", &format!("--stats=stats-{rank}.json")]).args(options);
        command.args(["--", "./allreduce", "-s", size, "-k", "32K", "-n", "2", "-w", "1"]);
        command.arg(rank.to_string()).args(&hosts);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let started: Vec<Child> = ranks.iter().enumerate().map(start).collect();
    // Together: which of them failed first may be the last.
    let ended: Vec<Output> = started.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let said = |output: &Output| format!("{}{}", text(&output.stdout), text(&output.stderr));
    let all: Vec<String> = ended.iter().map(said).collect();
    assert!(ended.iter().all(|output| output.status.success()), "{ranks:?}: {all:#?}");
    let report = |rank| std::fs::read(folder.path().join(format!("stats-{rank}.json"))).expect("statistics");
    (0..ranks.len()).map(|rank| serde_json::from_slice(&report(rank)).expect("JSON")).collect()
}

#[test]
fn every_transport_and_port_reduces_right_with_losses_and_without() {
    let Some(folder) = built() else { return };
    let ports: [(&str, [&[&str]; 2]); 3] = [
        ("shm", [&["--port", "shm"], &["--port", "shm"]]),
        ("udp", [&["--port", "udp"], &["--port", "udp"]]),
        ("own", [&["--port", "udp", "--address", "127.0.0.1"], &["--port", "udp", "--address", "127.0.0.2"]]),
    ];
    for transport in ["irn", "auto", "roce"] {
        for (port, ends) in ports {
            for impair in [None, Some("loss 1%")] {
                let ranks = ends.map(|end| {
                    let impair = impair.iter().flat_map(|impair| ["--impair", impair]);
                    [end, &["--transport", transport]].concat().into_iter().chain(impair).collect::<Vec<_>>()
                });
                let reports = reduce(&folder, "1M", &ranks);
                for report in &reports {
                    // Three iterations of half of it twice.
                    assert!(number(report, "counters", "sent_bytes") >= 3 << 20, "{transport} {port} {impair:?}");
                    // A port may lose what it is asked to lose, and nothing else; the last acknowledgements are
                    // repeated to processes that may have ended.
                    let lost = number(report, "port", "tx_dropped") + number(report, "port", "rx_dropped");
                    let absent = number(report, "host", "tx_absent");
                    assert_eq!(lost, absent, "{transport} {port} {impair:?}: {report}");
                    assert!(absent <= 8, "two for each queue pair: {report}");
                }
                let again = reports.iter().map(|report| number(report, "counters", "retransmitted_pkts")).sum::<u64>();
                assert!(impair.is_none() || again > 0, "{transport} {port} {impair:?}: nothing was lost");
            }
        }
    }
}

/// Returns a counter of a report.
fn number(report: &serde_json::Value, part: &str, name: &str) -> u64 {
    report["devices"][0][part][name].as_u64().unwrap_or_else(|| panic!("{part}.{name}: {report}"))
}

/// Two processes whose payloads stay in place until the other has copied them.
#[test]
fn payloads_left_in_place_are_reduced_right() {
    let Some(folder) = built() else { return };
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(scope.trim(), "" | "0") {
        return skipped("Yama lets no process read another's memory: kernel.yama.ptrace_scope");
    }
    for transport in ["irn", "auto", "roce"] {
        let ranks = [&["--port", "shm"][..], &["--transport", transport]].concat();
        for report in reduce_with("on", &folder, "4M", &[ranks.clone(), ranks]) {
            assert!(number(&report, "host", "tx_by_reference") > 0, "{transport}: {report}");
            assert_eq!(number(&report, "host", "rx_unreadable"), 0, "{transport}");
        }
    }
}

#[test]
fn a_ring_of_three_reduces_right() {
    if let Some(folder) = built() {
        reduce(&folder, "768K", &[vec![], vec!["--transport", "roce"], vec!["--impair", "loss 1%"]]);
    }
}
