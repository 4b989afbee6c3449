//! RoCEv2 as whole Ethernet packets, with the port's own addresses: needs neither sockets nor addresses of the kernel.
//!
//! ```text
//!  frames ── FramePort ─┬─ Link: ARP, neighbour discovery, VLAN, what is for this station   (pure)
//!                       └─ wire: packet socket · TAP device · unix datagram socket          (I/O)
//! ```
//!
//! The port answers ARP requests and neighbour solicitations for its addresses, and sends its own for those of others:
//! three times, a second apart. Every destination is assumed to be on the link; there are no routers. Frames wait for
//! an address, up to 16 for each neighbour, and are dropped if it is not resolved.
//!
//! The port builds the IP header: DF is set and the IPv4 identification is 0. A received packet is checked against its
//! real header, identification and DF included, so that the ICRC covers all that it can. IPv4 options, fragments, wrong
//! checksums, other UDP ports and packets for other stations are dropped and counted in [`FrameCounters`]. Groups are
//! joined at the link layer; IGMP and MLD are not implemented, so a switch that snoops on them must flood.
//!
//! A frame port belongs to one process: opening it from a second one fails with an error that names the first.
//! [`host`](crate::host) is the port for several processes behind one address.

mod arp;
mod config;
mod error;
mod ethernet;
pub mod link;
mod nd;
mod neighbours;
mod queue;
mod retry;
mod sent;
#[cfg(all(test, not(loom)))]
mod tests;
mod wire;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use irnic_transports::wire::ip::{IPV4_LEN, IPV6_LEN, UDP_LEN};
use irnic_transports::{Path, Time};

pub use config::{Carrier, FrameConfig, FrameSpec, ParseFrameSpecError};
pub use error::FrameError;
pub use ethernet::{Mac, ParseMacError};
pub use link::FrameCounters;

use self::ethernet::MIN_PACKET;
use self::link::{Arrival, Link, Way};
use self::queue::{Looped, TxQueue, Waiting};
use self::retry::patiently;
use self::wire::{RxBuffers, Wire};
use crate::host::sys::{self as host, Epoll};
use crate::host::{Holder, Slot};
use crate::prefix::sent_icrc;
use crate::{MAX_FRAME, Port, PortCounters, Resolution, RxFrame, RxIcrc, TxFrame};

/// Time to wait at the end for a peer that has no room.
const LINGER: Duration = Duration::from_millis(250);

/// A port that sends and receives whole Ethernet packets.
pub struct FramePort {
    wire: Wire,
    link: Link,
    tx: TxQueue,
    waiting: Waiting,
    looped: Looped,
    rx: RxBuffers,
    /// Several packets arrived at a time recently: receive several per call.
    busy: bool,
    counters: PortCounters,
    /// The carrier or a queue was full: the port wakes when there is room.
    blocked: bool,
    /// The queue was full and has room again: the next `wait` returns at once.
    freed: bool,
    failure: Option<FrameError>,
    epoll: Epoll,
    /// The epoll set also reports room to send.
    watches_room: bool,
    slot: Slot,
    /// Holds the name that excludes other processes.
    _claim: OwnedFd,
}

