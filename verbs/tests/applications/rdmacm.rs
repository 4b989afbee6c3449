//! rdmacm-utils: all of its programs, by the distribution's own librdmacm, over IPv4 and IPv6, shared memory and UDP,
//! with and without loss; and rsockets under programs that know nothing of them.

use std::fs;

use irnic_testkit::retry;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, installed, trial, wait_for_datagram_socket, wait_for_service};
use crate::table::Row;

/// One run of a pair of programs. In arguments `{port}` is a port, `{any}` the wildcard address and `{to}` the
/// server's.
#[derive(Copy, Clone)]
struct Run {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    /// What each end has to print.
    says: [&'static str; 2],
    /// The server goes on when its client has ended.
    stays: bool,
    /// The server waits at a socket of rsockets' for datagrams, not for connections.
    datagrams: bool,
    /// Recovers what the network loses.
    reliable: bool,
    /// Part of the short form.
    short: bool,
    /// Sends messages to the same memory without waiting: they must be placed in their order.
    overlaps: bool,
}

const fn run(name: &'static str, server: &'static str, client: &'static str, says: [&'static str; 2]) -> Run {
    Run { name, server, client, says, stays: false, datagrams: false, reliable: true, short: false, overlaps: false }
}

const fn short(run: Run) -> Run {
    Run { short: true, ..run }
}

const fn unreliable(run: Run) -> Run {
    Run { reliable: false, ..run }
}

const fn overlaps(run: Run) -> Run {
    Run { overlaps: true, ..run }
}

const fn stays(run: Run) -> Run {
    Run { stays: true, ..run }
}

const fn datagrams(run: Run) -> Run {
    Run { stays: true, datagrams: true, reliable: false, ..run }
}

const RUNS: &[Run] = &[
    short(stays(run("cmtime", "cmtime -b {any} -p {port} -c 20", "cmtime -s {to} -p {port} -c 20", ["", ""]))),
    short(run(
        "rping",
        "rping -s -a {any} -p {port} -C 10 -V -v",
        "rping -c -a {to} -p {port} -C 10 -V -v",
        ["ping data: rdma-ping-9", "ping data: rdma-ping-9"],
    )),
    run(
        "rping, 64 KB",
        "rping -s -a {any} -p {port} -C 20 -V -S 65000",
        "rping -c -a {to} -p {port} -C 20 -V -S 65000",
        ["", ""],
    ),
    run(
        "rping, own queue pairs",
        "rping -s -a {any} -p {port} -C 10 -V -q",
        "rping -c -a {to} -p {port} -C 10 -V -q",
        ["", ""],
    ),
    short(run(
        "ucmatose",
        "ucmatose -b {any} -f {format} -p {port} -c 5 -C 20 -S 3000",
        "ucmatose -s {to} -f {format} -p {port} -c 5 -C 20 -S 3000",
        ["return status 0", "return status 0"],
    )),
    run(
        "ucmatose, migrated",
        "ucmatose -b {any} -f {format} -p {port} -c 3 -C 20 -m",
        "ucmatose -s {to} -f {format} -p {port} -c 3 -C 20 -m",
        ["return status 0", "return status 0"],
    ),
    short(run(
        "rdma_client",
        "rdma_server -s {any} -p {port}",
        "rdma_client -s {to} -p {port}",
        ["rdma_server: end 0", "rdma_client: end 0"],
    )),
    run(
        "rdma_xclient, RC",
        "rdma_xserver -p {port} -c r",
        "rdma_xclient -s {to} -p {port} -c r",
        ["rdma_xserver: end 0", "rdma_xclient: end 0"],
    ),
    short(run(
        "rdma_xclient, XRC",
        "rdma_xserver -p {port} -c x",
        "rdma_xclient -s {to} -p {port} -c x",
        ["rdma_xserver: end 0", "rdma_xclient: end 0"],
    )),
    short(unreliable(run(
        "udaddy",
        "udaddy -b {any} -f {format} -c 3 -C 10",
        "udaddy -s {to} -f {format} -c 3 -C 10",
        ["return status 0", "return status 0"],
    ))),
    short(datagrams(run(
        "udpong",
        "udpong -b {any} -p {port} -C 200 -S 1000",
        "udpong -s {to} -p {port} -C 200 -S 1000",
        ["", ""],
    ))),
    short(run(
        "rstream",
        "rstream -b {any} -f {format} -p {port} -T v",
        "rstream -s {to} -f {format} -p {port} -T v",
        ["", "_lat"],
    )),
    run(
        "rstream, 1 B",
        "rstream -b {any} -f {format} -p {port} -S 1 -C 500 -T v",
        "rstream -s {to} -f {format} -p {port} -S 1 -C 500 -T v",
        ["", ""],
    ),
    run(
        "rstream, 4 KB, nonblocking",
        "rstream -b {any} -f {format} -p {port} -S 4096 -C 500 -T v -T n",
        "rstream -s {to} -f {format} -p {port} -S 4096 -C 500 -T v -T n",
        ["", ""],
    ),
    run(
        "rstream, 1 MB",
        "rstream -b {any} -f {format} -p {port} -S 1048576 -C 20 -T v",
        "rstream -s {to} -f {format} -p {port} -S 1048576 -C 20 -T v",
        ["", ""],
    ),
    run(
        "rstream, by rdma_getaddrinfo",
        "rstream -b {any} -f {format} -p {port} -S 65536 -C 50 -T r",
        "rstream -s {to} -f {format} -p {port} -S 65536 -C 50 -T r",
        ["", ""],
    ),
    short(overlaps(run(
        "riostream, 64 KB",
        "riostream -b {any} -f {format} -p {port} -S 65536 -C 10 -I 5 -T v",
        "riostream -s {to} -f {format} -p {port} -S 65536 -C 10 -I 5 -T v",
        ["custom", "custom"],
    ))),
    overlaps(run(
        "riostream, 64 B",
        "riostream -b {any} -f {format} -p {port} -S 64 -C 1 -I 200 -T v",
        "riostream -s {to} -f {format} -p {port} -S 64 -C 1 -I 200 -T v",
        ["custom", "custom"],
    )),
    overlaps(run(
        "riostream, 4 KB",
        "riostream -b {any} -f {format} -p {port} -S 4096 -C 10 -I 20 -T v",
        "riostream -s {to} -f {format} -p {port} -S 4096 -C 10 -I 20 -T v",
        ["custom", "custom"],
    )),
    overlaps(run(
        "riostream, 1 MB",
        "riostream -b {any} -f {format} -p {port} -S 1000000 -C 2 -I 5 -T v",
        "riostream -s {to} -f {format} -p {port} -S 1000000 -C 2 -I 5 -T v",
        ["custom", "custom"],
    )),
];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    row("rping, cmtime, rdma_{client,server}, rdma_x{client,server} -c {r,x}", "rping's data, what both ends say"),
    row("ucmatose [-m]", "what both ends say"),
    row("rstream, riostream, rcopy", "data (`-T v`), 1 B to 1 MB; the copy is the original"),
    Row { network: "shm and udp, IPv4 and IPv6, 0 %", ..row("udaddy, udpong, mckey", "both ends succeed") },
];

