//! A minimal UDP loop over loopback: segmented sends directly from the application's buffer, coalesced receives
//! directly into it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::reliable::Datagrams;
use super::{MESSAGE, Rate, RoundTrip, done, two_threads};

/// Time limit of a datagram's transit.
const PATIENCE: Duration = Duration::from_secs(120);

/// Opens two connected, non-blocking sockets with buffers of 8 MiB, or what the system grants.
pub(super) fn sockets() -> io::Result<(UdpSocket, UdpSocket)> {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    a.connect(b.local_addr()?)?;
    b.connect(a.local_addr()?)?;
    for socket in [&a, &b] {
        socket.set_nonblocking(true)?;
        for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if set(socket, libc::SOL_SOCKET, force, 8 << 20).is_err() {
                set(socket, libc::SOL_SOCKET, plain, 8 << 20)?;
            }
        }
    }
    Ok((a, b))
}

pub(super) fn set(socket: &impl AsRawFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is valid for its length.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the error of a kernel without UDP_SEGMENT or UDP_GRO.
pub(super) fn offload(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("UDP segmentation: {error}"))
}

/// Measures the bandwidth of frames of `frame` bytes (clamped to 1 to 16 Ki) over loopback between two cores for
/// `time`, as many per send as UDP_SEGMENT allows. Frames dropped by the receiver's buffer do not count.
///
/// # Errors
/// `Unsupported` on a machine with one core or a kernel without UDP_SEGMENT; otherwise the system's error.
pub fn udp_bandwidth(frame: usize, time: Duration) -> io::Result<Rate> {
    let frame = frame.clamp(1, 16 << 10);
    let (a, b) = sockets()?;
    set(&a, libc::SOL_UDP, libc::UDP_SEGMENT, frame as libc::c_int).map_err(offload)?;
    set(&b, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(offload)?;
    let stop = AtomicBool::new(false);
    let send = || {
        let buffer = vec![3u8; MESSAGE];
        let bytes = (65507 / frame).min(64) * frame;
        while !stop.load(Ordering::Relaxed) {
            match a.send(&buffer[..bytes]) {
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
        }
        Ok(())
    };
    let receive = || {
        let mut buffer = vec![0u8; MESSAGE];
        let mut bytes = 0;
        let start = Instant::now();
        let result = loop {
            match b.recv(&mut buffer) {
                Ok(len) => bytes += len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => break Err(e),
            }
            let frames = (bytes / frame) as u64;
            if done(frames, start.elapsed(), time) {
                break Ok(Rate::new(frames, frame, start.elapsed()));
            }
        };
        stop.store(true, Ordering::Relaxed);
        result
    };
    two_threads(send, receive).map(|(_, rate)| rate)
}

/// Measures `rounds` round trips of 2 bytes between two spinning, connected sockets.
///
/// # Errors
/// `Unsupported` on a machine with one core, `TimedOut` if there is no answer for two minutes; otherwise the system's
/// error.
pub fn udp_rtt(rounds: usize) -> io::Result<RoundTrip> {
    let sockets = sockets()?;
    let end = |socket| End { socket, to: None, datagrams: None };
    round_trips(rounds, 2, end(&sockets.0), end(&sockets.1))
}

/// Measures round trips as [`udp_rtt`] does, but of frames of 44 bytes (a BTH, two extended headers, 8 bytes of payload
/// and an ICRC) and through sockets as a port uses them: not connected, and with the address, the traffic class and the
/// number of lost datagrams of each datagram received.
///
/// # Errors
/// Those of [`udp_rtt`]; `Unsupported` without UDP_GRO.
pub fn udp_rtt_as_port(rounds: usize) -> io::Result<RoundTrip> {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for socket in [&a, &b] {
        socket.set_nonblocking(true)?;
        set(socket, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(offload)?;
        set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    }
    let (to_a, to_b) = (a.local_addr()?, b.local_addr()?);
    let end = |socket, to| End { socket, to: Some(to), datagrams: Some(Datagrams::new()) };
    round_trips(rounds, 44, end(&a, to_b), end(&b, to_a))
}

/// One end of a ping-pong.
struct End<'a> {
    socket: &'a UdpSocket,
    /// The other end, unless the socket is connected to it.
    to: Option<SocketAddr>,
    /// Buffers with control messages, if these are received.
    datagrams: Option<Datagrams>,
}

impl End<'_> {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.to {
            Some(to) => self.socket.send_to(bytes, to),
            None => self.socket.send(bytes),
        }
    }

    /// Returns whether a datagram has arrived.
    fn poll(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match &mut self.datagrams {
            Some(datagrams) => datagrams.receive(self.socket, 1).map(|count| count > 0),
            None => match self.socket.recv(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
                result => result.map(|_| true),
            },
        }
    }

    /// Waits for a datagram. Loopback loses nothing unless a buffer is full; [`PATIENCE`] only keeps a stopped peer
    /// from blocking forever. A thread that is bound to a core may wait for it for many seconds on a busy machine.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let start = Instant::now();
        for polls in 1u64.. {
            if self.poll(bytes)? {
                return Ok(());
            }
            if polls.is_multiple_of(1 << 16) && start.elapsed() > PATIENCE {
                break;
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no answer over loopback for two minutes"))
    }
}

/// Measures `rounds` round trips of `len` bytes.
fn round_trips(rounds: usize, len: usize, mut a: End<'_>, mut b: End<'_>) -> io::Result<RoundTrip> {
    let near = || {
        let mut ends = Vec::with_capacity(rounds);
        let mut bytes = vec![1; len];
        for _ in 0..rounds {
            a.send(&bytes)?;
            a.receive(&mut bytes)?;
            ends.push(Instant::now());
        }
        Ok(RoundTrip::from_instants(&ends))
    };
    let far = || {
        let mut bytes = vec![0; len];
        for _ in 0..rounds {
            b.receive(&mut bytes)?;
            b.send(&bytes)?;
        }
        Ok(())
    };
    two_threads(near, far).map(|(trip, _)| trip)
}
