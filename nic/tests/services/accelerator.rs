//! Regions of an accelerator's memory: nothing but its driver touches it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use irnic_nic::{Accelerator, CopyError, Mr, MrChanges, MwKind, NicConfig, NicError, RegisterError};
use irnic_transports::TransportConfig;
use irnic_transports::qp::{
    Access, Address, MwBind, RecvWr, SendData, SendOp, SendWr, Service, Sge, Wc, WcOpcode, WcStatus,
};
use irnic_transports::wire::Mtu;

use crate::common::{ALL, Connection, End, Network, QKEY, connect, create, pair, path, region};

/// Bytes of a memory.
const SIZE: usize = 1 << 20;

/// Where memory of accelerators begins: no address that this process could access.
const BASE: u64 = 0x10_0000;

/// An accelerator.
#[derive(Debug)]
struct Gpu {
    memory: Mutex<Vec<u8>>,
    reads: AtomicU32,
    writes: AtomicU32,
    /// Numbers of the read and of the write from which on all fail.
    fails: [AtomicU32; 2],
}

impl Gpu {
    fn new(byte: impl Fn(usize) -> u8) -> Arc<Gpu> {
        let fails = [u32::MAX, u32::MAX].map(AtomicU32::new);
        let memory = Mutex::new((0..SIZE).map(byte).collect());
        Arc::new(Gpu { memory, reads: 0.into(), writes: 0.into(), fails })
    }

    fn range(addr: u64, len: usize) -> std::ops::Range<usize> {
        let at = addr.checked_sub(BASE).expect("an address of the accelerator") as usize;
        at..at + len
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.memory.lock().unwrap()[at..at + len].to_vec()
    }
}

impl Accelerator for Gpu {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), CopyError> {
        if self.reads.fetch_add(1, Relaxed) >= self.fails[0].load(Relaxed) {
            return Err(CopyError);
        }
        to.copy_from_slice(&self.memory.lock().unwrap()[Gpu::range(addr, to.len())]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), CopyError> {
        if self.writes.fetch_add(1, Relaxed) >= self.fails[1].load(Relaxed) {
            return Err(CopyError);
        }
        self.memory.lock().unwrap()[Gpu::range(addr, from.len())].copy_from_slice(from);
        Ok(())
    }
}

/// Registers all memory of an accelerator.
fn on(net: &mut Network, end: End, gpu: &Arc<Gpu>) -> Mr {
    net.nics[end.nic].reg_accelerator_mr(end.pd, (BASE, SIZE as u64), BASE, ALL, gpu.clone()).unwrap()
}

fn sge(mr: &Mr, at: usize, len: usize) -> Sge {
    Sge { addr: mr.addr + at as u64, len: len as u32, lkey: mr.lkey }
}

fn run(net: &mut Network) {
    for _ in 0..1_000_000 {
        if !net.step() {
            return;
        }
    }
    panic!("it does not end");
}

fn wcs(net: &mut Network, end: End) -> Vec<Wc> {
    let mut wcs = [Wc::EMPTY; 64];
    let n = net.nics[end.nic].poll_cq(end.cq, &mut wcs).unwrap();
    wcs[..n].to_vec()
}

fn statuses(net: &mut Network, end: End) -> Vec<WcStatus> {
    wcs(net, end).iter().map(|wc| wc.status).collect()
}

fn post(net: &mut Network, end: End, op: SendOp, sges: &[Sge], to: (u64, u32)) {
    let (remote_addr, rkey) = to;
    let wr = SendWr { remote_addr, rkey, ..SendWr::new(1, op, SendData::Sges(sges)) };
    net.nics[end.nic].post_send(end.qpn, &wr).unwrap();
}

fn recv(net: &mut Network, end: End, sges: &[Sge]) {
    net.nics[end.nic].post_recv(end.qpn, &RecvWr { wr_id: 2, sges }).unwrap();
}

/// Memory of one end: its accelerator's, and the host's.
struct Side {
    gpu: Arc<Gpu>,
    mrs: [Mr; 2],
}

impl Side {
    fn new(net: &mut Network, end: End, byte: fn(usize) -> u8) -> Side {
        let gpu = Gpu::new(byte);
        let mrs = [on(net, end, &gpu), region(net, end, SIZE, byte)];
        Side { gpu, mrs }
    }

    /// Returns a list of elements in both memories, which covers `len` bytes.
    fn list(&self, kinds: &[usize], len: usize) -> Vec<Sge> {
        let each = len / kinds.len();
        let part = |i: usize| if i + 1 == kinds.len() { len - i * each } else { each };
        kinds.iter().enumerate().map(|(i, &kind)| sge(&self.mrs[kind], i * (SIZE / 4) + 3, part(i))).collect()
    }

