//! Extended reliable connections: domains and who shares them, what names what, and messages to the queue named.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::{ibv_create_qp, ibv_dealloc_pd, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp};
use libc::{EAGAIN, EBADF, EBUSY, EINVAL, EOPNOTSUPP, O_CREAT, O_EXCL};

use crate::kit::{Cq, Ctx, Pd, Qp, QpSpec, Recv, Send, Srq, errno, zeroed};
use crate::open;

/// A handle on an XRC domain.
struct Xrcd(*mut ibv_xrcd);

impl Drop for Xrcd {
    fn drop(&mut self) {
        let outcome = close(self.0);
        assert!(std::thread::panicking() || outcome == 0, "the domain is not closed: {outcome}");
    }
}

fn try_xrcd(ctx: &Ctx, fd: RawFd, oflags: i32) -> Result<Xrcd, i32> {
    let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    let mut attr = ibv_xrcd_init_attr { comp_mask, fd, oflags };
    // SAFETY: open; filled.
    let xrcd = unsafe { (ctx.table().open_xrcd.unwrap())(ctx.0, &mut attr) };
    if xrcd.is_null() { Err(errno()) } else { Ok(Xrcd(xrcd)) }
}

fn xrcd(ctx: &Ctx) -> Xrcd {
    try_xrcd(ctx, -1, O_CREAT).expect("a domain")
}

fn close(xrcd: *mut ibv_xrcd) -> i32 {
    // SAFETY: exists; the table is found as verbs.h finds it.
    unsafe {
        let table: *const verbs_context = (*xrcd).context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast();
        ((*table).close_xrcd.unwrap())(xrcd)
    }
}

fn try_srq(ctx: &Ctx, pd: &Pd, xrcd: &Xrcd, cq: &Cq, change: impl Fn(&mut ibv_srq_init_attr_ex)) -> *mut ibv_srq {
    let mut init: ibv_srq_init_attr_ex = zeroed();
    (init.attr.max_wr, init.attr.max_sge, init.srq_type) = (16, 2, IBV_SRQT_XRC);
    (init.pd, init.xrcd, init.cq) = (pd.0, xrcd.0, cq.0);
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    change(&mut init);
    // SAFETY: filled.
    unsafe { (ctx.table().create_srq_ex.unwrap())(ctx.0, &mut init) }
}

fn srq(ctx: &Ctx, pd: &Pd, xrcd: &Xrcd, cq: &Cq) -> Srq {
    let srq = try_srq(ctx, pd, xrcd, cq, |_| ());
    assert!(!srq.is_null(), "errno {}", errno());
    Srq(srq)
}

fn number(ctx: &Ctx, srq: &Srq) -> Result<u32, i32> {
    let mut number = 0;
    // SAFETY: exists.
    match unsafe { (ctx.table().get_srq_num.unwrap())(srq.0, &mut number) } {
        0 => Ok(number),
        e => Err(e),
    }
}

fn try_target(ctx: &Ctx, xrcd: *mut ibv_xrcd, comp_mask: u32) -> *mut ibv_qp {
    let mut init: ibv_qp_init_attr_ex = zeroed();
    (init.qp_type, init.comp_mask, init.xrcd) = (IBV_QPT_XRC_RECV, comp_mask, xrcd);
    // SAFETY: filled.
    unsafe { (ctx.table().create_qp_ex.unwrap())(ctx.0, &mut init) }
}

fn target(ctx: &Ctx, xrcd: &Xrcd) -> Qp {
    let qp = try_target(ctx, xrcd.0, IBV_QP_INIT_ATTR_XRCD);
    assert!(!qp.is_null(), "errno {}", errno());
    Qp(qp)
}

fn initiator(pd: &Pd, cq: &Cq) -> Qp {
    pd.qp(cq, QpSpec::new(IBV_QPT_XRC_SEND))
}

fn try_open(ctx: &Ctx, xrcd: &Xrcd, number: u32, kind: u32) -> *mut ibv_qp {
    let mut attr: ibv_qp_open_attr = zeroed();
    (attr.qp_num, attr.xrcd, attr.qp_type) = (number, xrcd.0, kind);
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    // SAFETY: filled.
    unsafe { (ctx.table().open_qp.unwrap())(ctx.0, &mut attr) }
}

