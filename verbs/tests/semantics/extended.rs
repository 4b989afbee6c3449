//! `ibv_cq_ex` and `ibv_wr_*`.

use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EINVAL, ENOENT, ENOMEM};

use crate::kit::{Cq, Ctx, QKEY, QpSpec, Recv, Send, connect, connect_with, wait_for, zeroed};
use crate::open;

/// What `ibv_start_poll` and `ibv_next_poll` return, and what can be read.
struct Reader<'a>(&'a Cq);

impl Reader<'_> {
    fn table(&self) -> &ibv_cq_ex {
        // SAFETY: exists.
        unsafe { &*self.0.ex() }
    }

    fn start(&self) -> i32 {
        // SAFETY: exists.
        unsafe { (self.table().start_poll.unwrap())(self.0.ex(), &mut zeroed()) }
    }

    fn next(&self) -> i32 {
        // SAFETY: exists.
        unsafe { (self.table().next_poll.unwrap())(self.0.ex()) }
    }

    fn end(&self) {
        // SAFETY: exists.
        unsafe { (self.table().end_poll.unwrap())(self.0.ex()) };
    }

    fn timestamp(&self) -> u64 {
        // SAFETY: exists.
        unsafe { (self.table().read_completion_ts.unwrap())(self.0.ex()) }
    }
}

fn clock(ctx: &Ctx) -> u64 {
    let mut values: ibv_values_ex =
        ibv_values_ex { comp_mask: IBV_VALUES_MASK_RAW_CLOCK, raw_clock: libc::timespec { tv_sec: 0, tv_nsec: 0 } };
    // SAFETY: open.
    assert_eq!(unsafe { (ctx.table().query_rt_values.unwrap())(ctx.0, &mut values) }, 0);
    assert_eq!((values.comp_mask, values.raw_clock.tv_sec), (IBV_VALUES_MASK_RAW_CLOCK, 0));
    values.raw_clock.tv_nsec as u64
}

#[test]
fn completions_are_read_one_field_at_a_time() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq_ex(64, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    let qp = pd.qp(&cq, QpSpec::rc().ops(IBV_QP_EX_WITH_SEND_WITH_IMM));
    connect(&qp, &qp);
    let reader = Reader(&cq);
    assert_eq!(reader.start(), ENOENT);
    // SAFETY: exists.
    assert_eq!(unsafe { (reader.table().start_poll.unwrap())(cq.ex(), null_mut()) }, ENOENT);
    let mut unknown = ibv_poll_cq_attr { comp_mask: 1 };
    // SAFETY: exists.
    assert_eq!(unsafe { (reader.table().start_poll.unwrap())(cq.ex(), &mut unknown) }, EINVAL);
    let mut before = clock(&ctx);
    for wr_id in 0..10 {
        assert_eq!(qp.recv(Recv::new(100 + wr_id)), 0);
        let batch = qp.batch();
        batch.start();
        batch.id(wr_id, IBV_SEND_SIGNALED);
        // SAFETY: exists.
        unsafe { ((*batch.0).wr_send_imm.unwrap())(batch.0, 5_u32.to_be()) };
        batch.inline(&[b"12", b"", b"345"]);
        assert_eq!(batch.complete(), 0);
        // Receives have no memory: this one is too long for them, which is the first thing to read.
        wait_for("a completion", || (reader.start() == 0).then_some(()));
        let table = reader.table();
        // SAFETY: a completion is current.
        unsafe {
            assert_eq!((table.read_qp_num.unwrap())(cq.ex()), qp.num());
            assert_eq!((table.read_vendor_err.unwrap())(cq.ex()), 0);
            assert_eq!((table.read_slid.unwrap())(cq.ex()), 0);
        }
        let at = reader.timestamp();
        let now = clock(&ctx);
        assert!(before <= at && at <= now, "{before} {at} {now}");
        before = at;
        reader.end();
        assert_eq!(qp.to_state(IBV_QPS_RESET), 0);
        connect(&qp, &qp);
    }
}

