//! RoCC between two NICs and a line with a congestion point, by a clock of the test's own.

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig, QpConfig};
use irnic_ports::impair::{Impaired, Impairments, Report};
use irnic_ports::paced::Paced;
use irnic_ports::{NicPort, Port, mem};
use irnic_transports::qp::{Access, ConnectParams, SendData, SendWr, Sge, Wc, WcStatus};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time, TransportConfig};

const SIZE: u32 = 64 << 10;
const MS: u64 = 1_000_000;
const LINE: f64 = 1e9;

/// Bytes that each of `flows` queue pairs has written in the last fifth of 500 ms, over a line with these impairments
/// behind a link of twice its rate, and what the line reports.
fn written(impairments: &str, flows: usize) -> (Vec<u64>, Report) {
    let impairments: Impairments = impairments.parse().expect("impairments");
    let mut transport = TransportConfig::parse("irn,cc=rocc,line-rate=2G", true).expect("a transport");
    transport.fit_to_notices(impairments.tx.fair_rate().as_ref()).expect("a congestion point");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let nic = |seed| Nic::new(NicConfig { seed: [seed; 32], ..NicConfig::default() });
    let (left, right) = mem::pair();
    let mut a = NicPort::new(nic(1), Paced::new(Impaired::new(left, &impairments, 1, 0), 2_000_000_000), Icrc::Off);
    let mut b = NicPort::new(nic(2), right, Icrc::Off);
    let mut pairs = Vec::new();
    for _ in 0..flows {
        let create = |nic: &mut Nic| {
            let (pd, cq) = (nic.alloc_pd().expect("a domain"), nic.create_cq(64).expect("a queue"));
            let memory = nic.alloc_mr(pd, SIZE.into(), rights).expect("memory");
            (nic.create_qp(&QpConfig::new(pd, cq, transport)).expect("a queue pair"), cq, memory)
        };
        let ((from, cq, source), (to, _, target)) = (create(&mut a.nic), create(&mut b.nic));
        for (nic, qpn, peer, ends) in [(&mut a.nic, from, to, [1, 2]), (&mut b.nic, to, from, [2, 1])] {
            let [src, dst] = ends.map(|last| [10, 0, 0, last].into());
            let path = Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
            let mut params = ConnectParams::reliable(path, Mtu::B4096, peer);
            params.access = rights;
            nic.connect(qpn, &params).expect("a connection");
        }
        pairs.push((from, cq, source, target));
    }
    let mut bytes = vec![0; flows];
    let mut now = Time::ZERO;
    let mut posted = vec![0; flows];
    while now < Time(500 * MS) {
        for (flow, (qpn, cq, source, target)) in pairs.iter().enumerate() {
            let mut completions = [Wc::EMPTY; 16];
            let count = a.nic.poll_cq(*cq, &mut completions).expect("a queue");
            assert!(completions[..count].iter().all(|wc| wc.status == WcStatus::Success));
            posted[flow] -= count;
            if now >= Time(400 * MS) {
                bytes[flow] += count as u64 * u64::from(SIZE);
            }
            while posted[flow] < 16 {
                let sges = [Sge { addr: source.addr, len: SIZE, lkey: source.lkey }];
                let write = SendWr::write(0, SendData::Sges(&sges), target.addr, target.rkey);
                a.nic.post_send(*qpn, &write).expect("room");
                posted[flow] += 1;
            }
        }
        let moved = a.poll(now).expect("a poll") + b.poll(now).expect("a poll");
        let next = a.next_deadline().min(b.next_deadline());
        now = if moved > 0 || next <= now { now + 1_000 } else { next };
    }
    (bytes, a.port.impairments().expect("an impaired port")[0])
}

#[test]
fn flows_share_a_line_whose_queue_is_at_the_reference() {
    for flows in [1, 2, 8] {
        let (bytes, report) = written("tx rate 1gbit limit 10000 rocc 75000b", flows);
        let queue = report.queue.expect("a queue");
        // Of 100 ms.
        let rates: Vec<f64> = bytes.iter().map(|bytes| *bytes as f64 * 80.0 / LINE).collect();
        let share = 1.0 / flows as f64;
        assert!(rates.iter().all(|rate| (rate / share - 1.0).abs() < 0.1), "{flows} flows: {rates:?}");
        assert!(rates.iter().sum::<f64>() > 0.95, "{flows} flows: {rates:?}");
        let fair = report.fair_rate.expect("a fair rate") as f64 / LINE;
        assert!((fair / share - 1.0).abs() < 0.05, "{flows} flows: {fair}");
        assert!((64_000..86_000).contains(&queue.p50_bytes), "{flows} flows: {queue:?}");
        assert!(report.counters.notices > 100, "{report:?}");
    }
}
