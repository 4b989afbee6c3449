//! The devices of this process: what configuration makes of the host's interfaces.

use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use irnic_transports::wire::Mtu;
use parking_lot::Mutex;

use crate::abi::consts::{IBV_NODE_CA, IBV_TRANSPORT_IB};
use crate::abi::structs::{_ibv_device_ops, ibv_context, ibv_device};
use crate::calls::refuse;
use crate::config::{Config, DeviceConfig, PortKind};
use crate::errno::{Errno, Result, pointer, set_errno};
use crate::explain;
use crate::gid::{self, Gid, Interface};
use crate::stats;
use crate::unit::Unit;

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name, such as `irnic0`.
    pub name: String,
    /// The node's GUID.
    pub guid: u64,
    /// The GID table.
    pub gids: Vec<Gid>,
    /// The network interface.
    pub interface: Interface,
    /// The largest path MTU.
    pub mtu: Mtu,
    /// Whether the interface is up.
    pub up: bool,
    /// The link's rate, bit/s.
    pub rate: u64,
    /// What it was configured with.
    pub config: DeviceConfig,
}

impl DeviceInfo {
    /// What the kernel would call its character device.
    pub fn uverbs(&self) -> String {
        format!("uverbs_{}", self.name)
    }

    /// What a configuration means on this host.
    pub fn new(config: &DeviceConfig, interfaces: &[Interface]) -> std::result::Result<DeviceInfo, String> {
        let named = |name: &String| interfaces.iter().find(|i| i.name == *name);
        let interface = match (&config.interface, config.addresses.first()) {
            (Some(name), _) => named(name).ok_or_else(|| {
                let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
                wrong(config, "interface", format!("there is no such interface; expected {}", names.join(", ")))
            })?,
            // An address of the loopback network need not be configured to be there.
            (None, Some(address)) => interfaces
                .iter()
                .find(|i| i.addresses.contains(address))
                .or_else(|| interfaces.iter().find(|i| i.loopback && address.is_loopback()))
                .ok_or_else(|| {
                    let own: Vec<_> = interfaces.iter().flat_map(|i| &i.addresses).map(IpAddr::to_string).collect();
                    wrong(config, "addresses", format!("{address} is not this host's; expected {}", own.join(", ")))
                })?,
            (None, None) => {
                let usable = |i: &&Interface| i.up && !i.addresses.is_empty();
                let v4 = |i: &&Interface| i.addresses.iter().any(|a| a.is_ipv4());
                interfaces
                    .iter()
                    .filter(usable)
                    .find(|i| !i.loopback && v4(i))
                    .or_else(|| interfaces.iter().filter(usable).find(|i| !i.loopback))
                    .or_else(|| interfaces.iter().find(|i| i.loopback))
                    .ok_or("this host has no network interface")?
            }
        };
        let addresses = if config.addresses.is_empty() { interface.gids() } else { config.addresses.clone() };
        // Shared memory carries any packet, whatever the interface does.
        let widest = if config.port == PortKind::Shm { Some(Mtu::B4096) } else { interface.path_mtu() };
        let mtu = config.mtu.or(widest).unwrap_or(Mtu::B256);
        Ok(DeviceInfo {
            name: config.name.clone(),
            guid: interface.guid(),
            gids: addresses.into_iter().map(gid::gid_of).collect(),
            mtu,
            up: interface.up || interface.loopback,
            interface: interface.clone(),
            rate: config.rate.unwrap_or(100_000_000_000),
            config: config.clone(),
        })
    }
}

/// What to say of a setting that does not suit this host.
fn wrong(config: &DeviceConfig, key: &str, why: String) -> String {
    config.given.error(key, why.as_str()).map_or(why, |e| e.to_string())
}

/// All devices of a configuration on this host, or one line that says why there are none.
pub fn infos(config: &Config) -> std::result::Result<Vec<DeviceInfo>, String> {
    let interfaces = gid::interfaces().map_err(|e| format!("cannot list network interfaces: {e}"))?;
    config.devices.iter().map(|d| DeviceInfo::new(d, &interfaces)).collect()
}

