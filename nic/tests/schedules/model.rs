//! One schedule: the operations requested of the NICs, and the expected results.

use std::collections::VecDeque;

use irnic_nic::{Mr, NicConfig};
use irnic_transports::qp::{Counters, RecvWr, SendData, SendOp, SendWr, Sge, SrqId, Wc, WcOpcode, WcStatus};
use irnic_transports::wire::Mtu;
use irnic_transports::{Psn, Time};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::choices::{congestion, impairments, low, marked, pulled, transport};
use crate::common::{Connection, End, Network, connect, create, region, window};

/// Sums over schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub steps: u64,
    pub virtual_ns: u64,
    /// CRC-32 of all frames, with their senders and times.
    pub crc: u64,
    pub work_requests: u64,
    pub bytes: u64,
    pub retransmitted: u64,
    pub placed_ooo: u64,
    pub rnr: u64,
    pub upgrades: u64,
    pub bad_icrc: u64,
    pub duplicates: u64,
    pub implied: u64,
    pub timeouts: u64,
    pub nacks: u64,
    pub marks: u64,
    pub cnps: u64,
    pub probes: u64,
    pub low: u64,
    /// Number of frames sent by the fast path.
    pub fast: u64,
    /// Number of acknowledgements that requests carried.
    pub carried: u64,
    /// CRC-32 of all counters of each NIC.
    pub counters: u64,
}

impl Outcome {
    /// Returns the counters of the NICs, and the work requested of them.
    pub fn of(net: &Network, work_requests: u64, bytes: u64) -> Outcome {
        let mut o = Outcome {
            steps: net.steps,
            virtual_ns: net.now.0,
            crc: u64::from(net.crc()),
            work_requests,
            bytes,
            fast: net.fast,
            carried: net.carried,
            ..Outcome::default()
        };
        for nic in &net.nics {
            let c: &Counters = nic.counters();
            o.counters += u64::from(crc32fast::hash(format!("{c:?}").as_bytes()));
            o.retransmitted += c.retransmitted_pkts;
            o.placed_ooo += c.irn_ooo_placed;
            o.rnr += c.rnr_nak_retry_err;
            o.upgrades += c.irn_upgrades;
            o.bad_icrc += c.rx_icrc_encapsulated;
            o.duplicates += c.duplicate_request;
            o.implied += c.implied_nak_seq_err;
            o.nacks += c.irn_nacks_rcvd;
            o.low += c.rc3_low_acked;
            o.marks += c.np_ecn_marked_roce_packets;
            o.cnps += c.rp_cnp_handled;
            o.probes += c.tlp_probes;
            o.timeouts += c.local_ack_timeout_err + c.irn_read_timeouts;
        }
        o
    }

    pub fn add(&mut self, o: &Outcome) {
        self.steps += o.steps;
        self.virtual_ns += o.virtual_ns;
        self.crc += o.crc;
        self.work_requests += o.work_requests;
        self.bytes += o.bytes;
        self.retransmitted += o.retransmitted;
        self.placed_ooo += o.placed_ooo;
        self.rnr += o.rnr;
        self.upgrades += o.upgrades;
        self.bad_icrc += o.bad_icrc;
        self.duplicates += o.duplicates;
        self.implied += o.implied;
        self.timeouts += o.timeouts;
        self.nacks += o.nacks;
        self.marks += o.marks;
        self.cnps += o.cnps;
        self.probes += o.probes;
        self.low += o.low;
        self.fast += o.fast;
        self.carried += o.carried;
        self.counters += o.counters;
    }
}

/// A work request to be posted, and its expected result.
#[derive(Clone, Debug)]
struct Plan {
    op: SendOp,
    len: u32,
    /// Offset of its bytes in the local region.
    local: usize,
    /// Offset in the peer's region.
    remote: usize,
    signaled: bool,
    solicited: bool,
    fence: bool,
    inline: bool,
    /// Scatter/gather elements.
    sges: usize,
    /// Atomics: the value that must be returned.
    before: u64,
}

