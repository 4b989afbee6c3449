//! Contexts: an application's handle on a device.

use std::mem::offset_of;
use std::sync::Arc;

use super::channel::Channel;
use super::event::{AsyncEvent, ObjectListener};
use crate::abi::structs::*;
use crate::device::{DeviceInfo, PortListener};
use crate::errno::Result;
use crate::runtime::{DeviceRuntime, EventQueue, Listener, Owner};

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    device: Arc<DeviceRuntime>,
    owner: Owner,
    /// Asynchronous events that the application has not taken.
    events: Arc<EventQueue<AsyncEvent>>,
    verbs: verbs_context,
}

impl Context {
    /// Creates a context of a running device. `verbs` has the function tables.
    pub(crate) fn create(
        device: *mut ibv_device,
        runtime: Arc<DeviceRuntime>,
        mut verbs: verbs_context,
    ) -> Result<*mut ibv_context> {
        let events = Arc::new(EventQueue::new()?);
        let port: Arc<dyn PortListener> = events.clone();
        runtime.listen(Arc::downgrade(&port));
        verbs.priv_ = std::ptr::dangling_mut();
        verbs.context.device = device;
        verbs.context.async_fd = events.fd();
        // Some applications take it for a descriptor of the kernel's driver and poll it: this one never becomes ready.
        verbs.context.cmd_fd = events.fd();
        let context = Box::into_raw(Box::new(Context { device: runtime, owner: Owner::new(), events, verbs }));
        // SAFETY: just created.
        Ok(unsafe { &raw mut (*context).verbs.context })
    }

    /// Returns the context behind a C pointer.
    ///
    /// # Safety
    /// `context` is one that `ibv_open_device` returned and that is still open.
    pub(crate) unsafe fn from_c<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: an `ibv_context` is always the one inside a `Context`.
        unsafe { &*context.byte_sub(offset_of!(Context, verbs.context)).cast() }
    }

    /// Frees a context.
    ///
    /// # Safety
    /// `context` was created by [`Context::create`], and nothing refers to it.
    pub(crate) unsafe fn free(context: *mut ibv_context) {
        // SAFETY: an `ibv_context` is always the one inside a `Context`.
        drop(unsafe { Box::from_raw(context.byte_sub(offset_of!(Context, verbs.context)).cast::<Context>()) });
    }

    /// Returns the device, shared with the process's other contexts of it.
    pub(crate) fn device(&self) -> &Arc<DeviceRuntime> {
        &self.device
    }

    /// Returns the properties of the device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Returns the owner of all objects that are created in this context.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the asynchronous events that the application has not taken.
    pub(crate) fn events(&self) -> &EventQueue<AsyncEvent> {
        &self.events
    }

    /// Removes the events of an object that have not been taken.
    pub(super) fn purge<T>(&self, object: *const T) {
        self.events.purge(|event| event.concerns(object));
    }

    /// Returns the listener of an object of this context; a completion queue may have a channel.
    pub(crate) fn listener<T>(&self, object: *mut T, channel: Option<&Channel>) -> Box<dyn Listener> {
        Box::new(ObjectListener::new(object, &self.events, channel.map(Channel::events)))
    }
}
