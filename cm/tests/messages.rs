//! Messages that are lost, repeated, late, or belong to no connection.

mod common;

use common::*;
use irnic_cm::{CmError, ConnParam, EventKind, EventParam, PortSpace, PrivateData, QpKind, Route};
use irnic_transports::qp::QpState;
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{Drep, Dreq, Lap, Mad, Message, Mra, Rej, RejReason, Rep, Rtu, SidrStatus, rejected};

/// Returns the messages that manager `end` has sent since `from` messages were sent.
fn sent(net: &mut Net, end: usize, from: usize) -> Vec<Message> {
    net.take();
    net.sent[from..].iter().filter(|(by, _, _)| *by == end).map(|(_, _, mad)| message(mad)).collect()
}

/// Delivers a message from one manager to another and returns the answers.
fn deliver(net: &mut Net, from: usize, to: usize, message: impl Into<Message>) -> Vec<Message> {
    net.take();
    let before = net.sent.len();
    let mad = Mad { tid: 77, message: message.into() }.to_bytes();
    let now = net.now;
    net.cms[to].receive(now, &path(from, to), &mad);
    sent(net, to, before)
}

/// Returns the first message of a kind that was sent.
fn first(net: &mut Net, name: &str) -> Mad {
    net.take();
    let mads = net.sent.iter().map(|(_, _, mad)| Mad::parse(mad).expect("a message"));
    mads.into_iter().find(|mad| mad.message.name() == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_repeated_request_is_answered_by_the_state_and_raises_no_second_event() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let active = net.connect(0, 1, 7, &param(0x11, b""));
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    let req = first(&mut net, "REQ").message;
    // The application has not answered yet.
    let [Message::Mra(mra)] = deliver(&mut net, 0, 1, req)[..] else { panic!("an MRA") };
    assert_eq!((mra.message_mraed, mra.service_timeout), (rejected::REQ, 24));
    // The REP has been sent.
    net.cms[1].accept(net.now, passive, Some(&param(0x22, b""))).expect("accepted");
    let rep = first(&mut net, "REP").message;
    assert_eq!(deliver(&mut net, 0, 1, req), [rep]);
    net.expect(0, EventKind::ConnectResponse);
    // The other application has not answered yet.
    let [Message::Mra(mra)] = deliver(&mut net, 1, 0, rep)[..] else { panic!("an MRA") };
    assert_eq!(mra.message_mraed, rejected::REP);
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    let rtu = first(&mut net, "RTU").message;
    assert_eq!(deliver(&mut net, 1, 0, rep), [rtu]);
    net.expect(1, EventKind::Established);
    // The exchange is complete.
    assert_eq!(deliver(&mut net, 0, 1, req), []);
    assert_eq!(deliver(&mut net, 0, 1, rtu), []);
    net.run_for(SEC);
    assert!(net.events(0).is_empty() && net.events(1).is_empty());
}

#[test]
fn a_refused_request_that_comes_again_is_refused_again() {
    let mut net = Net::pair();
    net.listen(1, 7);
    net.connect(0, 1, 7, &param(0x11, b""));
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].reject(net.now, passive, 28, &data(b"never")).expect("refused");
    let (req, rej) = (first(&mut net, "REQ").message, first(&mut net, "REJ").message);
    net.cms[1].destroy(net.now, passive).expect("destroyed");
    assert_eq!(deliver(&mut net, 0, 1, req), [rej]);
    assert!(net.events(1).is_empty());
    net.run_for(80 * SEC);
    assert_eq!(net.cms[1].connection_count(), 0, "forgotten in the end");
}

#[test]
fn an_mra_makes_the_active_side_wait() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let start = net.now;
    net.connect(0, 1, 7, &param(0x11, b""));
    let request = net.expect(1, EventKind::ConnectRequest);
    // The application takes a minute.
    net.run(start + 60 * SEC);
    let requests = net.names().iter().filter(|(_, name)| *name == "REQ").count();
    assert_eq!(requests, 2, "one repeat, answered by an MRA");
    net.cms[1].accept(net.now, request.id, Some(&param(0x22, b""))).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
}