const fn row(command: &'static str, checked: &'static str) -> Row {
    let network = "shm and udp, IPv4 and IPv6, 0 and 1 %";
    Row { application: "rdmacm-utils", package: "rdmacm-utils", command, checked, network }
}

/// Where a run takes place.
#[derive(Copy, Clone)]
struct Place {
    v6: bool,
    port: &'static str,
    lossy: bool,
}

impl Place {
    fn device(self, overlaps: bool) -> Device {
        // The timeout of connections is half a second, which go-back-N pays for each tail that is lost.
        let impair = if self.lossy { "loss 1%" } else { "" };
        Device { transport: if overlaps { "irn,overlap=fence" } else { "irn" }, impair, port: self.port }
    }

    fn name(self) -> String {
        let loss = if self.lossy { ", 1 % loss" } else { "" };
        format!("{}, {}{loss}", if self.v6 { "IPv6" } else { "IPv4" }, self.port)
    }

    fn fill(self, text: &str, port: u16) -> String {
        let [any, to, format] = if self.v6 { ["::", "::1", "ipv6"] } else { ["0.0.0.0", "127.0.0.1", "ip"] };
        let port = port.to_string();
        [("{any}", any), ("{to}", to), ("{format}", format), ("{port}", &port)]
            .into_iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// All tests of rdmacm-utils.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (v6, port, lossy) in [false, true]
        .into_iter()
        .flat_map(|v6| ["shm", "udp"].into_iter().flat_map(move |port| [false, true].map(|lossy| (v6, port, lossy))))
    {
        let place = Place { v6, port, lossy };
        // The short form has each program once with everything that can go wrong, and once with nothing.
        let plain = (v6, port, lossy) == (false, "shm", false) || (v6, port, lossy) == (true, "udp", true);
        // Without a row of half a minute.
        let waits = |run: &Run| lossy && run.name == "rstream";
        for run in RUNS.iter().filter(|run| all() || run.short && plain && !waits(run)) {
            // rdma_xserver takes no address, and listens on the wildcard of IPv4.
            if lossy && !run.reliable || v6 && run.server.starts_with("rdma_xserver") {
                continue;
            }
            let program = format!("/usr/bin/{}", run.client.split(' ').next().expect("a program"));
            let name = format!("rdmacm: {} ({})", run.name, place.name());
            trials.push(trial(name, &[&program], move |sandbox| pair(sandbox, *run, place)));
        }
        // rcopy takes the first colon of its argument for the end of the server's name.
        if !v6 && (all() || plain) {
            trials.push(trial(format!("rdmacm: rcopy ({})", place.name()), &["/usr/bin/rcopy"], move |sandbox| {
                rcopy(sandbox, place)
            }));
        }
        if !lossy && (all() || plain || port == "udp") {
            trials.push(trial(format!("rdmacm: mckey ({})", place.name()), &["/usr/bin/mckey"], move |sandbox| {
                mckey(sandbox, place)
            }));
        }
    }
    trials
}

fn start(sandbox: &Sandbox, device: Device, place: Place, line: &str, port: u16) -> Result<Process, Failed> {
    let line = place.fill(line, port);
    let mut arguments = line.split(' ');
    let program = installed(arguments.next().expect("a program"))?;
    Process::start(sandbox.command(program, device).args(arguments))
}

fn pair(sandbox: &Sandbox, run: Run, place: Place) -> Result<(), Failed> {
    let [server, client] = retry::attempts(&sandbox.test, || {
        let port = free_port();
        let mut server = start(sandbox, place.device(run.overlaps), place, run.server, port)?;
        if run.datagrams {
            wait_for_datagram_socket(&mut server, port)?;
        } else {
            wait_for_service(&mut server)?;
        }
        let client = start(sandbox, place.device(run.overlaps), place, run.client, port)?;
        if run.stays {
            let client = client.end()?;
            server.signal(libc::SIGTERM);
            return Ok([server.end()?, client]);
        }
        Process::end_both([server, client], run.reliable)
    })?;
    if run.stays {
        return client.succeed().map(drop);
    }
    succeeded([&server, &client])?;
    for (end, says) in [&server, &client].into_iter().zip(run.says) {
        if !end.stdout.contains(says) {
            return Err(end.failed(&format!("does not say {says:?}")));
        }
    }
    Ok(())
}

fn succeeded(ends: [&Ended; 2]) -> Result<(), Failed> {
    if ends.iter().all(|end| end.status.success()) {
        return Ok(());
    }
    Err(format!("{:?}\n{:?}", ends[0].failed("server"), ends[1].failed("client")).into())
}

/// Copies a file by rsockets' RDMA writes.
fn rcopy(sandbox: &Sandbox, place: Place) -> Result<(), Failed> {
    let dir = sandbox.dir.path();
    let (from, to) = (dir.join("from"), dir.join("to"));
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&from, &bytes)?;
    let port = free_port();
    let mut server = start(sandbox, place.device(false), place, "rcopy -p {port}", port)?;
    wait_for_service(&mut server)?;
    let mut client = sandbox.command(installed("rcopy")?, place.device(false));
    client.arg(&from).arg(format!("127.0.0.1:{}", to.display())).args(["-p", &port.to_string()]);
    let client = Process::start(&mut client)?.end()?;
    server.child.kill()?;
    server.end()?;
    if !client.status.success() {
        return Err(client.failed("client"));
    }
    if fs::read(&to)? != bytes {
        return Err("the copy is not what was copied".into());
    }
    Ok(())
}

/// Sends to a multicast group that the receiver has joined.
fn mckey(sandbox: &Sandbox, place: Place) -> Result<(), Failed> {
    let group = if place.v6 { "ff0e::1234" } else { "239.1.2.3" };
    let [receiver, sender] = retry::attempts(&sandbox.test, || {
        // What goes to a file is buffered otherwise.
        let line = format!("stdbuf -oL mckey -m {group} -b {{to}} -C 20");
        let mut receiver = start(sandbox, place.device(false), place, &line, 0)?;
        receiver.wait_for("joined")?;
        let sender = start(sandbox, place.device(false), place, &format!("{line} -s"), 0)?;
        Process::end_both([receiver, sender], false)
    })?;
    succeeded([&receiver, &sender])
}
