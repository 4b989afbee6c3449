//! Creating and destroying: what is in use stays, what is out of range is refused, and how a refusal looks.

use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EBUSY, EINVAL, ENOMEM, EOPNOTSUPP};

use crate::kit::{QpSpec, errno, refused, zeroed};
use crate::open;

#[test]
fn what_is_in_use_is_not_destroyed() {
    let ctx = open();
    let pd = ctx.pd();
    let channel = ctx.channel();
    let cq = ctx.cq_on(4, channel.0);
    let srq = pd.srq(4, 1);
    let qp = pd.qp(&cq, QpSpec::rc().srq(&srq));
    // SAFETY: all exist, and go on to.
    unsafe {
        assert_eq!((ibv_destroy_cq(cq.0), errno()), (EBUSY, EBUSY), "completion queue of a queue pair");
        assert_eq!((ibv_destroy_srq(srq.0), errno()), (EBUSY, EBUSY), "shared receive queue of a queue pair");
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY, "domain of a queue pair");
        assert_eq!(ibv_destroy_comp_channel(channel.0), EBUSY, "channel of a completion queue");
        drop(qp);
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY, "domain of a shared receive queue");
        drop(srq);
        let mr = pd.mr(8);
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY, "domain of a region");
        drop(mr);
        let ah = pd.ah(ctx.gid());
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY, "domain of an address handle");
        drop(ah);
        let mw = pd.mw(IBV_MW_TYPE_1);
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY, "domain of a window");
        drop(mw);
    }
}

#[test]
fn a_queue_pair_in_a_multicast_group_is_in_use() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let qp = pd.qp(&cq, QpSpec::ud());
    let group = ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 71, 0, 9] };
    // SAFETY: exists.
    unsafe {
        assert_eq!(ibv_attach_mcast(qp.0, &group, 0), 0);
        assert_eq!(ibv_destroy_qp(qp.0), EBUSY);
        assert_eq!(ibv_detach_mcast(qp.0, &group, 0), 0);
        assert_eq!(ibv_detach_mcast(qp.0, &group, 0), EINVAL, "a second time");
    }
}

#[test]
fn queues_of_absurd_sizes_are_refused() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    // SAFETY: open.
    let create = |entries, vector| refused(unsafe { ibv_create_cq(ctx.0, entries, null_mut(), null_mut(), vector) });
    for entries in [0, -1, i32::MIN, i32::MAX, 1 << 30] {
        assert_eq!(create(entries, 0), EINVAL, "{entries} entries");
    }
    for vector in [-1, 1, i32::MAX] {
        assert_eq!(create(4, vector), EINVAL, "vector {vector}");
    }
    type Change = fn(&mut ibv_qp_cap);
    let changes: [(&str, Change); 10] = [
        ("send requests", |c| c.max_send_wr = 1 << 20),
        ("send requests", |c| c.max_send_wr = u32::MAX),
        ("receive requests", |c| c.max_recv_wr = 1 << 20),
        ("receive requests", |c| c.max_recv_wr = u32::MAX),
        ("send elements", |c| c.max_send_sge = 1000),
        ("send elements", |c| c.max_send_sge = u32::MAX),
        ("receive elements", |c| c.max_recv_sge = 1000),
        ("receive elements", |c| c.max_recv_sge = u32::MAX),
        ("inline bytes", |c| c.max_inline_data = 1 << 20),
        ("inline bytes", |c| c.max_inline_data = u32::MAX),
    ];
    for service in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        for (what, change) in changes {
            let mut spec = QpSpec::new(service);
            change(&mut spec.cap);
            assert_eq!(refused(pd.try_qp(&cq, &cq, spec)), EINVAL, "{what}, service {service}");
        }
    }
    for (max_wr, max_sge) in [(0, 1), (1 << 20, 1), (u32::MAX, 1), (4, 1000), (4, u32::MAX)] {
        let mut init: ibv_srq_init_attr = zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
        // SAFETY: exists.
        assert_eq!(refused(unsafe { ibv_create_srq(pd.0, &mut init) }), EINVAL, "{max_wr} requests of {max_sge}");
    }
}

