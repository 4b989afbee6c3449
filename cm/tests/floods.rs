//! Thousands of forged requests: they neither fill memory nor keep a genuine client out.

mod common;

use std::net::{IpAddr, Ipv4Addr};

use common::*;
use irnic_cm::{Cm, CmId, EventKind, PortSpace, QpKind};
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::mad::{MAD_LEN, Mad, Message, SidrReq};
use irnic_transports::{Path, Psn, Time};

/// Returns a REQ as manager 0 would send it.
fn real_request(net: &mut Net) -> Mad {
    let id = net.connect(0, 1, 7, &param(0x11, b""));
    net.take();
    let mad = Mad::parse(&net.sent[0].2).expect("a message");
    net.cms[0].destroy(net.now, id).expect("destroyed");
    *net = Net::new(&[config(0), config(1)], 1, Faults::NONE);
    mad
}

/// Returns the `n`th forged REQ: its own adapter, queue pair, communication id and address.
fn forged(real: &Mad, n: u32) -> (Path, [u8; MAD_LEN]) {
    let Message::Req(mut req) = real.message else { panic!("{real:?}") };
    let fields = &mut req.fields;
    (fields.local_ca_guid, fields.local_qpn) = (0xbad_0000 + u64::from(n), n & 0xff_ffff);
    (fields.local_comm_id, fields.starting_psn) = (n + 1, Psn::new(n));
    let address = IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 + n));
    req.primary.local_gid = irnic_transports::wire::ip::to_ipv6(address);
    let path = Path { src: address, ..path(0, 1) };
    (path, Mad { tid: u64::from(n), message: req.into() }.to_bytes())
}

/// A client that connects in the midst of a flood: when it was notified that the connection is established.
struct Good {
    id: CmId,
    done: Option<Time>,
}

/// Ten thousand forged requests within `within` ns, to an application that accepts all requests. Halfway a genuine
/// client connects.
fn flood(within: u64) -> (u64, Net, Vec<CmId>) {
    let mut net = Net::pair();
    let real = real_request(&mut net);
    let mut net = net.without_record();
    net.listen(1, 7);
    let (start, count) = (net.now, 10_000);
    let mut good: Option<Good> = None;
    let mut requests = Vec::new();
    let mut most = 0;
    let mut qpn = 0x1000;
    for n in 0..count {
        let at = start + within / u64::from(count) * u64::from(n);
        net.run(at);
        let (path, mad) = forged(&real, n);
        net.inject(path, mad);
        if n == count / 2 {
            good = Some(Good { id: net.connect(0, 1, 7, &param(0x11, b"good")), done: None });
        }
        step(&mut net, &mut good, &mut requests, &mut qpn);
        most = most.max(net.cms[1].connection_count());
    }
    let since = net.now;
    while good.as_ref().is_some_and(|good| good.done.is_none()) && net.now < since + 5 * SEC {
        net.run_for(MS);
        step(&mut net, &mut good, &mut requests, &mut qpn);
    }
    let began = start + within / 2;
    let config = *net.cms[1].config();
    // Those that a listener counts, and those remembered for their answer.
    assert!(most <= config.max_ids.min(2 * config.max_backlog as usize + config.max_ended), "{most}");
    (good.and_then(|good| good.done).map_or(u64::MAX, |done| done.since(began)), net, requests)
}

/// Lets the application accept requests, and destroy failed ids; the genuine client confirms.
fn step(net: &mut Net, good: &mut Option<Good>, requests: &mut Vec<CmId>, qpn: &mut u32) {
    net.run(net.now);
    let now = net.now;
    for event in net.events(1) {
        match event.kind {
            EventKind::ConnectRequest => {
                *qpn += 1;
                net.cms[1].accept(now, event.id, Some(&param(*qpn, b""))).expect("accepted");
                requests.push(event.id);
            }
            EventKind::Established => {
                let good = good.as_mut().expect("only the good one confirms");
                good.done = Some(now);
            }
            EventKind::Unreachable => {
                net.cms[1].destroy(now, event.id).expect("destroyed");
                requests.retain(|&id| id != event.id);
            }
            kind => panic!("{kind:?}"),
        }
    }
    for event in net.events(0) {
        assert_eq!(event.kind, EventKind::ConnectResponse, "{event:?}");
        let good = good.as_ref().expect("it connects");
        assert_eq!(event.id, good.id);
        net.cms[0].accept(now, good.id, None).expect("confirmed");
    }
}

#[test]
fn a_good_client_connects_within_a_second_of_a_flood() {
    for within in [SEC / 2, SEC, 5 * SEC] {
        let (took, mut net, requests) = flood(within);
        assert!(took < SEC, "{took} ns, the flood {within} ns");
        // Connections of the flood end by themselves, and those that the application ends are removed.
        let now = net.now;
        for id in requests {
            net.cms[1].destroy(now, id).expect("destroyed");
        }
        net.run_for(300 * SEC);
        assert_eq!((net.cms[1].id_count(), net.cms[1].connection_count()), (1, 0));
    }
}

