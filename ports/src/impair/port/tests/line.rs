//! Lines that trim, and lines with room for red frames.

use irnic_transports::psn::Psn;
use irnic_transports::wire::{Bth, FeedbackKind, Headers, IrnEth, NdpWord, Opcode, parse, parse_trimmed};

use super::*;
use crate::TxFrame;

const PAYLOAD: usize = 1000;
/// BTH, two words of IRN, NDP's word, ICRC.
const CUT: usize = 12 + 8 + 4 + 4;
/// On a line over IPv4 in bytes, and at 8 Gbit/s in ns.
const WHOLE_WIRE: u64 = (42 + CUT + PAYLOAD) as u64;
const CUT_WIRE: u64 = (42 + CUT) as u64;
const SOURCE: u32 = 0x123;

/// Returns a SEND with this PSN.
fn send_headers(psn: u32, pulled: bool) -> Headers {
    let irn = IrnEth::Send { recv_wqe_sn: Psn::new(psn), psn_offset: 0 };
    let ndp = if pulled { NdpWord::new(SOURCE, false) } else { None };
    Headers { irn: Some(irn), ndp, ..Headers::new(Bth::new(Opcode::RcSendOnly, 0x456, Psn::new(psn))) }
}

fn acknowledgement(opcode: Opcode, psn: u32) -> Headers {
    let aeth = Some(Default::default());
    let psn = Psn::new(psn);
    let irn = match opcode {
        Opcode::RcAcknowledge => IrnEth::Ack { selective: psn, run: 0 },
        _ => IrnEth::Feedback { kind: FeedbackKind::PULL, subject: psn, path: 0, pull: psn },
    };
    Headers { irn: Some(irn), aeth, ..Headers::new(Bth::new(opcode, 0x456, psn)) }
}

fn bytes_of(headers: &Headers, payload: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; headers.frame_len(payload)];
    headers.emit(&mut frame);
    icrc_append(&path(), 0, &mut frame);
    frame
}

fn data(psn: u32) -> Vec<u8> {
    bytes_of(&send_headers(psn, true), PAYLOAD)
}

/// Returns a traffic class with these three low bits of the DSCP, priority 5 and ECT.
fn class(colour: u8) -> u8 {
    5 << 5 | colour << 2 | 0b10
}

fn arrive(port: &mut Impaired<Wire>, at: u64, path: Path, bytes: Vec<u8>) {
    port.inner_mut().incoming.push_back((Time(at), path, bytes));
}

