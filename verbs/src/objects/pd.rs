//! Protection domains and thread domains.

use std::sync::{Arc, OnceLock};

use irnic_nic::{Mr as NicMr, Nic};
use irnic_transports::qp::{Access, PdId};

use super::context::Context;
use super::users::Users;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::DeviceRuntime;

/// A protection domain, or a parent domain, which is an alias of one.
#[repr(C)]
pub(crate) struct Pd {
    base: ibv_pd,
    /// The device. A protection domain is in all of its units.
    pub(crate) device: Arc<DeviceRuntime>,
    /// The NIC's handle.
    pub(crate) id: PdId,
    /// For a parent domain: the protection and thread domains that it joins.
    pub(crate) joins: Option<(*mut ibv_pd, *mut ibv_td)>,
    /// Users of this domain that the NIC does not count: parent domains that join it, address handles, and, for a
    /// parent domain, everything created with it.
    users: Users,
    /// The region shared by all null regions, registered with the first.
    null: OnceLock<NicMr>,
}

impl Pd {
    /// Creates a protection domain of a context, or a parent domain if it `joins` others.
    pub(crate) fn create(
        context: *mut ibv_context,
        device: Arc<DeviceRuntime>,
        id: PdId,
        joins: Option<(*mut ibv_pd, *mut ibv_td)>,
    ) -> *mut ibv_pd {
        let base = ibv_pd { context, handle: id.0 };
        Box::into_raw(Box::new(Pd { base, device, id, joins, users: Users::default(), null: OnceLock::new() })).cast()
    }

    /// Returns the domain behind a C pointer.
    ///
    /// # Safety
    /// `pd` exists.
    pub(crate) unsafe fn from_c<'a>(pd: *mut ibv_pd) -> Result<&'a Pd> {
        // SAFETY: `base` is the first member.
        unsafe { pd.cast::<Pd>().as_ref() }.ok_or_else(|| invalid!("the protection domain is NULL"))
    }

    /// Returns the C pointer to the context.
    pub(crate) fn context_ptr(&self) -> *mut ibv_context {
        self.base.context
    }

    /// Returns the context.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: a context lives as long as it has objects.
        unsafe { Context::from_c(self.base.context) }
    }

    /// Returns the region that reads as zeros, of any length. It is freed with the domain.
    pub(crate) fn null_region(&self) -> Result<NicMr> {
        if let Some((pd, _)) = self.joins {
            // SAFETY: it cannot be freed while this refers to it.
            return unsafe { Pd::from_c(pd) }?.null_region();
        }
        let mut memory = self.device.lock_memory();
        if let Some(null) = self.null.get() {
            return Ok(*null);
        }
        let null = memory.nic().reg_phantom_mr(self.id, 0, u64::MAX, Access::LOCAL_WRITE)?;
        Ok(*self.null.get_or_init(|| null))
    }

    /// Frees the domain's own objects in the NIC. There are no others: see [`Pd::is_used`].
    pub(crate) fn empty(&self, nic: &mut Nic) -> Result<()> {
        self.null.get().map_or(Ok(()), |null| Ok(nic.dereg_mr(null)?))
    }

    /// Returns whether objects still refer to the domain.
    pub(crate) fn is_used(&self) -> bool {
        self.users.any()
    }

    /// Adds a user of this domain, which must not be freed before [`Pd::release`].
    pub(crate) fn hold(&self) {
        self.users.hold();
    }

    /// Removes a user of the domain.
    ///
    /// # Safety
    /// `pd` was held, and exists.
    pub(crate) unsafe fn release(pd: *mut ibv_pd) {
        // SAFETY: the caller's promise.
        if let Ok(this) = unsafe { Pd::from_c(pd) } {
            this.users.release();
        }
    }
}

/// A thread domain: a promise of the application that one thread uses its objects. It has no effect here.
#[repr(C)]
pub(crate) struct Td {
    base: ibv_td,
    users: Users,
}

impl Td {
    /// Creates a thread domain of a context.
    pub(crate) fn create(context: *mut ibv_context) -> *mut ibv_td {
        Box::into_raw(Box::new(Td { base: ibv_td { context }, users: Users::default() })).cast()
    }

    /// Returns the domain behind a C pointer, `None` for NULL.
    ///
    /// # Safety
    /// `td` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(td: *mut ibv_td) -> Option<&'a Td> {
        // SAFETY: `base` is the first member.
        unsafe { td.cast::<Td>().as_ref() }
    }

    /// Returns whether parent domains still refer to the domain.
    pub(crate) fn is_used(&self) -> bool {
        self.users.any()
    }

    /// Adds a parent domain as user.
    pub(crate) fn hold(&self) {
        self.users.hold();
    }

    /// Removes a parent domain as user.
    pub(crate) fn release(&self) {
        self.users.release();
    }
}
