//! Counters under /sys/class/infiniband, read by another process than those that count.

use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Folder, irnic, needs, skipped, text};

const PORT: &str = "/sys/class/infiniband/irnic0/ports/1";

/// Each test has an address, and so a device, of its own.
fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("127.66.{}.{}", std::process::id() % 250, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A program that sends 100 datagrams of 1000 bytes to itself and waits; `None` if it cannot be built here.
fn datagrams(folder: &Folder) -> Option<()> {
    needs(&["gcc", "cat"])?;
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        skipped("there is no /usr/include/infiniband/verbs.h");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/datagrams.c");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder.path()).args(["-o", "datagrams"]).arg(source).arg("-libverbs");
    let output = gcc.output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(())
}

/// The program when it has sent all; it ends with its standard input.
struct Sender(Child);

impl Sender {
    fn start(folder: &Folder, address: &str, args: &[&str]) -> Sender {
        let mut command = irnic(folder);
        command.args(["run", "--sysfs", "--address", address, "--", "./datagrams"]).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("irnic starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "sent\n");
        Sender(child)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a shell prints that sees the files of a device with this address.
fn shell(folder: &Folder, address: &str, script: &str) -> String {
    let mut command = irnic(folder);
    command.args(["run", "--sysfs", "--address", address, "--", "sh", "-c", script]);
    let output = command.output().expect("irnic starts");
    assert!(output.stderr.is_empty(), "{script}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The value of one counter.
fn counter(folder: &Folder, address: &str, file: &str) -> u64 {
    let value = shell(folder, address, &format!("cat {PORT}/{file}"));
    value.trim().parse().unwrap_or_else(|e| panic!("{file}: {value:?}: {e}"))
}

#[test]
fn counters_are_those_of_the_processes_that_live() {
    let folder = Folder::new();
    let Some(()) = datagrams(&folder) else { return };
    let address = address();
    let packets = || counter(&folder, &address, "hw_counters/sent_pkts");
    assert_eq!(packets(), 0);
    let one = Sender::start(&folder, &address, &[]);
    for (file, value) in [
        ("counters/port_xmit_packets", 100),
        ("counters/port_rcv_packets", 100),
        ("counters/port_xmit_data", 25_000),
        ("counters/port_rcv_data", 25_000),
        ("counters/unicast_xmit_packets", 100),
        ("counters/symbol_error", 0),
        ("hw_counters/rcvd_pkts", 100),
        ("hw_counters/sent_bytes", 100_000),
        ("hw_counters/out_of_sequence", 0),
        ("hw_counters/roce_adp_retrans", 0),
    ] {
        assert_eq!(counter(&folder, &address, file), value, "{file}");
    }
    let two = Sender::start(&folder, &address, &[]);
    assert_eq!(packets(), 200);
    // Another device's are not counted.
    assert_eq!(counter(&folder, &self::address(), "hw_counters/sent_pkts"), 0);
    // One that is stopped does not answer, and keeps nobody waiting for long.
    two.signal(libc::SIGSTOP);
    assert_eq!(packets(), 100);
    two.signal(libc::SIGCONT);
    assert_eq!(packets(), 200);
    drop(two);
    assert_eq!(packets(), 100);
    drop(one);
    assert_eq!(packets(), 0);
}

#[test]
fn a_forked_child_does_not_answer_for_its_parent() {
    let folder = Folder::new();
    let Some(()) = datagrams(&folder) else { return };
    let address = address();
    let sender = Sender::start(&folder, &address, &["fork"]);
    // The parent, whose device it was, has gone; the child has its descriptors.
    assert_eq!(counter(&folder, &address, "hw_counters/sent_pkts"), 0);
    drop(sender);
}

#[test]
fn counters_live_whichever_way_their_files_are_reached() {
    let folder = Folder::new();
    let Some(()) = datagrams(&folder) else { return };
    let address = address();
    let sender = Sender::start(&folder, &address, &[]);
    let python = format!("python3 -c 'print(open(\"{PORT}/counters/port_xmit_data\").read(), end=\"\")'");
    for script in [
        format!("cat {PORT}/counters/port_xmit_data"),
        format!("cat {PORT}//./counters//port_xmit_data"),
        format!("read x <{PORT}/counters/port_xmit_data; echo $x"),
        format!("cd {PORT}; cat counters/port_xmit_data"),
        format!("cd {PORT}/counters && cat ./port_xmit_data"),
        format!("cd {PORT}/counters && grep -rh . port_xmit_data"),
        format!("grep -rh 25 {PORT}/counters/ | sort -u | head -1"),
        format!("cat $(readlink -f {PORT})/counters/port_xmit_data"),
        "cat /sys/class/net/lo/device/infiniband/irnic0/ports/1/counters/port_xmit_data".into(),
        format!("find {PORT}/counters -type f -name port_xmit_data -exec cat {{}} +"),
        python,
    ] {
        if script.starts_with("python3") && needs(&["python3"]).is_none() {
            continue;
        }
        assert_eq!(shell(&folder, &address, &script), "25000\n", "{script}");
    }
    // Another user's, and other files of such a name, are what they are.
    folder.write("counters", "a file\n");
    assert_eq!(shell(&folder, &address, "cat counters ./counters; cat $PWD/counters"), "a file\n".repeat(3));
    drop(sender);
}

#[test]
fn nonsense_is_not_answered_and_does_no_harm() {
    let folder = Folder::new();
    let Some(()) = datagrams(&folder) else { return };
    let address = address();
    let sender = Sender::start(&folder, &address, &[]);
    let prefix = shell(&folder, &address, "cat $IRNIC_SYSFS/irnic/irnic0");
    let names = (1..=1022).map(|slot| SocketAddr::from_abstract_name(format!("{}{slot}", prefix.trim_end())).unwrap());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&prefix).unwrap()).unwrap();
    let there: Vec<_> = names.filter(|name| socket.send_to_addr(b"nonsense", name).is_ok()).collect();
    let [there] = &there[..] else { panic!("{} sockets", there.len()) };
    let long = [b'x'; 4096];
    for request in [&b""[..], b"\xff\xfe", b"counters", b"counters/", b"hw_counters/../x", &long] {
        socket.send_to_addr(request, there).unwrap();
    }
    // Nobody hears an answer to this: the sender has no name.
    UnixDatagram::unbound().unwrap().send_to_addr(b"hw_counters/sent_pkts", there).unwrap();
    socket.send_to_addr(b"hw_counters/sent_pkts", there).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = [0; 64];
    assert_eq!(socket.recv(&mut answer).unwrap(), 8);
    assert_eq!(answer[..8], 100u64.to_ne_bytes());
    assert_eq!(counter(&folder, &address, "hw_counters/sent_pkts"), 100);
    drop(sender);
}

#[test]
fn there_are_the_names_that_rxe_and_mlx5_have() {
    let folder = Folder::new();
    let listed = shell(&folder, &address(), &format!("ls {PORT}/counters {PORT}/hw_counters"));
    for name in "port_xmit_data port_rcv_data port_xmit_packets port_rcv_packets unicast_xmit_packets multicast_rcv_packets \
                 port_xmit_discards port_rcv_errors port_xmit_wait link_downed symbol_error VL15_dropped sent_pkts rcvd_pkts \
                 duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err rcvd_seq_err ack_deferred \
                 retry_exceeded_err retry_rnr_exceeded_err completer_retry_err send_err out_of_sequence packet_seq_err \
                 local_ack_timeout_err rnr_nak_retry_err np_cnp_sent rp_cnp_handled np_ecn_marked_roce_packets \
                 roce_adp_retrans rx_write_requests rx_read_requests rx_atomic_requests out_of_buffer implied_nak_seq_err \
                 rx_icrc_encapsulated irn_nacks_sent"
        .split_whitespace()
    {
        assert!(listed.lines().any(|line| line == name), "{name} is not in\n{listed}");
    }
}

#[test]
fn nobody_tells_counters_unless_asked_to() {
    let folder = Folder::new();
    let Some(()) = datagrams(&folder) else { return };
    let threads = |options: &[&str]| {
        let mut command = irnic(&folder);
        command.args(["run", "--address", &address()]).args(options).args(["--", "./datagrams"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("irnic starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let count = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
        child.kill().unwrap();
        child.wait().unwrap();
        count
    };
    assert_eq!(threads(&[]) + 1, threads(&["--sysfs"]));
}
