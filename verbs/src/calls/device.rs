//! The list of devices, and contexts on them.

use std::ffi::{c_char, c_int};

use super::tables::tables;
use crate::abi::structs::{ibv_context, ibv_device};
use crate::errno::{Errno, pointer, set_errno, status};
use crate::objects::{Context, Device, devices};
use crate::ucma;

/// ibv_get_device_list(3).
///
/// # Safety
/// `num_devices` may be written, or is NULL.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", || {
        // librdmacm asks for the list before it opens its device.
        ucma::install(super::ibv_create_ah);
        let devices = devices();
        // As in the C library: one block, NULL at the end.
        // SAFETY: a plain allocation.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (i, device) in devices.iter().enumerate() {
            // SAFETY: the block has space for all, and one more.
            unsafe { list.add(i).write(device.as_c()) };
        }
        if !num_devices.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *num_devices = devices.len() as c_int };
        }
        Ok(list)
    })
}

/// ibv_free_device_list(3).
///
/// # Safety
/// `list` came from `ibv_get_device_list`.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: allocated there.
    unsafe { libc::free(list.cast()) };
}

/// ibv_get_device_name(3).
///
/// # Safety
/// `device` is a device.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { &raw const (*device).name }.cast()
}

/// ibv_get_device_guid(3), in network order.
///
/// # Safety
/// `device` is a device.
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { Device::from_c(device) }.info().guid.to_be()
}

/// ibv_get_device_index(3): the position in the list.
///
/// # Safety
/// `device` is a device.
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    match devices().iter().position(|d| std::ptr::eq(d.as_c(), device)) {
        Some(index) => index as c_int,
        None => {
            set_errno(libc::EINVAL);
            -1
        }
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
        let runtime = device.runtime()?;
        runtime.start()?;
        Context::create(device.as_c(), runtime, tables())
    })
}

/// ibv_close_device(3). Objects that the application has left open stop: peers no longer reach them, and they raise no
/// events.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status("ibv_close_device", || {
        // SAFETY: the caller's promise.
        let this = unsafe { Context::from_c(context) };
        if this.device().abandon(this.owner()) {
            // Its objects still refer to it, and may yet be destroyed.
            return Ok(());
        }
        // SAFETY: created by `ibv_open_device`, and nothing refers to it.
        unsafe { Context::free(context) };
        Ok(())
    })
}
