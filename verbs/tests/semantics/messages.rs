//! Posting and completing: which work requests are taken, which are refused and how.

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use libc::{EINVAL, ENOMEM};

use crate::kit::{Cq, Ctx, Mr, Pd, Qp, QpSpec, Recv, Send, connect, connect_with, wait_for};
use crate::open;

/// A queue pair connected with itself, and memory.
struct Loop {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    pd: Pd,
    ctx: Ctx,
}

impl Loop {
    fn new(spec: QpSpec) -> Loop {
        let ctx = open();
        let pd = ctx.pd();
        let cq = ctx.cq(64);
        let qp = pd.qp(&cq, spec);
        connect(&qp, &qp);
        Loop { qp, cq, mr: pd.mr(1 << 16), pd, ctx }
    }

    fn to(&self, at: usize) -> (u64, u32) {
        (self.mr.addr() + at as u64, self.mr.rkey())
    }
}

#[test]
fn bad_wr_names_the_first_that_is_refused_and_those_before_it_are_posted() {
    for spec in [QpSpec::rc(), QpSpec::uc()] {
        let l = Loop::new(spec);
        let mut list: Vec<Send> = (0..4).map(|i| Send::write(i, l.to(0)).sge(l.mr.sge(64, 8))).collect();
        list[2].wr.opcode = 99;
        assert_eq!(l.qp.post_list(&mut list), (EINVAL, Some(2)));
        l.cq.expect(0, IBV_WC_SUCCESS);
        l.cq.expect(1, IBV_WC_SUCCESS);
        l.cq.expect_none();
        let recvs = (0..3).map(|i| (0..if i == 1 { 5 } else { 1 }).fold(Recv::new(i), |r, _| r.sge(l.mr.sge(0, 8))));
        assert_eq!(l.qp.recv_list(recvs.collect()), (EINVAL, Some(1)), "five elements where four fit");
        assert_eq!(l.qp.post_list(&mut []), (0, None));
    }
}

#[test]
fn a_full_queue_says_enomem_until_completions_are_there() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let qp = pd.qp(&cq, QpSpec::rc());
    // Nobody answers.
    let silent = pd.qp(&cq, QpSpec::rc());
    silent.bring(IBV_QPS_INIT, &silent.attr(0));
    qp.bring(IBV_QPS_RTS, &qp.attr(silent.num()));
    let mut list: Vec<Send> = (0..20).map(Send::message).collect();
    assert_eq!(qp.post_list(&mut list), (ENOMEM, Some(16)));
    assert_eq!(qp.post(Send::message(99)), ENOMEM);
    let recvs = (0..20).map(Recv::new).collect();
    assert_eq!(qp.recv_list(recvs), (ENOMEM, Some(16)));
    assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
    assert_eq!(cq.poll_many(64).0, 32);
    assert_eq!(qp.post(Send::message(100)), 0);
    cq.expect(100, IBV_WC_WR_FLUSH_ERR);
}

#[test]
fn operations_of_other_services_are_refused() {
    let l = Loop::new(QpSpec::uc());
    for wr in [
        Send::read(1, l.to(0)).sge(l.mr.sge(64, 8)),
        Send::add(1, l.to(0), 1).sge(l.mr.sge(64, 8)),
        Send::swap(1, l.to(0), 0, 1).sge(l.mr.sge(64, 8)),
    ] {
        assert_eq!(l.qp.post(wr), EINVAL);
    }
    l.cq.expect_none();
    let ctx = open();
    let pd = ctx.pd();
    let (cq, mr, ah) = (ctx.cq(4), pd.mr(64), pd.ah(ctx.gid()));
    let ud = pd.qp(&cq, QpSpec::ud());
    connect(&ud, &ud);
    for opcode in [
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,
        IBV_WR_SEND_WITH_INV,
    ] {
        let wr = Send::new(1, opcode).sge(mr.sge(0, 8)).to(&ah, ud.num(), 1);
        assert_eq!(ud.post(wr), EINVAL, "opcode {opcode}");
    }
    let mut lost = Send::message(1).sge(mr.sge(0, 8));
    lost.wr.wr.ud = crate::kit::zeroed();
    assert_eq!(ud.post(lost), EINVAL, "without an address");
}