    fn bytes(&self, net: &Network, end: End, list: &[Sge]) -> Vec<u8> {
        let of = |sge: &Sge| {
            let mr = self.mrs.iter().find(|mr| mr.lkey == sge.lkey).unwrap();
            let (at, len) = ((sge.addr - mr.addr) as usize, sge.len as usize);
            match net.nics[end.nic].bytes(mr) {
                Some(bytes) => bytes[at..at + len].to_vec(),
                None => self.gpu.bytes(at, len),
            }
        };
        list.iter().flat_map(of).collect()
    }
}

/// Kinds of elements, 0 in the accelerator and 1 in the host.
const LISTS: [&[usize]; 5] = [&[0], &[1], &[0, 1], &[1, 0], &[0, 1, 0, 0]];

const TRANSPORTS: [&str; 3] = ["roce", "irn", "irn,placement=in-order"];

fn connected(transport: &str, impair: &str) -> (Network, [End; 2]) {
    let transport = [TransportConfig::parse(transport, true).unwrap(); 2];
    let c = Connection { transport, mtu: Mtu::B256, ..Connection::default() };
    let (mut net, ends) = pair(impair, 9, &c);
    net.batch = 64;
    (net, ends)
}

const CALM: &str = "delay 5us limit 10000";
const ROUGH: &str = "delay 5us 4us loss 3% duplicate 2% limit 10000";

#[test]
fn messages_move_between_memories_of_any_kind_whatever_is_lost() {
    for transport in TRANSPORTS {
        for impair in [CALM, ROUGH] {
            let (mut net, ends) = connected(transport, impair);
            let [a, b] = [
                Side::new(&mut net, ends[0], |i| ((i * 7) >> 3) as u8),
                Side::new(&mut net, ends[1], |i| ((i * 5) >> 2) as u8 ^ 9),
            ];
            for (n, from) in LISTS.into_iter().enumerate() {
                for (m, to) in LISTS.into_iter().enumerate() {
                    let what = format!("{transport} {impair}: {from:?} to {to:?}");
                    let len = [0, 1, 255, 256, 257, 1000, 5000, 20_000][(n + 3 * m) % 8];
                    let (source, sink) = (a.list(from, len), b.list(to, len));
                    let expected = a.bytes(&net, ends[0], &source);
                    recv(&mut net, ends[1], &sink);
                    post(&mut net, ends[0], SendOp::Send, &source, (0, 0));
                    run(&mut net);
                    assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success], "{what}");
                    assert_eq!(statuses(&mut net, ends[1]), [WcStatus::Success], "{what}");
                    assert!(b.bytes(&net, ends[1], &sink) == expected, "{what}: {len} bytes sent");
                    // The other end of these is one range.
                    let mr = b.mrs[m % 2];
                    let there = [sge(&mr, 1000 + n, len)];
                    for op in [SendOp::Write, SendOp::Read] {
                        let read = op == SendOp::Read;
                        let expected =
                            if read { b.bytes(&net, ends[1], &there) } else { a.bytes(&net, ends[0], &source) };
                        post(&mut net, ends[0], op, &source, (there[0].addr, mr.rkey));
                        run(&mut net);
                        assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success], "{what}");
                        let moved = if read { a.bytes(&net, ends[0], &source) } else { b.bytes(&net, ends[1], &there) };
                        assert!(moved == expected, "{what}: {op:?} of {len} bytes");
                        // So that the next one has something to do.
                        b.gpu.memory.lock().unwrap().rotate_left(1);
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_accelerator_writes_between_two_messages_is_sent() {
    let (mut net, ends) = connected("irn", CALM);
    let [a, b] = ends.map(|end| Side::new(&mut net, end, |i| i as u8));
    for round in 0..4u8 {
        a.gpu.memory.lock().unwrap().fill(round);
        for len in [100, 10_000] {
            post(&mut net, ends[0], SendOp::Write, &[sge(&a.mrs[0], 0, len)], (BASE, b.mrs[0].rkey));
            run(&mut net);
            assert_eq!(b.gpu.bytes(0, len), vec![round; len]);
            b.gpu.memory.lock().unwrap().fill(round ^ 0x80);
            post(&mut net, ends[0], SendOp::Read, &[sge(&a.mrs[1], 0, len)], (BASE, b.mrs[0].rkey));
            run(&mut net);
            assert_eq!(a.bytes(&net, ends[0], &[sge(&a.mrs[1], 0, len)]), vec![round ^ 0x80; len]);
        }
        assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success; 4]);
    }
}

