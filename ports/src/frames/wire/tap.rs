//! A TAP device: the kernel is the other station (Documentation/networking/tuntap.rst).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::sys::{self, RxBuffers};
use crate::PortCounters;
use crate::frames::queue::TxQueue;
use crate::frames::retry::patiently;
use crate::frames::sent::Sent;

/// From <linux/if_tun.h>: packets without a prefix of four bytes.
const IFF_TAP: libc::c_short = 0x0002;
const IFF_NO_PI: libc::c_short = 0x1000;
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

/// An open TAP device.
pub(in super::super) struct Tap {
    file: File,
    mtu: usize,
}

impl Tap {
    pub(super) fn open(name: &str) -> io::Result<Tap> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = sys::interface_request(name);
        request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
        // No other process with a frame port has it: the holder may be a child of this one.
        let busy = |e: &io::Error| e.raw_os_error() == Some(libc::EBUSY);
        patiently(|| sys::ioctl(file.as_fd(), TUNSETIFF, &mut request), busy)?;
        let any = sys::socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        // A newly created device is down. A process without the right to change that was given one that is up.
        let _ = bring_up(any.as_fd(), name);
        let mtu = sys::interface_mtu(any.as_fd(), name)?;
        Ok(Tap { file, mtu })
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    pub(super) fn send(&mut self, queue: &mut TxQueue, counters: &mut PortCounters) -> Sent {
        let mut outcome = Sent::default();
        loop {
            let written = queue.pending().next().map(|packet| (packet.len(), self.file.write(packet)));
            let Some((len, written)) = written else { break };
            counters.tx_syscalls += 1;
            match written {
                Ok(_) => {
                    counters.tx_batches += 1;
                    counters.tx_frames += queue.advance(1);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {
                    outcome.full = true;
                    break;
                }
                Err(e) => {
                    outcome.failed.get_or_insert((len, e.raw_os_error().unwrap_or(libc::EIO)));
                    counters.tx_dropped += queue.advance(1);
                }
            }
        }
        outcome
    }

    pub(super) fn fill(&mut self, rx: &mut RxBuffers, most: usize, counters: &mut PortCounters) -> io::Result<usize> {
        let mut error = None;
        let count = rx.fill_by(most, |buffer| {
            counters.rx_syscalls += 1;
            self.file.read(buffer).map_err(|e| error = Some(e)).ok()
        });
        counters.rx_batches += count as u64;
        match error.filter(|e| !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)) {
            Some(error) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }
}

/// Brings an interface up if it is not.
fn bring_up(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = sys::interface_request(name);
    sys::ioctl(socket, libc::SIOCGIFFLAGS as libc::c_ulong, &mut request)?;
    // SAFETY: the call above wrote this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let up = flags | libc::IFF_UP as libc::c_short;
    if up == flags {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = up;
    sys::ioctl(socket, libc::SIOCSIFFLAGS as libc::c_ulong, &mut request)
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
