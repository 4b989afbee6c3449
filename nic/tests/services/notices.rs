//! Rate notices from switches.

use irnic_nic::Nic;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{QpAttr, QpState, SendData, SendOp, SendWr, Sge};
use irnic_transports::wire::{Bth, Headers, Opcode, RateNotice};
use irnic_transports::{Psn, Time};

use crate::common::{Connection, End, Network, pair, path, region};

const GBIT: u64 = 1_000_000_000;

fn rocc() -> (Network, [End; 2]) {
    let mut transport: TransportConfig = "irn,cap=none,cc=rocc".parse().unwrap();
    (transport.line_rate, transport.base_rtt) = (40 * GBIT, 4_000);
    pair("delay 5us", 7, &Connection { transport: [transport; 2], ..Connection::default() })
}

/// Returns a notice about a packet of the first NIC to a queue pair of the second.
fn notice(opcode: Opcode, dest_qp: u32, gigabits: u32) -> RateNotice {
    let headers = Headers::new(Bth::new(opcode, dest_qp, Psn::new(0)));
    let mut notice = RateNotice::about(&path(0, 1), &headers, 1024).unwrap();
    (notice.from, notice.port, notice.rate) = ("10.0.0.9".parse().unwrap(), 1, gigabits * 1_000_000);
    notice
}

/// Passes a notice to a NIC, and lets it react. Returns the rate of a queue pair, and packets received and dropped.
fn notify(nic: &mut Nic, qpn: u32, now: u64, notice: &RateNotice) -> (u64, u64, u64) {
    nic.receive_notice(Time(now), Time(now), notice);
    nic.on_deadline(Time(now + 16_000));
    let rate = nic.qp(qpn).and_then(|qp| qp.controller_metrics()).map_or(0, |m| m.rate / GBIT);
    (rate, nic.counters().rcvd_pkts, nic.counters().rx_dropped)
}

#[test]
fn a_notice_finds_the_sender_by_the_queue_pair_that_it_sent_to() {
    let (mut net, [from, to]) = rocc();
    let nic = &mut net.nics[0];
    let write = Opcode::RcWriteMiddle;
    assert_eq!(notify(nic, from.qpn, 0, &notice(write, to.qpn, 4)), (4, 1, 0));
    assert_eq!(nic.counters().rp_cnp_handled, 1);
    // Another queue pair, a response, another host's.
    assert_eq!(notify(nic, from.qpn, 20_000, &notice(write, to.qpn + 1, 3)), (4, 1, 1));
    assert_eq!(notify(nic, from.qpn, 20_000, &notice(Opcode::RcReadResponseMiddle, to.qpn, 3)), (4, 1, 2));
    let mut foreign = notice(write, to.qpn, 3);
    foreign.src = "10.0.0.7".parse().unwrap();
    assert_eq!(notify(nic, from.qpn, 20_000, &foreign), (4, 1, 3));
    // From another port only a lower rate counts.
    let other = |gigabits| {
        let mut other = notice(write, to.qpn, gigabits);
        other.port = 2;
        other
    };
    assert_eq!(notify(nic, from.qpn, 20_000, &other(5)), (4, 2, 3));
    assert_eq!(notify(nic, from.qpn, 20_000, &other(3)), (3, 3, 3));
    // The serialized form is equivalent.
    let bytes = notice(write, to.qpn, 2).emit();
    assert_eq!(notify(nic, from.qpn, 20_000, &RateNotice::parse(&bytes).unwrap()), (2, 4, 3));
}

#[test]
fn a_notice_that_comes_too_late_is_dropped() {
    let (mut net, [from, to]) = rocc();
    let nic = &mut net.nics[0];
    nic.modify_qp(from.qpn, &QpAttr { state: Some(QpState::Err), ..QpAttr::default() }).unwrap();
    let late = notice(Opcode::RcWriteMiddle, to.qpn, 4);
    assert_eq!(notify(nic, from.qpn, 0, &late), (40, 0, 1));
    nic.modify_qp(from.qpn, &QpAttr { state: Some(QpState::Reset), ..QpAttr::default() }).unwrap();
    assert_eq!(notify(nic, from.qpn, 0, &late), (40, 0, 2));
    nic.destroy_qp(from.qpn).unwrap();
    assert_eq!(notify(nic, from.qpn, 0, &late), (0, 0, 3));
}

#[test]
fn a_queue_pair_with_another_controller_hears_nothing() {
    let transport: TransportConfig = "irn,cc=dctcp".parse().unwrap();
    let (mut net, [from, to]) = pair("", 7, &Connection { transport: [transport; 2], ..Connection::default() });
    assert_eq!(notify(&mut net.nics[0], from.qpn, 0, &notice(Opcode::RcWriteMiddle, to.qpn, 4)), (0, 0, 1));
}

/// Returns when 200,000 bytes have left, ns, if a switch advertises this many Gbit/s every 40 µs.
fn takes(gigabits: u32) -> u64 {
    let (mut net, [from, to]) = rocc();
    let (a, b) = (region(&mut net, from, 200_000, |_| 1), region(&mut net, to, 200_000, |_| 2));
    let message = notice(Opcode::RcWriteMiddle, to.qpn, gigabits);
    notify(&mut net.nics[0], from.qpn, 0, &message);
    let sges = [Sge { addr: a.addr, len: 200_000, lkey: a.lkey }];
    let wr = SendWr {
        wr_id: 0,
        op: SendOp::Write,
        data: SendData::Sges(&sges),
        remote_addr: b.addr,
        rkey: b.rkey,
        signaled: true,
        solicited: false,
        fence: false,
        to: None,
        remote_srqn: 0,
    };
    net.nics[0].post_send(from.qpn, &wr).unwrap();
    let (mut now, mut left, mut next) = (16_000, 0, 40_000);
    while left < 200_000 {
        let nic = &mut net.nics[0];
        if now >= next {
            nic.receive_notice(Time(now), Time(now), &message);
            next += 40_000;
        }
        nic.on_deadline(Time(now));
        nic.poll_transmit(Time(now), usize::MAX, |packet| {
            left += packet.payload.len();
            true
        });
        now += 100;
        assert!(now < 10_000_000);
    }
    now - 16_000
}

#[test]
fn packets_leave_at_the_rate_of_the_notices() {
    for (gigabits, expected) in [(1, 1_600_000.0), (4, 400_000.0)] {
        let ns = takes(gigabits) as f64;
        assert!((ns / expected - 1.0).abs() < 0.05, "{gigabits} Gbit/s: {ns} ns");
    }
}
