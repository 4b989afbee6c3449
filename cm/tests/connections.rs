//! Connections of two managers: the events on each side, and the messages on the wire.

mod common;

use common::*;
use irnic_cm::{Cm, CmError, ConnData, EventKind, EventParam, PortSpace, PrivateData, QpKind};
use irnic_transports::qp::{Access, QpState};
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{Message, RejReason};
use irnic_transports::{Psn, Time};

fn conn(param: &EventParam) -> ConnData {
    match param {
        EventParam::Conn(data) => *data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let mut net = Net::pair();
    let listener = net.listen(1, 7);
    let active = net.connect(0, 1, 7, &param(0x11, b"hello"));

    let request = net.expect(1, EventKind::ConnectRequest);
    assert_eq!((request.listener, request.status), (Some(listener), 0));
    let data = conn(&request.param);
    assert_eq!((&data.private_data[..5], data.private_data.len()), (&b"hello"[..], PrivateData::REQ));
    assert_eq!((data.qpn, data.retry_count, data.rnr_retry_count), (0x11, 7, 7));
    assert_eq!((data.responder_resources, data.initiator_depth), (1, 1));
    let passive = request.id;
    let addresses = net.cms[1].addresses(passive).expect("known");
    assert_eq!((addresses.local, addresses.peer), (Some(socket(1, 7)), Some(socket(0, 40_000))));
    net.cms[1].accept(net.now, passive, Some(&param(0x22, b"welcome"))).expect("accepted");

    let response = net.expect(0, EventKind::ConnectResponse);
    let answered = conn(&response.param);
    assert_eq!((response.id, answered.qpn, answered.private_data.len()), (active, 0x22, PrivateData::REP));
    assert_eq!(&answered.private_data[..7], b"welcome");
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    assert_eq!(net.expect(1, EventKind::Established).id, passive);

    net.cms[0].disconnect(net.now, active).expect("under way");
    assert_eq!(net.expect(1, EventKind::Disconnected).id, passive);
    assert_eq!(net.expect(0, EventKind::Disconnected).status, 0);
    assert_eq!(net.expect(0, EventKind::TimewaitExit).id, active);
    assert_eq!(net.expect(1, EventKind::TimewaitExit).id, passive);
    let expected = [(0, "REQ"), (1, "REP"), (0, "RTU"), (0, "DREQ"), (1, "DREP")];
    assert_eq!(net.names(), expected);
    for (end, id) in [(0, active), (1, passive), (1, listener)] {
        net.cms[end].destroy(net.now, id).expect("destroyed");
        assert_eq!(net.cms[end].connection_count(), 0);
    }
    assert_eq!((net.cms[0].id_count(), net.cms[1].id_count(), net.next()), (0, 0, Time::NEVER));
}

#[test]
fn queue_pairs_of_both_sides_fit_together() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, passive) = net.connected();
    let mut attr = |end: usize, state| {
        let id = [active, passive][end];
        net.cms[end].qp_attr(id, state).expect("attributes").attr
    };
    let init = attr(0, QpState::Init);
    assert_eq!((init.pkey_index, init.port), (Some(0), Some(1)));
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    assert_eq!(init.access, Some(rights));
    let ends: Vec<_> = (0..2).map(|end| (attr(end, QpState::Rtr), attr(end, QpState::Rts))).collect();
    for (end, peer) in [(0, 1), (1, 0)] {
        let (rtr, rts) = &ends[end];
        assert_eq!(rtr.dest_qp, Some([0x11, 0x22][peer]));
        assert_eq!(rtr.path.map(|path| (path.src, path.dst)), Some((address(end), address(peer))));
        assert_eq!((rtr.path_mtu, rtr.min_rnr_timer, rtr.max_dest_rd_atomic), (Some(Mtu::B1024), Some(0), Some(1)));
        assert_eq!(rts.sq_psn, ends[peer].0.rq_psn, "what one sends first is what the other expects");
        assert_eq!(
            (rts.timeout, rts.retry_cnt, rts.rnr_retry, rts.max_rd_atomic),
            (Some(17), Some(7), Some(7), Some(1))
        );
    }
    assert_ne!(ends[0].1.sq_psn, ends[1].1.sq_psn);
    // In any state, the attributes are those of the transition.
    for (rtr, rts) in &ends {
        rtr.check(irnic_transports::qp::Service::Rc, QpState::Init).expect("INIT to RTR");
        rts.check(irnic_transports::qp::Service::Rc, QpState::Rtr).expect("RTR to RTS");
    }
}