#[test]
fn a_lost_confirmation_after_an_mra_takes_no_minute() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, _) = net.accepted();
    // The application is slow: the REP is repeated once, and answered by an MRA.
    net.run_for(SEC);
    let mras = net.names().iter().filter(|name| **name == (0, "MRA")).count();
    assert_eq!(mras, 1);
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    net.faults.loss = 1000;
    net.take();
    net.faults.loss = 0;
    let confirmed = net.now;
    net.expect(1, EventKind::Established);
    assert!(net.now < confirmed + SEC, "{:?} after {confirmed:?}", net.now);
    // Both stay connected when the repeats have ended.
    net.run_for(80 * SEC);
    assert!(net.events(0).is_empty() && net.events(1).is_empty());
    let count = net.names().iter().filter(|name| **name == (0, "RTU")).count();
    assert!((2..20).contains(&count), "{count}");
    net.cms[0].disconnect(net.now, active).expect("under way");
    net.expect(1, EventKind::Disconnected);
    net.expect(0, EventKind::Disconnected);
}

#[test]
fn what_belongs_to_no_connection_is_answered_where_an_answer_helps() {
    let mut net = Net::pair();
    // A DREQ for an unknown connection is answered by a DREP.
    let dreq = Dreq { local_comm_id: 5, remote_comm_id: 6, remote_qpn: 7, ..Dreq::default() };
    let drep = Drep { local_comm_id: 6, remote_comm_id: 5, ..Drep::default() };
    assert_eq!(deliver(&mut net, 0, 1, dreq), [Message::Drep(drep)]);
    // A REP for an unknown request is answered.
    let rep = Rep { local_comm_id: 5, remote_comm_id: 6, ..Rep::default() };
    let [Message::Rej(rej)] = deliver(&mut net, 0, 1, rep)[..] else { panic!("a REJ") };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.message_rejected), (6, 5, rejected::REP));
    assert_eq!(RejReason(rej.reason), RejReason::INVALID_COMM_ID);
    let rtu = Rtu { local_comm_id: 5, remote_comm_id: 6, ..Rtu::default() };
    let [Message::Rej(late)] = deliver(&mut net, 0, 1, rtu)[..] else { panic!("a REJ") };
    assert_eq!(late, Rej { message_rejected: rejected::OTHER, ..rej });
    // Answers to nothing are dropped: no two managers answer each other for ever.
    assert_eq!(deliver(&mut net, 0, 1, drep), []);
    assert_eq!(deliver(&mut net, 0, 1, rej), []);
    assert_eq!(deliver(&mut net, 0, 1, Mra { local_comm_id: 5, remote_comm_id: 6, ..Mra::default() }), []);
    assert_eq!(deliver(&mut net, 0, 1, Lap { local_comm_id: 5, remote_comm_id: 6, ..Lap::default() }), []);
}

#[test]
fn disconnects_are_confirmed_again_in_timewait() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, _) = net.connected();
    net.cms[0].disconnect(net.now, active).expect("under way");
    net.expect(1, EventKind::Disconnected);
    let (dreq, drep) = (first(&mut net, "DREQ").message, first(&mut net, "DREP").message);
    assert_eq!(deliver(&mut net, 0, 1, dreq), [drep]);
    net.run_for(TIMEWAIT);
    assert_eq!(deliver(&mut net, 0, 1, dreq), [drep], "and after it");
}

#[test]
fn messages_with_somebody_elses_ids_change_nothing() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (_, passive) = net.connected();
    let Message::Rtu(rtu) = first(&mut net, "RTU").message else { panic!() };
    let (local_comm_id, remote_comm_id) = (rtu.local_comm_id, rtu.remote_comm_id);
    // A DREQ with a wrong queue pair number is not for this connection.
    let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn: 0x99, ..Dreq::default() };
    assert_eq!(deliver(&mut net, 0, 1, dreq), []);
    // With a wrong communication id it belongs to none.
    let dreq = Dreq { local_comm_id: 99, remote_qpn: 0x22, ..dreq };
    assert!(matches!(deliver(&mut net, 0, 1, dreq)[..], [Message::Drep(_)]));
    let reason = RejReason::CONSUMER_DEFINED.0;
    let rej = Rej { local_comm_id: 99, remote_comm_id, reason, message_rejected: 2, ..Rej::default() };
    assert_eq!(deliver(&mut net, 0, 1, rej), []);
    assert_eq!(deliver(&mut net, 0, 1, Drep { local_comm_id, remote_comm_id, ..Drep::default() }), []);
    net.run_for(SEC);
    assert!(net.events(1).is_empty());
    net.cms[1].qp_attr(passive, QpState::Rts).expect("still connected");
}

