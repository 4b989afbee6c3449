//! Open MPI and MPICH over UCX and libfabric, and UCX by itself with connections by rdma_cm.

mod support;
#[path = "../../verbs/tests/applications/table.rs"]
mod table;

use std::process::Command;

use support::{Folder, irnic, needs, text};
use table::Row;

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

/// Latency, bandwidth and all-to-all loops, whose data are checked.
const LOOPS: &str = include_str!("mpi/loops.c");
/// A UCP server and client on a listener.
const UCP: &str = include_str!("mpi/ucp.c");
/// A loopback interface, and one that libfabric does not pass over; its address is from the block for documentation.
const INTERFACES: &str = "ip link set lo up && ip link add veth0 type veth peer name veth1 && \
                          ip address add 192.0.2.1/24 dev veth0 && ip link set veth0 up && ip link set veth1 up";

const ROWS: &[Row] = &[
    row("Open MPI over UCX", "openmpi-bin", "mpirun --mca pml ucx -x UCX_TLS=rc_v,self -n {2,4}", LOOPS_CHECKED),
    row(
        "Open MPI over libfabric",
        "openmpi-bin",
        "mpirun --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' -n {2,4}",
        LOOPS_CHECKED,
    ),
    row("MPICH over UCX", "mpich", "mpirun -genv UCX_TLS rc_v,self -n {2,4}", LOOPS_CHECKED),
    row(
        "UCX, `ucp_listener`",
        "libucx0",
        "UCX_SOCKADDR_TLS_PRIORITY=rdmacm UCX_TLS={rc_v,ud_v},self",
        "50 tagged messages of 1 B to 1 MB come back as they were; both NICs moved their bytes",
    ),
];

const LOOPS_CHECKED: &str =
    "latency, bandwidth and all-to-all, 1 B to 1 MB, every byte of every message; each NIC moved its rank's bytes";

const fn row(application: &'static str, package: &'static str, command: &'static str, checked: &'static str) -> Row {
    Row { application, package, command, checked, network: "shm, 0 and 1 %" }
}

/// Runs a script in a network namespace of its own, with `$IRNIC` the program, and returns the bytes that each of its
/// processes has sent. `None` if there are no namespaces.
fn sent_bytes(folder: &Folder, script: &str, impair: &str) -> Option<Vec<u64>> {
    let has = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !has.is_ok_and(|status| status.success()) {
        support::skipped("there are no network namespaces");
        return None;
    }
    let of_irnic = irnic(folder);
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "timeout", "120", "sh", "-c", &format!("{INTERFACES} && {script}")]);
    for (key, value) in of_irnic.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command.env("IRNIC", of_irnic.get_program()).env("IRNIC_IMPAIR", impair).env("IRNIC_ADDRESSES", "192.0.2.1");
    command.env("IRNIC_STATS", folder.path().join("stats-%p.json")).current_dir(folder.path());
    // It refuses to be run by root, as in containers, unless told twice.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    // UCX gives up on a peer that says nothing for 30 s, which a crowded machine may make of a rank that spins.
    command.envs([("UCX_UD_VERBS_TIMEOUT", "300s"), ("UCX_KEEPALIVE_INTERVAL", "inf")]);
    let output = command.output().expect("unshare starts");
    assert!(output.status.success(), "{script}: {}{}", text(&output.stdout), text(&output.stderr));
    std::fs::write(folder.path().join("output"), &output.stdout).expect("room for the output");
    let reports = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let sent = reports.filter(|path| path.extension().is_some_and(|e| e == "json")).map(|path| {
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).expect("JSON");
        report["devices"][0]["counters"]["sent_bytes"].as_u64().expect("a counter")
    });
    Some(sent.collect())
}

/// Builds the loops with `compiler` and runs them with two ranks, and with four and loss.
fn loops(compiler: &str, mpirun: &str) {
    let Some(()) = needs(&[compiler, mpirun.split(' ').next().expect("a program"), "unshare", "ip"]) else { return };
    for (ranks, impair) in [(2, ""), (4, "loss 1%")] {
        let folder = Folder::new();
        folder.write("loops.c", LOOPS);
        let built = Command::new(compiler).args(["-O2", "-o", "loops", "loops.c"]).current_dir(folder.path()).output();
        let built = built.expect("the compiler starts");
        assert!(built.status.success(), "{}", text(&built.stderr));
        let Some(sent) = sent_bytes(&folder, &format!("{mpirun} -n {ranks} $IRNIC run --sysfs -- ./loops"), impair)
        else {
            return;
        };
        let output = std::fs::read_to_string(folder.path().join("output")).expect("the output");
        assert!(output.contains(&format!("{ranks} ranks are right\n")), "{output}");
        // And not by other means: each rank sends more than 5 MiB to its peer alone.
        assert!(sent.len() == ranks && sent.iter().all(|bytes| *bytes >= 5 << 20), "{sent:?}");
    }
}

#[test]
fn open_mpi_passes_messages_over_ucx() {
    loops("mpicc.openmpi", "mpirun.openmpi --oversubscribe --mca pml ucx -x UCX_TLS=rc_v,self");
}

#[test]
fn open_mpi_passes_messages_over_libfabric() {
    let provider = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'";
    loops("mpicc.openmpi", &format!("mpirun.openmpi --oversubscribe {provider}"));
}

#[test]
fn mpich_passes_messages_over_ucx() {
    loops("mpicc.mpich", "mpirun.mpich -genv UCX_TLS rc_v,self");
}

#[test]
fn ucx_connects_by_rdma_cm() {
    let Some(()) = needs(&["cc", "unshare", "ip"]) else { return };
    if !std::path::Path::new("/usr/include/ucp/api/ucp.h").exists() {
        support::skipped("libucx-dev is not installed");
        return;
    }
    for (transport, impair) in [("rc_v", ""), ("ud_v", ""), ("rc_v", "loss 1%"), ("ud_v", "loss 1%")] {
        let folder = Folder::new();
        folder.write("ucp.c", UCP);
        let built =
            Command::new("cc").args(["-o", "ucp", "ucp.c", "-lucp", "-lucs"]).current_dir(folder.path()).output();
        let built = built.expect("the compiler starts");
        assert!(built.status.success(), "{}", text(&built.stderr));
        let script = format!(
            "export UCX_SOCKADDR_TLS_PRIORITY=rdmacm UCX_TLS={transport},self && \
             {{ $IRNIC run --sysfs -- ./ucp server 7777 >server & }} && \
             until grep -q listening server; do kill -0 $! || exit 1; sleep 0.05; done && \
             $IRNIC run --sysfs -- ./ucp client 192.0.2.1 7777 && wait $!"
        );
        let Some(sent) = sent_bytes(&folder, &script, impair) else { return };
        let said = ["output", "server"].map(|name| std::fs::read_to_string(folder.path().join(name)).expect("a file"));
        assert!(said.iter().all(|text| text.contains("50 messages\n")), "{said:?}");
        // 50 messages of 206 KB on average, less those that are read and not sent.
        assert!(sent.len() == 2 && sent.iter().all(|bytes| *bytes >= 5 << 20), "{sent:?}");
    }
}

#[test]
fn the_table_of_applications_has_what_is_tested() {
    table::compare("bench/tests/mpi.rs", ROWS).unwrap();
}
