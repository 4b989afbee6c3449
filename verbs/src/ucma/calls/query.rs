//! Queries of an id's addresses and its route.

use std::os::fd::RawFd;

use irnic_cm::Route;

use super::{info, with};
use crate::errno::{Errno, Result};
use crate::gid::gid_of;
use crate::ucma::abi::*;
use crate::ucma::address::{Address, IbAddress, address_on};
use crate::ucma::attributes::path_record;
use crate::ucma::state::state;

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn query(fd: RawFd, cmd: &IdRequest, answer: Answer) -> Result<()> {
    let (mut src, mut dst, device, cm_id, resolved) = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        (id.src, id.dst, id.device, id.cm_ids.first().copied(), id.route_resolved)
    };
    let (addresses, route) = match cm_id.filter(|_| device.is_some()) {
        Some(cm_id) => with(cm_id, |cm, _, id| Ok((cm.addresses(id)?, cm.route(id)?)))?,
        None => Default::default(),
    };
    src = src.or(addresses.local.map(Address::Ip));
    dst = dst.or(addresses.peer.map(Address::Ip));
    // SAFETY: the caller's promise.
    unsafe {
        match cmd.value {
            query::ADDR => {
                answer.needs(std::mem::offset_of!(QueryAddrResp, ibdev_index))?;
                answer.write(cmd.response, &addr_resp(src, dst, device)?)
            }
            query::GID => {
                answer.needs(std::mem::offset_of!(QueryAddrResp, ibdev_index))?;
                answer.write(cmd.response, &gid_resp(src, dst, device, route.as_ref())?)
            }
            query::PATH => {
                answer.needs(std::mem::offset_of!(QueryPathResp, flags))?;
                let none = QueryPathResp { num_paths: 0, ..zeroed() };
                answer.write(cmd.response, &route.filter(|_| resolved).map_or(none, |route| path_record(&route)))
            }
            // RDMA_USER_CM_QUERY_IB_SERVICE, and future ones.
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }
}

/// Returns the common part of the replies about addresses and GIDs.
fn resp_of(device: Option<usize>) -> Result<QueryAddrResp> {
    let mut resp = QueryAddrResp { ibdev_index: u32::MAX, ..zeroed() };
    if let Some(device) = device {
        resp.node_guid = info(device)?.guid.to_be();
        resp.port_num = 1;
        resp.pkey = crate::device::DEFAULT_PKEY.to_be();
        resp.ibdev_index = device as u32;
    }
    Ok(resp)
}

fn addr_resp(src: Option<Address>, dst: Option<Address>, device: Option<usize>) -> Result<QueryAddrResp> {
    let mut resp = resp_of(device)?;
    resp.src_size = src.map_or(0, |src| src.emit(&mut resp.src_addr));
    resp.dst_size = dst.map_or(0, |dst| dst.emit(&mut resp.dst_addr));
    Ok(resp)
}

fn gid_resp(
    src: Option<Address>,
    dst: Option<Address>,
    device: Option<usize>,
    route: Option<&Route>,
) -> Result<QueryAddrResp> {
    let mut resp = resp_of(device)?;
    let own = match (route, src, device) {
        (Some(route), ..) => gid_of(route.path.src),
        (None, Some(Address::Ib(ib)), _) => ib.gid,
        (None, Some(Address::Ip(ip)), Some(device)) => {
            address_on(info(device)?, ip.ip()).map(gid_of).unwrap_or_default()
        }
        _ => [0; 16],
    };
    let ib = |gid, address: Option<Address>| {
        let (service, mask) = match address {
            Some(Address::Ib(ib)) => (ib.service, ib.mask),
            _ => (0, 0),
        };
        Address::Ib(IbAddress { pkey: crate::device::DEFAULT_PKEY, gid, service, mask })
    };
    resp.src_size = ib(own, src).emit(&mut resp.src_addr);
    resp.dst_size = ib(route.map(|route| gid_of(route.path.dst)).unwrap_or_default(), dst).emit(&mut resp.dst_addr);
    Ok(resp)
}
