//! The queue pair's states: transitions, the operations allowed in each, and the fate of traffic in flight.

use irnic_nic::{NicError, Object};
use irnic_transports::Psn;
use irnic_transports::qp::{Event, ModifyError, PostError, QpAttr, QpState, RecvWr, SendOp, WcStatus::*};
use irnic_transports::time::MS;

use crate::common::{attributes, create};
use crate::kit::{Case, Duo, calm, completions, everywhere, wr};

/// Work requests 0 to 7 in progress: every operation, several packets each.
fn busy(d: &mut Duo) {
    for id in 0..8 {
        d.recv(id, 4096);
        let op = [SendOp::Send, SendOp::Write, SendOp::Read, SendOp::WriteImm(3)][id as usize % 4];
        d.post(id, op, 4000);
    }
}

#[test]
fn only_legal_transitions_are_made() {
    use QpState::*;
    let case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };
    for from in [Reset, Init, Rtr, Rts, Sqd, Err] {
        for to in [Reset, Init, Rtr, Rts, Sqd, Sqe, Err] {
            let mut d = Duo::new(&case);
            let me = create(&mut d.net, 0, &d.connection, 0, None);
            let steps = attributes(&d.connection, me, d.ends[1], 0);
            let nic = &mut d.net.nics[0];
            let way = match from {
                Reset => 0,
                Init => 1,
                Rtr => 2,
                _ => 3,
            };
            for attr in &steps[..way] {
                nic.modify_qp(me.qpn, attr).unwrap();
            }
            if matches!(from, Sqd | Err) {
                nic.modify_qp(me.qpn, &QpAttr { state: Some(from), ..Default::default() }).unwrap();
            }
            assert_eq!(nic.qp(me.qpn).unwrap().state(), from);
            let attr = match (from, to) {
                (Reset, Init) => steps[0],
                (Init, Rtr) => steps[1],
                (Rtr, Rts) => steps[2],
                _ => QpAttr { state: Some(to), ..Default::default() },
            };
            let legal = matches!(to, Reset | Err)
                || matches!(
                    (from, to),
                    (Reset, Init)
                        | (Init, Init)
                        | (Init, Rtr)
                        | (Rtr, Rts)
                        | (Rts, Rts)
                        | (Rts, Sqd)
                        | (Sqd, Sqd)
                        | (Sqd, Rts)
                );
            let expected =
                if legal { Ok(()) } else { Result::Err(NicError::Modify(ModifyError::Transition { from, to })) };
            assert_eq!(nic.modify_qp(me.qpn, &attr), expected);
            assert_eq!(nic.qp(me.qpn).unwrap().state(), if legal { to } else { from });
        }
    }
}

#[test]
fn a_refused_change_changes_nothing() {
    calm(|case| {
        let mut d = Duo::new(case);
        let bad = QpAttr { state: Some(QpState::Sqd), timeout: Some(3), ..Default::default() };
        let qpn = d.ends[0].qpn;
        assert!(d.net.nics[0].modify_qp(qpn, &bad).is_err());
        assert_eq!(d.net.nics[0].modify_qp(qpn ^ 0xfff, &bad), Err(NicError::NotFound(Object::QueuePair)));
        busy(&mut d);
        d.run();
        assert_eq!(d.done(0).len(), 8);
    });
}

