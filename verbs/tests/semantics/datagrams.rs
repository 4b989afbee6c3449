//! Datagrams and multicast groups.

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EBUSY, EINVAL, ENOMEM};

use crate::kit::{Ah, Cq, Ctx, Mr, Pd, QKEY, Qp, QpSpec, Recv, Send, connect, refused, zeroed};
use crate::open;

/// Bytes before a datagram's own in a receive.
const GRH: usize = 40;

struct Peers {
    a: Qp,
    b: Qp,
    ah: Ah,
    cq: Cq,
    b_cq: Cq,
    mr: Mr,
    pd: Pd,
    ctx: Ctx,
}

impl Peers {
    fn new() -> Peers {
        let ctx = open();
        let pd = ctx.pd();
        let (cq, b_cq) = (ctx.cq(64), ctx.cq(64));
        let (a, b) = (pd.qp(&cq, QpSpec::ud()), pd.qp(&b_cq, QpSpec::ud()));
        connect(&a, &b);
        Peers { a, b, ah: pd.ah(ctx.gid()), cq, b_cq, mr: pd.mr(1 << 14), pd, ctx }
    }

    fn send(&self, wr_id: u64, qpn: u32, qkey: u32) {
        assert_eq!(self.a.post(Send::message(wr_id).sge(self.mr.sge(0, 8)).to(&self.ah, qpn, qkey)), 0);
        self.cq.expect(wr_id, IBV_WC_SUCCESS);
    }

    fn recv(&self, wr_id: u64) {
        assert_eq!(self.b.recv(Recv::new(wr_id).sge(self.mr.sge(4096, 4096 + GRH))), 0);
    }
}

