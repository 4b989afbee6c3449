//! Asynchronous events.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

use crate::kit::{QpSpec, Recv, Send, Watchdog, connect, readable, wait_for, zeroed};
use crate::open;

#[test]
fn a_send_queue_says_when_it_is_drained() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    for service in [IBV_QPT_RC, IBV_QPT_UC] {
        let qp = pd.qp(&cq, QpSpec::new(service));
        connect(&qp, &qp);
        let sqd = ibv_qp_attr { qp_state: IBV_QPS_SQD, en_sqd_async_notify: 1, ..zeroed() };
        assert_eq!(qp.modify(&sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
        assert_eq!(ctx.event(), (IBV_EVENT_SQ_DRAINED, qp.0));
        assert_eq!(qp.to_state(IBV_QPS_RTS), 0);
        assert_eq!(qp.to_state(IBV_QPS_SQD), 0);
        assert!(ctx.event_now().is_none(), "not asked for");
    }
}

#[test]
fn a_responder_says_what_its_peer_did_wrong() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let (cq, other_cq) = (ctx.cq(8), ctx.cq(8));
    let mr = pd.mr(64);
    let (a, b) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&other_cq, QpSpec::rc()));
    connect(&a, &b);
    assert_eq!(a.post(Send::write(1, (mr.addr(), 0)).sge(mr.sge(0, 8))), 0);
    cq.expect(1, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(ctx.event(), (IBV_EVENT_QP_ACCESS_ERR, b.0));
    assert!(ctx.event_now().is_none());
    assert_eq!([a.query().0.qp_state, b.query().0.qp_state], [IBV_QPS_ERR; 2]);
}

#[test]
fn communication_is_established_by_the_first_packet() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    for service in [IBV_QPT_RC, IBV_QPT_UC] {
        let (a, b) = (pd.qp(&cq, QpSpec::new(service)), pd.qp(&cq, QpSpec::new(service)));
        b.bring(IBV_QPS_RTR, &b.attr(a.num()));
        a.bring(IBV_QPS_RTS, &a.attr(b.num()));
        assert_eq!(b.recv(Recv::new(1)), 0);
        assert_eq!(b.recv(Recv::new(1)), 0);
        assert_eq!(a.post(Send::message(1)), 0);
        assert_eq!(a.post(Send::message(1)), 0);
        for _ in 0..4 {
            cq.expect(1, IBV_WC_SUCCESS);
        }
        assert_eq!(ctx.event(), (IBV_EVENT_COMM_EST, b.0));
        assert!(ctx.event_now().is_none(), "once");
    }
}

#[test]
fn a_failed_queue_pair_with_a_shared_receive_queue_says_when_it_takes_no_more() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let srq = pd.srq(8, 1);
    let qp = pd.qp(&cq, QpSpec::rc().srq(&srq));
    connect(&qp, &qp);
    assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
    assert_eq!(ctx.event(), (IBV_EVENT_QP_LAST_WQE_REACHED, qp.0));
    assert!(ctx.event_now().is_none());
}

#[test]
fn a_shared_receive_queue_says_when_few_requests_are_left() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(32);
    let srq = pd.srq(8, 1);
    let qp = pd.qp(&cq, QpSpec::rc().srq(&srq));
    connect(&qp, &qp);
    for wr_id in 0..6 {
        assert_eq!(srq.post(Recv::new(wr_id)), 0);
    }
    assert_eq!(srq.modify(None, Some(4)), 0);
    let message = || {
        assert_eq!(qp.post(Send::message(9)), 0);
        cq.wait();
        cq.wait();
    };
    message();
    message();
    assert!(ctx.event_now().is_none(), "four are left");
    message();
    assert_eq!(ctx.event(), (IBV_EVENT_SRQ_LIMIT_REACHED, srq.0.cast()));
    assert_eq!(srq.query().srq_limit, 0, "told once");
    message();
    assert!(ctx.event_now().is_none());
}

#[test]
fn an_overflow_fails_the_queue_and_its_queue_pairs() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let (cq, fine) = (ctx.cq(2), ctx.cq(32));
    let (qp, other) = (pd.qp_on(&cq, &fine, QpSpec::uc()), pd.qp(&fine, QpSpec::uc()));
    connect(&qp, &qp);
    connect(&other, &other);
    let cqe = cq.entries();
    for wr_id in 0..=cqe as u64 {
        assert_eq!(qp.post(Send::message(wr_id)), 0);
    }
    let mut events = vec![ctx.event(), ctx.event()];
    events.sort_unstable();
    assert_eq!(events, [(IBV_EVENT_CQ_ERR, cq.0.cast()), (IBV_EVENT_QP_FATAL, qp.0)]);
    assert_eq!(qp.query().0.qp_state, IBV_QPS_ERR);
    assert_eq!(other.query().0.qp_state, IBV_QPS_RTS);
    // What came before is there, then it is an error.
    assert_eq!(cq.poll_many(cqe as usize).0, cqe);
    assert!(cq.poll_many(1).0 < 0);
}

#[test]
fn destroying_an_object_takes_its_events_along() {
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let srq = pd.srq(8, 1);
    for _ in 0..3 {
        let qp = pd.qp(&cq, QpSpec::rc().srq(&srq));
        connect(&qp, &qp);
        assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
        // SAFETY: open.
        assert!(readable(unsafe { (*ctx.0).async_fd }, 0));
    }
    // SAFETY: open.
    assert!(!readable(unsafe { (*ctx.0).async_fd }, 0));
    assert!(ctx.event_now().is_none());
}

#[test]
fn destroying_an_object_waits_until_its_events_are_acknowledged() {
    let _watchdog = Watchdog::start("ibv_destroy_qp");
    let ctx = open();
    ctx.never_block();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let srq = pd.srq(8, 1);
    let qp = pd.qp(&cq, QpSpec::rc().srq(&srq));
    connect(&qp, &qp);
    assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
    let mut event = wait_for("an event", || ctx.event_now());
    let destroyed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (qp, destroyed) = (qp, &destroyed);
        scope.spawn(move || {
            drop(qp);
            destroyed.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!destroyed.load(Ordering::SeqCst));
        // SAFETY: the queue pair exists until this is done.
        unsafe { ibv_ack_async_event(&mut event) };
        wait_for("the end of ibv_destroy_qp", || destroyed.load(Ordering::SeqCst).then_some(()));
    });
}

#[test]
fn events_go_to_the_context_of_their_object() {
    let (ctx, other) = (open(), open());
    ctx.never_block();
    other.never_block();
    let (pd, other_pd) = (ctx.pd(), other.pd());
    let (cq, other_cq) = (ctx.cq(8), other.cq(8));
    let (a, b) = (pd.qp(&cq, QpSpec::rc()), other_pd.qp(&other_cq, QpSpec::rc()));
    connect(&a, &b);
    let mr = pd.mr(8);
    assert_eq!(a.post(Send::write(1, (mr.addr(), 0)).sge(mr.sge(0, 8))), 0);
    assert_eq!(other.event(), (IBV_EVENT_QP_ACCESS_ERR, b.0));
    assert!(ctx.event_now().is_none());
}
