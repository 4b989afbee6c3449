//! An application that says anything, in any order: values out of range, objects of other domains, wrong masks, huge
//! counts. Only its pointers are good. The process survives, and what is refused is refused with an errno value.

mod kit;

use std::ffi::c_int;
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use kit::{ALL, Ctx, Dice, QKEY, errno, zeroed};

const STEPS: usize = 30_000;
/// Objects of a kind at a time.
const MOST: usize = 12;

struct Application {
    ctx: Ctx,
    dice: Dice,
    pds: Vec<*mut ibv_pd>,
    cqs: Vec<*mut ibv_cq>,
    srqs: Vec<*mut ibv_srq>,
    qps: Vec<*mut ibv_qp>,
    mrs: Vec<*mut ibv_mr>,
    mws: Vec<*mut ibv_mw>,
    ahs: Vec<*mut ibv_ah>,
    channels: Vec<*mut ibv_comp_channel>,
    memory: Box<[u64]>,
    refusals: [u32; 134],
    successes: u32,
}

impl Application {
    /// What a call returned: 0 or an errno value. EIO would be a panic inside.
    #[track_caller]
    fn check(&mut self, outcome: c_int) {
        assert!((0..134).contains(&outcome) && outcome != libc::EIO, "errno {outcome}");
        match outcome {
            0 => self.successes += 1,
            _ => self.refusals[outcome as usize] += 1,
        }
    }

    #[track_caller]
    fn made<T>(&mut self, pointer: *mut T) -> Option<*mut T> {
        let outcome = if pointer.is_null() { errno() } else { 0 };
        assert!(!pointer.is_null() || outcome > 0);
        self.check(outcome);
        (!pointer.is_null()).then_some(pointer)
    }

    /// A small number, a large one, or any.
    fn number(&mut self) -> u32 {
        let any = self.dice.next() as u32;
        match self.dice.below(8) {
            0 => any,
            1 => u32::MAX - any % 4,
            2 => 1 << (any % 32),
            3 => (1 << 31) - 1 + any % 3,
            _ => any % 20,
        }
    }

    /// A number that makes a queue of at most some thousands, or an absurd one.
    fn size(&mut self) -> u32 {
        match self.number() {
            n if !(4096..=1 << 23).contains(&n) => n,
            n => n % 4096,
        }
    }

    fn pick<T>(&mut self, from: &[*mut T]) -> *mut T {
        if from.is_empty() || self.dice.below(40) == 0 { null_mut() } else { from[self.dice.below(from.len())] }
    }

