//! Congestion control in a NIC: the packets on the wire, and their times.

use std::cell::RefCell;
use std::rc::Rc;

use irnic_nic::{Mr, Nic};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
use irnic_transports::telemetry::{Hop, Int};
use irnic_transports::{RxPacket, Sideband, Time};

use crate::common::{Connection, End, Network, pair, region};

const MS: u64 = 1_000_000;
/// RC acknowledgement, and congestion notification packet: BTH's first byte.
const ACK: u8 = 0x11;
const CNP: u8 = 0x81;
const READ: u8 = 0x0c;

fn transport(preset: &str, congestion: &str) -> TransportConfig {
    let mut config: TransportConfig = preset.parse().unwrap();
    config.congestion = congestion.parse().unwrap();
    (config.line_rate, config.base_rtt) = (40_000_000_000, 4_000);
    config
}

/// Returns a constant rate, of a line of 40 Gbit/s.
fn fixed(share: &str) -> String {
    format!("timely,t-low=0,t-high=3600s,add=1,hai=1,gain=1/1000000,initial={share}")
}

fn post(net: &mut Network, from: End, op: SendOp, local: &Mr, remote: &Mr, len: usize) {
    let sges = [Sge { addr: local.addr, len: len as u32, lkey: local.lkey }];
    let wr = SendWr {
        wr_id: 0,
        op,
        data: SendData::Sges(&sges),
        remote_addr: remote.addr,
        rkey: remote.rkey,
        signaled: true,
        solicited: false,
        fence: false,
        to: None,
        remote_srqn: 0,
    };
    net.nics[from.nic].post_send(from.qpn, &wr).unwrap();
}

/// Runs until the network is silent; returns the times and statuses of completions.
fn run(net: &mut Network, ends: [End; 2]) -> [Vec<(u64, WcStatus)>; 2] {
    let mut done = [Vec::new(), Vec::new()];
    while net.step() {
        for (end, done) in ends.iter().zip(&mut done) {
            let mut wcs = [Wc::EMPTY; 16];
            while let Ok(n @ 1..) = net.nics[end.nic].poll_cq(end.cq, &mut wcs) {
                assert!(wcs[..n].iter().all(|wc| matches!(wc.opcode, WcOpcode::RdmaWrite | WcOpcode::RdmaRead)));
                done.extend(wcs[..n].iter().map(|wc| (net.now.0, wc.status)));
            }
        }
        assert!(net.steps < 1_000_000);
    }
    done
}

/// Packets sent: the sender, the first byte, and BECN.
type Seen = Rc<RefCell<Vec<(usize, u8, bool)>>>;

fn watch(net: &mut Network) -> Seen {
    let seen = Seen::default();
    let to = seen.clone();
    net.tamper = Some(Box::new(move |from, frame| {
        to.borrow_mut().push((from, frame[0], frame[4] & 0x40 != 0));
        true
    }));
    seen
}

#[test]
fn marks_are_echoed_once_each() {
    for preset in ["roce,rto=1ms", "irn"] {
        for share in [1, 20, 100] {
            let c = Connection { transport: [transport(preset, "dctcp"); 2], ..Connection::default() };
            let (mut net, ends) = pair(&format!("loss {share}% ecn delay 5us"), 7, &c);
            let seen = watch(&mut net);
            let (a, b) = (region(&mut net, ends[0], 200_000, |_| 1), region(&mut net, ends[1], 200_000, |_| 2));
            post(&mut net, ends[0], SendOp::Write, &a, &b, 200_000);
            let [done, _] = run(&mut net, ends);
            assert_eq!(done.len(), 1);
            // Every packet is acknowledged separately, so that each mark is reported by one acknowledgement; and by
            // nothing else.
            let marks = net.nics[1].counters().np_ecn_marked_roce_packets;
            let seen = seen.borrow();
            let becn: Vec<_> = seen.iter().filter(|s| s.2).collect();
            assert!(becn.iter().all(|s| (s.0, s.1) == (1, ACK)));
            assert_eq!(becn.len() as u64, marks, "{preset} {share}");
            assert!(marks > 0 && (share < 100 || marks == 196), "{marks}");
        }
    }
}

