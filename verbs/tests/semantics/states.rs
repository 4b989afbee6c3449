//! States of queue pairs and what `ibv_query_qp` says in each.

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use libc::{EINVAL, EOPNOTSUPP};

use crate::kit::{QKEY, QpSpec, Recv, Send, connect, wait_for, zeroed};
use crate::open;

const SERVICES: [u32; 3] = [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD];

#[test]
fn a_query_after_each_transition_says_what_was_set() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    for service in SERVICES {
        let qp = pd.qp(&cq, QpSpec::new(service));
        let set = qp.attr(qp.num());
        let connected = service != IBV_QPT_UD;
        let reliable = service == IBV_QPT_RC;
        let mut said = IBV_QPS_RESET;
        for state in [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR, IBV_QPS_RESET] {
            if state != said {
                qp.step(state, &set);
                said = state;
            }
            let (is, init) = qp.query();
            assert_eq!((is.qp_state, is.cur_qp_state, qp.state()), (state, state, state), "service {service}");
            assert_eq!((init.qp_type, init.send_cq, init.recv_cq), (service, cq.0, cq.0));
            if state == IBV_QPS_RESET {
                continue;
            }
            assert_eq!((is.port_num, is.pkey_index), (1, 0));
            if !connected {
                assert_eq!(is.qkey, QKEY);
            } else {
                assert_eq!(is.qp_access_flags, set.qp_access_flags);
            }
            if state >= IBV_QPS_RTR && connected {
                assert_eq!((is.path_mtu, is.dest_qp_num, is.rq_psn), (set.path_mtu, set.dest_qp_num, set.rq_psn));
                assert_eq!(is.ah_attr.is_global, 1);
                // SAFETY: any bits are a GID.
                unsafe { assert_eq!(is.ah_attr.grh.dgid.raw, set.ah_attr.grh.dgid.raw) };
            }
            if state >= IBV_QPS_RTR && reliable {
                assert_eq!((is.max_dest_rd_atomic, is.min_rnr_timer), (set.max_dest_rd_atomic, set.min_rnr_timer));
            }
            if state >= IBV_QPS_RTS {
                assert_eq!(is.sq_psn, set.sq_psn);
            }
            if state >= IBV_QPS_RTS && reliable {
                assert_eq!((is.timeout, is.retry_cnt, is.rnr_retry), (set.timeout, set.retry_cnt, set.rnr_retry));
                assert_eq!(is.max_rd_atomic, set.max_rd_atomic);
            }
        }
    }
}

