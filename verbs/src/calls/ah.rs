//! Address handles and multicast groups.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::Arc;

use irnic_transports::Path;

use crate::abi::structs::*;
use crate::device::DeviceInfo;
use crate::errno::{Errno, Result, invalid, pointer, status};
use crate::explain;
use crate::gid::{address_of, is_multicast};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::unit::{Inner, Unit};

/// An address handle: where a datagram goes.
#[repr(C)]
pub struct Ah {
    base: ibv_ah,
    _unit: Arc<Unit>,
    /// Addresses of both ends.
    pub path: Path,
}

/// Hop limit where the application leaves it 0; what Linux uses for RoCE v2 (`IPV6_DEFAULT_HOPLIMIT`).
const HOP_LIMIT: u8 = 64;
/// First UDP source port that RoCE v2 recommends; the lower 14 bits are for entropy (IBA A17.9.2).
const SOURCE_PORTS: u16 = 0xc000;

/// The path that an address vector describes. `entropy` tells flows between the same addresses apart.
pub fn path(info: &DeviceInfo, attr: &ibv_ah_attr, entropy: u32) -> Result<Path> {
    // RoCE has no LIDs: an address is a GID (IBA A17.4.5).
    if attr.is_global == 0 {
        return Err(no_grh(info));
    }
    if attr.port_num > 1 {
        return Err(wrong_port(attr.port_num));
    }
    let src = info.gids.get(usize::from(attr.grh.sgid_index)).ok_or_else(|| {
        invalid!("GID index {}: {} has {} GIDs, counted from 0", attr.grh.sgid_index, info.name, info.gids.len())
    })?;
    // SAFETY: any bits are a GID.
    let dst = address_of(unsafe { &attr.grh.dgid.raw });
    if dst.is_unspecified() {
        return Err(invalid!(
            "the destination's GID is {dst}: the peer did not say its address, which it does if it has a GID index"
        ));
    }
    let src = address_of(src);
    // From an IPv4 address a group is reached by its IPv4 form.
    let dst = if src.is_ipv4() { ipv4_group(dst).unwrap_or(dst) } else { dst };
    let label = if attr.grh.flow_label != 0 { attr.grh.flow_label } else { entropy.wrapping_mul(0x9e37_79b1) >> 8 };
    // Folded as Linux folds a flow label into a port (`rdma_flow_label_to_udp_sport`).
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

/// An address by LID alone: what programs made for InfiniBand use unless they are told of a GID. Nothing else that is refused
/// is always a mistake of the user, so this is told without being asked.
fn no_grh(info: &DeviceInfo) -> Errno {
    // IPv4 addresses are what both ends most likely have in common.
    let index = info.gids.iter().position(|gid| address_of(gid).is_ipv4()).unwrap_or(0);
    let address = info.gids.get(index).map(|gid| format!(" ({})", address_of(gid))).unwrap_or_default();
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
        let path = path(domain.unit.info(), attr, 0)?;
        domain.hold();
        let base = ibv_ah { context: domain.context(), pd, handle: 0 };
        Ok(Box::into_raw(Box::new(Ah { base, _unit: domain.unit.clone(), path })).cast())
    })
}

/// ibv_destroy_ah(3).
///
/// # Safety
/// `ah` exists.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    status("ibv_destroy_ah", || {
        // SAFETY: made by `ibv_create_ah`, and its domain outlives it.
        unsafe {
            let ah = Box::from_raw(ah.cast::<Ah>());
            Pd::release(ah.base.pd);
        }
        Ok(())
    })
}

/// The addresses that packets of a group have: an IPv6 group that stands for one of IPv4 has both.
fn groups(gid: &[u8; 16]) -> Result<impl Iterator<Item = IpAddr>> {
    let own = address_of(gid);
    if !is_multicast(gid) {
        return Err(invalid!("{own} is no multicast group"));
    }
    Ok(std::iter::once(own).chain(ipv4_group(own)))
}

/// The IPv4 group that an IPv6 one stands for: the last four bytes of ff..::ffff:a.b.c.d.
fn ipv4_group(group: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(group) = group else { return None };
    let o = group.octets();
    let v4 = IpAddr::from([o[12], o[13], o[14], o[15]]);
    (o[0] == 0xff && o[10..12] == [0xff, 0xff] && v4.is_multicast()).then_some(v4)
}

/// Has a queue pair take a group's packets, and the port bring them. Nothing is changed on an error.
fn attach(inner: &mut Inner, qpn: u32, group: IpAddr) -> Result<()> {
    if inner.nic().attach_mcast(qpn, group)?
        && let Err(e) = inner.port().join(group)
    {
        // Some of the port's addresses may have joined.
        inner.port().leave(group)?;
        inner.nic().detach_mcast(qpn, group)?;
        return Err(e.into());
    }
    Ok(())
}

fn detach(inner: &mut Inner, qpn: u32, group: IpAddr) -> Result<()> {
    if inner.nic().detach_mcast(qpn, group)? {
        inner.port().leave(group)?;
    }
    Ok(())
}

/// ibv_attach_mcast(3).
///
/// # Safety
/// `qp` exists, `gid` may be read.
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status("ibv_attach_mcast", || {
        // SAFETY: the caller's promise.
        let (qp, groups) = unsafe { (Qp::from_c(qp)?, groups(&(*gid).raw)?) };
        let mut inner = qp.unit.lock();
        let groups: Vec<IpAddr> = groups.collect();
        for (i, &group) in groups.iter().enumerate() {
            if let Err(e) = attach(&mut inner, qp.number(), group) {
                for &done in &groups[..i] {
                    detach(&mut inner, qp.number(), done)?;
                }
                return Err(e);
            }
        }
        Ok(())
    })
}

/// ibv_detach_mcast(3).
///
/// # Safety
/// `qp` exists, `gid` may be read.
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status("ibv_detach_mcast", || {
        // SAFETY: the caller's promise.
        let (qp, groups) = unsafe { (Qp::from_c(qp)?, groups(&(*gid).raw)?) };
        let mut inner = qp.unit.lock();
        for group in groups {
            detach(&mut inner, qp.number(), group)?;
        }
        Ok(())
    })
}