#[test]
fn timestamps_never_go_back_and_are_the_nics_clock() {
    let ctx = open();
    let pd = ctx.pd();
    let fields =
        IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    let cq = ctx.cq_ex(64, fields);
    let mr = pd.mr(64);
    let qp = pd.qp(&cq, QpSpec::rc().ops(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND));
    connect(&qp, &qp);
    let (reader, batch) = (Reader(&cq), qp.batch());
    let (mut last, mut last_wall) = (clock(&ctx), 0);
    for round in 0..20 {
        batch.start();
        for wr_id in 0..8 {
            batch.id(wr_id, IBV_SEND_SIGNALED);
            batch.write((mr.addr(), mr.rkey()));
            batch.sge(mr.sge(8, 8));
        }
        assert_eq!(batch.complete(), 0);
        let mut seen = 0;
        while seen < 8 {
            wait_for("a completion", || (reader.start() == 0).then_some(()));
            loop {
                let at = reader.timestamp();
                let now = clock(&ctx);
                assert!(last <= at && at <= now, "round {round}: {last} {at} {now}");
                // SAFETY: a completion is current.
                let wall = unsafe { (reader.table().read_completion_wallclock_ns.unwrap())(cq.ex()) };
                let wall_now =
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
                assert!(wall <= wall_now + 1_000_000 && wall + 60_000_000_000 > wall_now, "{wall} at {wall_now}");
                assert!(wall + 1_000_000 >= last_wall, "wall clock: {last_wall} {wall}");
                (last, last_wall) = (at, wall);
                assert_eq!((reader.table().status, reader.table().wr_id), (IBV_WC_SUCCESS, seen));
                seen += 1;
                if reader.next() != 0 {
                    break;
                }
            }
            reader.end();
        }
    }
    let mut bad: ibv_values_ex =
        ibv_values_ex { comp_mask: 1 << 9, raw_clock: libc::timespec { tv_sec: 0, tv_nsec: 0 } };
    // SAFETY: open.
    assert_eq!(unsafe { (ctx.table().query_rt_values.unwrap())(ctx.0, &mut bad) }, libc::EOPNOTSUPP);
}

#[test]
fn queue_pairs_without_send_operations_have_no_extended_interface() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let qp = pd.qp(&cq, QpSpec::rc());
    // SAFETY: exists.
    assert!(unsafe { ibv_qp_to_qp_ex(qp.0) }.is_null());
}

#[test]
fn a_batch_is_posted_whole_or_not_at_all() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let mr = pd.mr(4096);
    let ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
    let qp = pd.qp(&cq, QpSpec::rc().ops(ops));
    connect(&qp, &qp);
    let batch = qp.batch();
    let write = |wr_id| {
        batch.id(wr_id, IBV_SEND_SIGNALED);
        batch.write((mr.addr(), mr.rkey()));
        batch.sge(mr.sge(8, 8));
    };
    // More than there is room for.
    batch.start();
    (0..17).for_each(write);
    assert_eq!(batch.complete(), ENOMEM);
    cq.expect_none();
    // The third is wrong, in several ways.
    type Wrong = fn(&crate::kit::Batch, &crate::kit::Mr);
    let wrongs: [(&str, Wrong, i32); 5] = [
        ("elements", |b, mr| b.sges(&[mr.sge(0, 8); 5]), EINVAL),
        ("inline bytes", |b, _| b.inline(&[&[0; 60], &[0; 5]]), ENOMEM),
        ("length", |b, mr| b.sge(ibv_sge { length: u32::MAX, ..mr.sge(0, 8) }), EINVAL),
        // SAFETY: exists.
        ("tso", |b, _| unsafe { ((*b.0).wr_send_tso.unwrap())(b.0, null_mut(), 0, 0) }, libc::EOPNOTSUPP),
        // SAFETY: exists.
        ("xrc", |b, _| unsafe { ((*b.0).wr_set_xrc_srqn.unwrap())(b.0, 1) }, EINVAL),
    ];
    for (what, wrong, errno) in wrongs {
        batch.start();
        (0..2).for_each(write);
        batch.id(2, IBV_SEND_SIGNALED);
        batch.send();
        wrong(&batch, &mr);
        write(3);
        assert_eq!(batch.complete(), errno, "{what}");
        cq.expect_none();
    }
    // Thrown away.
    batch.start();
    (0..2).for_each(write);
    batch.abort();
    batch.start();
    assert_eq!(batch.complete(), 0, "of nothing");
    cq.expect_none();
    // All of this left room for everything.
    batch.start();
    (0..16).for_each(write);
    assert_eq!(batch.complete(), 0);
    for wr_id in 0..16 {
        cq.expect(wr_id, IBV_WC_SUCCESS);
    }
    assert_eq!(batch.complete(), EINVAL, "not begun");
}

