//! The transmitting half of a UDP port: many frames per datagram (UDP_SEGMENT), many datagrams per system call.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use irnic_transports::Time;

use super::UdpError;
use super::batch::{Batch, Pieces, Target, TxQueue};
use super::credit::Credits;
use super::sys::{CONTROL_WORDS, ControlWriter, EMPTY_MESSAGE, RawAddr, set_option};
use crate::PortCounters;

/// Maximum number of messages of one sendmmsg. Their headers are built on the stack for each call.
const MESSAGES: usize = 32;

/// Properties common to all messages of a port.
#[derive(Copy, Clone, Debug)]
pub(super) struct Common {
    /// UDP port of every destination.
    pub(super) remote_port: u16,
    /// Scope of link-local IPv6 destinations: that of the socket's own address.
    pub(super) scope_id: u32,
    /// The socket is not bound to an address, so every message sets its source.
    pub(super) name_source: bool,
    /// Hop limit of messages that set none.
    pub(super) hop_limit: u8,
    /// Traffic class of messages that set none. Then the class set by the latest messages, and their number.
    pub(super) traffic_class: u8,
    pub(super) latest_class: u8,
    pub(super) repeated: u32,
}

/// Batches of one class after which it becomes the socket's default: setting it in each message costs 0.1 µs.
const REPEATED: u32 = 64;

impl Common {
    /// Makes the class of `batches` the socket's default after [`REPEATED`] batches with it.
    fn settle_class(&mut self, socket: BorrowedFd<'_>, batches: &[Batch]) {
        for class in batches.iter().map(|b| b.target.traffic_class) {
            if class == self.traffic_class {
                self.repeated = 0;
            } else if class == self.latest_class {
                self.repeated += 1;
            } else {
                (self.latest_class, self.repeated) = (class, 1);
            }
        }
        if self.repeated >= REPEATED {
            self.repeated = 0;
            let (level, name) = match batches[0].target.dst {
                IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            if set_option(socket, level, name, libc::c_int::from(self.latest_class)).is_ok() {
                self.traffic_class = self.latest_class;
            }
        }
    }

    pub(super) fn destination(&self, ip: IpAddr) -> SocketAddr {
        match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, self.remote_port),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, self.remote_port, 0, self.scope_id).into()
            }
            IpAddr::V6(_) => SocketAddr::new(ip, self.remote_port),
        }
    }
}

/// Outcome of one system call.
enum Sent {
    /// The kernel took this many messages.
    Messages(usize),
    /// The kernel has no room now.
    Full,
    /// The first message failed.
    Failed(i32),
}

/// Why sending stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nothing more was to be sent.
    Done,
    /// The kernel has no room now.
    Full,
    /// The receiver has no room ([`super::credit`]).
    NoCredit,
}

/// Sends the queue, or only the batches that no frame can join any more, until nothing is left or there is no room.
/// Returns why it stopped, and the first message that the kernel rejected permanently, with its error number.
#[expect(clippy::too_many_arguments, reason = "the parts of a port, borrowed one by one")]
pub(super) fn send_all(
    now: Time,
    queue: &mut TxQueue,
    pieces: &mut Pieces,
    credits: &mut Credits,
    only_closed: bool,
    socket: BorrowedFd<'_>,
    common: &mut Common,
    counters: &mut PortCounters,
) -> (Stop, Option<(Target, usize, i32)>) {
    let mut failure = None;
    if !only_closed {
        queue.close();
    }
    common.settle_class(socket, queue.pending());
    // A batch whose segmentation failed: if its frames fail individually too, segmentation was not the cause.
    let mut suspect = None;
    while let (Some(first), closed @ 1..) = (queue.pending().first().copied(), queue.closed()) {
        let closed = queue.admit(closed.min(MESSAGES), |b| credits.take(now, b.target.dst, b.len, b.segment));
        if closed == 0 {
            // Copied now: before there is room, the application may release what it sent.
            queue.settle();
            return (Stop::NoCredit, failure);
        }
        let split = queue.max_frames() == 1 && first.frames > 1;
        let sent = if split {
            queue.settle();
            queue.list_frames(pieces);
            let frames = (0..first.frames).map(|_| (&first, 1, 0));
            send::<MESSAGES>(socket, common, pieces, frames, counters)
        } else {
            let single = queue.max_frames() == 1;
            queue.list(closed, pieces);
            let batches = queue.pending()[..closed].iter().take_while(|b| !single || b.frames == 1);
            let messages = batches.map(|b| (b, b.pieces(), if b.frames > 1 { b.segment } else { 0 }));
            // Clearing the headers of many messages costs more than the call saves if there is only one.
            match closed {
                1 => send::<1>(socket, common, pieces, messages, counters),
                2..=4 => send::<4>(socket, common, pieces, messages, counters),
                _ => send::<MESSAGES>(socket, common, pieces, messages, counters),
            }
        };
        match sent {
            Sent::Messages(count) if split => {
                counters.tx_frames += count as u64;
                counters.tx_batches += count as u64;
                queue.advance_within(count);
            }
            Sent::Messages(count) => {
                counters.tx_frames += queue.pending()[..count].iter().map(|b| b.frames as u64).sum::<u64>();
                counters.tx_batches += count as u64;
                queue.advance(count);
            }
            Sent::Full => {
                // As above.
                queue.settle();
                return (Stop::Full, failure);
            }
            // Devices that cannot checksum reject segmentation with EIO; kernels and limits that we do not know, with
            // EINVAL.
            Sent::Failed(libc::EINVAL | libc::EIO) if first.frames > 1 && !split => {
                suspect = Some(queue.max_frames());
                queue.set_max_frames(1);
            }
            Sent::Failed(error) => {
                if let Some(frames) = suspect.take() {
                    queue.set_max_frames(frames);
                }
                counters.tx_dropped += first.frames as u64;
                failure.get_or_insert((first.target, first.segment, error));
                queue.advance(1);
            }
        }
    }
    (Stop::Done, failure)
}

