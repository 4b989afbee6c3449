//! Round trips of the kernel's TCP, which TIMELY's Figure 1 compares with a NIC's: a ping-pong of segments over
//! loopback.
//!
//! The kernel reports when it handed the last byte of a segment to the device and when it received the acknowledgement
//! of that byte (SO_TIMESTAMPING, SCM_TSTAMP_SND and SCM_TSTAMP_ACK), the basis of its own estimate of the round trip.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::RttPlan;
use super::measure::{PATIENCE, PAUSE, WARM_UP, computing, record};
use crate::error::PerfError;

/// Kinds of timestamps, of `linux/errqueue.h`: the device has the byte; it is acknowledged.
const SCM_TSTAMP_SND: u32 = 0;
const SCM_TSTAMP_ACK: u32 = 2;

/// Round trips, ns.
pub struct Tcp {
    /// From the last byte's transmit timestamp to its acknowledgement's, both by the kernel.
    pub kernel: Histogram<u64>,
    /// Of the ping-pong, by the application's clock.
    pub application: Histogram<u64>,
}

/// Measures while `load` threads compute.
pub fn run(plan: &RttPlan, load: usize, interrupted: &AtomicBool) -> Result<Tcp, PerfError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
    }
    ask_for_stamps(&client)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| echo(server, plan.size));
        computing(scope, load, &stop);
        let result = ping_pong(plan, client, interrupted);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Echoes segments until the connection is closed.
fn echo(mut server: TcpStream, size: u32) {
    let mut segment = vec![0; size as usize];
    while server.read_exact(&mut segment).and_then(|()| server.write_all(&segment)).is_ok() {}
}

fn ping_pong(plan: &RttPlan, mut client: TcpStream, interrupted: &AtomicBool) -> Result<Tcp, PerfError> {
    let histogram = || Histogram::new(3).map_err(PerfError::failed);
    let mut tcp = Tcp { kernel: histogram()?, application: histogram()? };
    let mut segment = vec![0; plan.size as usize];
    // Timestamps refer to the last byte of a write, counted from the first of the connection, modulo 2^32.
    let mut last = u32::MAX;
    for round in 0..plan.iters + WARM_UP {
        thread::sleep(PAUSE);
        if interrupted.load(Ordering::Relaxed) {
            return Err(PerfError::Interrupted);
        }
        last = last.wrapping_add(plan.size);
        let before = Instant::now();
        client.write_all(&segment)?;
        client.read_exact(&mut segment)?;
        let after = before.elapsed();
        let [sent, acknowledged] = stamps(&client, last, before)?;
        if round >= WARM_UP {
            record(&mut tcp.kernel, acknowledged.saturating_sub(sent))?;
            record(&mut tcp.application, after.as_nanos() as u64)?;
        }
    }
    Ok(tcp)
}

fn ask_for_stamps(socket: &TcpStream) -> io::Result<()> {
    let what = libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_ACK
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    // SAFETY: the option takes an integer, which the call reads.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const what).cast(),
            size_of_val(&what) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for the timestamps of a byte: when it left, and when it was acknowledged, ns.
fn stamps(socket: &TcpStream, byte: u32, since: Instant) -> Result<[u64; 2], PerfError> {
    let (mut sent, mut acknowledged) = (None, None);
    loop {
        match stamp(socket)? {
            Some(stamp) if stamp.byte == byte && stamp.kind == SCM_TSTAMP_SND => sent = Some(stamp.at),
            Some(stamp) if stamp.byte == byte && stamp.kind == SCM_TSTAMP_ACK => acknowledged = Some(stamp.at),
            Some(_) => {}
            None if since.elapsed() > PATIENCE => {
                return Err(PerfError::failed("the kernel gives no transmit stamps of TCP; leave out --tcp"));
            }
            None => thread::yield_now(),
        }
        if let (Some(sent), Some(acknowledged)) = (sent, acknowledged) {
            return Ok([sent, acknowledged]);
        }
    }
}

/// A timestamp of a socket's error queue.
#[derive(Default)]
struct Stamp {
    /// The last byte of the write that it refers to.
    byte: u32,
    kind: u32,
    /// Time, ns.
    at: u64,
}

/// The next timestamp, if there is one.
fn stamp(socket: &TcpStream) -> io::Result<Option<Stamp>> {
    // Room for both messages and their headers, aligned for headers.
    let mut control = [0u64; 32];
    // SAFETY: all zero is a valid value of this plain structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message has no data buffer, and one of the given length for control messages, which outlives the
    // call.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if read < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let mut stamp = Stamp::default();
    // SAFETY: the kernel filled in the control messages, which the macros traverse within the length that it has set. A
    // header identifies the following structure; it may not be aligned, and is copied.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&message);
        while let Some(header) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    stamp.at = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
                }
                (libc::SOL_IP, libc::IP_RECVERR) => {
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    (stamp.byte, stamp.kind) = (error.ee_data, error.ee_info);
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&message, at);
        }
    }
    Ok(Some(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_has_its_stamps_in_their_order() {
        let plan = RttPlan { size: 16 << 10, iters: 20, ..RttPlan::of_udp() };
        let tcp = run(&plan, 0, &AtomicBool::new(false)).unwrap();
        assert_eq!((tcp.kernel.len(), tcp.application.len()), (20, 20));
        assert!(tcp.kernel.min() > 0 && tcp.application.min() > 0);
    }
}
