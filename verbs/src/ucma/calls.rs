//! The commands, as the kernel's ucma.c answers them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use irnic_cm::{Cm, CmError, CmId, ConnParam as Param, PortSpace, PrivateData, QpKind, Route, service_id};
use irnic_transports::Time;
use irnic_transports::qp::QpState;
use irnic_transports::time::MS;

use super::abi::*;
use super::address::{self, Address, IbAddress};
use super::attributes::{ah_attr, path_record, qp_attr};
use super::device::bury;
use super::listener::DeviceListener;
use super::state::{Backing, Id, Options, Queued, state};
use crate::abi::consts::*;
use crate::device::DeviceInfo;
use crate::errno::{Errno, Result, invalid, refused};
use crate::gid::gid_of;
use crate::objects::devices;
use crate::runtime::DeviceRuntime;

/// Ports from which one is chosen for an id that asks for none.
const EPHEMERAL: std::ops::Range<u16> = 32_768..61_000;
/// How many ports are tried.
const TRIES: u32 = 64;
/// Ports below this are root's.
const PRIVILEGED: u16 = 1024;

impl From<CmError> for Errno {
    fn from(e: CmError) -> Errno {
        refused(e.errno(), &e)
    }
}

// Devices.

fn info(device: usize) -> Result<&'static DeviceInfo> {
    devices().get(device).map(|device| device.info()).ok_or(Errno(libc::ENODEV))
}

/// Returns a device at work, with somebody to hear its communication manager.
fn runtime(device: usize) -> Result<std::sync::Arc<DeviceRuntime>> {
    let runtime = devices().get(device).ok_or(Errno(libc::ENODEV))?.runtime()?;
    runtime.start()?;
    runtime.assign_unit().listen_cm(|| Box::new(DeviceListener { device }));
    Ok(runtime)
}

/// Calls the communication manager that has an id.
pub(super) fn with<R>(
    (device, id): Backing,
    call: impl FnOnce(&mut Cm, Time, CmId) -> std::result::Result<R, CmError>,
) -> Result<R> {
    let runtime = runtime(device)?;
    Ok(runtime.assign_unit().with_cm(|cm, now| call(cm, now, id))?)
}

/// Returns the one id of a communication manager that an id is; EINVAL if it has none yet.
fn backing(fd: RawFd, handle: u32) -> Result<Backing> {
    let mut state = state();
    match state.id_of(fd, handle)?.backing[..] {
        [one, ..] => Ok(one),
        [] => Err(invalid!("id {handle} is not bound to a device yet")),
    }
}

/// Puts an id on a device: makes one at its communication manager, with the options that were set.
fn put_on(handle: u32, device: usize, space: PortSpace, kind: QpKind, options: Options) -> Result<Backing> {
    let made = runtime(device)?.assign_unit().with_cm(|cm, _| {
        let id = cm.create(space, kind)?;
        set_options(cm, id, options)?;
        Ok::<_, CmError>(id)
    })?;
    let backing = (device, made);
    let backed = state().back(handle, backing);
    if let Err(gone) = backed {
        let _ = with(backing, |cm, now, id| cm.destroy(now, id));
        return Err(gone);
    }
    Ok(backing)
}

fn set_options(cm: &mut Cm, id: CmId, options: Options) -> std::result::Result<(), CmError> {
    options.tos.map_or(Ok(()), |tos| cm.set_tos(id, tos))?;
    options.ack_timeout.map_or(Ok(()), |code| cm.set_ack_timeout(id, code))?;
    options.afonly.map_or(Ok(()), |afonly| cm.set_afonly(id, afonly))
}

// Life of an id.

