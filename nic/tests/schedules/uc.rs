//! Schedules of unreliable connections. Every send completes, in order. The messages delivered are a subsequence of
//! those sent, byte for byte. A WRITE that lost packets leaves its first packets and nothing else.

use irnic_nic::{Mr, NicConfig};
use irnic_transports::Psn;
use irnic_transports::qp::{RecvWr, SendData, SendOp, SendWr, Service, Sge, SrqId, Wc, WcOpcode, WcStatus};
use irnic_transports::wire::Mtu;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::choices::impairments;
use crate::common::{Connection, End, Network, connect, create, region};
use crate::model::{elements, pattern, signal_often};
use crate::unreliable::Outcome;

/// Bytes between areas of memory that must never change.
const GUARD: usize = 16;

struct Plan {
    op: SendOp,
    len: usize,
    local: usize,
    remote: usize,
    signaled: bool,
    sges: usize,
}

/// One direction.
struct Flow {
    from: End,
    to: End,
    mtu: usize,
    local: Mr,
    remote: Mr,
    buffers: Mr,
    salt: u64,
    plans: Vec<Plan>,
    posted: usize,
    /// The next plan that may complete, and the next that may be delivered.
    completed: usize,
    delivered: usize,
    slot: usize,
    recv_posted: usize,
    recv_total: usize,
    srq: Option<SrqId>,
    received: usize,
}

impl Flow {
    fn source(&self, plan: &Plan) -> Vec<u8> {
        (plan.local..plan.local + plan.len).map(|k| pattern(self.salt, k)).collect()
    }
}

fn flow(rng: &mut StdRng, net: &mut Network, c: &Connection, from: End, to: End, srq: Option<SrqId>) -> Flow {
    let mtu = c.mtu.bytes();
    let (mut local_len, mut remote_len, mut slot) = (0, GUARD, 1);
    let mut plans: Vec<Plan> = (0..rng.random_range(1..=60))
        .map(|n| {
            let len = match rng.random_range(0..5) {
                0 => rng.random_range(0..=8),
                1 => mtu * rng.random_range(1..=3),
                2 => rng.random_range(0..=mtu),
                _ => rng.random_range(0..=mtu * 8),
            };
            let op = match rng.random_range(0..4) {
                0 => SendOp::Send,
                1 => SendOp::SendImm(n),
                2 => SendOp::Write,
                _ => SendOp::WriteImm(n),
            };
            let plan = Plan {
                op,
                len,
                local: local_len,
                remote: remote_len,
                signaled: rng.random_bool(0.5),
                sges: rng.random_range(1..=4),
            };
            local_len += len;
            match op {
                SendOp::Write | SendOp::WriteImm(_) => remote_len += len + GUARD,
                _ => slot = slot.max(len),
            }
            plan
        })
        .collect();
    signal_often(c.depth, plans.iter_mut().map(|p| &mut p.signaled));
    let salt = rng.next_u64();
    let recv_total = rng.random_range(0..=plans.len() + 4);
    let slot = slot + GUARD;
    Flow {
        from,
        to,
        mtu,
        local: region(net, from, local_len, |k| pattern(salt, k)),
        remote: region(net, to, remote_len, |_| 0xee),
        buffers: region(net, to, slot * recv_total.max(1), |_| 0xee),
        salt,
        plans,
        posted: 0,
        completed: 0,
        delivered: 0,
        slot,
        recv_posted: 0,
        recv_total,
        srq,
        received: 0,
    }
}

