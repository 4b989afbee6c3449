//! Many threads on one device: nothing is lost, nothing hangs. The schedule of each thread follows from a seed.

mod kit;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use irnic_verbs::abi::consts::*;
use kit::{ALL, Ctx, Dice, PATIENCE, QKEY, Qp, QpSpec, Recv, Send, Watchdog, connect};

fn open() -> Ctx {
    kit::configure("threads0", [72, 1]);
    Ctx::open()
}

/// How long the threads run, each time.
const SOME_TIME: Duration = Duration::from_secs(2);

#[test]
fn threads_that_share_queues_lose_nothing() {
    let _watchdog = Watchdog::start("threads that share queues");
    let ctx = open();
    let pd = ctx.pd();
    let (send_cq, recv_cq) = (ctx.cq(4096), ctx.cq(4096));
    let srq = pd.srq(512, 1);
    let mr = pd.mr(4096);
    let mut spec = QpSpec::rc();
    spec.cap.max_send_wr = 32;
    let qps: Vec<Qp> = (0..4).map(|_| pd.qp_on(&send_cq, &recv_cq, spec.srq(&srq))).collect();
    connect(&qps[0], &qps[1]);
    connect(&qps[2], &qps[2]);
    connect(&qps[3], &qps[3]);
    let (posted, sent, received, refilled) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let posting = AtomicU64::new(3);
    let seed = Dice::new(0x7ead).next();
    std::thread::scope(|scope| {
        let (qps, srq, mr, send_cq, recv_cq, over) = (&qps, &srq, &mr, &send_cq, &recv_cq, &over);
        let (posted, sent, received, refilled, posting) = (&posted, &sent, &received, &refilled, &posting);
        for thread in 0..3 {
            scope.spawn(move || {
                let mut dice = Dice(seed + thread);
                while !over.load(Ordering::SeqCst) {
                    let qp = &qps[dice.below(4)];
                    let mut list: Vec<Send> = (0..1 + dice.below(4))
                        .map(|_| Send::message(dice.next()).sge(mr.sge(0, dice.below(4096))))
                        .collect();
                    let len = list.len();
                    let (outcome, bad) = qp.post_list(&mut list);
                    assert!(outcome == 0 || outcome == libc::ENOMEM, "errno {outcome}");
                    posted.fetch_add(bad.unwrap_or(len) as u64, Ordering::SeqCst);
                }
                posting.fetch_sub(1, Ordering::SeqCst);
            });
        }
        scope.spawn(move || {
            while posting.load(Ordering::SeqCst) > 0 || received.load(Ordering::SeqCst) < posted.load(Ordering::SeqCst)
            {
                match srq.post(Recv::new(1).sge(mr.sge(0, 4096))) {
                    0 => _ = refilled.fetch_add(1, Ordering::SeqCst),
                    outcome => {
                        assert_eq!(outcome, libc::ENOMEM);
                        std::thread::yield_now();
                    }
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                let start = Instant::now();
                loop {
                    for (cq, count) in [(send_cq, sent), (recv_cq, received)] {
                        let (n, wcs) = cq.poll_many(16);
                        assert!(n >= 0);
                        for wc in wcs {
                            assert_eq!(wc.status, IBV_WC_SUCCESS);
                        }
                        count.fetch_add(n as u64, Ordering::SeqCst);
                    }
                    if start.elapsed() > SOME_TIME {
                        over.store(true, Ordering::SeqCst);
                        let ended = posting.load(Ordering::SeqCst) == 0;
                        let all = posted.load(Ordering::SeqCst);
                        if ended && sent.load(Ordering::SeqCst) >= all && received.load(Ordering::SeqCst) >= all {
                            break;
                        }
                    }
                    assert!(start.elapsed() < PATIENCE, "{posted:?} posted, {sent:?} sent, {received:?} received");
                }
            });
        }
    });
    let all = posted.load(Ordering::SeqCst);
    send_cq.expect_none();
    recv_cq.expect_none();
    assert_eq!((sent.into_inner(), received.into_inner()), (all, all));
    assert!(all > 100, "{all} messages");
}

#[test]
fn objects_come_and_go_while_others_work() {
    let _watchdog = Watchdog::start("threads that create and destroy");
    let ctx = open();
    let seed = Dice::new(0xc0de).next();
    let start = Instant::now();
    let shared = Mutex::new(Vec::<u32>::new());
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let (ctx, shared) = (&ctx, &shared);
            scope.spawn(move || {
                let mut dice = Dice(seed + thread);
                while start.elapsed() < SOME_TIME {
                    let own;
                    let ctx = if dice.below(4) == 0 {
                        own = open();
                        &own
                    } else {
                        ctx
                    };
                    let pd = ctx.pd();
                    let channel = ctx.channel();
                    kit::never_block(channel.fd());
                    let cq = ctx.cq_on(64, channel.0);
                    let mr = pd.mr(4096);
                    let srq = pd.srq(16, 1);
                    let spec = match dice.below(4) {
                        0 => QpSpec::ud(),
                        1 => QpSpec::uc(),
                        2 => QpSpec::rc().srq(&srq),
                        _ => QpSpec::rc(),
                    };
                    let qp = pd.qp(&cq, spec);
                    connect(&qp, &qp);
                    let ah = pd.ah(ctx.gid());
                    // Somebody else's queue pair, that may be gone.
                    let stranger = {
                        let mut numbers = shared.lock().unwrap();
                        numbers.push(qp.num());
                        if numbers.len() > 16 {
                            numbers.swap_remove(0);
                        }
                        dice.pick(&numbers)
                    };
                    for round in 0..dice.below(8) as u64 {
                        cq.arm(dice.below(2) == 0);
                        let recv = Recv::new(round).sge(mr.sge(0, 2048));
                        assert_eq!(
                            if qp.service() == IBV_QPT_RC && spec.srq == srq.0 {
                                srq.post(recv)
                            } else {
                                qp.recv(recv)
                            },
                            0
                        );
                        let mut send = Send::message(round).sge(mr.sge(2048, 256));
                        if qp.service() == IBV_QPT_UD {
                            send = send.to(&ah, stranger, QKEY);
                        }
                        assert_eq!(qp.post(send), 0);
                        if dice.below(2) == 0 {
                            cq.poll();
                        }
                        while let Ok(ready) = channel.take() {
                            assert_eq!(ready, cq.0);
                            cq.ack(1);
                        }
                        if dice.below(16) == 0 {
                            assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
                            break;
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_thread_sleeps_in_ibv_get_cq_event_until_something_comes() {
    let _watchdog = Watchdog::start("ibv_get_cq_event");
    let ctx = open();
    let pd = ctx.pd();
    let channel = ctx.channel();
    let (send_cq, recv_cq) = (ctx.cq(64), ctx.cq_on(64, channel.0));
    let mr = pd.mr(64);
    let (a, b) = (pd.qp(&send_cq, QpSpec::rc()), pd.qp(&recv_cq, QpSpec::rc()));
    connect(&a, &b);
    let go = AtomicU64::new(0);
    const MESSAGES: u64 = 200;
    std::thread::scope(|scope| {
        let (b, recv_cq, channel, go, mr) = (&b, &recv_cq, &channel, &go, &mr);
        scope.spawn(move || {
            for n in 0..MESSAGES {
                assert_eq!(b.recv(Recv::new(n).sge(mr.sge(0, 8))), 0);
                assert_eq!(recv_cq.arm(false), 0);
                go.store(n + 1, Ordering::SeqCst);
                // Blocks.
                assert_eq!(channel.take(), Ok(recv_cq.0));
                recv_cq.ack(1);
                recv_cq.expect(n, IBV_WC_SUCCESS);
            }
        });
        for n in 0..MESSAGES {
            while go.load(Ordering::SeqCst) <= n {
                std::thread::yield_now();
            }
            if n % 16 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
            assert_eq!(a.post(Send::message(n).sge(mr.sge(8, 8))), 0);
            send_cq.expect(n, IBV_WC_SUCCESS);
        }
    });
}

#[test]
fn data_reaches_a_thread_that_only_looks_at_memory() {
    let _watchdog = Watchdog::start("a thread that spins on memory");
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let mr = pd.mr_with(64, ALL);
    let mut spec = QpSpec::uc();
    // Slots are free again when completions are polled.
    spec.cap.max_send_wr = 128;
    let (a, b) = (pd.qp(&cq, spec), pd.qp(&cq, QpSpec::uc()));
    connect(&a, &b);
    std::thread::scope(|scope| {
        let (mr, a) = (&mr, &a);
        // Neither thread polls: what was posted is carried on by whoever there is.
        scope.spawn(move || {
            for n in 1..100 {
                mr.set_word(1, n);
                let write = Send::write(n, (mr.addr(), mr.rkey())).sge(mr.sge(8, 8)).unsignaled();
                assert_eq!(a.post(if n % 8 == 0 { write.flags(IBV_SEND_SIGNALED) } else { write }), 0);
                kit::wait_for("the data", || (mr.word(0) == n).then_some(()));
            }
        });
    });
    for n in (8..100).step_by(8) {
        cq.expect(n, IBV_WC_SUCCESS);
    }
}

#[test]
fn readers_of_a_channel_and_its_queues_end_do_not_wait_for_each_other() {
    let _watchdog = Watchdog::start("a purge beside a reader");
    let ctx = open();
    let pd = ctx.pd();
    let channel = ctx.channel();
    let last = ctx.cq_on(4, channel.0);
    let bell = pd.qp(&last, QpSpec::uc());
    let over = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (channel, over) = (&channel, &over);
        scope.spawn(move || {
            // Blocks, and acknowledges whatever it gets; destroying waits for that.
            while let Ok(cq) = channel.take() {
                // SAFETY: a queue with an event that is not acknowledged is not freed.
                unsafe { irnic_verbs::calls::ibv_ack_cq_events(cq, 1) };
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        while start.elapsed() < SOME_TIME / 2 {
            let cq = ctx.cq_on(4, channel.0);
            let qp = pd.qp(&cq, QpSpec::uc());
            cq.arm(false);
            assert_eq!(qp.to_state(IBV_QPS_INIT), libc::EINVAL);
            qp.bring(IBV_QPS_INIT, &qp.attr(0));
            assert_eq!(qp.recv(Recv::new(1)), 0);
            assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
        }
        over.store(true, Ordering::SeqCst);
        last.arm(false);
        bell.bring(IBV_QPS_INIT, &bell.attr(0));
        assert_eq!(bell.recv(Recv::new(1)), 0);
        assert_eq!(bell.to_state(IBV_QPS_ERR), 0);
    });
}