/// Sends at most `N` messages by one sendmmsg. Each has the batch that it belongs to, its number of consecutive
/// `pieces`, and a segment size or 0.
fn send<'a, const N: usize>(
    socket: BorrowedFd<'_>,
    common: &Common,
    pieces: &Pieces,
    what: impl Iterator<Item = (&'a Batch, usize, usize)>,
    counters: &mut PortCounters,
) -> Sent {
    let mut names = [RawAddr::EMPTY; N];
    let mut pieces = pieces.as_slice();
    let mut controls = [[0u64; CONTROL_WORDS]; N];
    let mut messages = [EMPTY_MESSAGE; N];
    let mut count: libc::c_uint = 0;
    let parts = messages.iter_mut().zip(&mut names).zip(&mut controls);
    for ((batch, number, segment), ((message, name), control)) in what.zip(parts) {
        let message = &mut message.msg_hdr;
        (*name, message.msg_namelen) = RawAddr::new(&common.destination(batch.target.dst));
        message.msg_name = std::ptr::from_mut(name).cast();
        let (own, others) = pieces.split_at(number);
        pieces = others;
        message.msg_iov = own.as_ptr().cast_mut();
        message.msg_iovlen = own.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        let mut writer = ControlWriter::new(control);
        write_control(&mut writer, &batch.target, segment, common);
        message.msg_controllen = writer.len() as _;
        if writer.len() == 0 {
            message.msg_control = std::ptr::null_mut();
        }
        count += 1;
    }
    debug_assert!(count > 0);
    loop {
        counters.tx_syscalls += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `count` messages point to a name, pieces and a control buffer of their own, all of which outlive the
        // call; the kernel only reads the bytes of the pieces, and returns EFAULT if the application has unmapped its
        // own.
        let sent = unsafe {
            match count {
                // Slightly cheaper than sendmmsg.
                1 => {
                    if libc::sendmsg(socket.as_raw_fd(), &raw const messages[0].msg_hdr, flags) < 0 {
                        -1
                    } else {
                        1
                    }
                }
                _ => libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, flags as _) as isize,
            }
        };
        if sent >= 0 {
            return Sent::Messages(sent as usize);
        }
        match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
            libc::EINTR => {}
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => return Sent::Full,
            // The error belongs to an earlier datagram: this one has not been tried.
            libc::ECONNREFUSED => counters.refused += 1,
            error => return Sent::Failed(error),
        }
    }
}

fn write_control(writer: &mut ControlWriter<'_>, target: &Target, segment: usize, common: &Common) {
    if segment > 0 {
        writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment as u16);
    }
    let (level, class, limit) = match target.dst {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    if target.traffic_class != common.traffic_class {
        writer.put(level, class, libc::c_int::from(target.traffic_class));
    }
    if target.hop_limit != 0 && target.hop_limit != common.hop_limit {
        writer.put(level, limit, libc::c_int::from(target.hop_limit));
    }
    if common.name_source && !target.src.is_unspecified() {
        writer.put_source(&target.src);
    }
}

/// Returns the user's error for a failed message; `None` for faults of the network, like an unplugged cable, and for
/// memory that the application has unmapped: the frame is lost, and the retries of the queue pair will show it.
pub(super) fn explain(
    target: &Target,
    frame: usize,
    error: i32,
    mtu: impl FnOnce() -> Option<usize>,
) -> Option<UdpError> {
    match error {
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EPERM | libc::EFAULT => None,
        libc::EMSGSIZE => Some(UdpError::Mtu { frame, dst: target.dst, mtu: mtu().unwrap_or(0) }),
        _ => Some(UdpError::Send { dst: target.dst, frame, error: io::Error::from_raw_os_error(error).to_string() }),
    }
}
