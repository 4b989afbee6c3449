//! A process that forks: the child begins anew, the parent does not notice.

use std::ffi::c_int;
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

/// A queue pair connected to itself, and 8 bytes that it writes from and to.
struct Loop {
    context: *mut ibv_context,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    words: Box<[u64; 2]>,
}

impl Loop {
    fn new() -> Loop {
        // SAFETY: each call gets what the one before returned.
        unsafe {
            let list = ibv_get_device_list(null_mut());
            let context = ibv_open_device(*list);
            assert!(!context.is_null());
            ibv_free_device_list(list);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
            let mut words = Box::new([0x1122_3344_5566_7788, 0]);
            let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;
            let mr = ibv_reg_mr(pd, words.as_mut_ptr().cast(), 16, rights);
            assert!(!mr.is_null());
            let mut init: ibv_qp_init_attr = std::mem::zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (4, 4);
            let qp = ibv_create_qp(pd, &mut init);
            assert!(!qp.is_null());
            let mut attr: ibv_qp_attr = std::mem::zeroed();
            (attr.qp_state, attr.port_num) = (IBV_QPS_INIT, 1);
            attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
            let modify = |attr: &mut ibv_qp_attr, mask: u32| {
                assert_eq!(ibv_modify_qp(qp, attr, mask as c_int), 0);
            };
            modify(&mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
            attr.qp_state = IBV_QPS_RTR;
            attr.path_mtu = IBV_MTU_1024;
            attr.dest_qp_num = (*qp).qp_num;
            (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (1, 12);
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            assert_eq!(ibv_query_gid(context, 1, 0, &mut attr.ah_attr.grh.dgid), 0);
            let rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            modify(&mut attr, IBV_QP_STATE | rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
            attr.qp_state = IBV_QPS_RTS;
            (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic) = (14, 7, 7, 1);
            let rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN;
            modify(&mut attr, IBV_QP_STATE | rts | IBV_QP_MAX_QP_RD_ATOMIC);
            Loop { context, cq, qp, mr, words }
        }
    }

    /// Writes the first word over the second.
    fn write(&mut self) -> u32 {
        self.words[1] = 0;
        // SAFETY: the objects exist; the memory is registered.
        unsafe {
            let mut sge = ibv_sge { addr: self.words.as_ptr() as u64, length: 8, lkey: (*self.mr).lkey };
            let mut wr: ibv_send_wr = std::mem::zeroed();
            (wr.sg_list, wr.num_sge) = (&mut sge, 1);
            (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
            wr.wr.rdma = ibv_wr_rdma { remote_addr: sge.addr + 8, rkey: (*self.mr).rkey };
            let mut bad = null_mut();
            let ops = &(*self.context).ops;
            assert_eq!((ops.post_send.unwrap())(self.qp, &mut wr, &mut bad), 0);
            let mut wc: ibv_wc = std::mem::zeroed();
            loop {
                match (ops.poll_cq.unwrap())(self.cq, 1, &mut wc) {
                    0 => std::thread::yield_now(),
                    1 => break,
                    n => panic!("ibv_poll_cq returned {n}"),
                }
            }
            assert!(wc.status != IBV_WC_SUCCESS || self.words[1] == self.words[0]);
            wc.status
        }
    }
}

#[test]
fn a_child_begins_anew_and_the_parent_goes_on() {
    // SAFETY: before anything else of this process reads the environment.
    unsafe {
        std::env::set_var("IRNIC_DEVICE", "fork0");
        std::env::set_var("IRNIC_ADDRESSES", "127.0.55.1");
    }
    let mut parent = Loop::new();
    assert_eq!(parent.write(), IBV_WC_SUCCESS);
    // SAFETY: the child uses this library only, whose handlers make that safe, and leaves without cleaning up.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut child = Loop::new();
            // SAFETY: both exist.
            let numbers = unsafe { ((*child.qp).qp_num, (*parent.qp).qp_num) };
            assert_ne!(numbers.0 >> 14, numbers.1 >> 14, "the child has a slot of its own");
            assert_eq!(child.write(), IBV_WC_SUCCESS);
            // What it inherited can be destroyed, and changes nothing in the parent.
            // SAFETY: the parent's objects, copied.
            assert_eq!(unsafe { ibv_destroy_qp(parent.qp) }, 0);
        }));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child's status is {status:#x}");
    for _ in 0..100 {
        assert_eq!(parent.write(), IBV_WC_SUCCESS);
    }
}
