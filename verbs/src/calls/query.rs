//! Contexts: an application's handle on a device, with the function tables that `verbs.h`'s inlines call through, and what
//! can be asked of a device and its port.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use irnic_nic::Nic;
use irnic_transports::qp::MAX_RD_ATOMIC;
use irnic_transports::{Gather, Time};

use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::calls::refuse;
use crate::channel::Queue;
use crate::device::{Device, DeviceInfo};
use crate::errno::{Errno, Result, invalid, number, pointer, status, unsupported};
use crate::event::AsyncEvent;
use crate::unit::{Unit, now};
use crate::{cq, cq_ex, mr, mw, pd, post, qp, srq};

/// An open device.
#[repr(C)]
pub struct Context {
    unit: Arc<Unit>,
    /// Asynchronous events that the application has not taken.
    pub events: Queue<AsyncEvent>,
    verbs: verbs_context,
}

/// libibverbs' `__VERBS_ABI_IS_EXTENDED`: there is a `verbs_context` around the `ibv_context`.
const EXTENDED: usize = usize::MAX;
/// Entries of the GID table, at least.
const GID_TABLE: usize = 16;
/// Entries of the P_Key table: only the default partition.
const PKEY_TABLE: u16 = 1;
/// The default partition, full member.
const DEFAULT_PKEY: u16 = 0xffff;
/// Completion vectors: all events come from one background thread.
const COMP_VECTORS: c_int = 1;

impl Context {
    /// The context behind a C pointer.
    ///
    /// # Safety
    /// `context` is one that `ibv_open_device` returned and that is still open.
    pub unsafe fn from_c<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: an `ibv_context` always is the one inside a `Context`.
        unsafe { &*context.byte_sub(std::mem::offset_of!(Context, verbs.context)).cast() }
    }

    /// Its processing unit, which it shares with the process's other contexts of the device.
    pub fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }

    /// What the device says of itself.
    pub fn info(&self) -> &DeviceInfo {
        self.unit.info()
    }
}

/// `verbs_context` without a device: every slot filled.
pub(crate) fn tables() -> verbs_context {
    verbs_context {
        free_buf: Some(refuse::void),
        alloc_buf: Some(refuse::ptr),
        dm_export_dmabuf_fd: Some(refuse::int),
        reg_mr_ex: Some(mr::ibv_reg_mr_ex),
        dealloc_dmah: Some(refuse::int),
        alloc_dmah: Some(refuse::ptr),
        query_port: Some(query_port_ex),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: Some(refuse::int),
        attach_counters_point_flow: Some(refuse::int),
        create_counters: Some(refuse::ptr),
        destroy_counters: Some(refuse::int),
        reg_dm_mr: Some(refuse::ptr),
        alloc_dm: Some(alloc_dm),
        free_dm: Some(refuse::int),
        modify_flow_action_esp: Some(refuse::int),
        destroy_flow_action: Some(refuse::int),
        create_flow_action_esp: Some(refuse::ptr),
        modify_qp_rate_limit: Some(qp::modify_qp_rate_limit),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: Some(refuse::int),
        destroy_rwq_ind_table: Some(refuse::int),
        create_rwq_ind_table: Some(refuse::ptr),
        destroy_wq: Some(refuse::int),
        modify_wq: Some(refuse::int),
        create_wq: Some(refuse::ptr),
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: std::ptr::null_mut(),
        query_device_ex: Some(query_device_ex),
        ibv_destroy_flow: Some(refuse::int),
        ABI_placeholder2: Some(refuse::void),
        ibv_create_flow: Some(refuse::ptr),
        ABI_placeholder1: Some(refuse::void),
        open_qp: Some(refuse::ptr),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(refuse::ptr),
        close_xrcd: Some(refuse::int),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device: std::ptr::null_mut(),
            ops: ibv_context_ops {
                _compat_query_device: Some(ibv_query_device),
                _compat_query_port: Some(query_port_compat),
                _compat_alloc_pd: Some(refuse::ptr),
                _compat_dealloc_pd: Some(refuse::ptr),
                _compat_reg_mr: Some(refuse::ptr),
                _compat_rereg_mr: Some(refuse::ptr),
                _compat_dereg_mr: Some(refuse::ptr),
                alloc_mw: Some(mw::alloc_mw),
                bind_mw: Some(mw::bind_mw),
                dealloc_mw: Some(mw::dealloc_mw),
                _compat_create_cq: Some(refuse::ptr),
                poll_cq: Some(cq::poll_cq),
                req_notify_cq: Some(cq::req_notify_cq),
                _compat_cq_event: Some(refuse::ptr),
                _compat_resize_cq: Some(refuse::ptr),
                _compat_destroy_cq: Some(refuse::ptr),
                _compat_create_srq: Some(refuse::ptr),
                _compat_modify_srq: Some(refuse::ptr),
                _compat_query_srq: Some(refuse::ptr),
                _compat_destroy_srq: Some(refuse::ptr),
                post_srq_recv: Some(post::post_srq_recv),
                _compat_create_qp: Some(refuse::ptr),
                _compat_query_qp: Some(refuse::ptr),
                _compat_modify_qp: Some(refuse::ptr),
                _compat_destroy_qp: Some(refuse::ptr),
                post_send: Some(post::post_send),
                post_recv: Some(post::post_recv),
                _compat_create_ah: Some(refuse::ptr),
                _compat_destroy_ah: Some(refuse::ptr),
                _compat_attach_mcast: Some(refuse::ptr),
                _compat_detach_mcast: Some(refuse::ptr),
                _compat_async_event: Some(refuse::ptr),
            },
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: COMP_VECTORS,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: std::ptr::without_provenance_mut(EXTENDED),
        },
    }
}

