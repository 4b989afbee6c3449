//! Queries of a device and its port: attributes, GIDs, P_Keys, the clock.

use std::ffi::c_int;

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::device::{DEFAULT_PKEY, DeviceInfo, PKEY_TABLE, device_attr, port_attr};
use crate::errno::{Errno, Result, invalid, number, status, unsupported};
use crate::objects::Context;

/// ibv_query_device(3).
///
/// # Safety
/// `context` is open, `attr` may be written.
pub unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    status("ibv_query_device", || {
        // SAFETY: the caller's promise.
        unsafe { *attr = device_attr(Context::from_c(context).info()) };
        Ok(())
    })
}

/// Capabilities without names in verbs.h: the kernel's `IB_UVERBS_DEVICE_*` (include/uapi/rdma/ib_user_verbs.h).
const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// ibv_query_device_ex(3).
pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    status("ibv_query_device_ex", || {
        // SAFETY: NULL or valid.
        if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
            return Err(invalid!("the input's comp_mask is not 0"));
        }
        if attr_size < size_of::<ibv_device_attr>() {
            return Err(invalid!("{attr_size} bytes for attributes that begin with {}", size_of::<ibv_device_attr>()));
        }
        // SAFETY: the caller's promise.
        let context = unsafe { Context::from_c(context) };
        // SAFETY: numbers and characters only.
        let mut a: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        a.orig_attr = device_attr(context.info());
        a.completion_timestamp_mask = u64::MAX;
        // In kHz, as reported by the kernel's drivers.
        a.hca_core_clock = context.device().clock().nominal_hz() / 1000;
        a.device_cap_flags_ex = u64::from(a.orig_attr.device_cap_flags) | DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE;
        a.max_dm_size = 0;
        a.phys_port_cnt_ex = 1;
        // The port's pacer: any rate from 1 kbit/s to the link's, in kbit/s.
        a.packet_pacing_caps = ibv_packet_pacing_caps {
            qp_rate_limit_min: 1,
            qp_rate_limit_max: u32::try_from(context.info().rate / 1000).unwrap_or(u32::MAX),
            supported_qpts: 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD,
        };
        // SAFETY: both are at least that long.
        unsafe { copy_prefix(&a, attr.cast(), attr_size) };
        Ok(())
    })
}

/// Writes as much of `from` as fits into `size` bytes at `to`, followed by zeros.
///
/// # Safety
/// `size` bytes at `to` may be written.
unsafe fn copy_prefix<T>(from: &T, to: *mut u8, size: usize) {
    let n = size.min(size_of::<T>());
    // SAFETY: `n` bytes are in both; the rest is the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *from).cast(), to, n);
        to.add(n).write_bytes(0, size - n);
    }
}

fn check_port(port: u8) -> Result<()> {
    if port == 1 { Ok(()) } else { Err(invalid!("port {port}: the device has port 1")) }
}

/// Bytes of `ibv_port_attr` written by the exported function; later members came with the inline one.
const PORT_ATTR_COMPAT: usize = 48;

/// ibv_query_port(3), the exported function: writes the original, shorter structure.
///
/// # Safety
/// `context` is open, 48 bytes at `attr` may be written.
pub unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: passed on.
    unsafe { query_port_ex(context, port, attr, PORT_ATTR_COMPAT) }
}

/// ibv_query_port(3) for programs older than the extensible structure.
pub(super) unsafe extern "C" fn query_port_compat(
    context: *mut ibv_context,
    port: u8,
    attr: *mut std::ffi::c_void,
) -> c_int {
    // SAFETY: passed on.
    unsafe { query_port_ex(context, port, attr.cast(), PORT_ATTR_COMPAT) }
}

/// ibv_query_port(3), inline: as much of the structure as the program knows.
pub(super) unsafe extern "C" fn query_port_ex(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    status("ibv_query_port", || {
        check_port(port)?;
        // SAFETY: the caller's promise.
        let context = unsafe { Context::from_c(context) };
        let mut a = port_attr(context.info());
        a.qkey_viol_cntr = u32::try_from(context.device().qkey_violations()).unwrap_or(u32::MAX);
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&a, attr.cast(), size) };
        Ok(())
    })
}