#[test]
fn alternate_paths_are_not_supported() {
    let mut net = Net::pair();
    net.listen(1, 7);
    net.connected();
    let Message::Rtu(rtu) = first(&mut net, "RTU").message else { panic!() };
    let lap = Lap { local_comm_id: rtu.local_comm_id, remote_comm_id: rtu.remote_comm_id, ..Lap::default() };
    let [Message::Apr(apr)] = deliver(&mut net, 0, 1, lap)[..] else { panic!("an APR") };
    assert_eq!((apr.local_comm_id, apr.remote_comm_id, apr.status), (rtu.remote_comm_id, rtu.local_comm_id, 2));
}

/// A restarted host connects again by a queue pair number that its peer considers connected.
#[test]
fn a_stale_connection_is_ended_and_the_next_request_is_welcome() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (_, old) = net.connected();
    // The same channel adapter with other communication ids: its process was restarted.
    let mut fresh = config(0);
    fresh.seed = [99; 32];
    net.cms[0] = irnic_cm::Cm::new(fresh);
    let refused = net.connect(0, 1, 7, &param(0x11, b""));
    let event = net.expect(0, EventKind::Rejected);
    assert_eq!((event.id, event.status), (refused, i32::from(RejReason::STALE_CONN.0)));
    assert_eq!(net.expect(1, EventKind::Disconnected).id, old);
    net.connect(0, 1, 7, &param(0x11, b""));
    let again = net.expect(1, EventKind::ConnectRequest);
    assert_ne!(again.id, old);
}

#[test]
fn data_that_overtakes_the_confirmation_establishes() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let active = net.connect(0, 1, 7, &param(0x11, b""));
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    assert!(matches!(net.cms[1].establish(net.now, passive), Err(CmError::State { .. })));
    net.cms[1].accept(net.now, passive, Some(&param(0x22, b""))).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
    net.cms[1].establish(net.now, passive).expect("data has come");
    assert_eq!(net.expect(1, EventKind::Established).id, passive);
    assert_eq!(net.cms[1].establish(net.now, passive), Err(CmError::Connected));
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    net.run_for(SEC);
    assert!(net.events(1).is_empty(), "the RTU says nothing new");
}