#[test]
fn a_batch_carries_long_messages() {
    const LEN: usize = 1 << 20;
    for spec in [QpSpec::rc(), QpSpec::uc()] {
        let ctx = open();
        let pd = ctx.pd();
        let (cq, mr) = (ctx.cq(64), pd.mr(4 * LEN));
        let qp = pd.qp(&cq, spec.ops(IBV_QP_EX_WITH_SEND));
        connect(&qp, &qp);
        for word in 0..2 * LEN / 8 {
            mr.set_word(word, (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        for wr_id in [12, 13] {
            let at = wr_id as usize - 10;
            assert_eq!(qp.recv(Recv::new(wr_id).sge(mr.sge(at * LEN, LEN))), 0);
        }
        let batch = qp.batch();
        batch.start();
        batch.id(0, IBV_SEND_SIGNALED);
        batch.send();
        batch.sge(mr.sge(0, LEN));
        batch.id(1, IBV_SEND_SIGNALED);
        batch.send();
        batch.sges(&[mr.sge(LEN, LEN / 2), mr.sge(LEN + LEN / 2, LEN / 2)]);
        assert_eq!(batch.complete(), 0);
        let mut done: Vec<(u64, u32)> = (0..4).map(|_| cq.wait()).map(|wc| (wc.wr_id, wc.status)).collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 12, 13].map(|wr_id| (wr_id, IBV_WC_SUCCESS)));
        let words = 2 * LEN / 8;
        assert!((0..words).all(|word| mr.word(word) == mr.word(words + word)), "service {}", qp.query().1.qp_type);
    }
}

#[test]
fn datagrams_of_a_batch_need_an_address_each() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let (mr, ah) = (pd.mr(4096), pd.ah(ctx.gid()));
    let qp = pd.qp(&cq, QpSpec::ud().ops(IBV_QP_EX_WITH_SEND));
    connect(&qp, &qp);
    let batch = qp.batch();
    for missing in [true, false] {
        assert_eq!(qp.recv(Recv::new(5).sge(mr.sge(0, 100))), 0);
        batch.start();
        for wr_id in 0..2 {
            batch.id(wr_id, IBV_SEND_SIGNALED);
            batch.send();
            batch.inline(&[b"hello"]);
            if wr_id == 0 || !missing {
                batch.to(ah.0, qp.num(), QKEY);
            }
        }
        if missing {
            assert_eq!(batch.complete(), EINVAL);
            cq.expect_none();
        } else {
            assert_eq!(batch.complete(), 0);
            let mut ids: Vec<u64> = (0..4).map(|_| cq.wait().wr_id).collect();
            ids.sort_unstable();
            assert_eq!(ids, [0, 1, 5, 5]);
            assert_eq!(mr.read(40, 5), b"hello");
        }
    }
}