#[test]
fn what_the_device_announces_it_keeps() {
    let ctx = open();
    let mut attr: ibv_device_attr = zeroed();
    // SAFETY: open.
    assert_eq!(unsafe { ibv_query_device(ctx.0, &mut attr) }, 0);
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    for service in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        let mut spec = QpSpec::new(service);
        (spec.cap.max_send_sge, spec.cap.max_recv_sge) = (attr.max_sge as u32, attr.max_sge as u32);
        drop(pd.qp(&cq, spec));
        spec.cap.max_send_sge += 1;
        assert_eq!(refused(pd.try_qp(&cq, &cq, spec)), EINVAL);
    }
    let mut spec = QpSpec::rc();
    spec.cap.max_send_wr = attr.max_qp_wr as u32;
    drop(pd.qp(&cq, spec));
    spec.cap.max_send_wr += 1;
    assert_eq!(refused(pd.try_qp(&cq, &cq, spec)), EINVAL);
    drop(pd.srq(64, attr.max_srq_sge as u32));
    assert_eq!(cq.resize(attr.max_cqe.saturating_add(1)), EINVAL);
}

#[test]
fn a_queue_pair_gets_at_least_what_it_asked_for() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    for service in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        let spec = QpSpec::new(service);
        let cap = pd.qp(&cq, spec).query().1.cap;
        assert!(cap.max_send_wr >= spec.cap.max_send_wr && cap.max_recv_wr >= spec.cap.max_recv_wr);
        assert!(cap.max_send_sge >= spec.cap.max_send_sge && cap.max_recv_sge >= spec.cap.max_recv_sge);
        assert!(cap.max_inline_data >= spec.cap.max_inline_data);
    }
    let srq = pd.srq(7, 3);
    let has = srq.query();
    assert!(has.max_wr >= 7 && has.max_sge >= 3 && has.srq_limit == 0);
    assert_eq!(pd.qp(&cq, QpSpec::rc().srq(&srq)).query().1.srq, srq.0);
}

#[test]
fn services_that_are_missing_are_refused_as_unsupported() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    for service in [IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER] {
        assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::new(service))), EOPNOTSUPP, "service {service}");
    }
    for service in [0, 1, 5, 77, u32::MAX] {
        assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::new(service))), EINVAL, "service {service}");
    }
    let write = IBV_QP_EX_WITH_RDMA_WRITE;
    assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::ud().ops(write))), EOPNOTSUPP);
    assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::uc().ops(IBV_QP_EX_WITH_RDMA_READ))), EOPNOTSUPP);
    assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::rc().ops(IBV_QP_EX_WITH_TSO))), EOPNOTSUPP);
}

#[test]
fn queue_pairs_need_completion_queues() {
    let ctx = open();
    let pd = ctx.pd();
    let mut init: ibv_qp_init_attr = zeroed();
    init.qp_type = IBV_QPT_RC;
    // SAFETY: exists.
    assert_eq!(refused(unsafe { ibv_create_qp(pd.0, &mut init) }), EINVAL);
}

#[test]
fn a_shared_receive_queue_of_another_domain_is_refused() {
    let ctx = open();
    let (pd, other) = (ctx.pd(), ctx.pd());
    let cq = ctx.cq(4);
    let srq = other.srq(4, 1);
    assert_eq!(refused(pd.try_qp(&cq, &cq, QpSpec::rc().srq(&srq))), EINVAL);
}

#[test]
fn unknown_bits_are_refused() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let table = ctx.table();
    let mut init: ibv_qp_init_attr_ex = zeroed();
    (init.qp_type, init.send_cq, init.recv_cq, init.pd) = (IBV_QPT_RC, cq.0, cq.0, pd.0);
    for (mask, expected) in [(IBV_QP_INIT_ATTR_PD | 1 << 30, EOPNOTSUPP), (0, EINVAL)] {
        init.comp_mask = mask;
        // SAFETY: filled.
        assert_eq!(refused(unsafe { (table.create_qp_ex.unwrap())(ctx.0, &mut init) }), expected, "{mask:#x}");
    }
    (init.comp_mask, init.create_flags) = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 2);
    // SAFETY: filled.
    assert_eq!(refused(unsafe { (table.create_qp_ex.unwrap())(ctx.0, &mut init) }), EOPNOTSUPP);
    let cq_ex = |change: fn(&mut ibv_cq_init_attr_ex)| {
        let mut attr = ibv_cq_init_attr_ex { cqe: 4, ..zeroed() };
        change(&mut attr);
        // SAFETY: filled.
        refused(unsafe { (table.create_cq_ex.unwrap())(ctx.0, &mut attr) })
    };
    assert_eq!(cq_ex(|a| a.wc_flags = 1 << 40), EOPNOTSUPP);
    assert_eq!(cq_ex(|a| a.wc_flags = u64::from(IBV_WC_EX_WITH_CVLAN)), EOPNOTSUPP);
    assert_eq!(cq_ex(|a| a.comp_mask = 1 << 20), EOPNOTSUPP);
    assert_eq!(cq_ex(|a| (a.comp_mask, a.flags) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, 1 << 9)), EOPNOTSUPP);
    assert_eq!(cq_ex(|a| a.cqe = u32::MAX), EINVAL);
    assert_eq!(cq_ex(|a| a.comp_vector = 1), EINVAL);
    let mut srq: ibv_srq_init_attr_ex = zeroed();
    (srq.attr.max_wr, srq.pd, srq.comp_mask) = (4, pd.0, IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE);
    srq.srq_type = IBV_SRQT_TM;
    // SAFETY: filled.
    assert_eq!(refused(unsafe { (table.create_srq_ex.unwrap())(ctx.0, &mut srq) }), EOPNOTSUPP);
}

