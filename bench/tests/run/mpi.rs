//! Open MPI and MPICH over UCX and libfabric, in C and in Python; and UCX by itself with connections by rdma_cm.
//!
//! Debian's MPICH is built for UCX alone, PyPI's for both. `IRNIC_APPLICATIONS=long` adds the long form of mpi4py's
//! tests.

#[path = "../../../verbs/tests/applications/table.rs"]
mod table;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::wheels::{wheel, wheel_for_python};
use crate::support::{Folder, irnic, needs, text, with_sessions};
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
        crate::support::skipped("mpirun is another MPI's");
        return;
    }
    let folder = Folder::new();
    folder.write("ring.c", RING);
    let built = Command::new("mpicc").args(["-o", "ring", "ring.c"]).current_dir(folder.path()).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let of_irnic = irnic(&folder);
    let mut command = Command::new("mpirun");
    with_sessions(&mut command, &folder);
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
/// Neighbours and all-to-all, in Python.
const EXCHANGE: &str = include_str!("mpi/exchange.py");
/// Two agents of NIXL, in Python.
const AGENTS: &str = include_str!("../../applications/agents.py");
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
        "MPICH of PyPI over libfabric",
        "=5.0.2",
        "MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER='verbs;ofi_rxm' MPIR_CVAR_NOLOCAL=1 mpirun -n {2,4}",
        LOOPS_CHECKED,
    ),
    row(
        "MPICH of PyPI over UCX",
        "=5.0.2",
        "MPIR_CVAR_CH4_NETMOD=ucx UCX_TLS=rc_v,self MPIR_CVAR_NOLOCAL=1 mpirun -n {2,4}",
        LOOPS_CHECKED,
    ),
    row(
        "mpi4py on each of these",
        "=4.1.2",
        "mpirun -n {2,4} python3 exchange.py",
        "`Sendrecv`, `Alltoall` and `alltoall` of objects, 1 B to 1 MB, every byte; each NIC moved its rank's bytes",
    ),
    row(
        "Intel MPI Benchmarks of their repository, on Open MPI over UCX",
        "=2021.11",
        "mpirun -n {2,4} IMB-MPI1 {PingPong,Sendrecv,Exchange,Bcast,Allreduce,Alltoall}",
        "data of every message of 1 B to 1 MB, by the program (`-DCHECK`); each NIC moved its rank's bytes",
    ),
    Row {
        application: "pyverbs of rdma-core's repository",
        package: "=65.0",
        command: "run_tests.py",
        checked: "132 cases of the suite pass at least; the one that fails needs `rdma_resolve_addrinfo`",
        network: "shm, 0 %",
    },
    row(
        "NIXL of PyPI over its UCX",
        "=1.5.1",
        "UCX_TLS=rc_v,self python3 agents.py",
        "WRITE with a notification, and READ, 1 B to 1 MiB, every byte; both NICs moved their bytes",
    ),
    row(
        "UCX, `ucp_listener`",
        "libucx0",
        "UCX_SOCKADDR_TLS_PRIORITY=rdmacm UCX_TLS={rc_v,ud_v},self",
        "50 tagged messages of 1 B to 1 MB come back as they were; both NICs moved their bytes",
    ),
];

/// Names the folder of Intel MPI Benchmarks' `IMB-MPI1`, built by Debian's Open MPI with `CPPFLAGS=-DCHECK`.
const IMB: &str = "TESTS_IMB";
const IMB_BENCHMARKS: [&str; 6] = ["PingPong", "Sendrecv", "Exchange", "Bcast", "Allreduce", "Alltoall"];

/// Names the folder of rdma-core's sources, whose `build` has pyverbs for Debian's Python.
const RDMA_CORE: &str = "TESTS_RDMA_CORE";
const PYTHON: &str = "/usr/bin/python3";
/// The case of its suite that irnic fails: rdma_resolve_addrinfo, of rdma-core 60, is not there.
const UNRESOLVED: &str = "tests.test_rdmacm.CMTestCase.test_rdmacm_async_resolve_addrinfo";

