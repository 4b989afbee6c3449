//! Applications in a lab that loses one frame in a hundred, through several switches, with every byte checked: the
//! traffic of NCCL's all-reduce, MPI's all-to-all, Mooncake's Transfer Engine, and a disk over iSER whose blocks have
//! checksums. They run as `bench/lab-applications.sh` runs them, which measures docs/lab-applications.md.
//! `IRNIC_APPLICATIONS=long` adds all other networks and transports.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::support::wheels::wheel;
use crate::support::{Folder, irnic, needs, skipped, text};

/// As the script has it.
const MOONCAKE: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";
/// What a job moves one way.
const BYTES: u64 = 3 << 20;

/// A line of the script's CSV, by column.
type Row = HashMap<String, String>;

fn figure(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column}: {e}: {row:?}"))
}

/// Runs an application on each network that the form has. Returns the runs.
fn rows(application: &str) -> Vec<Row> {
    let long = std::env::var("IRNIC_APPLICATIONS").is_ok_and(|form| ["all", "long"].contains(&form.as_str()));
    let with_pfc = if application == "allreduce" { "|roce with PFC[|]short buffers" } else { "" };
    let only = if long { ".".to_owned() } else { format!("((roce|irn)[|]1 %{with_pfc})") };
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
    script.args(["--rounds", "1", "--only", &format!("^{application}[|].*{only}"), "--csv"]);
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
fn runs_through(application: &str, times: u64) {
    let rows = rows(application);
    assert!(rows.len() >= 2, "{rows:?}");
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
            _ => assert!(lost > 0, "{row:?}"),
        }
    }
}

#[test]
fn an_all_reduce_runs_through() {
    if needs(&["gcc"]).is_some() && Path::new("/usr/include/infiniband/verbs.h").exists() {
        // Each of four ranks sends one and a half times as much, twice, to the other switch.
        runs_through("allreduce", 4);
    } else {
        skipped("libibverbs-dev is not installed");
    }
}

#[test]
fn mpi_alltoall_runs_through() {
    if needs(&["mpicc.openmpi", "mpirun.openmpi"]).is_some() {
        // Each of four ranks sends as much; half of it goes to the other switch.
        runs_through("alltoall", 4);
    }
}

#[test]
fn mooncake_runs_through() {
    let Some(()) = needs(&["/usr/bin/python3"]) else { return };
    let version = Command::new("/usr/bin/python3").arg("--version").output().expect("python3 starts");
    if !text(&version.stdout).starts_with("Python 3.11.") {
        skipped(&format!("{MOONCAKE} is for Python 3.11"));
        return;
    }
    if wheel(MOONCAKE, |line| line.contains("mooncake/engine.so")).is_some() {
        // There and back.
        runs_through("cache", 2);
    }
}

#[test]
fn a_disk_over_iser_runs_through() {
    let Some(()) = needs(&["gcc", "/usr/sbin/tgtd", "iscsi-inq"]) else { return };
    if !Path::new("/usr/include/iscsi/iscsi.h").exists() {
        skipped("libiscsi-dev is not installed");
        return;
    }
    runs_through("disk", 2);
}