/// One direction of a connection: a requester with its plans, and the responder's receive queue.
struct Flow {
    from: End,
    to: End,
    local: Mr,
    remote: Mr,
    /// Expected final contents of `remote`.
    expected_remote: Vec<u8>,
    expected_local: Vec<u8>,
    plans: Vec<Plan>,
    posted: usize,
    completed: usize,
    /// Messages for the responder's receive queue in order: (plan, offset of the buffer it lands in).
    receives: VecDeque<(usize, usize)>,
    recv_posted: usize,
    recv_total: usize,
    recv_buffers: Mr,
    expected_buffers: Vec<u8>,
    slot: usize,
    /// Buffer of each receive WQE in the order of posting.
    srq: Option<SrqId>,
    received: usize,
}

pub fn pattern(seed: u64, i: usize) -> u8 {
    let x = (i as u64 / 8).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 29).to_le_bytes()[i % 8] ^ i as u8
}

/// Runs a schedule; panics with the reason if it breaks a rule.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    run_with(StdRng::seed_from_u64(seed), seed, verbose, Kind::Usual)
}

/// Special features of a schedule.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Usual,
    /// ATOMIC WRITE and FLUSH are among the operations.
    Newer,
    /// Streams are pulled (NDP), and switches trim their packets and return some.
    Pulled,
    /// Packets are marked (TLT), and switches drop red ones.
    Marked,
    /// The end of posted work goes first, at low priority (RC3).
    Low,
}

/// Runs a schedule with low priorities.
pub fn run_low(seed: u64, verbose: bool) -> Outcome {
    run_with(StdRng::seed_from_u64(seed ^ 0x3c3), seed, verbose, Kind::Low)
}

/// Runs a schedule of pulled streams.
pub fn run_pulled(seed: u64, verbose: bool) -> Outcome {
    run_with(StdRng::seed_from_u64(seed ^ 0x4d9), seed, verbose, Kind::Pulled)
}

/// Runs a schedule of marked packets.
pub fn run_marked(seed: u64, verbose: bool) -> Outcome {
    run_with(StdRng::seed_from_u64(seed ^ 0x717), seed, verbose, Kind::Marked)
}

/// Runs a schedule with ATOMIC WRITE and FLUSH among the operations.
pub fn run_newer(seed: u64, verbose: bool) -> Outcome {
    run_with(StdRng::seed_from_u64(seed ^ 0xa19), seed, verbose, Kind::Newer)
}

fn run_with(mut rng: StdRng, seed: u64, verbose: bool, kind: Kind) -> Outcome {
    let mut impairments = impairments(&mut rng);
    if impairments.contains("loss") && rng.random_bool(0.3) {
        // Marks ECN-capable packets, and drops the rest.
        impairments.push_str(" ecn");
    }
    let quantum = rng.random_range(1..=16);
    let mut net = Network::new(2, &impairments, seed, &NicConfig { quantum, ..NicConfig::default() });
    net.byte_time = rng.random_range(8..=800);
    net.batch = [1, 1, 4, 64][rng.random_range(0..4)];
    if kind == Kind::Pulled {
        net.trims = [0, 5, 30, 70][rng.random_range(0..4)];
    }
    if kind == Kind::Marked {
        net.red_loss = [0, 10, 50, 100][rng.random_range(0..4)];
    }
    let mut flows = Vec::new();
    for _ in 0..rng.random_range(1..=3) {
        connection(&mut rng, &mut net, &mut flows, verbose, kind);
    }
    if verbose {
        println!("network: {impairments}");
    }
    let total: usize = flows.iter().map(|f| f.plans.len()).sum();
    loop {
        for flow in &mut flows {
            post(&mut rng, &mut net, flow);
        }
        let more = net.step();
        for end in ends(&flows) {
            poll(&mut net, &mut flows, end);
        }
        let done: usize = flows.iter().map(|f| f.completed).sum();
        if !more && done == total {
            break;
        }
        if !more {
            // Nothing moves any more: only an application that still has something to post can change that.
            let before: usize = flows.iter().map(|f| f.posted + f.recv_posted).sum();
            for flow in &mut flows {
                post(&mut rng, &mut net, flow);
            }
            let after: usize = flows.iter().map(|f| f.posted + f.recv_posted).sum();
            assert!(after > before, "the network fell silent with {done} of {total} work requests done");
        }
        assert!(net.steps < 5_000_000, "no end after {} steps, {done} of {total} work requests done", net.steps);
    }
    finish(&net, &flows);
    let bytes = flows.iter().flat_map(|f| &f.plans).map(|p| u64::from(p.len)).sum();
    Outcome::of(&net, total as u64, bytes)
}

