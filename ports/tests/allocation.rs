//! Ports take no memory from the heap for packets: a frame port, whatever they are, and a line with strict priorities
//! once its queues have been full.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use irnic_ports::frames::{Carrier, FrameConfig, FramePort, FrameSpec};
use irnic_ports::impair::Impaired;
use irnic_ports::{Port, Resolution, TxFrame, host_now};
use irnic_transports::{Path, Time};
use support::Sink;

/// The system's allocator; counts what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `count` frames from `a` on `path` and receives them at `b`, or at `a` if it is its own address.
fn exchange(a: &mut FramePort, b: &mut FramePort, path: &Path, count: usize) {
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < count {
        let frame = TxFrame { path, dest_qp: 0x4000, len: 500, icrc: true, irn: false };
        while sent < count && a.transmit(host_now(), &frame, &mut |bytes| bytes.fill(7)) {
            sent += 1;
        }
        for port in [&mut *a, &mut *b] {
            port.flush(host_now()).expect("the peer is there");
            received += port.receive(host_now(), 64, &mut |_| ()).expect("the peer is there");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{received} of {count} frames came: {a:?} {b:?}");
    }
}

#[test]
fn packets_take_no_memory() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    let [v4, v6] =
        [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]].map(|ips| ips.map(|ip| ip.parse::<IpAddr>().unwrap()));
    let open = |i: usize, local: &std::path::Path, remote: &std::path::Path| {
        let carrier = Carrier::Dgram { local: local.into(), remote: remote.into() };
        FramePort::open(&FrameConfig::new(FrameSpec::new(carrier), vec![v4[i], v6[i]])).expect("a free path")
    };
    let (mut a, mut b) = (open(0, &a, &b), open(1, &b, &a));
    let before = ALLOCATIONS.get();
    for [src, dst] in [v4, v6, [v4[0], v4[0]]] {
        let path = Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
        // The first wait for an answer.
        exchange(&mut a, &mut b, &path, 10);
        exchange(&mut a, &mut b, &path, 1000);
        assert_eq!(a.resolve(host_now(), dst), Resolution::Ready);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn frames_of_all_priorities_take_no_memory() {
    let [src, dst] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
    let path = Path { src, dst, udp_src: 0xc000, traffic_class: 2, hop_limit: 64 };
    for room in ["40", "20k"] {
        let line = format!("tx rate 800mbit prio {room}").parse().expect("impairments");
        let mut port = Impaired::new(Sink, &line, 1, 0);
        // Two frames come for each that goes: of 1,000 bytes in 10 µs.
        let mut send = |frames: std::ops::Range<u64>| {
            for i in frames {
                // A multiplier that mixes the low bits well enough.
                let priority = (i.wrapping_mul(0x9e37_79b9) >> 7) as u8 & 7;
                let path = path.with_priority(priority);
                let frame = TxFrame { path: &path, dest_qp: 0x100, len: 958, icrc: true, irn: false };
                assert!(port.transmit(Time(i * 5_000), &frame, &mut |to| to.fill(7)));
            }
            port.tx_counters().pushed_out
        };
        let before = send(0..1_000);
        let allocated = ALLOCATIONS.get();
        let after = send(1_000..20_000);
        assert_eq!(ALLOCATIONS.get(), allocated, "prio {room}");
        assert!(after > before + 1_000, "{before} {after}");
    }
}
