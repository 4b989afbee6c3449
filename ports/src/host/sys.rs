//! System calls that the standard library lacks: abstract unix sockets that pass descriptors and identify the peer's
//! user, sealed memory files, epoll.
//!
//! Every descriptor created here is close-on-exec and, if applicable, non-blocking.

use std::ffi::CStr;
use std::io;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use irnic_transports::Segment;

use crate::control::control_messages;
use crate::region::{self, PAGE, SEALS};
use crate::sync;

/// Maximum number of connections that wait to be accepted. The kernel may allow fewer (net.core.somaxconn).
const BACKLOG: libc::c_int = 1024;

/// Longest abstract name in bytes: what `sun_path` holds after its leading NUL.
pub(super) const MAX_NAME: usize = 107;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor with no other owner.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the effective user of this process.
fn user() -> u32 {
    // SAFETY: no memory is passed, and it cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns whether `other` is the user of this process. In a user namespace the kernel shows all unmapped users as one,
/// 65534 by default (user_namespaces(7)), which therefore does not count as this user.
pub(crate) fn is_own_user(other: u32) -> bool {
    let stand_in = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let stand_in = stand_in.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
    let all_users_mapped = || std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_every_user(&map));
    other == user() && (other != stand_in || all_users_mapped())
}

/// Returns whether a user namespace with this map maps every user. Lines: first id inside, first outside, count.
fn maps_every_user(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

/// Returns random bits for values that must differ from process to process and need no secrecy.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: eight writable bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Returns `name` as an abstract address (unix(7)): no file, freed with its last socket, one per network namespace.
fn abstract_address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    assert!(name.len() <= MAX_NAME, "an abstract name of {} bytes", name.len());
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    (address, (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t)
}

/// Claims an abstract name and listens on it. Fails with `AddrInUse` if it is bound.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    let (address, len) = abstract_address(name);
    // SAFETY: a valid address of the length given.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// Connects to the process that listens on an abstract name, without blocking. Fails with `ConnectionRefused` if there
/// is none, with `WouldBlock` if its backlog is full.
pub(crate) fn connect(name: &str) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    let (address, len) = abstract_address(name);
    // SAFETY: a valid address of the length given.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket)
}

/// Listens at a path that does not exist yet, for this user only; or on an abstract name, written `@` and the name,
/// which ends with this process.
pub(crate) fn listen_at(place: &std::path::Path) -> io::Result<OwnedFd> {
    if let Some(name) = abstract_name(place) {
        return listen(name);
    }
    let socket = unix_socket()?;
    let address = socket2::SockAddr::unix(place)?;
    // SAFETY: a valid address of the length given.
    check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len()) })?;
    std::fs::set_permissions(place, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// Returns the abstract name in a text: what follows an `@`, as in the output of ss(8).
pub(crate) fn abstract_name(place: &std::path::Path) -> Option<&str> {
    place.to_str()?.strip_prefix('@').filter(|name| name.len() <= MAX_NAME)
}

/// Connects to the process that listens at a place of [`listen_at`]. Waits only while its backlog is full.
pub(crate) fn connect_to(place: &std::path::Path) -> io::Result<OwnedFd> {
    let mut tries = 1_000;
    loop {
        match try_connect(place) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && tries > 0 => {
                tries -= 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            connected => return connected,
        }
    }
}

fn try_connect(place: &std::path::Path) -> io::Result<OwnedFd> {
    if let Some(name) = abstract_name(place) {
        return connect(name);
    }
    let socket = unix_socket()?;
    let address = socket2::SockAddr::unix(place)?;
    // SAFETY: a valid address of the length given.
    check(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len()) })?;
    Ok(socket)
}

/// Accepts the next waiting connection; `None` if there is none.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    loop {
        // SAFETY: no address is requested.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        return match owned(fd) {
            Ok(fd) => Ok(Some(fd)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => continue,
            Err(e) => Err(e),
        };
    }
}

/// Returns the user of the peer process when it connected or listened (SO_PEERCRED).
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

/// Returns whether the process that connected or listened at the other end is still alive. A forked child may keep the
/// connection open after its parent has ended. True if unknown, as in another pid namespace.
pub(crate) fn peer_lives(socket: BorrowedFd<'_>) -> bool {
    let Some(pid) = peer_process(socket) else { return true };
    match watch(pid) {
        Ok(process) => !has_ended(&process),
        Err(e) => e.raw_os_error() != Some(libc::ESRCH),
    }
}

