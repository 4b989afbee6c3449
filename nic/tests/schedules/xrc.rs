//! Schedules of extended reliable connections: each request names one of two shared receive queues, which several
//! connections use. Every request is executed once and in order, and every message completes at the queue that it
//! names, in a buffer of that queue that no other message got. Applications that post few receives, and more only when
//! one is complete, never wait in vain.

use std::collections::VecDeque;

use irnic_nic::{Mr, NicConfig, QpConfig};
use irnic_transports::Psn;
use irnic_transports::Time;
use irnic_transports::qp::{RecvWr, SendData, SendOp, SendWr, Service, Sge, SrqId, Wc, WcOpcode, WcStatus, XrcdId};
use irnic_transports::wire::Mtu;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::choices::{congestion, impairments, transport};
use crate::common::{Connection, End, Network, attributes, region};
use crate::model::{Outcome, bound, elements, pattern, signal_often};

/// The NIC of all targets.
const TARGETS: usize = 1;

struct Plan {
    op: SendOp,
    len: usize,
    /// The shared receive queue named.
    queue: usize,
    local: usize,
    /// Offset in the region that belongs to that queue.
    remote: usize,
    signaled: bool,
    solicited: bool,
    fence: bool,
    inline: bool,
    sges: usize,
    /// Atomics: the value that must be returned.
    before: u64,
}

/// One connection.
struct Flow {
    from: End,
    /// Number of the target.
    target: u32,
    local: Mr,
    remote: [Mr; 2],
    expected_local: Vec<u8>,
    expected_remote: [Vec<u8>; 2],
    plans: Vec<Plan>,
    posted: usize,
    completed: usize,
    /// Messages to each queue that are not complete there, in order.
    messages: [VecDeque<usize>; 2],
}

/// A shared receive queue. Its protection domain is its own.
struct Queue {
    /// The NIC, the protection domain and the completion queue; no queue pair.
    end: End,
    id: SrqId,
    number: u32,
    buffers: Mr,
    slot: usize,
    /// Maximum number of receives posted and not complete.
    budget: usize,
    total: usize,
    posted: usize,
    used: Vec<bool>,
    done: usize,
}

fn plan(rng: &mut StdRng, net: &mut Network, from: End, mtu: usize, kinds: &[u8]) -> Plan {
    let queue = rng.random_range(0..2);
    let mut len = match rng.random_range(0..5) {
        0 => rng.random_range(0..=8),
        1 => mtu * rng.random_range(1..=3),
        2 => rng.random_range(0..=300),
        _ => rng.random_range(0..=mtu * 9),
    };
    let op = match kinds[rng.random_range(0..kinds.len())] {
        0 => SendOp::Send,
        1 => SendOp::SendImm(rng.next_u32()),
        2 => SendOp::Write,
        3 => SendOp::WriteImm(rng.next_u32()),
        4 => SendOp::Read,
        5 => SendOp::FetchAdd { add: rng.next_u64() },
        6 => SendOp::CompareSwap { compare: 0, swap: rng.next_u64() },
        // A target has no send queue to bind a window by, so none can be invalidated there.
        _ => SendOp::LocalInvalidate(bound(net, from)),
    };
    match op {
        SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => len = 8,
        SendOp::LocalInvalidate(_) => len = 0,
        _ => {}
    }
    Plan {
        op,
        len,
        queue,
        local: 0,
        remote: 0,
        signaled: rng.random_bool(0.6),
        solicited: rng.random_bool(0.3),
        fence: rng.random_bool(0.1),
        inline: len <= 256 && rng.random_bool(0.3) && !op.is_read_or_atomic(),
        sges: rng.random_range(1..=4),
        before: 0,
    }
}

