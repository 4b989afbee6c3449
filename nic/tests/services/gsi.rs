//! Queue pair 1: management datagrams in and out, and nothing else.

use irnic_nic::{ManagementDatagram, Nic, NicConfig, loopback};
use irnic_transports::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use irnic_transports::wire::{Bth, Deth, Headers, Opcode};
use irnic_transports::{Path, Payload, Psn, RxPacket, Sideband, Time};

const PATH: Path = Path {
    src: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    dst: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    udp_src: 0xc000,
    traffic_class: 0,
    hop_limit: 64,
};

fn nic() -> Nic {
    Nic::new(NicConfig::default())
}

fn mad(first: u8) -> [u8; MAD_LEN] {
    let mut mad = [0x5a; MAD_LEN];
    mad[0] = first;
    mad
}

#[test]
fn datagrams_come_in_the_order_in_which_they_were_posted() {
    let (mut a, mut b) = (nic(), nic());
    assert!(!a.wants_tx() && !b.has_mads());
    for i in 0..5 {
        assert!(a.post_mad(PATH, &mad(i)));
    }
    assert!(a.wants_tx());
    assert_eq!(loopback(Time::ZERO, &mut a, &mut b, 2), 2, "a budget counts");
    assert_eq!(loopback(Time::ZERO, &mut a, &mut b, 100), 3);
    assert!(!a.wants_tx() && b.has_mads());
    for i in 0..5 {
        assert_eq!(b.poll_mad(), Some(ManagementDatagram { path: PATH, mad: mad(i) }));
    }
    assert_eq!(b.poll_mad(), None);
}

#[test]
fn what_leaves_is_a_datagram_from_queue_pair_1_to_queue_pair_1() {
    let mut a = nic();
    a.post_mad(PATH, &mad(1));
    let mut seen = Vec::new();
    a.poll_transmit(Time::ZERO, 1, |packet| {
        seen.push((packet.headers.bth.opcode, packet.headers.bth.dest_qp, packet.headers.deth, packet.payload.len()));
        true
    });
    let deth = Deth { qkey: GSI_QKEY, src_qp: GSI_QPN };
    assert_eq!(seen, [(Opcode::UdSendOnly, GSI_QPN, Some(deth), MAD_LEN)]);
}

#[test]
fn a_queue_that_is_full_drops_what_comes() {
    let (mut a, mut b) = (nic(), nic());
    for _ in 0..1024 {
        assert!(a.post_mad(PATH, &mad(0)));
    }
    assert!(!a.post_mad(PATH, &mad(0)));
    assert_eq!(loopback(Time::ZERO, &mut a, &mut b, 2000), 1024);
    a.post_mad(PATH, &mad(1));
    loopback(Time::ZERO, &mut a, &mut b, 1);
    assert_eq!(b.counters().rx_dropped, 1);
    assert_eq!(std::iter::from_fn(|| b.poll_mad()).filter(|datagram| datagram.mad == mad(0)).count(), 1024);
}

#[test]
fn packets_to_queue_pair_1_that_are_no_management_datagrams_are_dropped() {
    let good = |_: &mut Headers| {};
    type Change = fn(&mut Headers);
    let cases: [(&str, Change, usize); 6] = [
        ("good", good, MAD_LEN),
        ("short", good, MAD_LEN - 1),
        ("long", good, MAD_LEN + 4),
        ("another Q_Key", |headers| headers.deth = Some(Deth { qkey: 0x8001_0001, src_qp: 1 }), MAD_LEN),
        ("another partition", |headers| headers.bth.pkey = 0x8001, MAD_LEN),
        ("no datagram", |headers| (headers.bth.opcode, headers.deth) = (Opcode::RcSendOnly, None), MAD_LEN),
    ];
    for (what, change, len) in cases {
        let mut nic = nic();
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(0)));
        headers.deth = Some(Deth { qkey: GSI_QKEY, src_qp: GSI_QPN });
        change(&mut headers);
        let bytes = vec![1; len];
        let packet = RxPacket {
            headers: &headers,
            path: &PATH,
            payload: Payload::Bytes(&bytes),
            arrived: Time::ZERO,
            sideband: Sideband::NONE,
        };
        nic.receive(Time::ZERO, &packet);
        let taken = what == "good";
        assert_eq!((nic.poll_mad().is_some(), nic.counters().rx_dropped), (taken, u64::from(!taken)), "{what}");
    }
}
