//! A frame port takes no memory from the heap for packets, whatever they are.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use irnic_ports::frames::{Carrier, FrameConfig, FramePort, FrameSpec};
use irnic_ports::{Port, Resolution, TxFrame, host_now};
use irnic_transports::Path;

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