#[test]
fn batches_and_polls_of_several_threads_do_not_mix() {
    let _watchdog = crate::kit::Watchdog::start("ibv_wr_start and ibv_start_poll by several threads");
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 200;
    let ctx = open();
    let pd = ctx.pd();
    // Those who post may be ahead of those who read by all there is, if these have no core.
    let cq = ctx.cq_ex(2 * (THREADS * ROUNDS) as u32, IBV_WC_STANDARD_FLAGS);
    let mr = pd.mr(4096);
    let qp = pd.qp(&cq, QpSpec::rc().ops(IBV_QP_EX_WITH_RDMA_WRITE));
    connect(&qp, &qp);
    let seen = std::sync::Mutex::new(vec![0_u64; (THREADS * ROUNDS) as usize]);
    let posting = std::sync::atomic::AtomicU64::new(THREADS);
    std::thread::scope(|scope| {
        let (qp, mr, cq, seen, posting) = (&qp, &mr, &cq, &seen, &posting);
        for thread in 0..THREADS {
            scope.spawn(move || {
                let batch = qp.batch();
                let mut round = 0;
                while round < ROUNDS {
                    batch.start();
                    for half in 0..2 {
                        batch.id((thread * ROUNDS + round) << 1 | half, IBV_SEND_SIGNALED);
                        batch.write((mr.addr(), mr.rkey()));
                        batch.sge(mr.sge(8 * thread as usize, 8));
                        if half == 0 {
                            std::thread::yield_now();
                        }
                    }
                    match batch.complete() {
                        0 => round += 1,
                        n => {
                            assert_eq!(n, ENOMEM);
                            std::thread::yield_now();
                        }
                    }
                }
                posting.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
            scope.spawn(move || {
                let reader = Reader(cq);
                loop {
                    let over = posting.load(std::sync::atomic::Ordering::SeqCst) == 0;
                    if reader.start() != 0 {
                        if over && seen.lock().unwrap().iter().sum::<u64>() == 2 * THREADS * ROUNDS {
                            break;
                        }
                        std::thread::yield_now();
                        continue;
                    }
                    loop {
                        assert_eq!(reader.table().status, IBV_WC_SUCCESS);
                        seen.lock().unwrap()[(reader.table().wr_id >> 1) as usize] += 1;
                        if reader.next() != 0 {
                            break;
                        }
                    }
                    reader.end();
                }
            });
        }
    });
    assert!(seen.lock().unwrap().iter().all(|&n| n == 2));
}

#[test]
fn atomic_writes_and_flushes_are_posted_by_the_extended_calls() {
    let ctx = open();
    let (pd, cq) = (ctx.pd(), ctx.cq(16));
    let spec = QpSpec::rc().ops(IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE);
    let qp = pd.qp(&cq, spec);
    connect_with(&qp, &qp, |attr| attr.qp_access_flags |= IBV_ACCESS_FLUSH_GLOBAL);
    let mr = pd.mr_with(64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL);
    let batch = qp.batch();

    let mut value = *b"8 bytes!";
    batch.start();
    batch.id(1, IBV_SEND_SIGNALED);
    // SAFETY: exists; eight bytes.
    unsafe { ((*batch.0).wr_atomic_write.unwrap())(batch.0, mr.rkey(), mr.addr() + 8, value.as_ptr().cast()) };
    value.fill(0);
    batch.id(2, IBV_SEND_SIGNALED);
    // SAFETY: exists.
    unsafe {
        let (global, range) = (IBV_FLUSH_GLOBAL as u8, IBV_FLUSH_RANGE as u8);
        ((*batch.0).wr_flush.unwrap())(batch.0, mr.rkey(), mr.addr(), 64, global, range);
    }
    assert_eq!(batch.complete(), 0);
    assert_eq!(cq.expect(1, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
    assert_eq!(mr.read(8, 8), b"8 bytes!", "the value at the time of the call");
    assert_eq!(cq.expect(2, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
    // The old call takes the value from the scatter list; FLUSH has no place there.
    mr.write(32, b"another.");
    let mut write = Send::write(3, (mr.addr() + 16, mr.rkey())).sge(mr.sge(32, 8));
    write.wr.opcode = IBV_WR_ATOMIC_WRITE;
    assert_eq!(qp.post(write), 0);
    cq.expect(3, IBV_WC_SUCCESS);
    assert_eq!(mr.read(16, 8), b"another.");
    for (opcode, len, errno) in [(IBV_WR_ATOMIC_WRITE, 4, EINVAL), (IBV_WR_FLUSH, 8, libc::EOPNOTSUPP)] {
        let mut wrong = Send::write(4, (mr.addr(), mr.rkey())).sge(mr.sge(0, len));
        wrong.wr.opcode = opcode;
        assert_eq!(qp.post(wrong), errno);
    }
    for (placement, level, len) in [(0, 0, 8), (4, 0, 8), (1, 2, 8), (1, 0, 1 << 32)] {
        batch.start();
        batch.id(5, 0);
        // SAFETY: exists.
        unsafe { ((*batch.0).wr_flush.unwrap())(batch.0, mr.rkey(), mr.addr(), len, placement, level) };
        assert_eq!(batch.complete(), EINVAL, "type {placement}, level {level}, {len} bytes");
    }
    cq.expect_none();
}

#[test]
fn what_atomic_writes_and_flushes_need_is_announced_and_the_rest_refused() {
    let ctx = open();
    let (pd, cq) = (ctx.pd(), ctx.cq(4));
    let mut attr: ibv_device_attr_ex = zeroed();
    // SAFETY: open; may be written.
    let queried = unsafe { (ctx.table().query_device_ex.unwrap())(ctx.0, null_mut(), &mut attr, size_of_val(&attr)) };
    assert_eq!(queried, 0);
    // IB_UVERBS_DEVICE_FLUSH_GLOBAL, _FLUSH_PERSISTENT and _ATOMIC_WRITE.
    assert_eq!([38, 39, 40].map(|bit| attr.device_cap_flags_ex >> bit & 1), [1, 0, 1]);
    for service in [IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND] {
        for ops in [IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_FLUSH] {
            assert!(pd.try_qp(&cq, &cq, QpSpec::new(service).ops(ops)).is_null());
            assert_eq!(crate::kit::errno(), libc::EOPNOTSUPP, "service {service}");
        }
    }
    let mut bytes = [0u64; 8];
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT;
    // SAFETY: memory of this function.
    let mr = unsafe { irnic_verbs::calls::ibv_reg_mr(pd.0, bytes.as_mut_ptr().cast(), 64, access as i32) };
    assert!(mr.is_null(), "this memory is not persistent");
    assert_eq!(crate::kit::errno(), libc::EOPNOTSUPP);
}
