//! Applications in a lab of four hosts that loses one frame in a hundred, through several switches, with every byte
//! checked: the traffic of NCCL's all-reduce, MPI's all-to-all, Mooncake's Transfer Engine and store, NIXL, gloo, UCX,
//! libfabric, and a disk over iSER whose blocks have checksums. They run as `bench/lab-applications.sh` runs them,
//! which measures docs/lab-applications.md. `IRNIC_APPLICATIONS=long` adds other networks, one of which has links that
//! fail for a while, and transports.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::support::wheels::{wheel, wheel_for_python};
use crate::support::{Folder, irnic, long_form, needs, skipped, text};

/// As the script has it.
const MOONCAKE: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";
/// What a job moves one way.
const BYTES: u64 = 3 << 20;

/// A line of the script's CSV, by column.
type Row = HashMap<String, String>;

fn figure(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column}: {e}: {row:?}"))
}

/// What of an application is run: in the short form, if anything is, and in the long one.
#[derive(Copy, Clone)]
struct Forms {
    short: &'static str,
    long: &'static str,
}

/// All networks and transports.
const MEASURED: Forms = Forms { short: "(roce|irn)[|]1 %", long: "." };
/// Those on which an application has to work, which is not measured.
const LIBRARY: Forms = Forms { short: "", long: "(roce|irn)[|](no loss|1 %|link flap)" };

fn is_long() -> bool {
    std::env::var("IRNIC_APPLICATIONS").is_ok_and(|form| ["all", "long"].contains(&form.as_str()))
}

/// Runs an application on each network that the form has. Returns the runs.
fn rows(application: &str, forms: Forms) -> Vec<Row> {
    let only = if is_long() { forms.long } else { forms.short };
    let folder = Folder::new();
    let of_irnic = irnic(&folder);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let mut script = Command::new(repository.join("bench/lab-applications.sh"));
    for (key, value) in of_irnic.get_envs() {
        match value {
            Some(value) => script.env(key, value),
            None => script.env_remove(key),
        };
    }
    script.env("IRNIC", of_irnic.get_program()).env("BYTES", BYTES.to_string());
    script.env("WHEELS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels"));
    script.args(["--rounds", "1", "--only", &format!("^{application}[|]({only})"), "--csv"]);
    let csv = folder.path().join("runs.csv");
    let output = script.arg(&csv).output().expect("bash starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let csv = std::fs::read_to_string(csv).expect("the runs");
    let mut lines = csv.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()));
    let names: Vec<String> = lines.next().expect("a head").collect();
    lines.map(|cells| names.iter().cloned().zip(cells).collect()).collect()
}

/// Runs an application, whose ranks and clients check what they receive. So many times its bytes have to have crossed
/// the network, and that has to have lost, dropped or paused as its name says.
fn runs_through(application: &str, times: u64, forms: Forms) {
    if forms.short.is_empty() && !is_long() {
        return long_form(application);
    }
    let rows = rows(application, forms);
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!(figure(row, "late_frames"), 0, "{row:?}");
        // Of 1,024 bytes each.
        assert!(figure(row, "frames") > times * BYTES / 1_024, "{row:?}");
        assert!(figure(row, "job_ns") > 0, "{row:?}");
        let (lost, dropped, pauses) = (figure(row, "lost"), figure(row, "dropped"), figure(row, "pauses"));
        match (row["network"].as_str(), row["transport"].as_str()) {
            ("no loss", _) => assert_eq!(lost, 0, "{row:?}"),
            ("short buffers", "roce with PFC") => assert!(dropped == 0 && pauses > 0, "{row:?}"),
            ("short buffers", "irn with dcqcn") => assert!(figure(row, "marked") > 0, "{row:?}"),
            ("short buffers", _) => assert!(dropped > 0, "{row:?}"),
            ("1 % loss", _) => {
                assert!(lost > times * BYTES / 1_024 / 400, "a quarter of what is to be expected: {row:?}")
            }
            // What is on the link is lost, what waits for it is dropped.
            ("link flap", _) => assert!(lost + dropped > 0, "{row:?}"),
            _ => assert!(lost > 0, "{row:?}"),
        }
    }
}

#[test]
fn an_all_reduce_runs_through() {
    if needs(&["gcc"]).is_some() && Path::new("/usr/include/infiniband/verbs.h").exists() {
        // Each of four ranks sends one and a half times as much, twice, to the other switch.
        let short = "(roce|irn)[|](1 %|link flap)|roce with PFC[|]short buffers";
        runs_through("allreduce", 4, Forms { short, ..MEASURED });
    } else {
        skipped("libibverbs-dev is not installed");
    }
}

#[test]
fn mpi_alltoall_runs_through() {
    if needs(&["mpicc.openmpi", "mpirun.openmpi"]).is_some() {
        // Each of four ranks sends as much; half of it goes to the other switch.
        runs_through("alltoall", 4, MEASURED);
    }
}

/// Whether Mooncake's wheel is there, and a Python for it.
fn has_mooncake() -> bool {
    let Some(()) = needs(&["/usr/bin/python3"]) else { return false };
    let version = Command::new("/usr/bin/python3").arg("--version").output().expect("python3 starts");
    if !text(&version.stdout).starts_with("Python 3.11.") {
        skipped(&format!("{MOONCAKE} is for Python 3.11"));
        return false;
    }
    wheel(MOONCAKE, |line| line.contains("mooncake/engine.so")).is_some()
}

#[test]
fn mooncakes_engine_runs_through() {
    if has_mooncake() {
        // There and back.
        runs_through("cache", 2, MEASURED);
    }
}

#[test]
fn mooncakes_store_runs_through() {
    if has_mooncake() {
        runs_through("store", 2, LIBRARY);
    }
}

#[test]
fn nixl_runs_through() {
    if !is_long() {
        return long_form("NIXL");
    }
    let Some(()) = needs(&["python3"]) else { return };
    let nixl = wheel_for_python("nixl-cu12==1.5.1", |line| line.contains("nixl_cu12.libs/libucp-"));
    if nixl.and_then(|_| wheel_for_python("numpy==2.3.5", |line| line.contains("numpy/__init__.py"))).is_some() {
        runs_through("nixl", 2, LIBRARY);
    }
}

#[test]
fn gloo_runs_through() {
    if !is_long() {
        return long_form("gloo");
    }
    if std::env::var_os("TESTS_GLOO").is_none() {
        return skipped("gloo: TESTS_GLOO names no folder");
    }
    // As NCCL's.
    runs_through("gloo", 4, LIBRARY);
}

#[test]
fn ucx_runs_through() {
    if needs(&["ucx_perftest"]).is_some() {
        runs_through("ucx", 1, Forms { short: "irn[|](1 %|link flap)", ..LIBRARY });
    }
}

#[test]
fn libfabric_runs_through() {
    let Some(()) = needs(&["fi_pingpong", "unshare", "ip"]) else { return };
    // There and back.
    runs_through("libfabric", 2, LIBRARY);
}

#[test]
fn a_disk_over_iser_runs_through() {
    let Some(()) = needs(&["gcc", "/usr/sbin/tgtd", "iscsi-inq"]) else { return };
    if !Path::new("/usr/include/iscsi/iscsi.h").exists() {
        skipped("libiscsi-dev is not installed");
        return;
    }
    runs_through("disk", 2, MEASURED);
}