/// Makes the frames with these PSNs arrive at once.
fn burst(port: &mut Impaired<Wire>, psns: impl IntoIterator<Item = u32>) {
    for psn in psns {
        arrive(port, 0, Path { traffic_class: class(0), ..path() }, data(psn));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    at: u64,
    path: Path,
    icrc: RxIcrc,
    bytes: Vec<u8>,
}

impl Got {
    fn psn(&self) -> u32 {
        parse_trimmed(&self.bytes)
            .map(|headers| headers.bth.psn)
            .or_else(|_| parse(&self.bytes).map(|p| p.0.bth.psn))
            .unwrap()
            .get()
    }

    fn colour(&self) -> u8 {
        self.path.traffic_class >> 2 & 7
    }
}

fn take(port: &mut Impaired<Wire>, now: u64) -> Vec<Got> {
    let mut got = Vec::new();
    let given = port.receive(Time(now), 64, &mut |frame| {
        got.push(Got { at: frame.arrived.0, path: frame.path, icrc: frame.icrc, bytes: frame.bytes.to_vec() });
    });
    assert_eq!(given.unwrap(), got.len());
    got
}

#[test]
fn a_trimmed_frame_is_its_headers_with_marks_and_an_icrc() {
    let mut port = impaired("rx rate 8gbit trim 1");
    burst(&mut port, 0..3);
    let got = take(&mut port, 10_000);
    let whole = &got[0];
    assert_eq!((whole.at, whole.psn(), whole.colour(), &whole.bytes), (WHOLE_WIRE, 0, 0, &data(0)));
    for (cut, i) in got[1..].iter().zip(1u32..) {
        assert_eq!((cut.psn(), cut.bytes.len(), cut.icrc), (i, CUT, RxIcrc::Exact));
        assert_eq!(cut.at, WHOLE_WIRE + u64::from(i) * CUT_WIRE);
        // Priority and ECN are as they were.
        assert_eq!(cut.path, Path { traffic_class: class(3), ..path() });
        assert!(icrc_check(&cut.path, 0, &cut.bytes));
        assert_eq!(parse_trimmed(&cut.bytes), Ok(send_headers(i, true)));
        assert_eq!(cut.bytes[..CUT - 4], data(i)[..CUT - 4]);
    }
    assert_eq!(got.len(), 3);
    let Counters { seen, trimmed, delayed, header_drops, over_limit, .. } = *port.rx_counters();
    assert_eq!((seen, trimmed, delayed, header_drops, over_limit), (3, 2, 3, 0, 0));
}

#[test]
fn headers_wait_in_a_queue_of_their_own_and_others_are_dropped_at_the_tail() {
    let mut port = impaired("rx rate 8gbit trim 2 wrr 2");
    let mut plain = Headers::new(Bth::new(Opcode::RcSendOnly, 1, Psn::new(21)));
    plain.bth.dest_qp = 0x456;
    for bytes in [
        data(0),
        data(1),
        bytes_of(&acknowledgement(Opcode::RcAcknowledge, 2), 0),
        bytes_of(&acknowledgement(Opcode::RcFeedback, 3), 0),
        bytes_of(&acknowledgement(Opcode::RcReadFeedback, 4), 0),
        // Without NDP's word, and without IRN.
        bytes_of(&send_headers(20, false), PAYLOAD),
        bytes_of(&plain, PAYLOAD),
        // No payload: nothing to trim.
        bytes_of(&send_headers(5, true), 0),
    ] {
        arrive(&mut port, 0, path(), bytes);
    }
    // Red frames may not be trimmed, and nothing can be trimmed twice.
    arrive(&mut port, 0, Path { traffic_class: class(1), ..path() }, data(22));
    arrive(&mut port, 0, Path { traffic_class: class(3), ..path() }, data(6)[..CUT].to_vec());
    let got: Vec<u32> = take(&mut port, 100_000).iter().map(Got::psn).collect();
    assert_eq!(got, [0, 2, 3, 1, 4, 5, 6]);
    let Counters { over_limit, trimmed, .. } = *port.rx_counters();
    assert_eq!((over_limit, trimmed), (3, 0));
}

#[test]
fn headers_that_find_no_room_go_back_once_by_the_same_port() {
    let headers = 2 * CUT_WIRE;
    let mut port = impaired(&format!("rx rate 8gbit trim 1 headers {headers} return"));
    burst(&mut port, 0..5);
    // One that was returned before, and one trimmed by another switch.
    arrive(&mut port, 0, Path { traffic_class: class(5), ..path() }, data(5)[..CUT].to_vec());
    arrive(&mut port, 0, Path { traffic_class: class(3), ..path() }, data(6)[..CUT].to_vec());
    let flushes = port.inner().flushes;
    let got: Vec<u32> = take(&mut port, 100_000).iter().map(Got::psn).collect();
    assert_eq!(got, [0, 1, 2]);
    let back = Path { src: path().dst, dst: path().src, traffic_class: class(5), ..path() };
    let sent = &port.inner().sent;
    assert_eq!(
        sent.iter().map(|(_, _, bytes)| parse_trimmed(bytes).unwrap().bth.psn.get()).collect::<Vec<_>>(),
        [3, 4, 6]
    );
    for (_, path, bytes) in sent {
        assert_eq!((path, bytes.len()), (&back, CUT));
        assert!(icrc_check(path, 0, bytes));
        assert_eq!(frame_trim::receiver_qp(path, bytes), Some(SOURCE));
    }
    assert_eq!(port.inner().flushes, flushes + 1);
    let Counters { trimmed, returned, header_drops, .. } = *port.rx_counters();
    assert_eq!((trimmed, returned, header_drops), (4, 3, 1));
}

#[test]
fn what_goes_back_waits_for_room_in_the_port() {
    let mut port = impaired("rx rate 8gbit trim 1 headers 1 return");
    burst(&mut port, 0..3);
    port.inner_mut().room = Some(1);
    assert_eq!(take(&mut port, 100_000).len(), 1);
    assert_eq!(port.inner().sent.len(), 1);
    assert_eq!(port.next_deadline(), Time::NEVER);
    port.inner_mut().room = None;
    port.flush(Time(100_000)).unwrap();
    assert_eq!(port.inner().sent.len(), 2);
    assert_eq!(port.rx_counters().returned, 2);
}

#[test]
fn what_the_nic_sent_is_trimmed_too_and_comes_back_to_it() {
    let mut port = impaired("tx rate 8gbit trim 1 headers 80 return");
    let sent_by = Path { traffic_class: class(0), ..path() };
    for psn in 0..3 {
        let bytes = data(psn);
        let frame = TxFrame { path: &sent_by, dest_qp: 0x456, len: bytes.len(), icrc: true, irn: true };
        assert!(port.transmit(Time(0), &frame, &mut |to| to.copy_from_slice(&bytes)));
    }
    // At once: it never was on the line.
    assert_eq!(port.next_deadline(), Time::ZERO);
    let got = take(&mut port, 0);
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].psn(), got[0].colour(), got[0].path.src), (2, 5, path().dst));
    assert!(icrc_check(&got[0].path, 0, &got[0].bytes));
    assert_eq!(port.next_deadline(), Time(WHOLE_WIRE));
    port.flush(Time(WHOLE_WIRE - 1)).unwrap();
    assert_eq!(port.inner().sent, []);
    port.flush(Time(WHOLE_WIRE + CUT_WIRE)).unwrap();
    let sent: Vec<_> = port.inner().sent.iter().map(|(_, path, bytes)| (path.traffic_class, bytes.len())).collect();
    assert_eq!(sent, [(class(0), CUT + PAYLOAD), (class(3), CUT)]);
    assert!(port.inner().sent.iter().all(|(_, path, bytes)| icrc_check(path, 0, bytes)));
}