fn flow(rng: &mut StdRng, net: &mut Network, c: &Connection, domain: XrcdId, queues: &[End; 2]) -> Flow {
    let nic = if rng.random_bool(0.2) { TARGETS } else { 0 };
    let n = &mut net.nics[nic];
    let (pd, cq) = (n.alloc_pd().unwrap(), n.create_cq(4096).unwrap());
    let initiator = QpConfig {
        max_send_wr: c.depth,
        max_send_sge: 4,
        max_inline: 256,
        ..QpConfig::xrc_initiator(pd, cq, c.transport[0])
    };
    let from = End { nic, pd, cq, qpn: n.create_qp(&initiator).unwrap() };
    let target = net.nics[TARGETS].create_qp(&QpConfig::xrc_target(domain, c.transport[1])).unwrap();
    let to = End { qpn: target, ..queues[0] };
    for (which, service, me, peer) in [(1, Service::XrcTarget, to, from), (0, Service::XrcInitiator, from, to)] {
        for attr in attributes(&Connection { service, ..c.clone() }, me, peer, which) {
            net.nics[me.nic].modify_qp(me.qpn, &attr).unwrap();
        }
    }
    let kinds: Vec<u8> = (0..rng.random_range(1..=5)).map(|_| rng.random_range(0..8)).collect();
    let mut plans: Vec<Plan> = Vec::new();
    for _ in 0..rng.random_range(1..=40) {
        plans.push(plan(rng, net, from, c.mtu.bytes(), &kinds));
    }
    plans.last_mut().unwrap().signaled = true;
    signal_often(c.depth, plans.iter_mut().map(|p| &mut p.signaled));
    let (mut local_len, mut remote_len) = (8, [8, 8]);
    for p in &mut plans {
        // Guard bytes between all areas detect stray writes.
        (p.local, local_len) = (local_len, local_len + p.len + 16);
        match p.op {
            SendOp::Write | SendOp::WriteImm(_) | SendOp::Read => {
                (p.remote, remote_len[p.queue]) = (remote_len[p.queue], remote_len[p.queue] + p.len + 16);
            }
            _ => {}
        }
    }
    let salt = rng.next_u64();
    let local = region(net, from, local_len, |k| pattern(salt, k));
    let remote =
        [0, 1].map(|i| region(net, queues[i], remote_len[i], |k| if k < 8 { 0 } else { pattern(salt ^ 1, k) }));
    let mut f = Flow {
        from,
        target,
        local,
        remote,
        expected_local: net.nics[nic].bytes(&local).unwrap().to_vec(),
        expected_remote: remote.map(|mr| net.nics[TARGETS].bytes(&mr).unwrap().to_vec()),
        plans,
        posted: 0,
        completed: 0,
        messages: Default::default(),
    };
    expect(&mut f);
    f
}

/// Computes the expected final contents of memory.
fn expect(f: &mut Flow) {
    let (source, remote_source) = (f.expected_local.clone(), f.expected_remote.clone());
    let mut cells = [0u64; 2];
    for (n, p) in f.plans.iter_mut().enumerate() {
        let (local, remote) = (p.local..p.local + p.len, p.remote..p.remote + p.len);
        let cell = &mut cells[p.queue];
        match p.op {
            SendOp::Write | SendOp::WriteImm(_) => {
                f.expected_remote[p.queue][remote].copy_from_slice(&source[local]);
            }
            SendOp::Read => f.expected_local[local].copy_from_slice(&remote_source[p.queue][remote]),
            SendOp::FetchAdd { add } => {
                (p.before, *cell) = (*cell, cell.wrapping_add(add));
                f.expected_local[local].copy_from_slice(&p.before.to_ne_bytes());
            }
            SendOp::CompareSwap { compare, swap } => {
                (p.before, *cell) = (*cell, if *cell == compare { swap } else { *cell });
                f.expected_local[local].copy_from_slice(&p.before.to_ne_bytes());
            }
            _ => {}
        }
        if p.op.takes_recv_wqe() {
            f.messages[p.queue].push_back(n);
        }
    }
    for i in [0, 1] {
        f.expected_remote[i][..8].copy_from_slice(&cells[i].to_ne_bytes());
    }
}

fn queue(rng: &mut StdRng, net: &mut Network, flows: &[Flow], end: End, id: SrqId, i: usize) -> Queue {
    let messages = || flows.iter().flat_map(|f| f.messages[i].iter().map(|&n| &f.plans[n]));
    let (total, longest) = (messages().count(), messages().map(|p| p.len).max().unwrap_or(0));
    let slot = longest + 16;
    Queue {
        end,
        id,
        number: net.nics[TARGETS].srq_number(id).unwrap(),
        buffers: region(net, end, slot * total.max(1), |_| 0xee),
        slot,
        budget: if rng.random_bool(0.5) { rng.random_range(1..=4) } else { 256 },
        total,
        posted: 0,
        used: vec![false; total],
        done: 0,
    }
}

