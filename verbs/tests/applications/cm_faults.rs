//! Connections by rdma_cm whose other side is killed, many connections at once and in succession, and forged requests.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use irnic_cm::{Cm, CmConfig, ConnParam, PortSpace, QpKind, Route};
use irnic_transports::psn::Psn;
use irnic_transports::wire::ip::to_ipv6;
use irnic_transports::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN, Mad, Message, Req};
use irnic_transports::wire::{Bth, Deth, Headers, Mtu, Opcode, icrc_append};
use irnic_transports::{Path as WirePath, Time};
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, all, free_port, trial, wait_for_service};

const NEEDS: [&str; 3] = ["/usr/bin/cc", "/usr/include/rdma/rdma_cma.h", "/usr/lib/x86_64-linux-gnu/librdmacm.so"];
/// Points at which one side is killed, with each carrier; in the short form.
const POINTS: u64 = 200;
const FEW_POINTS: u64 = 12;
/// Connections at once.
const CROWD: u32 = 500;
/// Processes that have them in another test.
const CLIENTS: u32 = 10;
/// Connections in succession; in the short form.
const CHURN: u32 = 20_000;
const SHORT_CHURN: u32 = 1000;
/// Forged requests.
const FORGED: u32 = 10_000;
/// How many of them come without a pause where they come slowly, and how long the pause is.
const BURST: usize = 100;
const PAUSE: Duration = Duration::from_millis(40);
/// How many connections a server may have in the midst of them: three quarters of 1024 for the forged, and good ones.
const MOST: u32 = 900;
/// What a process may need more at the end than at the beginning, in KiB. Connections that have ended are remembered
/// for half a second; a connection that is not forgotten has queues of 4 KiB at least.
const GROWTH: u64 = 16 << 10;

/// All tests of faults.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let devices = ["shm", "udp"].map(|port| Device { port, ..Device::default() });
    for device in devices {
        let points = if all() { POINTS } else { FEW_POINTS };
        let name = format!("cm_faults: one side killed at {points} points ({})", device.port);
        trials.push(trial(name, &NEEDS, move |sandbox| {
            let program = build(sandbox)?;
            let port = free_port();
            (0..points).try_for_each(|seed| kill(sandbox, &program, device, port, seed))
        }));
        let name = format!("cm_faults: {CROWD} connections at once ({})", device.port);
        trials.push(trial(name, &NEEDS, move |sandbox| crowd(sandbox, device, 1)));
        if all() || device.port == "shm" {
            let name = format!("cm_faults: {CROWD} connections of {CLIENTS} processes at once ({})", device.port);
            trials.push(trial(name, &NEEDS, move |sandbox| crowd(sandbox, device, CLIENTS)));
            let count = if all() { CHURN } else { SHORT_CHURN };
            let name = format!("cm_faults: {count} connections in succession leave nothing ({})", device.port);
            trials.push(trial(name, &NEEDS, move |sandbox| churn(sandbox, device, count)));
        }
    }
    for (how, pause) in [("slow", PAUSE), ("fast", Duration::ZERO)] {
        let name = format!("cm_faults: a client connects in the midst of {FORGED} forged requests ({how})");
        trials.push(trial(name, &NEEDS, move |sandbox| flood(sandbox, pause)));
    }
    trials
}

/// The program, compiled and linked against the library and librdmacm.
fn build(sandbox: &Sandbox) -> Result<PathBuf, Failed> {
    let program = sandbox.dir.path().join("conn");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/conn.c");
    let mut cc = Command::new("/usr/bin/cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O2", source, "-o"]).arg(&program);
    Process::start(cc.arg("-L").arg(sandbox.libraries()).args(["-lrdmacm", "-libverbs"]))?.succeed()?;
    Ok(program)
}

/// A number from a seed (SplitMix64), below `limit`.
fn random(seed: u64, which: u64, limit: u64) -> u64 {
    let mut x = (seed << 8 | which).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) % limit
}

fn start(sandbox: &Sandbox, program: &Path, device: Device, line: &str) -> Result<Process, Failed> {
    Process::start(sandbox.command(program, device).args(line.split_whitespace()))
}

fn serve(sandbox: &Sandbox, program: &Path, device: Device, port: u16, options: &str) -> Result<Process, Failed> {
    let mut server = start(sandbox, program, device, &format!("serve {port} {options}"))?;
    server.wait_for("serving")?;
    Ok(server)
}

/// Asks a server to say when it has no connections.
fn wait_until_idle(server: &mut Process) -> Result<(), Failed> {
    let before = server.text().matches("idle").count();
    server.signal(libc::SIGUSR1);
    server.wait_until("idle once more", |text| text.matches("idle").count() > before)
}

fn end_server(server: Process) -> Result<Ended, Failed> {
    server.signal(libc::SIGTERM);
    server.succeed()
}