#[test]
fn a_datagram_says_where_it_came_from() {
    let p = Peers::new();
    p.recv(1);
    p.mr.set_word(0, 77);
    p.send(2, p.b.num(), QKEY);
    let wc = p.b_cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!((wc.src_qp, wc.qp_num, wc.byte_len), (p.a.num(), p.b.num(), 48));
    assert_eq!((wc.opcode, wc.wc_flags), (IBV_WC_RECV, IBV_WC_GRH));
    assert_eq!(p.mr.word((4096 + GRH) / 8), 77);
    // An answer goes where that says.
    let mut grh: ibv_grh = zeroed();
    // SAFETY: the first bytes of the receive are a GRH.
    unsafe { (&raw mut grh).cast::<u8>().copy_from_nonoverlapping(p.mr.read(4096, GRH).as_ptr(), GRH) };
    let mut wc = wc;
    let mut attr: ibv_ah_attr = zeroed();
    // SAFETY: all are there.
    let back = unsafe {
        assert_eq!(ibv_init_ah_from_wc(p.ctx.0, 1, &wc, &grh, &mut attr), 0);
        ibv_create_ah_from_wc(p.pd.0, &mut wc, &mut grh, 1)
    };
    assert!(!back.is_null());
    let back = Ah(back);
    assert_eq!(p.a.recv(Recv::new(3).sge(p.mr.sge(4096, 100))), 0);
    assert_eq!(p.b.post(Send::message(4).sge(p.mr.sge(0, 8)).to(&back, wc.src_qp, QKEY).imm(9)), 0);
    p.b_cq.expect(4, IBV_WC_SUCCESS);
    let wc = p.cq.expect(3, IBV_WC_SUCCESS);
    assert_eq!(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
}

#[test]
fn what_nobody_expects_vanishes() {
    let p = Peers::new();
    p.recv(1);
    p.send(2, 0xabcdef, QKEY);
    p.send(3, p.b.num() ^ 0x80_0000, QKEY);
    let violations = || {
        let mut port: ibv_port_attr = zeroed();
        // SAFETY: open.
        assert_eq!(unsafe { ibv_query_port(p.ctx.0, 1, &mut port) }, 0);
        port.qkey_viol_cntr
    };
    // Other tests of the process may add to them.
    let before = violations();
    p.send(4, p.b.num(), QKEY + 1);
    p.b_cq.expect_none();
    assert!(violations() > before);
    p.send(5, p.b.num(), QKEY);
    p.b_cq.expect(1, IBV_WC_SUCCESS);
    // Without a receive there is nothing to tell of either.
    p.send(6, p.b.num(), QKEY);
    p.b_cq.expect_none();
}

#[test]
fn a_q_key_with_the_highest_bit_stands_for_the_senders_own() {
    let p = Peers::new();
    p.recv(1);
    p.send(2, p.b.num(), 0x8000_0000);
    p.b_cq.expect(1, IBV_WC_SUCCESS);
}

#[test]
fn datagrams_end_at_the_mtu_and_may_be_empty() {
    let p = Peers::new();
    let mut port: ibv_port_attr = zeroed();
    // SAFETY: open; the whole structure may be written.
    unsafe {
        assert_eq!((p.ctx.table().query_port.unwrap())(p.ctx.0, 1, &mut port, size_of::<ibv_port_attr>()), 0);
    }
    let mtu = 128 << port.active_mtu;
    let to = |wr: Send| wr.to(&p.ah, p.b.num(), QKEY);
    assert_eq!(p.a.post(to(Send::message(1).sge(p.mr.sge(0, mtu + 1)))), EINVAL);
    for len in [0, 1, mtu] {
        p.recv(2);
        assert_eq!(p.a.post(to(Send::message(3).sge(p.mr.sge(0, len)))), 0);
        p.cq.expect(3, IBV_WC_SUCCESS);
        assert_eq!(p.b_cq.expect(2, IBV_WC_SUCCESS).byte_len as usize, GRH + len);
    }
    // One that does not fit is lost and leaves the receive to the next (IBA 9.9.3, class D).
    assert_eq!(p.b.recv(Recv::new(4).sge(p.mr.sge(4096, GRH + 7))), 0);
    p.send(5, p.b.num(), QKEY);
    p.b_cq.expect_none();
    assert_eq!(p.a.post(to(Send::message(6).sge(p.mr.sge(0, 7)))), 0);
    p.b_cq.expect(4, IBV_WC_SUCCESS);
}

/// More than one call sends, so that some wait.
const MANY: usize = 400;

/// Two queue pairs with room for [`MANY`] datagrams of 8 bytes, which have been filled, and as many receives.
fn crowded(spec: QpSpec) -> Peers {
    let ctx = open();
    let pd = ctx.pd();
    let (cq, b_cq) = (ctx.cq(2 * MANY as u32), ctx.cq(2 * MANY as u32));
    let room = |mut spec: QpSpec| {
        (spec.cap.max_send_wr, spec.cap.max_recv_wr) = (MANY as u32, MANY as u32);
        spec
    };
    let (a, b) = (pd.qp(&cq, room(spec)), pd.qp(&b_cq, room(QpSpec::ud())));
    connect(&a, &b);
    let p = Peers { a, b, ah: pd.ah(ctx.gid()), cq, b_cq, mr: pd.mr(1 << 16), pd, ctx };
    for n in 0..MANY {
        p.mr.set_word(n, n as u64);
        assert_eq!(p.b.recv(Recv::new(n as u64).sge(p.mr.sge(8192 + n * 64, 48))), 0);
    }
    p
}

/// Uses the memory of the datagrams for something else at once, and looks at what comes.
fn use_again(p: &Peers) {
    p.mr.write(0, &[0xff; 8 * MANY]);
    for n in 0..MANY {
        p.b_cq.expect(n as u64, IBV_WC_SUCCESS);
        assert_eq!(p.mr.word((8192 + n * 64 + GRH) / 8), n as u64);
        p.cq.expect(n as u64, IBV_WC_SUCCESS);
    }
}

#[test]
fn the_memory_of_datagrams_may_be_used_again_before_they_complete() {
    let p = crowded(QpSpec::ud());
    let send = |n| Send::message(n as u64).sge(p.mr.sge(n * 8, 8)).to(&p.ah, p.b.num(), QKEY);
    assert_eq!(p.a.post_list(&mut (0..MANY).map(send).collect::<Vec<_>>()).0, 0);
    use_again(&p);
    let p = crowded(QpSpec::ud().ops(IBV_QP_EX_WITH_SEND));
    let batch = p.a.batch();
    batch.start();
    for n in 0..MANY {
        batch.id(n as u64, IBV_SEND_SIGNALED);
        // SAFETY: exists.
        unsafe {
            ((*batch.0).wr_send.unwrap())(batch.0);
            ((*batch.0).wr_set_ud_addr.unwrap())(batch.0, p.ah.0, p.b.num(), QKEY);
            ((*batch.0).wr_set_sge.unwrap())(batch.0, p.mr.lkey(), p.mr.addr() + n as u64 * 8, 8);
        }
    }
    assert_eq!(batch.complete(), 0);
    use_again(&p);
}

#[test]
fn addresses_are_checked() {
    let ctx = open();
    let pd = ctx.pd();
    let own = ctx.gid();
    let try_ah = |change: fn(&mut ibv_ah_attr)| {
        let mut attr: ibv_ah_attr = zeroed();
        (attr.is_global, attr.port_num, attr.grh.dgid) = (1, 1, own);
        change(&mut attr);
        // SAFETY: exists.
        refused(unsafe { ibv_create_ah(pd.0, &mut attr) })
    };
    assert_eq!(try_ah(|a| a.is_global = 0), EINVAL);
    assert_eq!(try_ah(|a| a.port_num = 0), EINVAL);
    assert_eq!(try_ah(|a| a.port_num = 2), EINVAL);
    assert_eq!(try_ah(|a| a.grh.sgid_index = 1), EINVAL, "an empty entry");
    assert_eq!(try_ah(|a| a.grh.sgid_index = 255), EINVAL);
    assert_eq!(try_ah(|a| a.grh.dgid = zeroed()), EINVAL);
}

fn group(v6: bool, last: u8) -> ibv_gid {
    let mut raw = [0; 16];
    if v6 {
        (raw[0], raw[1]) = (0xff, 0x0e);
    }
    raw[10..].copy_from_slice(&[0xff, 0xff, 239, 71, 1, last]);
    ibv_gid { raw }
}

const MULTICAST: u32 = 0xff_ffff;

#[test]
fn each_member_of_a_group_gets_a_copy_the_sender_too() {
    for v6 in [false, true] {
        let p = Peers::new();
        let gid = group(v6, 1);
        let ah = p.pd.ah(gid);
        let third_cq = p.ctx.cq(8);
        let third = p.pd.qp(&third_cq, QpSpec::ud());
        connect(&third, &third);
        for (qp, wr_id) in [(&p.a, 1), (&p.b, 2), (&third, 3)] {
            // SAFETY: exists. Attached twice is attached.
            unsafe {
                assert_eq!(ibv_attach_mcast(qp.0, &gid, 0), 0);
                assert_eq!(ibv_attach_mcast(qp.0, &gid, 0), 0);
            }
            for _ in 0..4 {
                assert_eq!(qp.recv(Recv::new(wr_id).sge(p.mr.sge(4096, 100))), 0);
            }
        }
        let send = || {
            assert_eq!(p.a.post(Send::message(9).sge(p.mr.sge(0, 8)).to(&ah, MULTICAST, QKEY)), 0);
            let mut ids = [p.cq.wait().wr_id, p.cq.wait().wr_id];
            ids.sort_unstable();
            assert_eq!(ids, [1, 9], "the own copy");
            p.b_cq.expect(2, IBV_WC_SUCCESS);
        };
        send();
        third_cq.expect(3, IBV_WC_SUCCESS);
        third_cq.expect_none();
        // SAFETY: exists.
        unsafe { assert_eq!(ibv_detach_mcast(third.0, &gid, 0), 0) };
        send();
        third_cq.expect_none();
        for qp in [&p.a, &p.b] {
            // SAFETY: exists.
            unsafe { assert_eq!(ibv_detach_mcast(qp.0, &gid, 0), 0) };
        }
        p.cq.expect_none();
        p.b_cq.expect_none();
    }
}

#[test]
fn groups_are_for_datagrams_and_have_group_addresses() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let (rc, ud) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&cq, QpSpec::ud()));
    let (own, gid) = (ctx.gid(), group(false, 2));
    // SAFETY: both exist.
    unsafe {
        assert_eq!(ibv_attach_mcast(rc.0, &gid, 0), EINVAL);
        assert_eq!(ibv_attach_mcast(ud.0, &own, 0), EINVAL);
        assert_eq!(ibv_detach_mcast(ud.0, &gid, 0), EINVAL);
    }
}

#[test]
fn a_group_that_cannot_be_joined_is_not_attached_to() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let qp = pd.qp(&cq, QpSpec::ud());
    let mut attached = Vec::new();
    let mut refused = None;
    for n in 0..300_u16 {
        let mut gid = group(false, n as u8);
        // SAFETY: any bits are a GID.
        unsafe { gid.raw[14] = 10 + (n >> 8) as u8 };
        // SAFETY: exists.
        match unsafe { ibv_attach_mcast(qp.0, &gid, 0) } {
            0 => attached.push(gid),
            errno => {
                refused = Some((errno, gid));
                break;
            }
        }
    }
    let (errno, gid) = refused.expect("a limit");
    assert!([ENOMEM, libc::ENOBUFS, libc::EMFILE].contains(&errno), "errno {errno}");
    // SAFETY: exists.
    unsafe {
        assert_eq!(ibv_detach_mcast(qp.0, &gid, 0), EINVAL, "not attached to what failed");
        assert_eq!(ibv_destroy_qp(qp.0), EBUSY);
        for gid in attached {
            assert_eq!(ibv_detach_mcast(qp.0, &gid, 0), 0);
        }
    }
}
