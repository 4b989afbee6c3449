//! Silent peers: transport retries, and timers that never expire.

use irnic_nic::NicConfig;
use irnic_transports::config::{Nak, TransportConfig};
use irnic_transports::qp::{PeerProcess, QpState, SendOp, WcStatus::*};
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::{AckTimeout, Opcode, parse};

use crate::common::Network;
use crate::kit::{Case, Duo, calm, connection};

fn kill(d: &mut Duo) {
    let qpn = d.ends[1].qpn;
    d.net.nics[1].destroy_qp(qpn).unwrap();
}

#[test]
fn a_dead_peer_is_given_up_after_its_retries() {
    calm(|case| {
        for retry_cnt in 0..8 {
            for timeout in [3, 6, 10] {
                for op in [SendOp::Send, SendOp::Write, SendOp::Read, SendOp::FetchAdd { add: 1 }] {
                    let mut d = Duo::with(case, |c| (c.retry_cnt, c.timeout) = (retry_cnt, timeout));
                    d.post(0, SendOp::Write, 10);
                    d.run();
                    kill(&mut d);
                    d.post(1, op, 8);
                    d.post(2, SendOp::Write, 8);
                    let start = d.net.now;
                    d.run();
                    assert_eq!(d.done(0), [(0, Success), (1, RetryExcErr), (2, WrFlushErr)], "{op:?}");
                    assert_eq!(d.state(0), QpState::Err);
                    let t = AckTimeout::new(timeout).nanos().unwrap();
                    let (used, allowed) = (d.net.now.since(start), t * (u64::from(retry_cnt) + 1));
                    // IRN's own timers may be longer than a short Local ACK Timeout: they are not cut short.
                    let slack = if case.irn() { 320_000 * (u64::from(retry_cnt) + 1) } else { 10_000 };
                    assert!(used >= allowed && used <= allowed + slack, "{retry_cnt} retries of {t} ns took {used} ns");
                    assert_eq!(d.net.nics[0].counters().retry_exceeded_err, 1);
                }
            }
        }
    });
}

#[test]
fn a_timeout_of_zero_never_gives_up() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.timeout = 0);
        // Receives nothing for a second.
        d.net.tamper = Some(Box::new(|_, _| false));
        d.post(1, SendOp::Write, 5000);
        d.run_for(SEC);
        assert_eq!((d.done(0), d.state(0)), (vec![], QpState::Rts));
        d.net.tamper = None;
        if case.irn() {
            // IRN's timer does not depend on the Local ACK Timeout; plain RoCE's never expires.
            d.run();
            assert_eq!(d.done(0), [(1, Success)]);
        }
    });
}

#[test]
fn a_network_that_is_down_for_less_than_the_retries_is_survived() {
    calm(|case| {
        for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
            let mut d = Duo::new(case);
            for id in 0..8 {
                d.recv(id, 4096);
                d.post(id, op, 4000);
            }
            d.steps(7);
            d.net.tamper = Some(Box::new(|_, _| false));
            d.run_for(6 * MS);
            d.net.tamper = None;
            d.run();
            assert_eq!(d.done(0), (0..8).map(|id| (id, Success)).collect::<Vec<_>>(), "{op:?}");
            assert!(d.net.nics[0].counters().local_ack_timeout_err > 0);
        }
    });
}

/// The missing packet of a gap is lost twice more. IBA 9.7.5.2.3 has one NAK per gap, so that only timeouts are left;
/// with one for each packet, as IRN's receivers send them (§4.2.1), the next copy is already in flight.
#[test]
fn a_nak_for_each_packet_spares_the_timeout_when_a_repetition_is_lost() {
    for transport in ["roce", "irn-go-back-n"] {
        for (nak, timeouts) in [(Nak::PerGap, 2), (Nak::PerPacket, 0)] {
            let case = Case { transport, impairments: "delay 5us", seed: 1 };
            let mut d = Duo::with(&case, |c| c.transport.iter_mut().for_each(|t| t.nak = nak));
            let lost = d.connection.psn[0].plus(2);
            let mut left = 3;
            d.net.tamper = Some(Box::new(move |from, frame| {
                let hit = from == 0 && left > 0 && parse(frame).unwrap().0.bth.psn == lost;
                left -= i32::from(hit);
                !hit
            }));
            d.post(1, SendOp::Write, 100_000);
            d.run();
            assert_eq!(d.done(0), [(1, Success)]);
            let counters = d.net.nics[0].counters();
            assert_eq!(counters.local_ack_timeout_err, timeouts, "{transport} {nak:?}");
            assert_eq!(counters.packet_seq_err > 1, nak == Nak::PerPacket, "{transport} {nak:?}");
        }
    }
}

