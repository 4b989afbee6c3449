//! Statistics of a queue pair at the end.

use irnic_transports::qp::{QpStats, SendOp, Service};
use irnic_transports::wire::parse;

use crate::kit::{Case, Duo};
use crate::setup::{duo, lose, post, to};

fn stats(d: &Duo, end: usize) -> QpStats {
    d.net.nics[d.ends[end].nic].qp(d.ends[end].qpn).unwrap().stats()
}

#[test]
fn round_trips_are_those_of_the_network() {
    for transport in ["roce", "irn"] {
        let mut d = Duo::new(&Case { transport, impairments: "delay 5us", seed: 1 });
        for id in 0..50 {
            d.post(id, SendOp::Write, 8);
            d.run();
        }
        let s = stats(&d, 0);
        assert_eq!((s.counts.sent_pkts, s.counts.retransmitted, s.counts.timeouts, s.counts.rnr_naks), (50, 0, 0, 0));
        assert_eq!((s.counts.rcvd_pkts, s.rtt.count()), (50, 50));
        assert_eq!((s.rtt.percentile(50.0), s.rtt.percentile(99.0)), (10_000, 10_000));
        assert_eq!((stats(&d, 1).counts.rcvd_pkts, stats(&d, 1).rtt.count()), (50, 0));
    }
}

#[test]
fn trouble_is_counted_where_it_is_met() {
    for transport in ["roce", "irn"] {
        let mut d = Duo::new(&Case { transport, impairments: "delay 5us", seed: 1 });
        lose(&mut d, |n| n == 0);
        d.post(1, SendOp::Write, 8);
        d.run();
        let s = stats(&d, 0);
        assert_eq!(
            (s.counts.sent_pkts, s.counts.retransmitted, s.counts.timeouts, s.rtt.count()),
            (2, 1, 1, 0),
            "{transport}"
        );
        // An RNR NAK, then the receive.
        d.post(2, SendOp::Send, 8);
        d.run_for(12_000);
        d.recv(1, 100);
        d.run();
        assert_eq!(stats(&d, 0).counts.rnr_naks, 1, "{transport}");
    }
    // The responder's own stream: a lost READ response.
    let mut d = Duo::new(&Case { transport: "irn", impairments: "delay 5us", seed: 1 });
    let mut lost = false;
    d.net.tamper = Some(Box::new(move |from, frame| {
        let response = parse(frame).unwrap().0.bth.opcode.is_read_response();
        from == 0 || !response || std::mem::replace(&mut lost, true)
    }));
    d.post(1, SendOp::Read, 100);
    d.run();
    let s = stats(&d, 1);
    assert_eq!((s.counts.retransmitted, s.counts.timeouts), (1, 1));
}

#[test]
fn payload_is_counted_where_it_leaves_and_where_it_is_placed() {
    for transport in ["roce", "irn"] {
        let mut d = Duo::new(&Case { transport, impairments: "delay 5us", seed: 1 });
        // The last of a message's three packets.
        lose(&mut d, |n| n == 2);
        d.post(1, SendOp::Write, 2_100);
        d.post(2, SendOp::Read, 1_500);
        d.run();
        let [a, b] = [0, 1].map(|end| stats(&d, end));
        assert_eq!(
            (a.counts.sent_bytes - a.counts.retransmitted_bytes, b.counts.rcvd_bytes),
            (2_100, 2_100),
            "{transport}"
        );
        assert!(a.counts.retransmitted_bytes > 0 && a.counts.retransmitted_bytes <= 2_100, "{transport}: {a:?}");
        assert_eq!(
            (b.counts.sent_bytes - b.counts.retransmitted_bytes, a.counts.rcvd_bytes),
            (1_500, 1_500),
            "{transport}"
        );
        for (end, s) in [a, b].into_iter().enumerate() {
            let c = *d.net.nics[d.ends[end].nic].counters();
            assert_eq!((c.sent_bytes, c.rcvd_bytes), (s.counts.sent_bytes, s.counts.rcvd_bytes), "{transport} {end}");
        }
    }
}

#[test]
fn the_unreliable_services_count_packets() {
    for service in [Service::Uc, Service::Ud] {
        let mut d = duo(service, false);
        d.recv(0, 4096);
        let there = to(d.ends[0], d.ends[1]);
        post(&mut d, 1, SendOp::Send, 200, there);
        d.run();
        assert_eq!((stats(&d, 0).counts.sent_pkts, stats(&d, 1).counts.rcvd_pkts, stats(&d, 0).rtt.count()), (1, 1, 0));
    }
}
