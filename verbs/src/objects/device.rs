//! The devices of this process, as C structures.

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::abi::consts::{IBV_NODE_CA, IBV_TRANSPORT_IB};
use crate::abi::structs::{_ibv_device_ops, ibv_context, ibv_device};
use crate::config::Config;
use crate::device::{self, DeviceInfo, Live};
use crate::errno::{Errno, Result, set_errno};
use crate::explain;
use crate::runtime::{DeviceRuntime, forked};
use crate::stats;

/// How long a thread that ends the process waits for another one that holds a device's lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// A device as C sees it. Devices live as long as the process: applications keep pointers to them.
#[repr(C)]
pub(crate) struct Device {
    base: ibv_device,
    live: Arc<Live>,
    runtime: Mutex<Option<Arc<DeviceRuntime>>>,
}

impl Device {
    fn new(info: DeviceInfo) -> Device {
        // SAFETY: an all-zero ibv_device is valid: numbers, characters, and pointers that may be NULL.
        let mut base: ibv_device = unsafe { std::mem::zeroed() };
        base._ops = _ibv_device_ops { _dummy1: Some(refuse_open), _dummy2: Some(refuse_close) };
        base.node_type = IBV_NODE_CA as c_int;
        base.transport_type = IBV_TRANSPORT_IB as c_int;
        copy_name(&mut base.name, &info.name);
        copy_name(&mut base.dev_name, &info.uverbs());
        copy_name(&mut base.dev_path, &format!("/sys/class/infiniband_verbs/{}", info.uverbs()));
        copy_name(&mut base.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
        Device { base, live: Arc::new(Live::new(info)), runtime: Mutex::new(None) }
    }

    /// Returns the device behind a C pointer.
    ///
    /// # Safety
    /// `device` is one of a list that `ibv_get_device_list` returned.
    pub(crate) unsafe fn from_c(device: *mut ibv_device) -> &'static Device {
        // SAFETY: `base` is the first member, and devices are never freed.
        unsafe { &*device.cast() }
    }

    /// Returns the current properties of the device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.live.get()
    }

    /// Returns the C structure.
    pub(crate) fn as_c(&self) -> *mut ibv_device {
        (&raw const self.base).cast_mut()
    }

    /// Returns the running device, opened by the first caller: all contexts of a process share it. A failure is
    /// reported on standard error.
    pub(crate) fn runtime(&self) -> Result<Arc<DeviceRuntime>> {
        let mut runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.clone());
        }
        let opened = DeviceRuntime::open(&self.live).map_err(|e| {
            eprintln!("irnic: {}: {e}", self.info().name);
            match Errno::from(e) {
                Errno(libc::ENOMEM) => Errno(libc::ENOMEM),
                _ => Errno(libc::EIO),
            }
        })?;
        at_exit();
        Ok(runtime.insert(Arc::new(opened)).clone())
    }

    /// Returns the running device, if it runs.
    pub(crate) fn running(&self) -> Option<Arc<DeviceRuntime>> {
        self.runtime.lock().clone()
    }

    /// Locks the device before a fork: no other thread is inside while the process is copied.
    fn lock_for_fork(&self) {
        let runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            runtime.lock_for_fork();
        }
        std::mem::forget(runtime);
    }

    /// Unlocks the device after a fork. In the child it must be opened anew: port and peers are the parent's. The
    /// parent's runtime is never dropped there, which would notify the peers that it is closed.
    ///
    /// # Safety
    /// Must be called in the thread that called [`Device::lock_for_fork`].
    unsafe fn unlock_after_fork(&self, child: bool) {
        // SAFETY: this thread holds both locks.
        unsafe {
            let runtime = &mut *self.runtime.data_ptr();
            if let Some(runtime) = &*runtime {
                runtime.unlock_after_fork(child);
            }
            if child {
                std::mem::forget(runtime.take());
                self.live.forget_listeners();
            }
            forked::unlock(&self.runtime, child);
        }
    }
}

// SAFETY: the raw pointers inside `base` are function pointers or NULL; everything else is Sync.
unsafe impl Sync for Device {}
// SAFETY: the raw pointers inside `base` are function pointers or NULL; everything else is Send.
unsafe impl Send for Device {}

fn copy_name<const N: usize>(to: &mut [c_char; N], name: &str) {
    for (to, from) in to[..N - 1].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
}

/// Opens a device with the interface of libibverbs before 1.1, which nothing calls: EOPNOTSUPP.
unsafe extern "C" fn refuse_open(_device: *mut ibv_device, _cmd_fd: c_int) -> *mut ibv_context {
    set_errno(libc::EOPNOTSUPP);
    std::ptr::null_mut()
}

unsafe extern "C" fn refuse_close(_context: *mut ibv_context) {}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// Returns all devices. An invalid configuration results in none, and is reported once.
pub(crate) fn devices() -> &'static [Device] {
    DEVICES.get_or_init(|| {
        let made = Config::from_environment().map_err(|e| e.to_string()).and_then(|config| {
            config.report_ignored();
            let infos = device::infos(&config)?;
            stats::set_wanted(config.stats);
            explain::set_wanted(config.explain);
            if config.explain {
                let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
                device::asked(&names).iter().for_each(|line| explain::print_once(line));
            }
            Ok(infos)
        });
        match made {
            Ok(infos) => {
                on_fork();
                infos.into_iter().map(Device::new).collect()
            }
            Err(e) => {
                eprintln!("irnic: {e}");
                Vec::new()
            }
        }
    })
}

/// Returns the devices if they were requested before.
fn made() -> &'static [Device] {
    DEVICES.get().map_or(&[], Vec::as_slice)
}

/// Registers handlers that make children of this process start without a NIC: the NIC, its threads and its connections
/// stay with the parent.
fn on_fork() {
    extern "C" fn prepare() {
        made().iter().for_each(Device::lock_for_fork);
    }
    extern "C" fn parent() {
        // SAFETY: the C library calls this in the thread that called `prepare`.
        made().iter().for_each(|d| unsafe { d.unlock_after_fork(false) });
    }
    extern "C" fn child() {
        // SAFETY: the child is a copy of the thread that called `prepare`.
        made().iter().for_each(|d| unsafe { d.unlock_after_fork(true) });
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handlers access only what belongs to this library.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    });
}

/// Registers a function that completes captures and writes statistics when the process exits.
fn at_exit() {
    extern "C" fn finish() {
        let _ = catch_unwind(|| {
            // A thread may be inside, and may never leave.
            let running = made().iter().filter_map(|device| device.runtime.try_lock_for(PATIENCE)?.clone());
            let done: Vec<_> = running.filter_map(|runtime| runtime.finish(PATIENCE)).collect();
            stats::report_all(&done);
        });
    }
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function remains valid, as this object is never unloaded.
    ONCE.call_once(|| unsafe {
        atexit(finish);
    });
}