impl fmt::Debug for FramePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramePort").field("link", &self.link).field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl FramePort {
    /// Opens a carrier and starts a station on it.
    ///
    /// # Errors
    /// A [`FrameError`]; otherwise the system's error, if there is no memory or no file descriptor.
    pub fn open(config: &FrameConfig) -> io::Result<FramePort> {
        let FrameConfig { spec, addresses, socket_buffer } = config;
        if addresses.is_empty() {
            return Err(FrameError::NoAddress.into());
        }
        if !matches!(spec.carrier, Carrier::Dgram { .. })
            && let Some(address) = wire::kernel_addresses()?.into_iter().find(|a| addresses.contains(a))
        {
            return Err(FrameError::KernelAddress(address).into());
        }
        let mac = spec.mac_for(addresses);
        let claim = claim(&spec.carrier, mac)?;
        let mut wire = Wire::open(&spec.carrier, mac, *socket_buffer)?;
        let link = Link::new(mac, addresses.clone(), spec.vlan, spec.dscp);
        for group in link.solicited_groups() {
            wire.join(group)?;
        }
        let epoll = Epoll::new()?;
        epoll.add(wire.as_fd(), libc::EPOLLIN, 0)?;
        let slot = 1 + host::random()? % u64::from(Slot::MAX);
        Ok(FramePort {
            wire,
            link,
            tx: TxQueue::new(),
            waiting: Waiting::new(),
            looped: Looped::new(),
            rx: RxBuffers::new(),
            busy: false,
            counters: PortCounters::default(),
            blocked: false,
            freed: false,
            failure: None,
            epoll,
            watches_room: false,
            slot: u16::try_from(slot).ok().and_then(Slot::new).ok_or_else(|| io::Error::other("no slot"))?,
            _claim: claim,
        })
    }

    /// Returns the link-layer address.
    pub fn mac(&self) -> Mac {
        self.link.mac()
    }

    /// Returns a slot for the process's queue pair numbers. It is random, so that packets to an earlier process at this
    /// address match no queue pair.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns counters of received packets that were not for the NIC and of packets sent other than its frames.
    pub fn frame_counters(&self) -> FrameCounters {
        self.link.counters()
    }

    /// Returns a descriptor that is readable when there is work, after [`Port::prepare_sleep`].
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the length of the carrier's longest IP packet in bytes; `None` if there is no limit.
    pub fn mtu(&self) -> Option<usize> {
        self.wire.mtu()
    }

    /// Prepares for the end of a process that does not drop the port: sends what waits for room, including datagrams
    /// that are already completed, for at most a quarter of a second, and removes the socket's path so that new peers
    /// do not find it.
    pub fn clean_up(&mut self) {
        let end = Instant::now() + LINGER;
        self.send();
        while !self.tx.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            self.send();
        }
        self.wire.remove_file();
    }

    /// Sends due requests for addresses and drops what waits for addresses that are not resolved.
    #[inline]
    fn run_timers(&mut self, now: Time) {
        self.wire.check_peer(now);
        let FramePort { link, tx, waiting, .. } = self;
        let mut lost = 0;
        link.poll(now, &mut |packet| push(tx, packet, false), &mut |address| lost += waiting.take(address, |_| ()));
        if lost > 0 {
            self.link.count_unresolved(lost);
        }
    }

    /// Sends the queue to the carrier.
    fn send(&mut self) {
        if self.tx.is_empty() {
            return;
        }
        let sent = self.wire.send(&mut self.tx, &mut self.counters);
        self.freed = self.blocked && !sent.full;
        self.blocked = sent.full;
        if let Some((len, error)) = sent.failed {
            let error = io::Error::from_raw_os_error(error).to_string();
            self.failure.get_or_insert(FrameError::Send { len, error });
        }
    }

    /// Writes a frame to `to` into the transmit queue, which has room.
    #[inline]
    fn queue(&mut self, wire: &Path, to: Mac, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) {
        let headers = self.link.headers_len(wire);
        if let Some(packet) = self.tx.push((headers + frame.len).max(MIN_PACKET), true) {
            write(&self.link, wire, to, frame.len, packet, fill);
        }
    }

    /// Keeps a frame until its neighbour answers, or drops it.
    #[cold]
    fn keep(&mut self, wire: &Path, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) {
        let headers = self.link.headers_len(wire);
        match self.waiting.push(wire.dst, (headers + frame.len).max(MIN_PACKET)) {
            Some(packet) => write(&self.link, wire, Mac::default(), frame.len, packet, fill),
            None => self.drop_unresolved(1),
        }
    }

    fn drop_unresolved(&mut self, frames: u64) {
        self.link.count_unresolved(frames);
        self.counters.tx_dropped += frames;
    }

    /// Returns the way to `dst`, and drops what waits for a neighbour evicted to make room.
    #[inline]
    fn way(&mut self, now: Time, dst: IpAddr) -> Way {
        let (way, forgotten) = self.link.way(now, dst);
        if let Some(address) = forgotten {
            let lost = self.waiting.take(address, |_| ());
            self.drop_unresolved(lost);
        }
        way
    }

    /// Sends a multicast frame to the link, and to this station if it is a member.
    fn multicast(&mut self, now: Time, wire: &Path, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) {
        self.queue(wire, Mac::of_group(wire.dst), frame, fill);
        if !self.link.is_member(wire.dst) {
            return;
        }
        let headers = self.link.headers_len(wire);
        let copy = self.looped.push(wire, now, sent_icrc(frame), frame.len);
        match (copy, self.tx.pending().last()) {
            (Some(copy), Some(packet)) => copy.copy_from_slice(&packet[headers..headers + frame.len]),
            _ => self.counters.tx_dropped += 1,
        }
    }

    /// Passes the remaining received packets to `each`. Returns how many were frames.
    fn hand_out(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let FramePort { link, tx, waiting, rx, .. } = self;
        let mut frames = 0;
        while frames < budget
            && let Some((bytes, tag)) = rx.take()
        {
            match link.receive(now, bytes, tag, &mut |packet| push(tx, packet, false)) {
                Arrival::Frame { datagram, dont_fragment } => {
                    let icrc = match datagram.path.src {
                        IpAddr::V4(_) => RxIcrc::Ipv4 { identification: datagram.ip_id, dont_fragment },
                        IpAddr::V6(_) => RxIcrc::Exact,
                    };
                    each(RxFrame { path: datagram.path, bytes: datagram.frame, arrived: now, icrc });
                    frames += 1;
                }
                Arrival::Neighbour(address, mac) => {
                    waiting.take(address, |packet| {
                        packet[..mac.0.len()].copy_from_slice(&mac.0);
                        push(tx, packet, true);
                    });
                }
                Arrival::Nothing => {}
            }
        }
        frames
    }

    /// Passes frames of this station to itself to `each`. Returns their number.
    fn hand_out_looped(&mut self, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut frames = 0;
        while frames < budget
            && self.looped.pop(|path, arrived, icrc, bytes| each(RxFrame { path, bytes, arrived, icrc }))
        {
            frames += 1;
        }
        self.freed |= frames > 0 && self.blocked && self.tx.is_empty();
        frames
    }

    /// Returns whether there is work that needs no system call.
    fn has_work(&mut self) -> bool {
        self.rx.has_packets() || !self.looped.is_empty() || std::mem::take(&mut self.freed)
    }

    /// Makes the epoll set report room if and only if the carrier had none.
    fn watch(&mut self) -> io::Result<()> {
        let room = !self.tx.is_empty();
        if self.watches_room != room {
            let events = libc::EPOLLIN | if room { libc::EPOLLOUT } else { 0 };
            self.epoll.modify(self.wire.as_fd(), events, 0)?;
            self.watches_room = room;
        }
        Ok(())
    }
}

