//! Verbs in few words, for tests that read as specifications.
//!
//! Each object destroys itself and insists on success, so objects are declared in the order in which they depend on
//! each other. What a test says wrong on purpose goes to the C functions directly, by the pointers, which are public.

#![allow(dead_code, reason = "each test uses a part")]

mod qp;
mod wr;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Once;
use std::time::{Duration, Instant};

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

#[allow(unused_imports, reason = "each test uses a part")]
pub use qp::{Batch, QKEY, Qp, QpSpec, connect, connect_with};
pub use wr::{Recv, Send};

/// How long anything may take before it counts as hanging. Nothing here takes a hundredth of it on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// All rights.
pub const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

/// All bytes zero: for C structures, in which that means nothing given.
pub fn zeroed<T: Copy>() -> T {
    // SAFETY: used for the structures of verbs.h only: numbers, pointers that may be NULL, optional functions.
    unsafe { std::mem::zeroed() }
}

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `errno` of a call that should have returned NULL, and did.
#[track_caller]
pub fn refused<T>(pointer: *mut T) -> c_int {
    let errno = errno();
    assert!(pointer.is_null(), "not refused");
    errno
}

/// Waits until `done` gives something.
#[track_caller]
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::yield_now();
    }
}

/// Ends the process, loudly, if the test is not over in time: some of what may hang cannot be interrupted.
pub struct Watchdog(std::sync::mpsc::Sender<()>);

impl Watchdog {
    pub fn start(what: &'static str) -> Watchdog {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if receiver.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: hangs");
                std::process::abort();
            }
        });
        Watchdog(sender)
    }
}

