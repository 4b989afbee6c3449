//! Instructions of each message, from the work request to its completion at both ends: two NICs on ports of two
//! processes of a host, without the layer of verbs. Counted by valgrind, since time varies and instructions do not, and
//! compared with `instructions.txt`, so that no change adds any unseen.
//!
//! ```text
//! GOLDEN=write cargo nextest run --workspace --all-features -E 'binary(host) & test(instructions)'   writes the table
//! cargo test --release -p irnic-ports --test host instructions -- --nocapture                        counts a release
//! ```

use std::path::Path;
use std::process::Command;

use irnic_nic::frame::Icrc;
use irnic_nic::{Mr, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::host::{CrossMemory, HostConfig, HostPort, HostUdp};
use irnic_testkit::instructions::{can_count, compare};
use irnic_transports::TransportConfig;
use irnic_transports::qp::{RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcStatus};
use irnic_transports::wire::Mtu;

use super::common::{Connection, End, Network, address, connect, create, region};
use super::*;

/// What is counted, messages at a time, and their bytes.
const ROWS: &[(&str, Work, u32, u32)] = &[
    ("SEND 2 B, in turn", Work::Reply, 1, 2),
    ("WRITE 8 B", Work::Ask(SendOp::Write), 1, 8),
    ("WRITE 8 B, 32 at a time", Work::Ask(SendOp::Write), 32, 8),
    ("READ 8 B", Work::Ask(SendOp::Read), 1, 8),
    ("FETCH_ADD 8 B", Work::Ask(SendOp::FetchAdd { add: 1 }), 1, 8),
    ("WRITE 64 KiB", Work::Ask(SendOp::Write), 1, 65_536),
    ("empty poll", Work::Poll, 1, 0),
];

/// Messages that are counted.
const MESSAGES: u32 = 960;
/// The row that this process runs, if it runs under valgrind.
const ROW: &str = "INSTRUCTIONS_ROW";

#[derive(Copy, Clone, Debug)]
enum Work {
    /// One end, then the other, sends a message once it has the other's.
    Reply,
    /// The first end posts, and polls for the completions.
    Ask(SendOp),
    /// The first end finds nothing.
    Poll,
}

struct Side {
    nic_port: NicPort<HostPort>,
    end: End,
    mr: Mr,
}

struct Bench {
    sides: [Side; 2],
    now: Time,
}

impl Bench {
    fn new() -> Bench {
        let config = |number| NicConfig { first_qpn: slot(number).first_qpn(), quantum: 16, ..NicConfig::default() };
        let mut net = Network::new(2, "", 1, &config(1));
        net.nics[1] = Network::new(1, "", 2, &config(2)).nics.remove(0);
        let transport = [TransportConfig::preset("auto").expect("a preset"); 2];
        let c = Connection { transport, mtu: Mtu::B4096, sq_sig_all: true, ..Connection::default() };
        let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
        connect(&mut net, &c, ends);
        let mrs = ends.map(|end| region(&mut net, end, 65_536, |_| 7));
        let domain = fresh_domain();
        let sides = [0, 1].map(|i| {
            let config = HostConfig::new(&*domain, vec![address(0), address(1)]);
            // Whether payloads stay in place depends on the time that copies take.
            let config = config.with_slot(Some(slot(i + 1))).with_udp(HostUdp::Off).with_cross_memory(CrossMemory::Off);
            let port = HostPort::open(&config).expect("a port");
            let i = usize::from(i);
            Side { nic_port: NicPort::new(net.nics.remove(0), port, Icrc::Needed), end: ends[i], mr: mrs[i] }
        });
        Bench { sides, now: Time(1_000_000) }
    }

    fn post(&mut self, from: usize, op: SendOp, len: u32) {
        let remote = self.sides[1 - from].mr;
        let Side { nic_port, end, mr } = &mut self.sides[from];
        let sges = [Sge { addr: mr.addr, len, lkey: mr.lkey }];
        let wr = SendWr { remote_addr: remote.addr, rkey: remote.rkey, ..SendWr::new(7, op, SendData::Sges(&sges)) };
        nic_port.nic.post_send(end.qpn, &wr).expect("room");
    }

    fn post_receive(&mut self, at: usize) {
        let Side { nic_port, end, mr } = &mut self.sides[at];
        let sges = [Sge { addr: mr.addr, len: 64, lkey: mr.lkey }];
        nic_port.nic.post_recv(end.qpn, &RecvWr { wr_id: 8, sges: &sges }).expect("room");
    }

    fn send(&mut self, from: usize) {
        self.now += 500;
        self.sides[from].nic_port.transmit(self.now).expect("a peer");
    }

    /// Returns the number of completions that an end has after it has received.
    fn receive(&mut self, at: usize) -> usize {
        self.now += 500;
        let Side { nic_port, end, .. } = &mut self.sides[at];
        nic_port.receive_some(self.now, 64).expect("a peer");
        let mut wcs = [Wc::EMPTY; 32];
        let n = nic_port.nic.poll_cq(end.cq, &mut wcs).expect("a queue");
        assert!(wcs[..n].iter().all(|wc| wc.status == WcStatus::Success), "{:?}", &wcs[..n]);
        n
    }

    fn run(&mut self, work: Work, at_a_time: u32, len: u32, messages: u32) {
        for message in 0..messages / at_a_time {
            match work {
                Work::Reply => {
                    let from = (message % 2) as usize;
                    self.post(from, SendOp::Send, len);
                    // With the acknowledgement of the one before.
                    self.send(from);
                    assert!(self.receive(1 - from) > 0);
                    self.post_receive(1 - from);
                }
                Work::Ask(op) => {
                    (0..at_a_time).for_each(|_| self.post(0, op, len));
                    let mut completed = 0;
                    while completed < at_a_time as usize {
                        self.send(0);
                        self.receive(1);
                        self.send(1);
                        completed += self.receive(0);
                    }
                }
                Work::Poll => {
                    assert_eq!(self.receive(0), 0);
                    self.send(0);
                }
            }
        }
    }
}

/// What is counted: valgrind knows this function by its name.
#[inline(never)]
fn counted(bench: &mut Bench, (_, work, at_a_time, len): &(&str, Work, u32, u32)) {
    bench.run(*work, *at_a_time, *len, MESSAGES);
}

/// Runs a row, in a process under valgrind.
fn run_row(name: &str) {
    let row = ROWS.iter().find(|row| row.0 == name).expect("a row");
    let mut bench = Bench::new();
    (0..2).for_each(|at| bench.post_receive(at));
    // The rings are connected, and every table has its size.
    bench.run(row.1, row.2, row.3, MESSAGES / 4);
    counted(&mut bench, row);
}

/// Runs a row of this test under valgrind. Returns the instructions of a message in this program, libraries excluded.
fn count(name: &str, folder: &Path) -> u64 {
    let program = std::env::current_exe().expect("this program");
    let out = folder.join("callgrind");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.args(["--collect-atstart=no", "--toggle-collect=*instructions*counted*"]).arg(&program);
    command.args(["--exact", "instructions::no_change_adds_any_unseen"]).env(ROW, name);
    let output = command.output().expect("valgrind starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    let own = instructions(&std::fs::read_to_string(out).expect("counts"), &program);
    assert!(own > u64::from(MESSAGES), "{name}: {own}: {}", String::from_utf8_lossy(&output.stderr));
    own / u64::from(MESSAGES)
}

/// Sums what valgrind's output attributes to one object. A name is written once, with a number that later stands for
/// it; a call's line has the cost of what is called, which has lines of its own.
fn instructions(text: &str, object: &Path) -> u64 {
    let (mut number, mut current, mut total, mut of_call) = (None, None, 0, false);
    for line in text.lines() {
        if let Some((key, name)) = line.split_once("ob=") {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            if Path::new(name) == object {
                number = Some(id.to_owned());
            }
            if key.is_empty() {
                current = Some(id.to_owned());
            }
        } else if line.starts_with("calls=") {
            of_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or_default();
            if !std::mem::take(&mut of_call) && current == number {
                total += cost;
            }
        }
    }
    total
}

#[test]
fn no_change_adds_any_unseen() {
    if let Ok(row) = std::env::var(ROW) {
        return run_row(&row);
    }
    if !can_count() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let counts: Vec<_> = ROWS.iter().map(|row| (row.0, count(row.0, folder.path()))).collect();
    compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/instructions.txt"), &counts);
}

#[test]
fn costs_of_calls_are_not_counted_twice() {
    let text =
        "ob=(1) /a\nfn=(1) f\n1 10\ncob=(2) /b\ncalls=1 0\n2 500\n+1 5\n\nob=(2)\nfn=(2) g\n* 500\nob=(1)\n-1 1\n";
    assert_eq!(instructions(text, Path::new("/a")), 16);
    assert_eq!(instructions(text, Path::new("/b")), 500);
}
