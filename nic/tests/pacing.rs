//! Rate limits of queue pairs, in virtual time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use irnic_nic::{Nic, NicConfig, QpConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Access, ConnectParams, SendData, SendOp, SendWr, Service, Sge};
use irnic_transports::time::{MS, SEC};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time};

const GBIT: u64 = 1_000_000_000;
/// Payload of a packet, and burst of a queue pair.
const MTU: u32 = 1024;
/// Longer than any run.
const MESSAGE: u32 = 1 << 30;

/// Returns a NIC whose queue pairs, unreliable so that they wait for no peer, each have a long message to send at their
/// own rate, bit/s.
fn paced(rates: &[u64]) -> (Nic, Vec<u32>) {
    let mut nic = Nic::new(NicConfig { max_qps: rates.len() as u32, ..NicConfig::default() });
    let pd = nic.alloc_pd().unwrap();
    let cq = nic.create_cq(16).unwrap();
    let mr = nic.reg_phantom_mr(pd, 0x1000, MESSAGE.into(), Access::LOCAL_WRITE).unwrap();
    let config = QpConfig {
        xrcd: None,
        service: Service::Uc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
        sq_sig_all: false,
        transport: TransportConfig::parse("irn", true).unwrap(),
    };
    let address = |i| IpAddr::V4(Ipv4Addr::new(10, 0, 0, i));
    let path = Path { src: address(1), dst: address(2), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
    let connect = |&rate: &u64| {
        let qpn = nic.create_qp(&config).unwrap();
        nic.connect(qpn, &ConnectParams::unreliable(path, Mtu::B1024, qpn)).unwrap();
        nic.set_rate(Time::ZERO, qpn, rate, MTU).unwrap();
        let sges = [Sge { addr: mr.addr, len: MESSAGE, lkey: mr.lkey }];
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Write,
            data: SendData::Sges(&sges),
            remote_addr: 0,
            rkey: 1,
            signaled: false,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        nic.post_send(qpn, &wr).unwrap();
        qpn
    };
    let qpns = rates.iter().map(connect).collect();
    (nic, qpns)
}

/// Runs the NIC until `end`, each time `late` ns after its deadline; returns the payload bytes sent by each queue pair.
fn run(nic: &mut Nic, end: Time, late: u64) -> HashMap<u32, u64> {
    let mut sent = HashMap::new();
    let mut now = Time::ZERO;
    while now < end {
        nic.on_deadline(now);
        while nic.wants_tx() {
            nic.poll_transmit(now, 256, |packet| {
                *sent.entry(packet.headers.bth.dest_qp).or_default() += packet.payload.len() as u64;
                true
            });
        }
        now = (nic.next_deadline() + late).max(now + 1);
    }
    sent
}

/// Returns the relative error of `sent` bytes in `span` ns at `rate` bit/s.
fn error(sent: u64, rate: u64, span: u64) -> f64 {
    sent as f64 * 8.0 * SEC as f64 / (rate as f64 * span as f64) - 1.0
}

#[test]
fn ten_gigabits_a_second_are_met_within_a_percent_in_every_ten_milliseconds() {
    // In time, and by a host that is up to 20 µs late, in which 25 packets would have left.
    for late in [0, 20_000] {
        for rate in [GBIT / 10, GBIT, 10 * GBIT] {
            let (mut nic, qpns) = paced(&[rate]);
            let sent = run(&mut nic, Time(10 * MS), late);
            // The part not yet due, or sent as the first burst.
            let slack = f64::from(2 * MTU) / (rate as f64 / 8.0 / 100.0) + late as f64 / (10 * MS) as f64;
            let error = error(sent[&qpns[0]], rate, 10 * MS);
            assert!(error.abs() <= 0.0001 + slack, "{rate} bit/s, {late} ns late: {error}");
            assert!(rate < 10 * GBIT || error.abs() < 0.01, "{rate} bit/s: {error}");
        }
    }
}

#[test]
fn twenty_thousand_queue_pairs_each_get_their_rate_within_a_percent() {
    const SPAN: u64 = 400 * MS;
    // 2.5 to 5 Mbit/s, 75 Gbit/s together: packets of different queue pairs are never due together for long.
    let rates: Vec<u64> = (0..20_000).map(|i| 2_500_000 + i * 125).collect();
    let (mut nic, qpns) = paced(&rates);
    let sent = run(&mut nic, Time(SPAN), 0);
    let worst = qpns.iter().zip(&rates).map(|(qpn, &rate)| error(sent[qpn], rate, SPAN).abs()).fold(0.0, f64::max);
    // The slowest sends 122 packets: one is 0.8 %.
    assert!(worst < 0.01, "{worst}");
}
