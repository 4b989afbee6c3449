//! RoCEv2 over a UDP socket of the kernel: port 4791, IPv4 or IPv6.
//!
//! Frames are written directly into a buffer from which the kernel takes up to 128 at once (UDP_SEGMENT), and arrive in
//! up to 64 KiB at once (UDP_GRO). DF is set and the socket is never connected, so the IPv4 identification, which the
//! ICRC covers, is 0. There is one exception: if the kernel itself splits a segmented send for a device that cannot, it
//! counts the identification up from 0 within the send. irnic's receiver accepts that. A peer that checks the ICRC
//! against the IPv4 header (hardware, rxe) drops all frames but the first. [`Segmentation`] selects the frames sent
//! this way.
//!
//! Between ports of one host and user nothing is lost: a sender has credit for what the receiver's socket can hold, and
//! without credit [`Port::transmit`] finds no room. Other receivers that fall behind lose frames.

mod batch;
mod credit;
mod rx;
pub(crate) mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod tx;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use irnic_transports::qp::PeerProcess;
use irnic_transports::wire::ROCE_PORT;
use irnic_transports::wire::ip::ETHERNET_LEN;
use irnic_transports::{Gather, Path, Time};
use socket2::{Domain, Protocol, Socket, Type};

use self::batch::{Pieces, Target, TxQueue};
use self::credit::{Credits, Grants, Progress};
use self::rx::Receiver;
use self::tx::{Common, Stop};
use super::{MAX_FRAME, Port, PortCounters, RxFrame, TxFrame, packet_len};

/// Which frames share a send with the following ones (UDP_SEGMENT), if the kernel supports it. Frames that do not share
/// a send still share system calls (sendmmsg).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// Frames whose receiver accepts any IPv4 identification: those in irnic's own format, those to irnic on this host,
    /// and all frames over IPv6, which has no identification.
    #[default]
    Auto,
    /// All frames. Correct if every peer is irnic.
    On,
    /// None. Nothing is coalesced on reception either (UDP_GRO stays off).
    Off,
}

/// Configuration of a UDP port. [`UdpConfig::new`] makes one.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct UdpConfig {
    /// Address and UDP port to bind to. An unspecified address receives for all addresses of the host; UDP port 0
    /// selects a free one.
    pub local: SocketAddr,
    /// UDP port of every destination. Default: 4791.
    pub remote_port: u16,
    /// Which frames are sent several at a time. Default: [`Segmentation::Auto`].
    pub segmentation: Segmentation,
    /// Socket buffer to request, in bytes per direction. The kernel may grant less (net.core.rmem_max, wmem_max).
    /// Default: 8 MiB, a burst of 2,000 frames of 4 KiB.
    pub socket_buffer: usize,
    /// Whether received frames carry the time at which the kernel took them from the device (SO_TIMESTAMPNS), rather
    /// than that of the call to [`Port::receive`]. The kernel then stamps every packet of the host, which adds 0.3 µs
    /// to half a round trip (docs/timestamps.md). Default: false.
    pub kernel_stamps: bool,
    /// Multicast group to receive on the interface of `local`, and nothing else; such a port cannot send. For IPv6, the
    /// scope of `local` must be the index of its interface. Any number of such ports of one group on one interface each
    /// receive every frame. Default: none.
    pub group: Option<IpAddr>,
}

impl UdpConfig {
    /// Returns the default configuration for port 4791 of `ip`.
    pub fn new(ip: IpAddr) -> UdpConfig {
        UdpConfig {
            local: SocketAddr::new(ip, ROCE_PORT),
            remote_port: ROCE_PORT,
            segmentation: Segmentation::Auto,
            socket_buffer: 8 << 20,
            kernel_stamps: false,
            group: None,
        }
    }

    /// Returns the configuration with another address and UDP port to bind to.
    #[must_use]
    pub fn with_local(self, local: SocketAddr) -> UdpConfig {
        UdpConfig { local, ..self }
    }

