//! An attacker that knows everything about a connection, but sends from an address of its own.

mod common;

use common::*;
use irnic_cm::{CmEvent, EventKind};
use irnic_transports::time::SEC;
use irnic_transports::wire::mad::{
    Apr, Drep, Dreq, Lap, MAD_LEN, Mad, Message, Mra, Rej, RejReason, Rep, Req, Rtu, SidrRep, rejected,
};

/// The attacker's end.
const STRANGER: usize = 2;

/// What an observer of all messages knows of a connection.
#[derive(Default)]
struct Known {
    req: Option<Req>,
    rep: Option<Rep>,
}

impl Known {
    fn of(net: &Net) -> Known {
        let mut known = Known::default();
        for (end, _, mad) in &net.sent {
            match message(mad) {
                Message::Req(req) if *end == 0 => known.req = Some(req),
                Message::Rep(rep) if *end == 1 => known.rep = Some(rep),
                _ => {}
            }
        }
        known
    }

    /// Returns all messages that could be sent to `end` about this connection, and new requests in its name.
    fn forgeries(&self, end: usize) -> Vec<Message> {
        let (Some(req), rep) = (&self.req, self.rep.unwrap_or_default()) else { return Vec::new() };
        let (active, passive) = (req.fields.local_comm_id, rep.local_comm_id);
        let (from, to, qpn) = if end == 0 { (passive, active, 0x11) } else { (active, passive, 0x22) };
        let mut forgeries: Vec<Message> = vec![
            Rtu { local_comm_id: from, remote_comm_id: to, ..Rtu::default() }.into(),
            Dreq { local_comm_id: from, remote_comm_id: to, remote_qpn: qpn, ..Dreq::default() }.into(),
            Drep { local_comm_id: from, remote_comm_id: to, ..Drep::default() }.into(),
            Lap { local_comm_id: from, remote_comm_id: to, ..Lap::default() }.into(),
            Apr { local_comm_id: from, remote_comm_id: to, ..Apr::default() }.into(),
            SidrRep { request_id: to, ..SidrRep::default() }.into(),
        ];
        for message_rejected in [rejected::REQ, rejected::REP, rejected::OTHER] {
            for reason in [RejReason::CONSUMER_DEFINED, RejReason::STALE_CONN, RejReason::TIMEOUT] {
                let mut rej = Rej { local_comm_id: from, remote_comm_id: to, message_rejected, ..Rej::default() };
                (rej.reason, rej.info_len) = (reason.0, 8);
                rej.info[..8].copy_from_slice(&(0x1_0000 + 1 - end as u64).to_be_bytes());
                forgeries.push(rej.into());
            }
            let mra =
                Mra { local_comm_id: from, remote_comm_id: to, message_mraed: message_rejected, ..Mra::default() };
            forgeries.push(mra.into());
        }
        if end == 0 {
            // A REP of the peer's, and one by which the peer's queue pair has another connection.
            let other = Rep { local_comm_id: passive ^ 1, ..rep };
            forgeries.extend([rep, other].map(|rep| Message::from(Rep { remote_comm_id: active, ..rep })));
        }
        // The same request again, and another for the same queue pair: the connection would be stale.
        let mut other = *req;
        other.fields.local_comm_id ^= 1;
        forgeries.extend([*req, other].map(Message::from));
        if let Some(rep) = &self.rep {
            let mut of_passive = *req;
            (of_passive.fields.local_ca_guid, of_passive.fields.local_qpn) = (rep.local_ca_guid, rep.local_qpn);
            forgeries.push(of_passive.into());
        }
        forgeries
    }
}

/// Sends everything that could be forged to both ends.
fn attack(net: &mut Net) {
    let known = Known::of(net);
    let forged: Vec<(usize, [u8; MAD_LEN])> = (0..2)
        .flat_map(|end| known.forgeries(end).into_iter().map(move |message| (end, message)))
        .map(|(end, message)| (end, Mad { tid: 7, message }.to_bytes()))
        .collect();
    for (end, mad) in forged {
        net.inject(path(STRANGER, end), mad);
    }
}