/// A reproducible sequence of numbers (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    /// Seeded by `IRNIC_SEED`, or by `default`; says by which.
    pub fn new(default: u64) -> Dice {
        let seed = std::env::var("IRNIC_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
        println!("seed {seed}");
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// An open device.
pub struct Ctx(pub *mut ibv_context);

/// Makes the device of this test binary: one process is one device. `host` is in 127.0/16.
pub fn configure(name: &str, host: [u8; 2]) {
    static ONCE: Once = Once::new();
    // SAFETY: each test does this first, and nobody reads the environment before.
    ONCE.call_once(|| unsafe {
        std::env::set_var("IRNIC_DEVICE", name);
        std::env::set_var("IRNIC_ADDRESSES", format!("127.0.{}.{}", host[0], host[1]));
    });
}

impl Ctx {
    pub fn open() -> Ctx {
        // SAFETY: each call gets what the one before returned.
        unsafe {
            let list = ibv_get_device_list(null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "no device");
            let context = ibv_open_device(*list);
            assert!(!context.is_null(), "errno {}", errno());
            ibv_free_device_list(list);
            Ctx(context)
        }
    }

    pub fn ops(&self) -> &ibv_context_ops {
        // SAFETY: open.
        unsafe { &(*self.0).ops }
    }

    /// The extended function table, found as verbs.h finds it.
    pub fn table(&self) -> &verbs_context {
        // SAFETY: the context is the last member of a `verbs_context`.
        unsafe { &*self.0.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
    }

    pub fn pd(&self) -> Pd {
        // SAFETY: open.
        let pd = unsafe { ibv_alloc_pd(self.0) };
        assert!(!pd.is_null(), "errno {}", errno());
        Pd(pd)
    }

    pub fn cq(&self, entries: u32) -> Cq {
        self.cq_on(entries, null_mut())
    }

    pub fn cq_on(&self, entries: u32, channel: *mut ibv_comp_channel) -> Cq {
        // SAFETY: open, and the caller's channel.
        let cq = unsafe { ibv_create_cq(self.0, entries as c_int, null_mut(), channel, 0) };
        assert!(!cq.is_null(), "errno {}", errno());
        Cq(cq)
    }

    /// An extended completion queue with these `IBV_WC_EX_*` fields.
    pub fn cq_ex(&self, entries: u32, fields: u32) -> Cq {
        let mut attr = ibv_cq_init_attr_ex { cqe: entries, wc_flags: u64::from(fields), ..zeroed() };
        // SAFETY: open; a filled structure.
        let cq = unsafe { (self.table().create_cq_ex.unwrap())(self.0, &mut attr) };
        assert!(!cq.is_null(), "errno {}", errno());
        Cq(cq.cast())
    }

    pub fn channel(&self) -> Channel {
        // SAFETY: open.
        let channel = unsafe { ibv_create_comp_channel(self.0) };
        assert!(!channel.is_null(), "errno {}", errno());
        Channel(channel)
    }

    pub fn gid(&self) -> ibv_gid {
        let mut gid = zeroed();
        // SAFETY: open.
        assert_eq!(unsafe { ibv_query_gid(self.0, 1, 0, &mut gid) }, 0);
        gid
    }

    /// Has asynchronous events of this context be taken without waiting.
    pub fn never_block(&self) {
        // SAFETY: open.
        never_block(unsafe { (*self.0).async_fd });
    }

    /// The next asynchronous event, not acknowledged, if there is one. After [`Ctx::never_block`].
    pub fn event_now(&self) -> Option<ibv_async_event> {
        let mut event = zeroed();
        // SAFETY: open; may be written.
        match unsafe { ibv_get_async_event(self.0, &mut event) } {
            0 => Some(event),
            _ => {
                assert_eq!(errno(), libc::EAGAIN);
                None
            }
        }
    }

    /// Waits for an asynchronous event, acknowledges it, and returns its type and what it is about.
    #[track_caller]
    pub fn event(&self) -> (u32, *mut ibv_qp) {
        let mut event = wait_for("an asynchronous event", || self.event_now());
        // SAFETY: just taken; all pointers of the union are in one place.
        unsafe {
            ibv_ack_async_event(&mut event);
            (event.event_type, event.element.qp)
        }
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: open.
        expect_destroyed("context", unsafe { ibv_close_device(self.0) });
    }
}

pub fn never_block(fd: c_int) {
    // SAFETY: no memory is passed.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
    }
}

/// Whether a descriptor is readable, waiting up to `ms`.
pub fn readable(fd: c_int, ms: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, ms) == 1 }
}

/// What destroys itself says how.
#[track_caller]
fn expect_destroyed(what: &str, outcome: c_int) {
    if !std::thread::panicking() {
        assert_eq!(outcome, 0, "{what} is not destroyed");
    }
}

/// A protection domain.
pub struct Pd(pub *mut ibv_pd);

impl Pd {
    /// Registers new zeroed memory.
    pub fn mr(&self, len: usize) -> Mr {
        self.mr_with(len, ALL)
    }

    pub fn mr_with(&self, len: usize, access: u32) -> Mr {
        let mut bytes = vec![0_u64; len.div_ceil(8)].into_boxed_slice();
        // SAFETY: the memory lives as long as the region.
        let mr = unsafe { ibv_reg_mr(self.0, bytes.as_mut_ptr().cast(), len, access as c_int) };
        assert!(!mr.is_null(), "errno {}", errno());
        Mr { mr, bytes }
    }

    pub fn srq(&self, max_wr: u32, max_sge: u32) -> Srq {
        let mut init: ibv_srq_init_attr = zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
        // SAFETY: exists.
        let srq = unsafe { ibv_create_srq(self.0, &mut init) };
        assert!(!srq.is_null(), "errno {}", errno());
        Srq(srq)
    }

    pub fn ah(&self, dgid: ibv_gid) -> Ah {
        let ah = self.try_ah(dgid);
        assert!(!ah.is_null(), "errno {}", errno());
        Ah(ah)
    }