/// Writes headers, frame and padding.
#[inline]
fn write(link: &Link, wire: &Path, to: Mac, frame_len: usize, packet: &mut [u8], fill: &mut dyn FnMut(&mut [u8])) {
    let headers = link.emit(wire, to, frame_len, packet);
    let (frame, padding) = packet[headers..].split_at_mut(frame_len);
    fill(frame);
    padding.fill(0);
}

/// Queues a packet. Without room it is dropped, as on a full link; the requester retries.
fn push(tx: &mut TxQueue, packet: &[u8], frame: bool) {
    if let Some(out) = tx.push(packet.len(), frame) {
        out.copy_from_slice(packet);
    }
}

/// Claims the name of a station on a carrier. The claim ends with this process.
fn claim(carrier: &Carrier, mac: Mac) -> io::Result<OwnedFd> {
    let what = match carrier {
        // Other processes may use the interface with other addresses.
        Carrier::Packet(_) => format!("{carrier}/{mac}"),
        Carrier::Tap(_) => carrier.to_string(),
        Carrier::Dgram { local, .. } => format!("dgram:{}", local.display()),
    };
    let name = crate::host::domain(&what, &[]);
    let name = format!("irnic/1/frames/{name}");
    let mut holder = Holder::Unknown;
    let may_pass = |e: &io::Error| {
        e.kind() == io::ErrorKind::AddrInUse && {
            holder = Holder::of_name(&name);
            match holder {
                Holder::Process { process, .. } => process == Some(std::process::id()),
                // The holder of the name may have exited since.
                Holder::Unknown => true,
                Holder::Socket { .. } | Holder::Kernel => false,
            }
        }
    };
    patiently(|| host::listen(&name), may_pass).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => FrameError::Taken { carrier: carrier.clone(), holder }.into(),
        _ => e,
    })
}

