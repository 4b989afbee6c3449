//! IRN §4.5.3: retransmissions have to be fetched from the host first.

use irnic_transports::Psn;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{SendOp, WcStatus::*};
use irnic_transports::wire::{Opcode, parse};

use crate::kit::{Case, Duo};

/// Returns ends with the same transport, 5 µs apart for any packet; end `from` loses each packet of `lost` once,
/// counted from its first one.
fn losing(transport: &str, from: usize, which: fn(Opcode) -> bool, lost: &[i32]) -> Duo {
    let mut d = Duo::with(&Case { transport: "irn", impairments: "delay 5us", seed: 1 }, |c| {
        c.transport = [transport.parse::<TransportConfig>().expect("a transport"); 2];
        c.timeout = 14;
    });
    let mut lost = lost.to_vec();
    let mut first: Option<Psn> = None;
    d.net.tamper = Some(Box::new(move |sender, frame| {
        let bth = parse(frame).expect("a packet").0.bth;
        if sender != from || !which(bth.opcode) {
            return true;
        }
        let k = bth.psn.distance(*first.get_or_insert(bth.psn));
        let hit = lost.iter().position(|l| *l == k);
        hit.map(|at| lost.swap_remove(at)).is_none()
    }));
    d
}

/// Returns the packets that `end` has resent by these times, in ns from the post of a message of `packets`.
fn again(d: &mut Duo, op: SendOp, packets: u32, end: usize, times: &[u64]) -> Vec<u64> {
    d.post(1, op, packets * 1024);
    let mut found = Vec::new();
    let mut at = 0;
    for time in times {
        d.run_for(time - at);
        at = *time;
        found.push(d.net.nics[end].counters().retransmitted_pkts);
    }
    d.run();
    assert_eq!(d.done(0), [(1, Success)]);
    found
}

/// The NACK arrives after 10 µs, and so do those that follow it.
const TIMES: [u64; 7] = [9_999, 10_000, 11_999, 12_000, 13_999, 14_000, 20_000];

fn request(opcode: Opcode) -> bool {
    !opcode.is_response()
}

fn response(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::RcReadResponseFirst | Opcode::RcReadResponseMiddle | Opcode::RcReadResponseLast)
}

/// Packets 1, 3 and 4 of 7 are lost. Loss recovery finds the first, each look-ahead the next: with a delay each waits
/// from then on.
#[test]
fn every_packet_that_is_found_missing_waits_for_its_payload() {
    for (transport, found) in [
        ("irn", [0, 3, 3, 3, 3, 3, 3]),
        ("irn,retransmit-delay=2us", [0, 0, 0, 1, 1, 2, 3]),
        // One by one, each when the previous one is acknowledged; plus the delay.
        ("irn-no-sack", [0, 1, 1, 1, 1, 1, 2]),
        ("irn-no-sack,retransmit-delay=2us", [0, 0, 0, 1, 1, 1, 1]),
    ] {
        for (op, end, which) in
            [(SendOp::Write, 0, request as fn(Opcode) -> bool), (SendOp::Read, 1, response as fn(Opcode) -> bool)]
        {
            let mut d = losing(transport, end, which, &[1, 3, 4]);
            // A READ's responses begin when its request has arrived.
            let times = TIMES.map(|t| t + 5_000 * end as u64);
            assert_eq!(again(&mut d, op, 7, end, &times), found, "{transport} {op:?}");
        }
    }
}

/// Going back fetches everything at once. In plain RoCE, too.
#[test]
fn going_back_waits_once() {
    for transport in ["irn-go-back-n", "roce"] {
        let mut d = losing(transport, 0, request, &[1]);
        assert_eq!(again(&mut d, SendOp::Write, 7, 0, &TIMES), [0, 6, 6, 6, 6, 6, 6], "{transport}");
        let mut d = losing(&format!("{transport},retransmit-delay=2us"), 0, request, &[1]);
        assert_eq!(again(&mut d, SendOp::Write, 7, 0, &TIMES), [0, 0, 0, 6, 6, 6, 6], "{transport}");
    }
}

/// Plain RoCE: a READ is resent as one request, from the first missing packet on.
#[test]
fn asking_for_a_read_again_waits_too() {
    for (transport, found) in [("roce", [0, 1, 1, 1]), ("roce,retransmit-delay=2us", [0, 0, 0, 1])] {
        let mut d = losing(transport, 1, response, &[2]);
        assert_eq!(again(&mut d, SendOp::Read, 7, 0, &TIMES[..4]), found, "{transport}");
    }
}

/// A timeout is a detection like others.
#[test]
fn a_timeout_waits_too() {
    for (transport, times) in [
        ("irn,rto-low=50us,rto-high=50us", [49_999, 50_000, 50_001, 60_000]),
        ("irn,rto-low=50us,rto-high=50us,retransmit-delay=2us", [50_000, 51_999, 52_000, 60_000]),
    ] {
        let mut d = losing(transport, 0, request, &[0]);
        let found = again(&mut d, SendOp::Write, 1, 0, &times);
        let due = if times[1] == 50_000 { [0, 1, 1, 1] } else { [0, 0, 1, 1] };
        assert_eq!(found, due, "{transport}");
    }
}

/// New packets were fetched ahead of time and are sent at once; behind a go-back they have to follow it.
#[test]
fn new_packets_do_not_wait() {
    for (transport, early) in [("irn,retransmit-delay=2us", true), ("irn-go-back-n,retransmit-delay=2us", false)] {
        let mut d = losing(transport, 0, request, &[1]);
        d.post(1, SendOp::Write, 7 * 1024);
        d.run_for(10_500);
        let sent = d.net.nics[0].counters().sent_bytes;
        d.post(2, SendOp::Write, 1024);
        d.run_for(500);
        let counters = *d.net.nics[0].counters();
        assert_eq!((counters.sent_bytes - sent, counters.retransmitted_pkts), (1024 * u64::from(early), 0));
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)]);
    }
}

/// A packet that arrives after all while it is fetched is not sent again.
#[test]
fn what_arrives_meanwhile_is_not_sent() {
    // A round trip of 50 µs, a timer of 49.
    let case = Case { transport: "irn", impairments: "delay 25us", seed: 1 };
    for (delay, again) in [("0", 1), ("2us", 0)] {
        let mut d = Duo::with(&case, |c| {
            c.transport =
                [format!("irn,rto-low=49us,rto-high=49us,retransmit-delay={delay}").parse().expect("it is"); 2]
        });
        d.post(1, SendOp::Write, 1024);
        d.run();
        assert_eq!(d.net.nics[0].counters().retransmitted_pkts, again, "{delay}");
        assert_eq!(d.done(0), [(1, Success)]);
    }
}
