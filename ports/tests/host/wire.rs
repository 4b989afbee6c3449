//! Frames from other hosts when the process that owns the UDP port dies.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use irnic_ports::Port;
use irnic_ports::host::{HostPort, HostUdp};

use super::child::{Peer, Task};
use super::*;

/// Addresses of the loopback interface that no other test has.
fn addresses() -> [IpAddr; 2] {
    let [_, b, c, d] = (std::process::id() << 1).to_be_bytes();
    [0, 1].map(|i| IpAddr::from([127, 64 | b & 63, c, d | i]))
}

#[test]
fn when_the_owner_is_killed_another_passes_frames_on() {
    let _alone = alone();
    let [here, there] = addresses();
    let domain = fresh_domain();
    let mut far = HostPort::open(&config(&fresh_domain(), there, 1, HostUdp::On)).expect("a port");
    assert_eq!(far.take_warnings(), []);
    let begin = |slot| {
        let task = Task { address: here, udp: true, ..Task::new("echo", &domain, slot) };
        (slot, task.start(None).expect("a process"))
    };
    // The first has the port; each that dies leaves it to one of the others.
    let mut peers: Vec<(u16, Peer)> = (2..5).map(begin).collect();
    let start = Instant::now();
    for round in 0..30 {
        for (slot, _) in &peers {
            let note = Note { number: round, to: qp_of(*slot), reply_to: qp_of(1), generation: 0 };
            let asked = Instant::now();
            let mut answered = false;
            while !answered {
                assert!(send(&mut far, since(start), &path(there, here), &note, 900));
                // A datagram to a port that nobody has at the moment may be reported as an error.
                let _ = far.flush(since(start));
                far.wait(Duration::from_millis(5)).expect("wait");
                far.receive(since(start), 64, &mut |frame| {
                    let answer = Note::read(frame.bytes);
                    answered |= (answer.number, answer.reply_to) == (round, note.to);
                })
                .expect("receive");
                assert!(asked.elapsed() < HANG, "round {round}: slot {slot} is not reached");
            }
        }
        let (_, mut oldest) = peers.remove(0);
        oldest.kill();
        peers.push(begin(5 + round as u16));
    }
}