#[test]
fn the_driver_copies_messages_not_packets() {
    for transport in TRANSPORTS {
        let (mut net, ends) = connected(transport, CALM);
        let [a, b] = ends.map(|end| Side::new(&mut net, end, |i| i as u8));
        for (op, from, to) in [(SendOp::Write, &a, &b), (SendOp::Read, &b, &a)] {
            let counts = || (from.gpu.reads.load(Relaxed), to.gpu.writes.load(Relaxed));
            let (reads, writes) = counts();
            post(&mut net, ends[0], op, &[sge(&a.mrs[0], 0, 256 << 10)], (BASE, b.mrs[0].rkey));
            run(&mut net);
            let now = counts();
            assert_eq!(now.0 - reads, 1, "{transport}: {op:?} of 1024 packets");
            // Packets that arrive together.
            assert!(now.1 - writes <= 100, "{transport}: {op:?}: {} writes", now.1 - writes);
        }
        assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success; 2]);
    }
}

#[test]
fn atomics_are_copies() {
    for transport in TRANSPORTS {
        let (mut net, ends) = connected(transport, ROUGH);
        let [a, b] = ends.map(|end| Side::new(&mut net, end, |_| 0));
        let result = [sge(&a.mrs[0], 64, 8)];
        let mut expected = 0u64;
        for n in 1..20 {
            let (op, after) = match n % 3 {
                0 => (SendOp::CompareSwap { compare: expected, swap: n }, n),
                1 => (SendOp::CompareSwap { compare: expected + 1, swap: n }, expected),
                _ => (SendOp::FetchAdd { add: n }, expected + n),
            };
            post(&mut net, ends[0], op, &result, (BASE + 16, b.mrs[0].rkey));
            run(&mut net);
            assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success]);
            assert_eq!(a.gpu.bytes(64, 8), expected.to_ne_bytes(), "what was there before {op:?}");
            expected = after;
            assert_eq!(b.gpu.bytes(16, 8), expected.to_ne_bytes());
        }
        post(&mut net, ends[0], SendOp::AtomicWrite([7; 8]), &[], (BASE + 16, b.mrs[0].rkey));
        run(&mut net);
        assert_eq!((statuses(&mut net, ends[0]), b.gpu.bytes(16, 8)), (vec![WcStatus::Success], vec![7; 8]));
    }
}

#[test]
fn unreliable_services_and_shared_receive_queues_move_it_too() {
    for service in [Service::Uc, Service::Ud] {
        let mut net = Network::new(2, CALM, 3, &NicConfig::default());
        let mut c = Connection { service, ..Connection::default() };
        let pds = [0, 1].map(|n| (net.nics[n].alloc_pd().unwrap(), net.nics[n].create_cq(64).unwrap()));
        let srq = (service == Service::Ud).then(|| net.nics[1].create_srq(pds[1].0, 16, 4).unwrap());
        c.srq = [None, srq];
        let ends = [0, 1].map(|n| create(&mut net, n, &c, n, Some(pds[n])));
        connect(&mut net, &c, ends);
        let [a, b] = ends.map(|end| Side::new(&mut net, end, |i| (i * 3) as u8));
        let (head, len) = if service == Service::Ud { (40, 1000) } else { (0, 5000) };
        let sink = [sge(&b.mrs[0], 5, head + len)];
        match srq {
            Some(srq) => net.nics[1].post_srq_recv(srq, &RecvWr { wr_id: 2, sges: &sink }).unwrap(),
            None => recv(&mut net, ends[1], &sink),
        }
        let source = a.list(&[0, 1, 0], len);
        let to = (service == Service::Ud).then(|| Address { path: path(0, 1), qpn: ends[1].qpn, qkey: QKEY });
        let wr = SendWr { to, ..SendWr::new(1, SendOp::Send, SendData::Sges(&source)) };
        net.nics[0].post_send(ends[0].qpn, &wr).unwrap();
        // Datagrams that wait are copied.
        net.nics[0].copy_waiting_sends(ends[0].qpn);
        run(&mut net);
        assert_eq!(statuses(&mut net, ends[0]), [WcStatus::Success]);
        let done = wcs(&mut net, ends[1]);
        assert_eq!((done.len(), done[0].status, done[0].opcode), (1, WcStatus::Success, WcOpcode::Recv));
        assert!(b.gpu.bytes(5 + head, len) == a.bytes(&net, ends[0], &source));
    }
}

