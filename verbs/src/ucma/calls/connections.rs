//! Connections: listening, connecting, accepting, rejecting, disconnecting. The communication manager sends the
//! messages; results are reported by events.

use std::os::fd::RawFd;

use irnic_cm::{ConnParam as Param, PrivateData};
use irnic_transports::qp::QpState;

use super::binding::bind_to_listen;
use super::{cm_id_of, info, with};
use crate::abi::consts::*;
use crate::errno::{Errno, Result, invalid};
use crate::ucma::abi::*;
use crate::ucma::attributes::qp_attr;
use crate::ucma::state::state;

pub(in crate::ucma) fn listen(fd: RawFd, cmd: &OfId) -> Result<()> {
    bind_to_listen(fd, cmd.id)?;
    let cm_ids = state().id_of(fd, cmd.id)?.cm_ids.clone();
    cm_ids.into_iter().try_for_each(|one| with(one, |cm, _, id| cm.listen(id, cmd.value)))?;
    state().listen_on_claims(cmd.id)
}

fn private_data(bytes: &[u8; MAX_PRIVATE_DATA], len: u8) -> Result<PrivateData> {
    PrivateData::new(&bytes[..len.into()]).ok_or_else(|| invalid!("{len} bytes of private data"))
}

fn param(from: &ConnParam) -> Result<Param> {
    let mut param = Param::new(from.qp_num & 0xff_ffff);
    param.qkey = (from.qkey != 0).then_some(from.qkey);
    param.srq = from.srq != 0;
    param.responder_resources = from.responder_resources;
    param.initiator_depth = from.initiator_depth;
    param.flow_control = from.flow_control != 0;
    param.retry_count = from.retry_count;
    param.rnr_retry_count = from.rnr_retry_count;
    param.private_data = private_data(&from.private_data, from.private_data_len)?;
    Ok(param)
}

pub(in crate::ucma) fn connect(fd: RawFd, cmd: &Connect) -> Result<()> {
    if cmd.conn_param.valid == 0 {
        return Err(Errno(libc::EINVAL));
    }
    let param = param(&cmd.conn_param)?;
    with(cm_id_of(fd, cmd.id)?, |cm, now, id| cm.connect(now, id, &param))
}

pub(in crate::ucma) fn accept(fd: RawFd, cmd: &Accept) -> Result<()> {
    let cm_id = cm_id_of(fd, cmd.id)?;
    if cmd.conn_param.valid == 0 {
        return with(cm_id, |cm, now, id| cm.accept(now, id, None));
    }
    let param = param(&cmd.conn_param)?;
    // Events can arrive as soon as the peer has the message.
    let before = std::mem::replace(&mut state().id_of(fd, cmd.id)?.uid, cmd.uid);
    let accepted = with(cm_id, |cm, now, id| cm.accept(now, id, Some(&param)));
    if accepted.is_err()
        && let Ok(id) = state().id_of(fd, cmd.id)
    {
        id.uid = before;
    }
    accepted
}

pub(in crate::ucma) fn reject(fd: RawFd, cmd: &Reject) -> Result<()> {
    /// Consumer reject: for an application that gives no reason.
    const CONSUMER_DEFINED: u16 = 28;
    let reason = if cmd.reason == 0 { CONSUMER_DEFINED } else { cmd.reason.into() };
    let data = private_data(&cmd.private_data, cmd.private_data_len)?;
    with(cm_id_of(fd, cmd.id)?, |cm, now, id| cm.reject(now, id, reason, &data))
}

pub(in crate::ucma) fn disconnect(fd: RawFd, cmd: &OfId) -> Result<()> {
    with(cm_id_of(fd, cmd.id)?, |cm, now, id| cm.disconnect(now, id))
}

pub(in crate::ucma) fn notify(fd: RawFd, cmd: &OfId) -> Result<()> {
    /// IBV_EVENT_COMM_EST.
    const COMM_EST: u32 = 4;
    if cmd.value != COMM_EST {
        return Ok(());
    }
    with(cm_id_of(fd, cmd.id)?, |cm, now, id| cm.establish(now, id))
}

/// # Safety
/// As for all [commands with a reply](super).
pub(in crate::ucma) unsafe fn init_qp_attr(fd: RawFd, cmd: &IdRequest, answer: Answer) -> Result<()> {
    answer.needs(size_of::<QpAttr>())?;
    let to = match cmd.value {
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        other => return Err(invalid!("attributes for queue pair state {other}")),
    };
    let cm_id = cm_id_of(fd, cmd.id)?;
    let attributes = with(cm_id, |cm, _, id| cm.qp_attr(id, to))?;
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &qp_attr(info(cm_id.0)?, to, &attributes)) }
}