#[test]
fn a_datagram_service_is_found_by_sidr() {
    let mut net = Net::pair();
    let listener = net.cms[1].create(PortSpace::Udp, QpKind::Ud).expect("an id");
    net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
    net.cms[1].listen(listener, 0).expect("listening");
    let ask = |net: &mut Net| {
        let id = net.cms[0].create(PortSpace::Udp, QpKind::Ud).expect("an id");
        net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
        net.cms[0].connect(net.now, id, &param(0, b"where?")).expect("under way");
        id
    };
    let init = net.cms[0].qp_attr(listener, QpState::Init);
    assert_eq!(init.err(), Some(CmError::UnknownId), "ids belong to their manager");

    let active = ask(&mut net);
    let request = net.expect(1, EventKind::ConnectRequest);
    let EventParam::Ud(data) = &request.param else { panic!("{request:?}") };
    assert_eq!((&data.private_data[..6], data.private_data.len()), (&b"where?"[..], PrivateData::SIDR_REQ));
    assert_eq!(data.path.dst, address(0));
    // Repeated before the application has answered: silence.
    let req = first(&mut net, "SIDR_REQ").message;
    assert_eq!(deliver(&mut net, 0, 1, req), []);
    net.cms[1].accept(net.now, request.id, Some(&param(0x33, b"here"))).expect("accepted");
    let rep = first(&mut net, "SIDR_REP").message;
    assert_eq!(deliver(&mut net, 0, 1, req), [rep], "and again after the answer");
    let event = net.expect(0, EventKind::Established);
    let EventParam::Ud(found) = &event.param else { panic!("{event:?}") };
    assert_eq!((event.id, found.qpn, found.qkey), (active, 0x33, 0x0123_4567));
    assert_eq!((&found.private_data[..4], found.private_data.len()), (&b"here"[..], PrivateData::SIDR_REP));
    assert_eq!((found.path.src, found.path.dst), (address(0), address(1)));
    let init = net.cms[0].qp_attr(active, QpState::Init).expect("INIT").attr;
    assert_eq!((init.qkey, init.port, init.access), (Some(0x0123_4567), Some(1), None));

    // Refused by the application, and for lack of a listener.
    ask(&mut net);
    let request = net.expect(1, EventKind::ConnectRequest);
    net.cms[1].reject(net.now, request.id, 28, &PrivateData::EMPTY).expect("refused");
    assert_eq!(net.expect(0, EventKind::Unreachable).status, i32::from(SidrStatus::REJECT.0));
    net.cms[1].destroy(net.now, listener).expect("destroyed");
    ask(&mut net);
    assert_eq!(net.expect(0, EventKind::Unreachable).status, i32::from(SidrStatus::UNSUPPORTED.0));
    net.faults.loss = 1000;
    ask(&mut net);
    assert_eq!(net.expect(0, EventKind::Unreachable).status, -110);
}

#[test]
fn ipv6_and_addresses_that_are_not_the_devices_reach_the_other_side() {
    let mut net = Net::pair();
    let listener = net.cms[1].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    net.cms[1].bind(listener, "[::]:7".parse().expect("an address"), false).expect("bound");
    net.cms[1].listen(listener, 0).expect("listening");
    for (src, dst) in
        [("[::1]:999", "[::1]:7"), ("127.0.0.1:999", "127.0.0.1:7"), ("[2001:db8::5]:1", "[2001:db8::6]:7")]
    {
        let (src, dst) = (src.parse().expect("an address"), dst.parse().expect("an address"));
        let id = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        net.cms[0].resolve(id, Route::new(src, dst, path(0, 1), Mtu::B4096)).expect("resolved");
        net.cms[0].connect(net.now, id, &param(0x11, b"")).expect("under way");
        let request = net.expect(1, EventKind::ConnectRequest);
        let addresses = net.cms[1].addresses(request.id).expect("known");
        assert_eq!((addresses.local, addresses.peer), (Some(dst), Some(src)));
        let route = net.cms[1].route(request.id).expect("an id").expect("a route");
        assert_eq!((route.path.src, route.path.dst), (address(1), address(0)));
        net.cms[1].destroy(net.now, request.id).expect("destroyed");
        net.expect(0, EventKind::Rejected);
    }
}

#[test]
fn listeners_are_told_apart_by_address_kind_and_family() {
    let mut net = Net::pair();
    let mut listener = |space, kind, addr: &str, afonly| {
        let id = net.cms[1].create(space, kind).expect("an id");
        if afonly {
            net.cms[1].set_afonly(id, true).expect("set");
        }
        net.cms[1].bind(id, addr.parse().expect("an address"), false).expect("bound");
        net.cms[1].listen(id, 0).expect("listening");
        id
    };
    let one = listener(PortSpace::Tcp, QpKind::Rc, "10.0.0.2:7", false);
    let two = listener(PortSpace::Tcp, QpKind::Rc, "10.0.0.99:7", false);
    let v6 = listener(PortSpace::Tcp, QpKind::Rc, "[::]:8", true);
    let v4 = listener(PortSpace::Tcp, QpKind::Rc, "0.0.0.0:8", false);
    for (dst, expected) in [
        ("10.0.0.2:7", Ok(one)),
        ("10.0.0.99:7", Ok(two)),
        ("10.0.0.3:7", Err(28)),
        ("[2001:db8::1]:8", Ok(v6)),
        ("10.0.0.2:8", Ok(v4)),
        ("10.0.0.2:9", Err(8)),
    ] {
        let id = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        let dst: std::net::SocketAddr = dst.parse().expect("an address");
        let src = if dst.is_ipv4() { "10.0.0.1:99" } else { "[2001:db8::9]:99" }.parse().expect("an address");
        net.cms[0].resolve(id, Route::new(src, dst, path(0, 1), Mtu::B1024)).expect("resolved");
        net.cms[0].connect(net.now, id, &ConnParam::new(0)).expect("under way");
        net.run_for(MS);
        match expected {
            Ok(listener) => assert_eq!(net.expect(1, EventKind::ConnectRequest).listener, Some(listener), "{dst}"),
            Err(reason) => assert_eq!(net.expect(0, EventKind::Rejected).status, reason, "{dst}"),
        }
    }
    // An unreliable connection to a listener for reliable ones.
    let id = net.cms[0].create(PortSpace::Tcp, QpKind::Uc).expect("an id");
    net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
    net.cms[0].connect(net.now, id, &ConnParam::new(0)).expect("under way");
    assert_eq!(net.expect(0, EventKind::Rejected).status, 28);
}

