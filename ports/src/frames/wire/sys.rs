//! System calls that several carriers share.

use std::io;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::PortCounters;
use crate::control::{ControlMessage, control_messages};
use crate::udp::sys::{EMPTY_MESSAGE, set_option};

/// Maximum number of packets of one system call.
pub(super) const BATCH: usize = 32;

/// Bytes of each receive buffer, above [`MAX_PACKET`](super::super::queue::MAX_PACKET). Longer packets are not RoCE
/// frames of this NIC.
const BUFFER: usize = 4608;
const _: () = assert!(BUFFER > super::super::queue::MAX_PACKET);

/// Words that hold the control messages of a received packet: SO_RXQ_OVFL and PACKET_AUXDATA.
const CONTROL_WORDS: usize = 8;

/// From <linux/if_packet.h>.
const PACKET_AUXDATA: libc::c_int = 8;

/// A packet in a buffer.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) len: usize,
    /// Control information of the VLAN tag that the kernel stripped.
    tag: Option<u16>,
}

/// Receive buffers, and the packets in them that were not taken yet.
pub(in super::super) struct RxBuffers {
    buffers: Box<[u8]>,
    held: [Held; BATCH],
    next: usize,
    filled: usize,
    /// The kernel's count of packets dropped by the socket's buffer, as last read.
    lost: u32,
}

impl RxBuffers {
    /// Maximum number of packets at once.
    pub(in super::super) const BATCH: usize = BATCH;

    pub(in super::super) fn new() -> RxBuffers {
        let buffers = vec![0; BATCH * BUFFER].into();
        RxBuffers { buffers, held: [Held::default(); BATCH], next: 0, filled: 0, lost: 0 }
    }

    /// Returns whether there are packets that were not taken.
    pub(in super::super) fn has_packets(&self) -> bool {
        self.next < self.filled
    }

    /// Takes the next packet: its bytes, and the control information of a stripped VLAN tag.
    pub(in super::super) fn take(&mut self) -> Option<(&[u8], Option<u16>)> {
        let at = self.next;
        let held = self.held[..self.filled].get(at)?;
        self.next += 1;
        Some((&self.buffers[at * BUFFER..][..held.len], held.tag))
    }

    /// Fills buffers with `read`, which returns the length of a packet, until it returns `None`.
    pub(super) fn fill_by(&mut self, most: usize, mut read: impl FnMut(&mut [u8]) -> Option<usize>) -> usize {
        self.next = 0;
        self.filled = 0;
        for (buffer, held) in self.buffers.chunks_exact_mut(BUFFER).zip(&mut self.held).take(most) {
            let Some(len) = read(buffer) else { break };
            *held = Held { len: len.min(BUFFER), tag: None };
            self.filled += 1;
        }
        self.filled
    }

    /// Receives at most `most` packets from a socket with one system call. All earlier ones must have been taken.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        most: usize,
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        // Clearing the headers of many messages costs more than receiving one.
        if most == 1 { self.receive_into::<1>(socket, counters) } else { self.receive_into::<BATCH>(socket, counters) }
    }

    fn receive_into<const N: usize>(
        &mut self,
        socket: BorrowedFd<'_>,
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        self.next = 0;
        self.filled = 0;
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: BUFFER }; N];
        let mut controls = [[0u64; CONTROL_WORDS]; N];
        let mut messages = [EMPTY_MESSAGE; N];
        let buffers = self.buffers.chunks_exact_mut(BUFFER);
        for (((message, vector), buffer), control) in
            messages.iter_mut().zip(&mut vectors).zip(buffers).zip(&mut controls)
        {
            vector.iov_base = buffer.as_mut_ptr().cast();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of_val(control) as _;
        }
        counters.rx_syscalls += 1;
        let (flags, no_timeout) = (libc::MSG_DONTWAIT as _, std::ptr::null_mut());
        // SAFETY: every message points to a buffer, a vector and a control buffer of its own, all of which outlive the
        // call and have the sizes given.
        let count =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), N as libc::c_uint, flags, no_timeout) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // Each of these is reported once when the peer has closed.
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNRESET | libc::ECONNREFUSED) => Ok(0),
                _ => Err(error),
            };
        };
        for ((message, control), held) in messages[..count].iter().zip(&controls).zip(&mut self.held) {
            let (tag, lost) = read_control(control, message.msg_hdr.msg_controllen as _);
            *held = Held { len: message.msg_len as usize, tag };
            if let Some(lost) = lost {
                counters.rx_dropped += u64::from(lost.wrapping_sub(self.lost));
                self.lost = lost;
            }
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                counters.rx_dropped += 1;
                held.len = 0;
            }
        }
        counters.rx_batches += count as u64;
        self.filled = count;
        Ok(count)
    }
}

