//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::batch::Batch;
use super::context::Context;
use super::event::await_acks;
use super::pd::Pd;
use super::turn::Turn;
use super::xrcd::Xrcd;
use crate::abi::consts::*;
use crate::abi::structs::*;
use crate::errno::{Errno, Result, invalid};
use crate::runtime::{Target, Unit};

/// A queue pair. All have the extended structure; `ibv_qp` is its beginning.
#[repr(C)]
pub(crate) struct Qp {
    /// The structure that C sees.
    pub(crate) ex: ibv_qp_ex,
    /// The processing unit.
    pub(crate) unit: Arc<Unit>,
    /// Asynchronous events that the application has taken.
    pub(crate) delivered: AtomicU32,
    /// Created with `send_ops_flags`: `ibv_wr_*` may be used.
    pub(crate) extended: bool,
    /// Initial attributes, with the actual limits.
    pub(crate) init: ibv_qp_init_attr,
    /// Attributes set by the application that the NIC does not store in that form.
    pub(crate) user_attr: Mutex<UserAttr>,
    /// Held from `ibv_wr_start` to `ibv_wr_complete`.
    pub(crate) turn: Turn,
    /// Work requests under construction by `ibv_wr_*`.
    pub(crate) batch: Mutex<Batch>,
    /// For an XRC target: the target, and the handle on the domain with which it was created or opened.
    shared: Option<(Arc<Target>, *mut ibv_xrcd)>,
}

/// Attributes of a queue pair that the NIC does not store as set by the application.
#[derive(Clone)]
pub(crate) struct UserAttr {
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) port_num: u8,
    pub(crate) qp_access_flags: u32,
    pub(crate) rate_limit: u32,
}

impl UserAttr {
    /// Stores the attributes selected by `mask`.
    pub(crate) fn update(&mut self, attr: &ibv_qp_attr, mask: u32) {
        let has = |flag: u32| mask & flag != 0;
        if has(IBV_QP_AV) {
            self.ah_attr = attr.ah_attr;
        }
        if has(IBV_QP_PKEY_INDEX) {
            self.pkey_index = attr.pkey_index;
        }
        if has(IBV_QP_PORT) {
            self.port_num = attr.port_num;
        }
        if has(IBV_QP_ACCESS_FLAGS) {
            self.qp_access_flags = attr.qp_access_flags;
        }
        if has(IBV_QP_RATE_LIMIT) {
            self.rate_limit = attr.rate_limit;
        }
    }
}

impl Qp {
    /// Creates the object of a queue pair created in the NIC. `ex` has what C sees, except number and state.
    pub(crate) fn create(
        mut ex: ibv_qp_ex,
        unit: Arc<Unit>,
        number: u32,
        init: &ibv_qp_init_attr,
        extended: bool,
    ) -> *mut Qp {
        let base = &mut ex.qp_base;
        (base.handle, base.qp_num, base.state, base.qp_type) = (number, number, IBV_QPS_RESET, init.qp_type);
        base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        base.cond = libc::PTHREAD_COND_INITIALIZER;
        // SAFETY: all-zero: numbers only.
        let ah_attr = unsafe { std::mem::zeroed() };
        Box::into_raw(Box::new(Qp {
            ex,
            unit,
            delivered: AtomicU32::new(0),
            extended,
            init: *init,
            user_attr: Mutex::new(UserAttr { ah_attr, pkey_index: 0, port_num: 1, qp_access_flags: 0, rate_limit: 0 }),
            turn: Turn::new(),
            batch: Mutex::new(Batch::default()),
            shared: None,
        }))
    }

    /// Makes this a handle on an XRC target, created or opened with `xrcd`.
    pub(crate) fn share(&mut self, xrcd: *mut ibv_xrcd, target: Arc<Target>) {
        self.shared = Some((target, xrcd));
    }

    /// Destroys the queue pair in the NIC, unless other handles share it.
    pub(crate) fn close(&self) -> Result<()> {
        match &self.shared {
            None => self.unit.lock_to_end().destroy_qp(self.number())?,
            Some((target, _)) => target.close(std::ptr::from_ref(self).addr())?,
        }
        Ok(())
    }

    /// Returns the queue pair behind a C pointer.
    ///
    /// # Safety
    /// `qp` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(qp: *mut ibv_qp) -> Result<&'a Qp> {
        // SAFETY: `ex` is the first member, and begins like an `ibv_qp`.
        unsafe { qp.cast::<Qp>().as_ref() }.ok_or_else(|| invalid!("the queue pair is NULL"))
    }

    /// Returns the error of a call on a queue pair that no longer exists in the NIC.
    pub(crate) fn destroyed() -> Errno {
        invalid!("the queue pair is gone")
    }

    /// Returns the queue pair number.
    pub(crate) fn number(&self) -> u32 {
        self.ex.qp_base.qp_num
    }

    /// Returns whether it is a UD queue pair.
    pub(crate) fn sends_datagrams(&self) -> bool {
        self.ex.qp_base.qp_type == IBV_QPT_UD
    }

    /// Frees a queue pair that is no longer notified: purges events that were not taken, and waits for the
    /// acknowledgement of those that the application took.
    ///
    /// # Safety
    /// `qp` exists.
    pub(crate) unsafe fn free(qp: *mut ibv_qp) {
        let own = qp.cast::<Qp>();
        // SAFETY: the caller's promise; context and protection domain outlive the queue pair.
        unsafe {
            Context::from_c((*own).ex.qp_base.context).purge(own);
            let (mutex, cond) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
            await_acks(&raw mut (*qp).events_completed, mutex, cond, &(*own).delivered);
            // A target uses no protection domain, and does not hold the one in its structure.
            match &(*own).shared {
                Some((_, xrcd)) => Xrcd::release(*xrcd),
                None => Pd::release((*own).ex.qp_base.pd),
            }
            drop(Box::from_raw(own));
        }
    }
}