/// Passes everything that one NIC sends to the other; telemetry that switches may fill in gets the record from `hop`.
/// Returns the telemetry with which each packet left.
fn carry(net: &mut Network, from: usize, hop: &mut impl FnMut() -> Hop) -> Vec<Option<Int>> {
    let now = net.now;
    let [a, b] = &mut net.nics[..] else { panic!("two NICs") };
    let (from, to): (&mut Nic, &mut Nic) = if from == 0 { (a, b) } else { (b, a) };
    let mut left = Vec::new();
    from.poll_transmit(now, usize::MAX, |packet| {
        left.push(packet.sideband.telemetry.copied());
        let mut int = packet.sideband.telemetry.copied();
        int.iter_mut().for_each(|int| int.push(1, hop()));
        let packet = RxPacket {
            headers: packet.headers,
            path: packet.path,
            payload: packet.payload,
            arrived: now,
            sideband: Sideband { telemetry: int.as_ref(), ..packet.sideband },
        };
        to.receive(now, &packet);
        true
    });
    left
}

#[test]
fn telemetry_goes_with_requests_and_comes_back_once_with_the_latest_acknowledgement() {
    for preset in ["irn", "roce"] {
        for (sender, receiver, wants) in [("hpcc", "hpcc", true), ("hpcc", "none", true), ("none", "hpcc", false)] {
            let c = Connection {
                transport: [transport(preset, sender), transport(preset, receiver)],
                ..Connection::default()
            };
            let (mut net, ends) = pair("", 1, &c);
            let (a, b) = (region(&mut net, ends[0], 8 * 1024, |_| 1), region(&mut net, ends[1], 8 * 1024, |_| 2));
            post(&mut net, ends[0], SendOp::Write, &a, &b, 8 * 1024);
            let mut at = 0;
            let mut hop = || {
                at += 1;
                Hop { rate: 40_000_000_000, at, sent: 0, queued: 0 }
            };
            let what = format!("{sender} to {receiver} on {preset}");
            let requests = carry(&mut net, 0, &mut hop);
            assert_eq!(requests, vec![wants.then_some(Int::EMPTY); 8], "{what}");
            // One acknowledgement for all that arrived together, with the latest telemetry; switches on its path add
            // nothing.
            let answers = carry(&mut net, 1, &mut hop);
            let latest: Vec<_> =
                answers.iter().map(|int| int.map(|i| (i.is_answer(), i.hops()[0].at, i.hops().len()))).collect();
            assert_eq!(latest, [wants.then_some((true, 8, 1))], "{what}");
            // The other direction's is for its own sender.
            post(&mut net, ends[1], SendOp::Write, &b, &a, 10);
            let other = carry(&mut net, 1, &mut hop);
            assert_eq!(other, [(receiver == "hpcc").then_some(Int::EMPTY)], "{what}");
        }
    }
}

#[test]
fn nobody_who_was_not_asked_notifies_and_nobody_else_heeds() {
    // The notification point is the receiver's configuration, the reaction point the sender's.
    for (sender, receiver, sent, handled) in
        [("dcqcn", "dcqcn", true, true), ("dctcp", "dcqcn", true, true), ("dcqcn", "none", false, false)]
    {
        let c =
            Connection { transport: [transport("irn", sender), transport("irn", receiver)], ..Connection::default() };
        let (mut net, ends) = pair("loss 100% ecn delay 5us", 7, &c);
        // A receiver without congestion control is not ECN-capable: its packets are lost here.
        let seen = watch(&mut net);
        let (a, b) = (region(&mut net, ends[0], 50_000, |_| 1), region(&mut net, ends[1], 50_000, |_| 2));
        post(&mut net, ends[0], SendOp::Write, &a, &b, 50_000);
        for _ in 0..200 {
            net.step();
        }
        let cnps = seen.borrow().iter().filter(|s| s.1 == CNP).count() as u64;
        assert_eq!(cnps, net.nics[1].counters().np_cnp_sent);
        assert_eq!((cnps > 0, net.nics[0].counters().rp_cnp_handled > 0), (sent, handled), "{sender} {receiver}");
    }
}

