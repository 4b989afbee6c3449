//! Queue pairs of each service, connected.

use std::ffi::c_int;
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

use super::{Cq, Pd, Recv, Send, Srq, errno, expect_destroyed, zeroed};

/// What a queue pair is made with.
#[derive(Copy, Clone)]
pub struct QpSpec {
    pub service: u32,
    pub cap: ibv_qp_cap,
    pub sig_all: bool,
    pub srq: *mut ibv_srq,
    /// For `ibv_wr_*`.
    pub send_ops: Option<u32>,
}

impl QpSpec {
    pub fn new(service: u32) -> QpSpec {
        let cap =
            ibv_qp_cap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 64 };
        QpSpec { service, cap, sig_all: false, srq: null_mut(), send_ops: None }
    }

    pub fn rc() -> QpSpec {
        QpSpec::new(IBV_QPT_RC)
    }

    pub fn uc() -> QpSpec {
        QpSpec::new(IBV_QPT_UC)
    }

    pub fn ud() -> QpSpec {
        QpSpec::new(IBV_QPT_UD)
    }

    pub fn srq(mut self, srq: &Srq) -> QpSpec {
        self.srq = srq.0;
        self
    }

    pub fn ops(mut self, ops: u32) -> QpSpec {
        self.send_ops = Some(ops);
        self
    }
}

/// A queue pair.
pub struct Qp(pub *mut ibv_qp);

// SAFETY: verbs may be called from any thread.
unsafe impl std::marker::Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Pd {
    pub fn qp(&self, cq: &Cq, spec: QpSpec) -> Qp {
        self.qp_on(cq, cq, spec)
    }

    pub fn qp_on(&self, send_cq: &Cq, recv_cq: &Cq, spec: QpSpec) -> Qp {
        let qp = self.try_qp(send_cq, recv_cq, spec);
        assert!(!qp.is_null(), "errno {}", errno());
        Qp(qp)
    }

    pub fn try_qp(&self, send_cq: &Cq, recv_cq: &Cq, spec: QpSpec) -> *mut ibv_qp {
        let mut init: ibv_qp_init_attr_ex = zeroed();
        (init.send_cq, init.recv_cq, init.srq, init.cap) = (send_cq.0, recv_cq.0, spec.srq, spec.cap);
        (init.qp_type, init.sq_sig_all) = (spec.service, c_int::from(spec.sig_all));
        match spec.send_ops {
            None => {
                let mut plain = ibv_qp_init_attr {
                    qp_context: null_mut(),
                    send_cq: init.send_cq,
                    recv_cq: init.recv_cq,
                    srq: init.srq,
                    cap: init.cap,
                    qp_type: init.qp_type,
                    sq_sig_all: init.sq_sig_all,
                };
                // SAFETY: all exist.
                unsafe { ibv_create_qp(self.0, &mut plain) }
            }
            Some(ops) => {
                (init.comp_mask, init.pd) = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, self.0);
                init.send_ops_flags = u64::from(ops);
                // SAFETY: all exist; the table is found as verbs.h finds it.
                unsafe {
                    let context = (*self.0).context;
                    let table: *const verbs_context =
                        context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast();
                    ((*table).create_qp_ex.unwrap())(context, &mut init)
                }
            }
        }
    }
}

/// The first PSN everywhere: sequence numbers wrap soon.
const PSN: u32 = 0xff_fff0;

