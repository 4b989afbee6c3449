//! Address handles.

use std::ffi::c_int;

use irnic_transports::Path;

use crate::abi::structs::*;
use crate::device::DeviceInfo;
use crate::errno::{Errno, Result, invalid, pointer, status};
use crate::explain;
use crate::gid::{address_of, ipv4_group};
use crate::objects::{Ah, Pd};

/// Hop limit if the application leaves it 0: Linux's for RoCE v2 (`IPV6_DEFAULT_HOPLIMIT`).
const HOP_LIMIT: u8 = 64;
/// First UDP source port that RoCE v2 recommends; the lower 14 bits are for entropy (IBA A17.9.2).
const SOURCE_PORTS: u16 = 0xc000;

/// Returns the path of an address vector. `entropy` distinguishes flows between the same addresses.
pub(super) fn path(info: &DeviceInfo, attr: &ibv_ah_attr, entropy: u32) -> Result<Path> {
    // RoCE has no LIDs: an address is a GID (IBA A17.4.5).
    if attr.is_global == 0 {
        return Err(no_grh(info));
    }
    if attr.port_num > 1 {
        return Err(wrong_port(attr.port_num));
    }
    let src = info.gid_at(attr.grh.sgid_index.into()).ok_or_else(|| {
        let indices: Vec<_> = info.gid_table().map(|(index, _)| index.to_string()).collect();
        invalid!("GID index {}: {} has GIDs at {}", attr.grh.sgid_index, info.name, indices.join(", "))
    })?;
    // SAFETY: any bits are a valid GID.
    let dst = address_of(unsafe { &attr.grh.dgid.raw });
    if dst.is_unspecified() {
        return Err(invalid!(
            "the destination's GID is {dst}: the peer did not say its address, which it does if it has a GID index"
        ));
    }
    let src = address_of(src);
    // From an IPv4 address a group is reached by its IPv4 form.
    let dst = if src.is_ipv4() { ipv4_group(dst).unwrap_or(dst) } else { dst };
    if src.is_ipv4() != dst.is_ipv4() {
        let index = attr.grh.sgid_index;
        return Err(invalid!(
            "GID index {index} is {src}, and the destination's GID is {dst}: both have to be IPv4 or both IPv6; choose \
             another GID index at one end"
        ));
    }
    let label = if attr.grh.flow_label != 0 { attr.grh.flow_label } else { entropy.wrapping_mul(0x9e37_79b1) >> 8 };
    // Folded like a flow label into a port in Linux (`rdma_flow_label_to_udp_sport`).
    let low = label & 0x3fff;
    let fold = low ^ (label & 0xf_c000) >> 14;
    Ok(Path {
        src,
        dst,
        udp_src: SOURCE_PORTS | fold as u16 & 0x3fff,
        traffic_class: attr.grh.traffic_class,
        hop_limit: if attr.grh.hop_limit == 0 { HOP_LIMIT } else { attr.grh.hop_limit },
    })
}

fn wrong_port(port: u8) -> Errno {
    invalid!("port {port}: the device has port 1")
}

/// Rejects an address by LID alone, as used by programs for InfiniBand unless a GID is configured. Unlike other
/// rejections this is always a user's mistake, so it is explained without being asked for.
fn no_grh(info: &DeviceInfo) -> Errno {
    // IPv4 addresses are what both ends most likely share.
    let at = info.gids.iter().position(|gid| address_of(gid).is_ipv4()).unwrap_or(0);
    let (index, address) = (info.gid_index(at), info.gids.get(at));
    let address = address.map(|gid| format!(" ({})", address_of(gid))).unwrap_or_default();
    explain::insist();
    invalid!(
        "the address has no GRH (is_global = 0), and RoCE has no other addresses; give both ends a GID index, such as -g {index} of \
         ibv_*_pingpong: {} has at {index} its address{address}",
        info.name
    )
}

/// ibv_create_ah(3).
///
/// # Safety
/// `pd` exists, `attr` may be read.
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer("ibv_create_ah", || {
        // SAFETY: the caller's promise.
        let (domain, attr) = unsafe { (Pd::from_c(pd)?, &*attr) };
        if attr.port_num != 1 {
            return Err(wrong_port(attr.port_num));
        }
        let path = path(domain.device.info(), attr, 0)?;
        Ok(Ah::create(domain, pd, path))
    })
}

/// ibv_destroy_ah(3).
///
/// # Safety
/// `ah` exists.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    status("ibv_destroy_ah", || {
        // SAFETY: the caller's promise.
        unsafe { Ah::free(ah) };
        Ok(())
    })
}