impl Port for FramePort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    /// Returns the path with an unspecified source replaced by the station's address, the station's DSCP if the path
    /// sets none, and hop limit 64 for 0.
    fn wire_path(&self, path: &Path) -> Path {
        self.link.wire_path(path)
    }

    /// Returns false for frames of the station to itself.
    fn needs_icrc(&self, path: &Path, _dest_qp: u32) -> bool {
        !self.link.is_own(path.dst)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        assert!(frame.len <= MAX_FRAME, "a frame of {} bytes, {MAX_FRAME} at the most", frame.len);
        let wire = self.link.wire_path(frame.path);
        if self.link.is_own(wire.dst) {
            let taken = self.looped.push(&wire, now, sent_icrc(frame), frame.len).map(fill).is_some();
            self.blocked |= !taken;
            self.counters.tx_frames += u64::from(taken);
            return taken;
        }
        let headers = self.link.headers_len(&wire);
        if !self.tx.has_room((headers + frame.len).max(MIN_PACKET)) {
            (self.blocked, self.freed) = (true, false);
            return false;
        }
        let ip = UDP_LEN + frame.len + if wire.dst.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        if let Some(mtu) = self.wire.mtu().filter(|mtu| ip > *mtu) {
            self.failure.get_or_insert(FrameError::Mtu { frame: frame.len, dst: wire.dst, mtu });
            self.counters.tx_dropped += 1;
            return true;
        }
        if wire.src.is_ipv4() != wire.dst.is_ipv4() {
            self.failure.get_or_insert(FrameError::Address(wire.dst));
            self.drop_unresolved(1);
            return true;
        }
        if wire.dst.is_multicast() {
            self.multicast(now, &wire, frame, fill);
            return true;
        }
        match self.way(now, wire.dst) {
            Way::Send(mac) => self.queue(&wire, mac, frame, fill),
            Way::Pending => self.keep(&wire, frame, fill),
            Way::Unreachable => {
                if !self.link.can_have(wire.dst) {
                    self.failure.get_or_insert(FrameError::Address(wire.dst));
                }
                self.drop_unresolved(1);
            }
        }
        true
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.run_timers(now);
        self.send();
        self.failure.take().map_or(Ok(()), |e| Err(e.into()))
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.run_timers(now);
        let mut frames = self.hand_out_looped(budget, each);
        // The kernel is called again only after it filled every buffer: otherwise it has nothing more.
        let mut more = true;
        let outcome = loop {
            frames += self.hand_out(now, budget - frames, each);
            if frames == budget || !more {
                break Ok(frames);
            }
            let most = if self.busy { RxBuffers::BATCH } else { 1 };
            match self.wire.fill(&mut self.rx, most, &mut self.counters) {
                Ok(received) => {
                    more = received == most && self.busy;
                    self.busy = if self.busy { received > 1 } else { received == 1 };
                }
                Err(error) => break Err(error),
            }
        };
        self.counters.rx_frames += frames as u64;
        // Replies, and frames that waited for one.
        self.send();
        outcome
    }

    fn next_deadline(&self) -> Time {
        self.link.next_deadline().min(self.wire.next_deadline())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.has_work() {
            return Ok(());
        }
        self.watch()?;
        self.epoll.sleep(timeout)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.epoll.as_fd().as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        !self.has_work() && self.watch().is_ok()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let member = self.link.is_member(group);
        if !self.link.join(group) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        if member {
            return Ok(());
        }
        self.wire.join(group).inspect_err(|_| self.link.leave(group))
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        if !self.link.is_member(group) {
            return Ok(());
        }
        self.link.leave(group);
        self.wire.leave(group)
    }

    fn resolve(&mut self, now: Time, dst: IpAddr) -> Resolution {
        if self.link.is_own(dst) {
            return Resolution::Ready;
        }
        match self.way(now, dst) {
            Way::Send(_) => Resolution::Ready,
            Way::Pending => Resolution::Pending,
            Way::Unreachable => Resolution::Unreachable,
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