/// Takes a queue pair to RTS with the attributes that the kernel demands of its type, and no others.
fn bring(qp: &Qp, dest: u32) {
    let common = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let (rtr, rts) = match qp.service() {
        IBV_QPT_XRC_RECV => (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, IBV_QP_TIMEOUT),
        _ => (0, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
    };
    let mut attr = qp.attr(dest);
    let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    for (state, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_RTR, common | rtr), (IBV_QPS_RTS, IBV_QP_SQ_PSN | rts)] {
        attr.qp_state = state;
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_modify_qp(qp.0, &mut attr, (mask | IBV_QP_STATE) as i32) }, 0, "to {state}");
    }
}

/// Programs set the attributes of both halves, and the kernel takes no notice of those of the other.
#[test]
fn attributes_of_the_half_that_is_not_there_are_dropped() {
    let ctx = open();
    let (pd, cq, domain) = (ctx.pd(), ctx.cq(4), xrcd(&ctx));
    for qp in [initiator(&pd, &cq), target(&ctx, &domain)] {
        let mut attr = qp.attr(qp.num());
        let both = [
            (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            (
                IBV_QPS_RTR,
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
            ),
            (
                IBV_QPS_RTS,
                IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
            ),
        ];
        for (state, mask) in both {
            attr.qp_state = state;
            // SAFETY: exists.
            assert_eq!(unsafe { ibv_modify_qp(qp.0, &mut attr, (mask | IBV_QP_STATE) as i32) }, 0, "to {state}");
        }
    }
}

fn join(initiator: &Qp, target: &Qp) {
    bring(target, initiator.num());
    bring(initiator, target.num());
}

fn to(mut send: Send, srqn: u32) -> Send {
    send.wr.qp_type.xrc = ibv_wr_xrc { remote_srqn: srqn };
    send
}

#[test]
fn each_message_goes_to_the_queue_that_it_names_and_completes_where_that_says() {
    let ctx = open();
    let (pd, remote) = (ctx.pd(), [ctx.pd(), ctx.pd()]);
    let (cq, recv_cqs) = (ctx.cq(16), [ctx.cq(16), ctx.cq(16)]);
    let domain = xrcd(&ctx);
    let srqs = [0, 1].map(|i| srq(&ctx, &remote[i], &domain, &recv_cqs[i]));
    let numbers = [0, 1].map(|i| number(&ctx, &srqs[i]).unwrap());
    assert_ne!(numbers[0], numbers[1]);
    let (sender, receiver) = (initiator(&pd, &cq), target(&ctx, &domain));
    join(&sender, &receiver);
    let (from, into) = (pd.mr(4096), remote.each_ref().map(|pd| pd.mr(4096)));
    from.write(0, b"which queue?");
    for i in [0, 1] {
        assert_eq!(srqs[i].post(Recv::new(10 + i as u64).sge(into[i].sge(0, 64))), 0);
    }
    for (wr_id, i) in [(1, 1), (2, 0)] {
        let message = Send::message(wr_id).sge(from.sge(0, 12)).imm(wr_id as u32);
        assert_eq!(sender.post(to(message, numbers[i])), 0);
        let wc = recv_cqs[i].expect(10 + i as u64, IBV_WC_SUCCESS);
        assert_eq!((wc.qp_num, wc.byte_len, wc.opcode), (receiver.num(), 12, IBV_WC_RECV));
        assert_eq!(into[i].read(0, 12), b"which queue?");
        cq.expect(wr_id, IBV_WC_SUCCESS);
    }
    // The queue's protection domain is that of the memory which a request reaches.
    let own = (into[0].addr() + 512, into[0].rkey());
    for (wr_id, send) in [
        (3, Send::write(3, own).sge(from.sge(0, 8))),
        (4, Send::read(4, own).sge(from.sge(128, 8))),
        (5, Send::add(5, (own.0 + 8, own.1), 7).sge(from.sge(256, 8))),
    ] {
        assert_eq!(sender.post(to(send, numbers[0])), 0);
        cq.expect(wr_id, IBV_WC_SUCCESS);
    }
    assert_eq!((from.read(128, 8), into[0].word(65)), (b"which qu".to_vec(), 7));
    assert_eq!(sender.post(to(Send::write(6, own).sge(from.sge(0, 8)), numbers[1])), 0);
    cq.expect(6, IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn a_request_to_a_queue_of_another_domain_or_of_none_breaks_the_connection() {
    let ctx = open();
    let (pd, cq, recv_cq) = (ctx.pd(), ctx.cq(16), ctx.cq(16));
    let (domain, other) = (xrcd(&ctx), xrcd(&ctx));
    let (own, foreign) = (srq(&ctx, &pd, &domain, &recv_cq), srq(&ctx, &pd, &other, &recv_cq));
    let basic = pd.srq(4, 1);
    assert_eq!(number(&ctx, &basic), Err(EOPNOTSUPP));
    let mr = pd.mr(64);
    for wrong in [number(&ctx, &foreign).unwrap(), number(&ctx, &own).unwrap() ^ 0x3fff, 0] {
        let (sender, receiver) = (initiator(&pd, &cq), target(&ctx, &domain));
        join(&sender, &receiver);
        assert_eq!(sender.post(to(Send::message(1).sge(mr.sge(0, 8)), wrong)), 0);
        cq.expect(1, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(receiver.query().0.qp_state, IBV_QPS_ERR);
    }
    recv_cq.expect_none();
}

#[test]
fn the_extended_calls_name_the_queue_too() {
    let ctx = open();
    let (pd, cq, recv_cq, domain) = (ctx.pd(), ctx.cq(16), ctx.cq(16), xrcd(&ctx));
    let queue = srq(&ctx, &pd, &domain, &recv_cq);
    let sender = pd.qp(&cq, QpSpec::new(IBV_QPT_XRC_SEND).ops(IBV_QP_EX_WITH_SEND));
    let receiver = target(&ctx, &domain);
    join(&sender, &receiver);
    let mr = pd.mr(64);
    assert_eq!(queue.post(Recv::new(7).sge(mr.sge(32, 32))), 0);
    let batch = sender.batch();
    batch.start();
    batch.id(1, IBV_SEND_SIGNALED);
    batch.send();
    // SAFETY: exists.
    unsafe { ((*batch.0).wr_set_xrc_srqn.unwrap())(batch.0, number(&ctx, &queue).unwrap()) };
    batch.sge(mr.sge(0, 8));
    assert_eq!(batch.complete(), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    recv_cq.expect(7, IBV_WC_SUCCESS);
}

#[test]
fn a_file_names_a_domain_while_somebody_has_it_open() {
    let (ctx, second) = (open(), open());
    let file = tempfile::tempfile().expect("a file");
    let (fd, again) = (file.as_raw_fd(), file.try_clone().expect("a descriptor"));
    assert_eq!(try_xrcd(&ctx, fd, 0).err(), Some(EAGAIN), "no O_CREAT, and none there");
    let first = try_xrcd(&ctx, fd, O_CREAT | O_EXCL).expect("a new one");
    assert_eq!(try_xrcd(&second, again.as_raw_fd(), O_CREAT | O_EXCL).err(), Some(EINVAL));
    let shared = try_xrcd(&second, again.as_raw_fd(), 0).expect("the same");
    let other = try_xrcd(&ctx, tempfile::tempfile().expect("a file").as_raw_fd(), O_CREAT).expect("another");
    // A message to a target by one handle reaches a queue by the other.
    let (pd, theirs) = (ctx.pd(), second.pd());
    let (cq, recv_cq) = (ctx.cq(4), second.cq(4));
    let queue = srq(&second, &theirs, &shared, &recv_cq);
    let (sender, receiver) = (initiator(&pd, &cq), target(&ctx, &first));
    join(&sender, &receiver);
    let (mr, into) = (pd.mr(64), theirs.mr(64));
    assert_eq!(queue.post(Recv::new(5).sge(into.sge(0, 64))), 0);
    assert_eq!(sender.post(to(Send::message(1).sge(mr.sge(0, 8)), number(&second, &queue).unwrap())), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    recv_cq.expect(5, IBV_WC_SUCCESS);
    // What is in a domain keeps the handle, and whoever has one keeps the domain.
    assert_eq!((close(first.0), close(shared.0)), (EBUSY, EBUSY));
    drop(receiver);
    drop(first);
    assert_eq!(try_xrcd(&ctx, fd, O_CREAT | O_EXCL).err(), Some(EINVAL));
    drop((queue, shared));
    assert_eq!(try_xrcd(&ctx, fd, 0).err(), Some(EAGAIN));
    drop(other);
}

#[test]
fn what_is_wrong_with_a_domain_is_said() {
    let ctx = open();
    for (comp_mask, fd, errno) in [
        (IBV_XRCD_INIT_ATTR_FD, -1, EINVAL),
        (IBV_XRCD_INIT_ATTR_OFLAGS, -1, EINVAL),
        (7, -1, EOPNOTSUPP),
        (3, -2, EINVAL),
        (3, 1_000_000, EBADF),
    ] {
        let mut attr = ibv_xrcd_init_attr { comp_mask, fd, oflags: O_CREAT };
        // SAFETY: open; filled.
        assert!(unsafe { (ctx.table().open_xrcd.unwrap())(ctx.0, &mut attr) }.is_null());
        assert_eq!(crate::kit::errno(), errno, "comp_mask {comp_mask:#x}, fd {fd}");
    }
    assert_eq!(try_xrcd(&ctx, -1, 0).err(), Some(EAGAIN));
}

#[test]
fn queues_and_queue_pairs_need_what_they_are_made_of() {
    let ctx = open();
    let (pd, cq, domain) = (ctx.pd(), ctx.cq(4), xrcd(&ctx));
    let none = Xrcd(null_mut());
    for (missing, name) in [(IBV_SRQ_INIT_ATTR_XRCD, "domain"), (IBV_SRQ_INIT_ATTR_CQ, "completion queue")] {
        assert!(try_srq(&ctx, &pd, &domain, &cq, |init| init.comp_mask &= !missing).is_null(), "{name}");
        assert_eq!(errno(), EINVAL, "{name}");
    }
    assert!(try_srq(&ctx, &pd, &none, &cq, |_| ()).is_null());
    assert_eq!(errno(), EINVAL);
    std::mem::forget(none);
    assert!(try_srq(&ctx, &pd, &domain, &cq, |init| init.srq_type = IBV_SRQT_TM).is_null());
    assert_eq!(errno(), EOPNOTSUPP);
    for (xrcd, mask) in [(domain.0, 0), (null_mut(), IBV_QP_INIT_ATTR_XRCD)] {
        assert!(try_target(&ctx, xrcd, mask).is_null());
        assert_eq!(errno(), EINVAL);
    }
    let mut init: ibv_qp_init_attr = zeroed();
    init.qp_type = IBV_QPT_XRC_RECV;
    // SAFETY: filled.
    assert!(unsafe { ibv_create_qp(pd.0, &mut init) }.is_null());
    assert_eq!(errno(), EINVAL);
    // An initiator has no receive queue, a target no queue at all.
    let (basic, sender, receiver) = (pd.srq(4, 1), initiator(&pd, &cq), target(&ctx, &domain));
    assert!(pd.try_qp(&cq, &cq, QpSpec::new(IBV_QPT_XRC_SEND).srq(&basic)).is_null());
    assert_eq!(errno(), EINVAL);
    join(&sender, &receiver);
    assert_eq!((sender.query().1.cap.max_recv_wr, receiver.query().1.cap.max_send_wr), (0, 0));
    assert_eq!((sender.recv(Recv::new(1)), receiver.recv(Recv::new(1))), (EINVAL, EINVAL));
    assert_eq!(receiver.post(Send::message(1)), EINVAL);
    // Queues are held by what is in them.
    let queue = srq(&ctx, &pd, &domain, &cq);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dealloc_pd(pd.0) }, EBUSY);
    // SAFETY: exists.
    assert_eq!(unsafe { irnic_verbs::calls::ibv_destroy_cq(cq.0) }, EBUSY);
    drop(queue);
}

#[test]
fn handles_share_a_target_and_the_last_one_ends_it() {
    let (ctx, second) = (open(), open());
    second.never_block();
    ctx.never_block();
    let file = tempfile::tempfile().expect("a file");
    let domains = [&ctx, &second].map(|ctx| try_xrcd(ctx, file.as_raw_fd(), O_CREAT).expect("a domain"));
    let (pd, cq) = (ctx.pd(), ctx.cq(8));
    let (sender, receiver) = (initiator(&pd, &cq), target(&ctx, &domains[0]));
    let number = receiver.num();
    assert!(try_open(&second, &domains[1], number + 1, IBV_QPT_XRC_RECV).is_null());
    assert_eq!(errno(), EINVAL);
    assert!(try_open(&second, &domains[1], number, IBV_QPT_RC).is_null());
    assert_eq!(errno(), EINVAL);
    assert!(try_open(&second, &domains[1], sender.num(), IBV_QPT_XRC_RECV).is_null());
    let handle = Qp(try_open(&second, &domains[1], number, IBV_QPT_XRC_RECV));
    assert!(!handle.0.is_null(), "errno {}", errno());
    assert_eq!((handle.num(), handle.service()), (number, IBV_QPT_XRC_RECV));
    // Either handle changes the one queue pair, and each hears of its events.
    join(&sender, &handle);
    assert_eq!(receiver.query().0.qp_state, IBV_QPS_RTS);
    assert_eq!(sender.post(to(Send::message(1), 0)), 0);
    cq.expect(1, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(ctx.event(), (IBV_EVENT_QP_ACCESS_ERR, receiver.0));
    assert_eq!(second.event(), (IBV_EVENT_QP_ACCESS_ERR, handle.0));
    drop(receiver);
    assert_eq!(handle.query().0.qp_state, IBV_QPS_ERR, "it lives as long as a handle");
    assert_eq!(handle.to_state(IBV_QPS_RESET), 0);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_destroy_qp(handle.0) }, 0);
    std::mem::forget(handle);
    assert!(try_open(&second, &domains[1], number, IBV_QPT_XRC_RECV).is_null(), "it is gone");
}

#[test]
fn a_queue_destroyed_amid_traffic_breaks_what_names_it_and_nothing_else() {
    let ctx = open();
    let (pd, cq, recv_cq, domain) = (ctx.pd(), ctx.cq(16), ctx.cq(16), xrcd(&ctx));
    let (destroyed, stays) = (srq(&ctx, &pd, &domain, &recv_cq), srq(&ctx, &pd, &domain, &recv_cq));
    let numbers = [number(&ctx, &destroyed).unwrap(), number(&ctx, &stays).unwrap()];
    let mr = pd.mr(64);
    let pairs = [0, 1].map(|_| {
        let (sender, receiver) = (initiator(&pd, &cq), target(&ctx, &domain));
        join(&sender, &receiver);
        (sender, receiver)
    });
    assert_eq!(stays.post(Recv::new(9).sge(mr.sge(0, 64))), 0);
    // SAFETY: exists, and targets do not hold it.
    assert_eq!(unsafe { ibv_destroy_srq(destroyed.0) }, 0);
    std::mem::forget(destroyed);
    assert_eq!(pairs[0].0.post(to(Send::message(1).sge(mr.sge(0, 8)), numbers[0])), 0);
    cq.expect(1, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(pairs[1].0.post(to(Send::message(2).sge(mr.sge(0, 8)), numbers[1])), 0);
    cq.expect(2, IBV_WC_SUCCESS);
    recv_cq.expect(9, IBV_WC_SUCCESS);
}

#[test]
fn a_target_names_the_protection_domain_that_it_was_made_with_and_does_not_keep_it() {
    let ctx = open();
    let xrcd = xrcd(&ctx);
    let pd = ctx.pd();
    let mut init: ibv_qp_init_attr_ex = zeroed();
    (init.qp_type, init.xrcd, init.pd) = (IBV_QPT_XRC_RECV, xrcd.0, pd.0);
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD;
    // SAFETY: filled.
    let qp = Qp(unsafe { (ctx.table().create_qp_ex.unwrap())(ctx.0, &mut init) });
    assert!(!qp.0.is_null(), "errno {}", errno());
    // SAFETY: exists.
    assert_eq!(unsafe { (*qp.0).pd }, pd.0);
    let pd = std::mem::ManuallyDrop::new(pd);
    // SAFETY: exists, and only its address is compared afterwards.
    assert_eq!(unsafe { ibv_dealloc_pd(pd.0) }, 0, "a target does not keep the domain busy");
}