#[test]
fn opcodes_of_devices_that_can_more_are_unsupported_and_others_invalid() {
    let l = Loop::new(QpSpec::rc());
    for opcode in [IBV_WR_TSO, IBV_WR_DRIVER1, IBV_WR_FLUSH] {
        assert_eq!(l.qp.post(Send::new(1, opcode)), libc::EOPNOTSUPP, "opcode {opcode}");
    }
    for opcode in [12, 13, 16, 1000, u32::MAX] {
        assert_eq!(l.qp.post(Send::new(1, opcode)), EINVAL, "opcode {opcode}");
    }
}

#[test]
fn atomics_are_eight_aligned_bytes() {
    let l = Loop::new(QpSpec::rc());
    assert_eq!(l.qp.post(Send::add(1, l.to(0), 1).sge(l.mr.sge(64, 4))), EINVAL);
    assert_eq!(l.qp.post(Send::add(1, l.to(4), 1).sge(l.mr.sge(64, 8))), EINVAL);
    l.mr.set_word(0, 40);
    assert_eq!(l.qp.post(Send::add(1, l.to(0), 2).sge(l.mr.sge(64, 8))), 0);
    let wc = l.cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_FETCH_ADD, 8));
    assert_eq!((l.mr.word(0), l.mr.word(8)), (42, 40));
    // What is longer than the value is not touched.
    l.mr.set_word(9, u64::MAX);
    assert_eq!(l.qp.post(Send::add(3, l.to(0), 0).sge(l.mr.sge(64, 64))), 0);
    assert_eq!(l.cq.expect(3, IBV_WC_SUCCESS).byte_len, 8);
    assert_eq!((l.mr.word(8), l.mr.word(9)), (42, u64::MAX));
    // Returned values are scattered like any others.
    assert_eq!(l.qp.post(Send::swap(2, l.to(0), 42, 7).sge(l.mr.sge(128, 3)).sge(l.mr.sge(256, 5))), 0);
    assert_eq!(l.cq.expect(2, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
    assert_eq!((l.mr.word(0), l.mr.read(128, 3), l.mr.read(256, 5)), (7, vec![42, 0, 0], vec![0; 5]));
}

#[test]
fn inline_data_has_a_limit_and_may_change_after_posting() {
    for spec in [QpSpec::rc(), QpSpec::uc()] {
        let l = Loop::new(spec);
        let data = *b"ephemeral";
        let here = ibv_sge { addr: data.as_ptr() as u64, length: 9, lkey: 0xdead };
        assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(here).sge(here).flags(IBV_SEND_INLINE)), 0);
        l.cq.expect(1, IBV_WC_SUCCESS);
        // An unreliable write is complete when it is sent.
        wait_for("the data", || (l.mr.read(0, 19) == b"ephemeralephemeral\0").then_some(()));
        let all = l.mr.sge(0, 65);
        assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(all).flags(IBV_SEND_INLINE)), EINVAL);
        let halves = Send::write(1, l.to(0)).sge(l.mr.sge(0, 33)).sge(l.mr.sge(0, 32));
        assert_eq!(l.qp.post(halves.flags(IBV_SEND_INLINE)), EINVAL);
        let sum = ibv_sge { length: u32::MAX, ..l.mr.sge(0, 0) };
        assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(sum).sge(sum).flags(IBV_SEND_INLINE)), EINVAL);
        assert_eq!(l.qp.post(Send::write(2, l.to(0)).sge(l.mr.sge(256, 64)).flags(IBV_SEND_INLINE)), 0);
        l.cq.expect(2, IBV_WC_SUCCESS);
    }
    let l = Loop::new(QpSpec::rc());
    assert_eq!(l.qp.post(Send::read(1, l.to(0)).sge(l.mr.sge(64, 8)).flags(IBV_SEND_INLINE)), EINVAL);
}