/// # Safety
/// As of all commands that answer: `cmd.response` has as much room as `answer` says.
pub(super) unsafe fn create_id(fd: RawFd, cmd: &CreateId, answer: Answer) -> Result<()> {
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
/// That of [`create_id`].
pub(super) unsafe fn destroy_id(fd: RawFd, cmd: &Asking, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let remains = {
        let mut state = state();
        state.id_of(fd, cmd.id)?;
        state.remove(cmd.id).unwrap_or_default()
    };
    let reported = remains.reported;
    bury(remains);
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}

/// # Safety
/// That of [`create_id`].
pub(super) unsafe fn migrate_id(fd: RawFd, cmd: &Asking, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let reported = {
        let mut state = state();
        state.id_of(cmd.value as RawFd, cmd.id)?;
        state.migrate(cmd.id, fd)?
    };
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}

// Addresses.

pub(super) fn bind(fd: RawFd, cmd: &Bind) -> Result<()> {
    match Address::parse(&cmd.addr, cmd.addr_size)? {
        Some(Address::Ip(address)) => bind_ip(fd, cmd.id, address),
        Some(Address::Ib(address)) => bind_ib(fd, cmd.id, address),
        None => Err(Errno(libc::EINVAL)),
    }
}

/// What an id is before it is bound; EINVAL if it is bound already.
fn unbound(fd: RawFd, handle: u32) -> Result<(PortSpace, QpKind, Options)> {
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    if id.src.is_some() || !id.backing.is_empty() {
        return Err(invalid!("id {handle} is bound already"));
    }
    Ok((id.space, id.kind, id.options))
}

fn bind_ip(fd: RawFd, handle: u32, mut address: SocketAddr) -> Result<()> {
    let (space, kind, options) = unbound(fd, handle)?;
    // SAFETY: has no precondition.
    if (1..PRIVILEGED).contains(&address.port()) && unsafe { libc::geteuid() } != 0 {
        return Err(Errno(libc::EACCES));
    }
    let device = address::bound_device(address.ip())?;
    let on: Vec<usize> = device.map_or_else(|| (0..devices().len()).collect(), |device| vec![device]);
    if on.is_empty() {
        return Err(Errno(libc::ENODEV));
    }
    let mut bound = Err(Errno(libc::EADDRINUSE));
    for port in ports(address.port()) {
        address.set_port(port);
        bound = bind_on(handle, &on, address, space, kind, options);
        if !matches!(bound, Err(Errno(libc::EADDRINUSE | libc::EADDRNOTAVAIL))) {
            break;
        }
    }
    bound?;
    state().id_of(fd, handle)?.device = device;
    Ok(())
}

/// The ports to try: the one that was asked for, or some at random.
fn ports(asked: u16) -> Vec<u16> {
    if asked != 0 {
        return vec![asked];
    }
    let mut random = [0u16; TRIES as usize];
    // SAFETY: as many bytes as the array has. Without entropy the first port is tried again and again.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), size_of_val(&random), 0) };
    random.iter().map(|random| EPHEMERAL.start + random % EPHEMERAL.len() as u16).collect()
}

/// Binds an id to an address on some devices, all or none.
fn bind_on(
    handle: u32,
    on: &[usize],
    address: SocketAddr,
    space: PortSpace,
    kind: QpKind,
    options: Options,
) -> Result<()> {
    let bound = on.iter().try_for_each(|&device| {
        claim(handle, device, service_id(space, address.port())).map_err(|e| match e {
            // So the kernel answers where one of the two means every address (`cma_check_port` in cma.c).
            Errno(libc::EADDRINUSE) if address.ip().is_unspecified() => Errno(libc::EADDRNOTAVAIL),
            e => e,
        })?;
        let backing = put_on(handle, device, space, kind, options)?;
        with(backing, |cm, _, id| cm.bind(id, address, options.reuse))
    });
    match bound {
        Ok(()) => {
            state().id(handle)?.src = Some(Address::Ip(address));
            Ok(())
        }
        Err(e) => {
            take_off(handle);
            Err(e)
        }
    }
}

/// Claims a service of a device for an id. Ids of this process share a claim: whether their addresses differ is the
/// communication manager's to see.
fn claim(handle: u32, device: usize, service: u64) -> Result<()> {
    let at = (device, service);
    if !state().share_claim(at) {
        let claim = runtime(device)?.assign_unit().claim_service(service).map_err(|e| match e.kind() {
            std::io::ErrorKind::AddrInUse => Errno(libc::EADDRINUSE),
            _ => e.into(),
        })?;
        state().add_claim(at, claim);
    }
    let mut state = state();
    match state.id(handle) {
        Ok(id) => id.claims.push(at),
        Err(gone) => {
            state.release(at);
            return Err(gone);
        }
    }
    Ok(())
}

/// Takes an id off all devices, as if it had not been bound.
fn take_off(handle: u32) {
    let backing = {
        let mut state = state();
        let claims = state.id(handle).map(|id| std::mem::take(&mut id.claims)).unwrap_or_default();
        claims.into_iter().for_each(|claim| state.release(claim));
        state.unback(handle)
    };
    for one in backing {
        let _ = with(one, |cm, now, id| cm.destroy(now, id));
    }
}

/// Binds an id to a GID and a service. That claims nothing before the id listens.
fn bind_ib(fd: RawFd, handle: u32, address: IbAddress) -> Result<()> {
    unbound(fd, handle)?;
    let device = address::bound_device(crate::gid::address_of(&address.gid))?;
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    (id.src, id.device) = (Some(Address::Ib(address)), device);
    Ok(())
}

pub(super) fn resolve_addr(fd: RawFd, cmd: &ResolveAddr) -> Result<()> {
    let src = Address::parse(&cmd.src_addr, cmd.src_size)?;
    let dst = Address::parse(&cmd.dst_addr, cmd.dst_size)?.ok_or(Errno(libc::EINVAL))?;
    if let Some(src @ Address::Ip(ip)) = src {
        let bound = state().id_of(fd, cmd.id)?.src;
        if bound.is_none() && (!ip.ip().is_unspecified() || ip.port() != 0) {
            bind(fd, &bind_command(cmd.id, src))?;
        }
    }
    match resolve(fd, cmd.id, dst) {
        Ok(((device, id), to)) => {
            // The neighbour's answer comes as an event.
            runtime(device)?.assign_unit().find_way(id, to, u64::from(cmd.timeout_ms) * MS);
            Ok(())
        }
        // What the network says comes as an event, what the call is wrong about at once.
        Err(Errno(errno @ (libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV | libc::EACCES))) => {
            state().tell_way(cmd.id, -errno);
            Ok(())
        }
        Err(e) => Err(e),
    }
}

fn bind_command(id: u32, address: Address) -> Bind {
    let mut addr = [0; 128];
    let addr_size = address.emit(&mut addr);
    Bind { id, addr_size, reserved: 0, addr }
}

/// Finds the route to a destination, and puts the id on the device that it leads over. Returns what the id is there, and
/// the peer's address.
fn resolve(fd: RawFd, handle: u32, dst: Address) -> Result<(Backing, IpAddr)> {
    let (space, kind, options, src, bound, backing) = {
        let mut state = state();
        let id = state.id_of(fd, handle)?;
        if id.dst.is_some() {
            return Err(invalid!("id {handle} is resolved already"));
        }
        (id.space, id.kind, id.options, id.src, id.device, id.backing.clone())
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
    let port = own.map_or(0, |own| own.port());
    let port = if port == 0 { ports(0)[0] } else { port };
    let backing = match backing.iter().find(|(device, _)| *device == found.device) {
        Some(backing) => *backing,
        None => put_on(handle, found.device, space, kind, options)?,
    };
    keep_only(handle, backing);
    let own = match own {
        Some(own) if !own.ip().is_unspecified() => SocketAddr::new(own.ip(), port),
        _ => SocketAddr::new(found.src, port),
    };
    let mut route = Route::new(own, found.dst, found.path, info(found.device)?.mtu);
    route.service_id = service;
    with(backing, |cm, _, id| cm.resolve(id, route))?;
    let mut state = state();
    let id = state.id_of(fd, handle)?;
    id.device = Some(found.device);
    id.dst = Some(if service.is_some() { dst } else { Address::Ip(found.dst) });
    if !matches!(id.src, Some(Address::Ib(_))) {
        id.src = Some(Address::Ip(own));
    }
    Ok((backing, found.path.dst))
}

/// Takes an id that was bound to the wildcard off the devices that it does not use.
fn keep_only(handle: u32, kept: Backing) {
    let others: Vec<Backing> = {
        let mut state = state();
        let others = state.unback(handle).into_iter().filter(|one| *one != kept).collect();
        // It was there a moment ago.
        let _ = state.back(handle, kept);
        others
    };
    for other in others {
        let _ = with(other, |cm, now, id| cm.destroy(now, id));
    }
}

pub(super) fn resolve_route(fd: RawFd, cmd: &OfId) -> Result<()> {
    let mut state = state();
    let id = state.id_of(fd, cmd.id)?;
    if id.dst.is_none() {
        return Err(invalid!("id {} has no address resolved", cmd.id));
    }
    id.route_resolved = true;
    state.tell(cmd.id, event::ROUTE_RESOLVED, 0);
    Ok(())
}

/// # Safety
/// That of [`create_id`].
pub(super) unsafe fn query(fd: RawFd, cmd: &Asking, answer: Answer) -> Result<()> {
    let (mut src, mut dst, device, backing, resolved) = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        (id.src, id.dst, id.device, id.backing.first().copied(), id.route_resolved)
    };
    let route = match backing.filter(|_| device.is_some()) {
        Some(backing) => with(backing, |cm, _, id| Ok((cm.addresses(id)?, cm.route(id)?)))?,
        None => Default::default(),
    };
    let (addresses, route) = route;
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
            // RDMA_USER_CM_QUERY_IB_SERVICE, and whatever comes.
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }
}

