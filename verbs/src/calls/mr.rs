//! Memory regions.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use irnic_nic::MrChanges;
use irnic_transports::qp::Access;

use super::access::access;
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::config::Gpu;
use crate::errno::{Errno, Result, invalid, pointer, refused, status, unsupported};
use crate::gpu;
use crate::objects::{Mr, Pd};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Makes the range resident, like pinning it for a hardware NIC, and checks that it can be accessed in this way.
fn populate(addr: *mut c_void, len: usize, access: Access) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let first = addr as usize & !(PAGE as usize - 1);
    let end = (addr as usize).checked_add(len).and_then(|e| e.checked_next_multiple_of(PAGE as usize));
    let end = end.ok_or_else(|| invalid!("{len} bytes at {addr:p} do not fit into the address space"))?;
    let how = if access.allows(Access::LOCAL_WRITE) { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: changes no contents, and fails where nothing is mapped.
    if unsafe { libc::madvise(first as *mut c_void, end - first, how) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        // Kernels before 5.14 do not know the advice, special mappings reject it, and forbidden access is reported in
        // the same way.
        Some(libc::EINVAL) => check_mappings(first, end, access),
        _ => Err(unmapped(first, end, access)),
    }
}

/// Checks that the process has the whole range mapped with the rights that `access` needs, by `proc_pid_maps(5)`.
/// Without that file the application is trusted.
fn check_mappings(first: usize, end: usize, access: Access) -> Result<()> {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return Ok(()) };
    let right = if access.allows(Access::LOCAL_WRITE) { 'w' } else { 'r' };
    let mut at = first;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else { continue };
        if to <= at {
            continue;
        }
        if from > at || !rights.contains(right) {
            break;
        }
        at = to;
        if at >= end {
            return Ok(());
        }
    }
    Err(unmapped(first, end, access))
}

fn unmapped(first: usize, end: usize, access: Access) -> Errno {
    let right = if access.allows(Access::LOCAL_WRITE) { "written" } else { "read" };
    refused(libc::EFAULT, &format_args!("the pages from {first:#x} to {end:#x} are not all there to be {right}"))
}

unsafe fn register(pd: *mut ibv_pd, addr: *mut c_void, len: usize, iova: u64, flags: c_int) -> Result<*mut ibv_mr> {
    // SAFETY: the caller's promise.
    let domain = unsafe { Pd::from_c(pd) }?;
    let access = access(flags)?;
    if (iova ^ addr as u64) & (PAGE - 1) != 0 {
        return Err(invalid!(
            "iova {iova:#x} and address {addr:p} differ in their offset within a page of {PAGE} bytes"
        ));
    }
    if let Err(error) = populate(addr, len, access) {
        // A driver is looked for only here: dlopen(3) takes the loader's lock, which a child of fork(2) would inherit.
        let range = (addr as u64, len as u64);
        let wanted = domain.device.info().config.gpu != Gpu::Off;
        let Some(driver) = (if wanted { gpu::accelerator(range.0, range.1)? } else { None }) else { return Err(error) };
        let mr =
            domain.device.lock_memory().nic().reg_accelerator_mr(domain.id, range, iova, access, driver.clone())?;
        let registered = gpu::Registered::new(range.0, range.1, driver);
        return Ok(Mr::of_gpu(domain, pd, addr, len, mr, access, registered));
    }
    let iova = if access.allows(Access::ZERO_BASED) { 0 } else { iova };
    // SAFETY: the application keeps registered memory until it deregisters it, as required by ibv_reg_mr(3).
    let mr = unsafe { domain.device.lock_memory().nic().reg_mr(domain.id, addr.cast(), len as u64, iova, access) }?;
    Ok(Mr::create(domain, pd, addr, len, mr, access))
}

/// ibv_reg_mr(3).
///
/// # Safety
/// `pd` exists; the memory stays valid until `ibv_dereg_mr`.
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: passed on.
    pointer("ibv_reg_mr", || unsafe { register(pd, addr, length, addr as u64, access) })
}

/// ibv_reg_mr_iova(3).
///
/// # Safety
/// `pd` exists; the memory stays valid until `ibv_dereg_mr`.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: passed on.
    pointer("ibv_reg_mr_iova", || unsafe { register(pd, addr, length, iova, access) })
}

/// ibv_reg_mr_iova2: registers memory with access flags not known at compile time.
///
/// # Safety
/// `pd` exists; the memory stays valid until `ibv_dereg_mr`.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: passed on.
    pointer("ibv_reg_mr_iova2", || unsafe { register(pd, addr, length, iova, access as c_int) })
}