#[test]
fn marks_on_what_a_read_brings_slow_down_the_next() {
    for preset in ["roce,rto=10ms", "irn"] {
        // Time of 20 READs of 100,000 bytes.
        let time = |impairment: &str| {
            let c = Connection { transport: [transport(preset, "dcqcn"); 2], ..Connection::default() };
            let (mut net, ends) = pair(impairment, 7, &c);
            let (a, b) = (region(&mut net, ends[0], 100_000, |_| 1), region(&mut net, ends[1], 100_000, |_| 2));
            let start = net.now.0;
            (0..20).for_each(|_| post(&mut net, ends[0], SendOp::Read, &a, &b, 100_000));
            let [done, _] = run(&mut net, ends);
            assert_eq!(done.len(), 20);
            (done[19].0 - start, *net.nics[0].counters(), *net.nics[1].counters())
        };
        let (clean, one, _) = time("delay 5us rate 40gbit");
        assert_eq!(one.np_ecn_marked_roce_packets, 0);
        let (marked, one, other) = time("loss 100% ecn delay 5us rate 40gbit");
        // The requester has seen the mark of each response and sent no notification; α begins at 1, so each mark in 50
        // µs halves the rate.
        assert_eq!(
            (one.np_ecn_marked_roce_packets, one.np_cnp_sent, other.rp_cnp_handled),
            (20 * 98, 0, 0),
            "{preset}"
        );
        assert!(marked > 5 * clean, "{preset}: {marked} after {clean}");
    }
}

#[test]
fn what_answers_the_peer_does_not_wait_for_the_rate() {
    // 10 Mbit/s one way, at which the last of 64,000 bytes leave when 61,440 are paid for, minus the half segment of
    // credit: 42.7 ms. The other way is unlimited, and its acknowledgements and responses go through the same queue
    // pair.
    for (preset, congestion) in [("roce", fixed("0.00025")), ("irn", fixed("0.00025"))] {
        let slow = transport(preset, &congestion);
        let c = Connection { transport: [slow, transport(preset, "none")], ..Connection::default() };
        let (mut net, ends) = pair("delay 1us", 1, &c);
        let (a, b) = (region(&mut net, ends[0], 128_000, |_| 1), region(&mut net, ends[1], 128_000, |_| 2));
        post(&mut net, ends[0], SendOp::Write, &a, &b, 64_000);
        for op in [SendOp::Write, SendOp::Read] {
            post(&mut net, ends[1], op, &b, &a, 128_000);
        }
        let start = net.now.0;
        let [one, other] = run(&mut net, ends);
        assert_eq!((one.len(), other.len()), (1, 2));
        assert!(one[0].0 - start > 42 * MS, "{preset}: {}", one[0].0 - start);
        assert!(other.iter().all(|(at, _)| at - start < MS), "{preset}");
    }
}

#[test]
fn acknowledgements_have_their_priority_unless_a_response_could_be_on_its_way() {
    for (preset, answered) in [("roce", 0), ("irn", 7)] {
        let c = Connection {
            transport: [transport(&format!("{preset},ack-priority=7"), "none"); 2],
            ..Connection::default()
        };
        let (mut net, ends) = pair("delay 1us", 1, &c);
        let (a, b) = (region(&mut net, ends[0], 10_000, |_| 1), region(&mut net, ends[1], 10_000, |_| 2));
        let classes: Rc<RefCell<Vec<(u8, u8)>>> = Rc::default();
        for (op, expected) in [(SendOp::Write, 7), (SendOp::Read, answered), (SendOp::Write, answered)] {
            classes.borrow_mut().clear();
            let to = classes.clone();
            net.watch = Some(Box::new(move |from, path, frame| {
                if from == 1 {
                    to.borrow_mut().push((frame[0], path.traffic_class >> 5));
                }
            }));
            post(&mut net, ends[0], op, &a, &b, 10_000);
            run(&mut net, ends);
            let classes = classes.borrow();
            let ok = |&(opcode, priority): &(u8, u8)| priority == if opcode == ACK { expected } else { 0 };
            assert!(!classes.is_empty() && classes.iter().all(ok), "{preset}: {classes:?}");
        }
    }
}

