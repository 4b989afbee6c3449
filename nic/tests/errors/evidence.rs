//! Retransmissions of selective recovery when it requires evidence, as in real time; and silence without any fault.

use irnic_transports::config::{Timer, TransportConfig};
use irnic_transports::qp::{PeerProcess, QpState, Reader, SendOp, WcStatus::*};
use irnic_transports::time::MS;
use irnic_transports::wire::{IrnEth, parse};

use crate::kit::{Case, Duo};

const MESSAGES: u64 = 48;

/// Returns both ends in real time, with or without evidence.
fn real_time(impairments: &'static str, evidence: bool) -> Duo {
    let case = Case { transport: "irn", impairments, seed: 1 };
    Duo::with(&case, |c| {
        let mut transport = TransportConfig::parse("irn", true).unwrap();
        transport.evidence = evidence;
        c.transport = [transport; 2];
        c.timeout = 14;
    })
}

/// Posts WRITEs, runs to the end, and returns retransmissions, timeouts, and duplicates received.
fn writes(d: &mut Duo) -> (u64, u64, u64) {
    for id in 0..MESSAGES {
        d.post(id, SendOp::Write, 4000);
    }
    d.run();
    assert_eq!(d.done(0), (0..MESSAGES).map(|id| (id, Success)).collect::<Vec<_>>());
    let [a, b] = [0, 1].map(|i| *d.net.nics[i].counters());
    (a.retransmitted_pkts, a.local_ack_timeout_err, b.duplicate_request)
}

/// 192 packets are in flight for 20 ms; the first timeout is after 4 ms, before the first measurement.
#[test]
fn a_timer_that_runs_out_too_early_costs_one_packet() {
    let mut d = real_time("delay 10ms", true);
    let (again, timeouts, duplicates) = writes(&mut d);
    let counters = *d.net.nics[0].counters();
    assert!(timeouts > 0);
    // A probe is sent before the first of them.
    assert_eq!((again, duplicates, counters.tlp_probes), (timeouts + 1, timeouts + 1, 1));
    let (again, timeouts, _) = writes(&mut real_time("delay 10ms", false));
    assert!(again > 10 * timeouts, "without evidence {again} packets after {timeouts} timeouts");
}

/// Bytes that another process forwards are counted twice: when that has read them all, the peer has yet to read the
/// copies.
#[test]
fn what_a_forwarder_has_read_is_not_answered_yet() {
    for (reader, probes) in [(Reader::ForwarderThenPeer, 0), (Reader::Peer, 1)] {
        let mut d = real_time("delay 80ms", true);
        let process = |handed, answered| PeerProcess::Buffered { handed, answered, reader };
        d.net.process = process(2000, 0);
        d.post(1, SendOp::Write, 100);
        d.run_for(3 * MS);
        d.net.process = process(2200, 2000);
        d.run_for(20 * MS);
        assert_eq!(d.net.nics[0].counters().tlp_probes, probes, "{reader:?}");
        d.net.process = process(2200, 2200);
        d.run_for(20 * MS);
        assert_eq!(d.net.nics[0].counters().tlp_probes, 1, "{reader:?}");
    }
}

/// With the last packets lost nothing shows which are, until a probe is sent: its answer finds the others.
#[test]
fn the_end_of_a_stream_is_recovered_too() {
    let mut d = real_time("delay 5us", true);
    let first = d.connection.psn[0];
    let mut seen = [false; 32];
    d.net.tamper = Some(Box::new(move |from, frame| {
        let k = parse(frame).unwrap().0.bth.psn.distance(first);
        from == 1 || k < 20 || std::mem::replace(&mut seen[k as usize], true)
    }));
    d.post(1, SendOp::Write, 32 << 10);
    d.run();
    assert_eq!(d.done(0), [(1, Success)]);
    let [a, b] = [0, 1].map(|i| *d.net.nics[i].counters());
    assert_eq!((a.retransmitted_pkts, a.local_ack_timeout_err, b.duplicate_request), (12, 0, 0));
}

/// A queue that holds an eighth of a sender's burst loses the rest, and of that, resent at once, the rest again. Not
/// each of these packets takes a timeout of its own.
#[test]
fn a_queue_that_is_much_too_short_does_not_take_a_timeout_for_each_packet() {
    let mut d = real_time("rate 1gbit limit 100", true);
    // An application that keeps 16 messages of 32 packets in flight.
    (0..16).for_each(|id| d.post(id, SendOp::Write, 1 << 15));
    let mut done = 0;
    for id in 16..48 {
        while done + 16 <= id {
            d.steps(1);
            done += d.done(0).len() as u64;
        }
        d.post(id, SendOp::Write, 1 << 15);
    }
    d.run();
    assert_eq!(done + d.done(0).len() as u64, 48);
    let [a, _] = [0, 1].map(|i| *d.net.nics[i].counters());
    assert!(a.retransmitted_pkts > 400 && a.local_ack_timeout_err < 40, "{a:?}");
}