fn connection(rng: &mut StdRng, net: &mut Network, flows: &mut Vec<Flow>, verbose: bool, kind: Kind) {
    let mtu = Mtu::ALL[rng.random_range(0..5)];
    let near_wrap = |rng: &mut StdRng| Psn::new(0u32.wrapping_sub(rng.random_range(0..40)));
    let mut psn = || if rng.random_bool(0.7) { near_wrap(rng) } else { Psn::new(rng.next_u32()) };
    let psn = [psn(), psn()];
    let mut transport = transport(rng);
    congestion(rng, &mut transport);
    if kind == Kind::Pulled {
        transport = pulled(rng);
    }
    if kind == Kind::Marked {
        transport = marked(rng);
    }
    if kind == Kind::Low {
        transport = low(rng);
    }
    let mut c = Connection {
        mtu,
        transport,
        psn,
        rd_atomic: rng.random_range(1..=9),
        depth: rng.random_range(1..=64),
        min_rnr_timer: rng.random_range(1..=6),
        ..Connection::default()
    };
    // A queue pair may be connected to one on its own NIC.
    let nics = if rng.random_bool(0.1) { [0, 0] } else { [0, 1] };
    let use_srq = [rng.random_bool(0.25), rng.random_bool(0.25)];
    let mut given = [None, None];
    for i in [0, 1] {
        let nic = &mut net.nics[nics[i]];
        let pd = nic.alloc_pd().unwrap();
        given[i] = Some((pd, nic.create_cq(4096).unwrap()));
        c.srq[i] = use_srq[i].then(|| nic.create_srq(pd, 256, 4).unwrap());
    }
    let ends = [create(net, nics[0], &c, 0, given[0]), create(net, nics[1], &c, 1, given[1])];
    connect(net, &c, ends);
    if verbose {
        println!("{c:?} NICs {nics:?}");
        println!("  {}\n  {}", c.transport[0], c.transport[1]);
    }
    for i in [0, 1] {
        if i == 0 || rng.random_bool(0.6) {
            flows.push(flow(rng, net, &c, ends, i, kind));
        }
    }
}