#[test]
fn reads_are_paced_by_the_bytes_that_they_bring() {
    // 100,000 bytes at 1 Gbit/s are 800 µs; the first READ has a credit of half a segment, 8000 bytes or 64 µs.
    for preset in ["roce", "irn"] {
        let c = Connection { transport: [transport(preset, &fixed("0.025")); 2], ..Connection::default() };
        let (mut net, ends) = pair("delay 1us", 1, &c);
        let (a, b) = (region(&mut net, ends[0], 100_000, |_| 1), region(&mut net, ends[1], 100_000, |_| 2));
        (0..4).for_each(|_| post(&mut net, ends[0], SendOp::Read, &a, &b, 100_000));
        let seen = watch(&mut net);
        let (start, mut at) = (net.now.0, Vec::new());
        while net.step() {
            let reads = seen.borrow().iter().filter(|s| (s.0, s.1 & 0x1f) == (0, READ)).count();
            at.resize(reads, net.now.0 - start);
        }
        assert_eq!(at.len(), 4);
        assert!(at[0] < 10_000);
        for (n, at) in (1..).zip(&at[1..]) {
            assert!(at.abs_diff(n * 800_000 - 64_000) < 10_000, "{preset}: READ {n} at {at}");
        }
    }
}

#[test]
fn a_read_that_is_asked_again_does_not_wait_for_what_did_not_come() {
    // 1 MB at 1 Gbit/s are 8 ms. The tenth response is lost.
    let c = Connection { transport: [transport("roce,rto=1ms", &fixed("0.025")); 2], ..Connection::default() };
    let (mut net, ends) = pair("delay 1us", 1, &c);
    let (a, b) = (region(&mut net, ends[0], 1_000_000, |_| 1), region(&mut net, ends[1], 1_000_000, |_| 2));
    let mut left = 10;
    net.tamper = Some(Box::new(move |from, _| {
        left -= i32::from(from == 1);
        left != 0 || from == 0
    }));
    let start = net.now.0;
    post(&mut net, ends[0], SendOp::Read, &a, &b, 1_000_000);
    let [done, _] = run(&mut net, ends);
    assert_eq!(done.len(), 1);
    assert!(done[0].0 - start < 2 * MS, "{}", done[0].0 - start);
    assert!(net.nics[0].counters().retransmitted_pkts > 0);
}

#[test]
fn a_peer_is_not_given_up_while_the_rate_holds_what_it_would_answer() {
    // At 1 Mbit/s a segment of 15 packets is paid for after 59 ms, with its credit; until then the last of them, which
    // is lost, is not resent. The patience of seven retries of 262 µs is 2 ms.
    for preset in ["roce,rto=300us", "irn"] {
        let c = Connection {
            transport: [transport(preset, &format!("{},min-rate=1M", fixed("0.000025"))); 2],
            timeout: 6,
            ..Connection::default()
        };
        let (mut net, ends) = pair("delay 1us", 1, &c);
        let (a, b) = (region(&mut net, ends[0], 15_360, |_| 1), region(&mut net, ends[1], 15_360, |_| 2));
        let mut left = 15;
        net.tamper = Some(Box::new(move |from, _| {
            left -= i32::from(from == 0);
            left != 0 || from == 1
        }));
        let start = net.now.0;
        post(&mut net, ends[0], SendOp::Write, &a, &b, 15_360);
        let [done, _] = run(&mut net, ends);
        assert_eq!(done.iter().map(|d| d.1).collect::<Vec<_>>(), [WcStatus::Success], "{preset}");
        assert!(done[0].0 - start > 50 * MS, "{preset}: {}", done[0].0 - start);
        assert!(net.nics[0].counters().local_ack_timeout_err <= 1, "{preset}");
        assert_eq!(net.next(), Time::NEVER);
    }
}
