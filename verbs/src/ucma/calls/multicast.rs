//! Multicast groups. RoCE has no subnet administrator to query: a group is its address.

use std::os::fd::RawFd;

use super::{info, with};
use crate::errno::{Errno, Result, invalid};
use crate::ucma::abi::*;
use crate::ucma::address::{self, Address};
use crate::ucma::attributes::ah_attr;
use crate::ucma::state::{Queued, state};

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn join_mcast(fd: RawFd, cmd: &JoinMcast, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let Some(Address::Ip(to)) = Address::parse(&cmd.addr, cmd.addr_size)? else { return Err(Errno(libc::EINVAL)) };
    if !to.ip().is_multicast() {
        return Err(invalid!("{} is no multicast group", to.ip()));
    }
    let (device, tos, cm_id) = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        let device = id.device.ok_or_else(|| invalid!("id {} is not bound to a device yet", cmd.id))?;
        (device, id.options.tos, id.cm_ids.first().copied())
    };
    let route = match cm_id {
        Some(cm_id) => with(cm_id, |cm, _, id| cm.route(id))?,
        None => None,
    };
    let device = info(device)?;
    let own = route.map(|route| route.path.src).filter(|own| own.is_ipv4() == to.is_ipv4());
    let own = own.or_else(|| address::address_on(device, to.ip())).ok_or(Errno(libc::ENODEV))?;
    let path = address::path(own, to.ip(), tos.unwrap_or(0));
    let ud = UdParam { qp_num: 0xff_ffff, qkey: UDP_QKEY, ah_attr: ah_attr(device, &path, 0), ..zeroed() };
    let mut resp = EventResp { event: event::MULTICAST_JOIN, ..zeroed() };
    put(&mut resp.param, &ud);
    let group = {
        let mut state = state();
        state.id_of(fd, cmd.id)?;
        let group = state.add_group(cmd.id, cmd.uid)?;
        state.push(Queued { id: cmd.id, new: None, group: Some(group), resp });
        group
    };
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &group) }
}

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn leave_mcast(fd: RawFd, cmd: &IdRequest, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let reported = state().remove_group(fd, cmd.id)?;
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}