#[test]
fn attributes_can_be_had_when_the_kernel_gives_them() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let idle = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    let init = net.cms[0].qp_attr(idle, QpState::Init).expect("INIT at any time");
    assert_eq!(init.attr.access, Some(Access::default()));
    assert!(matches!(net.cms[0].qp_attr(idle, QpState::Rtr), Err(CmError::State { .. })));
    let active = net.connect(0, 1, 7, &param(0x11, b""));
    assert!(matches!(net.cms[0].qp_attr(active, QpState::Rtr), Err(CmError::State { .. })));
    // The passive side may set its queue pair before it accepts; its PSN is the one that it will send.
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    let before = net.cms[1].qp_attr(passive, QpState::Rtr).expect("RTR").attr;
    net.cms[1].qp_attr(passive, QpState::Rts).expect("RTS");
    net.cms[1].accept(net.now, passive, Some(&param(0x22, b""))).expect("accepted");
    let after = net.cms[1].qp_attr(passive, QpState::Rtr).expect("RTR").attr;
    assert_eq!((before.rq_psn, before.dest_qp), (after.rq_psn, after.dest_qp));
    assert_ne!(before.rq_psn, Some(Psn::new(0)));
}

#[test]
fn retries_above_seven_count_as_seven_and_the_smaller_mtu_counts() {
    let mut net = Net::new(&[config(0), config(1).with_mtu(Mtu::B512)], 1, Faults::NONE);
    net.listen(1, 7);
    let mut wild = param(0x11, b"");
    (wild.retry_count, wild.rnr_retry_count) = (15, 200);
    let active = net.connect(0, 1, 7, &wild);
    let request = net.expect(1, EventKind::ConnectRequest);
    assert_eq!((conn(&request.param).retry_count, conn(&request.param).rnr_retry_count), (7, 7));
    let rtr = net.cms[1].qp_attr(request.id, QpState::Rtr).expect("RTR").attr;
    assert_eq!(rtr.path_mtu, Some(Mtu::B512));
    wild.rnr_retry_count = 9;
    net.cms[1].accept(net.now, request.id, Some(&wild)).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
    let rts = net.cms[0].qp_attr(active, QpState::Rts).expect("RTS").attr;
    assert_eq!((rts.retry_cnt, rts.rnr_retry), (Some(7), Some(7)));
}

#[test]
fn refusals_bring_their_reason_and_private_data() {
    let mut net = Net::pair();
    // No listener.
    let alone = net.connect(0, 1, 9, &param(1, b""));
    let event = net.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (alone, i32::from(RejReason::INVALID_SERVICE_ID.0)));

    net.listen(1, 7);
    let active = net.connect(0, 1, 7, &param(1, b""));
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].reject(net.now, passive, RejReason::CONSUMER_DEFINED.0, &data(b"no")).expect("refused");
    let event = net.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (active, 28));
    let said = conn(&event.param).private_data;
    assert_eq!((&said[..2], said.len()), (&b"no"[..], PrivateData::REJ));
    let again = net.cms[1].accept(net.now, passive, Some(&param(2, b"")));
    assert!(matches!(again, Err(CmError::State { .. })), "{again:?}");

    // The active side rejects the answer.
    let active = net.connect(0, 1, 7, &param(2, b""));
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].accept(net.now, passive, Some(&param(3, b""))).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
    net.cms[0].reject(net.now, active, 35, &PrivateData::EMPTY).expect("refused");
    let event = net.expect(1, EventKind::Rejected);
    assert_eq!((event.id, event.status), (passive, 35));
}

