//! Several processing units: what threads and queue pairs of different units have in common.
//!
//! The process has two devices. Completion queues of `turns0` take three units in turn, so that a single thread finds
//! out what happens between units; those of `threads0` go by threads.

mod kit;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use kit::{ALL, Cq, Ctx, Mr, Pd, Qp, QpSpec, Recv, Send, Watchdog, connect, refused, wait_for};

/// Opens the device with a name.
fn open(name: &str) -> Ctx {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut path = std::env::current_exe().unwrap();
        path.set_extension(format!("{}.toml", std::process::id()));
        let device = |name, host, units| {
            format!("[[device]]\nname = \"{name}\"\naddresses = [\"127.0.73.{host}\"]\nunits = \"{units}\"\n")
        };
        std::fs::write(&path, device("turns0", 1, "3") + &device("threads0", 2, "auto")).unwrap();
        // SAFETY: nobody reads the environment before.
        unsafe { std::env::set_var("IRNIC_CONFIG", &path) };
        // SAFETY: reads the configuration.
        unsafe { ibv_free_device_list(ibv_get_device_list(null_mut())) };
        std::fs::remove_file(path).unwrap();
    });
    // SAFETY: each call gets what the one before returned.
    unsafe {
        let list = ibv_get_device_list(null_mut());
        let is = |device: *mut ibv_device| std::ffi::CStr::from_ptr(ibv_get_device_name(device)).to_str() == Ok(name);
        let device = (0..2).map(|i| *list.add(i)).find(|&device| is(device)).expect("a device of this name");
        let context = ibv_open_device(device);
        ibv_free_device_list(list);
        assert!(!context.is_null());
        Ctx(context)
    }
}

/// Has the process's units to one test at a time: which of them is next depends on what is in them.
fn alone(what: &'static str) -> (MutexGuard<'static, ()>, Watchdog) {
    static ALONE: Mutex<()> = Mutex::new(());
    (ALONE.lock().unwrap_or_else(PoisonError::into_inner), Watchdog::start(what))
}

/// The process's share of the queue pair numbers, which each unit has one of.
fn slot(qp: &Qp) -> u32 {
    qp.num() >> 14
}

/// A completion queue and a queue pair in each of two units.
fn two(ctx: &Ctx, pd: &Pd) -> [(Cq, Qp); 2] {
    let ends = [(); 2].map(|()| {
        let cq = ctx.cq(64);
        let qp = pd.qp(&cq, QpSpec::rc());
        (cq, qp)
    });
    assert_ne!(slot(&ends[0].1), slot(&ends[1].1), "in units of their own");
    ends
}