#[test]
fn transitions_that_do_not_exist_or_lack_something_change_nothing() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    for service in SERVICES {
        let qp = pd.qp(&cq, QpSpec::new(service));
        let attr = qp.attr(qp.num());
        for state in [IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_UNKNOWN, 77] {
            assert_eq!(qp.to_state(state), EINVAL, "RESET to {state}");
        }
        let init = qp.mask(IBV_QPS_INIT);
        for bit in (0..25).map(|b| 1 << b).filter(|b| b & init != 0 && *b != IBV_QP_STATE) {
            let to = ibv_qp_attr { qp_state: IBV_QPS_INIT, ..attr };
            assert_eq!(qp.modify(&to, init & !bit), EINVAL, "INIT without {bit:#x}");
        }
        assert_eq!(qp.query().0.qp_state, IBV_QPS_RESET);
        qp.bring(IBV_QPS_INIT, &attr);
        let rtr = qp.mask(IBV_QPS_RTR);
        for bit in (0..25).map(|b| 1 << b).filter(|b| b & rtr != 0 && *b != IBV_QP_STATE) {
            let to = ibv_qp_attr { qp_state: IBV_QPS_RTR, ..attr };
            assert_eq!(qp.modify(&to, rtr & !bit), EINVAL, "RTR without {bit:#x}");
        }
        assert_eq!(qp.query().0.qp_state, IBV_QPS_INIT);
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let qp = pd.qp(&cq, QpSpec::rc());
    let good = qp.attr(qp.num());
    let refuse = |state, change: fn(&mut ibv_qp_attr)| {
        let mut attr = ibv_qp_attr { qp_state: state, ..good };
        change(&mut attr);
        assert_eq!(qp.modify(&attr, qp.mask(state)), EINVAL);
    };
    refuse(IBV_QPS_INIT, |a| a.port_num = 0);
    refuse(IBV_QPS_INIT, |a| a.port_num = 2);
    refuse(IBV_QPS_INIT, |a| a.pkey_index = 1);
    qp.step(IBV_QPS_INIT, &good);
    refuse(IBV_QPS_RTR, |a| a.path_mtu = 0);
    refuse(IBV_QPS_RTR, |a| a.path_mtu = 6);
    refuse(IBV_QPS_RTR, |a| a.dest_qp_num = 1 << 24);
    refuse(IBV_QPS_RTR, |a| a.max_dest_rd_atomic = 255);
    refuse(IBV_QPS_RTR, |a| a.min_rnr_timer = 32);
    refuse(IBV_QPS_RTR, |a| a.ah_attr.is_global = 0);
    refuse(IBV_QPS_RTR, |a| a.ah_attr.port_num = 9);
    refuse(IBV_QPS_RTR, |a| a.ah_attr.grh.sgid_index = 200);
    refuse(IBV_QPS_RTR, |a| a.ah_attr.grh.dgid = zeroed());
    qp.step(IBV_QPS_RTR, &good);
    refuse(IBV_QPS_RTS, |a| a.timeout = 32);
    refuse(IBV_QPS_RTS, |a| a.retry_cnt = 8);
    refuse(IBV_QPS_RTS, |a| a.rnr_retry = 8);
    refuse(IBV_QPS_RTS, |a| a.max_rd_atomic = 255);
    qp.step(IBV_QPS_RTS, &good);
    assert_eq!(qp.modify(&good, IBV_QP_ALT_PATH), EOPNOTSUPP);
    assert_eq!(qp.modify(&good, IBV_QP_CAP), EOPNOTSUPP);
    assert_eq!(qp.modify(&good, 1 << 30), EINVAL);
    let wrong = ibv_qp_attr { cur_qp_state: IBV_QPS_SQD, qp_state: IBV_QPS_RTS, ..good };
    assert_eq!(qp.modify(&wrong, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
}

#[test]
fn a_refused_change_leaves_everything_as_it_was() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(4);
    let qp = pd.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    let before = qp.query().0;
    // The rate is fine, the state is not.
    let attr = ibv_qp_attr { qp_state: IBV_QPS_RTR, qp_access_flags: 0, rate_limit: 77, ..before };
    assert_eq!(qp.modify(&attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_RATE_LIMIT), EINVAL);
    let after = qp.query().0;
    assert_eq!((after.qp_state, after.rate_limit), (IBV_QPS_RTS, 0));
    assert_eq!(after.qp_access_flags, before.qp_access_flags);
}

#[test]
fn a_queue_pair_works_again_after_reset() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(32);
    let mr = pd.mr(64);
    for service in [IBV_QPT_RC, IBV_QPT_UC] {
        let qp = pd.qp(&cq, QpSpec::new(service));
        for round in 0..20 {
            connect(&qp, &qp);
            assert_eq!(qp.recv(Recv::new(1).sge(mr.sge(0, 8))), 0);
            mr.set_word(1, round);
            assert_eq!(qp.post(Send::message(1).sge(mr.sge(8, 8))), 0);
            cq.expect(1, IBV_WC_SUCCESS);
            cq.expect(1, IBV_WC_SUCCESS);
            assert_eq!(mr.word(0), round);
            // What is left behind is forgotten: its completions as well.
            for _ in 0..5 {
                assert_eq!(qp.recv(Recv::new(9)), 0);
            }
            if round % 2 == 0 {
                assert_eq!(qp.to_state(IBV_QPS_ERR), 0);
            }
            assert_eq!(qp.to_state(IBV_QPS_RESET), 0);
            cq.expect_none();
        }
    }
}