#[test]
fn destroying_an_id_tells_the_peer_in_every_state() {
    for state in ["request sent", "request received", "accepted", "answer received", "connected"] {
        for destroyer in [0, 1] {
            let mut net = Net::pair();
            let listener = net.listen(1, 7);
            let active = net.connect(0, 1, 7, &param(1, b""));
            let mut passive = None;
            if state != "request sent" {
                passive = Some(net.expect(1, EventKind::ConnectRequest).id);
            }
            if !state.starts_with("request") {
                net.cms[1].accept(net.now, passive.expect("asked"), Some(&param(2, b""))).expect("accepted");
            }
            if state == "answer received" || state == "connected" {
                net.expect(0, EventKind::ConnectResponse);
            }
            if state == "connected" {
                net.cms[0].accept(net.now, active, None).expect("confirmed");
                net.expect(1, EventKind::Established);
            }
            let victim = if destroyer == 0 { Some(active) } else { passive };
            let Some(victim) = victim else { continue };
            net.cms[destroyer].destroy(net.now, victim).expect("destroyed");
            net.run_for(2 * SEC);
            let received: Vec<_> = net.events(1 - destroyer).into_iter().map(|event| event.kind).collect();
            let expected = match (state, destroyer) {
                // The REQ is followed by the REJ.
                ("request sent", _) => vec![EventKind::ConnectRequest, EventKind::Rejected],
                ("connected", _) => vec![EventKind::Disconnected, EventKind::TimewaitExit],
                ("accepted", 0) => vec![EventKind::Rejected],
                ("accepted", 1) => vec![EventKind::ConnectResponse, EventKind::Rejected],
                _ => vec![EventKind::Rejected],
            };
            assert_eq!(received, expected, "{state}, {destroyer} destroys");
            assert!(net.events(destroyer).is_empty(), "{state}: no event after destroy");
            net.cms[1].destroy(net.now, listener).expect("destroyed");
            net.run_for(200 * SEC);
            assert_eq!((net.cms[0].connection_count(), net.cms[1].connection_count()), (0, 0), "{state}");
        }
    }
}

#[test]
fn a_peer_that_is_not_there_is_unreachable_when_the_kernel_would_say_so() {
    let mut net = Net::pair();
    net.faults.loss = 1000;
    let start = net.now;
    net.connect(0, 1, 7, &param(1, b""));
    let event = net.expect(0, EventKind::Unreachable);
    assert_eq!((event.status, net.now.since(start)), (-110, 16 * 4608 * MS));
    assert!((20..=22).contains(&net.sent.len()), "a REQ and its repeats: {}", net.sent.len());
}

#[test]
fn a_dead_peer_ends_a_connection_that_is_disconnected() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, _) = net.connected();
    net.faults.loss = 1000;
    net.cms[0].disconnect(net.now, active).expect("under way");
    assert_eq!(net.expect(0, EventKind::Disconnected).status, -110);
    assert_eq!(net.expect(0, EventKind::TimewaitExit).id, active);
}

/// Connects two ids of one manager.
#[test]
fn a_manager_connects_to_itself() {
    let mut net = Net::new(&[config(0)], 1, Faults::NONE);
    let listener = net.listen(0, 7);
    let active = net.connect(0, 0, 7, &param(0x11, b"me"));
    let request = net.expect(0, EventKind::ConnectRequest);
    assert_eq!(request.listener, Some(listener));
    net.cms[0].accept(net.now, request.id, Some(&param(0x22, b""))).expect("accepted");
    assert_eq!(net.expect(0, EventKind::ConnectResponse).id, active);
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    assert_eq!(net.expect(0, EventKind::Established).id, request.id);
    let sends = |cm: &mut Cm, id| cm.qp_attr(id, QpState::Rts).expect("RTS").attr.sq_psn;
    let expects = |cm: &mut Cm, id| cm.qp_attr(id, QpState::Rtr).expect("RTR").attr.rq_psn;
    assert_eq!(sends(&mut net.cms[0], active), expects(&mut net.cms[0], request.id));
    assert_eq!(sends(&mut net.cms[0], request.id), expects(&mut net.cms[0], active));
    net.cms[0].disconnect(net.now, request.id).expect("under way");
    net.run_for(2 * SEC);
    let kinds: Vec<_> = net.events(0).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds.iter().filter(|&&kind| kind == EventKind::Disconnected).count(), 2);
    assert_eq!(kinds.iter().filter(|&&kind| kind == EventKind::TimewaitExit).count(), 2);
    assert_eq!(net.cms[0].connection_count(), 0);
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, passive) = net.connected();
    net.cms[0].disconnect(net.now, active).expect("under way");
    net.cms[1].disconnect(net.now, passive).expect("under way");
    net.run_for(2 * SEC);
    for end in [0, 1] {
        let kinds: Vec<_> = net.events(end).into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Disconnected, EventKind::TimewaitExit]);
    }
    assert!(matches!(net.sent.last().map(|(_, _, mad)| message(mad)), Some(Message::Drep(_))));
}