    /// Returns the configuration with another choice of the frames that are sent several at a time.
    #[must_use]
    pub fn with_segmentation(self, segmentation: Segmentation) -> UdpConfig {
        UdpConfig { segmentation, ..self }
    }

    /// Returns the configuration with the kernel's time stamps of received frames switched on or off.
    #[must_use]
    pub fn with_kernel_stamps(self, kernel_stamps: bool) -> UdpConfig {
        UdpConfig { kernel_stamps, ..self }
    }
}

/// Error of a UDP port. The port returns it inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UdpError {
    /// The address is in use, does not belong to this host, or is not permitted.
    #[error("cannot bind UDP {local}: {error}")]
    Bind {
        /// Requested address.
        local: SocketAddr,
        /// System error message.
        error: String,
    },
    /// A frame does not fit into one unfragmented datagram.
    #[error(
        "a frame of {frame} bytes to {dst} does not fit the MTU of {mtu} bytes with its IP and UDP headers: \
         choose a smaller path MTU or raise the interface's"
    )]
    Mtu {
        /// Length of the frame from BTH to ICRC, in bytes.
        frame: usize,
        /// Destination address.
        dst: IpAddr,
        /// MTU of the route in bytes, 0 if unknown.
        mtu: usize,
    },
    /// The destination is IPv4 and the port IPv6, or the reverse.
    #[error("{dst} cannot be reached from {local}: one is IPv4, the other IPv6")]
    Family {
        /// Address of the port.
        local: IpAddr,
        /// Destination address.
        dst: IpAddr,
    },
    /// The kernel refused to send.
    #[error("cannot send {frame} bytes to {dst}: {error}")]
    Send {
        /// Destination address.
        dst: IpAddr,
        /// Length of the frame from BTH to ICRC, in bytes.
        frame: usize,
        /// System error message.
        error: String,
    },
}

impl From<UdpError> for io::Error {
    fn from(e: UdpError) -> io::Error {
        let kind = match e {
            UdpError::Bind { .. } => io::ErrorKind::AddrNotAvailable,
            UdpError::Mtu { .. } | UdpError::Family { .. } => io::ErrorKind::InvalidInput,
            UdpError::Send { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}

/// A port over one UDP socket.
pub struct UdpPort {
    socket: UdpSocket,
    local: SocketAddr,
    common: Common,
    queue: TxQueue,
    pieces: Pieces,
    receiver: Receiver,
    credits: Credits,
    grants: Grants,
    counters: PortCounters,
    /// Frames in the standard wire format are sent one at a time.
    plain_alone: bool,
    /// The kernel or the queue was full: the port wakes when there is room.
    blocked: bool,
    /// The receiver's socket was full, as far as this port knows.
    starved: bool,
    /// The queue was full and has room again: the next `wait` returns at once.
    freed: bool,
    /// Error to be returned by the next flush.
    failure: Option<UdpError>,
    /// Source addresses that the routing table gave for destinations, for a socket bound to no address.
    sources: RefCell<Vec<(IpAddr, IpAddr)>>,
}

/// Maximum number of destinations whose source address is remembered.
const SOURCES: usize = 256;

impl UdpPort {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// [`UdpError::Bind`] if the address is in use or not this host's, [`UdpError::Family`] if the group and the
    /// address are of different families; otherwise the system's error.
    pub fn open(config: &UdpConfig) -> io::Result<UdpPort> {
        let domain = Domain::for_address(config.local);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        let fd = socket.as_fd();
        let v4 = config.local.is_ipv4();
        if v4 {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            socket.set_recv_tos_v4(true)?;
        } else {
            socket.set_only_v6(true)?;
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
            socket.set_recv_tclass_v6(true)?;
            // RoCEv2 over IPv6 may come without a UDP checksum (IBA A17.9.2), as it does from rxe; the kernel would
            // drop it.
            sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1 as libc::c_int)?;
        }
        let name_source = config.local.ip().is_unspecified();
        if name_source && v4 {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        } else if name_source {
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        }
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        if config.kernel_stamps {
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1 as libc::c_int)?;
        }
        let buffer = libc::c_int::try_from(config.socket_buffer).unwrap_or(libc::c_int::MAX);
        for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if sys::set_option(fd, libc::SOL_SOCKET, force, buffer).is_err() {
                sys::set_option(fd, libc::SOL_SOCKET, plain, buffer)?;
            }
        }
        let segments = if config.segmentation == Segmentation::Off { 1 } else { probe_segments() };
        if config.segmentation != Segmentation::Off {
            // A kernel without it delivers the same datagrams one at a time.
            let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        let bound = bind_address(config);
        // Only a group's frames go to all sockets bound to it: one address must have one owner.
        socket.set_reuse_address(config.group.is_some())?;
        socket.bind(&bound.into()).map_err(|e| UdpError::Bind { local: bound, error: e.to_string() })?;
        let hop_limit = if v4 { socket.ttl_v4()? } else { socket.unicast_hops_v6()? };
        set_up_multicast(&socket, config, hop_limit)?;
        let socket = UdpSocket::from(socket);
        let local = socket.local_addr()?;
        let scope_id = if let SocketAddr::V6(a) = local { a.scope_id() } else { 0 };
        let granted = sys::get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)? as usize;
        let grants = if config.group.is_some() { Grants::none(granted) } else { Grants::new(local, granted) };
        Ok(UdpPort {
            socket,
            local,
            common: Common {
                remote_port: config.remote_port,
                scope_id,
                name_source,
                hop_limit: hop_limit as u8,
                traffic_class: 0,
                latest_class: 0,
                repeated: 0,
            },
            queue: TxQueue::new(segments),
            pieces: Pieces::default(),
            receiver: Receiver::new(),
            credits: Credits::new(local, config.remote_port, granted),
            grants,
            counters: PortCounters::default(),
            plain_alone: v4 && config.segmentation == Segmentation::Auto,
            blocked: false,
            starved: false,
            freed: false,
            failure: None,
            sources: RefCell::default(),
        })
    }

