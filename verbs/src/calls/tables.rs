//! The function tables of a context, called by `verbs.h`'s inlines.

use std::ffi::c_int;

use super::{cq, cq_ex, mr, mw, pd, post, qp, query, refuse, srq, xrc};
use crate::abi::structs::*;

/// libibverbs' `__VERBS_ABI_IS_EXTENDED`: the `ibv_context` is embedded in a `verbs_context`.
const EXTENDED: usize = usize::MAX;
/// Completion vectors: all events come from one background thread.
const COMP_VECTORS: c_int = 1;

/// Returns a `verbs_context` without a device: every slot is filled.
pub(crate) fn tables() -> verbs_context {
    verbs_context {
        free_buf: Some(refuse::void),
        alloc_buf: Some(refuse::ptr),
        dm_export_dmabuf_fd: Some(refuse::int),
        reg_mr_ex: Some(mr::ibv_reg_mr_ex),
        dealloc_dmah: Some(refuse::int),
        alloc_dmah: Some(refuse::ptr),
        query_port: Some(query::query_port_ex),
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
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: std::ptr::null_mut(),
        query_device_ex: Some(query::query_device_ex),
        ibv_destroy_flow: Some(refuse::int),
        ABI_placeholder2: Some(refuse::void),
        ibv_create_flow: Some(refuse::ptr),
        ABI_placeholder1: Some(refuse::void),
        open_qp: Some(xrc::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device: std::ptr::null_mut(),
            ops: context_ops(),
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: COMP_VECTORS,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: std::ptr::without_provenance_mut(EXTENDED),
        },
    }
}

/// Returns the function table of the `ibv_context` itself.
fn context_ops() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::query_port_compat),
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
    }
}

/// ibv_alloc_dm(3): there is no device memory.
unsafe extern "C" fn alloc_dm(_context: *mut ibv_context, _attr: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
    refuse::ptr()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The inlines of `verbs.h` call through these tables, most of them without a check.
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
            // SAFETY: inside the structure, all of whose members up to there are of this size.
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
