//! The commands, answered like the kernel's ucma.c.
//!
//! | module | commands |
//! |---|---|
//! | `ids` | CREATE_ID, DESTROY_ID, MIGRATE_ID, SET_OPTION |
//! | `binding` | BIND, and which devices an id is attached to |
//! | `resolve` | RESOLVE_ADDR, RESOLVE_ROUTE |
//! | `query` | QUERY |
//! | `connections` | LISTEN, CONNECT, ACCEPT, REJECT, DISCONNECT, NOTIFY, INIT_QP_ATTR |
//! | `multicast` | JOIN_MCAST, LEAVE_MCAST |
//! | `events` | GET_EVENT |
//!
//! # Safety
//!
//! Commands with a reply are unsafe: `cmd.response` must be a buffer of the size in `answer`.

mod binding;
mod connections;
mod events;
mod ids;
mod multicast;
mod query;
mod resolve;

use std::os::fd::RawFd;
use std::sync::Arc;

use irnic_cm::{Cm, CmError, CmId};
use irnic_transports::Time;

pub(super) use self::binding::bind;
pub(super) use self::connections::{accept, connect, disconnect, init_qp_attr, listen, notify, reject};
pub(super) use self::events::{await_event, take_event};
pub(super) use self::ids::{create_id, destroy_id, destroy_removed, migrate_id, set_option};
pub(super) use self::multicast::{join_mcast, leave_mcast};
pub(super) use self::query::query;
pub(super) use self::resolve::{resolve_addr, resolve_route};
use super::state::{DeviceCmId, state};
use crate::device::DeviceInfo;
use crate::errno::{Errno, Result, invalid, refused};
use crate::objects::devices;
use crate::runtime::DeviceRuntime;

impl From<CmError> for Errno {
    fn from(e: CmError) -> Errno {
        refused(e.errno(), &e)
    }
}

/// Returns the properties of a device.
fn info(device: usize) -> Result<&'static DeviceInfo> {
    devices().get(device).map(|device| device.info()).ok_or(Errno(libc::ENODEV))
}

/// Returns an open device, as every device with ids is.
fn running(device: usize) -> Result<Arc<DeviceRuntime>> {
    devices().get(device).and_then(|device| device.running()).ok_or(Errno(libc::ENODEV))
}

/// Calls the communication manager that has an id.
fn with<R>(
    (device, id): DeviceCmId,
    call: impl FnOnce(&mut Cm, Time, CmId) -> std::result::Result<R, CmError>,
) -> Result<R> {
    Ok(running(device)?.first_unit().with_cm(|cm, now| call(cm, now, id))?)
}

/// Returns the id in the communication manager of its device; EINVAL if there is none yet.
fn cm_id_of(fd: RawFd, handle: u32) -> Result<DeviceCmId> {
    let mut state = state();
    match state.id_of(fd, handle)?.cm_ids[..] {
        [one, ..] => Ok(one),
        [] => Err(invalid!("id {handle} is not bound to a device yet")),
    }
}