/// A receiver that goes back N keeps nothing that is out of order, and reports that once per gap.
#[test]
fn a_receiver_that_goes_back_n_is_understood() {
    let mut d = Duo::with(&Case { transport: "irn", impairments: "delay 5us", seed: 1 }, |c| {
        c.transport = ["irn", "irn-go-back-n"].map(|t| TransportConfig::parse(t, true).unwrap());
        c.timeout = 14;
    });
    let lost = d.connection.psn[0].plus(5);
    let mut once = true;
    d.net.tamper = Some(Box::new(move |from, frame| {
        from == 1 || parse(frame).unwrap().0.bth.psn != lost || !std::mem::take(&mut once)
    }));
    let (again, timeouts, _) = writes(&mut d);
    assert!(again > 100 && timeouts <= 2, "{again} packets again, {timeouts} timeouts");
}

#[test]
fn a_packet_lost_several_times_needs_no_timeout() {
    for lost in [1, 2, 3] {
        let mut d = real_time("delay 5us", true);
        d.post(1000, SendOp::Write, 1 << 17);
        let psn = d.connection.psn[0].plus(5);
        let mut left = lost;
        d.net.tamper = Some(Box::new(move |from, frame| {
            let hit = from == 0 && left > 0 && parse(frame).unwrap().0.bth.psn == psn;
            left -= u64::from(hit);
            !hit
        }));
        // New packets follow the retransmissions.
        for id in 0..30 {
            d.run_for(20_000);
            d.post(id, SendOp::Write, 4000);
        }
        d.run();
        let [a, b] = [0, 1].map(|i| *d.net.nics[i].counters());
        assert_eq!(
            (a.retransmitted_pkts, a.local_ack_timeout_err, b.duplicate_request),
            (lost, 0, 0),
            "lost {lost} times"
        );
        assert_eq!(d.done(0).len(), 31);
    }
}

/// A receiver that takes packets in batches reports in one NACK what has arrived since the last; later ones repeat it.
#[test]
fn a_lost_nack_does_not_make_its_packets_lost() {
    for lost_nacks in [1, 2] {
        let again = |evidence| {
            let mut d = real_time("delay 5us", evidence);
            d.net.batch = 16;
            let first = d.connection.psn[0];
            let (mut data, mut nacks) = (true, 0);
            d.net.tamper = Some(Box::new(move |from, frame| {
                let headers = parse(frame).unwrap().0;
                if from == 0 && data && headers.bth.psn == first.plus(3) {
                    data = false;
                    return false;
                }
                let selective =
                    matches!(headers.irn, Some(IrnEth::Ack { selective, .. }) if selective != headers.bth.psn);
                if from == 1 && selective && headers.bth.psn == first.plus(3) {
                    nacks += 1;
                    return nacks > lost_nacks;
                }
                true
            }));
            writes(&mut d)
        };
        assert_eq!(again(true), (1, 0, 0));
        assert!(again(false).2 > 10);
    }
}

/// The peer is dead. The host of the survivor is not scheduled for some time; the retries missed meanwhile still count.
#[test]
fn time_in_which_nobody_ran_the_timers_is_not_the_peers() {
    let tries = |pause: u64| {
        let case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };
        let mut d = Duo::new(&case);
        assert!(matches!(d.connection.transport[0].timer, Timer::Irn { .. }));
        d.net.tamper = Some(Box::new(|_, _| false));
        d.post(1, SendOp::Write, 10);
        d.run_for(MS);
        let before = d.net.nics[0].counters().local_ack_timeout_err;
        d.net.now += pause;
        d.run();
        assert_eq!((d.done(0), d.state(0)), (vec![(1, RetryExcErr)], QpState::Err));
        d.net.nics[0].counters().local_ack_timeout_err - before
    };
    let undisturbed = tries(0);
    assert!(undisturbed > 8);
    assert_eq!(tries(100 * MS), undisturbed);
}

/// After a silence in which timeouts have doubled repeatedly, only retransmissions are acknowledged, which measures
/// nothing. The next loss is found as soon as any other (RFC 6298, as in Linux).
#[test]
fn any_news_ends_the_back_off() {
    let mut d = real_time("delay 5us", true);
    d.post(0, SendOp::Write, 4000);
    d.run();
    d.net.tamper = Some(Box::new(|_, _| false));
    d.post(1, SendOp::Write, 10);
    d.run_for(40 * MS);
    d.net.tamper = None;
    d.run();
    assert!(d.net.nics[0].counters().local_ack_timeout_err > 5);
    // The packet and its probe.
    let mut left = 2;
    d.net.tamper = Some(Box::new(move |from, _| {
        let lost = from == 0 && left > 0;
        left -= i32::from(lost);
        !lost
    }));
    d.post(2, SendOp::Write, 10);
    d.run_for(MS);
    assert_eq!(d.done(0), [0, 1, 2].map(|id| (id, Success)));
}
