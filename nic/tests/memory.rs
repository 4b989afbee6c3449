//! Heap memory of an idle queue pair, and the handling of packets when memory is exhausted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;

use irnic_nic::{Mr, Nic, NicConfig, QpConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{
    Access, Address, ConnectParams, CqId, SendData, SendOp, SendWr, Service, Sge, Wc, WcStatus,
};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Payload, RxPacket, Time, TxPacket};

/// The system's allocator; counts the bytes allocated by each thread, and can refuse further ones.
struct Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the size of an allocation in glibc's malloc: with a header of eight bytes, and at least 16 or 32.
fn chunk(size: usize) -> i64 {
    ((size + 8).next_multiple_of(16)).max(32) as i64
}

// SAFETY: all work is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if EXHAUSTED.get() {
            return null_mut();
        }
        BYTES.set(BYTES.get() + chunk(layout.size()));
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - chunk(layout.size()));
        // SAFETY: forwarded.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if EXHAUSTED.get() {
            return null_mut();
        }
        BYTES.set(BYTES.get() + chunk(new_size) - chunk(layout.size()));
        // SAFETY: forwarded.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Queue pairs among which the tables of a NIC are divided.
const QPS: u32 = 1000;

fn path(from: u8, to: u8) -> Path {
    let address = |i| IpAddr::V4(Ipv4Addr::new(10, 0, 0, i));
    Path { src: address(from), dst: address(to), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

/// Returns the bytes of the heap for each queue pair with 16 + 16 work requests: created, and connected. Tables of the
/// NIC that grow with queue pairs are included.
fn bytes(service: Service, transport: &str, rd_atomic: u8, shared: bool) -> [i64; 2] {
    let transport = TransportConfig::parse(transport, true).expect("a transport");
    let mut nic = Nic::new(NicConfig::default());
    let pd = nic.alloc_pd().expect("a protection domain");
    let cq = nic.create_cq(16).expect("a completion queue");
    let srq = shared.then(|| nic.create_srq(pd, 16, 1).expect("a shared receive queue"));
    let config = QpConfig { service, srq, ..QpConfig::new(pd, cq, transport) };
    let mut qpns = Vec::with_capacity(QPS as usize);
    let before = BYTES.get();
    qpns.extend((0..QPS).map(|_| nic.create_qp(&config).expect("a queue pair")));
    let created = BYTES.get() - before;
    for &qpn in &qpns {
        let mut params = match service {
            Service::Ud => ConnectParams::datagram(1),
            Service::Uc => ConnectParams::unreliable(path(1, 2), Mtu::B4096, qpn),
            _ => ConnectParams::reliable(path(1, 2), Mtu::B4096, qpn),
        };
        (params.access, params.rd_atomic) = (Access::ALL, rd_atomic);
        nic.connect(qpn, &params).expect("connected");
    }
    let connected = BYTES.get() - before;
    [created, connected].map(|total| total / i64::from(QPS))
}

#[test]
fn an_idle_connected_queue_pair_takes_4_kib_at_most() {
    for (service, transport, rd_atomic, shared) in [
        (Service::Rc, "irn", 1, false),
        (Service::Rc, "irn", 16, false),
        (Service::Rc, "irn", 16, true),
        (Service::Rc, "roce", 1, false),
        (Service::Rc, "roce", 16, false),
        (Service::Rc, "roce", 16, true),
        (Service::Rc, "auto", 16, false),
        (Service::Uc, "roce", 0, false),
    ] {
        let [created, connected] = bytes(service, transport, rd_atomic, shared);
        let queue = if shared { "shared" } else { "own" };
        let what = format!("{service:?}, {transport}, {rd_atomic} READs, {queue} receive queue");
        println!("{what}: {created} bytes created, {connected} connected");
        assert!(connected <= 4096, "{what}: {connected} bytes");
    }
    // Addresses of datagrams are 48 bytes for each send work request.
    let [_, ready] = bytes(Service::Ud, "roce", 0, false);
    println!("Ud: {ready} bytes");
    assert!(ready <= 4096 + 16 * 48, "{ready} bytes");
}

/// Two NICs with two queue pairs each.
struct Pair {
    nics: [Nic; 2],
    now: Time,
    cq: CqId,
    qpns: [u32; 2],
    mrs: [Mr; 2],
}

impl Pair {
    const LEN: u64 = 64 << 10;

    fn new(transport: &str) -> Pair {
        let transport = TransportConfig::parse(transport, true).expect("a transport");
        let [(a, cq, qpns, ma), (b, _, _, mb)] = [(1, 2), (2, 1)].map(|(from, to)| {
            let mut nic = Nic::new(NicConfig::default());
            let pd = nic.alloc_pd().expect("a protection domain");
            let cq = nic.create_cq(16).expect("a completion queue");
            let mr = nic.alloc_mr(pd, Self::LEN, Access::ALL).expect("a region");
            let qpns = [(); 2].map(|()| {
                let qpn = nic.create_qp(&QpConfig::new(pd, cq, transport)).expect("a queue pair");
                let mut params = ConnectParams::reliable(path(from, to), Mtu::B4096, qpn);
                (params.access, params.rd_atomic) = (Access::ALL, 4);
                nic.connect(qpn, &params).expect("connected");
                qpn
            });
            (nic, cq, qpns, mr)
        });
        Pair { nics: [a, b], now: Time(1_000_000), cq, qpns, mrs: [ma, mb] }
    }

    fn post(&mut self, qp: usize, op: SendOp, offset: u64, len: u32) {
        let [own, peer] = &self.mrs;
        let sge = [Sge { addr: own.addr + offset, len, lkey: own.lkey }];
        let to = peer.addr + offset;
        let wr = SendWr { op, ..SendWr::write(offset, SendData::Sges(&sge), to, peer.rkey) };
        self.nics[0].post_send(self.qpns[qp], &wr).expect("posted");
    }

    /// Carries packets and runs timers, for `turns` turns or until `wanted` work requests are complete; a turn without
    /// a packet advances time to the next event. Of the requester's first packets, those with a bit in `lost` are lost.
    /// If the heap is `exhausted`, packets and timers find no memory. Returns the completions.
    fn run(&mut self, exhausted: bool, lost: u32, turns: u32, wanted: usize) -> Vec<Wc> {
        let (mut wcs, mut one, mut sent) = (Vec::with_capacity(16), [Wc::EMPTY], 0);
        for _ in 0..turns {
            let now = self.now;
            let mut carried = 0;
            for from in [0, 1] {
                let (left, right) = self.nics.split_at_mut(1);
                let (sender, receiver) =
                    if from == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
                carried += sender.poll_transmit(now, 64, |packet| {
                    let TxPacket { headers, path, payload, sideband, .. } = *packet;
                    if from == 0 {
                        sent += 1;
                        if sent <= 32 && lost >> (sent - 1) & 1 == 1 {
                            return true;
                        }
                    }
                    EXHAUSTED.set(exhausted);
                    receiver.receive(now, &RxPacket { headers, path, payload, arrived: now, sideband });
                    EXHAUSTED.set(false);
                    true
                });
            }
            let next = self.nics[0].next_deadline().min(self.nics[1].next_deadline());
            self.now = if carried > 0 || next == Time::NEVER { now + 1_000 } else { next.max(now + 1_000) };
            EXHAUSTED.set(exhausted);
            self.nics.iter_mut().for_each(|nic| nic.on_deadline(self.now));
            EXHAUSTED.set(false);
            while self.nics[0].poll_cq(self.cq, &mut one) == Ok(1) {
                wcs.push(one[0]);
            }
            if wcs.len() == wanted {
                break;
            }
        }
        wcs
    }
}

#[test]
fn without_memory_a_packet_is_as_good_as_lost() {
    for transport in ["irn", "roce", "auto"] {
        let mut pair = Pair::new(transport);
        for (nic, mr, byte) in [(0, 0, 7), (1, 1, 9)] {
            let mr = pair.mrs[mr];
            pair.nics[nic].bytes_mut(&mr).expect("owned").fill(byte);
        }
        // The NICs have allocated what all queue pairs share.
        pair.post(1, SendOp::Write, 0, 1);
        assert_eq!(pair.run(false, 0, 100, 1).len(), 1);
        // A WRITE needs memory only to keep packets out of order: it is resent, and arrives in order.
        pair.post(0, SendOp::Write, 0, 5 * 4096);
        let wcs = pair.run(true, 0b1, 10_000, 1);
        assert_eq!(wcs.iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success], "{transport}");
        // A READ is not accepted before there is memory for it, however often it is resent.
        pair.post(0, SendOp::Read, 32 << 10, 5 * 4096);
        pair.post(0, SendOp::Write, 24 << 10, 4096);
        assert_eq!(pair.run(true, 0, 4, 2), [], "{transport}");
        let wcs = pair.run(false, 0b101, 10_000, 2);
        assert_eq!(wcs.iter().map(|wc| wc.status).collect::<Vec<_>>(), [WcStatus::Success; 2], "{transport}");
        let [own, peer] = [0, 1].map(|n| pair.nics[n].bytes(&pair.mrs[n]).expect("owned"));
        let is = |bytes: &[u8], from: usize, len: usize, byte| bytes[from..from + len].iter().all(|b| *b == byte);
        assert!(is(peer, 0, 5 * 4096, 7) && is(peer, 24 << 10, 4096, 7), "{transport}: what was written");
        assert!(is(own, 32 << 10, 5 * 4096, 9), "{transport}: what was read");
    }
}

/// A NIC with a datagram queue pair, its completion queue and a region.
fn datagrams() -> (Nic, CqId, u32, Mr) {
    let mut nic = Nic::new(NicConfig::default());
    let pd = nic.alloc_pd().expect("a protection domain");
    let cq = nic.create_cq(64).expect("a completion queue");
    let mr = nic.alloc_mr(pd, 4096, Access::ALL).expect("a region");
    let transport = TransportConfig::parse("roce", true).expect("a transport");
    let config = QpConfig { service: Service::Ud, ..QpConfig::new(pd, cq, transport) };
    let qpn = nic.create_qp(&config).expect("a queue pair");
    nic.connect(qpn, &ConnectParams::datagram(1)).expect("ready");
    (nic, cq, qpn, mr)
}

#[test]
fn copies_of_datagrams_that_wait_take_room_once() {
    let (mut nic, cq, qpn, mr) = datagrams();
    let sge = [Sge { addr: mr.addr, len: 1000, lkey: mr.lkey }];
    let to = Some(Address { path: path(1, 2), qpn: 7, qkey: 1 });
    let wr = SendWr { to, ..SendWr::new(0, SendOp::Send, SendData::Sges(&sge)) };
    let mut take = |waiting: usize, copied: bool| {
        for _ in 0..waiting {
            nic.post_send(qpn, &wr).expect("posted");
            if copied {
                nic.copy_waiting_sends(qpn);
            }
        }
        assert_eq!(nic.poll_transmit(Time(1), 64, |_| true), waiting);
        while nic.poll_cq(cq, &mut [Wc::EMPTY]) == Ok(1) {}
        nic.copy_waiting_sends(qpn);
        BYTES.get()
    };
    let before = take(16, false);
    // Packets sent at once take no memory.
    assert_eq!(take(16, false), before);
    let after = take(16, true);
    assert!((16 * 4096..18 * 4096).contains(&(after - before)), "{} bytes", after - before);
    // Then no allocation can fail, since there is none.
    EXHAUSTED.set(true);
    let again = [5, 16, 1, 16].map(|waiting| take(waiting, true));
    EXHAUSTED.set(false);
    assert_eq!(again, [after; 4]);
}

#[test]
fn without_memory_for_a_copy_datagrams_are_sent_from_where_they_lie() {
    let (mut nic, _, qpn, mr) = datagrams();
    let sge = [Sge { addr: mr.addr, len: 1000, lkey: mr.lkey }];
    let to = Some(Address { path: path(1, 2), qpn: 7, qkey: 1 });
    let wr = SendWr { to, ..SendWr::new(0, SendOp::Send, SendData::Sges(&sge)) };
    nic.post_send(qpn, &wr).expect("posted");
    EXHAUSTED.set(true);
    nic.copy_waiting_sends(qpn);
    EXHAUSTED.set(false);
    let mut addresses = Vec::new();
    nic.poll_transmit(Time(1), 64, |packet| {
        if let Payload::Gather(list) = packet.payload {
            addresses.extend(list.segments().iter().map(|segment| segment.addr));
        }
        true
    });
    assert_eq!(addresses, [mr.addr]);
}