/// ibv_open_device(3).
///
/// # Safety
/// `device` is a device.
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", || {
        // SAFETY: the caller's promise.
        let device = unsafe { Device::from_c(device) };
        let unit = device.unit()?;
        unit.start()?;
        let events = Queue::new()?;
        let mut verbs = tables();
        verbs.priv_ = std::ptr::dangling_mut();
        verbs.context.device = device.as_c();
        verbs.context.async_fd = events.fd();
        // Some applications take it for a descriptor of the kernel's driver and watch it: one that nothing happens on.
        verbs.context.cmd_fd = events.fd();
        let context = Box::into_raw(Box::new(Context { unit, events, verbs }));
        // SAFETY: just made.
        Ok(unsafe { &raw mut (*context).verbs.context })
    })
}

/// ibv_close_device(3). What the application left behind stops: no peer reaches it, and it raises no events any more.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status("ibv_close_device", || {
        // SAFETY: the caller's promise.
        let unit = unsafe { Context::from_c(context) }.unit().clone();
        if unit.abandon(context) {
            // Its objects still name it, and may yet be destroyed.
            return Ok(());
        }
        // SAFETY: made by `ibv_open_device`.
        drop(unsafe {
            Box::from_raw(context.byte_sub(std::mem::offset_of!(Context, verbs.context)).cast::<Context>())
        });
        Ok(())
    })
}

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

/// What ibv_query_device(3) says of a device.
pub fn device_attr(info: &DeviceInfo) -> ibv_device_attr {
    // SAFETY: numbers and characters only.
    let mut a: ibv_device_attr = unsafe { std::mem::zeroed() };
    for (to, from) in a.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as c_char;
    }
    a.node_guid = info.guid.to_be();
    a.sys_image_guid = a.node_guid;
    a.max_mr_size = u64::MAX;
    a.page_size_cap = 0xffff_f000;
    // No organisation's; what Linux's rxe says as well.
    a.vendor_id = 0xff_ffff;
    a.max_qp = crate::start::MAX_QPS as c_int;
    a.max_qp_wr = Nic::MAX_WR as c_int;
    a.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR
        | IBV_DEVICE_BAD_QKEY_CNTR
        | IBV_DEVICE_CHANGE_PHY_PORT
        | IBV_DEVICE_UD_AV_PORT_ENFORCE
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_PORT_ACTIVE_EVENT
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    a.max_sge = Gather::MAX as c_int;
    a.max_sge_rd = Gather::MAX as c_int;
    a.max_cq = 1 << 16;
    a.max_cqe = Nic::MAX_CQE as c_int;
    a.max_mr = 1 << 20;
    a.max_pd = 1 << 16;
    a.max_qp_rd_atom = c_int::from(MAX_RD_ATOMIC);
    a.max_res_rd_atom = a.max_qp.saturating_mul(c_int::from(MAX_RD_ATOMIC));
    a.max_qp_init_rd_atom = c_int::from(MAX_RD_ATOMIC);
    // Atomics are the processor's: they are atomic towards the application's own as well.
    a.atomic_cap = IBV_ATOMIC_GLOB;
    a.max_mw = 1 << 20;
    a.max_mcast_grp = 8192;
    a.max_mcast_qp_attach = 56;
    a.max_total_mcast_qp_attach = 8192 * 56;
    a.max_ah = 1 << 20;
    a.max_srq = 1 << 16;
    a.max_srq_wr = Nic::MAX_WR as c_int;
    a.max_srq_sge = Gather::MAX as c_int;
    a.max_pkeys = PKEY_TABLE;
    a.local_ca_ack_delay = 15;
    a.phys_port_cnt = 1;
    a
}