#[test]
fn each_state_takes_what_it_may() {
    use QpState::*;
    calm(|case| {
        let mut d = Duo::new(case);
        let me = create(&mut d.net, 0, &d.connection, 0, None);
        let steps = attributes(&d.connection, me, d.ends[1], 0);
        let remote = d.mem[1];
        let post = |d: &mut Duo| {
            let nic = &mut d.net.nics[0];
            let send = nic.post_send(me.qpn, &wr(1, SendOp::Write, &[], &remote));
            let recv = nic.post_recv(me.qpn, &RecvWr { wr_id: 2, sges: &[] });
            (send, recv)
        };
        for (state, attr) in [(Reset, None), (Init, Some(0)), (Rtr, Some(1)), (Rts, Some(2))] {
            if let Some(step) = attr {
                d.net.nics[0].modify_qp(me.qpn, &steps[step]).unwrap();
            }
            let (send, recv) = post(&mut d);
            assert_eq!(send, if state == Rts { Ok(()) } else { Result::Err(PostError::State(state)) });
            assert_eq!(recv, if state == Reset { Result::Err(PostError::State(state)) } else { Ok(()) });
        }
        d.net.nics[0].modify_qp(me.qpn, &QpAttr { state: Some(Sqd), ..Default::default() }).unwrap();
        assert_eq!(post(&mut d), (Ok(()), Ok(())));
        d.net.nics[0].modify_qp(me.qpn, &QpAttr { state: Some(Err), ..Default::default() }).unwrap();
        let flushed = completions(&mut d.net, me);
        assert_eq!(flushed.len(), 6, "two sends and four receives");
        // In the error state both are accepted, and flushed at once.
        assert_eq!(post(&mut d), (Ok(()), Ok(())));
        let flushed: Vec<_> = completions(&mut d.net, me).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(flushed, [(1, WrFlushErr), (2, WrFlushErr)]);
    });
}