/// Ends one of two programs at a point that a seed chooses: the other has to hear of it, and can go on.
fn kill(sandbox: &Sandbox, program: &Path, device: Device, port: u16, seed: u64) -> Result<(), Failed> {
    let slow = if random(seed, 0, 4) == 0 { 150_000 } else { 0 };
    let exits = random(seed, 1, 8) == 0;
    let after = match random(seed, 2, 4) {
        _ if exits => 0,
        0 | 1 => 0,
        2 => random(seed, 3, 2000),
        _ => random(seed, 3, 300_000),
    };
    // One connection takes about 18 steps.
    let die = random(seed, 4, if slow > 0 { 14 } else { 45 });
    let how = format!("die={die} after={after} exit={}", u8::from(exits));
    let [server_dies, slow_client] = [random(seed, 5, 2) == 0, random(seed, 6, 3) == 0];
    let server_options = format!("{} slow={slow}", if server_dies { &how } else { "" });
    let client_options = format!("{} slow={}", if server_dies { "" } else { &how }, if slow_client { slow } else { 0 });
    let what = format!("seed {seed}: serve {server_options}, rounds {client_options}");
    let at = |e: Failed| -> Failed { format!("{what}: {}", e.message().unwrap_or_default()).into() };

    let mut server = serve(sandbox, program, device, port, &server_options).map_err(at)?;
    let client = start(sandbox, program, device, &format!("rounds {port} 1000000 {client_options}"))?;
    if server_dies {
        server.end().map_err(at)?;
        let client = client.succeed().map_err(at)?;
        if !client.stdout.contains("gone") {
            return Err(at(client.failed("the client does not miss its server")));
        }
    } else {
        client.end().map_err(at)?;
        wait_until_idle(&mut server).map_err(at)?;
        let good = start(sandbox, program, device, &format!("rounds {port} 2"))?.succeed().map_err(at)?;
        if good.stdout.contains("gone") {
            return Err(at(good.failed("another client is not served")));
        }
        end_server(server).map_err(at)?;
    }
    let names = fs::read_to_string("/proc/thread-self/net/unix")?;
    match names.lines().find(|line| line.contains("@irnic/") && line.contains("/cm/")) {
        Some(claim) => Err(format!("{what}: a claim is left: {claim}").into()),
        None => Ok(()),
    }
}

/// Many connections at once, of one process or of several.
fn crowd(sandbox: &Sandbox, device: Device, processes: u32) -> Result<(), Failed> {
    let (program, port) = (build(sandbox)?, free_port());
    let mut server = serve(sandbox, &program, device, port, "")?;
    let line = format!("many {port} {} messages=2", CROWD / processes);
    let clients: Result<Vec<_>, _> = (0..processes).map(|_| start(sandbox, &program, device, &line)).collect();
    for client in clients? {
        client.succeed()?;
    }
    wait_until_idle(&mut server)?;
    end_server(server).map(drop)
}

/// The numbers of a line `what KiB … descriptors …`, the last of its kind.
fn size(text: &str, what: &str) -> Result<[u64; 2], Failed> {
    let line = text.lines().rfind(|line| line.starts_with(what));
    let fields: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    match fields[..] {
        [_, "KiB", memory, "descriptors", files] => Ok([memory.parse()?, files.parse()?]),
        _ => Err(format!("no {what:?} in {text}").into()),
    }
}

fn must_not_grow(what: &str, [early, late]: [[u64; 2]; 2]) -> Result<(), Failed> {
    if late[0] <= early[0] + GROWTH && late[1] <= early[1] + 2 {
        return Ok(());
    }
    Err(format!("{what}: from {} KiB and {} descriptors to {} and {}", early[0], early[1], late[0], late[1]).into())
}

/// Many connections, one after the other.
fn churn(sandbox: &Sandbox, device: Device, count: u32) -> Result<(), Failed> {
    let (program, port) = (build(sandbox)?, free_port());
    let mut server = serve(sandbox, &program, device, port, "")?;
    let rounds = |count: u32| -> Result<Ended, Failed> {
        start(sandbox, &program, device, &format!("rounds {port} {count} messages=1"))?.succeed()
    };
    rounds(count / 20)?;
    wait_until_idle(&mut server)?;
    let text = server.text();
    // Several, so that none takes as long as one that hangs.
    for _ in 0..4 {
        let client = rounds(count / 4)?;
        must_not_grow("client", [size(&client.stdout, "early")?, size(&client.stdout, "late")?])?;
    }
    wait_until_idle(&mut server)?;
    let server = end_server(server)?;
    must_not_grow("server", [size(&text, "idle")?, size(&server.stdout, "idle")?])
}

