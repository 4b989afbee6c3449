//! The device as used by librdmacm: files, ids, commands, events.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::abi::*;
use super::address::{Address, IbAddress};
use super::device;
use super::forged::{forged_commands, on_loopback};
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::objects::devices;

/// Time limit of a test's waits.
const PATIENCE: Duration = Duration::from_secs(60);
const TCP: u16 = 0x0106;
const UDP: u16 = 0x0111;

/// A command as bytes: header, body.
fn bytes<T: Plain>(cmd: u32, body: &T, room: usize) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Header>() + size_of::<T>()];
    put(&mut bytes, &Header { cmd, input: size_of::<T>() as u16, output: room as u16 });
    put(&mut bytes[size_of::<Header>()..], body);
    bytes
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An open file, on a device of the loopback interface.
struct File(RawFd);

impl Drop for File {
    fn drop(&mut self) {
        device::close(self.0);
        // SAFETY: this test's descriptor.
        unsafe { libc::close(self.0) };
    }
}

impl File {
    fn open(flags: i32) -> File {
        on_loopback();
        let fd = device::open(flags);
        assert!(fd >= 0, "errno {}", errno());
        File(fd)
    }

    /// Executes bytes whose addresses, if any, are this process's.
    fn execute(&self, bytes: &[u8]) -> Result<(), Errno> {
        // SAFETY: bytes created by this test.
        match unsafe { device::command(self.0, bytes) } {
            -1 => {
                assert_ne!(errno(), libc::EIO, "a command panics");
                Err(Errno(errno()))
            }
            len => {
                assert_eq!(len as usize, bytes.len());
                Ok(())
            }
        }
    }

    fn send<T: Plain>(&self, cmd: u32, body: &T) -> Result<(), Errno> {
        self.execute(&bytes(cmd, body, 0))
    }

    fn call<A: Plain>(&self, cmd: u32, id: u32, value: u32) -> Result<A, Errno> {
        let mut answer: A = zeroed();
        let body = IdRequest { response: (&raw mut answer) as u64, id, value };
        self.execute(&bytes(cmd, &body, size_of::<A>()))?;
        Ok(answer)
    }

    fn create(&self, uid: u64, ps: u16) -> u32 {
        let mut id = u32::MAX;
        let body = CreateId { uid, response: (&raw mut id) as u64, ps, qp_type: 0, reserved: [0; 5] };
        self.execute(&bytes(command::CREATE_ID, &body, 4)).expect("an id");
        id
    }

    fn bind(&self, id: u32, address: &str) -> Result<(), Errno> {
        let mut addr = [0; 128];
        let addr_size = Address::Ip(address.parse().expect("an address")).emit(&mut addr);
        self.send(command::BIND, &Bind { id, addr_size, reserved: 0, addr })
    }

    fn listen(&self, id: u32, backlog: u32) -> Result<(), Errno> {
        self.send(command::LISTEN, &OfId { id, value: backlog })
    }

    fn resolve(&self, id: u32, to: SocketAddr) -> Result<(), Errno> {
        let mut body = ResolveAddr { id, ..zeroed() };
        body.dst_size = Address::Ip(to).emit(&mut body.dst_addr);
        self.send(command::RESOLVE_ADDR, &body)
    }

    fn address(&self, id: u32) -> QueryAddrResp {
        self.call(command::QUERY, id, query::ADDR).expect("an address")
    }