#[test]
fn to_the_error_state_with_traffic_under_way() {
    everywhere(|case| {
        for (who, steps) in [(0, 1), (0, 9), (0, 25), (1, 1), (1, 9), (1, 25)] {
            let mut d = Duo::new(case);
            busy(&mut d);
            d.net.send();
            d.steps(steps);
            d.to(who, QpState::Err);
            d.run();
            // All work posted at the failed end completes, in order: successes, then flushes.
            let done = d.done(who);
            assert_eq!(done.iter().map(|w| w.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
            let flushed = done.iter().position(|w| w.1 != Success).unwrap_or(8);
            assert!(
                done[..flushed].iter().all(|w| w.1 == Success) && done[flushed..].iter().all(|w| w.1 == WrFlushErr)
            );
            if who == 1 && d.state(0) == QpState::Err {
                // The requester finds out by its retries.
                let done = d.done(0);
                let first = done.iter().position(|w| w.1 != Success).unwrap();
                assert_eq!(done[first].1, RetryExcErr);
                assert!(done[first + 1..].iter().all(|w| w.1 == WrFlushErr));
                assert_eq!(done.len(), 8);
            }
            assert_eq!(d.state(who), QpState::Err);
        }
    });
}

#[test]
fn through_reset_and_back_with_traffic_under_way() {
    everywhere(|case| {
        for steps in [0, 3, 10, 30] {
            let mut d = Duo::new(case);
            busy(&mut d);
            d.net.send();
            d.steps(steps);
            for i in [0, 1] {
                d.to(i, QpState::Reset);
                assert_eq!(d.net.nics[i].qp(d.ends[i].qpn).unwrap().send_queue_len(), 0);
            }
            d.wcs = [vec![], vec![]];
            d.poll();
            assert_eq!(d.wcs, [vec![], vec![]], "the completions went with it");
            // Packets in flight find queue pairs in RESET: a new connection waits until they are gone (IBA 12.4.1).
            d.run_for(MS);
            assert_eq!(d.net.in_flight(), 0);
            // New numbers, and the old ones again.
            for psn in [[Psn::new(0x80_0000), Psn::new(0x7f_fffe)], d.connection.psn] {
                d.connection.psn = psn;
                for i in [0, 1] {
                    d.to(i, QpState::Reset);
                    for attr in attributes(&d.connection, d.ends[i], d.ends[1 - i], i) {
                        d.modify(i, attr);
                    }
                }
                busy(&mut d);
                d.post(8, SendOp::FetchAdd { add: 1 }, 8);
                d.run();
                assert_eq!(d.done(0), (0..9).map(|id| (id, Success)).collect::<Vec<_>>());
                assert_eq!(d.done(1), [0, 1, 2, 3].map(|id| (id, Success)));
            }
        }
    });
}

/// A queue pair that is reset and reconnected at once mistakes earlier packets in flight for the ones it expects, if
/// PSNs are the same: here the answer to a READ of another length. Hardware does the same; applications wait, or use
/// other PSNs (IBA 12.4.1).
#[test]
fn answers_from_before_a_reset_answer_what_has_the_same_psn() {
    for transport in ["roce", "irn"] {
        for (distance, ends) in [(0, BadRespErr), (1000, Success)] {
            let case = Case { transport, impairments: "delay 50us", seed: 1 };
            let mut d = Duo::new(&case);
            d.post(0, SendOp::Read, 3000);
            // The answer is in flight.
            d.run_for(60_000);
            d.connection.psn = d.connection.psn.map(|psn| psn.plus(distance));
            for i in [0, 1] {
                d.to(i, QpState::Reset);
            }
            for i in [0, 1] {
                for attr in attributes(&d.connection, d.ends[i], d.ends[1 - i], i) {
                    d.modify(i, attr);
                }
            }
            d.post(1, SendOp::Read, 1000);
            d.run();
            assert_eq!(d.done(0), [(1, ends)], "{transport}, PSNs {distance} on");
        }
    }
}

#[test]
fn destruction_with_traffic_under_way() {
    everywhere(|case| {
        for who in [0, 1] {
            for steps in [0, 5, 20] {
                let mut d = Duo::new(case);
                busy(&mut d);
                d.net.send();
                d.steps(steps);
                let qpn = d.ends[who].qpn;
                d.net.nics[who].destroy_qp(qpn).unwrap();
                assert_eq!(d.net.nics[who].destroy_qp(qpn), Err(NicError::NotFound(Object::QueuePair)));
                d.run();
                if who == 1 {
                    let done = d.done(0);
                    assert_eq!(done.len(), 8);
                    assert!(done.iter().all(|w| w.1 == Success) || d.state(0) == QpState::Err);
                }
                // Its memory, queues and domain can be freed.
                let (mem, inbox, end) = (d.mem[who], d.inbox[who], d.ends[who]);
                let nic = &mut d.net.nics[who];
                for mr in [mem, inbox] {
                    nic.dereg_mr(&mr).unwrap();
                }
                nic.destroy_cq(end.cq).unwrap();
                nic.dealloc_pd(end.pd).unwrap();
            }
        }
    });
}

#[test]
fn a_drained_send_queue_is_told_and_resumes() {
    everywhere(|case| {
        let mut d = Duo::with(case, |c| c.depth = 16);
        let rkey = d.window(0);
        busy(&mut d);
        d.net.send();
        d.steps(2);
        d.modify(0, QpAttr { state: Some(QpState::Sqd), sqd_event: true, ..Default::default() });
        d.post(8, SendOp::Write, 10);
        d.post(9, SendOp::LocalInvalidate(rkey), 0);
        d.run();
        assert_eq!(d.events(0), [Event::SqDrained(d.ends[0].qpn)]);
        // Started work is complete, whatever was lost; nothing else is.
        let drained = d.done(0);
        assert!(drained.iter().all(|w| w.1 == Success) && drained.len() <= 8, "{drained:?}");
        d.to(0, QpState::Rts);
        d.run();
        let rest = d.done(0);
        let all: Vec<_> = drained.into_iter().chain(rest).collect();
        assert_eq!(all, (0..10).map(|id| (id, Success)).collect::<Vec<_>>());
        // Nothing in progress: drained at once, and reported only on request.
        d.to(0, QpState::Sqd);
        assert_eq!(d.events(0), []);
        d.to(0, QpState::Rts);
        d.modify(0, QpAttr { state: Some(QpState::Sqd), sqd_event: true, ..Default::default() });
        assert_eq!(d.events(0), [Event::SqDrained(d.ends[0].qpn)]);
    });
}

#[test]
fn a_change_of_attributes_while_draining_keeps_the_event() {
    calm(|case| {
        let mut d = Duo::new(case);
        busy(&mut d);
        d.net.send();
        d.modify(0, QpAttr { state: Some(QpState::Sqd), sqd_event: true, ..Default::default() });
        d.modify(0, QpAttr { rnr_retry: Some(3), ..Default::default() });
        d.run();
        assert_eq!(d.events(0), [Event::SqDrained(d.ends[0].qpn)]);
    });
}

#[test]
fn limits_on_reads_change_while_drained() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.rd_atomic = 1);
        d.post(0, SendOp::Read, 100);
        d.run();
        for i in [0, 1] {
            d.to(i, QpState::Sqd);
            d.modify(i, QpAttr { max_rd_atomic: Some(16), max_dest_rd_atomic: Some(16), ..Default::default() });
            d.to(i, QpState::Rts);
        }
        let before = d.net.nics[1].counters().rx_read_requests;
        for id in 1..17 {
            d.post(id, SendOp::Read, 100);
        }
        // All sixteen are sent before any is answered.
        let [a, b] = &mut d.net.nics[..] else { unreachable!() };
        assert_eq!(irnic_nic::loopback(d.net.now, a, b, 100), 16);
        assert_eq!(b.counters().rx_read_requests, before + 16);
        d.run();
        assert_eq!(d.done(0), (0..17).map(|id| (id, Success)).collect::<Vec<_>>());
    });
}