    fn gid(&mut self) -> ibv_gid {
        match self.dice.below(4) {
            0 => zeroed(),
            1 => {
                let mut raw = [0; 16];
                raw.fill_with(|| self.dice.next() as u8);
                // Not to somebody's network.
                raw[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
                raw[12] = 127;
                ibv_gid { raw }
            }
            2 => ibv_gid { raw: [0xff; 16] },
            _ => self.ctx.gid(),
        }
    }

    fn ah_attr(&mut self) -> ibv_ah_attr {
        let mut attr: ibv_ah_attr = zeroed();
        attr.grh.dgid = self.gid();
        attr.is_global = (self.dice.below(8) != 0) as u8;
        attr.port_num = if self.dice.below(8) == 0 { self.number() as u8 } else { 1 };
        attr.grh.sgid_index = if self.dice.below(8) == 0 { self.number() as u8 } else { 0 };
        attr.grh.flow_label = self.number();
        (attr.grh.hop_limit, attr.grh.traffic_class) = (self.number() as u8, self.number() as u8);
        attr
    }

    /// Memory of ours, with a key that may be anybody's.
    fn sge(&mut self) -> ibv_sge {
        let (mrs, room) = (self.mrs.clone(), self.memory.len() as u32 * 8);
        let mr = self.pick(&mrs);
        // SAFETY: exists, or is NULL.
        let lkey = unsafe { mr.as_ref() }.map_or_else(|| self.number(), |mr| mr.lkey);
        // The end of the memory is never passed: inline data is read by whoever posts it.
        let length = self.dice.below(room as usize / 2) as u32;
        ibv_sge { addr: self.memory.as_ptr() as u64 + self.dice.below(room as usize / 2) as u64, length, lkey }
    }

    fn remote(&mut self) -> (u64, u32) {
        let mrs = self.mrs.clone();
        let mr = self.pick(&mrs);
        let wild = self.dice.below(6) == 0;
        // SAFETY: exists, or is NULL.
        match unsafe { mr.as_ref() } {
            Some(mr) if !wild => (mr.addr as u64 + self.dice.below(64) as u64 * 8, mr.rkey),
            _ => (self.dice.next(), self.number()),
        }
    }

    fn post_send(&mut self, qp: *mut ibv_qp) {
        let mut sges: Vec<ibv_sge> = (0..self.dice.below(40)).map(|_| self.sge()).collect();
        let (remote_addr, rkey) = self.remote();
        let (ahs, mws, mrs) = (self.ahs.clone(), self.mws.clone(), self.mrs.clone());
        let mut wrs: Vec<ibv_send_wr> = (0..1 + self.dice.below(5))
            .map(|_| {
                let mut wr: ibv_send_wr = zeroed();
                (wr.wr_id, wr.opcode, wr.send_flags) = (self.dice.next(), self.number(), self.number() & 0x1f);
                if self.dice.below(3) != 0 {
                    wr.opcode %= 12;
                }
                wr.num_sge = match self.dice.below(20) {
                    0 => -(self.number() as c_int & 0xff),
                    1 => sges.len() as c_int,
                    _ => sges.len().min(3) as c_int,
                };
                wr.sg_list = sges.as_mut_ptr();
                // SAFETY: the queue pair exists; the opcode says what is read.
                let service = unsafe { (*qp).qp_type };
                if service == IBV_QPT_UD {
                    // Which shares its place with a handle.
                    let (qpn, qkey) = (self.number(), if self.dice.below(2) == 0 { QKEY } else { self.number() });
                    wr.wr.ud = ibv_wr_ud { ah: self.pick(&ahs), remote_qpn: qpn, remote_qkey: qkey };
                } else if wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
                    wr.wr.atomic = ibv_wr_atomic { remote_addr, compare_add: self.dice.next(), swap: 1, rkey };
                } else {
                    wr.wr.rdma = ibv_wr_rdma { remote_addr, rkey };
                }
                wr.data.imm_data = self.number();
                wr.extra.bind_mw =
                    ibv_wr_bind_mw { mw: self.pick(&mws), rkey: self.number(), bind_info: self.bind_info(&mrs) };
                wr
            })
            .collect();
        for i in 1..wrs.len() {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        let mut bad = null_mut();
        // SAFETY: exists; the list ends; elements are of our memory.
        let outcome = unsafe { (self.ctx.ops().post_send.unwrap())(qp, wrs.as_mut_ptr(), &mut bad) };
        assert!(outcome == 0 || wrs.as_mut_ptr_range().contains(&bad), "bad_wr");
        self.check(outcome);
    }

    fn bind_info(&mut self, mrs: &[*mut ibv_mr]) -> ibv_mw_bind_info {
        let (addr, _) = self.remote();
        let length = if self.dice.below(2) == 0 { u64::from(self.number()) } else { 64 };
        ibv_mw_bind_info { mr: self.pick(mrs), addr, length, mw_access_flags: self.number() & 0x7f }
    }

    fn post_recv(&mut self, to: Result<*mut ibv_qp, *mut ibv_srq>) {
        let mut sges: Vec<ibv_sge> = (0..self.dice.below(40)).map(|_| self.sge()).collect();
        let num_sge = if self.dice.below(30) == 0 { -1 } else { sges.len().min(self.dice.below(6)) as c_int };
        let mut wr = ibv_recv_wr { wr_id: self.dice.next(), next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge };
        let mut bad = null_mut();
        // SAFETY: exists; elements are of our memory.
        let outcome = unsafe {
            match to {
                Ok(qp) => (self.ctx.ops().post_recv.unwrap())(qp, &mut wr, &mut bad),
                Err(srq) => (self.ctx.ops().post_srq_recv.unwrap())(srq, &mut wr, &mut bad),
            }
        };
        assert!(outcome == 0 || bad == &raw mut wr);
        self.check(outcome);
    }

    fn modify(&mut self, qp: *mut ibv_qp) {
        let wild = self.dice.below(3) == 0;
        // SAFETY: exists.
        let now = unsafe { (*qp).state };
        let own = kit::Qp(qp);
        let qps = self.qps.clone();
        let peer = self.pick(&qps);
        // SAFETY: exists, or is NULL.
        let mut attr = own.attr(unsafe { peer.as_ref() }.map_or(0, |p| p.qp_num));
        attr.qp_state = if wild { self.number() % 9 } else { (now + 1) % 4 };
        attr.timeout = 1;
        attr.retry_cnt = 1;
        let mut mask = own.mask(attr.qp_state);
        std::mem::forget(own);
        if wild {
            mask ^= 1 << self.dice.below(32);
            if self.dice.below(3) == 0 {
                mask = self.number();
            }
            match self.dice.below(10) {
                0 => attr.path_mtu = self.number(),
                1 => attr.ah_attr = self.ah_attr(),
                2 => attr.dest_qp_num = self.number(),
                3 => (attr.rq_psn, attr.sq_psn) = (self.number(), self.number()),
                4 => (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (self.number() as u8, self.number() as u8),
                5 => (attr.timeout, attr.min_rnr_timer) = (self.number() as u8, self.number() as u8),
                6 => (attr.retry_cnt, attr.rnr_retry) = (self.number() as u8, self.number() as u8),
                7 => (attr.port_num, attr.pkey_index) = (self.number() as u8, self.number() as u16),
                8 => (attr.qp_access_flags, attr.qkey) = (self.number(), self.number()),
                _ => attr.rate_limit = self.number(),
            }
        }
        // SAFETY: exists.
        let outcome = unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) };
        self.check(outcome);
    }