/// With a READ's request acknowledged, only the responder's timer and the requester's patience are left (IRN §4.4.2).
#[test]
fn a_lost_last_response_is_recovered_by_the_responders_timer() {
    for lost in [1, 2, 5] {
        let case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };
        let mut d = Duo::with(&case, |c| c.timeout = 0);
        let mut left = lost;
        d.net.tamper = Some(Box::new(move |_, frame| {
            let last = Opcode::from_u8(frame[0]) == Some(Opcode::RcReadResponseLast);
            if last && left > 0 {
                left -= 1;
                return false;
            }
            true
        }));
        d.post(1, SendOp::Read, 5000);
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
        assert_eq!(d.net.nics[1].counters().irn_read_timeouts, lost);
        assert_eq!(d.net.nics[1].counters().retransmitted_pkts, lost, "nothing else is sent again");
    }
}

/// The responder gives up a silent peer's responses, and resumes them when the peer retries.
#[test]
fn responses_given_up_are_taken_up_again() {
    for timeout in [0, 10] {
        let case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };
        let mut d = Duo::with(&case, |c| c.timeout = timeout);
        d.post(1, SendOp::Read, 5000);
        let responses = |frame: &[u8]| Opcode::from_u8(frame[0]).unwrap().is_read_response();
        d.net.tamper = Some(Box::new(move |_, frame| !responses(frame)));
        d.run_for(if timeout == 0 { 100 * MS } else { 30 * MS });
        assert_eq!(d.done(0), []);
        d.net.tamper = None;
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
    }
}

/// These responses are never acknowledged: the responder stops in bounded time, whatever the timeout.
#[test]
fn a_responder_does_not_talk_to_a_dead_peer_for_ever() {
    for timeout in [0, 8] {
        let case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };
        let mut d = Duo::with(&case, |c| c.timeout = timeout);
        d.post(1, SendOp::Read, 5000);
        d.net.send();
        let qpn = d.ends[0].qpn;
        d.net.nics[0].destroy_qp(qpn).unwrap();
        let mut steps = 0;
        while d.net.step() {
            steps += 1;
            assert!(steps < 10_000);
        }
        assert_eq!(d.state(1), QpState::Rts);
    }
}

/// Returns a pair whose end 0 has written to a peer that receives nothing, with this patience, and whose retries take
/// 8.4 ms.
fn unheard(case: &Case, patience: u64, process: PeerProcess) -> Duo {
    let mut d = Duo::with(case, |c| c.transport.iter_mut().for_each(|t| t.patience = patience));
    d.net.process = process;
    d.net.tamper = Some(Box::new(|_, _| false));
    d.post(1, SendOp::Write, 5000);
    d
}

#[test]
fn a_peer_of_which_nothing_is_known_is_given_time_to_get_a_core() {
    calm(|case| {
        use PeerProcess::{Dead, Unknown};
        for (process, patience, allowed) in [(Dead, SEC, 8), (Unknown, SEC, 999), (Unknown, 0, 8), (Unknown, 3 * MS, 8)]
        {
            let mut d = unheard(case, patience, process);
            d.run_for(allowed * MS);
            assert_eq!(d.done(0), [], "{process:?}, patience of {patience} ns");
            d.run_for(10 * MS);
            assert_eq!(d.done(0), [(1, RetryExcErr)], "{process:?}, patience of {patience} ns");
        }
    });
}

/// Stopped, or not scheduled: it has not read what was sent to it.
#[test]
fn a_peer_that_lives_and_does_not_run_is_waited_for() {
    calm(|case| {
        let behind = PeerProcess::Alive { handed: 100, answered: 99 };
        let mut d = unheard(case, SEC, behind);
        d.run_for(60 * SEC);
        assert_eq!((d.done(0), d.state(0)), (vec![], QpState::Rts));
        d.net.tamper = None;
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
        // By the letter of IBA it is dead.
        let mut d = unheard(case, 0, behind);
        d.run_for(20 * MS);
        assert_eq!(d.done(0), [(1, RetryExcErr)]);
    });
}