#[test]
fn queue_pairs_of_different_units_reach_each_other_and_all_memory() {
    let _alone = alone("queue pairs of different units");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let early = pd.mr_with(4096, ALL);
    let [(cq, a), (other, b)] = two(&ctx, &pd);
    let late = pd.mr_with(4096, ALL);
    connect(&a, &b);
    for (mr, n) in [(&early, 1), (&late, 2)] {
        mr.set_word(0, 77 + n);
        assert_eq!(a.post(Send::write(n, (mr.addr() + 8, mr.rkey())).sge(mr.sge(0, 8))), 0);
        cq.expect(n, IBV_WC_SUCCESS);
        assert_eq!(mr.word(1), 77 + n);
        assert_eq!(b.post(Send::read(n, (mr.addr() + 8, mr.rkey())).sge(mr.sge(16, 8))), 0);
        other.expect(n, IBV_WC_SUCCESS);
        assert_eq!(mr.word(2), 77 + n);
        assert_eq!(b.recv(Recv::new(n).sge(mr.sge(24, 8))), 0);
        assert_eq!(a.post(Send::message(n).sge(mr.sge(0, 8))), 0);
        cq.expect(n, IBV_WC_SUCCESS);
        other.expect(n, IBV_WC_SUCCESS);
        assert_eq!(mr.word(3), 77 + n);
    }
    // Gone in one, it is gone in all.
    let key = (late.addr(), late.rkey());
    drop(late);
    assert_eq!(a.post(Send::write(3, key).sge(early.sge(0, 8))), 0);
    cq.expect(3, IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn a_completion_queue_serves_queue_pairs_of_several_units() {
    let _alone = alone("a queue of several units");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let mr = pd.mr(4096);
    let channel = ctx.channel();
    kit::never_block(channel.fd());
    let joint = ctx.cq_on(64, channel.0);
    let [(first, _a), (second, _b)] = two(&ctx, &pd);
    // Their units are given by the queues to which they send.
    let (a, b) = (pd.qp_on(&first, &joint, QpSpec::rc()), pd.qp_on(&second, &joint, QpSpec::rc()));
    assert_ne!(slot(&a), slot(&b));
    connect(&a, &b);
    for round in 0..20u64 {
        assert_eq!(joint.arm(false), 0);
        for (n, (to, from)) in [(&b, &a), (&a, &b)].into_iter().enumerate() {
            assert_eq!(to.recv(Recv::new(2 * round + n as u64).sge(mr.sge(0, 8))), 0);
            assert_eq!(from.post(Send::message(round).sge(mr.sge(8, 8))), 0);
        }
        first.expect(round, IBV_WC_SUCCESS);
        second.expect(round, IBV_WC_SUCCESS);
        let mut found = Vec::new();
        wait_for("both completions", || {
            let (n, wcs) = joint.poll_many(1);
            assert!(n >= 0);
            found.extend(wcs.iter().map(|wc| (wc.wr_id, wc.status)));
            (found.len() == 2).then_some(())
        });
        found.sort_unstable();
        assert_eq!(found, [(2 * round, IBV_WC_SUCCESS), (2 * round + 1, IBV_WC_SUCCESS)]);
        // It was armed once, for both.
        assert_eq!(channel.take(), Ok(joint.0), "round {round}");
        joint.ack(1);
        assert!(channel.take().is_err(), "round {round}: one event for each time that it is armed");
    }
    // Made larger, it is in all parts; used by one of them, it stays.
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_resize_cq(joint.0, 200) }, 0);
    drop(a);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_destroy_cq(joint.0) }, libc::EBUSY);
    let (c, b) = (pd.qp_on(&first, &joint, QpSpec::rc()), pd.qp_on(&second, &joint, QpSpec::rc()));
    connect(&b, &c);
    assert_eq!(c.recv(Recv::new(5).sge(mr.sge(0, 8))), 0);
    assert_eq!(b.post(Send::message(6).sge(mr.sge(8, 8))), 0);
    joint.expect(5, IBV_WC_SUCCESS);
    second.expect(6, IBV_WC_SUCCESS);
}

#[test]
fn a_queue_that_was_armed_before_its_first_queue_pair_stays_armed() {
    let _alone = alone("an early arm");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let mr = pd.mr(64);
    let channel = ctx.channel();
    kit::never_block(channel.fd());
    let mut all = Vec::new();
    // Queues are made in the first unit, and two of these three go to others.
    for _ in 0..3 {
        let cq = ctx.cq_on(64, channel.0);
        cq.expect_none();
        assert_eq!(cq.arm(false), 0);
        let qp = pd.qp(&cq, QpSpec::uc());
        connect(&qp, &qp);
        assert_eq!(qp.post(Send::write(1, (mr.addr(), mr.rkey())).sge(mr.sge(0, 8))), 0);
        assert_eq!(wait_for("the event", || channel.take().ok()), cq.0);
        cq.ack(1);
        cq.expect(1, IBV_WC_SUCCESS);
        all.push((qp, cq));
    }
    assert!(slot(&all[0].0) != slot(&all[1].0) && slot(&all[1].0) != slot(&all[2].0));
}

#[test]
fn a_shared_receive_queue_gathers_its_queue_pairs_in_its_unit() {
    let _alone = alone("a shared receive queue");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let mr = pd.mr(4096);
    let srq = pd.srq(64, 1);
    let [(first, a), (second, b)] = two(&ctx, &pd);
    let receivers = [&first, &second].map(|cq| pd.qp(cq, QpSpec::rc().srq(&srq)));
    assert_eq!(slot(&receivers[0]), slot(&receivers[1]));
    for ((sender, cq), receiver) in [(&a, &first), (&b, &second)].into_iter().zip(&receivers) {
        connect(sender, receiver);
        for n in 0..10 {
            assert_eq!(srq.post(Recv::new(100 + n).sge(mr.sge(0, 64))), 0);
            assert_eq!(sender.post(Send::message(n).sge(mr.sge(64, 64))), 0);
            // Both completions are in one queue, in either order.
            let mut found = Vec::new();
            wait_for("both completions", || {
                found.extend(cq.poll_many(4).1.iter().map(|wc| (wc.wr_id, wc.status)));
                (found.len() == 2).then_some(())
            });
            found.sort_unstable();
            assert_eq!(found, [(n, IBV_WC_SUCCESS), (100 + n, IBV_WC_SUCCESS)]);
        }
    }
}