fn flow(rng: &mut StdRng, net: &mut Network, c: &Connection, ends: [End; 2], i: usize, kind: Kind) -> Flow {
    let (from, to) = (ends[i], ends[1 - i]);
    let mtu = c.mtu.bytes();
    let count = rng.random_range(1..=40);
    let mut plans = Vec::new();
    let (mut local_len, mut remote_len): (usize, usize) = (8, 8);
    let mut cell = 0u64;
    let mut slot = 1;
    let mut receives = Vec::new();
    let mix: Vec<u8> =
        (0..rng.random_range(1..=4)).map(|_| rng.random_range(0..if kind == Kind::Newer { 14 } else { 10 })).collect();
    for n in 0..count {
        let mut len = match rng.random_range(0..6) {
            0 => 0,
            1 => rng.random_range(1..=8),
            2 => mtu * rng.random_range(1..=3),
            3 => rng.random_range(0..=mtu * 2),
            4 => rng.random_range(0..=300),
            _ => rng.random_range(0..=mtu * 20),
        };
        let op = match mix[rng.random_range(0..mix.len())] {
            0 => SendOp::Send,
            1 => SendOp::SendImm(rng.next_u32()),
            2 => SendOp::Write,
            3 => SendOp::WriteImm(rng.next_u32()),
            4 | 5 => SendOp::Read,
            8 => SendOp::SendInvalidate(bound(net, to)),
            9 => SendOp::LocalInvalidate(bound(net, from)),
            6 => SendOp::FetchAdd { add: rng.next_u64() },
            10 | 11 => SendOp::AtomicWrite(rng.next_u64().to_le_bytes()),
            12 | 13 => {
                SendOp::Flush { len: rng.random_range(0..=8), placement: 1, selectivity: rng.random_range(0..2) }
            }
            _ => SendOp::CompareSwap { compare: if rng.random_bool(0.7) { cell } else { 1 }, swap: rng.next_u64() },
        };
        match op {
            SendOp::LocalInvalidate(_) | SendOp::Flush { .. } => len = 0,
            SendOp::AtomicWrite(_) => {
                len = 8;
                remote_len = remote_len.next_multiple_of(8);
            }
            _ => {}
        }
        let mut plan = Plan {
            op,
            len: len as u32,
            local: local_len,
            remote: remote_len,
            signaled: rng.random_bool(0.5) || n + 1 == count,
            solicited: rng.random_bool(0.3),
            fence: rng.random_bool(0.1),
            inline: len <= 256 && rng.random_bool(0.3) && !op.is_read_or_atomic(),
            sges: if rng.random_bool(0.3) { rng.random_range(2..=4) } else { 1 },
            before: 0,
        };
        match op {
            SendOp::FetchAdd { add } => {
                (plan.len, plan.remote, plan.before) = (8, 0, cell);
                cell = cell.wrapping_add(add);
            }
            SendOp::CompareSwap { compare, swap } => {
                (plan.len, plan.remote, plan.before) = (8, 0, cell);
                if compare == cell {
                    cell = swap;
                }
            }
            SendOp::Flush { .. } => plan.remote = 0,
            _ => {}
        }
        // Guard bytes between all areas detect stray writes.
        local_len += plan.len as usize + 16;
        if matches!(op, SendOp::Write | SendOp::WriteImm(_) | SendOp::Read | SendOp::AtomicWrite(_)) {
            remote_len += plan.len as usize + 16;
        }
        if op.takes_recv_wqe() {
            receives.push(n);
            if !matches!(op, SendOp::WriteImm(_)) {
                slot = slot.max(plan.len as usize);
            }
        }
        plans.push(plan);
    }
    signal_often(c.depth, plans.iter_mut().map(|p| &mut p.signaled));
    let slot = slot + 16;
    let salt = rng.next_u64();
    let local = region(net, from, local_len, |k| pattern(salt, k));
    let remote = region(net, to, remote_len, |k| if k < 8 { 0 } else { pattern(salt ^ 1, k) });
    let recv_buffers = region(net, to, slot * receives.len().max(1), |_| 0xee);
    let bytes = |mr: &Mr, end: End| net.nics[end.nic].bytes(mr).unwrap().to_vec();
    let mut expected_local = bytes(&local, from);
    let mut expected_remote = bytes(&remote, to);
    let mut expected_buffers = bytes(&recv_buffers, to);
    let source = expected_local.clone();
    let remote_source = expected_remote.clone();
    expected_remote[..8].copy_from_slice(&cell.to_ne_bytes());
    let mut queue = VecDeque::new();
    for (n, p) in plans.iter().enumerate() {
        let len = p.len as usize;
        let data = &source[p.local..p.local + len];
        match p.op {
            SendOp::Write | SendOp::WriteImm(_) => expected_remote[p.remote..p.remote + len].copy_from_slice(data),
            SendOp::AtomicWrite(value) => expected_remote[p.remote..p.remote + 8].copy_from_slice(&value),
            SendOp::Read => {
                expected_local[p.local..p.local + len].copy_from_slice(&remote_source[p.remote..p.remote + len])
            }
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => {
                expected_local[p.local..p.local + 8].copy_from_slice(&p.before.to_ne_bytes())
            }
            _ => {}
        }
        if p.op.takes_recv_wqe() {
            let at = queue.len() * slot;
            if !matches!(p.op, SendOp::WriteImm(_)) {
                expected_buffers[at..at + len].copy_from_slice(data);
            }
            queue.push_back((n, at));
        }
    }
    Flow {
        from,
        to,
        local,
        remote,
        expected_remote,
        expected_local,
        plans,
        posted: 0,
        completed: 0,
        recv_total: queue.len(),
        receives: queue,
        recv_posted: 0,
        recv_buffers,
        expected_buffers,
        slot,
        srq: c.srq[1 - i],
        received: 0,
    }
}