/// Posts receives erratically; all that it may if nothing moves any more.
fn receive(rng: &mut StdRng, net: &mut Network, q: &mut Queue, eager: bool) -> bool {
    let (before, mut sges) = (q.posted, Vec::new());
    while q.posted < q.total && q.posted - q.done < q.budget && (eager || rng.random_bool(0.4)) {
        let at = q.buffers.addr + (q.posted * q.slot) as u64;
        elements(at, q.slot as u32, q.buffers.lkey, 1 + q.posted % 3, &mut sges);
        net.nics[TARGETS].post_srq_recv(q.id, &RecvWr { wr_id: q.posted as u64, sges: &sges }).unwrap();
        q.posted += 1;
    }
    q.posted > before
}

fn send(rng: &mut StdRng, net: &mut Network, f: &mut Flow, queues: &[Queue; 2], eager: bool) -> bool {
    let (before, mut sges): (usize, Vec<Sge>) = (f.posted, Vec::new());
    while f.posted < f.plans.len() && (eager || rng.random_bool(0.5)) {
        let p = &f.plans[f.posted];
        elements(f.local.addr + p.local as u64, p.len as u32, f.local.lkey, p.sges, &mut sges);
        let inline = net.nics[f.from.nic].bytes(&f.local).unwrap()[p.local..p.local + p.len].to_vec();
        let data = if p.inline { SendData::Inline(&inline) } else { SendData::Sges(&sges) };
        let wr = SendWr {
            remote_addr: f.remote[p.queue].addr + p.remote as u64,
            rkey: f.remote[p.queue].rkey,
            signaled: p.signaled,
            solicited: p.solicited,
            fence: p.fence,
            remote_srqn: queues[p.queue].number,
            ..SendWr::new(f.posted as u64, p.op, data)
        };
        if net.nics[f.from.nic].post_send(f.from.qpn, &wr).is_err() {
            break;
        }
        f.posted += 1;
    }
    f.posted > before
}

/// Handles a send completion: the next signaled one, whose result must be visible.
fn sent(net: &Network, f: &mut Flow, wc: &Wc) {
    let n = wc.wr_id as usize;
    assert!(n < f.posted && n >= f.completed, "work request {n} completed twice or out of order");
    assert!(f.plans[f.completed..n].iter().all(|p| !p.signaled), "a completion before {n} is missing");
    let p = &f.plans[n];
    assert!(p.signaled);
    assert_eq!((wc.opcode, wc.byte_len as usize), (p.op.wc_opcode(), p.len));
    if p.op.is_read_or_atomic() {
        let local = &net.nics[f.from.nic].bytes(&f.local).unwrap()[p.local..p.local + p.len];
        assert_eq!(local, &f.expected_local[p.local..p.local + p.len], "{:?} {n}", p.op);
    }
    f.completed = n + 1;
}

/// Handles a receive completion: of the connection's next message to this queue, in a buffer that was waiting.
fn received(net: &Network, flows: &mut [Flow], q: &mut Queue, i: usize, wc: &Wc) {
    let f = flows.iter_mut().find(|f| f.target == wc.qp_num).expect("a completion of a connection");
    let n = f.messages[i].pop_front().expect("a message that was never sent to this queue");
    let p = &f.plans[n];
    assert!(n < f.posted, "message {n} arrived before it was sent");
    let at = wc.wr_id as usize;
    assert!(at < q.posted && !std::mem::replace(&mut q.used[at], true), "receive {at} completed twice");
    q.done += 1;
    let write = matches!(p.op, SendOp::WriteImm(_));
    let imm = match p.op {
        SendOp::SendImm(imm) | SendOp::WriteImm(imm) => Some(imm),
        _ => None,
    };
    assert_eq!(wc.opcode, if write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv });
    assert_eq!((wc.imm, wc.invalidated, wc.solicited), (imm, None, p.solicited));
    assert_eq!(wc.byte_len as usize, p.len, "{:?}", p.op);
    let (nic, source) = (&net.nics[TARGETS], &net.nics[f.from.nic].bytes(&f.local).unwrap()[p.local..p.local + p.len]);
    let got = if write {
        &nic.bytes(&f.remote[i]).unwrap()[p.remote..]
    } else {
        let slot = &nic.bytes(&q.buffers).unwrap()[at * q.slot..(at + 1) * q.slot];
        assert!(slot[p.len..].iter().all(|&b| b == 0xee), "bytes behind message {n}");
        slot
    };
    assert_eq!(&got[..p.len], source, "message {n}");
}

