//! Completion queues and shared receive queues: arming, solicited events, overflow, limits.

use irnic_nic::{Arm, NicError, NicEvent};
use irnic_transports::qp::{Event, QpState, SendOp, WcStatus::*};

use crate::common::{Network, connect, create};
use crate::kit::{Case, Duo, calm, connection, everywhere};

fn wakes(d: &mut Duo, end: usize) -> usize {
    let mut n = 0;
    while let Some(event) = d.net.nics[end].poll_event() {
        n += usize::from(event == NicEvent::Completion(d.ends[end].cq));
    }
    n
}

#[test]
fn an_armed_queue_wakes_once_for_the_next_completion() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        for id in 0..4 {
            d.recv(id, 100);
        }
        d.post(0, SendOp::Send, 10);
        d.run();
        assert_eq!(wakes(&mut d, 1), 0, "not armed");
        let cq = d.ends[1].cq;
        d.net.nics[1].arm_cq(cq, Arm::Next).unwrap();
        assert_eq!(wakes(&mut d, 1), 0, "not for completions that are there");
        d.post(1, SendOp::Send, 10);
        d.post(2, SendOp::Send, 10);
        d.run();
        assert_eq!(wakes(&mut d, 1), 1);
        d.post(3, SendOp::Send, 10);
        d.run();
        assert_eq!(wakes(&mut d, 1), 0);
    });
}

#[test]
fn a_queue_armed_for_solicited_events_wakes_for_those_and_for_errors() {
    everywhere(|case| {
        for op in [SendOp::Send, SendOp::SendImm(1), SendOp::WriteImm(1)] {
            let mut d = Duo::new(case);
            let cq = d.ends[1].cq;
            for id in 0..4 {
                d.recv(id, 5000);
            }
            d.net.nics[1].arm_cq(cq, Arm::Solicited).unwrap();
            d.post(0, op, 3000);
            d.run();
            assert_eq!(wakes(&mut d, 1), 0);
            d.post_with(1, op, 3000, |wr| wr.solicited = true);
            d.run();
            assert_eq!(wakes(&mut d, 1), 1);
            d.poll();
            assert_eq!(d.wcs[1].iter().map(|wc| wc.solicited).collect::<Vec<_>>(), [false, true]);
            // A queue armed for the next completion stays so.
            d.net.nics[1].arm_cq(cq, Arm::Next).unwrap();
            d.net.nics[1].arm_cq(cq, Arm::Solicited).unwrap();
            d.post(2, op, 10);
            d.run();
            assert_eq!(wakes(&mut d, 1), 1);
            d.net.nics[1].arm_cq(cq, Arm::Solicited).unwrap();
            d.to(1, QpState::Err);
            assert_eq!(wakes(&mut d, 1), 1, "a flushed receive");
        }
    });
}

#[test]
fn an_overflow_sends_every_queue_pair_of_the_queue_to_the_error_state() {
    for receiver in [false, true] {
        for transport in ["roce", "irn"] {
            let mut net = Network::new(2, "delay 5us", 1, &Default::default());
            let c = connection(transport);
            // Two connections; the overflowing side shares one small completion queue.
            let small = usize::from(receiver);
            let pd = net.nics[small].alloc_pd().unwrap();
            let cq = net.nics[small].create_cq(4).unwrap();
            let pair = |net: &mut Network| {
                let given = |i| (i == small).then_some((pd, cq));
                let ends = [create(net, 0, &c, 0, given(0)), create(net, 1, &c, 1, given(1))];
                connect(net, &c, ends);
                ends
            };
            let (first, second) = (pair(&mut net), pair(&mut net));
            for id in 0..6 {
                let recv = irnic_transports::qp::RecvWr { wr_id: id, sges: &[] };
                net.nics[1].post_recv(first[1].qpn, &recv).unwrap();
                let remote = irnic_nic::Mr { lkey: 0, rkey: 0, addr: 0, len: 0 };
                let send = crate::kit::wr(id, SendOp::Send, &[], &remote);
                net.nics[0].post_send(first[0].qpn, &send).unwrap();
            }
            while net.step() {}
            let nic = &mut net.nics[small];
            for qpn in [first[small].qpn, second[small].qpn] {
                assert_eq!(nic.qp(qpn).unwrap().state(), QpState::Err);
            }
            let mut events = Vec::new();
            while let Some(NicEvent::Async(event)) = nic.poll_event() {
                events.push(event);
            }
            assert_eq!(events[0], Event::CqError(cq));
            assert!(events.contains(&Event::QpFatal(first[small].qpn)));
            assert!(events.contains(&Event::QpFatal(second[small].qpn)));
            assert_eq!(events.len(), 3, "{events:?}");
            // The four that fit are still there, in order; then the queue reports the overflow.
            let mut wcs = [irnic_transports::qp::Wc::EMPTY; 8];
            assert_eq!(nic.poll_cq(cq, &mut wcs), Ok(4));
            assert_eq!(
                wcs[..4].iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(),
                [0, 1, 2, 3].map(|i| (i, Success))
            );
            assert!(matches!(nic.poll_cq(cq, &mut wcs), Err(NicError::CqOverflow)));
        }
    }
}