    fn port(&self, id: u32) -> u16 {
        let resp = self.address(id);
        match Address::parse(&resp.src_addr, resp.src_size) {
            Ok(Some(Address::Ip(ip))) => ip.port(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes an event if there is one; for a non-blocking file.
    fn try_event(&self) -> Result<EventResp, Errno> {
        let mut resp: EventResp = zeroed();
        self.execute(&bytes(command::GET_EVENT, &((&raw mut resp) as u64), size_of::<EventResp>()))?;
        Ok(resp)
    }

    /// Takes the next event, and fails if it is not `wanted`.
    fn event(&self, wanted: u32, uid: u64) -> EventResp {
        let start = Instant::now();
        loop {
            match self.try_event() {
                Ok(resp) => {
                    assert_eq!((resp.event, resp.uid), (wanted, uid), "status {}", resp.status as i32);
                    return resp;
                }
                Err(Errno(libc::EAGAIN)) => {}
                Err(e) => panic!("{e:?}"),
            }
            assert!(start.elapsed() < PATIENCE, "event {wanted} does not come");
            std::thread::yield_now();
        }
    }

    fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        assert_eq!(poll.revents & libc::POLLOUT, 0, "never writable");
        poll.revents & libc::POLLIN != 0
    }
}

fn quiet() -> File {
    File::open(libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK)
}

fn here(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn conn_param(qp_num: u32, text: &[u8]) -> ConnParam {
    let mut param = ConnParam { qp_num, retry_count: 7, rnr_retry_count: 7, valid: 1, ..zeroed() };
    (param.responder_resources, param.initiator_depth) = (4, 3);
    param.private_data[..text.len()].copy_from_slice(text);
    param.private_data_len = text.len() as u8;
    param
}

/// Returns a listener, and an id that has sent it a connection request for the queue pair `qpn`. Tests run
/// concurrently, and a peer has one connection of a queue pair: each number is used by one test.
fn connecting(file: &File, space: u16, qpn: u32, text: &[u8]) -> (u32, u32) {
    let listener = file.create(1, space);
    file.bind(listener, "0.0.0.0:0").unwrap();
    file.listen(listener, 10).unwrap();
    let active = file.create(2, space);
    file.resolve(active, here(file.port(listener))).unwrap();
    file.event(event::ADDR_RESOLVED, 2);
    file.send(command::RESOLVE_ROUTE, &OfId { id: active, value: 2000 }).unwrap();
    file.event(event::ROUTE_RESOLVED, 2);
    let body = Connect { conn_param: conn_param(qpn, text), id: active, ..zeroed() };
    file.send(command::CONNECT, &body).unwrap();
    (listener, active)
}

#[test]
fn ids_connect_and_disconnect_within_a_process() {
    let file = quiet();
    let (listener, active) = connecting(&file, TCP, 0x4321, b"how do you do");
    let request = file.event(event::CONNECT_REQUEST, 1);
    let param: ConnParam = read(&request.param);
    assert_eq!(&param.private_data[..13], b"how do you do");
    assert_eq!((param.qp_num, param.responder_resources, param.initiator_depth), (0x4321, 3, 4));
    let passive = request.id;
    let attr: QpAttr = file.call(command::INIT_QP_ATTR, passive, crate::abi::consts::IBV_QPS_RTR).unwrap();
    assert_eq!((attr.dest_qp_num, attr.ah_attr.is_global), (0x4321, 1));
    let body = Accept { uid: 3, conn_param: conn_param(0x1234, b"well"), id: passive, ..zeroed() };
    file.send(command::ACCEPT, &body).unwrap();
    let response: ConnParam = read(&file.event(event::CONNECT_RESPONSE, 2).param);
    assert_eq!((response.qp_num, &response.private_data[..4]), (0x1234, &b"well"[..]));
    file.send(command::ACCEPT, &Accept { id: active, ..zeroed() }).unwrap();
    file.event(event::ESTABLISHED, 3);
    file.send(command::DISCONNECT, &active).unwrap();
    let mut ended = [file.next_event(), file.next_event()].map(|resp| (resp.event, resp.uid));
    ended.sort_unstable();
    assert_eq!(ended, [(event::DISCONNECTED, 2), (event::DISCONNECTED, 3)]);
    // The events reported are those taken: address, route, response, end; request; established, end.
    let reported = [active, listener, passive].map(|id| file.call::<u32>(command::DESTROY_ID, id, 0).unwrap());
    assert_eq!(reported, [4, 1, 2]);
}

impl File {
    fn next_event(&self) -> EventResp {
        let start = Instant::now();
        loop {
            if let Ok(resp) = self.try_event() {
                return resp;
            }
            assert!(start.elapsed() < PATIENCE, "no event comes");
        }
    }
}

#[test]
fn a_rejection_brings_its_reason_and_private_data() {
    let file = quiet();
    let (_, _) = connecting(&file, TCP, 0x4322, b"");
    let passive = file.event(event::CONNECT_REQUEST, 1).id;
    let mut body = Reject { id: passive, private_data_len: 2, ..zeroed() };
    body.private_data[..2].copy_from_slice(b"no");
    file.send(command::REJECT, &body).unwrap();
    let rejected = file.event(event::REJECTED, 2);
    let param: ConnParam = read(&rejected.param);
    assert_eq!((rejected.status, &param.private_data[..2]), (28, &b"no"[..]));
}

#[test]
fn nobody_listens() {
    let file = quiet();
    let active = file.create(2, TCP);
    file.resolve(active, here(1)).unwrap();
    file.event(event::ADDR_RESOLVED, 2);
    let body = Connect { conn_param: conn_param(5, b""), id: active, ..zeroed() };
    file.send(command::CONNECT, &body).unwrap();
    assert_eq!(file.event(event::REJECTED, 2).status, 8, "invalid service id");
}

#[test]
fn datagram_services_are_asked_for_and_told() {
    let file = quiet();
    connecting(&file, UDP, 0x4323, b"where");
    let request = file.event(event::CONNECT_REQUEST, 1);
    let body = Accept { uid: 3, conn_param: conn_param(0x777, b"here"), id: request.id, ..zeroed() };
    file.send(command::ACCEPT, &body).unwrap();
    let param: UdParam = read(&file.event(event::ESTABLISHED, 2).param);
    assert_eq!((param.qp_num, param.qkey, &param.private_data[..4]), (0x777, UDP_QKEY, &b"here"[..]));
}

#[test]
fn a_port_has_one_owner() {
    let (file, other) = (quiet(), quiet());
    let (first, second) = (file.create(1, TCP), other.create(2, TCP));
    file.bind(first, "127.0.0.1:0").unwrap();
    let taken = format!("127.0.0.1:{}", file.port(first));
    assert_eq!(other.bind(second, &taken), Err(Errno(libc::EADDRINUSE)));
    let everywhere = taken.replace("127.0.0.1", "0.0.0.0");
    assert_eq!(other.bind(second, &everywhere), Err(Errno(libc::EADDRNOTAVAIL)), "as in the kernel");
    file.call::<u32>(command::DESTROY_ID, first, 0).unwrap();
    assert_eq!(other.bind(second, &taken), Ok(()));
    assert_eq!(other.bind(second, &taken), Err(Errno(libc::EINVAL)), "bound already");
    // Another port space has its own ports.
    let datagrams = file.create(3, UDP);
    assert_eq!(file.bind(datagrams, &taken), Ok(()));
}

#[test]
fn a_service_of_af_ib_has_one_owner_from_listening_on() {
    let file = quiet();
    // Opens the device.
    file.bind(file.create(1, TCP), "127.0.0.1:0").unwrap();
    let unit = devices()[0].running().expect("an open device").first_unit().clone();
    let service = 0x1000_0000_0000_0000 | u64::from(std::process::id()) << 16;
    let gid = gid_of(Ipv4Addr::LOCALHOST.into());
    let address = Address::Ib(IbAddress { pkey: 0xffff, gid, service, mask: u64::MAX });
    let id = file.create(2, TCP);
    let mut bind = Bind { id, addr_size: 0, reserved: 0, addr: [0; 128] };
    bind.addr_size = address.emit(&mut bind.addr);
    file.send(command::BIND, &bind).unwrap();
    // Held without an id, as if by another process.
    let held = unit.claim_service(service).expect("a service that nobody has");
    assert_eq!(file.listen(id, 10), Err(Errno(libc::EADDRINUSE)));
    drop(held);
    assert_eq!(file.listen(id, 10), Ok(()));
    assert_eq!(unit.claim_service(service).err().map(|e| e.kind()), Some(std::io::ErrorKind::AddrInUse));
    file.call::<u32>(command::DESTROY_ID, id, 0).unwrap();
    assert!(unit.claim_service(service).is_ok());
}

/// A peer that misses the answer repeats its request: until it has the answer, requests must arrive at this process.
#[test]
fn a_service_stays_claimed_until_the_connections_of_a_listener_that_is_gone_stand() {
    let (file, other) = (quiet(), quiet());
    let (listener, active) = connecting(&file, TCP, 0x4326, b"");
    let address = format!("127.0.0.1:{}", file.port(listener));
    let passive = file.event(event::CONNECT_REQUEST, 1).id;
    let body = Accept { uid: 3, conn_param: conn_param(0x1235, b""), id: passive, ..zeroed() };
    file.send(command::ACCEPT, &body).unwrap();
    file.call::<u32>(command::DESTROY_ID, listener, 0).unwrap();
    let unit = devices()[0].running().expect("an open device").first_unit().clone();
    let port = u64::from(file.port(passive));
    let is_claimed = || {
        let service = 0x0106_0000 | port;
        unit.claim_service(service).err().is_some_and(|e| e.kind() == std::io::ErrorKind::AddrInUse)
    };
    assert!(is_claimed(), "{address}");
    file.event(event::CONNECT_RESPONSE, 2);
    file.send(command::ACCEPT, &Accept { id: active, ..zeroed() }).unwrap();
    file.event(event::ESTABLISHED, 3);
    assert!(!is_claimed());
    let id = other.create(4, TCP);
    assert_eq!(other.bind(id, &address), Ok(()));
}

#[test]
fn an_id_that_has_asked_keeps_the_port_that_it_is_bound_to() {
    let file = quiet();
    let listener = file.create(1, UDP);
    file.bind(listener, "0.0.0.0:0").unwrap();
    file.listen(listener, 10).unwrap();
    let active = file.create(2, UDP);
    file.bind(active, "127.0.0.1:0").unwrap();
    file.resolve(active, here(file.port(listener))).unwrap();
    file.event(event::ADDR_RESOLVED, 2);
    let body = Connect { conn_param: conn_param(0x4327, b""), id: active, ..zeroed() };
    file.send(command::CONNECT, &body).unwrap();
    let request = file.event(event::CONNECT_REQUEST, 1);
    let body = Accept { uid: 3, conn_param: conn_param(0x778, b""), id: request.id, ..zeroed() };
    file.send(command::ACCEPT, &body).unwrap();
    file.event(event::ESTABLISHED, 2);
    let unit = devices()[0].running().expect("an open device").first_unit().clone();
    let claimed = unit.claim_service(0x0111_0000 | u64::from(file.port(active)));
    assert_eq!(claimed.err().map(|e| e.kind()), Some(std::io::ErrorKind::AddrInUse));
}

#[test]
fn addresses_that_are_no_devices_are_refused() {
    let file = quiet();
    let id = file.create(1, TCP);
    assert_eq!(file.bind(id, "192.0.2.77:5000"), Err(Errno(libc::EADDRNOTAVAIL)));
    assert_eq!(file.send(command::BIND, &Bind { id, addr_size: 16, reserved: 0, addr: [9; 128] }), Err(Errno(22)));
    assert_eq!(file.bind(id + 1000, "127.0.0.1:0"), Err(Errno(libc::ENOENT)));
    let other = quiet();
    assert_eq!(other.bind(id, "127.0.0.1:0"), Err(Errno(libc::EINVAL)), "another file's");
}

#[test]
fn a_wildcard_names_no_device_and_loopback_does() {
    let file = quiet();
    let (any, one) = (file.create(1, TCP), file.create(2, TCP));
    file.bind(any, "0.0.0.0:0").unwrap();
    file.bind(one, "127.0.0.1:0").unwrap();
    assert_eq!((file.address(any).node_guid, file.address(any).port_num), (0, 0));
    assert!(file.address(one).node_guid != 0);
    assert_eq!(file.address(one).port_num, 1);
    let gid: QueryAddrResp = file.call(command::QUERY, one, query::GID).unwrap();
    assert_eq!(gid.src_addr[8..24], Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
}

#[test]
fn commands_that_are_wrong_or_unknown_are_refused() {
    let file = quiet();
    let id = file.create(1, TCP);
    for cmd in [2, 3, 5, 13, 16, 23, 24, 99, u32::MAX] {
        assert_eq!(file.send(cmd, &OfId { id, value: 0 }), Err(Errno(libc::EOPNOTSUPP)), "{cmd}");
    }
    assert_eq!(file.execute(&[]), Err(Errno(libc::EINVAL)));
    let mut long = bytes(command::LISTEN, &OfId { id, value: 0 }, 0);
    long[4] = 200;
    assert_eq!(file.execute(&long), Err(Errno(libc::EINVAL)), "a body that is not there");
    let body = IdRequest { response: 8, id, value: query::ADDR };
    assert_eq!(file.execute(&bytes(command::QUERY, &body, 16)), Err(Errno(libc::ENOSPC)));
    let body = IdRequest { response: 0, id, value: query::ADDR };
    assert_eq!(file.execute(&bytes(command::QUERY, &body, 280)), Err(Errno(libc::EFAULT)));
    assert_eq!(file.send(command::DISCONNECT, &id), Err(Errno(libc::EINVAL)), "not connected");
    assert_eq!(file.send(command::RESOLVE_ROUTE, &OfId { id, value: 1 }), Err(Errno(libc::EINVAL)));
    let mut option = SetOption { optval: (&raw const id) as u64, id, level: 0, optname: 99, optlen: 4 };
    assert_eq!(file.send(command::SET_OPTION, &option), Err(Errno(libc::ENOSYS)));
    option.optname = option::ID_TOS;
    assert_eq!(file.send(command::SET_OPTION, &option), Err(Errno(libc::EINVAL)), "a type of service of four bytes");
}

#[test]
fn an_empty_file_is_not_readable_and_says_so() {
    let file = quiet();
    assert_eq!(file.try_event().err(), Some(Errno(libc::EAGAIN)));
    assert!(!file.is_readable());
    let id = file.create(1, TCP);
    file.resolve(id, here(9)).unwrap();
    assert!(file.is_readable());
    file.event(event::ADDR_RESOLVED, 1);
    assert!(!file.is_readable());
}

#[test]
fn a_file_that_blocks_waits_for_an_event() {
    let file = File::open(libc::O_RDWR);
    let id = file.create(1, TCP);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.try_event().map(|resp| resp.event));
        std::thread::sleep(Duration::from_millis(20));
        file.resolve(id, here(9)).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(event::ADDR_RESOLVED));
    });
}