#[test]
fn messages_of_nothing_are_messages() {
    for spec in [QpSpec::rc(), QpSpec::uc()] {
        let l = Loop::new(spec);
        let nothing = ibv_sge { addr: 0, length: 0, lkey: 0 };
        // Without elements, with an empty one of an unknown key, and inline.
        for variant in 0..3 {
            let with = |wr: Send| match variant {
                0 => wr,
                1 => wr.sge(nothing),
                _ => wr.sge(nothing).flags(IBV_SEND_INLINE),
            };
            assert_eq!(l.qp.recv(Recv::new(10)), 0);
            assert_eq!(l.qp.post(with(Send::message(1).imm(5))), 0);
            let mut both = [l.cq.wait(), l.cq.wait()];
            both.sort_by_key(|wc| wc.wr_id);
            assert_eq!([both[0].status, both[1].status], [IBV_WC_SUCCESS; 2]);
            assert_eq!((both[1].byte_len, both[1].opcode), (0, IBV_WC_RECV));
            // Neither key nor address is looked at (IBA 9.7.4.1.1).
            assert_eq!(l.qp.post(with(Send::write(2, (0x1234, 99)))), 0);
            assert_eq!(l.cq.expect(2, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
            assert_eq!(l.qp.recv(Recv::new(11)), 0);
            assert_eq!(l.qp.post(with(Send::write(3, (0x1234, 99)).imm(6))), 0);
            let mut both = [l.cq.wait(), l.cq.wait()];
            both.sort_by_key(|wc| wc.wr_id);
            assert_eq!((both[1].byte_len, both[1].opcode), (0, IBV_WC_RECV_RDMA_WITH_IMM));
            // SAFETY: a receive with immediate data.
            assert_eq!(unsafe { both[1].data.imm_data }, 6_u32.to_be());
        }
        if l.qp.service() == IBV_QPT_RC {
            assert_eq!(l.qp.post(Send::read(4, (0x1234, 99))), 0);
            l.cq.expect(4, IBV_WC_SUCCESS);
        }
    }
}

#[test]
fn data_is_gathered_and_scattered_over_all_elements() {
    let mut spec = QpSpec::rc();
    (spec.cap.max_send_sge, spec.cap.max_recv_sge) = (30, 30);
    let l = Loop::new(spec);
    let bytes: Vec<u8> = (0..3000_u32).map(|i| (i % 251) as u8).collect();
    l.mr.write(0, &bytes);
    // 30 elements of 100 bytes, every other one empty in the receive.
    let send = (0..30).fold(Send::message(1), |wr, i| wr.sge(l.mr.sge(100 * i, 100)));
    let recv = (0..30).fold(Recv::new(2), |wr, i| wr.sge(l.mr.sge(8192 + 210 * i, if i % 2 == 0 { 201 } else { 0 })));
    assert_eq!(l.qp.recv(recv), 0);
    assert_eq!(l.qp.post(send), 0);
    let mut both = [l.cq.wait(), l.cq.wait()];
    both.sort_by_key(|wc| wc.wr_id);
    assert_eq!([both[0].status, both[1].status, both[1].byte_len], [IBV_WC_SUCCESS, IBV_WC_SUCCESS, 3000]);
    let got: Vec<u8> = (0..15).flat_map(|i| l.mr.read(8192 + 420 * i, 201)).take(3000).collect();
    assert!(got == bytes);
    let too_many = (0..31).fold(Send::message(1), |wr, _| wr.sge(l.mr.sge(0, 1)));
    assert_eq!(l.qp.post(too_many), EINVAL);
    let mut negative = Send::message(1);
    negative.wr.num_sge = -1;
    negative.wr.sg_list = std::ptr::null_mut();
    let mut bad = std::ptr::null_mut();
    // SAFETY: no element is read.
    let outcome = unsafe { (l.ctx.ops().post_send.unwrap())(l.qp.0, &mut negative.wr, &mut bad) };
    assert_eq!(outcome, EINVAL);
    assert_eq!(bad, &raw mut negative.wr);
}

#[test]
fn a_message_longer_than_a_gigabyte_is_refused() {
    let l = Loop::new(QpSpec::rc());
    let big = ibv_sge { length: (1 << 30) + 1, ..l.mr.sge(0, 0) };
    assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(big)), EINVAL);
    let huge = ibv_sge { length: u32::MAX, ..l.mr.sge(0, 0) };
    assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(huge).sge(huge)), EINVAL);
}

#[test]
fn unsignaled_requests_complete_only_in_error_unless_all_are_signaled() {
    let l = Loop::new(QpSpec::rc());
    assert_eq!(l.qp.post(Send::write(1, l.to(0)).sge(l.mr.sge(64, 8)).unsignaled()), 0);
    assert_eq!(l.qp.post(Send::write(2, l.to(0)).sge(l.mr.sge(64, 8))), 0);
    l.cq.expect(2, IBV_WC_SUCCESS);
    assert_eq!(l.qp.post(Send::write(3, l.to(0)).sge(ibv_sge { lkey: 3, ..l.mr.sge(64, 8) }).unsignaled()), 0);
    assert_eq!(l.qp.post(Send::write(4, l.to(0)).sge(l.mr.sge(64, 8)).unsignaled()), 0);
    l.cq.expect(3, IBV_WC_LOC_PROT_ERR);
    l.cq.expect(4, IBV_WC_WR_FLUSH_ERR);
    let all = Loop::new(QpSpec { sig_all: true, ..QpSpec::rc() });
    assert_eq!(all.qp.post(Send::write(5, all.to(0)).sge(all.mr.sge(64, 8)).unsignaled()), 0);
    all.cq.expect(5, IBV_WC_SUCCESS);
}