unsafe extern "C" fn query_device_ex(
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
        // In kHz, as the kernel's drivers report it.
        a.hca_core_clock = context.unit.lock().nic().clock().nominal_hz() / 1000;
        a.device_cap_flags_ex = u64::from(a.orig_attr.device_cap_flags);
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

/// Writes as much of `from` as fits into `size` bytes at `to`, and zeros after it.
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

/// What ibv_query_port(3) says of its port.
pub fn port_attr(info: &DeviceInfo) -> ibv_port_attr {
    // SAFETY: numbers only.
    let mut a: ibv_port_attr = unsafe { std::mem::zeroed() };
    a.state = if info.up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = info.mtu as u32;
    a.gid_tbl_len = info.gids.len().max(GID_TABLE) as c_int;
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.max_msg_sz = irnic_transports::qp::MAX_MESSAGE;
    a.pkey_tbl_len = PKEY_TABLE;
    a.max_vl_num = 1;
    (a.active_width, a.active_speed) = width_and_speed(info.rate);
    // 5: link up, 3: disabled (IBA 14.2.5.6, PortPhysicalState).
    a.phys_state = if info.up { 5 } else { 3 };
    a.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    a
}

/// Width and speed codes (IBA 14.2.5.6) of the fastest link that is not faster than `rate`.
fn width_and_speed(rate: u64) -> (u8, u8) {
    const GBPS: u64 = 1_000_000_000;
    let codes = [
        // 400, 200, 100, 40, 25, 10: 4X NDR, HDR, EDR, QDR; 1X EDR, QDR.
        (400, (2, 128)),
        (200, (2, 64)),
        (100, (2, 32)),
        (40, (2, 4)),
        (25, (1, 32)),
        (10, (1, 4)),
    ];
    codes.iter().find(|(gbps, _)| gbps * GBPS <= rate).map_or((1, 1), |&(_, codes)| codes)
}

fn check_port(port: u8) -> Result<()> {
    if port == 1 { Ok(()) } else { Err(invalid!("port {port}: the device has port 1")) }
}

/// Bytes of `ibv_port_attr` that the function symbol writes; later members came with the inline one.
const PORT_ATTR_COMPAT: usize = 48;

/// ibv_query_port(3), the exported function: the structure as it was before it grew.
///
/// # Safety
/// `context` is open, 48 bytes at `attr` may be written.
pub unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: passed on.
    unsafe { query_port_ex(context, port, attr, PORT_ATTR_COMPAT) }
}

unsafe extern "C" fn query_port_compat(context: *mut ibv_context, port: u8, attr: *mut std::ffi::c_void) -> c_int {
    // SAFETY: passed on.
    unsafe { query_port_ex(context, port, attr.cast(), PORT_ATTR_COMPAT) }
}

unsafe extern "C" fn query_port_ex(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    status("ibv_query_port", || {
        check_port(port)?;
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&port_attr(Context::from_c(context).info()), attr.cast(), size) };
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
        if index >= info.gids.len().max(GID_TABLE) {
            return Err(past_table(info, index));
        }
        // SAFETY: the caller's promise.
        unsafe { (*gid).raw = info.gids.get(index).copied().unwrap_or_default() };
        Ok(0)
    })
}

fn past_table(info: &DeviceInfo, index: usize) -> Errno {
    invalid!("GID index {index}: {} has {} GIDs", info.name, info.gids.len())
}

fn gid_entry(info: &DeviceInfo, index: usize) -> Option<ibv_gid_entry> {
    Some(ibv_gid_entry {
        gid: ibv_gid { raw: *info.gids.get(index)? },
        gid_index: index as u32,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: info.interface.index,
    })
}

/// ibv_query_gid_ex(3). ENODATA for an entry that is empty.
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
        if index >= info.gids.len().max(GID_TABLE) {
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
        for (i, entry) in (0..info.gids.len()).filter_map(|i| gid_entry(info, i)).enumerate() {
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

/// ibv_query_rt_values_ex(3): the NIC's clock. As with hardware, the value is a raw counter in `tv_nsec`.
unsafe extern "C" fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    status("ibv_query_rt_values_ex", || {
        // SAFETY: the caller's promise.
        let (context, values) = unsafe { (Context::from_c(context), &mut *values) };
        let asked = values.comp_mask;
        values.comp_mask = 0;
        if asked & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(unsupported!("expected nothing but the raw clock"));
        }
        if asked & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            let time: Time = now();
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = context.unit.lock().nic().clock().ticks(time) as libc::c_long;
            values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        }
        Ok(())
    })
}

/// ibv_alloc_dm(3): there is no device memory.
unsafe extern "C" fn alloc_dm(_context: *mut ibv_context, _attr: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
    refuse::ptr()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The inlines of `verbs.h` call through these tables, most of them without a look.
    #[test]
    fn no_slot_of_the_function_tables_is_null() {
        let tables = tables();
        let ops = offset_of!(verbs_context, context.ops);
        let slots = (0..offset_of!(verbs_context, _ABI_placeholder3))
            .chain(ops..ops + size_of::<ibv_context_ops>())
            .step_by(size_of::<usize>())
            .filter(|&at| at != offset_of!(verbs_context, priv_));
        let mut seen = 0;
        for at in slots {
            // SAFETY: inside the structure, which has members of this size only up to there.
            let slot = unsafe { (&raw const tables).byte_add(at).cast::<*const ()>().read() };
            assert!(!slot.is_null(), "byte {at} of verbs_context");
            seen += 1;
        }
        assert_eq!(seen, 43 + 32);
    }

    #[test]
    fn programs_see_an_extended_context_and_its_length() {
        let tables = tables();
        assert_eq!(tables.sz, size_of::<verbs_context>());
        assert_eq!(tables.context.abi_compat.addr(), usize::MAX);
    }
}
