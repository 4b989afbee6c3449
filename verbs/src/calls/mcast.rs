//! Multicast groups.

use std::ffi::c_int;
use std::net::IpAddr;

use crate::abi::structs::*;
use crate::errno::{Result, invalid, status};
use crate::gid::{address_of, ipv4_group, is_multicast};
use crate::objects::Qp;
use crate::runtime::State;

/// Returns the destination addresses of a group's packets: an IPv6 group that represents an IPv4 one has both.
fn groups(gid: &[u8; 16]) -> Result<impl Iterator<Item = IpAddr>> {
    let own = address_of(gid);
    if !is_multicast(gid) {
        return Err(invalid!("{own} is no multicast group"));
    }
    Ok(std::iter::once(own).chain(ipv4_group(own)))
}

/// Attaches a queue pair to a group, and joins the port to it. Nothing is changed on an error.
fn attach(state: &mut State, qpn: u32, group: IpAddr) -> Result<()> {
    if state.nic().attach_mcast(qpn, group)?
        && let Err(e) = state.port().join(group)
    {
        // Some of the port's addresses may have joined.
        state.port().leave(group)?;
        state.nic().detach_mcast(qpn, group)?;
        return Err(e.into());
    }
    Ok(())
}

/// Detaches a queue pair from a group, which the port leaves with its last member.
fn detach(state: &mut State, qpn: u32, group: IpAddr) -> Result<()> {
    if state.nic().detach_mcast(qpn, group)? {
        state.port().leave(group)?;
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
        let mut state = qp.unit.lock();
        let groups: Vec<IpAddr> = groups.collect();
        for (i, &group) in groups.iter().enumerate() {
            if let Err(e) = attach(&mut state, qp.number(), group) {
                for &done in &groups[..i] {
                    detach(&mut state, qp.number(), done)?;
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
        let mut state = qp.unit.lock();
        for group in groups {
            detach(&mut state, qp.number(), group)?;
        }
        Ok(())
    })
}