/// What is the same in the answers about addresses and GIDs.
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
            address::gid_address(info(device)?, ip.ip()).map(gid_of).unwrap_or_default()
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

// Connections.

pub(super) fn listen(fd: RawFd, cmd: &OfId) -> Result<()> {
    let (space, kind, options, src, device, bound) = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        (id.space, id.kind, id.options, id.src, id.device, !id.backing.is_empty())
    };
    match src {
        // As the kernel does it: any address, any port.
        None => bind_ip(fd, cmd.id, SocketAddr::from(([0, 0, 0, 0], 0)))?,
        Some(Address::Ib(address)) if !bound => {
            for device in device.map_or(0..devices().len(), |device| device..device + 1) {
                let backing = put_on(cmd.id, device, space, kind, options)?;
                with(backing, |cm, _, id| cm.bind_service(id, address.service, address.mask))?;
            }
        }
        Some(_) => {}
    }
    let backing = state().id_of(fd, cmd.id)?.backing.clone();
    backing.into_iter().try_for_each(|one| with(one, |cm, _, id| cm.listen(id, cmd.value)))
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

pub(super) fn connect(fd: RawFd, cmd: &Connect) -> Result<()> {
    if cmd.conn_param.valid == 0 {
        return Err(Errno(libc::EINVAL));
    }
    let param = param(&cmd.conn_param)?;
    with(backing(fd, cmd.id)?, |cm, now, id| cm.connect(now, id, &param))
}