/// Makes at least one work request in `depth` signaled: slots are freed by a completion at or after them.
pub fn signal_often<'a>(depth: u32, signaled: impl Iterator<Item = &'a mut bool>) {
    let mut since = 0;
    for signaled in signaled {
        since += 1;
        *signaled |= since == depth;
        if *signaled {
            since = 0;
        }
    }
}

/// Returns the key of a window on a region of its own.
pub fn bound(net: &mut Network, end: End) -> u32 {
    let mr = region(net, end, 8, |_| 0);
    window(net, end, &mr)
}

/// Splits `len` bytes at `addr` into elements, the last of which takes the rest.
pub fn elements(addr: u64, len: u32, lkey: u32, n: usize, out: &mut Vec<Sge>) {
    out.clear();
    let part = len / n as u32;
    let mut at = 0;
    for i in 0..n {
        let take = if i + 1 == n { len - at } else { part };
        out.push(Sge { addr: addr + u64::from(at), len: take, lkey });
        at += take;
    }
}

/// Posts some of the rest erratically, sends and receives.
fn post(rng: &mut StdRng, net: &mut Network, f: &mut Flow) {
    let mut sges = Vec::new();
    let idle = net.silent() && net.next() == Time::NEVER;
    while f.recv_posted < f.recv_total && (idle || rng.random_bool(0.3)) {
        let at = f.recv_posted * f.slot;
        elements(f.recv_buffers.addr + at as u64, f.slot as u32, f.recv_buffers.lkey, 1 + at % 3, &mut sges);
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
    while f.posted < f.plans.len() && (idle || rng.random_bool(0.5)) {
        let p = &f.plans[f.posted];
        let source = net.nics[f.from.nic].bytes(&f.local).unwrap();
        let inline;
        elements(f.local.addr + p.local as u64, p.len, f.local.lkey, p.sges, &mut sges);
        let data = if p.op.is_newer() {
            SendData::Sges(&[])
        } else if p.inline {
            inline = source[p.local..p.local + p.len as usize].to_vec();
            SendData::Inline(&inline)
        } else {
            SendData::Sges(&sges)
        };
        let wr = SendWr {
            wr_id: f.posted as u64,
            op: p.op,
            data,
            remote_addr: f.remote.addr + p.remote as u64,
            rkey: f.remote.rkey,
            signaled: p.signaled,
            solicited: p.solicited,
            fence: p.fence,
            to: None,
            remote_srqn: 0,
        };
        if net.nics[f.from.nic].post_send(f.from.qpn, &wr).is_err() {
            break;
        }
        f.posted += 1;
    }
}

fn ends(flows: &[Flow]) -> Vec<End> {
    let mut ends: Vec<End> = flows.iter().flat_map(|f| [f.from, f.to]).collect();
    ends.sort_by_key(|e| (e.nic, e.qpn));
    ends.dedup_by_key(|e| (e.nic, e.qpn));
    ends
}

fn poll(net: &mut Network, flows: &mut [Flow], end: End) {
    let mut wcs = [Wc::EMPTY; 16];
    loop {
        let n = net.nics[end.nic].poll_cq(end.cq, &mut wcs).unwrap();
        for wc in &wcs[..n] {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            assert_eq!(wc.qp_num, end.qpn);
            let receive = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            let owner = flows
                .iter_mut()
                .find(|f| {
                    let e = if receive { f.to } else { f.from };
                    (e.nic, e.qpn) == (end.nic, end.qpn)
                })
                .expect("a completion of a flow");
            if receive { received(net, owner, wc) } else { sent(net, owner, wc) }
        }
        if n < wcs.len() {
            return;
        }
    }
}

/// Handles a send completion: the next signaled one, whose effect must be visible.
fn sent(net: &Network, f: &mut Flow, wc: &Wc) {
    let n = wc.wr_id as usize;
    assert!(n < f.posted, "completion of a work request never posted");
    while f.completed < n {
        assert!(!f.plans[f.completed].signaled, "work request {} completed out of order or never", f.completed);
        f.completed += 1;
    }
    assert_eq!(f.completed, n, "work request {n} completed twice");
    f.completed += 1;
    let p = &f.plans[n];
    assert!(p.signaled);
    assert_eq!((wc.opcode, wc.byte_len), (p.op.wc_opcode(), p.len));
    let len = p.len as usize;
    let (local, remote) = (net.nics[f.from.nic].bytes(&f.local).unwrap(), net.nics[f.to.nic].bytes(&f.remote).unwrap());
    match p.op {
        SendOp::Write | SendOp::WriteImm(_) | SendOp::AtomicWrite(_) => {
            assert_eq!(remote[p.remote..p.remote + len], f.expected_remote[p.remote..p.remote + len], "WRITE {n}")
        }
        SendOp::Flush { .. } => {
            // Everything written before is in place.
            for p in f.plans[..n].iter().filter(|p| matches!(p.op, SendOp::Write | SendOp::AtomicWrite(_))) {
                let range = p.remote..p.remote + p.len as usize;
                assert_eq!(remote[range.clone()], f.expected_remote[range], "FLUSH {n}");
            }
        }
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::LocalInvalidate(_)
        | SendOp::BindMw { .. } => {}
        SendOp::Read | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => {
            assert_eq!(local[p.local..p.local + len], f.expected_local[p.local..p.local + len], "{:?} {n}", p.op)
        }
    }
}

/// Handles a receive completion: of the next message, in the next buffer.
fn received(net: &Network, f: &mut Flow, wc: &Wc) {
    assert_eq!(wc.wr_id, f.received as u64, "receive WQE consumed twice or out of order");
    f.received += 1;
    let (n, at) = f.receives.pop_front().expect("a message that was never sent");
    let p = &f.plans[n];
    assert!(n < f.posted, "message {n} arrived before it was sent");
    let write = matches!(p.op, SendOp::WriteImm(_));
    assert_eq!(wc.opcode, if write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv });
    assert_eq!(wc.byte_len, p.len, "{:?}", p.op);
    let imm = match p.op {
        SendOp::SendImm(i) | SendOp::WriteImm(i) => Some(i),
        _ => None,
    };
    let invalidated = match p.op {
        SendOp::SendInvalidate(rkey) => Some(rkey),
        _ => None,
    };
    assert_eq!((wc.imm, wc.invalidated, wc.solicited), (imm, invalidated, p.solicited));
    let len = p.len as usize;
    let nic = &net.nics[f.to.nic];
    if write {
        let remote = nic.bytes(&f.remote).unwrap();
        assert_eq!(remote[p.remote..p.remote + len], f.expected_remote[p.remote..p.remote + len], "WRITE {n}");
    } else {
        let buffers = nic.bytes(&f.recv_buffers).unwrap();
        assert_eq!(buffers[at..at + len], f.expected_buffers[at..at + len], "SEND {n}");
    }
}

/// Checks the end: memory holds exactly the expected bytes, and nothing is left over.
fn finish(net: &Network, flows: &[Flow]) {
    for f in flows {
        assert_eq!(f.received, f.recv_total, "messages received");
        let (a, b) = (&net.nics[f.from.nic], &net.nics[f.to.nic]);
        assert!(a.bytes(&f.local) == Some(&f.expected_local[..]), "the requester's memory differs");
        assert!(b.bytes(&f.remote) == Some(&f.expected_remote[..]), "the responder's memory differs");
        assert!(b.bytes(&f.recv_buffers) == Some(&f.expected_buffers[..]), "the receive buffers differ");
        assert_eq!(a.qp(f.from.qpn).unwrap().send_queue_len(), 0);
    }
    for nic in &net.nics {
        assert!(!nic.wants_tx(), "a NIC still has something to send");
        assert_eq!(nic.next_deadline().0, u64::MAX, "a timer still runs");
    }
}
