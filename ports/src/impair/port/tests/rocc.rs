//! Lines with a congestion point.

use irnic_transports::psn::Psn;
use irnic_transports::wire::{Bth, Headers, NoticeError, Opcode, RateNotice};

use super::*;
use crate::capture::Captured;

const MS: u64 = 1_000_000;
const PAYLOAD: usize = 944;
/// A frame counts as 1,000 bytes, and takes a millisecond.
const LINE: &str = "tx rate 8mbit -2 rocc 2000b 4000b 5000b 10ms";

/// Sends a packet to a queue pair.
fn send_to(port: &mut impl Port, now: u64, qpn: u32, opcode: Opcode) {
    let mut headers = Headers::new(Bth::new(opcode, qpn, Psn::new(7)));
    let response = opcode == Opcode::RcReadResponseOnly;
    headers.aeth = response.then(Default::default);
    let payload = if response { PAYLOAD - 4 } else { PAYLOAD };
    let path = path();
    let frame = TxFrame { path: &path, dest_qp: qpn, len: headers.frame_len(payload), icrc: true, irn: false };
    assert!(port.transmit(Time(now), &frame, &mut |to| {
        to.fill(0);
        headers.emit(to);
    }));
}

/// Returns the notices received by a time: time of sending, destination of the flow, rate in kbit/s, and queue.
fn notices(port: &mut impl Port, now: u64) -> Vec<(u64, u32, u32, u32)> {
    let mut all = Vec::new();
    port.take_notices(Time(now), &mut |at, notice: &RateNotice| {
        assert_eq!((IpAddr::from(notice.src), IpAddr::from(notice.dst)), (path().src, path().dst));
        all.push((at.0, notice.bth.dest_qp, notice.rate, notice.queue));
    });
    all
}

#[test]
fn those_are_notified_that_have_frames_in_the_queue() {
    let mut port = impaired(LINE);
    assert!(port.gives_notices() && !impaired("tx rate 8mbit").gives_notices());
    // One leaves before the period ends; two wait for each of two flows, and a response.
    for _ in 0..10 {
        send_to(&mut port, 0, 1, Opcode::RcWriteMiddle);
    }
    for qpn in [2, 3, 2, 3] {
        send_to(&mut port, 0, qpn, Opcode::RcWriteMiddle);
    }
    send_to(&mut port, 0, 4, Opcode::RcReadResponseOnly);
    assert_eq!(port.next_deadline(), Time(MS), "the first frame leaves");
    assert_eq!(notices(&mut port, 10 * MS - 1), []);
    // Of 15,000 bytes 5,000 are left. More than Q_max: the least rate, a hundredth of the line, and rounded down.
    let all = notices(&mut port, 10 * MS);
    assert_eq!(all, [(10 * MS, 2, 79, 5_000), (10 * MS, 3, 79, 5_000)]);
    // Late by two periods. The queue is empty, and no flow is notified, but the rate rises to that of the line.
    assert_eq!(notices(&mut port, 30 * MS), []);
    assert!(port.impairments().unwrap()[0].fair_rate.is_some_and(|rate| (79_000..7_000_000).contains(&rate)));
    port.flush(Time(1_000_000 * MS)).unwrap();
    assert!(port.impairments().unwrap()[0].fair_rate.is_some_and(|rate| rate > 7_990_000));
    assert_eq!(port.next_deadline(), Time::NEVER);
}

#[test]
fn what_is_delayed_before_the_line_is_not_in_its_queue() {
    let mut port = impaired("tx delay 15ms rate 8mbit -2 rocc 2000b 4000b 5000b 10ms");
    for _ in 0..8 {
        send_to(&mut port, 0, 1, Opcode::RcWriteMiddle);
    }
    assert_eq!(notices(&mut port, 10 * MS), []);
    // Of 8,000 bytes since 15 ms, 5 ms have sent 5,000.
    let all = notices(&mut port, 20 * MS);
    assert_eq!(all.iter().map(|n| (n.0, n.3)).collect::<Vec<_>>(), [(20 * MS, 3_000)]);
}

#[test]
fn notices_are_lost_and_delayed_as_what_comes() {
    let send = |more: &str| {
        let mut port = impaired(&format!("{LINE}{more}"));
        for _ in 0..15 {
            send_to(&mut port, 0, 1, Opcode::RcWriteMiddle);
        }
        assert_eq!(notices(&mut port, 10 * MS - 1), []);
        port
    };
    assert_eq!(notices(&mut send("; rx loss 100%"), 10 * MS), []);
    let mut late = send("; rx delay 3ms");
    assert_eq!(notices(&mut late, 10 * MS), []);
    assert_eq!(notices(&mut late, 13 * MS - 1), []);
    assert_eq!(notices(&mut late, 13 * MS).iter().map(|n| n.0).collect::<Vec<_>>(), [13 * MS]);
    assert_eq!(notices(&mut send("; rx duplicate 100%"), 10 * MS).len(), 2);
}

#[test]
fn a_capture_has_them_as_icmp() {
    let mut file = Vec::new();
    let mut port = Captured::new(impaired(LINE), &mut file, "irnic0", Duration::ZERO);
    for _ in 0..15 {
        send_to(&mut port, 0, 0x123, Opcode::RcWriteMiddle);
    }
    assert_eq!(notices(&mut port, 10 * MS).len(), 1);
    drop(port);
    let datagrams = file.windows(RateNotice::LEN).map(RateNotice::parse);
    let found: Vec<RateNotice> = datagrams.filter_map(Result::ok).collect();
    assert_eq!(found.iter().map(|notice| (notice.bth.dest_qp, notice.queue)).collect::<Vec<_>>(), [(0x123, 5_000)]);
    assert_eq!(RateNotice::parse(&file[..RateNotice::LEN]), Err(NoticeError::Foreign));
}
