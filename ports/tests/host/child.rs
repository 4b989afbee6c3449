//! The other processes.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use irnic_ports::Port;
use irnic_ports::host::{HostPort, HostUdp, Stall};
use irnic_transports::{Path, Time};

use super::*;

/// The task: mode, domain, address, slot, generation, UDP or not, number of processes.
const TASK: &str = "IRNIC_HOST_TEST_TASK";

/// Slots to which each of many processes sends, from its own, round the ring of all.
const NEIGHBOURS: [u16; 7] = [0, 1, 2, 7, 11, 19, 24];
const EACH: u32 = 300;

/// What another process is to do.
#[derive(Clone, Debug)]
pub struct Task {
    pub mode: &'static str,
    pub domain: String,
    pub address: IpAddr,
    pub slot: u16,
    pub generation: u32,
    pub udp: bool,
    pub processes: u16,
    /// The process has a user namespace of its own, where its user has this number and nobody else has one.
    pub alone_as: Option<u32>,
}

impl Task {
    pub fn new(mode: &'static str, domain: &str, slot: u16) -> Task {
        let domain = domain.to_owned();
        Task { mode, domain, address: LOCALHOST, slot, generation: 0, udp: false, processes: 0, alone_as: None }
    }

    /// Starts a process, as another user if one is given, and waits until it says that it is ready.
    pub fn start(&self, user: Option<u32>) -> std::io::Result<Peer> {
        let Task { mode, domain, address, slot, generation, udp, processes, alone_as } = self;
        let program = std::env::current_exe()?;
        let mut command = match alone_as {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("unshare");
                command.args(["--user", &format!("--map-user={user}"), "--"]).arg(program);
                command
            }
        };
        command
            .args(["--exact", "child::child", "--nocapture"])
            .env(TASK, format!("{mode} {domain} {address} {slot} {generation} {udp} {processes}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user).current_dir("/");
        }
        let mut process = command.spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take().expect("piped"));
        let (tx, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tx.send(line);
            }
        });
        let mut peer = Peer { process, input, lines };
        peer.hear("ready");
        Ok(peer)
    }
}

/// A running process; it ends when this is dropped.
pub struct Peer {
    pub process: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Peer {
    /// Waits for a line that begins with `word`, and returns the rest.
    pub fn hear(&mut self, word: &str) -> String {
        let start = Instant::now();
        while let Some(left) = HANG.checked_sub(start.elapsed()) {
            let line =
                self.lines.recv_timeout(left).unwrap_or_else(|e| panic!("no {word:?} from the other process: {e}"));
            // The test harness may have written the beginning of the line.
            if let Some((_, rest)) = line.split_once(&format!("@{word}")) {
                return rest.trim().to_owned();
            }
        }
        panic!("no {word:?} from the other process");
    }

    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}").expect("the other process reads");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: no memory is passed; the process has not been waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(self.process.id() as libc::pid_t, signal) }, 0);
    }

    /// Kills it where it stands.
    pub fn kill(&mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }

    /// Has it end by itself, and sees that it did so in order.
    pub fn finish(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().expect("wait").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{line}").and_then(|()| out.flush()).expect("the other process listens");
}

/// Where the other processes begin; passes at once when run as a test.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let arguments: Vec<&str> = task.split(' ').collect();
    let [mode, domain, address, slot, generation, udp, processes] = arguments[..] else { panic!("task {task:?}") };
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let address: IpAddr = address.parse().expect("an address");
    let udp = if udp == "true" { HostUdp::On } else { HostUdp::Off };
    let own = number(slot) as u16;
    let mut port = HostPort::open(&config(domain, address, own, udp)).expect("a port");
    let (input, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = input.send(line);
        }
    });
    announce("ready");
    match mode {
        "echo" => echo(&mut port, number(generation), &lines),
        "exchange" => exchange(&mut port, own, number(processes) as u16, &lines),
        "foreign" => foreign(&mut port, &lines),
        _ => panic!("mode {mode:?}"),
    }
}

fn ended(lines: &mpsc::Receiver<String>) -> bool {
    matches!(lines.try_recv(), Err(mpsc::TryRecvError::Disconnected))
}