#[test]
fn events_go_with_an_id_to_another_file_or_away() {
    let (from, to) = (quiet(), quiet());
    let (moved, destroyed) = (from.create(1, TCP), from.create(2, TCP));
    from.resolve(moved, here(9)).unwrap();
    from.resolve(destroyed, here(9)).unwrap();
    assert_eq!(to.call::<u32>(command::MIGRATE_ID, moved, from.0 as u32), Ok(0));
    to.event(event::ADDR_RESOLVED, 1);
    assert_eq!(from.call::<u32>(command::DESTROY_ID, destroyed, 0), Ok(0));
    assert_eq!(from.try_event().err(), Some(Errno(libc::EAGAIN)));
    assert_eq!(to.call::<u32>(command::DESTROY_ID, moved, 0), Ok(1));
    let missing = to.create(3, TCP);
    assert_eq!(to.call::<u32>(command::MIGRATE_ID, missing, 9999), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_listener_that_goes_takes_its_requests_along() {
    let file = quiet();
    let (listener, _) = connecting(&file, TCP, 0x4324, b"");
    while !file.is_readable() {
        std::thread::yield_now();
    }
    assert_eq!(file.call::<u32>(command::DESTROY_ID, listener, 0), Ok(0));
    assert!(file.event(event::REJECTED, 2).status > 0);
}

#[test]
fn closing_a_file_ends_its_ids() {
    let (file, other) = (quiet(), quiet());
    let id = file.create(1, TCP);
    file.bind(id, "127.0.0.1:0").unwrap();
    let taken = format!("127.0.0.1:{}", file.port(id));
    drop(file);
    let id = other.create(1, TCP);
    assert_eq!(other.bind(id, &taken), Ok(()));
}

#[test]
fn groups_are_joined_and_left() {
    let file = quiet();
    let id = file.create(1, UDP);
    let mut handle = u32::MAX;
    let mut body = JoinMcast { response: (&raw mut handle) as u64, uid: 7, id, ..zeroed() };
    body.addr_size = Address::Ip("239.1.2.3:0".parse().unwrap()).emit(&mut body.addr);
    assert_eq!(file.execute(&bytes(command::JOIN_MCAST, &body, 4)), Err(Errno(libc::EINVAL)), "on no device yet");
    file.bind(id, "127.0.0.1:0").unwrap();
    file.execute(&bytes(command::JOIN_MCAST, &body, 4)).unwrap();
    let param: UdParam = read(&file.event(event::MULTICAST_JOIN, 7).param);
    assert_eq!((param.qp_num, param.qkey), (0xff_ffff, UDP_QKEY));
    assert_eq!(param.ah_attr.grh.dgid, Ipv4Addr::new(239, 1, 2, 3).to_ipv6_mapped().octets());
    assert_eq!(file.call::<u32>(command::LEAVE_MCAST, handle, 0), Ok(1));
    assert_eq!(file.call::<u32>(command::LEAVE_MCAST, handle, 0), Err(Errno(libc::ENOENT)));
    assert_eq!(file.call::<u32>(command::DESTROY_ID, id, 0), Ok(1));
}

/// Random commands: whatever their contents, nothing panics, hangs or is left behind. Reply addresses are valid, which
/// the kernel would ensure by EFAULT.
#[test]
fn random_commands_do_no_harm() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let file = quiet();
    let mut answer = [0u8; 4096];
    for _ in 0..20_000 {
        let cmd = (random() % 26) as u32;
        let input = (random() % 320) as usize;
        let mut bytes = vec![0; size_of::<Header>() + input];
        put(&mut bytes, &Header { cmd, input: input as u16, output: (random() % 400) as u16 });
        for byte in &mut bytes[size_of::<Header>()..] {
            // Small numbers are ids, states, lengths.
            *byte = if random() % 4 == 0 { random() as u8 } else { (random() % 4 == 0) as u8 };
        }
        let address = (answer.as_mut_ptr() as u64).to_ne_bytes();
        let at = match cmd {
            command::CREATE_ID => 8,
            _ => 0,
        };
        let answers = [
            command::CREATE_ID,
            command::DESTROY_ID,
            command::INIT_QP_ATTR,
            command::GET_EVENT,
            command::SET_OPTION,
            command::LEAVE_MCAST,
            command::MIGRATE_ID,
            command::QUERY,
            command::JOIN_MCAST,
        ];
        if answers.contains(&cmd) {
            let body = &mut bytes[size_of::<Header>()..];
            if body.len() < at + 8 {
                continue;
            }
            body[at..at + 8].copy_from_slice(&address);
        }
        let _ = file.execute(&bytes);
    }
}

#[test]
fn addresses_that_are_mapped_nowhere_are_refused() {
    let file = File::open(libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK);
    let id = file.create(1, TCP);
    for at in [0_u64, 8, 1 << 46, u64::MAX - 7] {
        let request = IdRequest { response: at, id, value: query::ADDR };
        assert_eq!(file.execute(&bytes(command::QUERY, &request, 512)), Err(Errno(libc::EFAULT)), "{at:#x}");
        let mut sets: SetOption = zeroed();
        (sets.id, sets.level, sets.optname) = (id, option::LEVEL_ID, option::ID_TOS);
        (sets.optval, sets.optlen) = (at, 1);
        let wanted = if at == 0 { libc::EINVAL } else { libc::EFAULT };
        assert_eq!(file.execute(&bytes(command::SET_OPTION, &sets, 0)), Err(Errno(wanted)), "{at:#x}");
    }
}

/// Findings of `make fuzz` that were kept, and seeded random bytes.
#[test]
fn forged_commands_do_no_harm() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ucma");
    let mut succeeded = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        assert!(forged_commands(&bytes) > 0, "{}: no command succeeds", path.display());
    }
    let mut seed = 0x853c_49e6_748f_ea9bu64;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..1000)
            .map(|_| {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (seed >> 56) as u8
            })
            .collect();
        succeeded += forged_commands(&bytes);
    }
    assert!(succeeded > 1000, "{succeeded}");
}

