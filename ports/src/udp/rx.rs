//! The receiving half of a UDP port: several datagrams per system call, several frames per datagram (UDP_GRO).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use irnic_transports::{Path, Time};

use super::credit::Grants;
use super::sys::{CONTROL_WORDS, EMPTY_MESSAGE, RawAddr, Received, read_control};
use crate::offset::Offset;
use crate::{PortCounters, RxFrame, RxIcrc};

/// Bytes of each buffer. The part of a coalesced datagram that does not fit is lost.
const BUFFER: usize = 64 << 10;

/// Maximum number of datagrams of one recvmmsg.
const DATAGRAMS: usize = 4;

/// A datagram whose frames are being delivered.
#[derive(Copy, Clone)]
struct Datagram {
    path: Path,
    /// Length in bytes, and how much of it was delivered.
    len: usize,
    done: usize,
    segment: usize,
    /// When the kernel took it from the device, ns since 1970.
    stamp: Option<u64>,
}

/// Returns the time of the clock with which the kernel stamps packets, in ns since 1970.
fn kernel_clock() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// Receive buffers, and the datagrams in them that were not delivered yet.
pub(super) struct Receiver {
    buffers: Box<[u8]>,
    controls: Box<[[u64; CONTROL_WORDS]; DATAGRAMS]>,
    names: Box<[RawAddr; DATAGRAMS]>,
    waiting: [Option<Datagram>; DATAGRAMS],
    next: usize,
    filled: usize,
    /// More than one datagram arrives per call: request several.
    busy: bool,
    /// The kernel's count of lost datagrams, as last read.
    lost: u32,
    offset: Offset,
}

impl Receiver {
    pub(super) fn new() -> Receiver {
        Receiver {
            buffers: vec![1u8; BUFFER * DATAGRAMS].into(),
            controls: Box::new([[0; CONTROL_WORDS]; DATAGRAMS]),
            names: Box::new([RawAddr::EMPTY; DATAGRAMS]),
            waiting: [None; DATAGRAMS],
            next: 0,
            filled: 0,
            busy: false,
            lost: 0,
            offset: Offset::NEW,
        }
    }

    /// Returns whether there are received frames that were not delivered yet.
    pub(super) fn has_frames(&self) -> bool {
        self.next < self.filled
    }

    /// Passes at most `budget` frames to `each`. `local` is the destination of datagrams without one.
    #[expect(clippy::too_many_arguments, reason = "the parts of a port, borrowed one by one")]
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        local: IpAddr,
        now: Time,
        budget: usize,
        counters: &mut PortCounters,
        grants: &mut Grants,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut frames = 0;
        // The kernel is called again only after it filled every buffer: otherwise it has nothing more.
        let mut more = true;
        loop {
            frames += self.hand_out(now, budget - frames, grants, each);
            if frames == budget || !more {
                break;
            }
            if self.busy {
                let datagrams = self.fill::<DATAGRAMS>(socket, local, now, counters)?;
                more = datagrams == DATAGRAMS;
                self.busy = datagrams > 1;
            } else {
                // Requesting a second datagram would delay a lone one; two successive calls that return one begin a
                // burst.
                let before = self.filled;
                more = false;
                self.busy = self.fill::<1>(socket, local, now, counters)? == 1 && before == 1;
            }
        }
        counters.rx_frames += frames as u64;
        Ok(frames)
    }

    fn hand_out(&mut self, now: Time, budget: usize, grants: &mut Grants, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut frames = 0;
        while self.next < self.filled && frames < budget {
            let buffer = &self.buffers[self.next * BUFFER..][..BUFFER];
            if let Some(datagram) = &mut self.waiting[self.next] {
                let arrived = datagram.stamp.map_or(now, |stamp| self.offset.convert(now, stamp));
                while datagram.done < datagram.len && frames < budget {
                    let size = datagram.segment.min(datagram.len - datagram.done);
                    let bytes = &buffer[datagram.done..datagram.done + size];
                    let icrc = if datagram.path.src.is_ipv4() { RxIcrc::AnyIdentification } else { RxIcrc::Exact };
                    each(RxFrame { path: datagram.path, bytes, arrived, icrc });
                    datagram.done += size;
                    frames += 1;
                }
                if datagram.done < datagram.len {
                    break;
                }
                let source = SocketAddr::new(datagram.path.src, datagram.path.udp_src);
                grants.taken(now, source, datagram.len, datagram.segment);
            }
            self.next += 1;
        }
        frames
    }

    /// Receives at most `N` datagrams with one system call. All earlier ones must have been delivered.
    fn fill<const N: usize>(
        &mut self,
        socket: BorrowedFd<'_>,
        local: IpAddr,
        now: Time,
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        self.next = 0;
        self.filled = 0;
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: BUFFER }; N];
        let mut messages = [EMPTY_MESSAGE; N];
        let buffers = self.buffers.chunks_exact_mut(BUFFER);
        let parts = messages.iter_mut().zip(&mut vectors).zip(buffers).zip(&mut *self.names).zip(&mut *self.controls);
        for ((((message, vector), buffer), name), control) in parts {
            vector.iov_base = buffer.as_mut_ptr().cast();
            message.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = size_of::<RawAddr>() as libc::socklen_t;
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of_val(control) as _;
        }
        counters.rx_syscalls += 1;
        // SAFETY: every message points to a name, a buffer, a vector and a control buffer of its own, all of which
        // outlive the call and have the sizes given.
        let count = unsafe {
            if N == 1 {
                // Slightly cheaper than recvmmsg.
                let len = libc::recvmsg(socket.as_raw_fd(), &raw mut messages[0].msg_hdr, libc::MSG_DONTWAIT);
                messages[0].msg_len = len.max(0) as libc::c_uint;
                if len < 0 { -1 } else { 1 }
            } else {
                let (flags, no_timeout) = (libc::MSG_DONTWAIT as _, std::ptr::null_mut());
                libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), N as libc::c_uint, flags, no_timeout)
            }
        };
        if count < 0 {
            let e = io::Error::last_os_error();
            return match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(0),
                Some(libc::ECONNREFUSED) => {
                    counters.refused += 1;
                    Ok(0)
                }
                _ => Err(e),
            };
        }
        let count = count as usize;
        for (slot, message) in messages[..count].iter().enumerate() {
            let len = message.msg_len as usize;
            let control = read_control(&self.controls[slot], message.msg_hdr.msg_controllen as _);
            if slot == 0 && control.stamp.is_some() {
                self.offset.observe(now, kernel_clock());
            }
            self.waiting[slot] = self.datagram(slot, len, &control, local);
            if let Some(lost) = control.lost {
                // The kernel counts datagrams. Each lost one is assumed to have had as many frames as the one after it.
                let frames = control.segment.map_or(1, |segment| len.div_ceil(segment.max(1)).max(1));
                counters.rx_dropped += u64::from(lost.wrapping_sub(self.lost)) * frames as u64;
                self.lost = lost;
            }
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                counters.rx_dropped += 1;
                self.waiting[slot] = None;
            }
        }
        counters.rx_batches += count as u64;
        self.filled = count;
        Ok(count)
    }

    fn datagram(&self, slot: usize, len: usize, control: &Received, local: IpAddr) -> Option<Datagram> {
        let from = self.names[slot].get()?;
        let path = Path {
            src: from.ip(),
            dst: control.dst.unwrap_or(local),
            udp_src: from.port(),
            traffic_class: control.traffic_class,
            hop_limit: 0,
        };
        Some(Datagram { path, len, done: 0, segment: control.segment.unwrap_or(len).max(1), stamp: control.stamp })
    }
}