impl Qp {
    pub fn num(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.0).qp_num }
    }

    pub fn service(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.0).qp_type }
    }

    /// The state that the application sees without asking.
    pub fn state(&self) -> u32 {
        // SAFETY: exists.
        unsafe { (*self.0).state }
    }

    pub fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> c_int {
        let mut attr = *attr;
        // SAFETY: exists.
        unsafe { ibv_modify_qp(self.0, &mut attr, mask as c_int) }
    }

    /// To a state that needs nothing else.
    pub fn to_state(&self, state: u32) -> c_int {
        self.modify(&ibv_qp_attr { qp_state: state, ..zeroed() }, IBV_QP_STATE)
    }

    pub fn query(&self) -> (ibv_qp_attr, ibv_qp_init_attr) {
        let (mut attr, mut init) = (zeroed(), zeroed());
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_query_qp(self.0, &mut attr, 0x1f_ffff, &mut init) }, 0);
        (attr, init)
    }

    /// Attributes of a queue pair that is connected to `dest` on its own device.
    pub fn attr(&self, dest: u32) -> ibv_qp_attr {
        let mut attr: ibv_qp_attr = zeroed();
        (attr.port_num, attr.qkey) = (1, QKEY);
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        (attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn) = (IBV_MTU_1024, dest, PSN, PSN);
        (attr.max_dest_rd_atomic, attr.max_rd_atomic, attr.min_rnr_timer) = (4, 4, 1);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (12, 7, 7);
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
        // SAFETY: exists, as its context does.
        assert_eq!(unsafe { ibv_query_gid((*self.0).context, 1, 0, &mut attr.ah_attr.grh.dgid) }, 0);
        attr
    }

    /// What the transition to `state` needs for this service.
    pub fn mask(&self, state: u32) -> u32 {
        let needs = match (state, self.service()) {
            (IBV_QPS_INIT, IBV_QPT_UD) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
            (IBV_QPS_INIT, _) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            (IBV_QPS_RTR, IBV_QPT_UC) => IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
            (IBV_QPS_RTR, IBV_QPT_RC) => {
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER
            }
            (IBV_QPS_RTS, IBV_QPT_RC) => {
                IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
            }
            (IBV_QPS_RTS, _) => IBV_QP_SQ_PSN,
            _ => 0,
        };
        IBV_QP_STATE | needs
    }

    #[track_caller]
    pub fn step(&self, state: u32, attr: &ibv_qp_attr) {
        assert_eq!(self.modify(&ibv_qp_attr { qp_state: state, ..*attr }, self.mask(state)), 0, "to state {state}");
    }

    /// From RESET to `state`, by way of those before it.
    #[track_caller]
    pub fn bring(&self, state: u32, attr: &ibv_qp_attr) {
        for next in IBV_QPS_INIT..=state {
            self.step(next, attr);
        }
    }

    pub fn post(&self, wr: Send) -> c_int {
        self.post_list(&mut [wr]).0
    }

    /// Posts all as one list; returns the outcome and the place of the one that `bad_wr` names.
    pub fn post_list(&self, list: &mut [Send]) -> (c_int, Option<usize>) {
        let mut next = null_mut();
        let mut places = Vec::new();
        for wr in list.iter_mut().rev() {
            next = wr.finish(next);
            places.push(next);
        }
        places.reverse();
        let mut bad = null_mut();
        // SAFETY: exists; a list that ends.
        let outcome = unsafe { ((*(*self.0).context).ops.post_send.unwrap())(self.0, next, &mut bad) };
        (outcome, places.iter().position(|&p| p == bad))
    }

    pub fn recv(&self, recv: Recv) -> c_int {
        self.recv_list(vec![recv]).0
    }

    pub fn recv_list(&self, list: Vec<Recv>) -> (c_int, Option<usize>) {
        let mut built: Vec<_> = list.into_iter().map(Recv::build).collect();
        let places: Vec<*mut ibv_recv_wr> = built.iter_mut().map(|b| &raw mut *b.wr).collect();
        for pair in places.windows(2) {
            // SAFETY: both exist.
            unsafe { (*pair[0]).next = pair[1] };
        }
        let mut bad = null_mut();
        // SAFETY: exists; a list that ends.
        let outcome = unsafe {
            ((*(*self.0).context).ops.post_recv.unwrap())(
                self.0,
                places.first().copied().unwrap_or(null_mut()),
                &mut bad,
            )
        };
        (outcome, places.iter().position(|&p| p == bad))
    }

    /// The functions of `ibv_wr_*`.
    pub fn batch(&self) -> Batch {
        // SAFETY: exists.
        let ex = unsafe { ibv_qp_to_qp_ex(self.0) };
        assert!(!ex.is_null(), "made without send_ops_flags");
        Batch(ex)
    }
}

