//! Adversarial timing: processes that lose their core, poll rarely or read in bursts, on networks without loss.
//!
//! All retransmissions are spurious. A timer that runs late because the process was not scheduled proves nothing about
//! the peer, and one that runs in time while the peer is not scheduled costs at most one packet per stall if the port
//! reports what the peer has read, and otherwise one per timeout.

use irnic_nic::{Mr, NicConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcStatus};
use irnic_transports::time::{MS, US};
use irnic_transports::wire::Mtu;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Connection, End, Network, connect, create, region};

/// Result of a schedule.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub work_requests: u64,
    pub stalls: u64,
    /// Packets retransmitted, and the maximum allowed.
    pub again: u64,
    pub allowed: u64,
    pub timeouts: u64,
    pub probes: u64,
}

impl Outcome {
    pub fn add(&mut self, o: &Outcome) {
        self.work_requests += o.work_requests;
        self.stalls += o.stalls;
        self.again += o.again;
        self.allowed += o.allowed;
        self.timeouts += o.timeouts;
        self.probes += o.probes;
    }
}

/// Work of one end.
struct Work {
    from: End,
    to: End,
    posted: u64,
    total: u64,
    done: u64,
    local: Mr,
    remote: Mr,
}

/// Bytes of each region.
const LEN: u32 = 64 << 10;

pub fn run(seed: u64, verbose: bool) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x57a1);
    let delay = rng.random_range(1..=50);
    let mut net = Network::new(2, &format!("delay {delay}us limit 100000"), seed, &NicConfig::default());
    // No reordering.
    net.byte_time = 0;
    net.batch = [1, 64][rng.random_range(0..2)];
    // As many as a port takes at once.
    net.hasty = net.batch == 64 && rng.random_bool(0.5);
    net.knows_reading = rng.random_bool(0.5);
    let name = ["irn", "irn", "auto", "roce", "irn-go-back-n"][rng.random_range(0..5)];
    let transport = TransportConfig::parse(name, true).unwrap();
    let c = Connection {
        transport: [transport; 2],
        mtu: [Mtu::B1024, Mtu::B4096][rng.random_range(0..2)],
        // Impatient: 4 ms, four times.
        timeout: 10,
        retry_cnt: 3,
        ..Connection::default()
    };
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    connect(&mut net, &c, ends);
    let both = rng.random_bool(0.5);
    let mut works = Vec::new();
    for i in [0, 1] {
        let [local, remote] = [ends[i], ends[1 - i]].map(|end| region(&mut net, end, LEN as usize, |k| k as u8));
        let total = if i == 0 || both { rng.random_range(50..200) } else { 0 };
        works.push(Work { from: ends[i], to: ends[1 - i], posted: 0, total, done: 0, local, remote });
    }
    let selective = matches!(name, "irn" | "auto");
    if verbose {
        println!("{name}, {delay} us, batch {}, hasty {}, knows {}", net.batch, net.hasty, net.knows_reading);
    }
    let mut outcome = Outcome { work_requests: works.iter().map(|w| w.total).sum(), ..Outcome::default() };
    let mut next_stall = net.now;
    while works.iter().any(|w| w.done < w.total) {
        for work in &mut works {
            post(&mut rng, &mut net, work);
        }
        if net.now >= next_stall {
            let (who, long) = (rng.random_range(0..2), rng.random_range(MS..=100 * MS));
            // Half of them are short.
            let long = if rng.random_bool(0.5) { rng.random_range(100 * US..=2 * MS) } else { long };
            net.absent[who] = net.now + long;
            next_stall = net.now + long + rng.random_range(20 * US..=20 * MS);
            outcome.stalls += 1;
            outcome.allowed += allowed(&net, selective, long);
        }
        if !net.step() {
            // Nothing to do before the next stall.
            net.now = net.now.max(next_stall);
        }
        assert!(net.steps < 2_000_000, "no end");
        for end in ends {
            poll(&mut net, &mut works, end);
        }
    }
    while net.step() {}
    for nic in &net.nics {
        let counters = nic.counters();
        assert_eq!(counters.retry_exceeded_err, 0);
        outcome.again += counters.retransmitted_pkts;
        outcome.timeouts += counters.local_ack_timeout_err + counters.irn_read_timeouts;
        outcome.probes += counters.tlp_probes;
    }
    assert!(!selective && !net.knows_reading || outcome.again <= outcome.allowed, "{name}, {delay} us: {outcome:?}");
    outcome
}

/// Returns the retransmissions allowed in a stall: one if it is known what the peer has read; otherwise each of the
/// four streams has a probe, and timeouts that double from the minimum.
fn allowed(net: &Network, selective: bool, long: u64) -> u64 {
    if net.knows_reading {
        return 1;
    }
    let timeouts = (long / (250 * US) + 1).ilog2() + 1;
    let streams = if selective { 4 } else { 2 };
    streams * (1 + u64::from(timeouts))
}

fn post(rng: &mut StdRng, net: &mut Network, work: &mut Work) {
    while work.posted < work.total && work.posted < work.done + 32 && rng.random_bool(0.3) {
        let op = [SendOp::Write, SendOp::Write, SendOp::Send, SendOp::Read, SendOp::FetchAdd { add: 1 }]
            [rng.random_range(0..5)];
        let len = if op == SendOp::Write || op == SendOp::Read { rng.random_range(1..=LEN) } else { 8 };
        if op == SendOp::Send {
            let sges = [Sge { addr: work.remote.addr, len: 8, lkey: work.remote.lkey }];
            net.nics[work.to.nic].post_recv(work.to.qpn, &RecvWr { wr_id: u64::MAX, sges: &sges }).unwrap();
        }
        let sges = [Sge { addr: work.local.addr, len, lkey: work.local.lkey }];
        let wr = SendWr {
            remote_addr: work.remote.addr,
            rkey: work.remote.rkey,
            ..SendWr::new(work.posted, op, SendData::Sges(&sges))
        };
        if net.nics[work.from.nic].post_send(work.from.qpn, &SendWr { signaled: true, ..wr }).is_err() {
            return;
        }
        work.posted += 1;
    }
}

fn poll(net: &mut Network, works: &mut [Work], end: End) {
    let mut wcs = [Wc::EMPTY; 16];
    while let Ok(n @ 1..) = net.nics[end.nic].poll_cq(end.cq, &mut wcs) {
        for wc in &wcs[..n] {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id != u64::MAX {
                let work = works.iter_mut().find(|w| w.from.nic == end.nic).expect("whose it is");
                assert_eq!(wc.wr_id, work.done);
                work.done += 1;
            }
        }
    }
}
