//! Memory of GPUs, which nothing but the GPU's driver touches: that of `driver.c` keeps it at addresses at which every
//! access ends the process.
//!
//! `TESTS_GPU=real` (`make gpu`) uses the CUDA driver of this host instead.

#[path = "../kit/mod.rs"]
mod kit;

mod gpu;

use std::process::Command;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

use gpu::{Api, Gpu, Memory};
use kit::{ALL, Cq, Ctx, Pd, QKEY, Qp, QpSpec, Recv, Send, connect, refused};

/// Bytes of each memory.
const LEN: usize = 1 << 20;

/// A context of this binary's device, whose network loses packets.
fn open() -> Ctx {
    static LOSSES: std::sync::Once = std::sync::Once::new();
    // SAFETY: as in `configure`, which follows.
    LOSSES.call_once(|| unsafe { std::env::set_var("IRNIC_IMPAIR", "loss 1%") });
    kit::configure("gpu0", [72, 1]);
    Ctx::open()
}

/// Two connected queue pairs, and memory of a GPU for each.
struct Two<'g> {
    a: Qp,
    b: Qp,
    from: Memory<'g>,
    to: Memory<'g>,
    cq: Cq,
    pd: Pd,
    _ctx: Ctx,
}

impl Two<'_> {
    fn new(gpu: &Gpu, spec: QpSpec) -> Two<'_> {
        let ctx = open();
        let (pd, cq) = (ctx.pd(), ctx.cq(64));
        let [a, b] = [0, 1].map(|_| pd.qp(&cq, spec));
        connect(&a, &b);
        let [from, to] = [3, 5].map(|step| {
            let memory = gpu.register(&pd, LEN, ALL);
            memory.write(0, &(0..LEN).map(|i| ((i * step) >> 2) as u8).collect::<Vec<_>>());
            memory
        });
        Two { a, b, from, to, cq, pd, _ctx: ctx }
    }

    /// Posts a send and waits for its completion.
    #[track_caller]
    fn run(&self, wr: Send) {
        let id = wr.wr.wr_id;
        assert_eq!(self.a.post(wr), 0);
        self.cq.expect(id, IBV_WC_SUCCESS);
    }
}

#[test]
fn writes_and_reads_move_it() {
    for gpu in Gpu::all() {
        let t = Two::new(&gpu, QpSpec::rc());
        for (n, len) in [1, 63, 64, 1024, 1025, 5000, 300_000, LEN - 8].into_iter().enumerate() {
            let at = n % 8;
            t.to.write(0, &vec![n as u8; LEN]);
            t.run(Send::write(1, t.to.remote(at)).sge(t.from.sge(at, len)));
            assert!(t.to.read(at, len) == t.from.read(at, len), "{len} bytes written");
            assert!(t.to.read(at + len, LEN - at - len).iter().all(|&b| b == n as u8), "nothing more");
            t.to.write(0, &vec![!n as u8; len]);
            t.run(Send::read(2, t.to.remote(0)).sge(t.from.sge(at, len)));
            assert!(t.from.read(at, len) == vec![!n as u8; len], "{len} bytes read");
        }
    }
}