#[test]
fn devices_are_listed_opened_and_closed_many_times() {
    let first = open();
    for _ in 0..300 {
        let mut n = 0;
        // SAFETY: as the manual says.
        unsafe {
            let list = ibv_get_device_list(&mut n);
            assert_eq!(n, 1);
            assert!((*list.add(1)).is_null());
            let device = *list;
            ibv_free_device_list(list);
            // The device outlives the list (ibv_get_device_list(3) has one open it before; others do not).
            let again = ibv_open_device(device);
            assert_eq!((*again).device, (*first.0).device);
            assert_eq!(ibv_close_device(again), 0);
        }
    }
    // Keys and numbers are the device's, not the context's.
    let second = open();
    let (a, b) = (first.pd(), second.pd());
    let (mr, other) = (a.mr(8), b.mr(8));
    assert_ne!(mr.rkey(), other.rkey());
    assert_ne!(mr.lkey(), other.lkey());
}

#[test]
fn parent_domains_stand_for_a_domain_and_hold_it() {
    let ctx = open();
    let pd = ctx.pd();
    let table = ctx.table();
    let mut plain: ibv_td_init_attr = zeroed();
    // SAFETY: each call gets what the one before returned.
    unsafe {
        plain.comp_mask = 1;
        assert_eq!(refused((table.alloc_td.unwrap())(ctx.0, &mut plain)), EOPNOTSUPP);
        plain.comp_mask = 0;
        let td = (table.alloc_td.unwrap())(ctx.0, &mut plain);
        let mut attr: ibv_parent_domain_init_attr = zeroed();
        assert_eq!(refused((table.alloc_parent_domain.unwrap())(ctx.0, &mut attr)), EINVAL, "of nothing");
        (attr.pd, attr.td) = (pd.0, td);
        attr.comp_mask = 1 << 31;
        assert_eq!(refused((table.alloc_parent_domain.unwrap())(ctx.0, &mut attr)), EOPNOTSUPP);
        attr.comp_mask = 0;
        let parent = (table.alloc_parent_domain.unwrap())(ctx.0, &mut attr);
        assert!(!parent.is_null());
        assert_eq!((table.dealloc_td.unwrap())(td), EBUSY);
        assert_eq!(ibv_dealloc_pd(pd.0), EBUSY);
        let parent = crate::kit::Pd(parent);
        let mr = parent.mr(64);
        let cq = ctx.cq(4);
        let qp = parent.qp(&cq, QpSpec::rc());
        crate::kit::connect(&qp, &qp);
        // One domain under two names.
        let other = pd.mr(64);
        mr.set_word(0, 17);
        assert_eq!(qp.post(crate::kit::Send::write(1, (other.addr(), other.rkey())).sge(mr.sge(0, 8))), 0);
        cq.expect(1, IBV_WC_SUCCESS);
        assert_eq!(other.word(0), 17);
        assert_eq!(ibv_dealloc_pd(parent.0), EBUSY, "a queue pair names it");
        drop(qp);
        assert_eq!(ibv_dealloc_pd(parent.0), EBUSY, "a region names it");
        drop(mr);
        drop(parent);
        assert_eq!((table.dealloc_td.unwrap())(td), 0);
    }
}

#[test]
fn shared_receive_queues_are_resized_within_limits() {
    let ctx = open();
    let pd = ctx.pd();
    let srq = pd.srq(8, 2);
    for wr_id in 0..5 {
        assert_eq!(srq.post(crate::kit::Recv::new(wr_id)), 0);
    }
    assert_eq!(srq.modify(Some(4), None), EINVAL, "five are in it");
    assert_eq!(srq.modify(Some(5), Some(6)), EINVAL, "a limit above the size");
    assert_eq!((srq.query().max_wr, srq.query().srq_limit), (8, 0), "nothing changed");
    assert_eq!(srq.modify(Some(1 << 20), None), EINVAL);
    assert_eq!(srq.modify(Some(5), Some(2)), 0);
    assert_eq!((srq.query().max_wr, srq.query().srq_limit), (5, 2));
    assert_eq!(srq.post(crate::kit::Recv::new(9)), ENOMEM);
    let sge = ibv_sge { addr: 0, length: 0, lkey: 0 };
    assert_eq!(srq.modify(Some(100), None), 0);
    assert_eq!(srq.post(crate::kit::Recv::new(9).sge(sge).sge(sge)), 0);
    assert_eq!(srq.post(crate::kit::Recv::new(9).sge(sge).sge(sge).sge(sge)), EINVAL);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_modify_srq(srq.0, &mut zeroed(), 1 << 7) }, EINVAL);
}

