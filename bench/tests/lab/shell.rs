//! `irnic lab --shell`, captures on demand, and the hosts' IP packets on the emulated network.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::netns::permitted;
use crate::support::{Folder, irnic, needs, skipped, text};
use serde_json::Value;

/// A lab with a prompt, which is given these lines.
fn shell(folder: &Folder, options: &[&str], lines: impl AsRef<[u8]>) -> (Output, Value) {
    let mut command = irnic(folder);
    command.args(["lab", "--shell", "--json", "lab.json"]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = command.spawn().expect("irnic starts");
    lab.stdin.take().expect("a pipe").write_all(lines.as_ref()).expect("written");
    let output = lab.wait_with_output().expect("it ends");
    let json = std::fs::read(folder.path().join("lab.json")).unwrap_or_default();
    let json = serde_json::from_slice(&json).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    (output, json)
}

#[test]
fn a_prompt_runs_commands_on_hosts_and_has_the_lab_do_things() {
    if needs(&["ibv_rc_pingpong"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let lines = "\
        hosts\n\
        links\n\
        pcap some.pcapng h0-s0\n\
        pcap other.pcapng\n\
        h0 ibv_rc_pingpong -d irnic0 -g 0 -n 10 > server.txt &\n\
        h1 until ibv_rc_pingpong -d irnic0 -g 0 -n 10 h0 > client.txt 2> refused.txt; do \
             grep -q \"Couldn't connect\" refused.txt || exit 9; sleep 0.1; done\n\
        pcap off\n\
        pcap off\n\
        link h0 s0 down for 1ms\n\
        drop acks\n\
        h1 echo $IRNIC_LAB_HOST h0 ; exit 3\n\
        h7 true\n\
        exit\n\
        sh echo never\n";
    let (output, json) = shell(&folder, &["--topology", "star:hosts=2,rate=10G"], lines);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    for line in ["h1 127.77.0.2\n", "h0-s0 10gbit\n", "\"ports\": 1\n", "\"at_ns\": ", "\n1 127.77.0.1\n"] {
        assert!(out.contains(line), "{line}: {out}{err}");
    }
    assert!(!out.contains("never"), "{out}");
    let refused = [
        "irnic: pcap: packets are recorded already; `pcap off` ends that\n",
        "irnic: pcap off: nothing is recorded\n",
        "irnic: \"acks\": expected from, to, qp",
        "exit status 3\n",
        "irnic: h7: there are 2 hosts, from h0 on\n",
    ];
    let mut at = 0;
    for line in refused {
        at += err[at..].find(line).unwrap_or_else(|| panic!("{line}: {out}{err}"));
    }
    let server = std::fs::read_to_string(folder.path().join("server.txt")).expect("the server's output");
    assert!(server.contains("10 iters in"), "{server}{out}{err}");
    assert!(json["frames"].as_u64().is_some_and(|frames| frames >= 40), "{json}");
    let capture = std::fs::metadata(folder.path().join("some.pcapng")).expect("a capture");
    assert!(capture.len() > 1_000 && !folder.path().join("other.pcapng").exists(), "{}", capture.len());
}

#[test]
fn lines_of_any_bytes_end_neither_the_lab_nor_the_prompt() {
    let folder = Folder::new();
    let (output, _) =
        shell(&folder, &["--topology", "star:hosts=2"], b"\xff\xfe x\n\0\nh0 echo goes on\nh0 echo unfini'shed");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("goes on\n"), "{out}{err}");
    assert!(err.contains("exit status 2\n"), "{out}{err}");
}

/// Sends 2 MB from host 0 to host 1 by TCP, which are compared there.
const TRANSFER: &str = "\
import socket, sys
data = bytes(range(256)) * 8192
if sys.argv[1] == 'send':
    with socket.create_connection((sys.argv[2], 4000)) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1) == b'!'
else:
    with socket.create_server(('0.0.0.0', 4000)) as server:
        open('listens', 'w').close()
        peer = server.accept()[0]
        with peer, peer.makefile('rb') as received:
            assert received.read() == data
            peer.sendall(b'!')
print('done')
";

#[test]
fn ip_packets_of_hosts_cross_the_emulated_network() {
    let (Some(()), Some(())) = (permitted(), needs(&["ip", "busybox", "python3"])) else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        return skipped("there is no /dev/net/tun");
    }
    let folder = Folder::new();
    folder.write("transfer.py", TRANSFER);
    let lines = "\
        h0 busybox ping -c 3 -i 0.2 h1\n\
        link h1 s0 down\n\
        h0 busybox ping -c 1 -W 1 h1 > /dev/null\n\
        link h1 s0 up\n\
        h1 exec python3 transfer.py serve &\n\
        h0 until [ -e listens ]; do sleep 0.05; done; python3 transfer.py send h1\n\
        sh ping -c 1 -W 5 h1 > /dev/null || busybox ping -c 1 -W 5 h1 > /dev/null; echo launcher $?\n";
    let network = "star:hosts=2,rate=50M,delay=2ms";
    let topology = ["--netns", "--tcp", "emulated", "--topology", network, "--transport", "roce,rto=local-ack-timeout"];
    let (output, json) = shell(&folder, &topology, lines);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("3 packets transmitted, 3 packets received, 0% packet loss"), "{out}{err}");
    assert!(out.contains("\ndone\n") && out.contains("launcher 0\n") && err.contains("exit status 1\n"), "{out}{err}");
    // Two links of 2 ms each way.
    let fastest = out.split("min/avg/max = ").nth(1).and_then(|rest| rest.split('/').next()?.parse::<f64>().ok());
    assert!(fastest.is_some_and(|ms| ms >= 8.0), "{out}");
    assert!(err.contains("  IP packets of hosts: "), "{err}");
    assert!(json["ip"]["received"].as_u64().is_some_and(|packets| packets > 1_400), "{json}");
    let pair = json["pairs"].as_array().expect("pairs").iter().find(|pair| pair["from"] == 0).expect("host 0's");
    assert!(pair["bytes"].as_u64().is_some_and(|bytes| bytes > 2_097_152), "{pair}");
    assert!(pair["throughput_bps"].as_f64().is_some_and(|rate| rate <= 50e6), "{pair}");
    for (options, said) in [
        (&["--tcp", "emulated"][..], "--tcp emulated: hosts have no IP packets of their own without --netns"),
        (
            &["--netns", "--tcp", "emulated", "--clock", "virtual"],
            "--clock virtual: kernels do not tell when they wait",
        ),
    ] {
        let args = [&["lab", "--topology", "star:hosts=2"], options, &["--", "true"]].concat();
        let output = irnic(&folder).args(args).output().expect("irnic runs");
        let err = text(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(said), "{err}");
    }
}