/// A REQ as librdmacm's would be sent to a port of `to`.
fn request(port: u16, to: Ipv4Addr) -> Option<Req> {
    let mut cm = Cm::new(CmConfig::new([7; 32], 0xbad, 1, 1 << 20));
    let id = cm.create(PortSpace::Tcp, QpKind::Rc).ok()?;
    let from = SocketAddr::from(([127, 1, 0, 1], 40_000));
    let path = WirePath { src: from.ip(), dst: IpAddr::V4(to), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
    cm.resolve(id, Route::new(from, (to, port).into(), path, Mtu::B1024)).ok()?;
    cm.connect(Time::ZERO, id, &ConnParam::new(0x11)).ok()?;
    match Mad::parse(&cm.poll_mad()?.1).ok()?.message {
        Message::Req(req) => Some(req),
        _ => None,
    }
}

/// The frame of the `n`th forged REQ, and its path: another adapter, queue pair, communication id and address.
fn forged(real: &Req, n: u32, to: Ipv4Addr) -> (WirePath, Vec<u8>) {
    let mut req = *real;
    let src = Ipv4Addr::from_bits(0x7f01_0001 + n % 50_000);
    let fields = &mut req.fields;
    (fields.local_ca_guid, fields.local_qpn) = (0xbad_0000 + u64::from(n), 0x100 + n);
    (fields.local_comm_id, fields.starting_psn) = (0x10_0000 + n, Psn::new(n));
    req.primary.local_gid = to_ipv6(src.into());
    let path = WirePath { src: src.into(), dst: to.into(), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(n)));
    headers.deth = Some(Deth { qkey: GSI_QKEY, src_qp: GSI_QPN });
    let mut frame = vec![0; headers.len() + MAD_LEN + 4];
    let at = headers.emit(&mut frame);
    frame[at..at + MAD_LEN].copy_from_slice(&Mad { tid: n.into(), message: req.into() }.to_bytes());
    icrc_append(&path, 0, &mut frame);
    (path, frame)
}

/// Sends a frame from its forged address.
fn send(path: &WirePath, frame: &[u8]) -> std::io::Result<()> {
    let socket = UdpSocket::bind((path.src, path.udp_src))?;
    // Whole, and with identification 0, which the ICRC covers.
    let whole = libc::IP_PMTUDISC_DO;
    // SAFETY: a valid option of four bytes.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const whole).cast(),
            size_of_val(&whole) as libc::socklen_t,
        )
    };
    socket.send_to(frame, (path.dst, 4791)).map(drop)
}

/// Forged requests at a server that accepts whoever asks. A client that has connected goes on to do so, and others come
/// meanwhile.
fn flood(sandbox: &Sandbox, pause: Duration) -> Result<(), Failed> {
    let (program, port, to) = (build(sandbox)?, free_port(), Ipv4Addr::LOCALHOST);
    let device = Device { port: "udp", ..Device::default() };
    let start = |line: &str| {
        let mut command = sandbox.command(&program, device);
        Process::start(command.args(line.split_whitespace()).env("IRNIC_STATS", "on"))
    };
    let mut server = start(&format!("serve {port}"))?;
    server.wait_for("serving")?;
    wait_for_service(&mut server)?;
    let client = |count: u32| start(&format!("rounds {port} {count} messages=1"));
    let ends_well = |client: Process| {
        let client = client.succeed()?;
        if client.stdout.contains("gone") { Err(client.failed("a good client")) } else { Ok(()) }
    };
    let real = request(port, to).ok_or("no request to forge")?;
    let frames: Vec<_> = (0..FORGED).map(|n| forged(&real, n, to)).collect();
    let mut steady = client(100)?;
    steady.wait_for("early")?;
    let flooded = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for burst in frames.chunks(BURST) {
                burst.iter().try_for_each(|(path, frame)| send(path, frame))?;
                thread::sleep(pause);
            }
            Ok::<(), std::io::Error>(())
        });
        let mut good = Ok(());
        while good.is_ok() && !flood.is_finished() {
            good = client(10).and_then(ends_well);
        }
        flood.join().expect("it does not panic").map_err(Failed::from).and(good)
    });
    if let Err(e) = flooded.and_then(|()| ends_well(steady)) {
        // With the counters of both ends.
        let server = end_server(server)?;
        return Err(format!("{}\nserver: {} {}", e.message().unwrap_or_default(), server.stdout, server.stderr).into());
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id()))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    let memory: u64 = memory.ok_or("no VmRSS")?;
    if memory > 512 << 10 {
        return Err(format!("{memory} KiB").into());
    }
    client(10).and_then(ends_well)?;
    // What was accepted of the forged waits for confirmation: to be ended with the server.
    let server = end_server(server)?;
    let most = server.stdout.lines().find_map(|line| line.strip_prefix("served ")?.split(' ').next()?.parse().ok());
    let most: u32 = most.ok_or("no number of connections")?;
    if most > MOST { Err(format!("the server had {most} connections at once").into()) } else { Ok(()) }
}