#[test]
fn a_completion_queue_holds_more_than_was_asked_for() {
    let ctx = open();
    let mut attr: ibv_device_attr = zeroed();
    // SAFETY: open.
    assert_eq!(unsafe { ibv_query_device(ctx.0, &mut attr) }, 0);
    let max = attr.max_cqe;
    for (requested, holds) in [(1, 2), (2, 4), (3, 4), (100, 128), (128, 256), (max, max)] {
        let cq = ctx.cq(requested as u32);
        assert_eq!(cq.entries(), holds, "{requested}");
        assert_eq!((cq.resize(7), cq.entries()), (0, 8));
        assert_eq!((cq.resize(requested), cq.entries()), (0, holds), "{requested}");
    }
}

#[test]
fn completion_queues_are_resized_with_what_is_in_them() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let qp = pd.qp(&cq, QpSpec::uc());
    crate::kit::connect(&qp, &qp);
    assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
    for wr_id in 0..5 {
        assert_eq!(qp.post(crate::kit::Send::message(wr_id)), 0);
    }
    for (entries, expected) in [(3, EINVAL), (0, EINVAL), (-1, EINVAL), (i32::MAX, EINVAL), (5, 0), (1000, 0), (6, 0)] {
        assert_eq!(cq.resize(entries), expected, "{entries}");
        assert!(expected != 0 || cq.entries() >= entries);
    }
    for wr_id in 0..5 {
        cq.expect(wr_id, IBV_WC_WR_FLUSH_ERR);
    }
}

#[test]
fn a_negative_number_of_completions_is_an_error() {
    let ctx = open();
    let cq = ctx.cq(4);
    let mut wc: ibv_wc = zeroed();
    let poll = ctx.ops().poll_cq.unwrap();
    // SAFETY: exists.
    unsafe {
        assert!(poll(cq.0, -1, &mut wc) < 0);
        assert!(poll(cq.0, i32::MIN, &mut wc) < 0);
        assert_eq!(poll(cq.0, 0, null_mut()), 0);
    }
}

#[test]
fn a_context_that_is_closed_with_objects_left_stops_them() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let left = crate::kit::Ctx::open();
    let left_pd = left.pd();
    let left_cq = left.cq_on(4, left.channel_left());
    let peer = pd.qp(&cq, QpSpec::rc());
    let qp = left_pd.qp(&left_cq, QpSpec::rc());
    crate::kit::connect_with(&peer, &qp, |a| (a.timeout, a.retry_cnt) = (1, 1));
    left_cq.arm(false);
    std::mem::forget((qp, left_cq, left_pd));
    drop(left);
    // What arrives now finds nobody, and raises no event in a context that is gone.
    assert_eq!(peer.post(crate::kit::Send::message(1)), 0);
    cq.expect(1, IBV_WC_RETRY_EXC_ERR);
}

#[test]
fn queues_of_another_context_are_refused() {
    let (ctx, other) = (open(), open());
    let pd = ctx.pd();
    let (own, foreign) = (ctx.cq(4), other.cq(4));
    for (send, recv) in [(&own, &foreign), (&foreign, &own)] {
        assert_eq!(refused(pd.try_qp(send, recv, QpSpec::rc())), EINVAL);
    }
}

#[test]
fn a_source_and_a_destination_are_of_one_family() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    // The device has an IPv4 address; ::1 and 2001:db8::1 are none.
    for first in [0, 0x20] {
        let mut gid = ctx.gid();
        gid.raw = [first, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(refused(pd.try_ah(gid)), EINVAL);
        let qp = pd.qp(&cq, QpSpec::rc());
        let mut attr = qp.attr(qp.num());
        qp.step(IBV_QPS_INIT, &attr);
        attr.ah_attr.grh.dgid = gid;
        attr.qp_state = IBV_QPS_RTR;
        let mask = (qp.mask(IBV_QPS_RTR) | IBV_QP_STATE) as i32;
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_modify_qp(qp.0, &mut attr, mask) }, EINVAL);
    }
}
