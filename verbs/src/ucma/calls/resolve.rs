//! Resolving the device and the path to a peer.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use irnic_cm::Route;
use irnic_transports::time::MS;

use super::binding::{NewId, attach, bind_ip, ports};
use super::{info, running, with};
use crate::errno::{Errno, Result, invalid};
use crate::ucma::abi::*;
use crate::ucma::address::{self, Address};
use crate::ucma::state::{DeviceCmId, state};

pub(in crate::ucma) fn resolve_addr(fd: RawFd, cmd: &ResolveAddr) -> Result<()> {
    let src = Address::parse(&cmd.src_addr, cmd.src_size)?;
    let dst = Address::parse(&cmd.dst_addr, cmd.dst_size)?.ok_or(Errno(libc::EINVAL))?;
    if let Some(Address::Ip(src)) = src {
        let bound = state().id_of(fd, cmd.id)?.src;
        if bound.is_none() && (!src.ip().is_unspecified() || src.port() != 0) {
            bind_ip(fd, cmd.id, src)?;
        }
    }
    match resolve(fd, cmd.id, dst) {
        Ok(((device, id), to)) => {
            // The result of the neighbour resolution is an event.
            running(device)?.first_unit().find_way(id, to, u64::from(cmd.timeout_ms) * MS);
            Ok(())
        }
        // Errors of the network are reported by an event, errors of the call at once.
        Err(Errno(errno @ (libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV | libc::EACCES))) => {
            state().queue_resolution(cmd.id, -errno);
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// Finds the route to a destination, and attaches the id to its device. Returns the id there, and the peer's address.
fn resolve(fd: RawFd, handle: u32, dst: Address) -> Result<(DeviceCmId, IpAddr)> {
    let (what, src, bound, cm_ids) = {
        let mut state = state();
        let id = state.id_of(fd, handle)?;
        if id.dst.is_some() {
            return Err(invalid!("id {handle} is resolved already"));
        }
        let what = NewId { space: id.space, kind: id.kind, options: id.options };
        (what, id.src, id.device, id.cm_ids.clone())
    };
    // A GID of RoCE is an IP address.
    let (to, service) = match dst {
        Address::Ip(ip) => (ip, None),
        Address::Ib(ib) => (SocketAddr::new(crate::gid::address_of(&ib.gid), 0), Some(ib.service)),
    };
    let own = match src {
        Some(Address::Ip(ip)) => Some(ip),
        _ => None,
    };
    let found = address::find(to, own.map(|own| own.ip()), bound)?;
    let cm_id = match cm_ids.iter().find(|(device, _)| *device == found.device) {
        Some(cm_id) => *cm_id,
        None => attach(handle, found.device, what)?,
    };
    keep_only(handle, cm_id);
    let port = ports(own.map_or(0, |own| own.port()))[0];
    let own = own.map(|own| own.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(found.src);
    let own = SocketAddr::new(own, port);
    let mut route = Route::new(own, found.dst, found.path, info(found.device)?.mtu);
    route.service_id = service;
    with(cm_id, |cm, _, id| cm.resolve(id, route))?;
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    id.device = Some(found.device);
    id.dst = Some(if service.is_some() { dst } else { Address::Ip(found.dst) });
    if !matches!(id.src, Some(Address::Ib(_))) {
        id.src = Some(Address::Ip(own));
    }
    Ok((cm_id, found.path.dst))
}

/// Detaches an id that was bound to the wildcard from the devices that it does not use.
fn keep_only(handle: u32, kept: DeviceCmId) {
    let others: Vec<DeviceCmId> = {
        let mut state = state();
        let others = state.take_cm_ids(handle).into_iter().filter(|one| *one != kept).collect();
        // It was there a moment before.
        let _ = state.add_cm_id(handle, kept);
        others
    };
    for other in others {
        let _ = with(other, |cm, now, id| cm.destroy(now, id));
    }
}

pub(in crate::ucma) fn resolve_route(fd: RawFd, cmd: &OfId) -> Result<()> {
    let mut state = state();
    let id = state.id_of(fd, cmd.id)?;
    if id.dst.is_none() {
        return Err(invalid!("id {} has no address resolved", cmd.id));
    }
    id.route_resolved = true;
    state.queue_event(cmd.id, event::ROUTE_RESOLVED, 0);
    Ok(())
}