    pub fn try_ah(&self, dgid: ibv_gid) -> *mut ibv_ah {
        let mut attr: ibv_ah_attr = zeroed();
        (attr.is_global, attr.port_num, attr.grh.dgid) = (1, 1, dgid);
        // SAFETY: exists.
        unsafe { ibv_create_ah(self.0, &mut attr) }
    }

    pub fn mw(&self, kind: u32) -> Mw {
        // SAFETY: exists; called as verbs.h does.
        let mw = unsafe { ((*(*self.0).context).ops.alloc_mw.unwrap())(self.0, kind) };
        assert!(!mw.is_null(), "errno {}", errno());
        Mw(mw)
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("protection domain", unsafe { ibv_dealloc_pd(self.0) });
    }
}

/// A memory region and its memory.
pub struct Mr {
    pub mr: *mut ibv_mr,
    bytes: Box<[u64]>,
}

impl Mr {
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    pub fn lkey(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.mr).lkey }
    }

    pub fn rkey(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.mr).rkey }
    }

    /// `len` bytes from `at`, as a scatter/gather element.
    pub fn sge(&self, at: usize, len: usize) -> ibv_sge {
        ibv_sge { addr: self.addr() + at as u64, length: len as u32, lkey: self.lkey() }
    }

    /// What is there now. The NIC writes behind the compiler's back.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= 8 * self.bytes.len());
        // SAFETY: in bounds.
        (at..at + len).map(|i| unsafe { self.bytes.as_ptr().cast::<u8>().add(i).read_volatile() }).collect()
    }

    pub fn word(&self, index: usize) -> u64 {
        assert!(index < self.bytes.len());
        // SAFETY: in bounds and aligned.
        unsafe { self.bytes.as_ptr().add(index).read_volatile() }
    }

    pub fn set_word(&self, index: usize, value: u64) {
        assert!(index < self.bytes.len());
        // SAFETY: in bounds and aligned.
        unsafe { self.bytes.as_ptr().cast_mut().add(index).write_volatile(value) };
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= 8 * self.bytes.len());
        for (i, b) in bytes.iter().enumerate() {
            // SAFETY: in bounds.
            unsafe { self.bytes.as_ptr().cast::<u8>().cast_mut().add(at + i).write_volatile(*b) };
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("memory region", unsafe { ibv_dereg_mr(self.mr) });
    }
}

/// A memory window.
pub struct Mw(pub *mut ibv_mw);

impl Mw {
    pub fn rkey(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.0).rkey }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("memory window", unsafe { ((*(*self.0).context).ops.dealloc_mw.unwrap())(self.0) });
    }
}

/// An address handle.
pub struct Ah(pub *mut ibv_ah);

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("address handle", unsafe { ibv_destroy_ah(self.0) });
    }
}

/// A shared receive queue.
pub struct Srq(pub *mut ibv_srq);

impl Srq {
    pub fn post(&self, recv: Recv) -> c_int {
        let (mut wr, mut bad) = (recv.build(), null_mut());
        // SAFETY: exists; the list ends.
        unsafe { ((*(*self.0).context).ops.post_srq_recv.unwrap())(self.0, &mut *wr.wr, &mut bad) }
    }

    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> c_int {
        let mut attr = ibv_srq_attr { max_wr: max_wr.unwrap_or(0), max_sge: 0, srq_limit: limit.unwrap_or(0) };
        let mask = max_wr.map_or(0, |_| IBV_SRQ_MAX_WR) | limit.map_or(0, |_| IBV_SRQ_LIMIT);
        // SAFETY: exists.
        unsafe { ibv_modify_srq(self.0, &mut attr, mask as c_int) }
    }

    pub fn query(&self) -> ibv_srq_attr {
        let mut attr = zeroed();
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_query_srq(self.0, &mut attr) }, 0);
        attr
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("shared receive queue", unsafe { ibv_destroy_srq(self.0) });
    }
}

/// A completion channel.
pub struct Channel(pub *mut ibv_comp_channel);