#[test]
fn a_send_queue_error_is_recovered_from() {
    let ctx = open();
    let pd = ctx.pd();
    let (send_cq, recv_cq) = (ctx.cq(32), ctx.cq(32));
    let mr = pd.mr(256);
    let ah = pd.ah(ctx.gid());
    for service in [IBV_QPT_UC, IBV_QPT_UD] {
        let qp = pd.qp_on(&send_cq, &recv_cq, QpSpec::new(service));
        connect(&qp, &qp);
        assert_eq!(qp.recv(Recv::new(5).sge(mr.sge(0, 128))), 0);
        let message = |wr_id, lkey| {
            let send = Send::message(wr_id).sge(ibv_sge { lkey, ..mr.sge(128, 8) });
            if service == IBV_QPT_UD { send.to(&ah, qp.num(), QKEY) } else { send }
        };
        assert_eq!(qp.post(message(1, 0)), 0);
        send_cq.expect(1, IBV_WC_LOC_PROT_ERR);
        assert_eq!(qp.query().0.qp_state, IBV_QPS_SQE);
        assert_eq!(qp.post(message(2, mr.lkey())), 0);
        send_cq.expect(2, IBV_WC_WR_FLUSH_ERR);
        recv_cq.expect_none();
        let back = ibv_qp_attr { qp_state: IBV_QPS_RTS, cur_qp_state: IBV_QPS_SQE, ..zeroed() };
        assert_eq!(qp.modify(&back, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
        assert_eq!(qp.post(message(3, mr.lkey())), 0);
        send_cq.expect(3, IBV_WC_SUCCESS);
        recv_cq.expect(5, IBV_WC_SUCCESS);
    }
}

#[test]
fn a_drained_send_queue_starts_nothing_until_it_may_send_again() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(32);
    let mr = pd.mr(64);
    let qp = pd.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    assert_eq!(qp.to_state(IBV_QPS_SQD), 0);
    assert_eq!(qp.post(Send::write(1, (mr.addr(), mr.rkey())).sge(mr.sge(8, 8))), 0);
    cq.expect_none();
    // What may change meanwhile.
    let attr = ibv_qp_attr { qp_state: IBV_QPS_SQD, timeout: 10, retry_cnt: 3, ..zeroed() };
    assert_eq!(qp.modify(&attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
    assert_eq!((qp.query().0.timeout, qp.query().0.retry_cnt), (10, 3));
    assert_eq!(qp.to_state(IBV_QPS_RTS), 0);
    cq.expect(1, IBV_WC_SUCCESS);
}

#[test]
fn rights_of_peers_can_change_at_run_time() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(32);
    let mr = pd.mr(64);
    let (qp, peer) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&cq, QpSpec::rc()));
    connect(&qp, &peer);
    let attr = ibv_qp_attr { qp_access_flags: IBV_ACCESS_REMOTE_READ, ..zeroed() };
    assert_eq!(peer.modify(&attr, IBV_QP_ACCESS_FLAGS), 0);
    assert_eq!(qp.post(Send::read(1, (mr.addr(), mr.rkey())).sge(mr.sge(8, 8))), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!(qp.post(Send::write(2, (mr.addr(), mr.rkey())).sge(mr.sge(8, 8))), 0);
    // A peer without the right asks for an invalid request or for access that it has not (IBA 9.7.4.1.2 lets both).
    let wc = cq.wait();
    assert!([IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR].contains(&wc.status), "status {}", wc.status);
}

#[test]
fn a_rate_limit_holds() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(64);
    let mr = pd.mr(1 << 16);
    let qp = pd.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    let rate = |kbps| {
        let mut attr = ibv_qp_rate_limit_attr { rate_limit: kbps, ..zeroed() };
        // SAFETY: exists.
        unsafe { (ctx.table().modify_qp_rate_limit.unwrap())(qp.0, &mut attr) }
    };
    let mut unknown = ibv_qp_rate_limit_attr { rate_limit: 1000, comp_mask: 1, ..zeroed() };
    // SAFETY: exists.
    assert_eq!(unsafe { (ctx.table().modify_qp_rate_limit.unwrap())(qp.0, &mut unknown) }, EOPNOTSUPP);
    let bytes = 1 << 17;
    let send = |what: &str| {
        let start = std::time::Instant::now();
        for wr_id in 0..2 {
            assert_eq!(qp.post(Send::write(wr_id, (mr.addr(), mr.rkey())).sge(mr.sge(0, 1 << 16))), 0);
        }
        wait_for(what, || cq.poll().filter(|wc| wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS));
        start.elapsed()
    };
    // 10 Mbit/s: 105 ms for 128 KiB, less what a burst may be ahead. A loaded machine only makes it longer.
    assert_eq!(rate(10_000), 0);
    assert_eq!(qp.query().0.rate_limit, 10_000);
    let limited = send("a paced write");
    let least = std::time::Duration::from_nanos((bytes - (32 << 10)) * 8 * 100);
    assert!(limited >= least, "{limited:?} for {bytes} bytes at 10 Mbit/s");
    assert_eq!(rate(0), 0);
    send("an unpaced write");
}