    /// Returns the address and UDP port that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the UDP port that frames are sent to.
    pub fn remote_port(&self) -> u16 {
        self.common.remote_port
    }

    /// Sets the UDP port that frames are sent to, from the next flush on.
    pub fn set_remote_port(&mut self, port: u16) {
        self.common.remote_port = port;
        self.credits.set_remote_port(port);
    }

    /// Returns the maximum number of frames in one send: 1 if the kernel has no UDP_SEGMENT or refused it.
    pub fn max_segments(&self) -> usize {
        self.queue.max_frames()
    }

    /// Returns the size of the receive buffer that the kernel granted, in bytes as accounted for by the kernel (twice
    /// the request).
    pub fn receive_buffer(&self) -> io::Result<usize> {
        sys::get_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map(|bytes| bytes as usize)
    }

    /// Returns whether there is work that needs no system call: received frames that were not delivered, or room again.
    pub(super) fn has_work(&mut self) -> bool {
        self.receiver.has_frames() || std::mem::take(&mut self.freed) || self.starved && self.has_credit()
    }

    /// Returns whether the first waiting batch may be sent.
    fn has_credit(&mut self) -> bool {
        let first = self.queue.pending().first();
        first.is_none_or(|batch| self.credits.admits(batch.target.dst, batch.len, batch.segment))
    }

