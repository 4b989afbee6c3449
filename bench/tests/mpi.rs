//! Open MPI over UCX, as the README has it.

mod support;

use std::process::Command;

use support::{Folder, irnic, needs, text};

/// 1 MiB around a ring, four times, every page checked, and a sum over all.
const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *mine = malloc(1 << 20), *theirs = malloc(1 << 20);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int round = 0; round < 4; round++) {
        for (int at = 0; at < 1 << 20; at += 4096)
            mine[at] = round + rank;
        MPI_Sendrecv(mine, 1 << 20, MPI_CHAR, next, 0, theirs, 1 << 20, MPI_CHAR, before, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int at = 0; at < 1 << 20; at += 4096)
            if (theirs[at] != (char)(round + before))
                MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, sum %d\n", size, sum);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn open_mpi_runs_over_ucx() {
    let Some(()) = needs(&["mpicc", "mpirun"]) else { return };
    let version = Command::new("mpirun").arg("--version").output().expect("mpirun starts");
    if !text(&version.stdout).contains("Open MPI") {
        support::skipped("mpirun is another MPI's");
        return;
    }
    let folder = Folder::new();
    folder.write("ring.c", RING);
    let built = Command::new("mpicc").args(["-o", "ring", "ring.c"]).current_dir(folder.path()).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let of_irnic = irnic(&folder);
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", "2", "--mca", "pml", "ucx", "-x", "UCX_TLS=rc_v,self"]);
    command.arg(of_irnic.get_program()).args(["run", "--sysfs", "--stats=stats-%p.json", "--", "./ring"]);
    // It refuses to be run by root, as in containers, unless told twice.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    // UCX gives up on a peer that says nothing for 30 s, which a crowded machine may make of a rank that spins.
    command.envs([("UCX_UD_VERBS_TIMEOUT", "300s"), ("UCX_KEEPALIVE_INTERVAL", "inf")]);
    let output = command.current_dir(folder.path()).output().expect("mpirun starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("2 ranks, sum 1\n"), "{}", text(&output.stdout));
    // And not by other means: each rank's 4 MiB went through its NIC.
    let sent: Vec<u64> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).expect("JSON");
            report["devices"][0]["counters"]["sent_bytes"].as_u64().expect("a counter")
        })
        .collect();
    assert!(sent.len() == 2 && sent.iter().all(|bytes| *bytes >= 4 << 20), "{sent:?}");
}
