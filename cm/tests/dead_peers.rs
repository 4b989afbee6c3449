//! Peers whose processes have died without a message.

mod common;

use std::net::IpAddr;

use common::*;
use irnic_cm::EventKind;
use irnic_transports::time::SEC;

impl Net {
    fn end_dead_peers(&mut self, at: usize, is_dead: impl FnMut(IpAddr, u32) -> bool) {
        let dead = self.cms[at].with_dead_peers(is_dead);
        self.cms[at].end_dead_peers(self.now, &dead);
    }
}

#[test]
fn connections_that_stand_are_disconnected() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, passive) = net.connected();
    net.end_dead_peers(0, |_, _| false);
    assert_eq!(net.events(0), []);
    net.end_dead_peers(0, |peer, comm_id| peer == address(1) && comm_id != 0);
    assert_eq!(net.expect(0, EventKind::Disconnected).id, active);
    // A second call has no effect, and the other side is not notified.
    net.end_dead_peers(0, |_, _| true);
    net.run_for(1_000_000);
    assert_eq!((net.events(0), net.events(1)), (vec![], vec![]));
    net.end_dead_peers(1, |peer, _| peer == address(0));
    assert_eq!(net.expect(1, EventKind::Disconnected).id, passive);
}

#[test]
fn connections_that_are_being_made_are_rejected() {
    // The active side dies before the application has answered, and after.
    for answered in [false, true] {
        let mut net = Net::pair();
        net.listen(1, 7);
        net.connect(0, 1, 7, &param(0x11, b""));
        let passive = net.expect(1, EventKind::ConnectRequest).id;
        if answered {
            net.cms[1].accept(net.now, passive, Some(&param(0x22, b""))).expect("accepted");
        }
        net.end_dead_peers(1, |_, _| true);
        let rejected = net.expect(1, EventKind::Rejected);
        assert_eq!((rejected.id, rejected.status), (passive, if answered { 28 } else { 4 }));
        net.cms[1].destroy(net.now, passive).expect("an id");
    }
    // The passive side dies after it has accepted.
    let mut net = Net::pair();
    net.listen(1, 7);
    let (active, _) = net.accepted();
    net.end_dead_peers(0, |_, _| true);
    assert_eq!(net.expect(0, EventKind::Rejected).id, active);
}

#[test]
fn a_peer_that_asked_for_time_and_ended_is_not_waited_for() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let active = net.connect(0, 1, 7, &param(0x11, b""));
    net.expect(1, EventKind::ConnectRequest);
    assert!(!net.cms[0].take_mra());
    // The request is repeated, and answered by an MRA, which asks for a minute.
    net.run_for(SEC);
    assert!(net.cms[0].take_mra() && !net.cms[0].take_mra() && !net.cms[1].take_mra());
    let mra_id = std::cell::Cell::new(0);
    net.end_dead_peers(0, |peer, comm_id| {
        assert_eq!(peer, address(1));
        mra_id.set(comm_id);
        false
    });
    assert_ne!(mra_id.get(), 0, "the id of the MRA");
    assert_eq!(net.events(0), []);
    net.end_dead_peers(0, |_, comm_id| comm_id == mra_id.get());
    assert_eq!(net.expect(0, EventKind::Rejected).id, active);
}

#[test]
fn what_arrives_with_the_news_of_a_death_counts() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (_, old) = net.connected();
    let dead = net.cms[1].with_dead_peers(|peer, _| peer == address(0));
    // A new process at the same address, and the last message of the dead one.
    net.connect(0, 1, 7, &param(0x33, b""));
    let new = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].end_dead_peers(net.now, &dead);
    assert_eq!(net.expect(1, EventKind::Disconnected).id, old);
    net.cms[1].accept(net.now, new, Some(&param(0x44, b""))).expect("it has not ended");
    net.cms[1].end_dead_peers(net.now, &dead);
    net.run_for(1_000_000);
    assert!(net.events(1).iter().all(|event| event.kind == EventKind::Established), "the old one has ended already");
}

#[test]
fn a_process_that_ends_says_so() {
    let mut net = Net::pair();
    net.listen(1, 7);
    let (_, passive) = net.connected();
    net.cms[0].destroy_all(net.now);
    assert_eq!(net.cms[0].id_count(), 0);
    assert_eq!(net.expect(1, EventKind::Disconnected).id, passive);
}