    /// Returns whether nothing is queued, and no error is to be reported.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.failure.is_none()
    }

    /// Returns whether the port wakes when there is room in the socket's buffer.
    pub(super) fn wants_room(&self) -> bool {
        self.blocked
    }

    /// Sets the slot of this process, which forwards what is for others.
    pub(super) fn set_reader(&mut self, slot: u16) {
        self.grants.set_reader(slot);
    }

    /// Returns how far `dst` is with what was sent to it; `None` unless it gives credit.
    pub(super) fn progress(&mut self, dst: IpAddr) -> Option<Progress> {
        let progress = self.credits.progress(dst)?;
        let queued = self.queue.pending().iter().filter(|batch| batch.target.dst == dst);
        let queued: u64 = queued.map(|batch| credit::charge(batch.len, batch.segment)).sum();
        Some(Progress { handed: progress.handed + queued, ..progress })
    }

    /// Returns the source address of frames to `dst`: the bound address, or the one that the routing table gives.
    pub fn source_for(&self, dst: IpAddr) -> io::Result<IpAddr> {
        if !self.common.name_source {
            return Ok(self.local.ip());
        }
        let mut sources = self.sources.borrow_mut();
        if let Some((_, source)) = sources.iter().find(|(d, _)| *d == dst) {
            return Ok(*source);
        }
        let source = self.connected(dst)?.local_addr()?.ip();
        if sources.len() == SOURCES {
            sources.clear();
        }
        sources.push((dst, source));
        Ok(source)
    }

    /// Returns the largest frame, BTH to ICRC, that fits the MTU of the route to `dst` without fragmentation, in bytes.
    pub fn max_frame_to(&self, dst: IpAddr) -> io::Result<usize> {
        let headers = packet_len(dst, 0) - ETHERNET_LEN;
        Ok(self.route_mtu(dst)?.saturating_sub(headers).min(MAX_FRAME))
    }

    /// Queues a frame. Its payload after the given number of bytes may be left in the application's memory.
    #[inline]
    fn enqueue(
        &mut self,
        frame: &TxFrame<'_>,
        gathered: Option<(usize, &Gather<'_>)>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        let (path, len) = (frame.path, frame.len);
        assert!(len <= MAX_FRAME, "a frame of {len} bytes, {MAX_FRAME} at the most");
        if path.dst.is_ipv4() != self.local.is_ipv4() {
            self.failure.get_or_insert(UdpError::Family { local: self.local.ip(), dst: path.dst });
            self.counters.tx_dropped += 1;
            return true;
        }
        let target = Target::from(&self.wire_path(path));
        let alone = self.plain_alone && !frame.irn && !self.credits.knows(target.dst);
        let Some(bytes) = self.queue.reserve(&target, len, alone) else {
            self.blocked = true;
            return false;
        };
        self.freed = false;
        fill(bytes);
        if let Some((at, payload)) = gathered {
            self.queue.leave_out(len, at, payload);
        }
        true
    }

    /// Sends what is queued, or only the batches that no frame can join any more.
    fn send(&mut self, now: Time, only_closed: bool) -> io::Result<()> {
        if !self.queue.is_empty() {
            let counters = &mut self.counters;
            let (queue, pieces, credits) = (&mut self.queue, &mut self.pieces, &mut self.credits);
            let socket = self.socket.as_fd();
            let (stop, failed) =
                tx::send_all(now, queue, pieces, credits, only_closed, socket, &mut self.common, counters);
            let (full, starved) = (stop == Stop::Full, stop == Stop::NoCredit);
            self.freed = (self.blocked || self.starved) && !full && !starved;
            (self.blocked, self.starved) = (full, starved);
            self.credits.note(now, starved);
            self.queue.set_longest(self.credits.longest());
            if let Some((target, frame, error)) = failed {
                // The route may have changed.
                self.sources.borrow_mut().clear();
                let why = tx::explain(&target, frame, error, || self.route_mtu(target.dst).ok());
                self.failure = self.failure.take().or(why);
            }
        }
        self.failure.take().map_or(Ok(()), |e| Err(e.into()))
    }

    fn route_mtu(&self, dst: IpAddr) -> io::Result<usize> {
        let socket = self.connected(dst)?;
        let (level, name) = match dst {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        sys::get_option(socket.as_fd(), level, name).map(|mtu| mtu as usize)
    }

    /// Opens a second socket with a route to `dst`. The port's own socket must stay unconnected, or the kernel would
    /// count the identification up.
    fn connected(&self, dst: IpAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddr::new(self.local.ip(), 0))?;
        socket.connect(self.common.destination(dst))?;
        Ok(socket)
    }
}

