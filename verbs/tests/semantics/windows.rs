//! Memory windows.

use std::ffi::c_int;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EBUSY, EINVAL};

use crate::kit::{Cq, Ctx, Mr, Mw, Qp, QpSpec, Recv, Send, connect, refused};
use crate::open;

fn info(mr: &Mr, at: u64, length: u64, rights: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr: mr.mr, addr: mr.addr() + at, length, mw_access_flags: rights }
}

/// ibv_bind_mw(3), as the inline does it: the key of the window follows.
fn bind(ctx: &Ctx, qp: &Qp, mw: &Mw, info: ibv_mw_bind_info) -> c_int {
    let mut how = ibv_mw_bind { wr_id: 50, send_flags: IBV_SEND_SIGNALED, bind_info: info };
    // SAFETY: all exist.
    unsafe { (ctx.ops().bind_mw.unwrap())(qp.0, mw.0, &mut how) }
}

/// Two connected queue pairs: errors of one leave the other's completions alone.
fn pair(pd: &crate::kit::Pd, cq: &Cq) -> (Qp, Qp) {
    let (a, b) = (pd.qp(cq, QpSpec::rc()), pd.qp(cq, QpSpec::rc()));
    connect(&a, &b);
    (a, b)
}

#[test]
fn a_window_of_type_1_gives_peers_a_part_of_a_region() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(16);
    let mr = pd.mr(256);
    let mw = pd.mw(IBV_MW_TYPE_1);
    let (a, b) = pair(&pd, &cq);
    let old = mw.rkey();
    assert_eq!(bind(&ctx, &b, &mw, info(&mr, 64, 64, IBV_ACCESS_REMOTE_WRITE)), 0);
    assert_eq!(cq.expect(50, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
    assert_ne!(mw.rkey(), old, "each binding has a key of its own");
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr.mr) }, EBUSY, "a window is bound to it");
    mr.set_word(0, 5);
    assert_eq!(a.post(Send::write(1, (mr.addr() + 64, mw.rkey())).sge(mr.sge(0, 8))), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!(mr.word(8), 5);
    // Bound again, the old key is gone; of length 0, it is bound to nothing.
    let first = mw.rkey();
    assert_eq!(bind(&ctx, &b, &mw, info(&mr, 0, 0, 0)), 0);
    cq.expect(50, IBV_WC_SUCCESS);
    assert_eq!(a.post(Send::write(2, (mr.addr() + 64, first)).sge(mr.sge(0, 8))), 0);
    cq.expect(2, IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn windows_end_where_they_end_and_allow_what_they_allow() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(16);
    let mr = pd.mr(256);
    type Wr = fn(&Mr, u32) -> Send;
    let wrong: [Wr; 3] = [
        |mr, key| Send::write(1, (mr.addr() + 60, key)).sge(mr.sge(0, 8)),
        |mr, key| Send::write(1, (mr.addr() + 124, key)).sge(mr.sge(0, 8)),
        |mr, key| Send::read(1, (mr.addr() + 64, key)).sge(mr.sge(0, 8)),
    ];
    for wr in wrong {
        let mw = pd.mw(IBV_MW_TYPE_1);
        let (a, b) = pair(&pd, &cq);
        assert_eq!(bind(&ctx, &b, &mw, info(&mr, 64, 64, IBV_ACCESS_REMOTE_WRITE)), 0);
        cq.expect(50, IBV_WC_SUCCESS);
        assert_eq!(a.post(wr(&mr, mw.rkey())), 0);
        cq.expect(1, IBV_WC_REM_ACCESS_ERR);
    }
}

#[test]
fn a_window_of_type_2_is_bound_and_invalidated_by_work_requests() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(16);
    let mr = pd.mr(256);
    let mw = pd.mw(IBV_MW_TYPE_2);
    let (a, b) = pair(&pd, &cq);
    let all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    // ibv_inc_rkey: the low eight bits are the application's.
    let key = mw.rkey() & !0xff | (mw.rkey() + 1) & 0xff;
    assert_eq!(b.post(Send::bind(1, &mw, key, info(&mr, 0, 128, all))), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!(a.post(Send::read(2, (mr.addr(), key)).sge(mr.sge(128, 8))), 0);
    cq.expect(2, IBV_WC_SUCCESS);
    // By the peer, who is told of it.
    assert_eq!(b.recv(Recv::new(3)), 0);
    assert_eq!(a.post(Send::message(4).inv(key)), 0);
    let mut both = [cq.wait(), cq.wait()];
    both.sort_by_key(|wc| wc.wr_id);
    assert_eq!([both[0].status, both[1].status], [IBV_WC_SUCCESS; 2]);
    assert_eq!(both[0].wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
    // SAFETY: a receive with an invalidated key.
    assert_eq!(unsafe { both[0].data.invalidated_rkey }, key);
    // And by its owner.
    let next = key & !0xff | (key + 1) & 0xff;
    assert_eq!(b.post(Send::bind(5, &mw, next, info(&mr, 0, 128, all))), 0);
    cq.expect(5, IBV_WC_SUCCESS);
    assert_eq!(b.post(Send::local_inv(6, next)), 0);
    assert_eq!(cq.expect(6, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
    assert_eq!(a.post(Send::write(7, (mr.addr(), next)).sge(mr.sge(128, 8))), 0);
    cq.expect(7, IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn what_cannot_be_bound_is_refused_or_fails() {
    let ctx = open();
    let (pd, other) = (ctx.pd(), ctx.pd());
    let cq = ctx.cq(16);
    let (mr, foreign, closed) = (pd.mr(64), other.mr(64), pd.mr_with(64, IBV_ACCESS_LOCAL_WRITE));
    let mw1 = pd.mw(IBV_MW_TYPE_1);
    let mw2 = pd.mw(IBV_MW_TYPE_2);
    let write = IBV_ACCESS_REMOTE_WRITE;
    let (a, _b) = pair(&pd, &cq);
    assert_eq!(bind(&ctx, &a, &mw2, info(&mr, 0, 8, write)), EINVAL, "ibv_bind_mw is for type 1");
    for kind in [0, 3, u32::MAX] {
        // SAFETY: exists.
        assert_eq!(refused(unsafe { (ctx.ops().alloc_mw.unwrap())(pd.0, kind) }), EINVAL);
    }
    for (what, mr, length) in [("domain", &foreign, 8), ("no MW_BIND", &closed, 8), ("too long", &mr, 65)] {
        let (a, _b) = pair(&pd, &cq);
        // Refused at once, or by the completion.
        if bind(&ctx, &a, &mw1, info(mr, 0, length, write)) == 0 {
            cq.expect(50, IBV_WC_MW_BIND_ERR);
        }
        let (a, _b) = pair(&pd, &cq);
        if a.post(Send::bind(51, &mw2, mw2.rkey() ^ 1, info(mr, 0, length, write))) == 0 {
            assert_eq!(cq.expect(51, IBV_WC_MW_BIND_ERR).wr_id, 51, "{what}");
        }
    }
}
