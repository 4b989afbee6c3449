//! Completion channels.

use std::sync::atomic::{AtomicBool, Ordering};

use irnic_verbs::abi::consts::*;
use irnic_verbs::calls::*;
use libc::EAGAIN;

use crate::kit::{Channel, Cq, Ctx, Qp, QpSpec, Recv, Send, Watchdog, connect, never_block, readable, wait_for};
use crate::open;

/// A connection with itself whose receives complete on a queue that has a channel.
struct Bell {
    qp: Qp,
    recv_cq: Cq,
    send_cq: Cq,
    channel: Channel,
    pd: crate::kit::Pd,
    _ctx: Ctx,
}

impl Bell {
    fn new() -> Bell {
        let ctx = open();
        let pd = ctx.pd();
        let channel = ctx.channel();
        let (send_cq, recv_cq) = (ctx.cq(16), ctx.cq_on(16, channel.0));
        let qp = pd.qp_on(&send_cq, &recv_cq, QpSpec::rc());
        connect(&qp, &qp);
        never_block(channel.fd());
        Bell { qp, recv_cq, send_cq, channel, pd, _ctx: ctx }
    }

    /// One message; its send is complete, so its receive is as well.
    fn message(&self, flags: u32) {
        assert_eq!(self.qp.recv(Recv::new(7)), 0);
        assert_eq!(self.qp.post(Send::message(8).flags(flags)), 0);
        self.send_cq.expect(8, IBV_WC_SUCCESS);
    }

    fn rings(&self) -> bool {
        let readable = readable(self.channel.fd(), 0);
        match self.channel.take() {
            Ok(cq) => {
                assert!(readable, "an event without readiness");
                assert_eq!(cq, self.recv_cq.0);
                self.recv_cq.ack(1);
                true
            }
            Err(errno) => {
                assert!(!readable, "readiness without an event");
                assert_eq!(errno, EAGAIN);
                false
            }
        }
    }
}

#[test]
fn each_arming_gives_one_event() {
    let bell = Bell::new();
    bell.message(0);
    assert!(!bell.rings(), "not armed");
    assert_eq!(bell.recv_cq.arm(false), 0);
    assert!(!bell.rings(), "what is there already does not count");
    bell.message(0);
    bell.message(0);
    assert!(bell.rings());
    assert!(!bell.rings(), "one event per arming");
    for _ in 0..3 {
        assert_eq!(bell.recv_cq.arm(false), 0);
    }
    bell.message(0);
    assert!(bell.rings());
    assert!(!bell.rings(), "armed thrice is armed");
    assert_eq!(bell.recv_cq.poll_many(16).0, 4);
}

#[test]
fn solicited_events_come_for_solicited_messages_and_errors() {
    let bell = Bell::new();
    assert_eq!(bell.recv_cq.arm(true), 0);
    bell.message(0);
    assert!(!bell.rings());
    bell.message(IBV_SEND_SOLICITED);
    assert!(bell.rings());
    assert_eq!(bell.recv_cq.arm(true), 0);
    assert_eq!(bell.qp.recv(Recv::new(1)), 0);
    assert_eq!(bell.qp.to_state(IBV_QPS_ERR), 0);
    assert!(bell.rings(), "a flush is an error");
}

#[test]
fn arming_for_any_completion_wins_over_solicited() {
    let bell = Bell::new();
    bell.recv_cq.arm(false);
    bell.recv_cq.arm(true);
    bell.message(0);
    assert!(bell.rings());
}

#[test]
fn poll_sees_an_event_while_the_application_sleeps() {
    let _watchdog = Watchdog::start("poll(2) on a completion channel");
    let bell = Bell::new();
    let peer = bell.pd.qp_on(&bell.send_cq, &bell.recv_cq, QpSpec::uc());
    connect(&peer, &peer);
    for _ in 0..20 {
        bell.recv_cq.arm(false);
        assert_eq!(peer.recv(Recv::new(1)), 0);
        assert_eq!(peer.post(Send::message(2)), 0);
        // Nobody polls: the background thread brings it.
        assert!(readable(bell.channel.fd(), 50_000));
        assert!(bell.rings());
        bell.recv_cq.expect(1, IBV_WC_SUCCESS);
        bell.send_cq.expect(2, IBV_WC_SUCCESS);
    }
}

#[test]
fn destroying_a_queue_takes_its_events_along() {
    let ctx = open();
    let pd = ctx.pd();
    let channel = ctx.channel();
    never_block(channel.fd());
    let other = ctx.cq_on(4, channel.0);
    let qp_other = pd.qp(&other, QpSpec::uc());
    connect(&qp_other, &qp_other);
    {
        let cq = ctx.cq_on(4, channel.0);
        let qp = pd.qp(&cq, QpSpec::uc());
        connect(&qp, &qp);
        for (cq, qp) in [(&cq, &qp), (&other, &qp_other)] {
            cq.arm(false);
            assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
            assert_eq!(qp.post(Send::message(1)), 0);
        }
        assert!(readable(channel.fd(), 0));
    }
    assert_eq!(channel.take(), Ok(other.0), "the other's event stays");
    other.ack(1);
    assert!(!readable(channel.fd(), 0));
    assert_eq!(channel.take(), Err(EAGAIN));
}

#[test]
fn destroying_a_queue_waits_for_acknowledgements() {
    let _watchdog = Watchdog::start("ibv_destroy_cq");
    let bell = Bell::new();
    for _ in 0..3 {
        bell.recv_cq.arm(false);
        bell.message(0);
        assert_eq!(bell.channel.take(), Ok(bell.recv_cq.0));
    }
    let Bell { qp, recv_cq, send_cq, channel, pd, _ctx } = bell;
    drop(qp);
    let destroyed = AtomicBool::new(false);
    let cq = recv_cq;
    std::thread::scope(|scope| {
        let address = cq.0 as usize;
        let destroyed = &destroyed;
        scope.spawn(move || {
            // SAFETY: exists; the other thread only acknowledges, until this is over.
            assert_eq!(unsafe { ibv_destroy_cq(address as *mut _) }, 0);
            destroyed.store(true, Ordering::SeqCst);
        });
        cq.ack(1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!destroyed.load(Ordering::SeqCst), "two events are not acknowledged");
        cq.ack(2);
        wait_for("the end of ibv_destroy_cq", || destroyed.load(Ordering::SeqCst).then_some(()));
    });
    std::mem::forget(cq);
    drop((send_cq, channel, pd, _ctx));
}

#[test]
fn an_armed_queue_can_be_destroyed_and_its_number_used_again() {
    let ctx = open();
    let channel = ctx.channel();
    never_block(channel.fd());
    for _ in 0..200 {
        let cq = ctx.cq_on(2, channel.0);
        cq.arm(false);
    }
    assert_eq!(channel.take(), Err(EAGAIN));
    // A queue without a channel may be armed: nobody is told.
    let cq = ctx.cq(4);
    assert_eq!(cq.arm(false), 0);
}