    fn create_qp(&mut self) {
        let (pds, cqs, srqs) = (self.pds.clone(), self.cqs.clone(), self.srqs.clone());
        let mut init: ibv_qp_init_attr_ex = zeroed();
        let wild = self.dice.below(4) == 0;
        init.qp_type = if wild { self.number() } else { 2 + self.dice.below(3) as u32 };
        (init.send_cq, init.recv_cq) = (self.pick(&cqs), self.pick(&cqs));
        init.srq = if self.dice.below(3) == 0 { self.pick(&srqs) } else { null_mut() };
        init.cap = ibv_qp_cap {
            max_send_wr: if wild { self.size() } else { 8 },
            max_recv_wr: if wild { self.size() } else { 8 },
            max_send_sge: if wild { self.number() } else { 3 },
            max_recv_sge: if wild { self.number() } else { 3 },
            max_inline_data: if wild { self.number() } else { 64 },
        };
        init.pd = self.pick(&pds);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = if wild { self.dice.next() } else { u64::from(IBV_QP_EX_WITH_SEND) };
        if wild && self.dice.below(4) == 0 {
            init.comp_mask = self.number();
        }
        // SAFETY: all exist, or are NULL.
        let qp = unsafe { (self.ctx.table().create_qp_ex.unwrap())(self.ctx.0, &mut init) };
        if let Some(qp) = self.made(qp) {
            self.qps.push(qp);
        }
    }

    fn batch(&mut self, qp: *mut ibv_qp) {
        let batch = kit::Batch(qp.cast());
        for _ in 0..self.dice.below(12) {
            match self.dice.below(8) {
                0 => batch.start(),
                1 => batch.abort(),
                2 => batch.send(),
                3 => batch.write(self.remote()),
                4 => batch.sge(self.sge()),
                5 => batch.inline(&[&[7; 100][..self.dice.below(100)]]),
                6 => {
                    let ahs = self.ahs.clone();
                    batch.to(self.pick(&ahs), self.number(), self.number());
                }
                _ => {
                    let outcome = batch.complete();
                    self.check(outcome);
                }
            }
            batch.id(self.dice.next(), self.number());
        }
        batch.abort();
    }

    fn destroy(&mut self) {
        /// Takes one out; puts it back if it was not destroyed.
        fn one<T>(dice: &mut Dice, from: &mut Vec<*mut T>, destroy: impl FnOnce(*mut T) -> c_int) -> c_int {
            if from.is_empty() {
                return 0;
            }
            let at = dice.below(from.len());
            let outcome = destroy(from[at]);
            if outcome == 0 {
                from.swap_remove(at);
            }
            outcome
        }
        let dealloc_mw = self.ctx.ops().dealloc_mw.unwrap();
        let dice = &mut self.dice;
        // SAFETY: what is in the lists exists, and is forgotten when it does no more.
        let outcome = unsafe {
            match dice.below(8) {
                0 => one(dice, &mut self.pds, |o| ibv_dealloc_pd(o)),
                1 => one(dice, &mut self.cqs, |o| ibv_destroy_cq(o)),
                2 => one(dice, &mut self.srqs, |o| ibv_destroy_srq(o)),
                3 => one(dice, &mut self.qps, |o| ibv_destroy_qp(o)),
                4 => one(dice, &mut self.mrs, |o| ibv_dereg_mr(o)),
                5 => one(dice, &mut self.mws, |o| dealloc_mw(o)),
                6 => one(dice, &mut self.ahs, |o| ibv_destroy_ah(o)),
                _ => one(dice, &mut self.channels, |o| ibv_destroy_comp_channel(o)),
            }
        };
        self.check(outcome);
    }