#[test]
fn what_a_peer_may_not_do_fails_there_and_here() {
    type Wr = fn(&Loop) -> Send;
    let cases: [(&str, Wr, u32); 6] = [
        ("unknown key", |l| Send::write(1, (l.mr.addr(), l.mr.rkey() ^ 1)).sge(l.mr.sge(0, 8)), IBV_WC_REM_ACCESS_ERR),
        ("beyond the end", |l| Send::write(1, l.to((1 << 16) - 4)).sge(l.mr.sge(0, 8)), IBV_WC_REM_ACCESS_ERR),
        (
            "before the start",
            |l| Send::read(1, (l.mr.addr() - 1, l.mr.rkey())).sge(l.mr.sge(0, 8)),
            IBV_WC_REM_ACCESS_ERR,
        ),
        ("wrapping", |l| Send::read(1, (u64::MAX - 3, l.mr.rkey())).sge(l.mr.sge(0, 8)), IBV_WC_REM_ACCESS_ERR),
        (
            "own key unknown",
            |l| Send::write(1, l.to(0)).sge(ibv_sge { lkey: 3, ..l.mr.sge(0, 8) }),
            IBV_WC_LOC_PROT_ERR,
        ),
        ("own end passed", |l| Send::read(1, l.to(0)).sge(l.mr.sge((1 << 16) - 4, 8)), IBV_WC_LOC_PROT_ERR),
    ];
    for (what, wr, status) in cases {
        let l = Loop::new(QpSpec::rc());
        // Two, so that one end's error does not flush the other's work.
        let (a, b) = (l.pd.qp(&l.cq, QpSpec::rc()), l.pd.qp(&l.cq, QpSpec::rc()));
        connect(&a, &b);
        assert_eq!(a.post(wr(&l)), 0, "{what}");
        let wc = l.cq.wait();
        assert_eq!((wc.wr_id, wc.status, wc.qp_num), (1, status, a.num()), "{what}");
        assert_eq!(a.query().0.qp_state, IBV_QPS_ERR, "{what}");
        assert_eq!(a.post(Send::message(2)), 0);
        l.cq.expect(2, IBV_WC_WR_FLUSH_ERR);
    }
}

#[test]
fn a_receive_that_is_too_short_fails_on_both_sides() {
    let ctx = open();
    let pd = ctx.pd();
    let (cq, other_cq) = (ctx.cq(8), ctx.cq(8));
    let mr = pd.mr(4096);
    let (a, b) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&other_cq, QpSpec::rc()));
    connect(&a, &b);
    assert_eq!(b.recv(Recv::new(1).sge(mr.sge(0, 7))), 0);
    assert_eq!(a.post(Send::message(2).sge(mr.sge(64, 8))), 0);
    other_cq.expect(1, IBV_WC_LOC_LEN_ERR);
    cq.expect(2, IBV_WC_REM_INV_REQ_ERR);
}

#[test]
fn receiver_not_ready_is_retried_as_often_as_agreed() {
    let ctx = open();
    let pd = ctx.pd();
    let (cq, other_cq) = (ctx.cq(8), ctx.cq(8));
    let (a, b) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&other_cq, QpSpec::rc()));
    connect_with(&a, &b, |attr| attr.rnr_retry = 2);
    assert_eq!(a.post(Send::message(1)), 0);
    cq.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
    let (c, d) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&other_cq, QpSpec::rc()));
    connect_with(&c, &d, |attr| attr.rnr_retry = 7);
    assert_eq!(c.post(Send::message(2)), 0);
    for _ in 0..50 {
        assert!(cq.poll().is_none());
    }
    assert_eq!(d.recv(Recv::new(3)), 0);
    cq.expect(2, IBV_WC_SUCCESS);
    other_cq.expect(3, IBV_WC_SUCCESS);
}

