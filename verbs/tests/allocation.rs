//! Posting and polling take no memory from the heap once they have been used.

mod kit;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::time::Duration;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use kit::{Ctx, QpSpec, Watchdog, connect, wait_for, zeroed};
use parking_lot::{Condvar, Mutex};

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

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread asked for memory meanwhile.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Has this thread wait once: the first time that it finds a lock taken, parking_lot makes room for it.
fn wait_once() {
    let lock = Mutex::new(());
    Condvar::new().wait_for(&mut lock.lock(), Duration::from_nanos(1));
}

#[test]
fn posting_and_polling_allocate_nothing() {
    let _watchdog = Watchdog::start("posting and polling");
    wait_once();
    kit::configure("allocation0", [79, 1]);
    let ctx = Ctx::open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let mut spec = QpSpec::rc().ops(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
    (spec.cap.max_send_wr, spec.cap.max_send_sge, spec.cap.max_inline_data) = (64, 4, 256);
    let qp = pd.qp(&cq, spec);
    connect(&qp, &qp);
    let mr = pd.mr(1 << 16);
    let (remote, batch) = ((mr.addr(), mr.rkey()), qp.batch());
    let list = [mr.sge(0, 64), mr.sge(4096, 64)];
    let bytes = [7u8; 40];
    let buffers = [ibv_data_buf { addr: bytes.as_ptr().cast_mut().cast(), length: bytes.len() }; 2];
    let mut wc: [ibv_wc; 64] = [zeroed(); 64];

    let by_calls = || {
        batch.start();
        for wr_id in 0..8 {
            batch.id(wr_id, IBV_SEND_SIGNALED);
            batch.write(remote);
            match wr_id % 3 {
                0 => batch.sge(list[0]),
                1 => batch.sges(&list),
                // SAFETY: exists; the bytes may be read.
                _ => unsafe { ((*batch.0).wr_set_inline_data_list.unwrap())(batch.0, 2, buffers.as_ptr()) },
            }
        }
        assert_eq!(batch.complete(), 0);
    };
    let by_list = |flags: u32| {
        let mut wrs: [ibv_send_wr; 8] = [zeroed(); 8];
        for i in (0..wrs.len()).rev() {
            let next = wrs.get_mut(i + 1).map_or(null_mut(), |wr| &raw mut *wr);
            let wr = &mut wrs[i];
            (wr.next, wr.sg_list, wr.num_sge) = (next, list.as_ptr().cast_mut(), 2);
            (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | flags);
            wr.wr.rdma = ibv_wr_rdma { remote_addr: remote.0, rkey: remote.1 };
        }
        let mut bad = null_mut();
        // SAFETY: exists; a list that ends with NULL.
        let outcome = unsafe { ((*ctx.0).ops.post_send.unwrap())(qp.0, wrs.as_mut_ptr(), &mut bad) };
        assert_eq!(outcome, 0);
    };
    let mut completions = |mut left: i32| {
        wait_for("a completion", || {
            // SAFETY: exists; room for 64.
            let n = unsafe { ((*ctx.0).ops.poll_cq.unwrap())(cq.0, 64, wc.as_mut_ptr()) };
            assert!(n >= 0 && wc[..n as usize].iter().all(|wc| wc.status == IBV_WC_SUCCESS));
            left -= n;
            (left == 0).then_some(())
        });
    };
    for round in 0..100 {
        let counts = [
            ("ibv_wr_complete", allocations(by_calls)),
            ("ibv_post_send", allocations(|| by_list(0))),
            ("ibv_post_send, inline", allocations(|| by_list(IBV_SEND_INLINE))),
            ("ibv_poll_cq", allocations(|| completions(24))),
        ];
        // The first round makes room.
        assert!(round == 0 || counts.iter().all(|&(_, n)| n == 0), "round {round}: {counts:?}");
    }
}