/// Parses the control messages of a packet, of which the kernel filled `len` bytes: the stripped tag, and the number of
/// packets that the socket has dropped.
fn read_control(words: &[u64; CONTROL_WORDS], len: usize) -> (Option<u16>, Option<u32>) {
    let (mut tag, mut lost) = (None, None);
    for message in control_messages(words, len) {
        match (message.level, message.kind) {
            (libc::SOL_PACKET, PACKET_AUXDATA) => tag = vlan_control(&message),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => lost = message.lost(),
            _ => {}
        }
    }
    (tag, lost)
}

/// Reads the control information of the stripped tag from a `struct tpacket_auxdata`.
fn vlan_control(message: &ControlMessage<'_>) -> Option<u16> {
    let status = u32::from_ne_bytes(message.field(offset_of!(libc::tpacket_auxdata, tp_status))?);
    let control = u16::from_ne_bytes(message.field(offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?);
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(control)
}

/// Enables the report of stripped tags on a packet socket.
pub(super) fn enable_tag_reports(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, PACKET_AUXDATA, 1 as libc::c_int)
}

/// Requests socket buffers of `bytes` in each direction. The kernel may grant less (net.core.rmem_max, wmem_max).
pub(super) fn set_buffers(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_option(socket, libc::SOL_SOCKET, force, bytes).is_err() {
            set_option(socket, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

/// Sends packets by one system call. Returns how many the socket accepted, or the error number of the first.
pub(super) fn send<'a>(
    socket: BorrowedFd<'_>,
    packets: impl Iterator<Item = &'a [u8]>,
    len: usize,
    counters: &mut PortCounters,
) -> Result<usize, i32> {
    match len {
        1 => send_some::<1>(socket, packets, counters),
        2..=4 => send_some::<4>(socket, packets, counters),
        _ => send_some::<BATCH>(socket, packets, counters),
    }
}

fn send_some<'a, const N: usize>(
    socket: BorrowedFd<'_>,
    packets: impl Iterator<Item = &'a [u8]>,
    counters: &mut PortCounters,
) -> Result<usize, i32> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; N];
    let mut messages = [EMPTY_MESSAGE; N];
    let mut count: libc::c_uint = 0;
    for ((message, vector), packet) in messages.iter_mut().zip(&mut vectors).zip(packets) {
        *vector = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    loop {
        counters.tx_syscalls += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `count` messages point to a vector of their own and to bytes of the queue, all of which outlive the
        // call; the kernel only reads the bytes.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, flags as _) };
        if let Ok(sent) = usize::try_from(sent) {
            counters.tx_batches += sent as u64;
            return Ok(sent);
        }
        match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
            libc::EINTR => {}
            error => return Err(error),
        }
    }
}

/// Returns an `ifreq` of an interface.
pub(super) fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes an ioctl with an `ifreq`.
pub(super) fn ioctl(fd: BorrowedFd<'_>, request: libc::c_ulong, interface: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the ioctls of this module read and write an ifreq and nothing else.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(interface)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the MTU of an interface in bytes.
pub(super) fn interface_mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    let mut request = interface_request(name);
    ioctl(socket, libc::SIOCGIFMTU as libc::c_ulong, &mut request)?;
    // SAFETY: the call above wrote this member.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Returns the addresses of the kernel's interfaces, except loopback's.
pub(in super::super) fn kernel_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is written.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an element of the list, which is alive until `freeifaddrs`. Its address is NULL or as long as its
        // family requires.
        unsafe {
            let address = (*next).ifa_addr;
            next = (*next).ifa_next;
            match address.as_ref().map(|a| i32::from(a.sa_family)) {
                Some(libc::AF_INET) => {
                    let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                    addresses.push(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()));
                }
                Some(libc::AF_INET6) => {
                    let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                    addresses.push(IpAddr::from(address.sin6_addr.s6_addr));
                }
                _ => {}
            }
        }
    }
    // SAFETY: the list that `getifaddrs` returned.
    unsafe { libc::freeifaddrs(list) };
    addresses.retain(|a| !a.is_loopback());
    Ok(addresses)
}

/// Opens a socket, close-on-exec and non-blocking.
pub(super) fn socket(domain: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
