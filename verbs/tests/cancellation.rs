//! Threads that are ended by pthread_cancel(3): while they wait for events at once, elsewhere as soon as they look.

mod kit;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use kit::{Ctx, QpSpec, Send, Watchdog, zeroed};

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

// The C library's, as threads that are cancelled need them.
unsafe extern "C" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attr: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}
unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// What `pthread_join` says of a thread that was cancelled.
const CANCELLED: *mut c_void = usize::MAX as *mut c_void;

/// Starts a thread, cancels it after a while, and waits until it has ended.
fn cancelled_after<T>(wait: Duration, start: Start, argument: &T) {
    let mut thread = 0;
    // SAFETY: the thread ends before the argument does.
    unsafe {
        let argument = std::ptr::from_ref(argument).cast_mut().cast();
        assert_eq!(pthread_create(&raw mut thread, std::ptr::null(), start, argument), 0);
        std::thread::sleep(wait);
        assert_eq!(pthread_cancel(thread), 0);
        let mut result = null_mut();
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
        assert_eq!(result, CANCELLED);
    }
}

unsafe extern "C-unwind" fn waits_for_completions(channel: *mut c_void) -> *mut c_void {
    let (mut cq, mut context) = (null_mut(), null_mut());
    loop {
        // SAFETY: the channel exists.
        unsafe { ibv_get_cq_event(*channel.cast(), &raw mut cq, &raw mut context) };
    }
}

unsafe extern "C-unwind" fn waits_for_errors(context: *mut c_void) -> *mut c_void {
    let mut event: ibv_async_event = zeroed();
    loop {
        // SAFETY: the context is open.
        unsafe { ibv_get_async_event(*context.cast(), &raw mut event) };
    }
}

/// What a thread that sends needs.
struct Sends {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    wr: ibv_send_wr,
    sent: AtomicU32,
}

unsafe extern "C-unwind" fn sends(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the main thread waits for this one.
    let this: &Sends = unsafe { &*argument.cast() };
    let mut wcs: [ibv_wc; 16] = [zeroed(); 16];
    loop {
        let mut wr = this.wr;
        let mut bad = null_mut();
        // SAFETY: all exist.
        unsafe {
            let ops = &(*(*this.qp).context).ops;
            (ops.post_send.unwrap())(this.qp, &raw mut wr, &raw mut bad);
            (ops.poll_cq.unwrap())(this.cq, 16, wcs.as_mut_ptr());
            pthread_testcancel();
        }
        this.sent.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_thread_can_be_cancelled_wherever_it_is() {
    let _watchdog = Watchdog::start("cancelled threads");
    kit::configure("cancellation0", [83, 1]);
    let ctx = Ctx::open();
    let pd = ctx.pd();
    let channel = ctx.channel();
    let cq = ctx.cq_on(64, channel.0);
    for _ in 0..20 {
        cancelled_after(Duration::from_millis(2), waits_for_completions, &channel.0);
        cancelled_after(Duration::from_millis(2), waits_for_errors, &ctx.0);
    }
    // Datagrams to another host leave by the kernel, whose calls are cancellation points of the C library.
    let qp = pd.qp(&cq, QpSpec::ud());
    let mr = pd.mr(4096);
    kit::connect(&qp, &qp);
    let mut gid = ctx.gid();
    // SAFETY: any bits are a GID.
    unsafe { gid.raw[12..].copy_from_slice(&[127, 0, 83, 77]) };
    let ah = pd.ah(gid);
    let mut send = Send::message(1).sge(mr.sge(0, 500)).to(&ah, 5, kit::QKEY);
    // SAFETY: it was made just now, and ends the list.
    let wr = unsafe { *send.finish(null_mut()) };
    let this = Sends { qp: qp.0, cq: cq.0, wr, sent: AtomicU32::new(0) };
    for round in 0..50 {
        cancelled_after(Duration::from_micros(200 + 17 * round), sends, &this);
    }
    assert!(this.sent.load(Ordering::Relaxed) > 50);
    // Nothing was left locked or half done.
    let start = Instant::now();
    let mut wcs: [ibv_wc; 16] = [zeroed(); 16];
    // SAFETY: exists.
    while unsafe { ((*ctx.0).ops.poll_cq.unwrap())(cq.0, 16, wcs.as_mut_ptr()) } > 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    let other = pd.qp(&cq, QpSpec::rc());
    kit::connect(&other, &other);
    assert_eq!(other.post(Send::write(9, (mr.addr() + 2048, mr.rkey())).sge(mr.sge(0, 8))), 0);
    cq.expect(9, IBV_WC_SUCCESS);
}