/// It has repeatedly read what was sent, and does not answer.
#[test]
fn a_peer_that_runs_and_does_not_answer_is_given_up() {
    calm(|case| {
        let mut d = unheard(case, SEC, PeerProcess::Alive { handed: 100, answered: 50 });
        d.run_for(SEC);
        d.net.process = PeerProcess::Alive { handed: 200, answered: 99 };
        d.run_for(SEC);
        assert_eq!(d.done(0), []);
        // It reads one more packet before each check.
        for check in 1..=3 {
            assert_eq!(d.done(0), [], "at check {check}");
            d.net.process = PeerProcess::Alive { handed: 200 + check, answered: 200 + check };
            d.run_for(2 * MS);
        }
        assert_eq!(d.done(0), [(1, RetryExcErr)]);
    });
}

/// It was scheduled, has read everything, and was descheduled before it answered.
#[test]
fn a_peer_that_stops_between_taking_and_answering_is_waited_for() {
    calm(|case| {
        let timeout = if case.irn() { 320_000 } else { 1_048_576 };
        for first in [50, 100] {
            let mut d = unheard(case, SEC, PeerProcess::Alive { handed: 100, answered: first });
            d.run_for(9 * MS);
            // For one check only.
            d.net.process = PeerProcess::Alive { handed: 200, answered: 200 };
            d.run_for(timeout);
            d.net.process = PeerProcess::Alive { handed: 300, answered: 200 };
            d.run_for(60 * SEC);
            assert_eq!((d.done(0), d.state(0)), (vec![], QpState::Rts), "{case:?}, {first} taken at first");
        }
    });
}

/// Data passed to it before its last answer is irrelevant to the next silence.
#[test]
fn an_answer_ends_the_doubt() {
    calm(|case| {
        let mut d = unheard(case, SEC, PeerProcess::Alive { handed: 100, answered: 50 });
        d.run_for(SEC);
        d.net.tamper = None;
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
        d.net.tamper = Some(Box::new(|_, _| false));
        d.net.process = PeerProcess::Alive { handed: 900, answered: 899 };
        d.post(2, SendOp::Write, 5000);
        d.run_for(SEC);
        assert_eq!(d.done(0), []);
    });
}

#[test]
fn a_queue_pair_that_goes_says_once_more_what_has_arrived() {
    use std::cell::Cell;
    use std::rc::Rc;

    calm(|case| {
        for says in [false, true] {
            let mut d = Duo::new(case);
            d.recv(1, 64);
            // The acknowledgement is lost.
            let heard = Rc::new(Cell::new(false));
            let hears = heard.clone();
            d.net.tamper = Some(Box::new(move |from, _| from == 0 || hears.get()));
            d.post(1, SendOp::Send, 10);
            while d.done(1).is_empty() {
                d.net.step();
            }
            heard.set(true);
            if says {
                d.net.nics[1].repeat_ack(d.ends[1].qpn);
                d.net.send();
            }
            kill(&mut d);
            d.run();
            assert_eq!(d.done(0), [(1, if says { Success } else { RetryExcErr })]);
        }
    });
}

/// A receiver of plain RoCE counts that requests are of another format; their sender gives up as if nobody were there.
#[test]
fn requests_with_irns_extension_are_dropped_and_counted_by_plain_roce() {
    let mut c = connection("roce");
    c.transport = ["irn", "roce"].map(|t| TransportConfig::preset(t).unwrap());
    (c.retry_cnt, c.timeout) = (2, 3);
    let mut d = Duo::on(Network::new(2, "delay 5us", 1, &NicConfig::default()), c, false);
    d.post(1, SendOp::Write, 64);
    d.run();
    assert_eq!(d.done(0), [(1, RetryExcErr)]);
    let counters = d.net.nics[1].counters();
    assert!(counters.rx_other_transport >= 3, "{}", counters.rx_other_transport);
    assert_eq!(counters.rx_unexpected, counters.rx_other_transport);
    assert_eq!(d.net.nics[0].counters().rx_other_transport, 0);
}