/// Returns the address to bind the socket of `config` to.
fn bind_address(config: &UdpConfig) -> SocketAddr {
    match (config.group, config.local) {
        (None, local) => local,
        (Some(IpAddr::V6(group)), SocketAddr::V6(local)) => {
            SocketAddrV6::new(group, local.port(), 0, local.scope_id()).into()
        }
        (Some(group), local) => SocketAddr::new(group, local.port()),
    }
}

/// Joins the group of `config`, if any, and sends multicast frames by the interface of `local`, with the hop limit of
/// all other frames.
fn set_up_multicast(socket: &Socket, config: &UdpConfig, hop_limit: u32) -> io::Result<()> {
    match (config.local, config.group) {
        (SocketAddr::V4(local), Some(IpAddr::V4(group))) => socket.join_multicast_v4(&group, local.ip()),
        (SocketAddr::V6(local), Some(IpAddr::V6(group))) => socket.join_multicast_v6(&group, local.scope_id()),
        (local, Some(group)) => Err(UdpError::Family { local: local.ip(), dst: group }.into()),
        (SocketAddr::V4(local), None) => {
            if !local.ip().is_unspecified() {
                socket.set_multicast_if_v4(local.ip())?;
            }
            socket.set_multicast_ttl_v4(hop_limit)
        }
        (SocketAddr::V6(local), None) => {
            if local.scope_id() != 0 {
                socket.set_multicast_if_v6(local.scope_id())?;
            }
            socket.set_multicast_hops_v6(hop_limit)
        }
    }
}

/// Returns the number of segments that this kernel accepts in one send: 128, 64 (before 6.9), or 1 if it has no
/// UDP_SEGMENT (before 4.18).
fn probe_segments() -> usize {
    let probe = || -> io::Result<usize> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 1 as libc::c_int)?;
        let own = socket.local_addr()?;
        for limit in [128, 64] {
            if socket.send_to(&[0; 128][..limit], own).is_ok() {
                return Ok(limit);
            }
        }
        Ok(1)
    };
    probe().unwrap_or(1)
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for UdpPort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    /// Returns the path with the source address replaced by the bound one; without one, by `path.src`, or if that is
    /// unspecified by the one from the routing table. The UDP source port becomes the socket's.
    fn wire_path(&self, path: &Path) -> Path {
        let src = match self.common.name_source {
            false => self.local.ip(),
            true if !path.src.is_unspecified() => path.src,
            true => self.source_for(path.dst).unwrap_or(path.src),
        };
        Path { src, udp_src: self.local.port(), ..*path }
    }

    fn transmit(&mut self, _now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.enqueue(frame, None, fill)
    }

    fn transmit_in_place(
        &mut self,
        _now: Time,
        frame: &TxFrame<'_>,
        at: usize,
        payload: &Gather<'_>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<bool> {
        Some(self.enqueue(frame, Some((at, payload)), fill))
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.send(now, false)
    }

    fn flush_full(&mut self, now: Time) -> io::Result<bool> {
        self.send(now, true)?;
        Ok(!self.queue.is_empty())
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let local = self.local.ip();
        let (counters, grants) = (&mut self.counters, &mut self.grants);
        self.receiver.receive(self.socket.as_fd(), local, now, budget, counters, grants, each)
    }

    fn next_deadline(&self) -> Time {
        self.credits.next_deadline()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.has_work() {
            return Ok(());
        }
        let events = libc::POLLIN | if self.blocked { libc::POLLOUT } else { 0 };
        let timeout = if self.starved { timeout.min(Credits::CHECK_INTERVAL) } else { timeout };
        sys::poll(self.socket.as_fd(), events, timeout)
    }

    fn mark_answered(&mut self) {
        // Answers to processes that this one forwards to go by its own socket.
        if !self.credits.are_in_own_socket() {
            self.grants.mark_answered();
        }
    }

    fn peer_process(&mut self, path: &Path, dest_qp: u32) -> PeerProcess {
        let Some(progress) = self.progress(path.dst) else { return PeerProcess::Unknown };
        let Progress { handed, answered, .. } = progress;
        PeerProcess::Buffered { handed, answered, reader: progress.reader(dest_qp) }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