#[test]
fn messages_gather_and_scatter_it_with_memory_of_the_host() {
    for gpu in Gpu::all() {
        let t = Two::new(&gpu, QpSpec::rc());
        let host = t.pd.mr(LEN);
        host.write(0, &(0..LEN).map(|i| (i * 7) as u8).collect::<Vec<_>>());
        let sizes = [(100, 50), (4096, 4096), (100_000, 3), (7, 50_000)];
        for (n, (on_gpu, on_host)) in sizes.into_iter().enumerate() {
            let len = on_gpu + on_host;
            let expected = [host.read(0, on_host), t.from.read(9, on_gpu)].concat();
            let recv = Recv::new(2).sge(t.to.sge(1, on_gpu)).sge(host.sge(200_000, on_host));
            assert_eq!(t.b.recv(recv), 0);
            let send = Send::message(1).sge(host.sge(0, on_host)).sge(t.from.sge(9, on_gpu));
            assert_eq!(t.a.post(if n % 2 == 0 { send } else { send.imm(7) }), 0);
            let mut done = [t.cq.wait(), t.cq.wait()].map(|wc| (wc.wr_id, wc.status));
            done.sort_unstable();
            assert_eq!(done, [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
            let received = [t.to.read(1, on_gpu), host.read(200_000, on_host)].concat();
            assert!(received == expected, "{len} bytes");
        }
    }
}

#[test]
fn atomics_change_it_and_return_what_was_there() {
    for gpu in Gpu::all() {
        let t = Two::new(&gpu, QpSpec::rc());
        t.to.write(16, &40_u64.to_ne_bytes());
        let before = |at: usize| u64::from_ne_bytes(t.from.read(at, 8).try_into().expect("eight bytes"));
        let word = || u64::from_ne_bytes(t.to.read(16, 8).try_into().expect("eight bytes"));
        t.run(Send::add(1, t.to.remote(16), 2).sge(t.from.sge(0, 8)));
        assert_eq!((before(0), word()), (40, 42));
        t.run(Send::swap(2, t.to.remote(16), 41, 1).sge(t.from.sge(8, 8)));
        assert_eq!((before(8), word()), (42, 42));
        t.run(Send::swap(3, t.to.remote(16), 42, 1).sge(t.from.sge(8, 8)));
        assert_eq!((before(8), word()), (42, 1));
    }
}

/// How often a datagram is sent, which may be lost.
const COPIES: usize = 8;

#[test]
fn datagrams_and_inline_data_come_from_it() {
    for gpu in Gpu::all() {
        let ctx = open();
        let pd = ctx.pd();
        let ah = pd.ah(ctx.gid());
        let memory = gpu.register(&pd, LEN, ALL);
        memory.write(0, &(0..LEN).map(|i| (i * 3) as u8).collect::<Vec<_>>());
        let host = pd.mr(4096);
        host.write(0, &[1, 2, 3]);
        for (n, way) in ["inline", "inline, two elements", "ibv_wr_set_inline_data", "gathered"].into_iter().enumerate()
        {
            let (sent, received) = (ctx.cq(64), ctx.cq(64));
            let srq = pd.srq(16, 2);
            let a = pd.qp(&sent, QpSpec::ud().ops(IBV_QP_EX_WITH_SEND));
            let b = pd.qp_on(&sent, &received, QpSpec::ud().srq(&srq));
            connect(&a, &b);
            let room = 10_000 * (n + 1);
            let (on_gpu, on_host, long) = (memory.sge(n, 30), host.sge(0, 3), memory.sge(n, 1000));
            let expected = match way {
                "gathered" => memory.read(n, 1000),
                "inline, two elements" => [vec![1, 2, 3], memory.read(n, 30)].concat(),
                _ => memory.read(n, 30),
            };
            for _ in 0..COPIES {
                assert_eq!(srq.post(Recv::new(2).sge(memory.sge(room, 20)).sge(memory.sge(room + 2000, 1044))), 0);
                let send = Send::message(1).to(&ah, b.num(), QKEY);
                let posted = match way {
                    "inline" => a.post(send.sge(on_gpu).flags(IBV_SEND_INLINE)),
                    "inline, two elements" => a.post(send.sge(on_host).sge(on_gpu).flags(IBV_SEND_INLINE)),
                    "gathered" => a.post(send.sge(long)),
                    _ => {
                        let batch = a.batch();
                        batch.start();
                        batch.id(1, IBV_SEND_SIGNALED);
                        batch.send();
                        batch.to(ah.0, b.num(), QKEY);
                        batch.inline_at(&[ibv_data_buf { addr: on_gpu.addr as *mut _, length: 30 }]);
                        batch.complete()
                    }
                };
                assert_eq!(posted, 0, "{way}");
                sent.expect(1, IBV_WC_SUCCESS);
            }
            received.expect(2, IBV_WC_SUCCESS);
            let got = [memory.read(room, 20), memory.read(room + 2000, 20 + expected.len())].concat();
            assert!(got[40..] == expected, "{way}");
        }
    }
}

#[test]
fn a_region_is_checked_like_any_other() {
    for gpu in Gpu::all() {
        let t = Two::new(&gpu, QpSpec::rc());
        let (at, len) = (t.from.addr() as *mut _, LEN + (64 << 20));
        // SAFETY: refused; nothing is accessed.
        unsafe {
            assert_eq!(refused(ibv_reg_mr(t.pd.0, at, len, ALL as i32)), libc::EFAULT);
            let here = ibv_rereg_mr(t.from.mr, IBV_REREG_MR_CHANGE_TRANSLATION as i32, t.pd.0, at, 4096, 0);
            assert_ne!(here, 0);
            let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) as i32;
            assert_eq!(ibv_rereg_mr(t.to.mr, IBV_REREG_MR_CHANGE_ACCESS as i32, t.pd.0, at, 0, access), 0);
        }
        t.run(Send::read(1, t.to.remote(0)).sge(t.from.sge(0, 100)));
        assert_eq!(t.a.post(Send::write(2, t.to.remote(0)).sge(t.from.sge(0, 100))), 0);
        t.cq.expect(2, IBV_WC_REM_ACCESS_ERR);
    }
}

#[test]
fn a_region_that_ends_takes_no_more_and_its_stream_goes() {
    for gpu in Gpu::all() {
        let t = Two::new(&gpu, QpSpec::rc());
        let last = gpu.register(&t.pd, LEN, ALL);
        let remote = last.remote(0);
        drop(last);
        assert_eq!(t.a.post(Send::write(1, remote).sge(t.from.sge(0, 5000))), 0);
        t.cq.expect(1, IBV_WC_REM_ACCESS_ERR);
        let streams = || gpu.fake.map(|fake| fake.streams());
        assert_ne!(streams(), Some(0));
        drop(t);
        assert!(streams().is_none_or(|n| n == 0), "{:?} streams are left", streams());
    }
}

#[test]
fn a_copy_that_fails_ends_the_request_at_fault() {
    for gpu in Gpu::all() {
        let Some(fake) = gpu.fake else { continue };
        // To send, the driver copies from the GPU; to receive, to it.
        for (write, to_gpu, status) in [
            (true, false, IBV_WC_LOC_PROT_ERR),
            (true, true, IBV_WC_REM_OP_ERR),
            (false, false, IBV_WC_REM_OP_ERR),
            (false, true, IBV_WC_LOC_PROT_ERR),
        ] {
            let t = Two::new(&gpu, QpSpec::rc());
            fake.fail(Some(to_gpu));
            let wr = if write { Send::write(1, t.to.remote(0)) } else { Send::read(1, t.to.remote(0)) };
            assert_eq!(t.a.post(wr.sge(t.from.sge(0, 10_000))), 0);
            t.cq.expect(1, status);
            fake.fail(None);
        }
    }
}

#[test]
fn nothing_is_registered_where_it_is_off() {
    const NAME: &str = "nothing_is_registered_where_it_is_off";
    if std::env::var_os("IRNIC_GPU").is_none_or(|gpu| gpu != "off") {
        let mut own = Command::new(std::env::current_exe().expect("this program"));
        let output = own.args(["--exact", NAME]).env("IRNIC_GPU", "off").output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let Some(gpu) = Gpu::open(Api::Cuda) else { return };
    let ctx = open();
    let (pd, at) = (ctx.pd(), gpu.allocate(LEN));
    // SAFETY: refused.
    assert_eq!(refused(unsafe { ibv_reg_mr(pd.0, at as *mut _, LEN, ALL as i32) }), libc::EFAULT);
}

#[test]
fn dma_bufs_are_refused_as_by_a_kernel_without_them() {
    let ctx = open();
    let pd = ctx.pd();
    type Register = unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, i32, i32) -> *mut ibv_mr;
    // SAFETY: the function of this name has this type in verbs.h, and ignores its arguments.
    let register: Register = unsafe { std::mem::transmute(ibv_reg_dmabuf_mr as *const ()) };
    // What NCCL, UCX and NVSHMEM ask, to use ibv_reg_mr then.
    // SAFETY: refused.
    assert_eq!(refused(unsafe { register(pd.0, 0, 0, 0, -1, 0) }), libc::EOPNOTSUPP);
}