/// Q_Key of all datagram queue pairs.
pub const QKEY: u32 = 0x1234;

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: exists.
        expect_destroyed("queue pair", unsafe { ibv_destroy_qp(self.0) });
    }
}

/// Connects two queue pairs, or one with itself; datagram ones are made ready.
#[track_caller]
pub fn connect(a: &Qp, b: &Qp) {
    connect_with(a, b, |_| ());
}

/// Connects two queue pairs, or one with itself, with attributes that `change` makes of the usual ones.
#[track_caller]
pub fn connect_with(a: &Qp, b: &Qp, change: impl Fn(&mut ibv_qp_attr)) {
    for (one, other) in [(a, b), (b, a)] {
        let mut attr = one.attr(other.num());
        change(&mut attr);
        one.bring(IBV_QPS_RTS, &attr);
        if a.0 == b.0 {
            break;
        }
    }
}

/// `ibv_wr_*` on a queue pair.
pub struct Batch(pub *mut ibv_qp_ex);

impl Batch {
    fn table(&self) -> &ibv_qp_ex {
        // SAFETY: exists while its queue pair does.
        unsafe { &*self.0 }
    }

    pub fn start(&self) {
        // SAFETY: exists.
        unsafe { (self.table().wr_start.unwrap())(self.0) };
    }

    pub fn abort(&self) {
        // SAFETY: exists.
        unsafe { (self.table().wr_abort.unwrap())(self.0) };
    }

    pub fn complete(&self) -> c_int {
        // SAFETY: exists.
        unsafe { (self.table().wr_complete.unwrap())(self.0) }
    }

    /// `wr_id` and flags of the work requests that follow.
    pub fn id(&self, wr_id: u64, flags: u32) {
        // SAFETY: exists.
        unsafe { ((*self.0).wr_id, (*self.0).wr_flags) = (wr_id, flags) };
    }

    pub fn send(&self) {
        // SAFETY: exists.
        unsafe { (self.table().wr_send.unwrap())(self.0) };
    }

    pub fn write(&self, (addr, rkey): (u64, u32)) {
        // SAFETY: exists.
        unsafe { (self.table().wr_rdma_write.unwrap())(self.0, rkey, addr) };
    }

    pub fn read(&self, (addr, rkey): (u64, u32)) {
        // SAFETY: exists.
        unsafe { (self.table().wr_rdma_read.unwrap())(self.0, rkey, addr) };
    }

    pub fn sge(&self, sge: ibv_sge) {
        // SAFETY: exists.
        unsafe { (self.table().wr_set_sge.unwrap())(self.0, sge.lkey, sge.addr, sge.length) };
    }

    pub fn sges(&self, list: &[ibv_sge]) {
        // SAFETY: exists; the list may be read.
        unsafe { (self.table().wr_set_sge_list.unwrap())(self.0, list.len(), list.as_ptr()) };
    }

    pub fn inline(&self, list: &[&[u8]]) {
        let buffers: Vec<ibv_data_buf> =
            list.iter().map(|b| ibv_data_buf { addr: b.as_ptr().cast_mut().cast(), length: b.len() }).collect();
        self.inline_at(&buffers);
    }

    /// As [`Batch::inline`], for memory that only the NIC reads.
    pub fn inline_at(&self, buffers: &[ibv_data_buf]) {
        // SAFETY: exists; the callers name memory that the NIC can read.
        unsafe { (self.table().wr_set_inline_data_list.unwrap())(self.0, buffers.len(), buffers.as_ptr()) };
    }

    pub fn to(&self, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
        // SAFETY: exists.
        unsafe { (self.table().wr_set_ud_addr.unwrap())(self.0, ah, qpn, qkey) };
    }
}