#[test]
fn no_room_behind_a_line_that_trims_loses_nothing_more() {
    let mut port = impaired("tx rate 8gbit trim 4");
    port.inner_mut().room = Some(0);
    let at = Path { traffic_class: class(0), ..path() };
    let send = |port: &mut Impaired<Wire>, now, psn| {
        let bytes = data(psn);
        let frame = TxFrame { path: &at, dest_qp: 0x456, len: bytes.len(), icrc: true, irn: true };
        port.transmit(Time(now), &frame, &mut |to| to.copy_from_slice(&bytes))
    };
    assert!((0..4).all(|psn| send(&mut port, 0, psn)));
    assert!(!send(&mut port, WHOLE_WIRE, 4));
    port.inner_mut().room = None;
    assert!(send(&mut port, 2 * WHOLE_WIRE, 4));
    port.flush(Time(100_000)).unwrap();
    assert_eq!(port.inner().sent.len(), 5);
    assert_eq!(port.tx_counters().trimmed, 0);
}

#[test]
fn a_damaged_frame_is_dropped_rather_than_trimmed_since_its_new_icrc_would_hide_that() {
    let mut port = impaired("rx rate 8gbit trim 1");
    burst(&mut port, [0]);
    let mut damaged = data(1);
    damaged[30] ^= 1;
    arrive(&mut port, 0, path(), damaged);
    assert_eq!(take(&mut port, 10_000).iter().map(Got::psn).collect::<Vec<_>>(), [0]);
    assert_eq!((port.rx_counters().trimmed, port.rx_counters().over_limit), (0, 1));
    // So is one that the line itself has damaged.
    let mut port = impaired("rx corrupt 100% rate 8gbit trim 1");
    burst(&mut port, 0..2);
    assert_eq!(take(&mut port, 10_000).len(), 1);
    assert_eq!(port.rx_counters().over_limit, 1);
}

#[test]
fn delay_comes_before_the_line() {
    let mut port = impaired("rx delay 1us rate 8gbit trim 1");
    burst(&mut port, 0..2);
    assert_eq!(take(&mut port, 999), []);
    assert_eq!(port.next_deadline(), Time(1000));
    assert_eq!(take(&mut port, 1000), []);
    assert_eq!(port.next_deadline(), Time(1000 + WHOLE_WIRE));
    let at: Vec<u64> = take(&mut port, 10_000).iter().map(|got| got.at).collect();
    assert_eq!(at, [1000 + WHOLE_WIRE, 1000 + WHOLE_WIRE + CUT_WIRE]);
}

#[test]
fn frames_meet_in_the_order_of_their_arrival_however_late_they_are_fetched() {
    // From two sources, one after the other; the line takes a microsecond for each.
    let arrivals = [0, 2 * WHOLE_WIRE, 4 * WHOLE_WIRE, WHOLE_WIRE, 3 * WHOLE_WIRE];
    for portion in [0, 1, 2] {
        let mut port = impaired("rx rate 8gbit trim 1");
        port.inner_mut().portion = portion;
        for (psn, at) in (0..).zip(arrivals) {
            arrive(&mut port, at, path(), data(psn));
        }
        let got: Vec<u32> = take(&mut port, 100_000).iter().map(Got::psn).collect();
        assert_eq!(got, [0, 3, 1, 4, 2]);
        assert_eq!(port.rx_counters().trimmed, 0);
    }
}

