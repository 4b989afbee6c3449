//! A line with strict priorities takes no memory from the heap for frames, once its queues have been full.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use irnic_ports::impair::Impaired;
use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::{Path, Time};

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

/// Takes every frame, and has none.
struct Nowhere;

impl Port for Nowhere {
    fn max_frame(&self) -> usize {
        4200
    }

    fn transmit(&mut self, _: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut bytes = [0; 4200];
        fill(&mut bytes[..frame.len]);
        true
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _: Time, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn frames_of_all_priorities_take_no_memory() {
    let [src, dst] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
    let path = Path { src, dst, udp_src: 0xc000, traffic_class: 2, hop_limit: 64 };
    for room in ["40", "20k"] {
        let line = format!("tx rate 800mbit prio {room}").parse().expect("impairments");
        let mut port = Impaired::new(Nowhere, &line, 1, 0);
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