#[test]
fn services_are_reached_by_their_ids() {
    let mut net = Net::pair();
    let listener = net.cms[1].create(PortSpace::Ib, QpKind::Rc).expect("an id");
    net.cms[1].bind_service(listener, 0x1234_5678_0000, !0xff).expect("bound");
    net.cms[1].listen(listener, 0).expect("listening");
    let id = net.cms[0].create(PortSpace::Ib, QpKind::Rc).expect("an id");
    let mut route = route(0, 1, 7);
    route.service_id = Some(0x1234_5678_0042);
    net.cms[0].resolve(id, route).expect("resolved");
    net.cms[0].connect(net.now, id, &param(1, &[9; PrivateData::REQ_IB])).expect("92 bytes");
    let request = net.expect(1, EventKind::ConnectRequest);
    let EventParam::Conn(data) = &request.param else { panic!("{request:?}") };
    assert_eq!((request.listener, &data.private_data[..]), (Some(listener), &[9; PrivateData::REQ_IB][..]));
}

#[test]
fn xrc_connects_a_sender_with_a_receiver() {
    let mut net = Net::pair();
    let listener = net.cms[1].create(PortSpace::Ib, QpKind::XrcRecv).expect("an id");
    net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
    net.cms[1].listen(listener, 0).expect("listening");
    let active = net.cms[0].create(PortSpace::Ib, QpKind::XrcSend).expect("an id");
    net.cms[0].resolve(active, route(0, 1, 7)).expect("resolved");
    net.cms[0].connect(net.now, active, &param(0x11, b"")).expect("under way");
    let request = net.expect(1, EventKind::ConnectRequest);
    assert_eq!(net.cms[1].kind(request.id), Ok((PortSpace::Ib, QpKind::XrcRecv)));
    net.cms[1].accept(net.now, request.id, Some(&param(0x22, b""))).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
    let rtr = net.cms[0].qp_attr(active, QpState::Rtr).expect("RTR").attr;
    assert_eq!((rtr.dest_qp, rtr.max_dest_rd_atomic, rtr.min_rnr_timer), (Some(0x22), None, None));
    let rts = net.cms[1].qp_attr(request.id, QpState::Rts).expect("RTS").attr;
    assert_eq!((rts.timeout, rts.retry_cnt, rts.max_rd_atomic), (Some(17), None, None));
}