/// A file with ids of both sides of connections, in any state.
struct Party {
    file: File,
    ids: Vec<u32>,
    groups: Vec<u32>,
    established: u32,
}

impl Party {
    fn new() -> Party {
        Party { file: quiet(), ids: Vec::new(), groups: Vec::new(), established: 0 }
    }

    /// Usually one of its ids, or a handle that may be another's or unused.
    fn id(&self, random: &mut impl FnMut() -> u64) -> u32 {
        let n = random();
        match self.ids.get((n >> 8) as usize % self.ids.len().max(1)) {
            Some(&id) if !n.is_multiple_of(16) => id,
            _ => (n >> 32) as u32 % 64,
        }
    }

    /// Takes an event; answers a request in one way or another.
    fn hear(&mut self, random: &mut impl FnMut() -> u64) {
        let Ok(resp) = self.file.try_event() else { return };
        if resp.event == event::CONNECT_REQUEST {
            self.ids.push(resp.id);
        }
        self.established += u32::from(resp.event == event::ESTABLISHED);
        self.answer(resp.id, resp.event, random);
    }

    fn answer(&mut self, id: u32, what: u32, random: &mut impl FnMut() -> u64) {
        let param = conn_param(random() as u32 & 0xff_ffff, b"sent");
        let passive = what == event::CONNECT_REQUEST;
        let param = if passive { param } else { ConnParam { valid: 0, ..param } };
        let _ = match (what, random() % 8) {
            (event::CONNECT_REQUEST | event::CONNECT_RESPONSE, 0) => {
                self.file.send(command::REJECT, &Reject { id, ..zeroed() })
            }
            (event::CONNECT_REQUEST | event::CONNECT_RESPONSE, 1..) => {
                self.file.send(command::ACCEPT, &Accept { uid: 3, conn_param: param, id, ..zeroed() })
            }
            (event::ADDR_RESOLVED, _) => self.file.send(command::RESOLVE_ROUTE, &OfId { id, value: 1000 }),
            (event::ROUTE_RESOLVED, _) => {
                let conn_param = conn_param(random() as u32 & 0xff_ffff, b"asked");
                self.file.send(command::CONNECT, &Connect { conn_param, id, ..zeroed() })
            }
            _ => Ok(()),
        };
    }

