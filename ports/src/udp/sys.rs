//! The socket calls that the standard library lacks: addresses, control messages, sendmmsg and recvmmsg.

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use irnic_transports::time::SEC;

use crate::control::{ControlMessage, control_messages};

/// Words for all control messages that this port sends or requests: four of at most 40 bytes, SO_RXQ_OVFL and
/// SO_TIMESTAMPNS.
pub(super) const CONTROL_WORDS: usize = 24;

/// A socket address in the kernel's format.
#[derive(Copy, Clone)]
#[repr(C)]
pub(super) union RawAddr {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddr {
    pub(super) const EMPTY: RawAddr = RawAddr {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Returns the address with its length for `msg_namelen`.
    pub(super) fn new(addr: &SocketAddr) -> (RawAddr, libc::socklen_t) {
        match addr {
            SocketAddr::V4(a) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: in_addr(a.ip()),
                    sin_zero: [0; 8],
                };
                (RawAddr { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(a) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (RawAddr { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// Returns the address written by the kernel; `None` for families other than IPv4 and IPv6.
    pub(super) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: every variant begins with the family, and all of the union is initialised (`EMPTY` or `new`), so the
        // variant selected by the family may be read.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                    Some(SocketAddrV6::new(ip, u16::from_be(self.v6.sin6_port), 0, self.v6.sin6_scope_id).into())
                }
                _ => None,
            }
        }
    }
}

fn in_addr(ip: &Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

/// Writes consecutive control messages.
pub(super) struct ControlWriter<'a> {
    words: &'a mut [u64; CONTROL_WORDS],
    used: usize,
}

impl<'a> ControlWriter<'a> {
    pub(super) fn new(words: &'a mut [u64; CONTROL_WORDS]) -> ControlWriter<'a> {
        ControlWriter { words, used: 0 }
    }

    /// Appends one message with the bytes of `value` as its data.
    pub(super) fn put<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let data = size_of::<T>() as libc::c_uint;
        // SAFETY: pure arithmetic.
        let (len, space) = unsafe { (libc::CMSG_LEN(data) as usize, libc::CMSG_SPACE(data) as usize) };
        assert!(self.used + space <= size_of_val(self.words), "no room for control message {level}/{kind}");
        // SAFETY: `space` bytes are free at `used`, which is a multiple of 8 as the buffer is aligned to; the data
        // follows the header at CMSG_DATA and needs no alignment for `write_unaligned`.
        unsafe {
            let header = self.words.as_mut_ptr().cast::<u8>().add(self.used).cast::<libc::cmsghdr>();
            header.write(libc::cmsghdr { cmsg_len: len as _, cmsg_level: level, cmsg_type: kind });
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }

    /// Appends the message that selects `ip` as source address.
    pub(super) fn put_source(&mut self, ip: &IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: in_addr(ip), ipi_addr: in_addr(ip) };
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(ip) => {
                let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 };
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }

    /// Returns the bytes written.
    pub(super) fn len(&self) -> usize {
        self.used
    }
}

/// The contents of the control messages of a received datagram.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Size of each coalesced datagram except the last; `None` for a single one.
    pub(super) segment: Option<usize>,
    pub(super) traffic_class: u8,
    pub(super) dst: Option<IpAddr>,
    /// Datagrams that this socket has dropped since it was opened, modulo 2^32.
    pub(super) lost: Option<u32>,
    /// When the kernel took it from the device, ns since 1970.
    pub(super) stamp: Option<u64>,
}

/// Parses the control messages of a datagram, of which the kernel filled `len` bytes.
pub(super) fn read_control(words: &[u64; CONTROL_WORDS], len: usize) -> Received {
    let mut seen = Received::default();
    for message in control_messages(words, len) {
        match (message.level, message.kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                seen.segment = message.int().and_then(|size| usize::try_from(size).ok()).filter(|s| *s > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => seen.traffic_class = message.field(0).map_or(0, u8::from_ne_bytes),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => seen.traffic_class = message.int().unwrap_or(0) as u8,
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let dst = message.field::<4>(offset_of!(libc::in_pktinfo, ipi_addr));
                seen.dst = dst.map(IpAddr::from);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let dst = message.field::<16>(offset_of!(libc::in6_pktinfo, ipi6_addr));
                seen.dst = dst.map(IpAddr::from);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => seen.lost = message.lost(),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => seen.stamp = stamp(&message),
            _ => {}
        }
    }
    seen
}

/// Parses a `struct timespec`, as ns since 1970.
fn stamp(message: &ControlMessage<'_>) -> Option<u64> {
    let seconds = libc::time_t::from_ne_bytes(message.field(offset_of!(libc::timespec, tv_sec))?);
    let nanos = libc::c_long::from_ne_bytes(message.field(offset_of!(libc::timespec, tv_nsec))?);
    Some((seconds as u64).saturating_mul(SEC).saturating_add(nanos as u64))
}

/// Sets an option of an integer type.
pub(crate) fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the value is valid for its size.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<T>() as libc::socklen_t)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of type `int`.
pub(crate) fn get_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: value and length are valid, and the length is that of the value.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// An empty message header.
pub(crate) const EMPTY_MESSAGE: libc::mmsghdr = libc::mmsghdr {
    // SAFETY: all-zero pointers and lengths are a valid msghdr: no name, no data, no control.
    msg_hdr: unsafe { std::mem::zeroed() },
    msg_len: 0,
};

/// Waits until `fd` has one of `events`, `timeout` has passed, or a signal arrives.
pub(super) fn poll(fd: BorrowedFd<'_>, events: libc::c_short, timeout: std::time::Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let seconds = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    let timeout = libc::timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
    // SAFETY: one valid pollfd, a valid timespec, no signal mask.
    if unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) } < 0 {
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    Ok(())
}