/// A work request that is flushed as it is posted may be the one that overflows the queue.
#[test]
fn a_flush_that_overflows_is_told_to_all_at_once() {
    let mut net = Network::new(2, "delay 5us", 1, &Default::default());
    let c = connection("irn");
    let pd = net.nics[0].alloc_pd().unwrap();
    let cq = net.nics[0].create_cq(2).unwrap();
    let [a, b] = [0, 1].map(|_| {
        let ends = [create(&mut net, 0, &c, 0, Some((pd, cq))), create(&mut net, 1, &c, 1, None)];
        connect(&mut net, &c, ends);
        ends[0]
    });
    let nic = &mut net.nics[0];
    nic.modify_qp(a.qpn, &irnic_transports::qp::QpAttr { state: Some(QpState::Err), ..Default::default() }).unwrap();
    for id in 0..3 {
        assert_eq!(nic.qp(b.qpn).unwrap().state(), QpState::Rts);
        nic.post_recv(a.qpn, &irnic_transports::qp::RecvWr { wr_id: id, sges: &[] }).unwrap();
    }
    assert_eq!(nic.qp(b.qpn).unwrap().state(), QpState::Err);
    assert_eq!(nic.poll_event(), Some(NicEvent::Async(Event::CqError(cq))));
    assert_eq!(nic.poll_event(), Some(NicEvent::Async(Event::QpFatal(b.qpn))));
}

fn shared(case: &Case) -> Duo {
    let net = Network::new(2, case.impairments, case.seed, &Default::default());
    Duo::on(net, connection(case.transport), true)
}

#[test]
fn a_shared_receive_queue_tells_once_that_it_runs_low() {
    everywhere(|case| {
        let mut d = shared(case);
        let srq = d.connection.srq[1].unwrap();
        for id in 0..5 {
            d.recv(id, 100);
        }
        d.net.nics[1].modify_srq(srq, None, Some(3)).unwrap();
        let mut events = vec![];
        for id in 0..4 {
            d.post(id, SendOp::Send, 10);
            d.run();
            events.push(d.events(1));
        }
        let limit = vec![Event::SrqLimitReached(srq)];
        assert_eq!(events, [vec![], vec![], limit.clone(), vec![]], "below 3 once the third is taken");
        d.recv(5, 100);
        d.recv(6, 100);
        d.net.nics[1].modify_srq(srq, None, Some(3)).unwrap();
        d.post(4, SendOp::WriteImm(1), 10);
        d.run();
        assert_eq!(d.events(1), limit);
    });
}

#[test]
fn a_failed_queue_pair_says_that_it_takes_no_more_from_its_shared_receive_queue() {
    everywhere(|case| {
        let mut d = shared(case);
        for id in 0..3 {
            d.recv(id, 100);
        }
        let qpn = d.ends[1].qpn;
        d.post(0, SendOp::Send, 10);
        d.run();
        d.post_with(1, SendOp::Write, 10, |wr| wr.rkey ^= 1);
        d.run();
        assert_eq!(d.events(1), [Event::QpAccessError(qpn), Event::LastWqeReached(qpn)]);
        assert_eq!(d.done(1), [(0, Success)], "what is in the shared queue stays there");
        d.to(1, QpState::Err);
        assert_eq!(d.events(1), []);
    });
}

#[test]
fn only_signaled_work_requests_complete_unless_all_do_or_they_fail() {
    calm(|case| {
        for all in [false, true] {
            let mut d = Duo::with(case, |c| c.sq_sig_all = all);
            for id in 0..6 {
                d.post_with(id, SendOp::Write, 10, |wr| wr.signaled = id % 3 == 2);
            }
            d.run();
            let expected: Vec<_> = (0..6).filter(|id| all || id % 3 == 2).map(|id| (id, Success)).collect();
            assert_eq!(d.done(0), expected);
            d.post_with(6, SendOp::Write, 10, |wr| (wr.signaled, wr.rkey) = (false, 1));
            d.post_with(7, SendOp::Write, 10, |wr| wr.signaled = false);
            d.run();
            assert_eq!(d.done(0), [(6, RemAccessErr), (7, WrFlushErr)]);
        }
    });
}