    fn join(&mut self, id: u32, random: &mut impl FnMut() -> u64) {
        let mut handle = u32::MAX;
        let mut body = JoinMcast { response: (&raw mut handle) as u64, uid: 7, id, ..zeroed() };
        let group = format!("239.1.2.{}:0", random() % 4);
        body.addr_size = Address::Ip(group.parse().expect("an address")).emit(&mut body.addr);
        if self.file.execute(&bytes(command::JOIN_MCAST, &body, 4)).is_ok() {
            self.groups.push(handle);
        }
    }

    /// Makes a call on an id like librdmacm's, whether or not it is valid now.
    fn act(&mut self, (other, theirs): (RawFd, u32), ports: std::ops::Range<u16>, random: &mut impl FnMut() -> u64) {
        let id = self.id(random);
        let port = ports.start + (random() % ports.len() as u64) as u16;
        let file = &self.file;
        let _ = match random() % 20 {
            0 | 1 => {
                let space = if random().is_multiple_of(4) { UDP } else { TCP };
                self.ids.push(file.create(1 + random() % 3, space));
                Ok(())
            }
            2 => file.bind(id, &format!("0.0.0.0:{port}")),
            3 => file.bind(id, &format!("127.0.0.1:{port}")),
            4 | 5 => file.listen(id, (random() % 4) as u32),
            6..=8 => file.resolve(id, here(port)),
            9 => file.send(command::DISCONNECT, &id),
            10 => file.send(command::NOTIFY, &OfId { id, value: 4 }),
            11 => file.call::<QpAttr>(command::INIT_QP_ATTR, id, (random() % 5) as u32).map(drop),
            12 => file.call::<QueryPathResp>(command::QUERY, id, (random() % 4) as u32).map(drop),
            13 => {
                let moved = file.call::<u32>(command::MIGRATE_ID, theirs, other as u32);
                self.ids.extend(moved.is_ok().then_some(theirs));
                Ok(())
            }
            14 => {
                self.join(id, random);
                Ok(())
            }
            15 => match self.groups.pop() {
                Some(group) => file.call::<u32>(command::LEAVE_MCAST, group, 0).map(drop),
                None => Ok(()),
            },
            16 => {
                self.answer(id, [event::CONNECT_REQUEST, event::CONNECT_RESPONSE][(random() % 2) as usize], random);
                Ok(())
            }
            _ => {
                self.ids.retain(|other| *other != id);
                file.call::<u32>(command::DESTROY_ID, id, 0).map(drop)
            }
        };
    }
}

