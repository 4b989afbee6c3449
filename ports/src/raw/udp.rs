//! A minimal UDP loop over loopback: segmented sends directly from the application's buffer, coalesced receives
//! directly into it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{MESSAGE, Rate, RoundTrip, done, two_threads};

/// Time limit of a datagram's transit.
const PATIENCE: Duration = Duration::from_secs(120);

/// Opens two connected, non-blocking sockets with buffers of 8 MiB, or what the system grants.
fn sockets() -> io::Result<(UdpSocket, UdpSocket)> {
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

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is valid for its length.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Measures the bandwidth of frames of `frame` bytes (clamped to 1 to 16 Ki) over loopback between two cores for
/// `time`, as many per send as UDP_SEGMENT allows. Frames dropped by the receiver's buffer do not count.
///
/// # Errors
/// `Unsupported` on a machine with one core or a kernel without UDP_SEGMENT; otherwise the system's error.
pub fn udp_bandwidth(frame: usize, time: Duration) -> io::Result<Rate> {
    let frame = frame.clamp(1, 16 << 10);
    let (a, b) = sockets()?;
    let offload = |e| io::Error::new(io::ErrorKind::Unsupported, format!("UDP segmentation: {e}"));
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

/// Measures `rounds` round trips of 2 bytes between two spinning sockets.
///
/// # Errors
/// `Unsupported` on a machine with one core, `TimedOut` if there is no answer for two minutes; otherwise the system's
/// error.
pub fn udp_rtt(rounds: usize) -> io::Result<RoundTrip> {
    let (a, b) = sockets()?;
    // Loopback loses nothing unless a buffer is full; this only keeps a stopped peer from blocking forever. A thread
    // that is bound to a core may wait for it for many seconds on a busy machine.
    let receive = |socket: &UdpSocket, bytes: &mut [u8]| {
        let start = Instant::now();
        for polls in 1u64.. {
            match socket.recv(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map(|_| ()),
            }
            if polls.is_multiple_of(1 << 16) && start.elapsed() > PATIENCE {
                break;
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no answer over loopback for two minutes"))
    };
    let near = || {
        let mut ends = Vec::with_capacity(rounds);
        let mut bytes = [1, 2];
        for _ in 0..rounds {
            a.send(&bytes)?;
            receive(&a, &mut bytes)?;
            ends.push(Instant::now());
        }
        Ok(RoundTrip::from_instants(&ends))
    };
    let far = || {
        let mut bytes = [0, 0];
        for _ in 0..rounds {
            receive(&b, &mut bytes)?;
            b.send(&bytes)?;
        }
        Ok(())
    };
    two_threads(near, far).map(|(trip, _)| trip)
}