    fn create(&mut self) {
        let pds = self.pds.clone();
        let pd = self.pick(&pds);
        match self.dice.below(9) {
            0 if self.pds.len() < MOST => {
                let pd = self.ctx.pd();
                self.pds.push(pd.0);
                std::mem::forget(pd);
            }
            1 if self.cqs.len() < MOST => {
                let channels = self.channels.clone();
                let (n, channel) = (self.size(), self.pick(&channels));
                let vector = if self.dice.below(8) == 0 { self.number() } else { 0 };
                // SAFETY: open.
                let cq = unsafe { ibv_create_cq(self.ctx.0, n as c_int, null_mut(), channel, vector as c_int) };
                let made = self.made(cq);
                self.cqs.extend(made);
            }
            2 if self.srqs.len() < MOST => {
                let mut init: ibv_srq_init_attr = zeroed();
                init.attr = ibv_srq_attr { max_wr: self.size(), max_sge: self.number(), srq_limit: self.number() };
                // SAFETY: exists, or is NULL.
                let srq = unsafe { ibv_create_srq(pd, &mut init) };
                let made = self.made(srq);
                self.srqs.extend(made);
            }
            3 | 4 if self.qps.len() < MOST => self.create_qp(),
            5 if self.mrs.len() < MOST => {
                let wild = self.dice.below(4) == 0;
                let len = if wild { self.dice.next() as usize } else { self.memory.len() * 8 };
                let access = if wild { self.number() } else { ALL };
                let iova = if self.dice.below(8) == 0 { self.dice.next() } else { self.memory.as_ptr() as u64 };
                // SAFETY: the memory lives as long as we do; more is not mapped, or it is refused.
                let mr = unsafe {
                    ibv_reg_mr_iova2(pd, self.memory.as_mut_ptr().cast(), len.min(self.memory.len() * 8), iova, access)
                };
                let made = self.made(mr);
                self.mrs.extend(made);
            }
            6 if self.mws.len() < MOST && !pd.is_null() => {
                let kind = self.number();
                // SAFETY: exists.
                let mw = unsafe { (self.ctx.ops().alloc_mw.unwrap())(pd, kind) };
                let made = self.made(mw);
                self.mws.extend(made);
            }
            7 if self.ahs.len() < MOST => {
                let mut attr = self.ah_attr();
                // SAFETY: exists, or is NULL.
                let ah = unsafe { ibv_create_ah(pd, &mut attr) };
                let made = self.made(ah);
                self.ahs.extend(made);
            }
            8 if self.channels.len() < MOST => {
                let channel = self.ctx.channel_left();
                kit::never_block(kit_fd(channel));
                self.channels.push(channel);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let (qps, cqs, srqs, mrs, mws, pds) = (
            self.qps.clone(),
            self.cqs.clone(),
            self.srqs.clone(),
            self.mrs.clone(),
            self.mws.clone(),
            self.pds.clone(),
        );
        let (qp, cq, srq, mr, mw) =
            (self.pick(&qps), self.pick(&cqs), self.pick(&srqs), self.pick(&mrs), self.pick(&mws));
        // SAFETY: what is in the lists exists; NULL goes only where the verbs take a pointer of the application's own.
        unsafe {
            match self.dice.below(20) {
                0 | 1 => self.create(),
                2 => self.destroy(),
                3..=5 if !qp.is_null() => self.modify(qp),
                6..=8 if !qp.is_null() => self.post_send(qp),
                9 if !qp.is_null() => self.post_recv(Ok(qp)),
                10 if !srq.is_null() => self.post_recv(Err(srq)),
                11 if !cq.is_null() => {
                    let mut wc: [ibv_wc; 64] = zeroed();
                    let n = (self.ctx.ops().poll_cq.unwrap())(cq, self.dice.below(66) as c_int - 1, wc.as_mut_ptr());
                    self.check(if n < 0 { -n } else { 0 });
                }
                12 if !cq.is_null() => {
                    let outcome = match self.dice.below(2) {
                        0 => (self.ctx.ops().req_notify_cq.unwrap())(cq, self.number() as c_int),
                        _ => ibv_resize_cq(cq, self.size() as c_int),
                    };
                    self.check(outcome);
                }
                13 if !srq.is_null() => {
                    let mut attr =
                        ibv_srq_attr { max_wr: self.size(), max_sge: self.number(), srq_limit: self.number() };
                    let mask = if self.dice.below(3) == 0 { self.number() } else { self.number() & 3 };
                    let outcome = ibv_modify_srq(srq, &mut attr, mask as c_int);
                    self.check(outcome);
                }
                14 if !mr.is_null() => {
                    let pd = self.pick(&pds);
                    let (flags, rights) = (self.number(), self.number());
                    let at = self.memory.as_mut_ptr().cast();
                    let len = self.dice.below(self.memory.len() * 8 + 1);
                    let outcome = ibv_rereg_mr(mr, flags as c_int, pd, at, len, rights as c_int);
                    assert!((IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW..=0).contains(&outcome));
                    let outcome = if outcome == 0 { 0 } else { errno() };
                    self.check(outcome);
                }
                15 if !qp.is_null() => {
                    let gid = ibv_gid {
                        raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 73, 0, self.number() as u8 % 4],
                    };
                    let gid = if self.dice.below(4) == 0 { self.gid() } else { gid };
                    let outcome = match self.dice.below(2) {
                        0 => ibv_attach_mcast(qp, &gid, self.number() as u16),
                        _ => ibv_detach_mcast(qp, &gid, 0),
                    };
                    self.check(outcome);
                }
                16 if !qp.is_null() && !mw.is_null() => {
                    let mut how = ibv_mw_bind { wr_id: 1, send_flags: self.number(), bind_info: self.bind_info(&mrs) };
                    let outcome = (self.ctx.ops().bind_mw.unwrap())(qp, mw, &mut how);
                    self.check(outcome);
                }
                17 if !qp.is_null() => {
                    let mut attr = ibv_qp_rate_limit_attr {
                        rate_limit: self.number(),
                        max_burst_sz: self.number(),
                        typical_pkt_sz: 0,
                        comp_mask: u32::from(self.dice.below(8) == 0),
                    };
                    let outcome = (self.ctx.table().modify_qp_rate_limit.unwrap())(qp, &mut attr);
                    self.check(outcome);
                }
                18 if !qp.is_null() && !ibv_qp_to_qp_ex(qp).is_null() => self.batch(qp),
                _ => {
                    while let Some(mut event) = self.ctx.event_now() {
                        ibv_ack_async_event(&mut event);
                    }
                    let channels = self.channels.clone();
                    let channel = self.pick(&channels);
                    let (mut cq, mut context) = (null_mut(), null_mut());
                    while !channel.is_null() && ibv_get_cq_event(channel, &mut cq, &mut context) == 0 {
                        ibv_ack_cq_events(cq, 1);
                    }
                }
            }
        }
    }
}

fn kit_fd(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: exists.
    unsafe { (*channel).fd }
}

#[test]
fn the_process_survives_and_every_refusal_is_an_errno_value() {
    let _watchdog = kit::Watchdog::start("a hostile application");
    kit::configure("hostile0", [73, 1]);
    let ctx = Ctx::open();
    ctx.never_block();
    let mut application = Application {
        ctx,
        dice: Dice::new(0xbad),
        pds: Vec::new(),
        cqs: Vec::new(),
        srqs: Vec::new(),
        qps: Vec::new(),
        mrs: Vec::new(),
        mws: Vec::new(),
        ahs: Vec::new(),
        channels: Vec::new(),
        memory: vec![0; 1 << 11].into_boxed_slice(),
        refusals: [0; 134],
        successes: 0,
    };
    for _ in 0..STEPS {
        application.step();
    }
    let refused: Vec<(usize, u32)> = application.refusals.iter().copied().enumerate().filter(|(_, n)| *n > 0).collect();
    println!("{} calls succeeded, refused: {refused:?}", application.successes);
    assert!(application.successes > 1000 && application.refusals[libc::EINVAL as usize] > 1000);
}