/// Returns the number of commands: more by UCMA_COMMANDS, which is not a setting of a device.
fn how_many() -> u64 {
    std::env::var("UCMA_COMMANDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

/// Sequences of well-formed commands on several files that connect to each other, in any order: nothing panics or
/// hangs, a destroyed id no longer exists, and when the files are closed no port and no id is left.
#[test]
fn random_connections_leave_nothing() {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    // Below the ports that are chosen for others, and those of this process: another one may run the same test now.
    let first = 20_000 + (std::process::id() % 1500) as u16 * 8;
    let ports = first..first + 6;
    let mut parties: Vec<Party> = (0..3).map(|_| Party::new()).collect();
    for n in 0..how_many() {
        let who = (random() % 3) as usize;
        let other = (who + 1) % 3;
        if random() % 2 == 0 {
            parties[who].hear(&mut random);
        } else {
            let other = (parties[other].file.0, parties[other].id(&mut random));
            parties[who].act(other, ports.clone(), &mut random);
        }
        if n % 5000 == 4999 {
            parties[who] = Party { established: parties[who].established, ..Party::new() };
        }
    }
    assert!(parties.iter().any(|party| party.established > 0), "no connection came about");
    drop(parties);
    let file = quiet();
    for port in ports {
        for space in [TCP, UDP] {
            let id = file.create(1, space);
            assert_eq!(file.bind(id, &format!("0.0.0.0:{port}")), Ok(()), "port {port} is still claimed");
            assert_eq!(file.call::<u32>(command::DESTROY_ID, id, 0), Ok(0));
        }
    }
}
