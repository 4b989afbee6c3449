//! Binding an id to addresses and devices: chooses and claims ports, opens devices, and creates the id in their
//! communication managers.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use irnic_cm::{CmError, PortSpace, QpKind, service_id};

use super::with;
use crate::errno::{Errno, Result, invalid};
use crate::objects::devices;
use crate::runtime::DeviceRuntime;
use crate::ucma::abi::Bind;
use crate::ucma::address::{self, Address, IbAddress};
use crate::ucma::listener::DeviceListener;
use crate::ucma::state::{DeviceCmId, Options, state};

/// Ports chosen from for an id that requests none.
const EPHEMERAL: std::ops::Range<u16> = 32_768..61_000;
/// Number of ports that are tried.
const TRIES: usize = 64;
/// Ports below this are reserved for root.
const PRIVILEGED: u16 = 1024;

pub(in crate::ucma) fn bind(fd: RawFd, cmd: &Bind) -> Result<()> {
    match Address::parse(&cmd.addr, cmd.addr_size)? {
        Some(Address::Ip(address)) => bind_ip(fd, cmd.id, address),
        Some(Address::Ib(address)) => bind_ib(fd, cmd.id, address),
        None => Err(Errno(libc::EINVAL)),
    }
}

/// Binds an id to an address and a port, on the device that has the address, or with the wildcard on all devices.
pub(super) fn bind_ip(fd: RawFd, handle: u32, mut address: SocketAddr) -> Result<()> {
    let what = unbound(fd, handle)?;
    // SAFETY: has no precondition.
    if (1..PRIVILEGED).contains(&address.port()) && unsafe { libc::geteuid() } != 0 {
        return Err(Errno(libc::EACCES));
    }
    let device = address::bound_device(address.ip())?;
    let on = devices_of(device)?;
    let mut bound = Err(Errno(libc::EADDRINUSE));
    for port in ports(address.port()) {
        address.set_port(port);
        bound = bind_ip_on(handle, &on, address, what);
        if !matches!(bound, Err(Errno(libc::EADDRINUSE | libc::EADDRNOTAVAIL))) {
            break;
        }
    }
    bound?;
    state().id_of(fd, handle)?.device = device;
    Ok(())
}

/// Binds an id to an address on some devices, all or none.
fn bind_ip_on(handle: u32, on: &[usize], address: SocketAddr, what: NewId) -> Result<()> {
    let service = service_id(what.space, address.port());
    all_or_none(handle, on, |device| {
        claim(handle, device, service).map_err(|e| match e {
            // The kernel's error if one of the two is the wildcard (`cma_check_port` in cma.c).
            Errno(libc::EADDRINUSE) if address.ip().is_unspecified() => Errno(libc::EADDRNOTAVAIL),
            e => e,
        })?;
        let cm_id = attach(handle, device, what)?;
        with(cm_id, |cm, _, id| cm.bind(id, address, what.options.reuse))
    })?;
    state().id(handle)?.src = Some(Address::Ip(address));
    Ok(())
}

/// Binds an id to a GID and a service. This claims nothing before the id listens.
fn bind_ib(fd: RawFd, handle: u32, address: IbAddress) -> Result<()> {
    unbound(fd, handle)?;
    let device = address::bound_device(crate::gid::address_of(&address.gid))?;
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    (id.src, id.device) = (Some(Address::Ib(address)), device);
    Ok(())
}

/// Completes the binding of an id that is to listen: as in the kernel, one without an address to any address and port,
/// one with an address in `AF_IB` to its service.
pub(super) fn bind_to_listen(fd: RawFd, handle: u32) -> Result<()> {
    let (what, src, device, attached) = {
        let mut state = state();
        let id = state.id_of(fd, handle)?;
        (NewId { space: id.space, kind: id.kind, options: id.options }, id.src, id.device, !id.cm_ids.is_empty())
    };
    match src {
        None => bind_ip(fd, handle, SocketAddr::from(([0, 0, 0, 0], 0))),
        Some(Address::Ib(address)) if !attached => {
            // Other processes find a service by its number: the first of several that the mask allows.
            let service = address.service & address.mask;
            all_or_none(handle, &devices_of(device)?, |device| {
                claim(handle, device, service)?;
                let cm_id = attach(handle, device, what)?;
                with(cm_id, |cm, _, id| cm.bind_service(id, address.service, address.mask))
            })
        }
        Some(_) => Ok(()),
    }
}