impl Channel {
    pub fn fd(&self) -> c_int {
        // SAFETY: exists.
        unsafe { (*self.0).fd }
    }

    /// Takes an event; waits for one unless the descriptor is non-blocking.
    pub fn take(&self) -> Result<*mut ibv_cq, c_int> {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: exists; both may be written.
        match unsafe { ibv_get_cq_event(self.0, &mut cq, &mut context) } {
            0 => Ok(cq),
            n => {
                assert_eq!(n, -1);
                Err(errno())
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("completion channel", unsafe { ibv_destroy_comp_channel(self.0) });
    }
}

/// A completion queue.
pub struct Cq(pub *mut ibv_cq);

impl Cq {
    pub fn ex(&self) -> *mut ibv_cq_ex {
        self.0.cast()
    }

    /// What ibv_poll_cq returns for up to `n` completions, and these.
    pub fn poll_many(&self, n: usize) -> (c_int, Vec<ibv_wc>) {
        let mut wc: Vec<ibv_wc> = vec![zeroed(); n];
        // SAFETY: exists; room for n.
        let got = unsafe { ((*(*self.0).context).ops.poll_cq.unwrap())(self.0, n as c_int, wc.as_mut_ptr()) };
        wc.truncate(got.max(0) as usize);
        (got, wc)
    }

    #[track_caller]
    pub fn poll(&self) -> Option<ibv_wc> {
        let (n, wc) = self.poll_many(1);
        assert!(n >= 0, "ibv_poll_cq returned {n}");
        wc.first().copied()
    }

    #[track_caller]
    pub fn wait(&self) -> ibv_wc {
        wait_for("a completion", || self.poll())
    }

    /// Waits for a completion and checks whose it is and how it ended.
    #[track_caller]
    pub fn expect(&self, wr_id: u64, status: u32) -> ibv_wc {
        let wc = self.wait();
        assert_eq!((wc.wr_id, wc.status), (wr_id, status), "id and status");
        wc
    }

    /// Insists on an empty queue, after a few looks.
    #[track_caller]
    pub fn expect_none(&self) {
        for _ in 0..20 {
            if let Some(wc) = self.poll() {
                panic!("a completion of {} with status {}", wc.wr_id, wc.status);
            }
            std::thread::yield_now();
        }
    }

    pub fn arm(&self, solicited_only: bool) -> c_int {
        // SAFETY: exists.
        unsafe { ((*(*self.0).context).ops.req_notify_cq.unwrap())(self.0, c_int::from(solicited_only)) }
    }

    pub fn ack(&self, n: u32) {
        // SAFETY: exists.
        unsafe { ibv_ack_cq_events(self.0, n) };
    }

    /// Completions that it holds.
    pub fn entries(&self) -> c_int {
        // SAFETY: exists.
        unsafe { (*self.0).cqe }
    }

    pub fn resize(&self, entries: c_int) -> c_int {
        // SAFETY: exists.
        unsafe { ibv_resize_cq(self.0, entries) }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("completion queue", unsafe { ibv_destroy_cq(self.0) });
    }
}

// SAFETY: verbs may be called from any thread, and these types hold nothing else.
unsafe impl std::marker::Send for Ctx {}
// SAFETY: as above.
unsafe impl Sync for Ctx {}
// SAFETY: as above.
unsafe impl std::marker::Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}
// SAFETY: as above.
unsafe impl std::marker::Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}
// SAFETY: as above.
unsafe impl std::marker::Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}
// SAFETY: as above; the memory is read and written as volatile.
unsafe impl std::marker::Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}
// SAFETY: as above.
unsafe impl std::marker::Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Ctx {
    /// A channel that the caller never destroys.
    pub fn channel_left(&self) -> *mut ibv_comp_channel {
        let channel = self.channel();
        let pointer = channel.0;
        std::mem::forget(channel);
        pointer
    }
}
