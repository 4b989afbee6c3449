//! Programs over frame ports: both ends are stations on an Ethernet of datagram sockets, with nothing of the kernel's
//! in between. What crosses the wire is recorded and read by Wireshark.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use irnic_testkit::shim;
use libtest_mimic::{Failed, Trial};

use crate::process::Process;
use crate::sandbox::{Device, Sandbox, free_port, installed, trial, wait_for_listener};

/// Program and arguments of both ends, the GID index among them: 0 is IPv4, 1 IPv6.
const PROGRAMS: [&str; 6] = [
    "ibv_rc_pingpong -d irnic0 -g 0 -c -n 100 -s 4099",
    "ibv_rc_pingpong -d irnic0 -g 1 -c -e -n 100 -s 4099",
    "ibv_ud_pingpong -d irnic0 -g 0 -c -n 100 -s 999",
    "ib_write_bw -d irnic0 -x 0 -F -s 65536 -n 200",
    "ib_read_bw -d irnic0 -x 1 -F -s 65536 -n 100",
    "ib_atomic_lat -d irnic0 -x 0 -F -n 200",
];

/// Further parameters of the ports.
const PARAMETERS: [&str; 2] = ["", ",vlan=5,dscp=46"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for parameters in PARAMETERS {
        for program in PROGRAMS {
            let name = format!("{program}, frames{parameters}");
            trials.push(trial(name, &[], move |sandbox| check(sandbox, program, parameters)));
        }
    }
    trials.push(trial("a frame port is one process's".into(), &[], second_process));
    let needs = ["/usr/bin/ucmatose"];
    trials.push(trial("rdma_cm over frames: a neighbour that answers".into(), &needs, |sandbox| {
        connect(sandbox, "10.77.0.1", true)
    }));
    trials.push(trial("rdma_cm over frames: a neighbour that does not".into(), &needs, |sandbox| {
        connect(sandbox, "10.77.0.99", false)
    }));
    trials
}

fn check(sandbox: &Sandbox, program: &str, parameters: &str) -> Result<(), Failed> {
    let at = |name: &str| sandbox.dir.path().join(name);
    let wire = Relay::start([at("a"), at("b")], [at("to-a"), at("to-b")], &at("wire.pcap"))?;
    let port = free_port();
    let end = |own: &str, wire: &str, addresses: &str, server: Option<&str>| {
        let mut arguments = program.split(' ');
        // What IRN adds Wireshark does not know.
        let device = Device { transport: "roce", ..Device::default() };
        let mut command = sandbox.command(installed(arguments.next().unwrap_or_default())?, device);
        command.args(arguments).args(["-p", &port.to_string()]).args(server);
        let (own, wire) = (at(own), at(wire));
        command
            .env("IRNIC_PORT", format!("frames:dgram:local={},remote={}{parameters}", own.display(), wire.display()));
        command.env("IRNIC_ADDRESSES", addresses);
        Process::start(&mut command)
    };
    let mut server = end("a", "to-a", "10.77.0.1,fd77::1", None)?;
    wait_for_listener(&mut server, port)?;
    let client = end("b", "to-b", "10.77.0.2,fd77::2", Some("127.0.0.1"))?;
    for end in Process::end_both([server, client], true)? {
        end.succeed()?;
    }
    read_capture(&wire.stop()?, !parameters.is_empty())
}

/// Wireshark sees RoCE and nothing that it cannot read, and agrees with every checksum.
fn read_capture(capture: &Path, tagged: bool) -> Result<(), Failed> {
    const FIELDS: [&str; 6] = [
        "frame.protocols",
        "_ws.malformed",
        "ip.checksum.status",
        "icmpv6.checksum.status",
        "vlan.id",
        "ip.dsfield.dscp",
    ];
    let mut command = Command::new("tshark");
    // It guesses from an application's bytes that they are RPC over RDMA, of a packet that is sent again alone for
    // instance.
    command.args(["--disable-protocol", "rpcordma"]);
    command.arg("-r").arg(capture).args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            irnic_testkit::skipped("Wireshark's reading of a frame port's packets: there is no tshark");
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    };
    if !output.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut frames, mut questions) = (0, 0);
    for line in text.lines() {
        let [protocols, malformed, ip, icmpv6, vlan, dscp] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("tshark: {line}").into());
        };
        let roce = protocols.contains(":infiniband") || protocols.contains(":rroce");
        let resolves = protocols.contains(":arp") || protocols.contains(":icmpv6");
        // 1: right. A field of another protocol is empty.
        let fine = malformed.is_empty() && ["", "1"].contains(&ip) && ["", "1"].contains(&icmpv6);
        let marked = if tagged { vlan == "5" && (!roce || ["", "46"].contains(&dscp)) } else { vlan.is_empty() };
        if !fine || !marked || roce == resolves {
            return Err(format!("Wireshark reads {line:?}").into());
        }
        frames += u64::from(roce);
        questions += u64::from(resolves);
    }
    if frames < 100 || questions < 2 {
        return Err(format!("{frames} frames and {questions} messages between neighbours on the wire").into());
    }
    Ok(())
}

