//! Priority flow control: packets of a NIC whose link partner has stopped some priorities.

use irnic_nic::NicConfig;
use irnic_transports::Time;
use irnic_transports::qp::{Address, QpAttr, QpState, RecvWr, SendData, SendOp, SendWr, Service};

use crate::common::{Connection, End, Network, QKEY, attributes, connect, create, path};

/// Two NICs.
fn network() -> Network {
    Network::new(2, "delay 1us", 1, &NicConfig::default())
}

fn reliable() -> Connection {
    Connection { transport: ["roce".parse().unwrap(); 2], ..Connection::default() }
}

/// Takes a queue pair that is in RESET to RTS, with a priority.
fn to_rts(net: &mut Network, c: &Connection, ends: [End; 2], which: usize, priority: u8) {
    for mut attr in attributes(c, ends[which], ends[1 - which], which) {
        attr.path = attr.path.map(|path| irnic_transports::Path { traffic_class: priority << 5, ..path });
        net.nics[ends[which].nic].modify_qp(ends[which].qpn, &attr).unwrap();
    }
}

/// Connected queue pairs, one of each NIC, that send with `priority`, and receives at the second.
fn pair(net: &mut Network, priority: u8) -> [End; 2] {
    let c = reliable();
    let ends = [create(net, 0, &c, 0, None), create(net, 1, &c, 1, None)];
    for which in [0, 1] {
        to_rts(net, &c, ends, which, priority);
    }
    for wr_id in 0..40 {
        net.nics[1].post_recv(ends[1].qpn, &RecvWr { wr_id, sges: &[] }).unwrap();
    }
    ends
}

fn post(net: &mut Network, end: End, n: usize, to: Option<Address>) {
    for _ in 0..n {
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send,
            data: SendData::Inline(&[]),
            remote_addr: 0,
            rkey: 0,
            signaled: true,
            solicited: false,
            fence: false,
            to,
            remote_srqn: 0,
        };
        net.nics[end.nic].post_send(end.qpn, &wr).unwrap();
    }
}

/// Returns the priorities of all packets that a NIC sends now, in order. Nothing arrives.
fn sent(net: &mut Network, nic: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    net.nics[nic].poll_transmit(Time(1_000_000), 100, |packet| {
        sent.push(packet.path.traffic_class >> 5);
        true
    });
    sent
}

#[test]
fn a_stopped_priority_waits_and_the_others_take_turns() {
    let mut net = network();
    let ends = [3, 5, 0].map(|priority| pair(&mut net, priority));
    ends.iter().for_each(|ends| post(&mut net, ends[0], 2, None));
    net.nics[0].set_stopped(1 << 3);
    assert_eq!(sent(&mut net, 0), [5, 0, 5, 0]);
    assert!(!net.nics[0].wants_tx(), "nothing that may go");
    post(&mut net, ends[0][0], 1, None);
    post(&mut net, ends[1][0], 1, None);
    assert_eq!(sent(&mut net, 0), [5]);
    // Another one as well, then no longer the first.
    net.nics[0].set_stopped(1 << 3 | 1);
    post(&mut net, ends[2][0], 1, None);
    assert_eq!(sent(&mut net, 0), []);
    net.nics[0].set_stopped(1);
    assert_eq!(sent(&mut net, 0), [3, 3, 3]);
    net.nics[0].set_stopped(0);
    assert_eq!(sent(&mut net, 0), [0]);
    assert!(!net.nics[0].wants_tx());
}

#[test]
fn a_turn_goes_on_over_several_calls() {
    let mut net = Network::new(2, "delay 1us", 1, &NicConfig { quantum: 3, ..NicConfig::default() });
    let ends = [3, 5].map(|priority| pair(&mut net, priority));
    ends.iter().for_each(|ends| post(&mut net, ends[0], 5, None));
    let take = |net: &mut Network, budget| {
        let mut sent = Vec::new();
        net.nics[0].poll_transmit(Time(1_000_000), budget, |packet| {
            sent.push(packet.path.traffic_class >> 5);
            true
        });
        sent
    };
    assert_eq!(take(&mut net, 1), [3]);
    assert_eq!(take(&mut net, 1), [3]);
    // The third, and the next one's turn, of which one is left.
    assert_eq!(take(&mut net, 3), [3, 5, 5]);
    // Stopped during its turn, it has lost that.
    net.nics[0].set_stopped(1 << 5);
    assert_eq!(take(&mut net, 1), [3]);
    net.nics[0].set_stopped(0);
    assert_eq!(take(&mut net, 10), [3, 5, 5, 5]);
}

