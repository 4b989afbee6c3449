//! Packets from an attacker that knows addresses and queue pair numbers, and guesses sequence numbers: refused packets
//! change nothing.

use irnic_nic::NicConfig;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{SendOp, WcStatus::*};
use irnic_transports::wire::{Aeth, Bth, Credits, Headers, IrnEth, Opcode, Syndrome};
use irnic_transports::{Path, Payload, Psn, RxPacket, Sideband};

use crate::common::{Network, path};
use crate::kit::{Duo, connection};

fn duo(transports: [&str; 2]) -> Duo {
    let mut c = connection("roce");
    c.transport = transports.map(|t| TransportConfig::preset(t).unwrap());
    Duo::on(Network::new(2, "delay 5us", 1, &NicConfig::default()), c, false)
}

/// Returns a SEND with the extension, `ahead` of the one expected by end 1.
fn extended(d: &Duo, expected: Psn, ahead: u32) -> Headers {
    let mut h = Headers::new(Bth::new(Opcode::RcSendOnly, d.ends[1].qpn, expected.plus(ahead)));
    h.irn = Some(IrnEth::Send { recv_wqe_sn: Psn::new(ahead), psn_offset: 0 });
    h.bth.irn_capable = true;
    h
}

fn acknowledgement(d: &Duo, psn: Psn, irn_capable: bool) -> Headers {
    let mut h = Headers::new(Bth::new(Opcode::RcAcknowledge, d.ends[0].qpn, psn));
    let syndrome = Syndrome::Ack { credits: Credits::INVALID };
    h.aeth = Some(Aeth { syndrome: syndrome.to_u8(), msn: Psn::new(0) });
    h.bth.irn_capable = irn_capable;
    h
}

fn ten_sends(d: &mut Duo, what: &str) {
    for id in 0..10 {
        d.recv(id, 100);
        d.post(id, SendOp::Send, 64);
    }
    d.run();
    assert_eq!(d.done(0), (0..10).map(|id| (id, Success)).collect::<Vec<_>>(), "{what}");
    assert_eq!(d.done(1), (0..10).map(|id| (id, Success)).collect::<Vec<_>>(), "{what}");
}

fn speaks_irn(d: &Duo) -> bool {
    d.net.nics[0].qp(d.ends[0].qpn).unwrap().speaks_irn()
}

#[test]
fn a_packet_with_the_extension_ahead_of_its_turn_does_not_change_the_format() {
    for peer in ["roce", "auto", "irn"] {
        for ahead in [1, 100, 4000] {
            let mut d = duo([peer, "auto"]);
            let h = extended(&d, d.connection.psn[0], ahead);
            d.inject(1, h, &[9; 64]);
            ten_sends(&mut d, &format!("from {peer}, {ahead} ahead"));
            assert_eq!(speaks_irn(&d), peer != "roce");
        }
    }
}

#[test]
fn a_peer_that_sent_a_request_without_c_has_no_extension_any_more() {
    let mut d = duo(["roce", "auto"]);
    ten_sends(&mut d, "before");
    // Exactly in order, as only a lucky guess or the peer itself would be.
    let h = extended(&d, d.connection.psn[0].plus(10), 0);
    d.inject(1, h, &[9; 64]);
    ten_sends(&mut d, "after");
}

/// An acknowledgement of nothing is no evidence of its sender.
#[test]
fn an_acknowledgement_of_nothing_does_not_settle_the_format() {
    for (peer, irn_capable) in [("roce", true), ("auto", false)] {
        for back in [1, 2, 1000] {
            let mut d = duo(["auto", peer]);
            let before_the_first = d.connection.psn[0].minus(back);
            let h = acknowledgement(&d, before_the_first, irn_capable);
            d.inject(0, h, &[]);
            ten_sends(&mut d, &format!("to {peer}, {back} back"));
            assert_eq!(speaks_irn(&d), peer == "auto", "{back} back");
        }
    }
}

/// Nor does a request that is refused: one out of order.
#[test]
fn a_refused_request_with_c_does_not_settle_the_format() {
    let mut d = duo(["auto", "roce"]);
    let mut h = Headers::new(Bth::new(Opcode::RcSendOnly, d.ends[0].qpn, d.connection.psn[1].plus(7)));
    h.bth.irn_capable = true;
    d.inject(0, h, &[1; 64]);
    ten_sends(&mut d, "to roce");
    assert!(!speaks_irn(&d));
}

/// A connection has two addresses.
#[test]
fn a_packet_from_or_to_another_address_is_dropped() {
    let right = path(0, 1);
    let other = "10.9.9.9".parse().unwrap();
    for (way, taken) in
        [(right, 1), (Path { dst: other, ..right }, 0), (Path { src: other, ..right }, 0), (path(1, 0), 0)]
    {
        let mut d = duo(["roce"; 2]);
        d.recv(0, 100);
        let headers = Headers::new(Bth::new(Opcode::RcSendOnly, d.ends[1].qpn, d.connection.psn[0]));
        let (now, payload) = (d.net.now, Payload::Bytes(&[5; 64]));
        let packet = RxPacket { headers: &headers, path: &way, payload, arrived: now, sideband: Sideband::NONE };
        d.net.nics[1].receive(now, &packet);
        assert_eq!(d.done(1).len(), taken, "{way:?}");
        assert_eq!(d.net.nics[1].counters().rx_dropped, 1 - taken as u64, "{way:?}");
    }
}