fn post(rng: &mut StdRng, net: &mut Network, f: &mut Flow, eager: bool) {
    let mut sges: Vec<Sge> = Vec::new();
    while f.recv_posted < f.recv_total && (eager || rng.random_bool(0.4)) {
        let at = f.recv_posted * f.slot;
        let room = (f.slot - GUARD) as u32;
        elements(f.buffers.addr + at as u64, room, f.buffers.lkey, 1 + f.recv_posted % 4, &mut sges);
        let wr = RecvWr { wr_id: f.recv_posted as u64, sges: &sges };
        let nic = &mut net.nics[f.to.nic];
        let posted = match f.srq {
            Some(srq) => nic.post_srq_recv(srq, &wr),
            None => nic.post_recv(f.to.qpn, &wr),
        };
        if posted.is_err() {
            break;
        }
        f.recv_posted += 1;
    }
    while f.posted < f.plans.len() && (eager || rng.random_bool(0.5)) {
        let p = &f.plans[f.posted];
        elements(f.local.addr + p.local as u64, p.len as u32, f.local.lkey, p.sges, &mut sges);
        let wr = SendWr {
            wr_id: f.posted as u64,
            op: p.op,
            data: SendData::Sges(&sges),
            remote_addr: f.remote.addr + p.remote as u64,
            rkey: f.remote.rkey,
            signaled: p.signaled,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        if net.nics[f.from.nic].post_send(f.from.qpn, &wr).is_err() {
            break;
        }
        f.posted += 1;
    }
}

/// Handles a send completion: of the next signaled work request.
fn sent(f: &mut Flow, wc: &Wc) {
    let n = wc.wr_id as usize;
    assert!(n < f.posted && n >= f.completed, "work request {n} completed twice or out of order");
    assert!(f.plans[f.completed..n].iter().all(|p| !p.signaled), "a completion before {n} is missing");
    assert!(f.plans[n].signaled);
    assert_eq!((wc.opcode, wc.byte_len as usize), (f.plans[n].op.wc_opcode(), f.plans[n].len));
    f.completed = n + 1;
}

/// Handles a message: some plan after the last one delivered.
fn received(net: &Network, f: &mut Flow, wc: &Wc) {
    assert_eq!(wc.wr_id, f.received as u64, "receive WQEs out of order");
    let nic = &net.nics[f.to.nic];
    let buffer = &nic.bytes(&f.buffers).unwrap()[f.received * f.slot..];
    let write = wc.opcode == WcOpcode::RecvRdmaWithImm;
    f.received += 1;
    let is = |p: &Plan| {
        let imm = match p.op {
            SendOp::SendImm(i) | SendOp::WriteImm(i) => Some(i),
            _ => None,
        };
        let place = if write { &nic.bytes(&f.remote).unwrap()[p.remote..] } else { buffer };
        matches!(p.op, SendOp::WriteImm(_)) == write
            && p.op != SendOp::Write
            && (imm, p.len) == (wc.imm, wc.byte_len as usize)
            && place[..p.len] == f.source(p)
    };
    let found = f.plans[f.delivered..f.posted].iter().position(is);
    f.delivered += found.unwrap_or_else(|| panic!("{wc:?} is no message that could come after {}", f.delivered)) + 1;
}

/// Checks that every area holds the bytes sent up to some packet, and its previous contents from there on.
fn finish(net: &Network, f: &Flow) {
    let unsignaled = f.plans[f.completed..].iter().all(|p| !p.signaled);
    assert!(unsignaled && f.posted == f.plans.len(), "not every work request is complete");
    assert_eq!(net.nics[f.from.nic].qp(f.from.qpn).unwrap().send_queue_len(), 0);
    let nic = &net.nics[f.to.nic];
    let memory = nic.bytes(&f.remote).unwrap();
    let mut at = 0;
    let guard = |from: usize, to: usize| assert!(memory[from..to].iter().all(|&b| b == 0xee), "bytes nobody sent");
    for p in f.plans.iter().filter(|p| matches!(p.op, SendOp::Write | SendOp::WriteImm(_))) {
        guard(at, p.remote);
        at = p.remote + p.len;
        let (got, source) = (&memory[p.remote..at], f.source(p));
        let prefix = |n: usize| got[..n] == source[..n] && got[n..].iter().all(|&b| b == 0xee);
        let ends = (0..=p.len).step_by(f.mtu).chain([p.len]);
        assert!(ends.into_iter().any(prefix), "a WRITE that is neither whole nor cut at a packet");
    }
    guard(at, memory.len());
    for slot in nic.bytes(&f.buffers).unwrap().chunks(f.slot) {
        assert!(slot[f.slot - GUARD..].iter().all(|&b| b == 0xee), "bytes behind a receive buffer");
    }
}

/// Runs a schedule; panics with the reason if it breaks a rule.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let network = impairments(&mut rng);
    let mut net =
        Network::new(2, &network, seed, &NicConfig { quantum: rng.random_range(1..=16), ..Default::default() });
    net.byte_time = rng.random_range(8..=800);
    net.batch = [1, 4, 64][rng.random_range(0..3)];
    let mut c = Connection {
        service: Service::Uc,
        mtu: Mtu::ALL[rng.random_range(0..5)],
        psn: [Psn::new(0u32.wrapping_sub(rng.random_range(0..40))), Psn::new(rng.next_u32())],
        depth: rng.random_range(1..=64),
        ..Connection::default()
    };
    let nics = if rng.random_bool(0.1) { [0, 0] } else { [0, 1] };
    let given = nics.map(|n| {
        let pd = net.nics[n].alloc_pd().unwrap();
        Some((pd, net.nics[n].create_cq(4096).unwrap()))
    });
    for i in [0, 1] {
        let (pd, _) = given[i].unwrap();
        c.srq[i] = rng.random_bool(0.3).then(|| net.nics[nics[i]].create_srq(pd, 256, 4).unwrap());
    }
    if verbose {
        println!("UC {c:?} NICs {nics:?}\nnetwork: {network}");
    }
    let ends = [create(&mut net, nics[0], &c, 0, given[0]), create(&mut net, nics[1], &c, 1, given[1])];
    connect(&mut net, &c, ends);
    let mut flows = [0, 1].map(|i| flow(&mut rng, &mut net, &c, ends[i], ends[1 - i], c.srq[1 - i]));
    loop {
        for f in &mut flows {
            post(&mut rng, &mut net, f, false);
        }
        let more = net.step();
        poll(&mut net, &mut flows);
        if !more {
            let before: usize = flows.iter().map(|f| f.posted).sum();
            for f in &mut flows {
                post(&mut rng, &mut net, f, true);
            }
            if before == flows.iter().map(|f| f.posted).sum::<usize>() {
                break;
            }
        }
        assert!(net.steps < 1_000_000, "no end");
    }
    poll(&mut net, &mut flows);
    for f in &flows {
        finish(&net, f);
    }
    let mut o = Outcome::of(&net);
    for f in &flows {
        o.messages += f.plans.len() as u64;
        o.delivered += f.received as u64;
    }
    o
}

fn poll(net: &mut Network, flows: &mut [Flow; 2]) {
    for i in [0, 1] {
        let end = flows[i].from;
        let mut wcs = [Wc::EMPTY; 16];
        while let Ok(n @ 1..) = net.nics[end.nic].poll_cq(end.cq, &mut wcs) {
            for wc in &wcs[..n] {
                assert_eq!((wc.status, wc.qp_num), (WcStatus::Success, end.qpn), "{wc:?}");
                match wc.opcode {
                    WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => received(net, &mut flows[1 - i], wc),
                    _ => sent(&mut flows[i], wc),
                }
            }
        }
    }
}