#[test]
fn a_fence_lets_a_write_see_what_a_read_before_it_brought() {
    let l = Loop::new(QpSpec::rc());
    for round in 0..50 {
        l.mr.set_word(0, round);
        let mut list = [
            Send::read(1, l.to(0)).sge(l.mr.sge(8, 8)),
            Send::write(2, l.to(16)).sge(l.mr.sge(8, 8)).flags(IBV_SEND_FENCE),
        ];
        assert_eq!(l.qp.post_list(&mut list), (0, None));
        l.cq.expect(1, IBV_WC_SUCCESS);
        l.cq.expect(2, IBV_WC_SUCCESS);
        assert_eq!(l.mr.word(2), round);
    }
}

#[test]
fn work_requests_are_refused_in_states_that_do_not_take_them() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let qp = pd.qp(&cq, QpSpec::rc());
    let attr = qp.attr(qp.num());
    assert_eq!(qp.recv(Recv::new(1)), EINVAL, "RESET");
    for state in [IBV_QPS_INIT, IBV_QPS_RTR] {
        assert_eq!(qp.post(Send::message(1)), EINVAL, "before {state}");
        qp.step(state, &attr);
        assert_eq!(qp.recv(Recv::new(1)), 0, "{state}");
    }
    let srq = pd.srq(4, 1);
    let shared = pd.qp(&cq, QpSpec::rc().srq(&srq));
    shared.bring(IBV_QPS_INIT, &attr);
    assert_eq!(shared.recv(Recv::new(1)), EINVAL, "its receives come from the shared queue");
}

#[test]
fn a_shared_receive_queue_serves_several_queue_pairs_in_order() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let srq = pd.srq(32, 1);
    let mr = pd.mr(4096);
    let qps: Vec<Qp> =
        [QpSpec::rc(), QpSpec::uc(), QpSpec::rc()].map(|spec| pd.qp(&cq, spec.srq(&srq))).into_iter().collect();
    qps.iter().for_each(|qp| connect(qp, qp));
    for wr_id in 0..9 {
        assert_eq!(srq.post(Recv::new(wr_id).sge(mr.sge(8 * wr_id as usize, 8))), 0);
    }
    for wr_id in 0..9 {
        let qp = &qps[wr_id % 3];
        mr.set_word(100, wr_id as u64 + 50);
        assert_eq!(qp.post(Send::message(77).sge(mr.sge(800, 8))), 0);
        let mut both = [cq.wait(), cq.wait()];
        both.sort_by_key(|wc| wc.wr_id);
        assert_eq!((both[0].wr_id, both[0].qp_num, both[1].wr_id), (wr_id as u64, qp.num(), 77));
        assert_eq!(mr.word(wr_id), wr_id as u64 + 50);
    }
}

/// Puts `value` four bytes past a multiple of eight, as packed structures do; returns where.
fn misplaced<T>(room: &mut [u64], value: T) -> *mut T {
    assert!(room.len() * 8 >= size_of::<T>() + 4);
    let at = room.as_mut_ptr().wrapping_byte_add(4).cast::<T>();
    // SAFETY: it fits.
    unsafe { at.write_unaligned(value) };
    at
}

#[test]
fn work_requests_and_their_elements_may_lie_in_packed_structures() {
    let l = Loop::new(QpSpec::rc());
    let (mut bad_send, mut bad_recv) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut rooms = [[0u64; 24]; 4];
    let [send_sge, send_wr, recv_sge, recv_wr] = &mut rooms;
    let sg_list = misplaced(recv_sge, l.mr.sge(64, 8));
    let recv = ibv_recv_wr { wr_id: 1, next: std::ptr::null_mut(), sg_list, num_sge: 1 };
    let mut send = Send::message(2).wr;
    (send.sg_list, send.num_sge) = (misplaced(send_sge, l.mr.sge(0, 8)), 1);
    // SAFETY: the queue pair exists; lists of one that live until they are posted.
    unsafe {
        let ops = &(*(*l.qp.0).context).ops;
        assert_eq!(ops.post_recv.unwrap()(l.qp.0, misplaced(recv_wr, recv), &mut bad_recv), 0);
        assert_eq!(ops.post_send.unwrap()(l.qp.0, misplaced(send_wr, send), &mut bad_send), 0);
    }
    let mut ids = [l.cq.wait(), l.cq.wait()].map(|wc| (wc.wr_id, wc.status));
    ids.sort_unstable();
    assert_eq!(ids, [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
}