#[test]
fn an_application_that_does_not_answer_is_asked_no_more_than_its_backlog() {
    let mut net = Net::pair();
    let real = real_request(&mut net);
    let listener = net.cms[1].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
    net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
    net.cms[1].listen(listener, 5).expect("listening");
    for n in 0..10_000 {
        let (path, mad) = forged(&real, n);
        let now = net.now;
        net.cms[1].receive(now, &path, &mad);
    }
    assert_eq!((net.cms[1].id_count(), net.cms[1].connection_count()), (6, 5));
    let requests = net.events(1);
    assert_eq!(requests.len(), 5);
    // The others get no answer: they are repeated, and admitted when the application has answered.
    net.take();
    assert!(net.sent.is_empty());
    let good = net.connect(0, 1, 7, &param(0x11, b""));
    net.run_for(20 * MS);
    assert!(net.events(1).is_empty());
    net.cms[1].destroy(net.now, requests[0].id).expect("destroyed");
    let request = net.expect(1, EventKind::ConnectRequest);
    net.cms[1].accept(net.now, request.id, Some(&param(2, b""))).expect("accepted");
    assert_eq!(net.expect(0, EventKind::ConnectResponse).id, good);
}

#[test]
fn requests_that_are_refused_are_remembered_up_to_a_limit() {
    let mut net = Net::pair();
    let real = real_request(&mut net);
    let mut limited = config(1);
    (limited.max_ended, limited.max_mads) = (100, 50);
    let mut net = Net::new(&[config(0), limited], 1, Faults::NONE);
    net.listen(1, 7);
    for n in 0..10_000 {
        let (path, mad) = forged(&real, n);
        let now = net.now;
        net.cms[1].receive(now, &path, &mad);
        let request = net.cms[1].poll_event().expect("a request");
        net.cms[1].destroy(now, request.id).expect("destroyed");
        assert!(net.cms[1].connection_count() <= 101);
    }
    net.take();
    assert_eq!(net.sent.len(), 50, "what waits to be sent is limited, too");
    net.run_for(100 * SEC);
    assert_eq!(net.cms[1].connection_count(), 0);
}

/// Has a manager receive 10,000 SIDR_REQs from as many addresses, for UDP port 7.
fn flood_with_sidr_requests(cm: &mut Cm) {
    for n in 0..10_000_u32 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 + n));
        let req = SidrReq { request_id: n, service_id: 0x0111_0007, ..SidrReq::default() };
        let mad = Mad { tid: 1, message: req.into() }.to_bytes();
        cm.receive(Time(SEC), &Path { src: address, ..path(0, 1) }, &mad);
    }
}

#[test]
fn datagram_requests_are_limited_alike() {
    let mut net = Net::pair();
    let listener = net.cms[1].create(PortSpace::Udp, QpKind::Ud).expect("an id");
    net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
    net.cms[1].listen(listener, 9).expect("listening");
    flood_with_sidr_requests(&mut net.cms[1]);
    // They have no IP header, and the listener is bound to one address: they are refused.
    assert_eq!(net.cms[1].id_count(), 1);
    net.cms[1].destroy(Time(SEC), listener).expect("destroyed");
    let listener = net.cms[1].create(PortSpace::Udp, QpKind::Ud).expect("an id");
    net.cms[1].bind_service(listener, 0x0111_0007, !0).expect("bound");
    net.cms[1].listen(listener, 9).expect("listening");
    flood_with_sidr_requests(&mut net.cms[1]);
    assert_eq!(net.cms[1].id_count(), 10);
}

#[test]
fn twenty_thousand_connections_leave_nothing() {
    let mut net = Net::pair().without_record();
    net.listen(1, 7);
    let mut most = 0;
    for n in 0..20_000_u32 {
        let active = net.connect(0, 1, 7, &param(n % 1000 + 1, b""));
        let passive = net.expect(1, EventKind::ConnectRequest).id;
        net.cms[1].accept(net.now, passive, Some(&param(n % 1000 + 1, b""))).expect("accepted");
        net.expect(0, EventKind::ConnectResponse);
        net.cms[0].accept(net.now, active, None).expect("confirmed");
        net.expect(1, EventKind::Established);
        net.cms[0].destroy(net.now, active).expect("destroyed");
        net.expect(1, EventKind::Disconnected);
        net.cms[1].destroy(net.now, passive).expect("destroyed");
        net.run_for(MS);
        most = most.max(net.cms[0].connection_count());
    }
    assert!(most < 600, "those of the last half second: {most}");
    net.run_for(2 * SEC);
    assert_eq!((net.cms[0].id_count(), net.cms[0].connection_count()), (0, 0));
    assert_eq!((net.cms[1].id_count(), net.cms[1].connection_count()), (1, 0));
}