#[test]
fn acknowledgements_wait_too() {
    let mut net = network();
    let [a, b] = pair(&mut net, 6);
    net.nics[1].set_stopped(1 << 6);
    post(&mut net, a, 3, None);
    while net.step() {}
    assert_eq!((net.nics[1].counters().rcvd_pkts, net.nics[0].counters().rcvd_pkts), (3, 0));
    assert_eq!(net.nics[1].cq_len(b.cq).unwrap(), 3, "what has come is complete");
    net.nics[1].set_stopped(0);
    while net.step() {}
    assert_eq!((net.nics[0].counters().rcvd_pkts, net.nics[0].cq_len(a.cq).unwrap()), (1, 3), "one for all");
}

#[test]
fn a_queue_pair_that_is_destroyed_while_it_waits_is_forgotten() {
    let mut net = network();
    let (waiting, other) = (pair(&mut net, 3), pair(&mut net, 3));
    post(&mut net, waiting[0], 2, None);
    post(&mut net, other[0], 1, None);
    net.nics[0].set_stopped(1 << 3);
    assert_eq!(sent(&mut net, 0), []);
    let before = net.nics[0].qp_count();
    net.nics[0].destroy_qp(waiting[0].qpn).unwrap();
    assert_eq!(net.nics[0].qp_count(), before - 1);
    net.nics[0].set_stopped(0);
    assert_eq!(sent(&mut net, 0), [3], "the other's");
    assert!(!net.nics[0].wants_tx());
}

#[test]
fn a_number_that_is_used_again_does_not_wait_for_its_former_owner() {
    // With only one number, the destroyed one is reused next.
    let mut net = Network::new(2, "delay 1us", 1, &NicConfig { max_qps: 1, ..NicConfig::default() });
    let waiting = pair(&mut net, 3);
    post(&mut net, waiting[0], 2, None);
    net.nics[0].set_stopped(1 << 3);
    assert_eq!(sent(&mut net, 0), []);
    for end in waiting {
        net.nics[end.nic].destroy_qp(end.qpn).unwrap();
    }
    let again = pair(&mut net, 4);
    assert_eq!(again[0].qpn, waiting[0].qpn);
    post(&mut net, again[0], 2, None);
    assert_eq!(sent(&mut net, 0), [4, 4]);
    net.nics[0].set_stopped(0);
    assert!(!net.nics[0].wants_tx(), "nobody waits any more");
}

#[test]
fn a_queue_pair_that_waits_can_start_afresh_with_another_priority() {
    let mut net = network();
    let ends = pair(&mut net, 3);
    post(&mut net, ends[0], 2, None);
    net.nics[0].set_stopped(1 << 3);
    assert_eq!(sent(&mut net, 0), []);
    let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    net.nics[0].modify_qp(ends[0].qpn, &reset).unwrap();
    to_rts(&mut net, &reliable(), ends, 0, 5);
    post(&mut net, ends[0], 1, None);
    assert_eq!(sent(&mut net, 0), [5]);
}

#[test]
fn datagrams_wait_for_every_priority() {
    let mut net = network();
    let c = Connection { service: Service::Ud, ..reliable() };
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    connect(&mut net, &c, ends);
    let to = |priority: u8| Address {
        path: irnic_transports::Path { traffic_class: priority << 5, ..path(0, 1) },
        qpn: ends[1].qpn,
        qkey: QKEY,
    };
    for priority in [0, 7, 2] {
        post(&mut net, ends[0], 1, Some(to(priority)));
    }
    net.nics[0].set_stopped(1 << 4);
    assert_eq!(sent(&mut net, 0), []);
    net.nics[0].set_stopped(1 << 7);
    assert_eq!(sent(&mut net, 0), []);
    net.nics[0].set_stopped(0);
    assert_eq!(sent(&mut net, 0), [0, 7, 2]);
}