/// A device as C sees it. Devices live as long as the process: applications keep pointers to them.
#[repr(C)]
pub struct Device {
    base: ibv_device,
    info: DeviceInfo,
    unit: Mutex<Option<Arc<Unit>>>,
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
        Device { base, info, unit: Mutex::new(None) }
    }

    /// The device behind a C pointer.
    ///
    /// # Safety
    /// `device` is one of a list that `ibv_get_device_list` returned.
    pub unsafe fn from_c(device: *mut ibv_device) -> &'static Device {
        // SAFETY: `base` is the first member, and devices are never freed.
        unsafe { &*device.cast() }
    }

    /// What it says of itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The C structure.
    pub fn as_c(&self) -> *mut ibv_device {
        (&raw const self.base).cast_mut()
    }

    /// The processing unit, made by whoever comes first: all contexts of a process share it.
    pub fn unit(&self) -> Result<Arc<Unit>> {
        let mut unit = self.unit.lock();
        if let Some(unit) = &*unit {
            return Ok(unit.clone());
        }
        let made = crate::start::unit(&self.info).map_err(|e| {
            eprintln!("irnic: {}: {e}", self.info.name);
            match Errno::from(e) {
                Errno(libc::ENOMEM) => Errno(libc::ENOMEM),
                _ => Errno(libc::EIO),
            }
        })?;
        Ok(unit.insert(made).clone())
    }

    /// The processing unit if it is made, for a caller who cannot wait for ever.
    pub(crate) fn running(&self, patience: Duration) -> Option<Arc<Unit>> {
        self.unit.try_lock_for(patience)?.clone()
    }

    /// Before a fork: nobody else is inside the device while the process is copied.
    pub(crate) fn before_fork(&self) {
        let unit = self.unit.lock();
        if let Some(unit) = &*unit {
            unit.freeze();
        }
        std::mem::forget(unit);
    }

    /// After it. In the child the unit is dead: its port and its peers are the parent's. It is never dropped, which would
    /// tell the peers that it is closed.
    ///
    /// # Safety
    /// In the thread that called [`Device::before_fork`].
    pub(crate) unsafe fn after_fork(&self, child: bool) {
        // SAFETY: this thread holds both locks.
        unsafe {
            let unit = &mut *self.unit.data_ptr();
            if let Some(unit) = &*unit {
                unit.thaw(child);
            }
            if child {
                std::mem::forget(unit.take());
            }
            self.unit.force_unlock();
        }
    }
}

// SAFETY: the raw pointers inside `base` are function pointers or NULL; everything else is Sync.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

fn copy_name<const N: usize>(to: &mut [c_char; N], name: &str) {
    for (to, from) in to[..N - 1].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
}

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// All devices. A configuration that makes no sense gives none, and says why, once.
pub fn devices() -> &'static [Device] {
    DEVICES.get_or_init(|| {
        let made = Config::from_environment().map_err(|e| e.to_string()).and_then(|config| {
            config.tell_ignored();
            let infos = infos(&config)?;
            stats::set_wanted(config.stats);
            explain::set_wanted(config.explain);
            Ok(infos)
        });
        match made {
            Ok(infos) => {
                crate::start::on_fork();
                infos.into_iter().map(Device::new).collect()
            }
            Err(e) => {
                eprintln!("irnic: {e}");
                Vec::new()
            }
        }
    })
}

/// The devices made so far.
pub(crate) fn made() -> &'static [Device] {
    DEVICES.get().map_or(&[], Vec::as_slice)
}

/// ibv_get_device_list(3).
///
/// # Safety
/// `num_devices` may be written, or is NULL.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", || {
        let devices = devices();
        // As the C library does it: one block, NULL at the end.
        // SAFETY: a plain allocation.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (i, device) in devices.iter().enumerate() {
            // SAFETY: the block has room for all, and one more.
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
    unsafe { Device::from_c(device) }.info.guid.to_be()
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

/// The device operations of libibverbs before 1.1, which nothing calls.
unsafe extern "C" fn refuse_open(_device: *mut ibv_device, _cmd_fd: c_int) -> *mut ibv_context {
    refuse::ptr().cast()
}

unsafe extern "C" fn refuse_close(_context: *mut ibv_context) {}