fn bind(mr: &Mr, at: u64, length: u64) -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr: mr.mr, addr: mr.addr() + at, length, mw_access_flags: IBV_ACCESS_REMOTE_WRITE }
}

#[test]
fn windows_that_one_unit_binds_open_and_close_in_all() {
    let _alone = alone("windows");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let mr = pd.mr_with(256, ALL);
    let [(first, a), (second, b)] = two(&ctx, &pd);
    let (c, d) = (pd.qp(&first, QpSpec::rc()), pd.qp(&second, QpSpec::rc()));
    // Each writes through a queue pair of the other's unit.
    connect(&a, &b);
    connect(&c, &d);
    let write = |n, key| Send::write(n, (mr.addr() + 64, key)).sge(mr.sge(0, 8));
    // Type 1: bound in the first unit, used by a queue pair of the second.
    let mw = pd.mw(IBV_MW_TYPE_1);
    let mut how = ibv_mw_bind { wr_id: 50, send_flags: IBV_SEND_SIGNALED, bind_info: bind(&mr, 64, 64) };
    // SAFETY: all exist.
    assert_eq!(unsafe { (ctx.ops().bind_mw.unwrap())(c.0, mw.0, &mut how) }, 0);
    first.expect(50, IBV_WC_SUCCESS);
    mr.set_word(0, 5);
    assert_eq!(a.post(write(1, mw.rkey())), 0);
    first.expect(1, IBV_WC_SUCCESS);
    assert_eq!(mr.word(8), 5);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr.mr) }, libc::EBUSY, "a window is bound to it, wherever");
    // Type 2: bound by the queue pair that it opens, and closed by it.
    let mw2 = pd.mw(IBV_MW_TYPE_2);
    let key = mw2.rkey() + 1;
    assert_eq!(d.post(Send::bind(2, &mw2, key, bind(&mr, 64, 8))), 0);
    second.expect(2, IBV_WC_SUCCESS);
    mr.set_word(0, 6);
    assert_eq!(c.post(write(3, key)), 0);
    first.expect(3, IBV_WC_SUCCESS);
    assert_eq!(mr.word(8), 6);
    assert_eq!(d.post(Send::local_inv(4, key)), 0);
    second.expect(4, IBV_WC_SUCCESS);
    assert_eq!(c.post(write(5, key)), 0);
    first.expect(5, IBV_WC_REM_ACCESS_ERR);
    // A region's key nobody invalidates.
    let more = pd.mr_with(64, ALL);
    assert_eq!(b.post(Send::local_inv(6, more.rkey())), 0);
    second.expect(6, IBV_WC_LOC_QP_OP_ERR);
    let e = pd.qp(&first, QpSpec::rc());
    connect(&e, &e);
    assert_eq!(e.post(Send::write(7, (more.addr(), more.rkey())).sge(mr.sge(0, 8))), 0);
    first.expect(7, IBV_WC_SUCCESS);
}

#[test]
fn a_protection_domain_is_used_by_queue_pairs_of_any_unit() {
    let _alone = alone("a protection domain");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let ends = two(&ctx, &pd);
    for (cq, qp) in ends {
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_dealloc_pd(pd.0) }, libc::EBUSY);
        drop(qp);
        drop(cq);
    }
    // Dropped, it insists on success.
}

#[test]
fn atomic_operations_of_several_units_are_atomic() {
    const EACH: u64 = 2000;
    let _alone = alone("atomics");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let target = pd.mr_with(64, ALL);
    target.set_word(0, 0);
    let ends = two(&ctx, &pd).map(|(cq, qp)| (qp, cq));
    std::thread::scope(|scope| {
        for (qp, cq) in &ends {
            let (pd, target) = (&pd, &target);
            scope.spawn(move || {
                let own = pd.mr_with(64, ALL);
                connect(qp, qp);
                for n in 0..EACH {
                    assert_eq!(qp.post(Send::add(n, (target.addr(), target.rkey()), 1).sge(own.sge(0, 8))), 0);
                    cq.expect(n, IBV_WC_SUCCESS);
                }
            });
        }
    });
    assert_eq!(target.word(0), 2 * EACH);
}