/// ibv_query_gid(3).
///
/// # Safety
/// `context` is open, `gid` may be written.
pub unsafe extern "C" fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    number("ibv_query_gid", || {
        check_port(port)?;
        // SAFETY: the caller's promise.
        let info = unsafe { Context::from_c(context) }.info();
        let index = usize::try_from(index).map_err(|_| invalid!("GID index {index} is negative"))?;
        if index >= info.gid_table_len() {
            return Err(past_table(info, index));
        }
        // SAFETY: the caller's promise.
        unsafe { (*gid).raw = info.gid_at(index).copied().unwrap_or_default() };
        Ok(0)
    })
}

fn past_table(info: &DeviceInfo, index: usize) -> Errno {
    invalid!("GID index {index}: the table of {} has {}", info.name, info.gid_table_len())
}

fn gid_entry(info: &DeviceInfo, index: usize) -> Option<ibv_gid_entry> {
    Some(ibv_gid_entry {
        gid: ibv_gid { raw: *info.gid_at(index)? },
        gid_index: index as u32,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: info.interface.index,
    })
}

/// ibv_query_gid_ex(3). ENODATA for an empty entry.
///
/// # Safety
/// `context` is open, `entry_size` bytes at `entry` may be written.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    status("ibv_query_gid_ex", || {
        if flags != 0 {
            return Err(unsupported!("flags {flags:#x}: expected 0"));
        }
        check_port(u8::try_from(port).unwrap_or(u8::MAX))?;
        // SAFETY: the caller's promise.
        let info = unsafe { Context::from_c(context) }.info();
        let index = index as usize;
        if index >= info.gid_table_len() {
            return Err(past_table(info, index));
        }
        let found = gid_entry(info, index).ok_or(Errno(libc::ENODATA))?;
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&found, entry.cast(), entry_size) };
        Ok(())
    })
}

/// ibv_query_gid_table(3).
///
/// # Safety
/// `context` is open, `max` entries of `entry_size` bytes may be written.
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let mut found = 0;
    let outcome = status("ibv_query_gid_table", || {
        if flags != 0 {
            return Err(unsupported!("flags {flags:#x}: expected 0"));
        }
        // SAFETY: the caller's promise.
        let info = unsafe { Context::from_c(context) }.info();
        if info.gids.len() > max {
            return Err(invalid!("room for {max} GIDs: {} has {}", info.name, info.gids.len()));
        }
        for (i, entry) in info.gid_table().filter_map(|(index, _)| gid_entry(info, index)).enumerate() {
            // SAFETY: at most `max` entries.
            unsafe { copy_prefix(&entry, entries.byte_add(i * entry_size).cast(), entry_size) };
        }
        found = info.gids.len() as isize;
        Ok(())
    });
    if outcome == 0 { found } else { -(outcome as isize) }
}

/// ibv_query_pkey(3).
///
/// # Safety
/// `context` is open, `pkey` may be written.
pub unsafe extern "C" fn ibv_query_pkey(_context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    number("ibv_query_pkey", || {
        check_port(port)?;
        if !(0..c_int::from(PKEY_TABLE)).contains(&index) {
            return Err(invalid!("P_Key index {index}: the table has {PKEY_TABLE}"));
        }
        // SAFETY: the caller's promise.
        unsafe { *pkey = DEFAULT_PKEY.to_be() };
        Ok(0)
    })
}

/// ibv_get_pkey_index(3).
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    number("ibv_get_pkey_index", || {
        check_port(port)?;
        if u16::from_be(pkey) == DEFAULT_PKEY {
            Ok(0)
        } else {
            Err(invalid!("there is no P_Key {:#06x}, only the default one", u16::from_be(pkey)))
        }
    })
}

/// ibv_query_rt_values_ex(3): the NIC's clock. As on hardware, the value is a raw counter in `tv_nsec`.
pub(super) unsafe extern "C" fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    status("ibv_query_rt_values_ex", || {
        // SAFETY: the caller's promise.
        let (context, values) = unsafe { (Context::from_c(context), &mut *values) };
        let requested = values.comp_mask;
        values.comp_mask = 0;
        if requested & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(unsupported!("expected nothing but the raw clock"));
        }
        if requested & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = context.device().ticks() as libc::c_long;
            values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        }
        Ok(())
    })
}