/// Answers every frame until the input ends. Sleeps between them, so that it must be woken.
fn echo(port: &mut HostPort, generation: u32, lines: &mpsc::Receiver<String>) {
    let start = Instant::now();
    let mut answers = Vec::new();
    while !ended(lines) {
        port.wait(Duration::from_millis(20)).expect("wait");
        let now = since(start);
        port.receive(now, 64, &mut |frame| {
            let note = Note::read(frame.bytes);
            assert_eq!(note.generation, generation, "a frame for the process before this one: {note:?}");
            let path = Path { src: frame.path.dst, dst: frame.path.src, ..frame.path };
            answers.push((path, Note { to: note.reply_to, reply_to: note.to, ..note }, frame.bytes.len()));
        })
        .expect("receive");
        for (path, note, len) in answers.drain(..) {
            // An answer that finds no room is lost: who asked asks again.
            send(port, now, &path, &note, len);
        }
        if let Err(e) = port.flush(now) {
            // Who asked has not had a core for 100 ms, and has lost answers.
            assert!(e.get_ref().is_some_and(|e| e.is::<Stall>()), "flush: {e:?}");
        }
    }
}

/// Sends to some of many processes and receives from as many; every frame, in order.
fn exchange(port: &mut HostPort, own: u16, processes: u16, lines: &mpsc::Receiver<String>) {
    assert_eq!(lines.recv().expect("a line"), "go");
    let at = |distance: u16| 1 + (own - 1 + distance) % processes;
    let neighbours: Vec<u16> = NEIGHBOURS.into_iter().filter(|d| *d < processes).collect();
    let mut sent = vec![0; neighbours.len()];
    let mut got = vec![0; usize::from(processes) + 1];
    let way = path(LOCALHOST, LOCALHOST);
    let start = Instant::now();
    let mut announced = false;
    while !ended(lines) {
        let mut moved = 0;
        for (next, distance) in sent.iter_mut().zip(&neighbours) {
            let to = at(*distance);
            let note = Note { number: *next, to: qp_of(to), reply_to: qp_of(own), generation: 0 };
            let len = HEAD + (*next as usize * 211 + usize::from(own) * 17) % 4000;
            // The clock stands still: among so many processes one may well not run for long, and is waited for.
            if *next < EACH && send(port, Time::ZERO, &way, &note, len) {
                *next += 1;
                moved += 1;
            }
        }
        port.flush(Time::ZERO).expect("flush");
        let frames = port.receive(Time::ZERO, 64, &mut |frame| {
            let note = Note::read(frame.bytes);
            assert_eq!(note.to, qp_of(own));
            let from = (note.reply_to / irnic_ports::host::Slot::QPS) as usize;
            assert_eq!(note.number, got[from], "from {from} to {own}");
            got[from] += 1;
        });
        let all = neighbours.len() as u32 * EACH;
        if !announced && got.iter().sum::<u32>() == all && sent.iter().sum::<u32>() == all {
            announce("done");
            announced = true;
        }
        if frames.expect("receive") + moved == 0 {
            // A frame wakes it, or room in a full ring.
            port.wait(if announced { Duration::from_millis(50) } else { HANG }).expect("wait");
        }
        assert!(announced || start.elapsed() < HANG, "{own}: sent {sent:?}, got {got:?}");
    }
    assert_eq!(port.counters().tx_dropped, 0);
}

/// Tries to reach a process of another user.
fn foreign(port: &mut HostPort, lines: &mpsc::Receiver<String>) {
    let note = Note { number: 1, to: qp_of(1), reply_to: qp_of(3), generation: 0 };
    assert!(send(port, Time::ZERO, &path(LOCALHOST, LOCALHOST), &note, 64));
    port.flush(Time::ZERO).expect("flush");
    announce(&format!("counters {} {}", port.host_counters().tx_absent, port.host_counters().links_refused));
    while !ended(lines) {
        port.receive(Time::ZERO, 64, &mut |_| panic!("a frame of another user")).expect("receive");
        std::thread::sleep(Duration::from_millis(1));
    }
}
