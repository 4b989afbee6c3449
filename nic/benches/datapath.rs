//! The cost per packet: two NICs on one core that pass packets to each other without a wire, compared with the memory
//! copy that each payload byte needs anyway.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use irnic_nic::loopback;
use irnic_nic::{Mr, Nic, NicConfig, QpConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Access, ConnectParams, CqId, PdId, SendData, SendOp, SendWr, Service, Sge, Wc};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time};

const DEPTH: u32 = 64;
struct Ends {
    nics: [Nic; 2],
    cq: CqId,
    qpn: u32,
    mrs: [Mr; 2],
    now: u64,
}

/// Pulled streams, with pulls faster than any packet.
const NDP: &str = "ndp,line-rate=1000G";

/// Returns the path from one end to the other.
fn path(from: u8) -> Path {
    let address = |i: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, i));
    Path { src: address(from), dst: address(1 - from), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

fn ends(transport: &str, len: u64) -> Ends {
    let config = TransportConfig::parse(transport, true).unwrap();
    let [(a, cq, qpn, ma), (b, _, _, mb)] = [0u8, 1].map(|i| {
        let mut nic = Nic::new(NicConfig { quantum: 16, ..NicConfig::default() });
        let pd = nic.alloc_pd().unwrap();
        let cq = nic.create_cq(2 * DEPTH).unwrap();
        let mr = nic.alloc_mr(pd, len, Access::ALL).unwrap();
        let qpn = nic
            .create_qp(&QpConfig {
                service: Service::Rc,
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                xrcd: None,
                max_send_wr: DEPTH,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
                sq_sig_all: true,
                transport: config,
            })
            .unwrap();
        let mut params = ConnectParams::reliable(path(i), Mtu::B4096, qpn);
        params.access = Access::ALL;
        params.rd_atomic = 16;
        nic.connect(qpn, &params).unwrap();
        (nic, cq, qpn, mr)
    });
    Ends { nics: [a, b], cq, qpn, mrs: [ma, mb], now: 1_000_000 }
}

impl Ends {
    /// Posts `count` work requests of `len` bytes and runs both NICs until they are complete.
    fn run(&mut self, op: SendOp, len: u32, count: u32) {
        let sge = [Sge { addr: self.mrs[0].addr, len, lkey: self.mrs[0].lkey }];
        let (mut posted, mut done) = (0, 0);
        let mut wcs = [Wc::EMPTY; 32];
        while done < count {
            while posted < count && posted - done < DEPTH {
                let wr = SendWr {
                    wr_id: u64::from(posted),
                    op,
                    data: SendData::Sges(&sge),
                    remote_addr: self.mrs[1].addr,
                    rkey: self.mrs[1].rkey,
                    signaled: true,
                    solicited: false,
                    fence: false,
                    to: None,
                    remote_srqn: 0,
                };
                self.nics[0].post_send(self.qpn, &wr).unwrap();
                posted += 1;
            }
            self.now += 1_000;
            let now = Time(self.now);
            let [a, b] = &mut self.nics;
            loopback(now, a, b, 64);
            loopback(now, b, a, 64);
            a.on_deadline(now);
            b.on_deadline(now);
            done += a.poll_cq(self.cq, &mut wcs).unwrap() as u32;
        }
    }
}

fn bandwidth(c: &mut Criterion) {
    const LEN: usize = 65_536;
    let mut group = c.benchmark_group("64 KiB");
    group.throughput(Throughput::Bytes(LEN as u64));
    let (from, mut to) = (vec![1u8; LEN], vec![0u8; LEN]);
    group.bench_function("copy", |b| b.iter(|| black_box(&mut to).copy_from_slice(black_box(&from))));
    for transport in ["roce", "irn", NDP] {
        for (name, op) in [("write", SendOp::Write), ("read", SendOp::Read)] {
            let mut e = ends(transport, LEN as u64);
            group.bench_function(format!("{transport} {name}"), |b| {
                b.iter_custom(|n| {
                    let start = std::time::Instant::now();
                    e.run(op, LEN as u32, n as u32);
                    start.elapsed()
                })
            });
        }
    }
    group.finish();
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("8 B");
    group.throughput(Throughput::Elements(1));
    for transport in ["roce", "irn", NDP] {
        for (name, op) in [("write", SendOp::Write), ("read", SendOp::Read)] {
            let mut e = ends(transport, 8);
            group.bench_function(format!("{transport} {name}"), |b| {
                b.iter_custom(|n| {
                    let start = std::time::Instant::now();
                    e.run(op, 8, n as u32);
                    start.elapsed()
                })
            });
        }
    }
    group.finish();
}

/// One queue pair works, the others are connected and idle: the cost of the scheduler and the timers must not depend on
/// their number.
fn idle_queue_pairs(c: &mut Criterion) {
    let mut group = c.benchmark_group("8 B write among idle queue pairs");
    group.throughput(Throughput::Elements(1));
    for transport in ["roce", "irn"] {
        for idle in [0u32, 65_535] {
            let mut e = ends(transport, 8);
            let before = resident_bytes();
            let config = QpConfig::new(PdId(0), e.cq, TransportConfig::parse(transport, true).unwrap());
            for _ in 0..idle {
                let qpn = e.nics[0].create_qp(&config).unwrap();
                let mut params = ConnectParams::reliable(path(0), Mtu::B4096, qpn);
                (params.access, params.rd_atomic) = (Access::ALL, 16);
                e.nics[0].connect(qpn, &params).unwrap();
            }
            if idle > 0 {
                let bytes = resident_bytes() - before;
                println!(
                    "{transport}: {idle} connected queue pairs with 16 + 16 work requests take {} MB, {} bytes each",
                    bytes / 1_000_000,
                    bytes / u64::from(idle)
                );
            }
            group.bench_function(format!("{transport}, {idle}"), |b| {
                b.iter_custom(|n| {
                    let start = std::time::Instant::now();
                    e.run(SendOp::Write, 8, n as u32);
                    start.elapsed()
                })
            });
        }
    }
    group.finish();
}

/// Returns the resident memory of this process, 0 where Linux does not report it.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

criterion_group!(benches, bandwidth, messages, idle_queue_pairs);
criterion_main!(benches);
