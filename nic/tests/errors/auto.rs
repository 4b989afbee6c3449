//! `transport = auto`: the first exchange determines the peer's format, and loses or duplicates nothing.

use irnic_nic::NicConfig;
use irnic_transports::config::{PLAIN_CAP, TransportConfig};
use irnic_transports::qp::{SendOp, WcStatus::*};

use crate::common::Network;
use crate::kit::{Duo, byte, connection};

const FIRST: [(SendOp, u32); 9] = [
    (SendOp::Send, 10),
    (SendOp::Send, 4000),
    (SendOp::SendImm(4), 2048),
    (SendOp::Write, 0),
    (SendOp::Write, 5000),
    (SendOp::WriteImm(7), 5000),
    (SendOp::Read, 5000),
    (SendOp::Read, 1),
    (SendOp::FetchAdd { add: 3 }, 8),
];

fn settled(d: &Duo, end: usize) -> bool {
    d.net.nics[end].qp(d.ends[end].qpn).unwrap().speaks_irn()
}

#[test]
fn the_first_exchange_settles_the_format() {
    let seeds = if cfg!(debug_assertions) { 3 } else { 25 };
    for peer in ["roce", "auto", "irn"] {
        for (op, len) in FIRST {
            for seed in 0..seeds {
                let impairments =
                    if seed == 0 { "delay 5us" } else { "delay 5us 4us loss 15% duplicate 5% limit 10000" };
                for both in [false, true] {
                    let mut c = connection("auto");
                    c.transport[1] = TransportConfig::preset(peer).unwrap();
                    c.timeout = 10;
                    let mut d = Duo::on(Network::new(2, impairments, seed, &NicConfig::default()), c, false);
                    let cell = u64::from_ne_bytes(d.bytes(&d.mem[1])[..8].try_into().unwrap());
                    for id in 0..4 {
                        d.recv(id, 8192);
                    }
                    // The other direction at the same time.
                    if both && peer != "irn" {
                        d.try_post(1, 50, SendOp::Write, 3000, |wr| {
                            wr.remote_addr += 60_000;
                            if let irnic_transports::qp::SendData::Sges(_) = wr.data {}
                        })
                        .unwrap();
                    }
                    let local = d.mem[0];
                    let source = 20_000;
                    let sges = [irnic_transports::qp::Sge { addr: local.addr + source, len, lkey: local.lkey }];
                    for id in 0..4 {
                        let mut w = crate::kit::wr(id, op, &sges, &d.mem[1]);
                        if op.is_read_or_atomic() {
                            w.remote_addr = d.mem[1].addr;
                        } else {
                            w.remote_addr = d.mem[1].addr + 40_000;
                        }
                        let qpn = d.ends[0].qpn;
                        d.net.nics[0].post_send(qpn, &w).unwrap();
                    }
                    d.run();
                    let what = format!("{op:?} of {len} to {peer}, seed {seed}");
                    assert_eq!(d.done(0), [0, 1, 2, 3].map(|id| (id, Success)), "{what}");
                    assert_eq!(settled(&d, 0), peer != "roce", "{what}");
                    let received = d.done(1);
                    let own = usize::from(received.contains(&(50, Success)));
                    assert_eq!(received.len() - own, if op.takes_recv_wqe() { 4 } else { 0 }, "{what}");
                    let n = len as usize;
                    match op {
                        SendOp::Write | SendOp::WriteImm(_) => {
                            assert!(d.bytes(&d.mem[1])[40_000..40_000 + n] == d.bytes(&d.mem[0])[20_000..20_000 + n])
                        }
                        SendOp::Read => assert!((0..n).all(|i| d.bytes(&d.mem[0])[20_000 + i] == byte(1, i)), "{what}"),
                        SendOp::FetchAdd { add } => {
                            let now = u64::from_ne_bytes(d.bytes(&d.mem[1])[..8].try_into().unwrap());
                            assert_eq!(now, cell.wrapping_add(4 * add), "{what}");
                        }
                        _ => {
                            for id in 0..4 {
                                let got = &d.bytes(&d.inbox[1])[id * 4096..][..n.min(4096)];
                                assert!(*got == d.bytes(&d.mem[0])[20_000..][..n.min(4096)], "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A Linux rxe receiver that was sent 8 MiB at once, a go-back-N window of 4096 packets, was still busy with the first
/// copies when the timeout resent all of them, and so on until the retries were used up.
#[test]
fn a_peer_that_speaks_plain_roce_only_is_not_sent_a_whole_window() {
    for (peer, most) in [("roce", PLAIN_CAP as usize), ("auto", 10 * 59)] {
        let mut c = connection("auto");
        c.transport = ["auto", peer].map(|t| TransportConfig::parse(t, true).unwrap());
        let mut d = Duo::on(Network::new(2, "delay 100us", 1, &NicConfig::default()), c, false);
        d.post(0, SendOp::Write, 1);
        d.run();
        for id in 1..=10 {
            // 59 packets of 1024 bytes.
            d.post(id, SendOp::Write, 60_000);
        }
        d.run_for(1_000);
        assert_eq!(d.net.in_flight(), most, "to {peer}");
        d.run();
        assert_eq!(d.done(0), (0..=10).map(|id| (id, Success)).collect::<Vec<_>>(), "to {peer}");
    }
}

/// Of four queue pairs to a slow rxe, one got no answer for half a second, while the driver acknowledged eightfold
/// retransmissions by the others' timeouts.
#[test]
fn a_timeout_towards_a_plain_peer_sends_one_packet_then_as_many_more_as_are_acknowledged() {
    let mut c = connection("auto");
    c.transport = ["auto", "roce"].map(|t| TransportConfig::parse(t, true).unwrap());
    c.timeout = 14;
    let mut d = Duo::on(Network::new(2, "delay 10us", 1, &NicConfig::default()), c, false);
    d.post(0, SendOp::Write, 1);
    d.run();
    // Nothing from the requester arrives for some time.
    d.net.tamper = Some(Box::new(|from, _| from != 0));
    for id in 1..=4 {
        d.post(id, SendOp::Write, 60_000);
    }
    d.run_for(20_000_000);
    d.net.tamper = None;
    while d.net.in_flight() == 0 && d.net.step() {}
    let mut flights = Vec::new();
    for _ in 0..4 {
        flights.push(d.net.in_flight());
        // There and back.
        d.run_for(20_000);
    }
    assert_eq!(flights, [1, 2, 4, 8]);
    d.run();
    assert_eq!(d.done(0), (0..=4).map(|id| (id, Success)).collect::<Vec<_>>());
}

#[test]
fn errors_are_the_same_before_the_peer_is_known() {
    for peer in ["roce", "auto", "irn"] {
        for (op, len) in
            FIRST.into_iter().filter(|(op, len)| !matches!(op, SendOp::Send | SendOp::SendImm(_)) && *len > 0)
        {
            let mut c = connection("auto");
            c.transport[1] = TransportConfig::preset(peer).unwrap();
            let mut d = Duo::on(Network::new(2, "delay 5us", 1, &NicConfig::default()), c, false);
            d.recv(0, 8192);
            d.post_with(1, op, len, |wr| wr.rkey ^= 1);
            d.post(2, SendOp::Write, 10);
            d.run();
            assert_eq!(d.done(0), [(1, RemAccessErr), (2, WrFlushErr)], "{op:?} to {peer}");
            assert_eq!(d.done(1), [(0, WrFlushErr)]);
        }
    }
}
