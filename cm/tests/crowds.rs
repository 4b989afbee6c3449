//! Listeners with more requests than room for them: forged requests come once, genuine ones are repeated.

mod common;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use common::*;
use irnic_cm::{CmId, EventKind, PortSpace, QpKind};
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::mad::{Mad, Message};
use irnic_transports::{Path, Time};

const FORGED: u32 = 10_000;
/// Maximum backlog, and the number of unrepeated requests that are admitted.
const ROOM: usize = 1024;
const FIRST: usize = ROOM - ROOM / 4;

/// Two managers, the second of which listens at port 7, and a flood of forged requests to it.
struct Flood {
    net: Net,
    real: Mad,
    count: u32,
    /// Requests that the application has not answered.
    requests: VecDeque<CmId>,
    established: Option<Time>,
    qpn: u32,
}

impl Flood {
    fn new(backlog: u32) -> Flood {
        let mut net = Net::pair();
        net.connect(0, 1, 7, &param(0x11, b""));
        net.take();
        let real = Mad::parse(&net.sent[0].2).expect("a message");
        let mut net = Net::pair().without_record();
        let listener = net.cms[1].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
        net.cms[1].listen(listener, backlog).expect("listening");
        Flood { net, real, count: 0, requests: VecDeque::new(), established: None, qpn: 0x1000 }
    }

    /// Sends forged requests, each of another adapter, queue pair, communication id and address.
    fn forge(&mut self, n: u32) {
        for _ in 0..n {
            self.count += 1;
            let Message::Req(mut req) = self.real.message else { panic!("{:?}", self.real) };
            req.fields.local_ca_guid = 0xbad_0000 + u64::from(self.count);
            (req.fields.local_qpn, req.fields.local_comm_id) = (self.count, self.count);
            let address = IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 + self.count));
            let mad = Mad { tid: self.count.into(), message: req.into() }.to_bytes();
            self.net.inject(Path { src: address, ..path(0, 1) }, mad);
        }
        self.hear();
    }

    /// Lets both applications handle their events. The client confirms.
    fn hear(&mut self) {
        let now = self.net.now;
        self.net.run(now);
        for event in self.net.events(1) {
            match event.kind {
                EventKind::ConnectRequest => self.requests.push_back(event.id),
                EventKind::Established => self.established = Some(now),
                EventKind::Unreachable => self.net.cms[1].destroy(now, event.id).expect("destroyed"),
                kind => panic!("{kind:?}"),
            }
        }
        for event in self.net.events(0) {
            assert_eq!(event.kind, EventKind::ConnectResponse, "{event:?}");
            self.net.cms[0].accept(now, event.id, None).expect("confirmed");
        }
    }

    /// Accepts up to `n` requests.
    fn accept(&mut self, n: usize) {
        for _ in 0..n {
            let Some(id) = self.requests.pop_front() else { return };
            self.qpn += 1;
            self.net.cms[1].accept(self.net.now, id, Some(&param(self.qpn, b""))).expect("accepted");
        }
    }

    fn run_for(&mut self, ns: u64) {
        self.net.run_for(ns);
        self.hear();
    }
}

#[test]
fn a_flood_gets_three_quarters_of_the_room_and_who_comes_again_the_rest() {
    let mut flood = Flood::new(0);
    flood.forge(FORGED);
    assert_eq!(flood.requests.len(), FIRST);
    flood.net.connect(0, 1, 7, &param(0x11, b""));
    flood.run_for(MS);
    assert_eq!(flood.requests.len(), FIRST, "the first request looks like the forged ones");
    flood.run_for(100 * MS);
    assert_eq!(flood.requests.len(), FIRST + 1);
    // Forged ones that are repeated fill the rest, and no more.
    for _ in 0..2 {
        flood.count = 0;
        flood.forge(FORGED);
    }
    assert_eq!(flood.requests.len(), ROOM);
}

#[test]
fn a_client_connects_while_a_slow_application_with_a_short_backlog_is_flooded() {
    let mut flood = Flood::new(10);
    for ms in 0..1000 {
        flood.forge(FORGED / 1000);
        if ms == 100 {
            flood.net.connect(0, 1, 7, &param(0x11, b""));
        }
        if ms % 5 == 0 {
            flood.accept(1);
        }
        flood.run_for(MS);
    }
    assert!(flood.established.is_some(), "the client waits for {} forged", flood.count);
    assert!(flood.net.cms[1].id_count() < 100, "{} ids", flood.net.cms[1].id_count());
}

#[test]
fn a_client_whose_confirmation_is_lost_is_not_given_up_for_forged_requests() {
    let mut flood = Flood::new(0);
    flood.net.connect(0, 1, 7, &param(0x11, b""));
    flood.run_for(MS);
    flood.accept(1);
    flood.net.take();
    flood.net.run_for(MS);
    // The client's messages are lost during the flood, and so are repeats to it.
    flood.net.faults.loss = 1000;
    flood.hear();
    for _ in 0..400 {
        flood.forge(FORGED / 400);
        flood.accept(usize::MAX);
        flood.run_for(MS);
    }
    assert_eq!(flood.established, None);
    flood.net.faults.loss = 0;
    flood.run_for(2 * SEC);
    assert!(flood.established.is_some());
}

#[test]
fn a_peer_that_has_connected_before_need_not_come_again() {
    let mut flood = Flood::new(0);
    flood.net.connect(0, 1, 7, &param(0x11, b""));
    flood.run_for(MS);
    flood.accept(1);
    flood.run_for(MS);
    flood.run_for(MS);
    assert!(flood.established.is_some());
    flood.forge(FORGED);
    assert_eq!(flood.requests.len(), FIRST);
    flood.net.connect(0, 1, 7, &param(0x12, b""));
    flood.run_for(MS);
    assert_eq!(flood.requests.len(), FIRST + 1);
}

#[test]
fn a_client_that_comes_after_a_flood_gets_in_at_once() {
    let mut flood = Flood::new(0);
    flood.forge(FORGED);
    flood.accept(usize::MAX);
    // The oldest have not been confirmed, and make room.
    flood.run_for(300 * MS);
    flood.net.connect(0, 1, 7, &param(0x11, b""));
    flood.run_for(MS);
    assert_eq!(flood.requests.len(), 1);
}

#[test]
fn a_full_backlog_turns_away_for_a_short_while_only() {
    let mut flood = Flood::new(2);
    flood.forge(3);
    assert_eq!(flood.requests.len(), 2);
    flood.accept(2);
    flood.run_for(190 * MS);
    flood.forge(1);
    assert_eq!(flood.requests.len(), 0, "it comes for the first time");
    flood.run_for(20 * MS);
    flood.forge(1);
    assert_eq!(flood.requests.len(), 1);
}