pub(super) fn accept(fd: RawFd, cmd: &Accept) -> Result<()> {
    let backing = backing(fd, cmd.id)?;
    if cmd.conn_param.valid == 0 {
        return with(backing, |cm, now, id| cm.accept(now, id, None));
    }
    let param = param(&cmd.conn_param)?;
    // Events can come as soon as the peer hears of it.
    let before = std::mem::replace(&mut state().id_of(fd, cmd.id)?.uid, cmd.uid);
    let accepted = with(backing, |cm, now, id| cm.accept(now, id, Some(&param)));
    if accepted.is_err()
        && let Ok(id) = state().id_of(fd, cmd.id)
    {
        id.uid = before;
    }
    accepted
}

pub(super) fn reject(fd: RawFd, cmd: &Reject) -> Result<()> {
    /// Consumer reject: what an application that names no reason means.
    const CONSUMER_DEFINED: u16 = 28;
    let reason = if cmd.reason == 0 { CONSUMER_DEFINED } else { cmd.reason.into() };
    let data = private_data(&cmd.private_data, cmd.private_data_len)?;
    with(backing(fd, cmd.id)?, |cm, now, id| cm.reject(now, id, reason, &data))
}

pub(super) fn disconnect(fd: RawFd, cmd: &OfId) -> Result<()> {
    with(backing(fd, cmd.id)?, |cm, now, id| cm.disconnect(now, id))
}

pub(super) fn notify(fd: RawFd, cmd: &OfId) -> Result<()> {
    /// IBV_EVENT_COMM_EST.
    const COMM_EST: u32 = 4;
    if cmd.value != COMM_EST {
        return Ok(());
    }
    with(backing(fd, cmd.id)?, |cm, now, id| cm.establish(now, id))
}

/// # Safety
/// That of [`create_id`].
pub(super) unsafe fn init_qp_attr(fd: RawFd, cmd: &Asking, answer: Answer) -> Result<()> {
    answer.needs(size_of::<QpAttr>())?;
    let to = match cmd.value {
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        other => return Err(invalid!("attributes for queue pair state {other}")),
    };
    let backing = backing(fd, cmd.id)?;
    let attributes = with(backing, |cm, _, id| cm.qp_attr(id, to))?;
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &qp_attr(info(backing.0)?, to, &attributes)) }
}