/// Returns the parts of an event that its user sees.
fn seen(event: &CmEvent) -> (EventKind, i32) {
    (event.kind, event.status)
}

/// Establishes a connection and ends it; after step `at` an attacker forges everything. Returns the events at both
/// ends, and whether there was a step `at`.
fn course(at: usize) -> (Vec<(EventKind, i32)>, bool) {
    let mut net = Net::new(&[config(0), config(1), config(STRANGER)], 1, Faults::NONE);
    let listener = net.listen(1, 7);
    let mut step = 0;
    let mut attacked = false;
    let mut after_step = |net: &mut Net| {
        step += 1;
        net.take();
        if step == at {
            attack(net);
            attacked = true;
        }
    };
    let mut events = Vec::new();
    let active = net.connect(0, 1, 7, &param(0x11, b"hello"));
    after_step(&mut net);
    let request = loop {
        let request = net.expect(1, EventKind::ConnectRequest);
        assert_eq!(request.listener, Some(listener));
        // The attacker's requests are its own.
        if net.cms[1].route(request.id).expect("an id").expect("a route").path.dst == address(0) {
            break request;
        }
        net.cms[1].destroy(net.now, request.id).expect("an id");
    };
    events.push(seen(&request));
    let passive = request.id;
    after_step(&mut net);
    net.cms[1].accept(net.now, passive, Some(&param(0x22, b"welcome"))).expect("accepted");
    after_step(&mut net);
    // Events of the two ends.
    let next = |net: &mut Net, end: usize, id| loop {
        let event = net.event(end);
        if event.id == id {
            return event;
        }
        assert_eq!(event.kind, EventKind::ConnectRequest);
        net.cms[end].destroy(net.now, event.id).expect("an id");
    };
    events.push(seen(&next(&mut net, 0, active)));
    after_step(&mut net);
    net.cms[0].accept(net.now, active, None).expect("confirmed");
    after_step(&mut net);
    events.push(seen(&next(&mut net, 1, passive)));
    after_step(&mut net);
    net.cms[0].disconnect(net.now, active).expect("ends");
    after_step(&mut net);
    for (end, id) in [(1, passive), (0, active), (1, passive), (0, active)] {
        events.push(seen(&next(&mut net, end, id)));
        after_step(&mut net);
    }
    net.run_for(SEC);
    (events, attacked)
}

#[test]
fn a_strangers_messages_never_change_a_connection() {
    let (undisturbed, attacked) = course(0);
    assert!(!attacked);
    let steps = (1..).take_while(|&at| {
        let (events, attacked) = course(at);
        assert_eq!(events, undisturbed, "after step {at}");
        attacked
    });
    assert_eq!(steps.count(), 11);
}

#[test]
fn the_peers_own_messages_do() {
    // The same forgeries from the peer's address end the connection: they are what the attacker would need.
    let mut net = Net::new(&[config(0), config(1)], 1, Faults::NONE);
    net.listen(1, 7);
    let (active, passive) = net.connected();
    let known = Known::of(&net);
    for (end, id) in [(0, active), (1, passive)] {
        let dreq = known.forgeries(end).into_iter().find(|message| matches!(message, Message::Dreq(_)));
        let mad = Mad { tid: 7, message: dreq.expect("a DREQ") }.to_bytes();
        net.inject(path(1 - end, end), mad);
        let event = net.expect(end, EventKind::Disconnected);
        assert_eq!(event.id, id);
    }
}

#[test]
fn a_peer_that_does_not_answer_its_dreq_is_not_waited_for_long() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, _) = net.connected();
    net.faults.loss = 1000;
    let start = net.now;
    net.cms[0].disconnect(net.now, active).expect("ends");
    assert_eq!(net.expect(0, EventKind::Disconnected).status, -110);
    let waited = net.now.since(start);
    assert!((4 * SEC..5 * SEC).contains(&waited), "{waited} ns");
}
