//! librspreload: TCP programs that know nothing of RDMA, their sockets made rsockets.
//!
//! Programs that wait for accepted connections by select(), as iperf3 and socat do, get nothing with librspreload 44.0,
//! which tells them of rsockets' own descriptors; rdma-core mended that in 44.12 and 63.0 ("librdmacm: Fix select
//! function"), and iperf3 runs then. What is opened with SOCK_CLOEXEC, as Python does it, stays TCP.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::process::Process;
use crate::sandbox::{Device, Sandbox, all, free_port, installed, trial, wait_for_listener, wait_for_service};
use crate::table::Row;

const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row {
        application: "curl with busybox's httpd, which forks",
        package: "curl",
        command: "LD_PRELOAD=librspreload.so RDMAV_FORK_SAFE=1 curl http://…",
        checked: "each byte of files of 1 B to 5 MB; curl's NIC received them by RDMA WRITEs",
        network: "shm and udp, 0 and 1 %",
    },
    Row {
        application: "NetPIPE",
        package: "netpipe-tcp",
        command: "LD_PRELOAD=librspreload.so NPtcp -i",
        checked: "data (`-i`), 1 B to 256 KB; both NICs received RDMA WRITEs; no TCP socket",
        network: "shm and udp, 0 and 1 %",
    },
];

/// Sizes of the files that curl gets, and whether they are part of the short form.
const FILES: [(u32, bool); 3] = [(1, false), (100_000, true), (5_000_000, false)];

/// All tests of librspreload.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (port, lossy) in [("shm", false), ("udp", true), ("udp", false), ("shm", true)] {
        let device = Device { transport: "irn", impair: if lossy { "loss 1%" } else { "" }, port };
        let place = format!("{port}, {}", if lossy { "1 % loss" } else { "no loss" });
        let plain = (port, lossy) == ("shm", false);
        for (bytes, short) in FILES {
            if all() || short && plain {
                let name = format!("librspreload: curl gets {bytes} bytes from busybox's httpd ({place})");
                let needs = [PRELOAD, "/usr/bin/curl", "/usr/bin/busybox"];
                trials.push(trial(name, &needs, move |sandbox| download(sandbox, device, bytes)));
            }
        }
        if all() || plain {
            let name = format!("librspreload: NPtcp -i ({place})");
            trials.push(trial(name, &[PRELOAD, "/usr/bin/NPtcp"], move |sandbox| exchange(sandbox, device)));
        }
    }
    trials
}

/// A program whose sockets are rsockets, and whose NIC leaves its counters in a file called `statistics`.
fn preloaded(sandbox: &Sandbox, device: Device, program: &str, statistics: &str) -> Result<Command, Failed> {
    let mut command = sandbox.command(installed(program)?, device);
    command.env("LD_PRELOAD", PRELOAD).env("IRNIC_STATS", sandbox.dir.path().join(statistics));
    Ok(command)
}

/// A failure unless the NIC of a process that has ended received so many bytes, by RDMA WRITEs: rsockets send nothing
/// otherwise, and a connection that rdma_cm does not make becomes one of TCP without a word.
fn received(sandbox: &Sandbox, statistics: &str, bytes: u64) -> Result<(), Failed> {
    let text = fs::read_to_string(sandbox.dir.path().join(statistics))?;
    let statistics: Value = serde_json::from_str(&text)?;
    let count = |name: &str| {
        let devices = statistics["devices"].as_array().map_or(&[][..], Vec::as_slice);
        devices.iter().filter_map(|device| device["counters"][name].as_u64()).sum::<u64>()
    };
    if count("rcvd_bytes") < bytes || count("rx_write_requests") == 0 {
        return Err(format!("its NIC has not received {bytes} bytes: {text}").into());
    }
    Ok(())
}

/// Held by who has librspreload's semaphore, one for the host, to itself. A server that has to end between its two
/// steps leaves it taken.
struct Semaphore {
    _guard: MutexGuard<'static, ()>,
}

impl Semaphore {
    const FILE: &'static str = "/dev/shm/sem.rsocket_fork";

    fn take() -> Semaphore {
        static FORKING: Mutex<()> = Mutex::new(());
        let guard = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that nobody has left it.
        let _ = fs::remove_file(Semaphore::FILE);
        Semaphore { _guard: guard }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // As above.
        let _ = fs::remove_file(Semaphore::FILE);
    }
}

/// Gets a file by HTTP. A server that forks has its connections made by TCP first and then, with RDMAV_FORK_SAFE, by
/// its child and the client anew, by rdma_cm.
fn download(sandbox: &Sandbox, device: Device, bytes: u32) -> Result<(), Failed> {
    let dir = sandbox.dir.path().join("www");
    fs::create_dir(&dir)?;
    let content: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(dir.join("file"), &content)?;
    let _semaphore = Semaphore::take();
    let port = free_port();
    let mut server = preloaded(sandbox, device, "busybox", "server")?;
    server.args(["httpd", "-f", "-v", "-p", &format!("127.0.0.1:{port}")]).current_dir(&dir);
    let mut server = Process::start(server.env("RDMAV_FORK_SAFE", "1"))?;
    wait_for_listener(&mut server, port)?;
    let copy = sandbox.dir.path().join("copy");
    let mut client = preloaded(sandbox, device, "curl", "client")?;
    client.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output"]).arg(&copy);
    client.arg(format!("http://127.0.0.1:{port}/file")).env("RDMAV_FORK_SAFE", "1");
    Process::start(&mut client)?.succeed()?;
    if fs::read(&copy)? != content {
        return Err("what arrived is not what was served".into());
    }
    received(sandbox, "client", u64::from(bytes))
}

/// The longest message of [`exchange`].
const LONGEST: u64 = 262_144;

/// Messages there and back, which NetPIPE compares.
fn exchange(sandbox: &Sandbox, device: Device) -> Result<(), Failed> {
    let port = free_port().to_string();
    let longest = LONGEST.to_string();
    let mut server = preloaded(sandbox, device, "NPtcp", "server")?;
    let mut server = Process::start(server.args(["-i", "-u", &longest, "-P", &port]))?;
    wait_for_service(&mut server)?;
    if listens_by_tcp() {
        return Err("the server's socket is TCP's".into());
    }
    let mut client = preloaded(sandbox, device, "NPtcp", "client")?;
    let client = Process::start(client.args(["-i", "-u", &longest, "-P", &port, "-h", "127.0.0.1"]))?.end()?;
    let [client, server] = [client.succeed()?, server.succeed()?];
    let passed = client.stderr.matches("Integrity check passed").count();
    if passed < 30 || client.stderr.contains("failed") || server.stderr.contains("failed") {
        return Err(client.failed(&format!("{passed} lengths passed")));
    }
    ["client", "server"].into_iter().try_for_each(|end| received(sandbox, end, LONGEST))
}

/// Whether anything in this namespace has a TCP socket.
fn listens_by_tcp() -> bool {
    let tables = ["tcp", "tcp6"].map(|table| Path::new("/proc/thread-self/net").join(table));
    // The first line has the names of the columns.
    crate::sandbox::namespaces()
        && tables.iter().any(|table| fs::read_to_string(table).unwrap_or_default().lines().count() > 1)
}
