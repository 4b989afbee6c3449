//! Memory regions: what can be registered, and changed.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use libc::{EBUSY, EFAULT, EINVAL, EOPNOTSUPP};

use crate::kit::{ALL, Pd, QpSpec, Recv, Send, connect, errno, refused, zeroed};
use crate::open;

const PAGE: usize = 4096;

/// Fresh pages, unmapped in the end.
struct Pages(*mut c_void, usize);

impl Pages {
    fn new(pages: usize, protection: c_int) -> Pages {
        let len = pages * PAGE;
        // SAFETY: new anonymous memory.
        let at = unsafe { libc::mmap(null_mut(), len, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at, len)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped above.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

fn reg(pd: &Pd, at: *mut c_void, len: usize, access: u32) -> *mut ibv_mr {
    // SAFETY: the domain exists; the memory outlives the region, if one comes of it.
    unsafe { ibv_reg_mr(pd.0, at, len, access as c_int) }
}

#[test]
fn memory_that_cannot_be_used_so_is_refused_at_once() {
    let ctx = open();
    let pd = ctx.pd();
    let hole = {
        let pages = Pages::new(1, libc::PROT_READ);
        pages.0
    };
    assert_eq!(refused(reg(&pd, hole, 8, IBV_ACCESS_LOCAL_WRITE)), EFAULT, "unmapped");
    assert_eq!(refused(reg(&pd, hole, 8, 0)), EFAULT, "unmapped, to read");
    assert_eq!(refused(reg(&pd, null_mut(), 8, 0)), EFAULT, "NULL");
    let constant = Pages::new(2, libc::PROT_READ);
    assert_eq!(refused(reg(&pd, constant.0, 8, IBV_ACCESS_LOCAL_WRITE)), EFAULT, "read-only");
    let mr = reg(&pd, constant.0, 2 * PAGE, IBV_ACCESS_REMOTE_READ);
    assert!(!mr.is_null(), "read-only memory can be read");
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    assert_eq!(refused(reg(&pd, constant.0, 1 << 46, 0)), EFAULT, "beyond its end");
    assert_eq!(refused(reg(&pd, constant.0, usize::MAX, 0)), EINVAL, "around the address space");
    let one = Pages::new(3, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a page of the mapping.
    unsafe { assert_eq!(libc::munmap(one.0.byte_add(PAGE), PAGE), 0) };
    assert_eq!(refused(reg(&pd, one.0, 3 * PAGE, ALL)), EFAULT, "a hole in the middle");
}

#[test]
fn rights_of_peers_to_write_need_the_own_one() {
    let ctx = open();
    let pd = ctx.pd();
    let pages = Pages::new(1, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(refused(reg(&pd, pages.0, 8, IBV_ACCESS_REMOTE_WRITE)), EINVAL);
    assert_eq!(refused(reg(&pd, pages.0, 8, IBV_ACCESS_REMOTE_ATOMIC)), EINVAL);
    assert_eq!(refused(reg(&pd, pages.0, 8, IBV_ACCESS_ON_DEMAND)), EOPNOTSUPP);
    // Optional flags are hints (ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING).
    let mr = reg(&pd, pages.0, 8, IBV_ACCESS_LOCAL_WRITE | 1 << 20);
    assert!(!mr.is_null());
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    // SAFETY: says so.
    assert_eq!(refused(unsafe { ibv_reg_mr(null_mut(), pages.0, 8, 0) }), EINVAL);
}

#[test]
fn a_region_may_have_other_addresses_than_its_memory() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let qp = pd.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    let own = pd.mr(64);
    let mut words = [0_u64; 4];
    let at: *mut c_void = words.as_mut_ptr().cast();
    // The kernel wants the same offset in a page.
    let offset = at as u64 % PAGE as u64;
    // SAFETY: refused.
    let other = unsafe { ibv_reg_mr_iova(pd.0, at, 32, 0x1_0000 + (offset ^ 8), ALL as c_int) };
    assert_eq!(refused(other), EINVAL);
    // SAFETY: the memory outlives the regions.
    let regions = unsafe {
        let access = ALL as c_int;
        let mut ex: ibv_mr_init_attr = zeroed();
        (ex.addr, ex.length, ex.access, ex.iova) = (at, 32, access, 0x5000 + offset);
        ex.comp_mask = u64::from(IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR);
        [
            (ibv_reg_mr_iova(pd.0, at, 32, 0x1_0000 + offset, access), 0x1_0000 + offset),
            (ibv_reg_mr_iova2(pd.0, at, 32, offset, access as u32), offset),
            (ibv_reg_mr(pd.0, at, 32, access | IBV_ACCESS_ZERO_BASED as c_int), 0),
            ((ctx.table().reg_mr_ex.unwrap())(pd.0, &mut ex), 0x5000 + offset),
        ]
    };
    for (value, (mr, iova)) in (1..).zip(regions) {
        assert!(!mr.is_null(), "iova {iova:#x}");
        own.set_word(0, value);
        // SAFETY: exists.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        assert_eq!(qp.post(Send::write(1, (iova + 8, rkey)).sge(own.sge(0, 8))), 0);
        cq.expect(1, IBV_WC_SUCCESS);
        // SAFETY: a word of the array, which the NIC wrote to.
        assert_eq!(unsafe { (&raw const words[1]).read_volatile() }, value);
        // Scatter/gather elements name the same addresses.
        let sge = ibv_sge { addr: iova + 8, length: 8, lkey };
        assert_eq!(qp.post(Send::write(2, (own.addr() + 8, own.rkey())).sge(sge)), 0);
        cq.expect(2, IBV_WC_SUCCESS);
        assert_eq!(own.word(1), value);
        // SAFETY: exists.
        assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    }
    let mut none: ibv_mr_init_attr = zeroed();
    // SAFETY: filled.
    assert_eq!(refused(unsafe { (ctx.table().reg_mr_ex.unwrap())(pd.0, &mut none) }), EOPNOTSUPP);
}

#[test]
fn a_null_region_reads_as_zeros_and_swallows_what_is_written() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let qp = pd.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    let mr = pd.mr(64);
    // SAFETY: the domain exists.
    let null = unsafe { (ctx.table().alloc_null_mr.unwrap())(pd.0) };
    assert!(!null.is_null());
    // SAFETY: exists.
    let anywhere = ibv_sge { addr: 0x1234, length: 8, lkey: unsafe { (*null).lkey } };
    mr.set_word(0, u64::MAX);
    assert_eq!(qp.post(Send::write(1, (mr.addr(), mr.rkey())).sge(anywhere)), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    assert_eq!(mr.word(0), 0);
    assert_eq!(qp.recv(Recv::new(2).sge(anywhere).sge(mr.sge(16, 8))), 0);
    mr.set_word(1, 7);
    assert_eq!(qp.post(Send::message(3).sge(mr.sge(0, 8)).sge(mr.sge(8, 8))), 0);
    assert_eq!([cq.wait().status, cq.wait().status], [IBV_WC_SUCCESS; 2]);
    assert_eq!(mr.word(2), 7, "the second half only");
    // It is what it is: libibverbs re-registers memory only.
    // SAFETY: both exist.
    unsafe {
        let rights = ALL as c_int;
        let outcome = ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS as c_int, null_mut(), null_mut(), 0, rights);
        assert_eq!((outcome, errno()), (IBV_REREG_MR_ERR_INPUT, EINVAL));
        assert_eq!(ibv_dereg_mr(null), 0);
    }
}

#[test]
fn a_null_region_does_not_hold_its_domain() {
    let ctx = open();
    // SAFETY: each call gets what the ones before returned, as programs that forget a null region do.
    unsafe {
        let pd = ibv_alloc_pd(ctx.0);
        let alloc = ctx.table().alloc_null_mr.unwrap();
        let nulls = [alloc(pd), alloc(pd)];
        assert_eq!((*nulls[0]).lkey, (*nulls[1]).lkey);
        assert_eq!(ibv_dereg_mr(nulls[0]), 0);
        let mut memory = 0_u64;
        let mr = ibv_reg_mr(pd, (&raw mut memory).cast(), 8, 0);
        assert_eq!(ibv_dealloc_pd(pd), EBUSY, "for the other region");
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dealloc_pd(pd), 0);
        assert_eq!(ibv_dereg_mr(nulls[1]), 0);
    }
}

#[test]
fn a_region_has_one_key() {
    let ctx = open();
    let pd = ctx.pd();
    let (first, second) = (pd.mr(64), pd.mr(64));
    for mr in [&first, &second] {
        // SAFETY: exists.
        assert_eq!(unsafe { (*mr.mr).lkey }, mr.rkey());
    }
    assert!(first.rkey().abs_diff(second.rkey()) > 1, "keys are drawn at random");
}

#[test]
fn a_region_is_changed_or_stays_as_it_was() {
    let ctx = open();
    let (pd, other) = (ctx.pd(), ctx.pd());
    let constant = Pages::new(1, libc::PROT_READ);
    let writable = Pages::new(1, libc::PROT_READ | libc::PROT_WRITE);
    let mr = reg(&pd, constant.0, PAGE, IBV_ACCESS_REMOTE_READ);
    let rereg = |flags: u32, pd: *mut ibv_pd, at, len, access: u32| {
        // SAFETY: all exist; the memory outlives the region.
        let outcome = unsafe { ibv_rereg_mr(mr, flags as c_int, pd, at, len, access as c_int) };
        (outcome, if outcome == 0 { 0 } else { errno() })
    };
    let (translation, domain, rights) =
        (IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_ACCESS);
    let input = (IBV_REREG_MR_ERR_INPUT, EINVAL);
    let command = (IBV_REREG_MR_ERR_CMD, EFAULT);
    assert_eq!(rereg(8, null_mut(), null_mut(), 0, 0), input, "unknown flags");
    assert_eq!(rereg(translation, null_mut(), null_mut(), PAGE, 0), input, "no address");
    assert_eq!(rereg(translation, null_mut(), writable.0, 0, 0), input, "no length");
    assert_eq!(rereg(domain, other.0, null_mut(), 0, ALL), input, "rights that are not to be changed");
    assert_eq!(rereg(domain, null_mut(), null_mut(), 0, 0), input, "no domain");
    assert_eq!(rereg(rights, null_mut(), null_mut(), 0, IBV_ACCESS_REMOTE_WRITE), input, "not without local write");
    // The memory cannot be written to: the NIC must not believe it could.
    assert_eq!(rereg(rights, null_mut(), null_mut(), 0, ALL), command);
    assert_eq!(rereg(translation | rights, null_mut(), constant.0, PAGE, ALL), command);
    // Another read-only range for a region that is not written to.
    assert_eq!(rereg(translation, null_mut(), constant.0, 64, 0), (0, 0));
    assert_eq!(rereg(translation | rights | domain, other.0, writable.0, PAGE, ALL), (0, 0));
    // SAFETY: exists.
    unsafe {
        assert_eq!(((*mr).pd, (*mr).addr, (*mr).length), (other.0, writable.0, PAGE));
        assert_eq!(ibv_dealloc_pd(other.0), libc::EBUSY);
    }
    let cq = ctx.cq(8);
    let qp = other.qp(&cq, QpSpec::rc());
    connect(&qp, &qp);
    let own = other.mr(8);
    own.set_word(0, 99);
    // SAFETY: exists.
    let to = unsafe { ((*mr).addr as u64, (*mr).rkey) };
    assert_eq!(qp.post(Send::write(1, to).sge(own.sge(0, 8))), 0);
    cq.expect(1, IBV_WC_SUCCESS);
    // SAFETY: mapped and aligned.
    assert_eq!(unsafe { writable.0.cast::<u64>().read_volatile() }, 99);
    // The old domain is free, the new one is in use.
    drop(pd);
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

#[test]
fn keys_of_deregistered_memory_are_worth_nothing() {
    let ctx = open();
    let pd = ctx.pd();
    let cq = ctx.cq(8);
    let own = pd.mr(64);
    let (to, sge) = {
        let mr = pd.mr(64);
        ((mr.addr(), mr.rkey()), mr.sge(0, 8))
    };
    let _new = pd.mr(64);
    let (a, b) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&cq, QpSpec::rc()));
    connect(&a, &b);
    assert_eq!(a.post(Send::write(1, to).sge(own.sge(0, 8))), 0);
    cq.expect(1, IBV_WC_REM_ACCESS_ERR);
    let (c, d) = (pd.qp(&cq, QpSpec::rc()), pd.qp(&cq, QpSpec::rc()));
    connect(&c, &d);
    assert_eq!(c.post(Send::write(2, (own.addr(), own.rkey())).sge(sge)), 0);
    cq.expect(2, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn empty_regions_are_regions() {
    let ctx = open();
    let pd = ctx.pd();
    let mr = reg(&pd, null_mut(), 0, ALL);
    assert!(!mr.is_null());
    // SAFETY: exists.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}