#[test]
fn calls_that_make_no_sense_are_refused_with_the_kernels_errno() {
    let mut net = Net::pair();
    let listener = net.listen(1, 7);
    let now = net.now;
    let cm = &mut net.cms[1];
    let id = cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    for (error, errno) in [
        (cm.bind(id, socket(1, 7), false).unwrap_err(), 98),
        (cm.bind(id, socket(1, 7), true).unwrap_err(), 98),
        (cm.bind(id, "0.0.0.0:7".parse().expect("an address"), false).unwrap_err(), 99),
        (cm.bind(id, socket(1, 0), false).unwrap_err(), 22),
        (cm.listen(id, 5).unwrap_err(), 22),
        (cm.connect(now, id, &param(1, b"")).unwrap_err(), 22),
        (cm.accept(now, id, None).unwrap_err(), 22),
        (cm.reject(now, id, 28, &PrivateData::EMPTY).unwrap_err(), 22),
        (cm.disconnect(now, id).unwrap_err(), 22),
        (cm.set_ack_timeout(id, 32).unwrap_err(), 22),
        (cm.connect(now, listener, &param(1, b"")).unwrap_err(), 22),
    ] {
        assert_eq!(error.errno(), errno, "{error}");
    }
    // Other port spaces have separate ports, and two ids may share one that has no listener.
    let udp = cm.create(PortSpace::Udp, QpKind::Ud).expect("an id");
    cm.bind(udp, socket(1, 7), false).expect("another space");
    cm.bind(id, socket(1, 8), true).expect("bound");
    let shared = cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    cm.bind(shared, socket(1, 8), true).expect("shared");
    assert_eq!(cm.listen(id, 1).unwrap_err().errno(), 98);
    cm.destroy(now, shared).expect("destroyed");
    cm.listen(id, 1).expect("alone now");
    assert_eq!(cm.destroy(now, shared).unwrap_err().errno(), 2);
    // Private data that does not fit, and a second connect.
    let id = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
    let error = net.cms[0].connect(now, id, &param(1, &[0; PrivateData::REQ + 1])).unwrap_err();
    assert_eq!(error, CmError::PrivateData { len: 57, room: 56 });
    assert_eq!(net.cms[0].connect(now, id, &param(1 << 24, b"")).unwrap_err().errno(), 22);
    net.cms[0].connect(now, id, &param(1, &[0; PrivateData::REQ])).expect("under way");
    assert_eq!(net.cms[0].connect(now, id, &param(1, b"")).unwrap_err().errno(), 22);
}

#[test]
fn options_reach_the_wire_and_the_queue_pair() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let id = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    net.cms[0].set_tos(id, 0x68).expect("set");
    net.cms[0].set_ack_timeout(id, 19).expect("set");
    net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
    net.cms[0].connect(net.now, id, &param(1, b"")).expect("under way");
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    assert_eq!(net.sent[0].1.traffic_class, 0x68);
    let Message::Req(req) = first(&mut net, "REQ").message else { panic!() };
    assert_eq!((req.primary.traffic_class, req.primary.local_ack_timeout), (0x68, 19));
    net.cms[1].accept(net.now, passive, Some(&param(2, b""))).expect("accepted");
    net.expect(0, EventKind::ConnectResponse);
    for (end, id) in [(0, id), (1, passive)] {
        let rtr = net.cms[end].qp_attr(id, QpState::Rtr).expect("RTR").attr;
        let rts = net.cms[end].qp_attr(id, QpState::Rts).expect("RTS").attr;
        assert_eq!((rtr.path.map(|path| path.traffic_class), rts.timeout), (Some(0x68), Some(19)), "{end}");
    }
}

#[test]
fn a_listener_that_goes_refuses_what_nobody_was_told_of() {
    let mut net = Net::pair();
    let listener = net.listen(1, 7);
    net.connect(0, 1, 7, &param(1, b""));
    net.run_for(MS);
    net.cms[1].destroy(net.now, listener).expect("destroyed");
    assert!(net.events(1).is_empty());
    assert_eq!((net.expect(0, EventKind::Rejected).status, net.cms[1].id_count()), (28, 0));
}

#[test]
fn communication_ids_stay_within_their_range_and_are_never_zero() {
    let mut small = config(0);
    (small.first_comm_id, small.comm_ids) = (0, 4);
    let mut net = Net::new(&[small, config(1)], 1, Faults::NONE);
    net.listen(1, 7);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(net.connect(0, 1, 7, &param(0, b"")));
    }
    let id = net.cms[0].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
    assert_eq!(net.cms[0].connect(net.now, id, &param(0, b"")), Err(CmError::Resources));
    net.take();
    let mut used: Vec<u32> =
        net.sent.iter().map(|(_, _, mad)| u32::from_be_bytes([mad[24], mad[25], mad[26], mad[27]])).collect();
    used.sort_unstable();
    assert_eq!(used, [1, 2, 3]);
}
