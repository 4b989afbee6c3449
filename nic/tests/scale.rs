//! The maximum number of queue pairs.

#[path = "common/mod.rs"]
mod common;

use common::{Connection, connect, create, region};
use irnic_nic::{NicConfig, NicError, Object};
use irnic_transports::qp::{SendData, SendWr, Service, Sge, Wc};

#[test]
fn holds_65_536_queue_pairs_and_no_more() {
    let mut net = common::Network::new(2, "", 1, &NicConfig::default());
    let c = Connection { depth: 4, ..Connection::default() };
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    connect(&mut net, &c, ends);
    let shared = Some((ends[0].pd, ends[0].cq));
    let mut qpns = vec![ends[0].qpn];
    for _ in 1..65_536 {
        qpns.push(create(&mut net, 0, &c, 0, shared).qpn);
    }
    qpns.sort_unstable();
    qpns.dedup();
    assert_eq!(qpns.len(), 65_536, "queue pair numbers are unique");
    let nic = &mut net.nics[0];
    let config = irnic_nic::QpConfig {
        xrcd: None,
        service: Service::Rc,
        pd: ends[0].pd,
        send_cq: ends[0].cq,
        recv_cq: ends[0].cq,
        srq: None,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
        sq_sig_all: true,
        transport: c.transport[0],
    };
    assert_eq!(nic.create_qp(&config), Err(NicError::Full(Object::QueuePair)));

    // One works while the others are idle.
    let (from, to) = (region(&mut net, ends[0], 5000, |i| i as u8), region(&mut net, ends[1], 5000, |_| 0));
    let sges = [Sge { addr: from.addr, len: 5000, lkey: from.lkey }];
    let wr = SendWr::write(7, SendData::Sges(&sges), to.addr, to.rkey);
    net.nics[0].post_send(ends[0].qpn, &wr).unwrap();
    while net.step() {}
    let mut wc = [Wc::EMPTY];
    assert_eq!(net.nics[0].poll_cq(ends[0].cq, &mut wc), Ok(1));
    assert_eq!(net.nics[1].bytes(&to), net.nics[0].bytes(&from));

    // A freed number is the last to be reused.
    let destroyed = qpns[100];
    net.nics[0].destroy_qp(destroyed).unwrap();
    assert_eq!(net.nics[0].create_qp(&config), Ok(destroyed));
}
