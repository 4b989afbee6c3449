//! Pulled streams (NDP) between NICs: windows, the one queue of pulls, responses before data, returned packets.

use std::cell::RefCell;
use std::rc::Rc;

use irnic_nic::NicConfig;
use irnic_nic::frame::{Icrc, RxFrame, RxIcrc, emit_frame, receive_frame};
use irnic_transports::config::TransportConfig;
use irnic_transports::wire::{FeedbackKind, ICRC_LEN, IrnEth, icrc_append, parse};
use irnic_transports::{Mark, Path, Time};

use crate::common::{Connection, Network, connect, create, pair, path};
use crate::transfer::{check, post};

/// A frame that a NIC has sent.
struct Sent {
    from: usize,
    at: Time,
    /// Whether it has payload.
    data: bool,
    /// The number of pulls so far, if it is a pull.
    pulls: Option<u32>,
    /// The destination queue pair.
    qpn: u32,
}

fn connection(transport: &str) -> Connection {
    Connection { transport: [transport.parse::<TransportConfig>().unwrap(); 2], ..Connection::default() }
}

/// Runs until nothing happens any more. Returns all frames sent, those of a step with its time.
fn run(net: &mut Network) -> Vec<Sent> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let frames = Rc::clone(&seen);
    net.watch = Some(Box::new(move |from, _, frame| {
        let (headers, payload) = parse(frame).unwrap();
        let pulls = match headers.irn {
            Some(IrnEth::Feedback { kind, pull, .. }) if kind.has(FeedbackKind::PULL) => Some(pull.get()),
            _ => None,
        };
        let qpn = headers.bth.dest_qp;
        frames.borrow_mut().push(Sent { from, at: Time::ZERO, data: !payload.is_empty(), pulls, qpn });
    }));
    let mut all = Vec::new();
    while net.step() {
        let at = net.now;
        all.extend(seen.borrow_mut().drain(..).map(|sent| Sent { at, ..sent }));
    }
    net.watch = None;
    all
}

#[test]
fn a_packet_goes_for_each_pull_after_the_first_window() {
    for read in [false, true] {
        let (mut net, ends) = pair("", 1, &connection("ndp,iw=4,line-rate=1G"));
        let regions = post(&mut net, ends, 40, read);
        let (mut packets, mut pulls) = (0, 0);
        let sender = usize::from(read);
        for sent in run(&mut net) {
            packets += u32::from(sent.from == sender && sent.data);
            if sent.from != sender {
                pulls = pulls.max(sent.pulls.unwrap_or(0));
            }
            assert!(packets <= 4 + pulls, "{packets} packets after {pulls} pulls");
        }
        // The last window needs none.
        assert_eq!((packets, pulls), (40, 36), "read {read}");
        check(&mut net, ends, &regions);
    }
}

#[test]
fn what_was_trimmed_goes_when_it_is_pulled_without_a_timeout() {
    for read in [false, true] {
        let (mut net, ends) = pair("", 3, &connection("ndp,iw=16,line-rate=1G,rto=50ms"));
        net.trims = 30;
        let regions = post(&mut net, ends, 200, read);
        run(&mut net);
        check(&mut net, ends, &regions);
        let stats = [0, 1].map(|i| net.nics[i].qp(ends[i].qpn).unwrap().counts());
        let (sender, receiver) = if read { (&stats[1], &stats[0]) } else { (&stats[0], &stats[1]) };
        assert!(receiver.rx_trimmed > 20 && sender.retransmitted > receiver.rx_trimmed, "{receiver:?} {sender:?}");
        assert_eq!(sender.timeouts, 0);
    }
}

/// Two queue pairs write to a NIC with `classes` for its pulls. Returns the time of each one's last packet, and of all
/// pulls.
fn two_writers(classes: [u8; 2]) -> ([Time; 2], Vec<Time>) {
    let mut net = Network::new(2, "", 1, &NicConfig::default());
    let flows = classes.map(|class| {
        let c = connection(&format!("ndp,iw=4,line-rate=100M,pull-class={class}"));
        let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
        connect(&mut net, &c, ends);
        ends
    });
    let regions = flows.map(|ends| post(&mut net, ends, 60, false));
    let sent = run(&mut net);
    for (ends, regions) in flows.iter().zip(&regions) {
        check(&mut net, *ends, regions);
    }
    let last = flows.map(|ends| sent.iter().filter(|s| s.data && s.qpn == ends[1].qpn).map(|s| s.at).max().unwrap());
    let mut known = [0, 0];
    let pulls = sent.iter().filter(|s| {
        let flow = usize::from(s.qpn == flows[1][0].qpn);
        s.from == 1 && s.pulls.is_some_and(|pulls| std::mem::replace(&mut known[flow], pulls) != pulls)
    });
    (last, pulls.map(|s| s.at).collect())
}

#[test]
fn one_pace_and_strict_classes_hold_for_the_pulls_of_all_queue_pairs() {
    // 1,024 bytes and 82 of headers at 100 Mbit/s.
    const INTERVAL: u64 = 88_480;
    let (fair, pulls) = two_writers([3, 3]);
    assert_eq!(pulls.len(), 2 * 56);
    for pair in pulls.windows(2) {
        assert!(pair[1].since(pair[0]) + 1 >= INTERVAL, "{pair:?}");
    }
    assert!(fair[0].since(fair[1]).max(fair[1].since(fair[0])) <= 4 * INTERVAL, "{fair:?}");
    for classes in [[0, 7], [7, 0]] {
        let (last, pulls) = two_writers(classes);
        let [first, second] = if classes[0] == 0 { last } else { [last[1], last[0]] };
        // The second one's window was sent without pulls.
        assert!(second.since(first) >= 50 * INTERVAL, "{classes:?}: {last:?}");
        assert_eq!(pulls.len(), 2 * 56);
    }
}