/// Opens a descriptor of a process (pidfd_open(2)), which stays that of this process when another one gets its id.
pub(crate) fn watch(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process as libc::pid_t, 0) } as libc::c_int)
}

/// Returns whether a process has ended, by its descriptor.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd; returns at once. It fails if a signal of this process is pending (EINTR).
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Maximum number of ranges on each side of [`read_process`].
pub(super) const MAX_PIECES: usize = 32;

/// Copies memory of another process, which `from` lists by its addresses, into ranges of `to`, one after the other
/// (process_vm_readv(2)). Returns the number of bytes copied, which is less if some cannot be read.
///
/// # Panics
/// With more than [`MAX_PIECES`] on a side, or a range outside `to`.
pub(super) fn read_process(
    process: u32,
    from: &[Segment],
    to: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<usize> {
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut local, mut remote) = ([empty; MAX_PIECES], [empty; MAX_PIECES]);
    let (local, remote) = (&mut local[..ranges.len()], &mut remote[..from.len()]);
    for (vector, range) in local.iter_mut().zip(ranges) {
        let part = &mut to[range.clone()];
        *vector = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
    }
    for (vector, segment) in remote.iter_mut().zip(from) {
        let address = std::ptr::without_provenance_mut(segment.addr as usize);
        *vector = libc::iovec { iov_base: address, iov_len: segment.len as usize };
    }
    let (local_count, remote_count) = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
    // SAFETY: the local vectors describe parts of `to`, which is borrowed; the kernel checks the remote ones.
    let read = unsafe {
        libc::process_vm_readv(process as libc::pid_t, local.as_ptr(), local_count, remote.as_ptr(), remote_count, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Kills the process that connected or listened at the other end (SIGKILL), through a pidfd, so that it cannot be
/// another one that has reused its id. Returns its id; `None` if it is this process or unknown here.
pub(crate) fn kill_peer(socket: BorrowedFd<'_>) -> Option<u32> {
    let pid = peer_process(socket).filter(|pid| *pid != std::process::id())?;
    let process = match watch(pid) {
        Ok(process) => process,
        Err(e) => return (e.raw_os_error() == Some(libc::ESRCH)).then_some(pid),
    };
    let (signal, none) = (libc::SIGKILL, std::ptr::null::<libc::siginfo_t>());
    // SAFETY: a descriptor of a process; no siginfo is passed.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, none, 0) };
    (sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)).then_some(pid)
}

/// Returns a descriptor with which threads wake each other (eventfd(2)).
pub(crate) fn notifier() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Makes a [`notifier`] readable.
pub(crate) fn notify(notifier: BorrowedFd<'_>) -> io::Result<()> {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes.
    let written = unsafe { libc::write(notifier.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a [`notifier`] unreadable.
pub(crate) fn hush(notifier: BorrowedFd<'_>) {
    let mut count = [0; 8];
    // SAFETY: eight writable bytes. There is nothing to read if another thread did.
    unsafe { libc::read(notifier.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Returns the id of the process that connected or listened at the other end; `None` if it has none in this pid
/// namespace.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> Option<u32> {
    peer(socket).ok().and_then(|peer| u32::try_from(peer.pid).ok()).filter(|pid| *pid != 0)
}

fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: value and length are valid, and the length is that of the value.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    })?;
    Ok(peer)
}

/// Returns the index of the interface that has an IPv6 address, 0 if none has.
pub(super) fn interface_of(address: Ipv6Addr) -> u32 {
    let mut list = std::ptr::null_mut();
    // SAFETY: a place for the list's head.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return 0;
    }
    let mut found = 0;
    let mut at = list;
    // SAFETY: the list is the kernel's answer, valid until it is freed; each address is of the type that its family
    // names, and the name is a C string.
    unsafe {
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            if entry.ifa_addr.is_null() || i32::from((*entry.ifa_addr).sa_family) != libc::AF_INET6 {
                continue;
            }
            let there = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
            if there.sin6_addr.s6_addr == address.octets() {
                found = libc::if_nametoindex(entry.ifa_name);
                break;
            }
        }
        libc::freeifaddrs(list);
    }
    found
}

/// Space for the control message that passes a descriptor, aligned for its header. A second descriptor fits, so that
/// passing more than one is detected.
type Control = [u64; 3];

const _: () = {
    let needed = unsafe {
        // SAFETY: pure arithmetic.
        libc::CMSG_SPACE((2 * size_of::<RawFd>()) as libc::c_uint)
    };
    assert!(needed as usize <= size_of::<Control>());
};

/// Sends one non-empty message, with up to two descriptors. Never blocks, whatever flags the other end has set, and
/// raises no signal.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= 2 && !bytes.is_empty());
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 3];
    // SAFETY: all-zero pointers and lengths are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let len = size_of_val(fds) as libc::c_uint;
        // SAFETY: the control buffer has room for two descriptors (asserted above) and is aligned for the header.
        unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(len) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as _;
            for (i, fd) in fds.iter().enumerate() {
                libc::CMSG_DATA(header).cast::<RawFd>().add(i).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    sync::message();
    // SAFETY: the message points to a vector, bytes and a control buffer that outlive the call.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A received message: the bytes filled in the buffer, and the descriptor passed, if there was exactly one.
pub(crate) struct Message {
    pub(crate) len: usize,
    pub(crate) fd: Option<OwnedFd>,
}

/// Receives the next message. An empty one means that the peer has ended. Fails with `WouldBlock` if there is none now.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Message> {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 3];
    // SAFETY: all-zero pointers and lengths are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to a vector, bytes and a control buffer that outlive the call and have the sizes
    // given.
    let len =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    sync::message();
    let (mut passed, mut count) = (None, 0);
    let messages = control_messages(&control, message.msg_controllen as _);
    for rights in messages.filter(|m| (m.level, m.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)) {
        for fd in rights.fields().map(RawFd::from_ne_bytes) {
            // SAFETY: a descriptor that the kernel created for this message, with no other owner. The previous one is
            // closed here.
            passed = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            count += 1;
        }
    }
    Ok(Message { len: len as usize, fd: passed.filter(|_| count == 1) })
}

/// Creates an anonymous file of `len` zeroed bytes whose size is sealed (memfd_create(2)).
pub(crate) fn memory(name: &CStr, len: usize) -> io::Result<OwnedFd> {
    let fd = unsealed_memory(name, len)?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(fd)
}

/// Creates an anonymous file of `len` zeroed bytes, to be sealed by the caller.
pub(crate) fn unsealed_memory(name: &CStr, len: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    let size = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) })?;
    Ok(fd)
}