#[test]
fn red_frames_find_their_share_of_the_queue_and_others_all_of_it() {
    for (text, fits) in [("red 3", 3), ("red 3210b", 3), ("red 3209b", 2), ("red 3k", 2)] {
        let mut port = impaired(&format!("rx rate 8gbit {text}"));
        for psn in 0..10 {
            // Every other frame is red.
            arrive(&mut port, 0, Path { traffic_class: class((psn % 2) as u8), ..path() }, data(psn));
        }
        assert_eq!(WHOLE_WIRE, 1070);
        let got = take(&mut port, 100_000);
        assert_eq!(got.iter().filter(|got| got.colour() == 0).count(), 5, "{text}");
        let red: Vec<u32> = got.iter().filter(|got| got.colour() == 1).map(Got::psn).collect();
        assert_eq!(red, [1, 3, 5][..fits], "{text}");
        let [_, report] = port.impairments().unwrap();
        assert_eq!((report.counters.red_drops, report.counters.over_limit), (5 - fits as u64, 0));
        let queue = report.red.unwrap();
        assert_eq!((queue.frames, queue.peak_bytes), (fits as u64, (fits as u64 - 1) * WHOLE_WIRE));
        assert!(report.numbers().any(|number| number == ("red_queue_frames", fits as u64)));
    }
}

#[test]
fn numbers_of_a_line_are_told_where_there_is_one() {
    let names = |text: &str| -> Vec<&'static str> {
        let [_, rx] = impaired(text).impairments().unwrap();
        rx.numbers().map(|(name, _)| name).collect()
    };
    let (none, trim, red) = (names("rx delay 1us"), names("rx rate 1gbit trim 8"), names("rx rate 1gbit red 8"));
    for name in ["trimmed", "returned", "header_drops", "header_queue_peak_bytes"] {
        assert!(trim.contains(&name) && !none.contains(&name) && !red.contains(&name), "{name}");
    }
    for name in ["red_drops", "red_queue_peak_bytes"] {
        assert!(red.contains(&name) && !none.contains(&name) && !trim.contains(&name), "{name}");
    }
    assert!(trim.contains(&"queue_peak_bytes") && red.contains(&"queue_peak_bytes"));
}

/// Sends and receives frames at times, of kinds and colours, until nothing waits. Returns how many were sent, the port,
/// and what was received.
fn exchange(text: &str, seed: u64, room: Option<usize>, arrivals: &[(u64, u8, u8)]) -> (u64, Impaired<Wire>, Vec<Got>) {
    let impairments = text.parse().unwrap();
    let mut port = Impaired::new(Wire { room, ..Wire::default() }, &impairments, seed, 3);
    let (mut now, mut sent, mut got) = (0, 0u64, Vec::new());
    for ((pause, kind, colour), psn) in arrivals.iter().zip(0..) {
        now += *pause;
        let bytes = match kind {
            0 => bytes_of(&acknowledgement(Opcode::RcAcknowledge, psn), 0),
            1 => bytes_of(&send_headers(psn, false), PAYLOAD),
            _ => data(psn),
        };
        let at = Path { traffic_class: class([0, 0, 1][usize::from(*colour)]), ..path() };
        let frame = TxFrame { path: &at, dest_qp: 0x456, len: bytes.len(), icrc: true, irn: true };
        sent += u64::from(port.transmit(Time(now), &frame, &mut |to| to.copy_from_slice(&bytes)));
        arrive(&mut port, now, at, bytes);
        got.extend(take(&mut port, now));
    }
    port.inner_mut().room = None;
    while port.next_deadline() != Time::NEVER || !port.inner().incoming.is_empty() || port.rx.has_returned() {
        now = if port.next_deadline() == Time::NEVER { now } else { now.max(port.next_deadline().0) };
        port.flush(Time(now)).unwrap();
        got.extend(take(&mut port, now));
    }
    (sent, port, got)
}

