//! Life cycle of an id: creation, migration to another file, options, destruction.

use std::os::fd::RawFd;

use irnic_cm::{PortSpace, QpKind};

use super::resolve::resolve_route;
use super::with;
use crate::abi::consts::*;
use crate::errno::{Errno, Result, invalid};
use crate::ucma::abi::*;
use crate::ucma::state::{Id, Removed, state};

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn create_id(fd: RawFd, cmd: &CreateId, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let space = PortSpace::from_code(cmd.ps).ok_or_else(|| invalid!("port space {:#06x}", cmd.ps))?;
    let kind = match (space, u32::from(cmd.qp_type)) {
        (PortSpace::Tcp, IBV_QPT_XRC_SEND) | (PortSpace::Ib, IBV_QPT_XRC_SEND) => QpKind::XrcSend,
        (PortSpace::Tcp, IBV_QPT_XRC_RECV) | (PortSpace::Ib, IBV_QPT_XRC_RECV) => QpKind::XrcRecv,
        (PortSpace::Tcp, _) => QpKind::Rc,
        (PortSpace::Udp | PortSpace::Ipoib, _) => QpKind::Ud,
        (PortSpace::Ib, IBV_QPT_RC) => QpKind::Rc,
        (PortSpace::Ib, IBV_QPT_UC) => QpKind::Uc,
        (PortSpace::Ib, IBV_QPT_UD) => QpKind::Ud,
        (PortSpace::Ib, other) => return Err(invalid!("queue pair type {other}")),
    };
    let mut state = state();
    if !state.has(fd) {
        return Err(Errno(libc::EBADF));
    }
    let handle = state.add_id(Id::new(cmd.uid, fd, space, kind))?;
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &handle) }
}

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn destroy_id(fd: RawFd, cmd: &IdRequest, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let removed = {
        let mut state = state();
        state.id_of(fd, cmd.id)?;
        state.remove(cmd.id).unwrap_or_default()
    };
    let reported = removed.reported;
    destroy_removed(removed);
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}

/// Destroys in the communication managers what was removed from the state.
pub(in crate::ucma) fn destroy_removed(removed: Removed) {
    for cm_id in removed.cm_ids {
        // It may no longer exist.
        let _ = with(cm_id, |cm, now, id| cm.destroy(now, id));
    }
}

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn migrate_id(fd: RawFd, cmd: &IdRequest, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let reported = {
        let mut state = state();
        state.id_of(cmd.value as RawFd, cmd.id)?;
        state.migrate(cmd.id, fd)?
    };
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}

/// # Safety
/// `cmd.optval` is the address of `cmd.optlen` bytes.
pub(in crate::ucma) unsafe fn set_option(fd: RawFd, cmd: &SetOption) -> Result<()> {
    let wants = |len: u32| if cmd.optlen == len && cmd.optval != 0 { Ok(()) } else { Err(Errno(libc::EINVAL)) };
    // SAFETY: the caller's promise; called after the length was checked.
    let byte = || unsafe { fetch::<u8>(cmd.optval) };
    // SAFETY: the caller's promise; called after the length was checked.
    let word = || unsafe { fetch::<i32>(cmd.optval) };
    let mut options = state().id_of(fd, cmd.id)?.options;
    match (cmd.level, cmd.optname) {
        (option::LEVEL_ID, option::ID_TOS) => {
            wants(1)?;
            options.tos = Some(byte()?);
        }
        (option::LEVEL_ID, option::ID_ACK_TIMEOUT) => {
            wants(1)?;
            options.ack_timeout = Some(byte()?);
        }
        (option::LEVEL_ID, option::ID_REUSEADDR) => {
            wants(4)?;
            options.reuse = word()? != 0;
        }
        (option::LEVEL_ID, option::ID_AFONLY) => {
            wants(4)?;
            options.afonly = Some(word()? != 0);
        }
        // For RoCE, a path record has only what resolving the address has found.
        (option::LEVEL_IB, option::IB_PATH) => {
            return resolve_route(fd, &OfId { id: cmd.id, value: 0 });
        }
        _ => return Err(Errno(libc::ENOSYS)),
    }
    let cm_ids = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        id.options = options;
        id.cm_ids.clone()
    };
    cm_ids.into_iter().try_for_each(|one| with(one, |cm, _, id| options.apply(cm, id)))
}