/// # Safety
/// `cmd.optval` has `cmd.optlen` bytes.
pub(super) unsafe fn set_option(fd: RawFd, cmd: &SetOption) -> Result<()> {
    let wants = |len: u32| if cmd.optlen == len && cmd.optval != 0 { Ok(()) } else { Err(Errno(libc::EINVAL)) };
    // SAFETY: the caller's promise; asked for after the length was looked at.
    let byte = || unsafe { (cmd.optval as *const u8).read() };
    // SAFETY: the caller's promise; asked for after the length was looked at.
    let word = || unsafe { (cmd.optval as *const i32).read_unaligned() };
    let mut options = state().id_of(fd, cmd.id)?.options;
    match (cmd.level, cmd.optname) {
        (option::LEVEL_ID, option::ID_TOS) => {
            wants(1)?;
            options.tos = Some(byte());
        }
        (option::LEVEL_ID, option::ID_ACK_TIMEOUT) => {
            wants(1)?;
            options.ack_timeout = Some(byte());
        }
        (option::LEVEL_ID, option::ID_REUSEADDR) => {
            wants(4)?;
            options.reuse = word() != 0;
        }
        (option::LEVEL_ID, option::ID_AFONLY) => {
            wants(4)?;
            options.afonly = Some(word() != 0);
        }
        // What a path record says of RoCE is what resolving the address has found.
        (option::LEVEL_IB, option::IB_PATH) => {
            return resolve_route(fd, &OfId { id: cmd.id, value: 0 });
        }
        _ => return Err(Errno(libc::ENOSYS)),
    }
    let backing = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        id.options = options;
        id.backing.clone()
    };
    backing.into_iter().try_for_each(|one| with(one, |cm, _, id| set_options(cm, id, options)))
}

// Multicast.

/// # Safety
/// That of [`create_id`].
pub(super) unsafe fn join_mcast(fd: RawFd, cmd: &JoinMcast, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let Some(Address::Ip(to)) = Address::parse(&cmd.addr, cmd.addr_size)? else { return Err(Errno(libc::EINVAL)) };
    if !to.ip().is_multicast() {
        return Err(invalid!("{} is no multicast group", to.ip()));
    }
    let (device, tos, backing) = {
        let mut state = state();
        let id = state.id_of(fd, cmd.id)?;
        let device = id.device.ok_or_else(|| invalid!("id {} is not bound to a device yet", cmd.id))?;
        (device, id.options.tos, id.backing.first().copied())
    };
    let (_, route) = match backing {
        Some(backing) => with(backing, |cm, _, id| Ok((cm.addresses(id)?, cm.route(id)?)))?,
        None => Default::default(),
    };
    let device = info(device)?;
    let own = route.map(|route| route.path.src).filter(|own| own.is_ipv4() == to.is_ipv4());
    let own = own.or_else(|| address::gid_address(device, to.ip())).ok_or(Errno(libc::ENODEV))?;
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
/// That of [`create_id`].
pub(super) unsafe fn leave_mcast(fd: RawFd, cmd: &Asking, answer: Answer) -> Result<()> {
    answer.needs(size_of::<u32>())?;
    let reported = state().remove_group(fd, cmd.id)?;
    // SAFETY: the caller's promise.
    unsafe { answer.write(cmd.response, &reported) }
}

// Events.

/// # Safety
/// That of [`create_id`], for the address `response`.
pub(super) unsafe fn get_event(fd: RawFd, response: u64, answer: Answer) -> Result<()> {
    answer.needs(std::mem::offset_of!(EventResp, reserved))?;
    loop {
        if !state().has_events(fd)? {
            look();
            if !state().has_events(fd)? {
                // SAFETY: no memory is passed.
                let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
                if flags & libc::O_NONBLOCK != 0 {
                    return Err(Errno(libc::EAGAIN));
                }
                prepare_to_block();
            }
        }
        let mut byte = 0u8;
        // Another reader may have taken it: then this waits, as the descriptor says.
        // SAFETY: one byte is written.
        match unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } {
            1 => {}
            0 => return Err(closed_meanwhile()),
            _ => return Err(std::io::Error::last_os_error().into()),
        }
        // What the byte stood for may have been purged meanwhile.
        let taken = state().take(fd)?;
        if let Some(resp) = taken {
            // SAFETY: the caller's promise.
            return unsafe { answer.write(response, &resp) };
        }
    }
}

/// Another thread has closed the file while this one waited for an event. The kernel lets it wait on, until a signal,
/// and programs count on that: rping closes its channel and ends while a thread of it waits.
fn closed_meanwhile() -> Errno {
    // SAFETY: has no precondition.
    unsafe { libc::pause() };
    Errno(libc::EINTR)
}

/// Runs the devices that are at work.
fn look() {
    for device in devices() {
        if let Some(runtime) = device.running() {
            runtime.assign_unit().look();
        }
    }
}

/// Prepares for the calling thread's sleep.
fn prepare_to_block() {
    for device in devices() {
        if let Some(runtime) = device.running() {
            runtime.prepare_to_block();
        }
    }
}
