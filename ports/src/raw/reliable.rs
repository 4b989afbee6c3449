//! The UDP loop with what any reliable transport with headers has to add to it, and no more: the bound that a port over
//! UDP is compared with.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::udp::{offload, set, sockets};
use super::{MESSAGE, Rate, done, two_threads};

/// Bytes of payload in each segment, of headers before it (a BTH and a RETH), and of the ICRC after it.
const PAYLOAD: usize = 4096;
const HEADERS: usize = 28;
const TRAILER: usize = 4;
const SEGMENT: usize = HEADERS + PAYLOAD + TRAILER;
/// Segments of a datagram: as many as fit into 64 KiB.
const SEGMENTS: usize = 15;
/// Bytes of payload that may be under way.
const WINDOW: u64 = 8 << 20;
/// Datagrams that one call receives at most, and calls for each acknowledgement.
const BATCH: usize = 4;
const CALLS: u32 = 4;
/// Time without an acknowledgement after which what is under way counts as lost.
const SILENCE: Duration = Duration::from_millis(20);

/// Measures the bandwidth of payload in segments of 4096 bytes over loopback between two cores for `time`, with a
/// window of 8 MiB, headers and trailers gathered around the payload, acknowledgements, and a copy from the receive
/// buffer to the application's. There are no checksums. What is lost is not repeated, and does not count.
///
/// # Errors
/// `Unsupported` on a machine with one core or a kernel without UDP_SEGMENT; otherwise the system's error.
pub fn udp_reliable_bandwidth(time: Duration) -> io::Result<Rate> {
    let (a, b) = sockets()?;
    set(&a, libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT as libc::c_int).map_err(offload)?;
    set(&b, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(offload)?;
    let stop = AtomicBool::new(false);
    let send = || send_until(&a, &stop);
    let receive = || {
        let result = receive_for(&b, time);
        stop.store(true, Ordering::Relaxed);
        result
    };
    two_threads(send, receive).map(|(_, rate)| rate)
}

/// Sends until `stop`.
fn send_until(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    let payload = vec![3u8; MESSAGE];
    let (mut sent, mut acknowledged) = (0u64, 0u64);
    let mut heard = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut answer = [0; 8];
        while socket.recv(&mut answer).is_ok_and(|len| len == answer.len()) {
            acknowledged = acknowledged.max(u64::from_le_bytes(answer));
            heard = Instant::now();
        }
        if sent - acknowledged >= WINDOW {
            if heard.elapsed() >= SILENCE {
                (acknowledged, heard) = (sent, Instant::now());
            }
            continue;
        }
        // The trailer of one segment and the headers of the next are one piece. Headers begin with the position.
        let mut between = [[0u8; TRAILER + HEADERS]; SEGMENTS];
        for (n, bytes) in between.iter_mut().enumerate() {
            let end = sent + ((n + 1) * PAYLOAD) as u64;
            bytes[TRAILER..TRAILER + 8].copy_from_slice(&end.to_le_bytes());
        }
        let last = [0; TRAILER];
        let mut pieces = [IoSlice::new(&last); 2 * SEGMENTS + 1];
        for (n, bytes) in between.iter().enumerate() {
            pieces[2 * n] = IoSlice::new(if n == 0 { &bytes[TRAILER..] } else { bytes });
            pieces[2 * n + 1] = IoSlice::new(&payload[n * PAYLOAD..][..PAYLOAD]);
        }
        match send_gathered(socket, &pieces) {
            Ok(_) => sent += (SEGMENTS * PAYLOAD) as u64,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Receives for `time`.
fn receive_for(socket: &UdpSocket, time: Duration) -> io::Result<Rate> {
    let mut application = vec![0u8; MESSAGE];
    let mut datagrams = Datagrams::new();
    let (mut frames, mut calls, mut seen) = (0u64, 0u32, 0u64);
    let start = Instant::now();
    loop {
        let count = datagrams.receive(socket, BATCH)?;
        for n in 0..count {
            for segment in datagrams.bytes(n).chunks_exact(SEGMENT) {
                let at = frames as usize * PAYLOAD % MESSAGE;
                application[at..at + PAYLOAD].copy_from_slice(&segment[HEADERS..HEADERS + PAYLOAD]);
                seen = seen.max(segment.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
                frames += 1;
            }
        }
        if count > 0 {
            calls += 1;
            if calls.is_multiple_of(CALLS) {
                // A lost acknowledgement is covered by the next.
                let _ = socket.send(&seen.to_le_bytes());
            }
        }
        if done(frames, start.elapsed(), time) {
            std::hint::black_box(&application);
            return Ok(Rate::new(frames, PAYLOAD, start.elapsed()));
        }
    }
}

/// Sends the pieces as one buffer.
fn send_gathered(socket: &UdpSocket, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all-zero: null pointers of length 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An IoSlice has the layout of an iovec.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the pieces are valid for the call, which only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Buffers for several datagrams, with control messages and addresses, as a port has them.
pub(super) struct Datagrams {
    buffers: Vec<u8>,
    control: [[u64; 16]; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    lens: [usize; BATCH],
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        // SAFETY: all-zero is a valid, unspecified address.
        let names = unsafe { std::mem::zeroed() };
        Datagrams { buffers: vec![0; BATCH * MESSAGE], control: [[0; 16]; BATCH], names, lens: [0; BATCH] }
    }

    /// Receives what there is, at most `most` datagrams, without waiting. Returns their number.
    pub(super) fn receive(&mut self, socket: &UdpSocket, most: usize) -> io::Result<usize> {
        // SAFETY: all-zero: null pointers of length 0.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (n, buffer) in self.buffers.chunks_exact_mut(MESSAGE).enumerate() {
            vectors[n] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut messages[n].msg_hdr;
            header.msg_iov = &raw mut vectors[n];
            header.msg_iovlen = 1;
            header.msg_control = self.control[n].as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&self.control[n]) as _;
            header.msg_name = (&raw mut self.names[n]).cast();
            header.msg_namelen = size_of_val(&self.names[n]) as _;
        }
        // SAFETY: all buffers are valid for their lengths during the call.
        let count = unsafe {
            let (fd, to, flags) = (socket.as_raw_fd(), messages.as_mut_ptr(), libc::MSG_DONTWAIT);
            libc::recvmmsg(fd, to, most.min(BATCH) as _, flags, std::ptr::null_mut())
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        };
        for (len, message) in self.lens.iter_mut().zip(&messages[..count]) {
            *len = message.msg_len as usize;
        }
        Ok(count)
    }

    /// Returns the contents of a datagram of the last call.
    fn bytes(&self, n: usize) -> &[u8] {
        &self.buffers[n * MESSAGE..][..self.lens[n]]
    }
}