/// Has a NIC send at most `budget` packets; returns their paths and frames.
fn take(net: &mut Network, nic: usize, budget: usize) -> Vec<(Path, Vec<u8>)> {
    let mut frames = Vec::new();
    net.nics[nic].poll_transmit(net.now, budget, |packet| {
        let mut frame = vec![0; packet.headers.frame_len(packet.payload.len())];
        emit_frame(packet, Some(packet.path), &mut frame);
        frames.push((*packet.path, frame));
        true
    });
    frames
}

fn give(net: &mut Network, nic: usize, (path, bytes): &(Path, Vec<u8>)) {
    let frame = RxFrame { path: *path, bytes, arrived: net.now, icrc: RxIcrc::Exact };
    receive_frame(&mut net.nics[nic], net.now, &frame, Icrc::Checked);
}

/// Returns a packet as a switch without room for it returns it.
fn returned((path, frame): &(Path, Vec<u8>)) -> (Path, Vec<u8>) {
    let mut path = path.with_mark(Mark::Returned);
    (path.src, path.dst) = (path.dst, path.src);
    let mut frame = frame[..parse(frame).unwrap().0.len()].to_vec();
    frame.extend([0; ICRC_LEN]);
    icrc_append(&path, 0, &mut frame);
    (path, frame)
}

#[test]
fn answers_go_before_data() {
    let (mut net, ends) = pair("", 1, &connection("ndp"));
    post(&mut net, ends, 8, false);
    post(&mut net, [ends[1], ends[0]], 8, false);
    let data = take(&mut net, 0, 8);
    assert_eq!(take(&mut net, 1, 1).len(), 1);
    give(&mut net, 1, &data[0]);
    let [answer] = &take(&mut net, 1, 1)[..] else { panic!("one packet") };
    let headers = parse(&answer.1).unwrap().0;
    assert!(
        matches!(headers.irn, Some(IrnEth::Feedback { subject, .. }) if subject == parse(&data[0].1).unwrap().0.bth.psn)
    );
}

#[test]
fn a_packet_that_comes_back_goes_again_another_way() {
    let (mut net, ends) = pair("", 1, &connection("ndp,iw=8,paths=16"));
    let regions = post(&mut net, ends, 8, false);
    let data = take(&mut net, 0, 8);
    assert_eq!(data.len(), 8);
    let psn = |frame: &[u8]| parse(frame).unwrap().0.bth.psn;
    let ways: Vec<u16> = data.iter().map(|(path, _)| path.udp_src).collect();
    assert!(ways.iter().enumerate().all(|(i, way)| !ways[..i].contains(way)), "{ways:?}");
    give(&mut net, 0, &returned(&data[3]));
    assert!(take(&mut net, 0, 8).is_empty(), "not unasked, while others are under way");
    for (at, packet) in data.iter().enumerate().filter(|(at, _)| *at != 3) {
        give(&mut net, 1, packet);
        for answer in take(&mut net, 1, 8) {
            give(&mut net, 0, &answer);
        }
        let now = net.nics[1].next_deadline().max(net.now);
        net.now = if now == Time::NEVER { net.now } else { now };
        net.nics[1].on_deadline(net.now);
        if let [again] = &take(&mut net, 0, 8)[..] {
            assert_eq!(psn(&again.1), psn(&data[3].1), "after {at}");
            assert_ne!(again.0.udp_src, ways[3]);
            give(&mut net, 1, again);
        }
    }
    run(&mut net);
    check(&mut net, ends, &regions);
    assert_eq!(net.nics[0].qp(ends[0].qpn).unwrap().counts().retransmitted, 1);
}

#[test]
fn what_comes_back_from_elsewhere_changes_nothing() {
    let (mut net, ends) = pair("", 1, &connection("ndp,iw=8"));
    let regions = post(&mut net, ends, 8, false);
    let data = take(&mut net, 0, 8);
    let dropped = net.nics[0].counters().rx_dropped;
    // From an unrelated host; with the number of a queue pair that does not exist; never sent.
    let (mut path_of, mut frame) = returned(&data[2]);
    path_of.src = path(5, 0).src;
    icrc_append(&path_of, 0, &mut frame);
    give(&mut net, 0, &(path_of, frame));
    let (path_of, mut frame) = returned(&data[2]);
    let word = frame.len() - ICRC_LEN - 1;
    frame[word] ^= 0x15;
    icrc_append(&path_of, 0, &mut frame);
    give(&mut net, 0, &(path_of, frame));
    assert_eq!(net.nics[0].counters().rx_dropped - dropped, 2);
    assert!(take(&mut net, 0, 8).is_empty());
    for packet in &data {
        give(&mut net, 1, packet);
    }
    run(&mut net);
    check(&mut net, ends, &regions);
    // Everything has arrived.
    give(&mut net, 0, &returned(&data[2]));
    assert!(take(&mut net, 0, 8).is_empty());
    assert_eq!(net.nics[0].qp(ends[0].qpn).unwrap().counts().retransmitted, 0);
}