/// Parameters of a new id of a communication manager.
#[derive(Copy, Clone)]
pub(super) struct NewId {
    pub(super) space: PortSpace,
    pub(super) kind: QpKind,
    pub(super) options: Options,
}

/// Returns the parameters of an unbound id; EINVAL if it is bound already.
fn unbound(fd: RawFd, handle: u32) -> Result<NewId> {
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    if id.src.is_some() || !id.cm_ids.is_empty() {
        return Err(invalid!("id {handle} is bound already"));
    }
    Ok(NewId { space: id.space, kind: id.kind, options: id.options })
}

/// Returns the devices of a binding: one, or all. ENODEV if there is none.
fn devices_of(device: Option<usize>) -> Result<Vec<usize>> {
    let on = device.map_or_else(|| (0..devices().len()).collect(), |device| vec![device]);
    if on.is_empty() { Err(Errno(libc::ENODEV)) } else { Ok(on) }
}

/// Returns the ports to try: the requested one, or some at random.
pub(super) fn ports(requested: u16) -> Vec<u16> {
    if requested != 0 {
        return vec![requested];
    }
    let mut random = [0u16; TRIES];
    // SAFETY: as many bytes as the array has. Without entropy the first port is tried repeatedly.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), size_of_val(&random), 0) };
    random.iter().map(|random| EPHEMERAL.start + random % EPHEMERAL.len() as u16).collect()
}

/// Opens a device, starts its threads, and listens to its communication manager's events.
fn open(device: usize) -> Result<Arc<DeviceRuntime>> {
    let runtime = devices().get(device).ok_or(Errno(libc::ENODEV))?.runtime()?;
    runtime.start()?;
    runtime.first_unit().listen_cm(|| DeviceListener { device });
    Ok(runtime)
}

/// Claims a service of a device for an id. Ids of this process share a claim: the communication manager checks whether
/// their addresses differ.
fn claim(handle: u32, device: usize, service: u64) -> Result<()> {
    let at = (device, service);
    if !state().share_claim(at) {
        let claim = open(device)?.first_unit().claim_service(service).map_err(|e| match e.kind() {
            std::io::ErrorKind::AddrInUse => Errno(libc::EADDRINUSE),
            _ => e.into(),
        })?;
        state().add_claim(at, claim);
    }
    let mut state = state();
    match state.id(handle) {
        Ok(id) => id.claims.push(at),
        Err(e) => {
            state.release(at);
            return Err(e);
        }
    }
    Ok(())
}

/// Creates an id in a device's communication manager, with the options that were set.
pub(super) fn attach(handle: u32, device: usize, what: NewId) -> Result<DeviceCmId> {
    let made = open(device)?.first_unit().with_cm(|cm, now| {
        let id = cm.create(what.space, what.kind)?;
        if let Err(e) = what.options.apply(cm, id) {
            let _ = cm.destroy(now, id);
            return Err(e);
        }
        Ok::<_, CmError>(id)
    })?;
    let cm_id = (device, made);
    let added = state().add_cm_id(handle, cm_id);
    if let Err(e) = added {
        let _ = with(cm_id, |cm, now, id| cm.destroy(now, id));
        return Err(e);
    }
    Ok(cm_id)
}

/// Binds an id on each of some devices; if that fails on one, on none.
fn all_or_none(handle: u32, on: &[usize], bind: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let bound = on.iter().copied().try_for_each(bind);
    if bound.is_err() {
        detach(handle);
    }
    bound
}

/// Detaches an id from all devices, as if it had not been bound.
fn detach(handle: u32) {
    let cm_ids = {
        let mut state = state();
        state.release_claims(handle);
        state.take_cm_ids(handle)
    };
    for cm_id in cm_ids {
        let _ = with(cm_id, |cm, now, id| cm.destroy(now, id));
    }
}
