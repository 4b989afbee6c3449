//! Domains of extended reliable connections.

use std::sync::Arc;

use super::context::Context;
use super::users::Users;
use crate::abi::structs::*;
use crate::errno::{Result, invalid};
use crate::runtime::XrcDomain;

/// A handle on an XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    base: ibv_xrcd,
    domain: Arc<XrcDomain>,
    /// Queue pairs and shared receive queues that were created with this handle.
    users: Users,
}

impl Xrcd {
    /// Creates the handle of a context on a domain.
    pub(crate) fn create(context: *mut ibv_context, domain: Arc<XrcDomain>) -> *mut ibv_xrcd {
        Box::into_raw(Box::new(Xrcd { base: ibv_xrcd { context }, domain, users: Users::default() })).cast()
    }

    /// Returns the handle behind a C pointer.
    ///
    /// # Safety
    /// `xrcd` exists or is NULL.
    pub(crate) unsafe fn from_c<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a Xrcd> {
        // SAFETY: `base` is the first member.
        unsafe { xrcd.cast::<Xrcd>().as_ref() }.ok_or_else(|| invalid!("the XRC domain is NULL"))
    }

    /// Returns the domain.
    pub(crate) fn domain(&self) -> &Arc<XrcDomain> {
        &self.domain
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

    /// Returns whether objects still refer to the handle.
    pub(crate) fn is_used(&self) -> bool {
        self.users.any()
    }

    /// Adds a user of this handle, which must not be freed before [`Xrcd::release`].
    pub(crate) fn hold(&self) {
        self.users.hold();
    }

    /// Removes a user of the handle. Ignores NULL.
    ///
    /// # Safety
    /// `xrcd` is NULL, or was held and exists.
    pub(crate) unsafe fn release(xrcd: *mut ibv_xrcd) {
        // SAFETY: the caller's promise.
        if let Some(this) = unsafe { xrcd.cast::<Xrcd>().as_ref() } {
            this.users.release();
        }
    }

    /// Frees a handle without users.
    ///
    /// # Safety
    /// `xrcd` exists.
    pub(crate) unsafe fn free(xrcd: *mut ibv_xrcd) {
        // SAFETY: created by `create`.
        drop(unsafe { Box::from_raw(xrcd.cast::<Xrcd>()) });
    }
}