#[test]
fn a_driver_that_fails_ends_the_work_request_with_its_end_at_fault() {
    use WcStatus::{LocProtErr, RemOpErr, Success, WrFlushErr};
    const READ: usize = 0;
    const WRITE: usize = 1;
    // 40 packets.
    const LEN: usize = 10_000;
    for transport in TRANSPORTS {
        for impair in [CALM, ROUGH] {
            for (op, side, what, status, receiver) in [
                (SendOp::Send, 0, READ, LocProtErr, None),
                (SendOp::Send, 1, WRITE, RemOpErr, Some(LocProtErr)),
                (SendOp::Write, 0, READ, LocProtErr, None),
                (SendOp::Write, 1, WRITE, RemOpErr, Some(WrFlushErr)),
                (SendOp::Read, 1, READ, RemOpErr, Some(WrFlushErr)),
                (SendOp::Read, 0, WRITE, LocProtErr, None),
                (SendOp::FetchAdd { add: 1 }, 1, READ, RemOpErr, Some(WrFlushErr)),
                (SendOp::FetchAdd { add: 1 }, 1, WRITE, RemOpErr, Some(WrFlushErr)),
                (SendOp::FetchAdd { add: 1 }, 0, WRITE, LocProtErr, None),
            ] {
                for after in 0..3 {
                    let (mut net, ends) = connected(transport, impair);
                    let sides = ends.map(|end| Side::new(&mut net, end, |i| i as u8));
                    let gpu = &sides[side].gpu;
                    gpu.fails[what].store(after, Relaxed);
                    let len = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { LEN };
                    recv(&mut net, ends[1], &[sge(&sides[1].mrs[0], 0, LEN)]);
                    post(&mut net, ends[0], op, &[sge(&sides[0].mrs[0], 0, len)], (BASE, sides[1].mrs[0].rkey));
                    run(&mut net);
                    let said = format!("{transport} {impair}: {op:?}, failure {what} {after} of end {side}");
                    let sent = statuses(&mut net, ends[0]);
                    let failed = [&gpu.reads, &gpu.writes][what].load(Relaxed) > after;
                    assert_eq!(sent, [if failed { status } else { Success }], "{said}");
                    assert!(failed || after > 0, "{said}");
                    let received = statuses(&mut net, ends[1]);
                    match receiver.filter(|_| failed) {
                        // A response that is repeated does not end the responder.
                        Some(_) if op == SendOp::Read && after > 0 && received.is_empty() => {}
                        Some(status) => assert_eq!(received, [status], "{said}"),
                        None => assert!(!failed || received.is_empty(), "{said}: {received:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_region_changes_its_rights_but_not_its_range_and_has_no_windows() {
    let (mut net, ends) = connected("irn", CALM);
    let [a, b] = ends.map(|end| Side::new(&mut net, end, |i| i as u8));
    let (nic, mr) = (&mut net.nics[1], b.mrs[0]);
    let changes = MrChanges { translation: Some((std::ptr::null_mut(), 8, 0)), ..MrChanges::default() };
    // SAFETY: refused.
    let changed = unsafe { nic.rereg_mr(&mr, changes) };
    assert_eq!(changed, Err(NicError::Register(RegisterError::Kind)));
    let rights = MrChanges { access: Some(Access::REMOTE_READ), ..MrChanges::default() };
    // SAFETY: the range stays.
    assert_eq!(unsafe { nic.rereg_mr(&mr, rights) }, Ok(mr));
    assert!(nic.dealloc_pd(ends[1].pd).is_err(), "it is in use");
    let near = [sge(&a.mrs[0], 0, 2000)];
    for (op, status) in [(SendOp::Read, WcStatus::Success), (SendOp::Write, WcStatus::RemAccessErr)] {
        post(&mut net, ends[0], op, &near, (BASE, mr.rkey));
        run(&mut net);
        assert_eq!(statuses(&mut net, ends[0]), [status]);
    }

    let (mut net, ends) = connected("irn", CALM);
    let mr = on(&mut net, ends[0], &Gpu::new(|_| 0));
    let nic = &mut net.nics[0];
    let mw = nic.alloc_mw(ends[0].pd, MwKind::Type2).unwrap().handle;
    let rkey = nic.next_mw_rkey(mw).unwrap();
    let bind = MwBind { mw, rkey, lkey: mr.lkey, addr: BASE, len: 8, access: Access::REMOTE_READ };
    let (op, remote_addr, rkey) = bind.work_request();
    post(&mut net, ends[0], op, &[], (remote_addr, rkey));
    run(&mut net);
    assert_eq!(statuses(&mut net, ends[0]), [WcStatus::MwBindErr]);
}

#[test]
fn a_region_that_is_deregistered_is_touched_no_more() {
    let (mut net, ends) = connected("irn", CALM);
    let [a, b] = ends.map(|end| Side::new(&mut net, end, |i| i as u8));
    let source = sge(&a.mrs[0], 0, 100_000);
    post(&mut net, ends[0], SendOp::Write, &[source], (BASE, b.mrs[0].rkey));
    while b.gpu.writes.load(Relaxed) == 0 {
        assert!(net.step());
    }
    net.nics[1].dereg_mr(&b.mrs[0]).unwrap();
    assert!(net.nics[1].dereg_mr(&b.mrs[0]).is_err());
    let writes = b.gpu.writes.load(Relaxed);
    run(&mut net);
    assert_eq!(statuses(&mut net, ends[0]), [WcStatus::RemAccessErr]);
    assert_eq!(b.gpu.writes.load(Relaxed), writes);
}