/// Returns the owner and the size of a file.
pub(crate) fn owner_and_size(file: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a writable stat.
    check(unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) })?;
    Ok((stat.st_uid, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// Maximum number of events that [`Epoll::ready`] returns at once.
pub(crate) const EVENTS: usize = 32;

/// An epoll set.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Epoll)
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, events: libc::c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: a valid event.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) };
        check(result).map(drop)
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, events: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    pub(crate) fn modify(&self, fd: BorrowedFd<'_>, events: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    /// Removes a descriptor from the set. Closing it is not enough if a forked child has a copy.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // It may have been removed before.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Writes the tokens of what is ready now, without waiting. Returns their number.
    pub(crate) fn ready(&self, tokens: &mut [u64; EVENTS]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: the array has space for `EVENTS` events.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        for (token, event) in tokens.iter_mut().zip(&events[..count]) {
            *token = event.u64;
        }
        count
    }

    /// Sleeps until something is ready, `timeout` has passed, or a signal arrives. Consumes no event.
    pub(crate) fn sleep(&self, timeout: Duration) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let seconds = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
        let timeout = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: one valid pollfd, a valid timespec, no signal mask.
        match check(unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) }) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the size of a file that a peer passed, if this user owns it and its size is sealed.
pub(crate) fn sealed_len(file: BorrowedFd<'_>) -> Option<usize> {
    let seals = region::seals(file);
    let (owner, len) = owner_and_size(file).ok()?;
    let len = usize::try_from(len).ok()?;
    (is_own_user(owner) && seals >= 0 && seals & SEALS == SEALS && len >= PAGE && len.is_multiple_of(PAGE))
        .then_some(len)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_may_leave_users_without_a_number() {
        assert!(maps_every_user("         0          0 4294967295\n"));
        assert!(maps_every_user("0 0 65534\n65534 65534 1\n65535 65535 4294901760\n"));
        for map in ["", "0 1000 1\n", "0 1000 1\n65534 100000 1\n", "0 100000 65536\n"] {
            assert!(!maps_every_user(map), "{map:?}");
        }
    }

    #[test]
    fn this_process_is_its_own_users() {
        assert!(is_own_user(user()) || user() == 65_534);
        assert!(!is_own_user(user() + 1));
    }
}