fn poll(net: &mut Network, flows: &mut [Flow], queues: &mut [Queue; 2]) {
    let mut wcs = [Wc::EMPTY; 16];
    for f in flows.iter_mut() {
        let End { nic, cq, qpn, .. } = f.from;
        while let Ok(n @ 1..) = net.nics[nic].poll_cq(cq, &mut wcs) {
            for wc in &wcs[..n] {
                assert_eq!((wc.status, wc.qp_num), (WcStatus::Success, qpn), "{wc:?}");
                sent(net, f, wc);
            }
        }
    }
    for (i, q) in queues.iter_mut().enumerate() {
        while let Ok(n @ 1..) = net.nics[TARGETS].poll_cq(q.end.cq, &mut wcs) {
            for wc in &wcs[..n] {
                assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
                received(net, flows, q, i, wc);
            }
        }
    }
}

/// Runs a schedule; panics with the reason if it breaks a rule.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5e5e);
    let mut network = impairments(&mut rng);
    if network.contains("loss") && rng.random_bool(0.3) {
        network.push_str(" ecn");
    }
    let quantum = rng.random_range(1..=16);
    let mut net = Network::new(2, &network, seed, &NicConfig { quantum, ..NicConfig::default() });
    net.byte_time = rng.random_range(8..=800);
    net.batch = [1, 1, 4, 64][rng.random_range(0..4)];
    let domain = net.nics[TARGETS].alloc_xrcd().unwrap();
    let made = [0, 1].map(|_| {
        let nic = &mut net.nics[TARGETS];
        let (pd, cq) = (nic.alloc_pd().unwrap(), nic.create_cq(4096).unwrap());
        (End { nic: TARGETS, pd, cq, qpn: 0 }, nic.create_xrc_srq(pd, domain, cq, 256, 4).unwrap())
    });
    let ends = made.map(|(end, _)| end);
    let mut flows = Vec::new();
    for _ in 0..rng.random_range(1..=3) {
        let mut transport = transport(&mut rng);
        congestion(&mut rng, &mut transport);
        let c = Connection {
            mtu: Mtu::ALL[rng.random_range(0..5)],
            transport,
            psn: [Psn::new(0u32.wrapping_sub(rng.random_range(0..40))), Psn::new(rng.next_u32())],
            rd_atomic: rng.random_range(1..=9),
            depth: rng.random_range(1..=64),
            min_rnr_timer: rng.random_range(1..=6),
            ..Connection::default()
        };
        if verbose {
            println!("{c:?}\n  {}\n  {}\nnetwork: {network}", c.transport[0], c.transport[1]);
        }
        flows.push(flow(&mut rng, &mut net, &c, domain, &ends));
    }
    let mut queues = [0, 1].map(|i| queue(&mut rng, &mut net, &flows, ends[i], made[i].1, i));
    let total: usize = flows.iter().map(|f| f.plans.len()).sum();
    loop {
        let idle = net.silent() && net.next() == Time::NEVER;
        let mut news = false;
        for q in &mut queues {
            news |= receive(&mut rng, &mut net, q, idle);
        }
        for f in &mut flows {
            news |= send(&mut rng, &mut net, f, &queues, idle);
        }
        let more = net.step();
        poll(&mut net, &mut flows, &mut queues);
        let done: usize = flows.iter().map(|f| f.completed).sum();
        if !more && done == total {
            break;
        }
        assert!(more || news || !idle, "the network fell silent with {done} of {total} work requests done");
        assert!(net.steps < 500_000, "no end after {} steps, {done} of {total} work requests done", net.steps);
    }
    finish(&net, &flows, &queues);
    let bytes = flows.iter().flat_map(|f| &f.plans).map(|p| p.len as u64).sum();
    Outcome::of(&net, total as u64, bytes)
}

/// Checks the end: memory holds exactly the expected bytes, and nothing is left over.
fn finish(net: &Network, flows: &[Flow], queues: &[Queue; 2]) {
    for f in flows {
        assert!(f.messages.iter().all(VecDeque::is_empty), "messages are missing");
        let (a, b) = (&net.nics[f.from.nic], &net.nics[TARGETS]);
        assert!(a.bytes(&f.local) == Some(&f.expected_local[..]), "the requester's memory differs");
        for i in [0, 1] {
            assert!(b.bytes(&f.remote[i]) == Some(&f.expected_remote[i][..]), "memory of queue {i} differs");
        }
        assert_eq!(a.qp(f.from.qpn).unwrap().send_queue_len(), 0);
    }
    for q in queues {
        assert_eq!((q.posted, q.done), (q.total, q.total));
    }
    for nic in &net.nics {
        assert!(!nic.wants_tx(), "a NIC still has something to send");
        assert_eq!(nic.next_deadline(), Time::NEVER, "a timer still runs");
    }
}