/// The kernel, which has no route to any of these addresses here, is not asked. That the peer is silent comes as an
/// event.
fn connect(sandbox: &Sandbox, to: &str, answers: bool) -> Result<(), Failed> {
    let at = |name: &str| sandbox.dir.path().join(name);
    let end = |own: &str, peer: &str, address: &str, to: &[&str]| {
        let mut command = sandbox.command(installed("ucmatose")?, Device::default());
        let port = format!("frames:dgram:local={},remote={}", at(own).display(), at(peer).display());
        command.args(["-c", "2", "-C", "3"]).args(to).env("IRNIC_PORT", port).env("IRNIC_ADDRESSES", address);
        if to.is_empty() {
            command.env("LD_PRELOAD", shim::build("listens")?).env("LISTENS", at("listens"));
        }
        Process::start(&mut command)
    };
    let mut server = end("a", "b", "10.77.0.1", &[])?;
    server.await_condition("it listens", |_| at("listens").exists())?;
    let client = end("b", "a", "10.77.0.2", &["-s", to])?;
    if answers {
        for end in Process::end_both([server, client], true)? {
            end.succeed()?;
        }
        return Ok(());
    }
    let client = client.end()?;
    server.child.kill()?;
    // ucmatose waits for two seconds, and the kernel says the same.
    let expected = "event: RDMA_CM_EVENT_ADDR_ERROR, error: -110";
    if client.status.success() || !(client.stdout.clone() + &client.stderr).contains(expected) {
        return Err(client.failed("the silent neighbour is not told"));
    }
    Ok(())
}

/// The second of two processes that want one frame port is told whose it is.
fn second_process(sandbox: &Sandbox) -> Result<(), Failed> {
    let start = |port: &str| {
        let mut command = sandbox.command(installed("ibv_rc_pingpong")?, Device::default());
        let at = |name: &str| sandbox.dir.path().join(name).display().to_string();
        command.env("IRNIC_PORT", format!("frames:dgram:local={},remote={}", at("a"), at("b")));
        command.env("IRNIC_ADDRESSES", "10.77.0.1").args(["-g", "0", "-p", port]);
        Process::start(&mut command)
    };
    let port = free_port();
    let mut first = start(&port.to_string())?;
    wait_for_listener(&mut first, port)?;
    let second = start(&free_port().to_string())?.end()?;
    let expected = format!("is taken by process {} of user", first.child.id());
    if second.status.success() || !second.stderr.contains(&expected) {
        return Err(second.failed("the second process is not refused"));
    }
    Ok(())
}

/// A cable between two stations, which records what passes.
struct Relay {
    thread: thread::JoinHandle<io::Result<()>>,
    stop: std::sync::Arc<AtomicBool>,
    capture: PathBuf,
}

impl Relay {
    /// Joins the stations at `stations`, whose peers are at `own`.
    fn start(stations: [PathBuf; 2], own: [PathBuf; 2], capture: &Path) -> io::Result<Relay> {
        let sockets = [UnixDatagram::bind(&own[0])?, UnixDatagram::bind(&own[1])?];
        let mut file = BufWriter::new(File::create(capture)?);
        // A pcap file of Ethernet packets (draft-ietf-opsawg-pcap).
        for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 16, 1_u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let thread = thread::spawn(move || {
            let mut packet = [0; 8192];
            loop {
                let mut idle = true;
                for from in 0..2 {
                    let Ok(len) = sockets[from].recv(&mut packet) else { continue };
                    idle = false;
                    record(&mut file, &packet[..len])?;
                    // A station that has gone needs no packets; one that is slow is waited for.
                    while let Err(e) = sockets[1 - from].send_to(&packet[..len], &stations[1 - from]) {
                        if e.kind() != io::ErrorKind::WouldBlock || stopped.load(Ordering::Relaxed) {
                            break;
                        }
                        thread::yield_now();
                    }
                }
                if idle && stopped.load(Ordering::Relaxed) {
                    return file.flush();
                }
                if idle {
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Ok(Relay { thread, stop, capture: capture.into() })
    }

    /// Ends it; returns the capture.
    fn stop(self) -> Result<PathBuf, Failed> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the relay panicked")??;
        Ok(self.capture)
    }
}

fn record(file: &mut impl Write, packet: &[u8]) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let len = packet.len() as u32;
    for word in [now.as_secs() as u32, now.subsec_micros(), len, len] {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(packet)
}