#[test]
fn the_draining_queue_still_serves_its_peer() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        d.to(1, QpState::Sqd);
        busy(&mut d);
        d.run();
        assert_eq!(d.done(0), (0..8).map(|id| (id, Success)).collect::<Vec<_>>());
    });
}

#[test]
fn a_queue_pair_ready_to_receive_serves_its_peer_and_says_that_it_was_reached() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        for i in [0, 1] {
            d.to(i, QpState::Reset);
            let steps = attributes(&d.connection, d.ends[i], d.ends[1 - i], i);
            // End 1 stays in RTR.
            for attr in &steps[..3 - i] {
                d.modify(i, *attr);
            }
        }
        busy(&mut d);
        d.run();
        assert_eq!(d.done(0), (0..8).map(|id| (id, Success)).collect::<Vec<_>>());
        assert_eq!(d.events(1), [Event::CommunicationEstablished(d.ends[1].qpn)]);
        assert_eq!(d.state(1), QpState::Rtr);
        // It then begins to send.
        let steps = attributes(&d.connection, d.ends[1], d.ends[0], 1);
        d.modify(1, steps[2]);
        d.wcs = [vec![], vec![]];
        d.try_post(1, 77, SendOp::Read, 5000, |_| ()).unwrap();
        d.run();
        assert_eq!(d.done(1).last(), Some(&(77, Success)));
    });
}

#[test]
fn a_queue_pair_may_be_connected_to_itself() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        d.connection.psn = [Psn::new(0xff_fffe); 2];
        let me = create(&mut d.net, 0, &d.connection, 0, Some((d.ends[0].pd, d.ends[0].cq)));
        for attr in attributes(&d.connection, me, me, 0) {
            d.net.nics[0].modify_qp(me.qpn, &attr).unwrap();
        }
        let sges = [d.sge(0, 0, 5000)];
        let inbox = [irnic_transports::qp::Sge { addr: d.inbox[0].addr, len: 8192, lkey: d.inbox[0].lkey }];
        let mut remote = d.mem[0];
        remote.addr += 60_000;
        let ops = [SendOp::Write, SendOp::Send, SendOp::Read, SendOp::WriteImm(4)];
        for (id, op) in (0..).zip(ops) {
            let nic = &mut d.net.nics[0];
            nic.post_recv(me.qpn, &RecvWr { wr_id: 100 + id, sges: &inbox }).unwrap();
            nic.post_send(me.qpn, &wr(id, op, &sges, &remote)).unwrap();
        }
        d.run();
        let (mut sent, mut received) = (vec![], vec![]);
        for wc in d.wcs[0].drain(..) {
            assert_eq!(wc.status, Success);
            if wc.wr_id < 100 { sent.push(wc.wr_id) } else { received.push(wc.wr_id) }
        }
        assert_eq!((sent, received), (vec![0, 1, 2, 3], vec![100, 101]));
        // It can also refuse itself: its requester has the NAK, though its responder's error is the queue pair's.
        for (id, remote) in [(8, &remote), (9, &d.mem[1]), (10, &remote)] {
            d.net.nics[0].post_send(me.qpn, &wr(id, SendOp::Write, &sges, remote)).unwrap();
        }
        d.run();
        assert_eq!(d.net.nics[0].qp(me.qpn).unwrap().state(), QpState::Err);
        let sent: Vec<_> = d.done(0).into_iter().filter(|(id, _)| *id < 100).collect();
        assert_eq!(sent, [(8, Success), (9, RemAccessErr), (10, WrFlushErr)]);
    });
}