proptest! {
    #[test]
    fn every_frame_is_whole_or_headers_or_counted(
        text in prop::sample::select(vec![
            "rate 1gbit trim 2 headers 300 return",
            "rate 1gbit trim 4k headers 500 wrr 3 loss 5% duplicate 10%",
            "rate 800mbit 24 trim 8 headers 1k return delay 5us 5us corrupt 10%",
            "rate 2gbit trim 1 headers 71 return delay 3us reorder 30% duplicate 20%",
        ]),
        seed: u64,
        room in prop::option::of(0..40usize),
        arrivals in prop::collection::vec((0..6000u64, 0..4u8, 0..3u8), 1..200),
    ) {
        let run = || exchange(text, seed, room, &arrivals);
        let (sent, port, got) = run();
        prop_assert_eq!(port.tx_counters().seen, sent);
        let left = |c: &Counters| c.seen + c.duplicated - c.dropped - c.over_limit - c.header_drops - c.returned;
        // Headers of frames sent by the NIC come back to it; those of received frames go back.
        let (tx, rx) = (*port.tx_counters(), *port.rx_counters());
        prop_assert_eq!(port.inner().sent.len() as u64, left(&tx) + rx.returned);
        prop_assert_eq!(got.len() as u64, left(&rx) + tx.returned);
        let returned = got.iter().filter(|got| got.colour() == 5).count();
        prop_assert_eq!(returned as u64, tx.returned);
        for got in &got {
            let intact = icrc_check(&got.path, 0, &got.bytes);
            prop_assert!(intact || rx.corrupted > 0);
            if matches!(got.colour(), 3 | 5) && intact {
                prop_assert_eq!(got.bytes.len(), CUT);
                prop_assert_eq!(parse_trimmed(&got.bytes).map(|headers| headers.ndp), Ok(NdpWord::new(SOURCE, false)));
            }
        }
        let cut = got.iter().filter(|got| got.colour() == 3).count() as u64;
        prop_assert!(cut <= rx.trimmed - rx.returned);
        if text.contains("return") {
            prop_assert_eq!(cut, rx.trimmed - rx.returned, "one that finds no room is never lost");
        }
        let again = run();
        prop_assert_eq!(&again.1.inner().sent, &port.inner().sent);
        prop_assert_eq!(&again.2, &got);
    }

    /// Frame by frame: which are cut by which coin toss, which go first, and which are returned.
    #[test]
    fn the_policy_for_it_trims_as_the_line_does(
        (data, headers, ratio) in (1_100..9_000u64, 71..900u64, 1..12u32),
        returns: bool,
        seed: u64,
        room in prop::option::of(0..40usize),
        arrivals in prop::collection::vec((0..6000u64, 0..4u8, 0..3u8), 1..200),
    ) {
        let line = format!(
            "rate 1gbit trim {data}b headers {headers}b wrr {ratio}{}", if returns { " return" } else { "" }
        );
        let on = if returns { "on" } else { "off" };
        let policy =
            format!("rate 1gbit policy trimming,data={data},headers={headers},ratio={ratio},returns={on}");
        let [(sent, line, got), (policy_sent, policy, policy_got)] =
            [&line, &policy].map(|text| exchange(text, seed, room, &arrivals));
        prop_assert_eq!(sent, policy_sent);
        prop_assert_eq!(&line.inner().sent, &policy.inner().sent);
        prop_assert_eq!(got, policy_got);
        for (line, policy) in [(line.rx_counters(), policy.rx_counters()), (line.tx_counters(), policy.tx_counters())] {
            prop_assert_eq!((line.trimmed, line.returned), (policy.trimmed, policy.returned));
            prop_assert_eq!(line.over_limit + line.header_drops, policy.over_limit + policy.header_drops);
        }
    }

    #[test]
    fn it_does_not_matter_how_often_a_line_is_looked_at(
        text in prop::sample::select(vec![
            "rx rate 1gbit trim 2 headers 300",
            "rx rate 4gbit trim 8k headers 500 wrr 3 loss 5% duplicate 10%",
            "rx rate 800mbit trim 8 headers 1k delay 5us 5us",
        ]),
        seed: u64,
        arrivals in prop::collection::vec((0..6000u64, 0..4u8), 1..200),
        polls in prop::collection::vec(1..50usize, 1..10),
    ) {
        let run = |polls: &[usize]| {
            let mut port = Impaired::new(Wire::default(), &text.parse().unwrap(), seed, 3);
            let (mut now, mut got, mut wait, mut next) = (0, Vec::new(), 0, polls.iter().cycle());
            for ((pause, kind), psn) in arrivals.iter().zip(0..) {
                now += *pause;
                let bytes = if *kind == 0 { bytes_of(&acknowledgement(Opcode::RcAcknowledge, psn), 0) } else { data(psn) };
                arrive(&mut port, now, path(), bytes);
                if wait == 0 {
                    wait = *next.next().unwrap();
                    got.extend(take(&mut port, now));
                }
                wait -= 1;
            }
            while port.next_deadline() != Time::NEVER || !port.inner().incoming.is_empty() {
                now += 10_000;
                got.extend(take(&mut port, now));
            }
            got
        };
        prop_assert_eq!(run(&[1]), run(&polls));
    }
}