/// Wheels. MPICH's has UCX, and a libfabric with its verbs provider.
const MPICH: &str = "mpich==5.0.2";
const MPI4PY: &str = "mpi4py==4.1.2";
/// NIXL's bring their UCX and libibverbs.
const NIXL: &str = "nixl-cu12==1.5.1";
const NUMPY: &str = "numpy==2.3.5";

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
        crate::support::skipped("there are no network namespaces");
        return None;
    }
    let of_irnic = irnic(folder);
    let mut command = Command::new("unshare");
    // Ranks that hang spin: their limit is time of a processor, of which a crowded machine gives each job little.
    let limited = format!("ulimit -t 120 && {INTERFACES} && {script}");
    command.args(["--map-root-user", "--net", "timeout", "1800", "sh", "-c", &limited]);
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
    assert!(output.status.success(), "{script}: {}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    std::fs::write(folder.path().join("output"), &output.stdout).expect("room for the output");
    let reports = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let sent = reports.filter(|path| path.extension().is_some_and(|e| e == "json")).map(|path| {
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).expect("JSON");
        report["devices"][0]["counters"]["sent_bytes"].as_u64().expect("a counter")
    });
    Some(sent.collect())
}

/// An MPI over something.
#[derive(Clone)]
struct Mpi {
    /// What compiles programs for it.
    compiler: Vec<String>,
    /// Starts ranks, with its environment.
    mpirun: String,
    /// What mpi4py calls its binary interface, and the file that has it.
    interface: (&'static str, PathBuf),
}

/// An MPI of Debian. If it is not there, the test is skipped.
fn debian(compiler: &str, mpirun: &str, interface: &'static str, library: &str) -> Option<Mpi> {
    needs(&[compiler, mpirun.split(' ').next().expect("a program"), "unshare", "ip"])?;
    let library = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(library);
    Some(Mpi { compiler: vec![compiler.into()], mpirun: mpirun.into(), interface: (interface, library) })
}

fn open_mpi_over_ucx() -> Option<Mpi> {
    let mpirun = "mpirun.openmpi --oversubscribe --mca pml ucx -x UCX_TLS=rc_v,self";
    debian("mpicc.openmpi", mpirun, "openmpi", "libmpi.so.40")
}

fn open_mpi_over_libfabric() -> Option<Mpi> {
    let provider = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'";
    debian("mpicc.openmpi", &format!("mpirun.openmpi --oversubscribe {provider}"), "openmpi", "libmpi.so.40")
}

fn mpich_over_ucx() -> Option<Mpi> {
    debian("mpicc.mpich", "mpirun.mpich -genv UCX_TLS rc_v,self", "mpich", "libmpich.so.12")
}

fn mpich_of_pypi_over_libfabric() -> Option<Mpi> {
    mpich_of_pypi("MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER='verbs;ofi_rxm'")
}

fn mpich_of_pypi_over_ucx() -> Option<Mpi> {
    mpich_of_pypi("MPIR_CVAR_CH4_NETMOD=ucx UCX_TLS=rc_v,self")
}

/// PyPI's MPICH. It brings UCX and libfabric, whose modules take the distribution's librdmacm and libibverbs.
fn mpich_of_pypi(settings: &str) -> Option<Mpi> {
    needs(&["cc", "python3", "unshare", "ip"])?;
    let home = wheel(MPICH, |line| line.contains("/libfabric/libverbs-fi.so"))?;
    let data = home.join("mpich-5.0.2.data/data");
    for program in std::fs::read_dir(data.join("bin")).expect("programs") {
        std::fs::set_permissions(program.unwrap().path(), PermissionsExt::from_mode(0o755)).expect("permissions");
    }
    let data = data.to_str().expect("a path in UTF-8");
    let compiler = [
        "cc",
        &format!("-I{data}/include"),
        &format!("-L{data}/lib"),
        &format!("-Wl,-rpath,{data}/lib"),
        "-Wl,--allow-shlib-undefined",
    ];
    // Without NOLOCAL, ranks of a host share memory and leave the network alone.
    Some(Mpi {
        compiler: compiler.map(str::to_owned).to_vec(),
        mpirun: format!("MPIR_CVAR_NOLOCAL=1 {settings} '{data}/bin/mpirun'"),
        interface: ("mpich", Path::new(data).join("lib/libmpi.so.12")),
    })
}

/// Runs a program with so many ranks. They have to say that they are right, and each to have sent so many bytes through
/// its NIC. `false` if there are no namespaces.
fn ranks_are_right(folder: &Folder, mpi: &Mpi, ranks: usize, program: &str, impair: &str, bytes: u64) -> bool {
    let script = format!("{} -n {ranks} $IRNIC run --sysfs -- {program}", mpi.mpirun);
    let Some(sent) = sent_bytes(folder, &script, impair) else { return false };
    let output = std::fs::read_to_string(folder.path().join("output")).expect("the output");
    assert!(output.contains(&format!("{ranks} ranks are right\n")), "{output}");
    assert!(sent.len() == ranks && sent.iter().all(|sent| *sent >= bytes), "{sent:?}");
    true
}

/// Builds the loops and runs them with two ranks, and with four and loss.
fn loops(mpi: &Mpi) {
    for (ranks, impair) in [(2, ""), (4, "loss 1%")] {
        let folder = Folder::new();
        folder.write("loops.c", LOOPS);
        let mut command = Command::new(&mpi.compiler[0]);
        command.args(["-O2", "-o", "loops", "loops.c"]).args(&mpi.compiler[1..]);
        command.args((mpi.compiler.len() > 1).then_some("-lmpi"));
        let built = command.current_dir(folder.path()).output().expect("the compiler starts");
        assert!(built.status.success(), "{}", text(&built.stderr));
        // Each rank sends more than 5 MiB to its peer alone.
        if !ranks_are_right(&folder, mpi, ranks, "./loops", impair, 5 << 20) {
            return;
        }
    }
}

/// Runs the exchange in Python with two ranks; in the long form with four and loss as well.
fn exchanges(mpi: &Mpi) {
    let Some(()) = needs(&["python3"]) else { return };
    let Some(home) = wheel_for_python(MPI4PY, |line| line.contains("mpi4py/MPI.mpich.")) else { return };
    let long = std::env::var("IRNIC_APPLICATIONS").is_ok_and(|form| ["all", "long"].contains(&form.as_str()));
    let (interface, library) = &mpi.interface;
    // Debian has a name of its own for MPICH's library.
    let name = if *interface == "mpich" { "libmpi.so.12" } else { "libmpi.so.40" };
    for (ranks, impair) in [(2, ""), (4, "loss 1%")].into_iter().take(1 + usize::from(long)) {
        let folder = Folder::new();
        folder.write("exchange.py", EXCHANGE);
        let libraries = if library.ends_with(name) {
            library.parent().expect("a folder").to_owned()
        } else {
            symlink(library, folder.path().join(name)).expect("a link");
            folder.path().to_owned()
        };
        let settings = [
            format!("LD_LIBRARY_PATH='{}'", libraries.display()),
            format!("PYTHONPATH='{}' MPI4PY_MPIABI={interface}", home.display()),
        ];
        let mpi = Mpi { mpirun: format!("{} {}", settings.join(" "), mpi.mpirun), ..mpi.clone() };
        // Two messages of 1 MiB of each of three kinds, to one peer at least.
        if !ranks_are_right(&folder, &mpi, ranks, "python3 exchange.py", impair, 6 << 20) {
            return;
        }
    }
}

#[test]
fn open_mpi_over_ucx_passes_messages() {
    if let Some(mpi) = open_mpi_over_ucx() {
        loops(&mpi);
    }
}

#[test]
fn open_mpi_over_libfabric_passes_messages() {
    if let Some(mpi) = open_mpi_over_libfabric() {
        loops(&mpi);
    }
}

#[test]
fn mpich_over_ucx_passes_messages() {
    if let Some(mpi) = mpich_over_ucx() {
        loops(&mpi);
    }
}

#[test]
fn mpich_of_pypi_over_libfabric_passes_messages() {
    if let Some(mpi) = mpich_of_pypi_over_libfabric() {
        loops(&mpi);
    }
}

#[test]
fn mpich_of_pypi_over_ucx_passes_messages() {
    if let Some(mpi) = mpich_of_pypi_over_ucx() {
        loops(&mpi);
    }
}

#[test]
fn mpi4py_passes_messages() {
    let all = [
        open_mpi_over_ucx,
        open_mpi_over_libfabric,
        mpich_over_ucx,
        mpich_of_pypi_over_libfabric,
        mpich_of_pypi_over_ucx,
    ];
    all.into_iter().filter_map(|mpi| mpi()).for_each(|mpi| exchanges(&mpi));
}

/// The folder that a variable names, in the long form, with what was built of a project's own sources. Otherwise the
/// test is skipped.
fn long_form_of(what: &str, folder: &str) -> Option<PathBuf> {
    if std::env::var_os("IRNIC_APPLICATIONS").is_none() {
        irnic_testkit::long_form(what);
        return None;
    }
    let named = std::env::var_os(folder).map(PathBuf::from);
    if named.is_none() {
        crate::support::skipped(&format!("{what}: {folder} names no folder"));
    }
    named
}

#[test]
fn intels_benchmarks_find_no_defects() {
    let Some(programs) = long_form_of("Intel MPI Benchmarks", IMB) else { return };
    let Some(mpi) = open_mpi_over_ucx() else { return };
    for (ranks, impair) in [(2, ""), (4, "loss 1%")] {
        let folder = Folder::new();
        let program = programs.join("IMB-MPI1");
        let benchmarks = IMB_BENCHMARKS.join(" ");
        let options = format!("-npmin {ranks} -iter 20 -iter_policy off -msglog 0:20 {benchmarks}");
        let script = format!("{} -n {ranks} $IRNIC run --sysfs -- '{}' {options}", mpi.mpirun, program.display());
        let Some(sent) = sent_bytes(&folder, &script, impair) else { return };
        let output = std::fs::read_to_string(folder.path().join("output")).expect("the output");
        // Tables of bytes, repetitions, times, and the deviation from the expected data at last.
        for benchmark in IMB_BENCHMARKS {
            let (_, table) = output.split_once(&format!("# Benchmarking {benchmark} ")).expect("its table");
            let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
            let rows = rows.skip_while(|row| row.first() != Some(&"0")).take_while(|row| !row.is_empty());
            let rows: Vec<_> = rows.collect();
            assert!(rows.len() >= 20 && rows.iter().all(|row| row.last() == Some(&"0.00")), "{benchmark}: {output}");
        }
        assert!(sent.len() == ranks && sent.iter().all(|bytes| *bytes >= 5 << 20), "{sent:?}");
    }
}

#[test]
fn the_newest_suite_of_rdma_core_passes() {
    let Some(sources) = long_form_of("rdma-core's newest suite", RDMA_CORE) else { return };
    let Some(()) = needs(&[PYTHON, "unshare", "ip"]) else { return };
    let folder = Folder::new();
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../verbs/tests/applications/run_suite.py");
    let script = format!(
        "mkdir work && PYTHONPATH='{0}/build/python' $IRNIC run --sysfs -- {PYTHON} '{1}' '{0}/tests' work",
        sources.display(),
        suite.display()
    );
    if sent_bytes(&folder, &script, "").is_none() {
        return;
    }
    let output = std::fs::read_to_string(folder.path().join("output")).expect("the output");
    // The host's few huge pages may be another process's, such as UCX's, by the time that the case asks for one.
    let cases = output.lines().filter(|line| line.starts_with("CASE\t") && !line.contains("test_huge_page_traffic"));
    let cases: Vec<Vec<&str>> = cases.map(|line| line.split('\t').collect()).collect();
    let of = |outcome: &str| cases.iter().filter(|case| case[2] == outcome).map(|case| case[1]).collect::<Vec<_>>();
    assert_eq!(of("fail"), [UNRESOLVED], "{output}");
    assert!(of("pass").len() >= 132, "{output}");
}

#[test]
fn agents_of_nixl_write_and_read() {
    if std::env::var_os("IRNIC_APPLICATIONS").is_none() {
        return irnic_testkit::long_form("NIXL");
    }
    let Some(()) = needs(&["python3", "unshare", "ip"]) else { return };
    let Some(nixl) = wheel_for_python(NIXL, |line| line.contains("nixl_cu12.libs/libucp-")) else { return };
    let Some(numpy) = wheel_for_python(NUMPY, |line| line.contains("numpy/__init__.py")) else { return };
    for impair in ["", "loss 1%"] {
        let folder = Folder::new();
        folder.write("agents.py", AGENTS);
        let script = format!(
            "export UCX_TLS=rc_v,self PYTHONPATH='{}:{}' && \
             {{ $IRNIC run --sysfs -- python3 agents.py target >target.txt & }} && \
             $IRNIC run --sysfs -- python3 agents.py initiator && wait $!",
            nixl.display(),
            numpy.display()
        );
        let Some(sent) = sent_bytes(&folder, &script, impair) else { return };
        let said =
            ["output", "target.txt"].map(|name| std::fs::read_to_string(folder.path().join(name)).expect("a file"));
        assert!(said.iter().all(|text| text.contains(" is right\n")), "{said:?}");
        // All sizes once in each direction.
        assert!(sent.len() == 2 && sent.iter().all(|bytes| *bytes >= 1 << 20), "{sent:?}");
    }
}

#[test]
fn ucx_connects_by_rdma_cm() {
    let Some(()) = needs(&["cc", "unshare", "ip"]) else { return };
    if !std::path::Path::new("/usr/include/ucp/api/ucp.h").exists() {
        crate::support::skipped("libucx-dev is not installed");
        return;
    }
    // In the long form each with loss and without.
    let long = [("rc_v", ""), ("ud_v", "loss 1%")];
    let more = if std::env::var_os("IRNIC_APPLICATIONS").is_some() { &long[..] } else { &[] };
    for &(transport, impair) in [("rc_v", "loss 1%"), ("ud_v", "")].iter().chain(more) {
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
    table::compare("bench/tests/run/mpi.rs", ROWS).unwrap();
}