#[test]
fn threads_with_queues_of_their_own_write_what_they_mean_to() {
    let _alone = alone("threads with queues of their own");
    let ctx = open("threads0");
    let pd = ctx.pd();
    let slots = AtomicU64::new(0);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (ctx, pd, slots, barrier) = (&ctx, &pd, &slots, &barrier);
            scope.spawn(move || {
                let cq = ctx.cq(64);
                let (a, b) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&cq, QpSpec::rc()));
                assert_eq!(slot(&a), slot(&b), "one thread, one unit");
                slots.fetch_xor(u64::from(slot(&a)), Ordering::SeqCst);
                connect(&a, &b);
                barrier.wait();
                // While the other writes, regions come and go.
                for round in 0..200 {
                    let mr = pd.mr_with(8192, ALL);
                    for word in 0..512 {
                        mr.set_word(word, round << 32 | thread << 16 | word as u64);
                    }
                    assert_eq!(a.post(Send::write(round, (mr.addr() + 4096, mr.rkey())).sge(mr.sge(0, 4096))), 0);
                    cq.expect(round, IBV_WC_SUCCESS);
                    for word in 0..512 {
                        assert_eq!(mr.word(512 + word), round << 32 | thread << 16 | word as u64);
                    }
                }
                barrier.wait();
            });
        }
    });
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    assert_eq!(slots.into_inner() != 0, cores > 1, "two units where there are two cores");
}

#[test]
fn a_queue_goes_to_the_unit_of_the_thread_that_polls_it() {
    let _alone = alone("queues that others made");
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        irnic_testkit::skipped("units by threads: there is one core");
        return;
    }
    let ctx = open("threads0");
    let pd = ctx.pd();
    let queues = [ctx.cq(16), ctx.cq(16), ctx.cq(16)];
    std::thread::scope(|scope| {
        for cq in &queues[..2] {
            scope.spawn(move || cq.expect_none());
        }
    });
    let qps: Vec<Qp> = queues.iter().map(|cq| pd.qp(cq, QpSpec::rc())).collect();
    assert_ne!(slot(&qps[0]), slot(&qps[1]));
    // SAFETY: another device's queues are refused.
    let other = open("turns0");
    let foreign = other.cq(4);
    let pointer = pd.try_qp(&queues[0], &foreign, QpSpec::rc());
    assert_eq!(refused(pointer), libc::EINVAL);
}

#[test]
fn a_child_begins_anew_whatever_threads_were_in_units() {
    let _alone = alone("a fork");
    let ctx = open("turns0");
    let pd = ctx.pd();
    let ends = two(&ctx, &pd).map(|(cq, qp)| (qp, cq));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (qp, cq) in &ends {
            let (ctx, pd, over) = (&ctx, &pd, &over);
            scope.spawn(move || {
                connect(qp, qp);
                let mut n = 0;
                while !over.load(Ordering::SeqCst) {
                    n += 1;
                    let mr = pd.mr_with(64, ALL);
                    assert_eq!(qp.post(Send::write(n, (mr.addr(), mr.rkey())).sge(mr.sge(32, 8))), 0);
                    cq.expect(n, IBV_WC_SUCCESS);
                    // Goes to a unit, too.
                    let more = ctx.cq(4);
                    more.arm(false);
                    drop(pd.qp(&more, QpSpec::rc()));
                }
            });
        }
        for _ in 0..20 {
            // SAFETY: the child opens the device, and ends without going back.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: no memory is passed.
                unsafe { libc::alarm(30) };
                let done = std::panic::catch_unwind(|| {
                    let ctx = open("turns0");
                    let pd = ctx.pd();
                    let mr = pd.mr_with(64, ALL);
                    for (cq, qp) in two(&ctx, &pd) {
                        connect(&qp, &qp);
                        mr.set_word(0, 9);
                        assert_eq!(qp.post(Send::write(1, (mr.addr() + 8, mr.rkey())).sge(mr.sge(0, 8))), 0);
                        cq.expect(1, IBV_WC_SUCCESS);
                        assert_eq!(mr.word(1), 9);
                        drop(qp);
                    }
                });
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(done.is_err())) };
            }
            let mut status = -1;
            // SAFETY: the child is this process's, and a number is written.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        over.store(true, Ordering::SeqCst);
    });
}