/// ibv_reg_mr_ex(3): memory by its address.
///
/// # Safety
/// `pd` exists; the memory stays valid until `ibv_dereg_mr`.
pub unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    pointer("ibv_reg_mr_ex", || {
        // SAFETY: the caller's promise.
        let attr = unsafe { &*attr };
        let mask = attr.comp_mask;
        let known = u64::from(IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR);
        if mask & !known != 0 || mask & u64::from(IBV_REG_MR_MASK_ADDR) == 0 {
            return Err(unsupported!("comp_mask {mask:#x}: expected an address, and an iova at most"));
        }
        let iova = if mask & u64::from(IBV_REG_MR_MASK_IOVA) != 0 { attr.iova } else { attr.addr as u64 };
        // SAFETY: passed on.
        unsafe { register(pd, attr.addr, attr.length, iova, attr.access) }
    })
}

/// ibv_alloc_null_mr(3): reads as zeros, and writes are discarded. It does not keep its domain from being freed:
/// hardware drivers have one key for all, and the region is only a structure.
pub(super) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer("ibv_alloc_null_mr", || {
        // SAFETY: the caller's promise.
        let domain = unsafe { Pd::from_c(pd) }?;
        Ok(Mr::null(domain, pd, domain.null_region()?))
    })
}

/// ibv_advise_mr(3): concerns on-demand paging.
pub(super) unsafe extern "C" fn advise_mr(
    _pd: *mut ibv_pd,
    _advice: u32,
    _flags: u32,
    _list: *mut ibv_sge,
    _n: u32,
) -> c_int {
    libc::EOPNOTSUPP
}

/// ibv_rereg_mr(3). On an error the region is unchanged.
///
/// # Safety
/// `mr` exists; the new values are as for [`ibv_reg_mr`].
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access_flags: c_int,
) -> c_int {
    let changed = status("ibv_rereg_mr", || {
        let flags = flags as u32;
        if flags == 0 || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
            return Err(invalid!("flags {flags:#x}: expected what is to be changed"));
        }
        // SAFETY: the caller's promise.
        let this = unsafe { Mr::from_c_mut(mr) }?;
        let mut rights = this.access.ok_or_else(|| invalid!("a null region stays what it is"))?;
        let mut changes = MrChanges::default();
        if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
            rights = access(access_flags)?;
            changes.access = Some(rights);
        } else if access_flags != 0 {
            return Err(invalid!("access flags {access_flags:#x}, and no flag that says to change them"));
        }
        if flags & IBV_REREG_MR_CHANGE_PD != 0 {
            // SAFETY: the caller's promise.
            let domain = unsafe { Pd::from_c(pd) }?;
            if !Arc::ptr_eq(&domain.device, &this.device) {
                return Err(invalid!("the protection domain is another device's"));
            }
            changes.pd = Some(domain.id);
        }
        if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
            if length == 0 || addr.is_null() {
                return Err(invalid!("{length} bytes at {addr:p}: expected memory to register"));
            }
            if this.gpu.is_some() {
                return Err(unsupported!("a region of a GPU's memory keeps its range"));
            }
            changes.translation = Some((addr.cast(), length as u64, addr as u64));
            populate(addr, length, rights)?;
        } else if changes.access.is_some() && this.gpu.is_none() {
            populate(this.base.addr, this.base.length, rights)?;
        }
        // SAFETY: as for a registration.
        this.mr = unsafe { this.device.lock_memory().nic().rereg_mr(&this.mr, changes) }?;
        (this.base.lkey, this.base.rkey) = (this.mr.lkey, this.mr.rkey);
        this.access = Some(rights);
        if changes.pd.is_some() {
            // SAFETY: both exist: the old one at least as long as the region belonged to it.
            unsafe {
                Pd::from_c(pd)?.hold();
                Pd::release(this.base.pd);
            }
            this.base.pd = pd;
        }
        if changes.translation.is_some() {
            (this.base.addr, this.base.length) = (addr, length);
        }
        Ok(())
    });
    match changed {
        0 => 0,
        libc::EINVAL => IBV_REREG_MR_ERR_INPUT,
        _ => IBV_REREG_MR_ERR_CMD,
    }
}

/// ibv_dereg_mr(3).
///
/// # Safety
/// `mr` exists.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status("ibv_dereg_mr", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Mr::from_c(mr) }?;
        if this.access.is_some() {
            this.device.lock_memory().nic().dereg_mr(&this.mr)?;
        }
        // SAFETY: the caller's promise; the NIC no longer knows it.
        unsafe { Mr::free(mr) };
        Ok(())
    })
}
