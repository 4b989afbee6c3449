//! Tells others what a device of this process has counted: who reads the files under /sys/class/infiniband that `irnic
//! run --sysfs` shows.
//!
//! A thread waits at a socket with an abstract name, which ends with the process. A datagram that names a file is
//! answered with the counter's value, eight bytes in the host's order. There is such a thread only in processes that are
//! shown those files themselves; packets pay for nothing.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use irnic_ports::Port;
use irnic_ports::host::Slot;
use irnic_transports::room;

use super::unit::Unit;
use crate::device::{Counted, counter_socket, counter_value};

/// Set by `irnic run --sysfs`.
const WANTED: &str = "IRNIC_SYSFS";
/// The thread's stack.
const STACK: usize = 64 << 10;
/// How long whoever asks may be kept waiting by threads that are inside the device: they ask for longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest name of a file.
const LONGEST: usize = 64;
/// Devices of a process that tell their counters.
const DEVICES: usize = 16;

/// The sockets of this process, or -1.
static SOCKETS: [AtomicI32; DEVICES] = [const { AtomicI32::new(-1) }; DEVICES];

/// Begins to tell a unit's counters, if anybody may want to know. Without memory, descriptors or threads nobody gets
/// to know.
pub(super) fn serve(unit: &Arc<Unit>) {
    if std::env::var_os(WANTED).is_none() || unit.tells.swap(true, Ordering::Relaxed) {
        return;
    }
    let _ = try_serve(unit);
}

fn try_serve(unit: &Arc<Unit>) -> io::Result<()> {
    let slot = Slot::of(unit.state.lock().nic().qp_numbers().start);
    let Some(slot) = slot else { return Ok(()) };
    let socket = bind(&format!("{}{slot}", counter_socket(unit.info())))?;
    room::ensure(STACK)?;
    forget_in_children();
    let Some(place) = SOCKETS.iter().find(|s| s.load(Ordering::Relaxed) < 0) else { return Ok(()) };
    let unit = unit.clone();
    let fd = socket.as_raw_fd();
    super::background::with_signals_blocked(|| {
        std::thread::Builder::new().name("irnic-counters".into()).stack_size(STACK).spawn(move || answer(fd, &unit))
    })?;
    // The thread has it as long as the process lives.
    place.store(socket.into_raw_fd(), Ordering::Relaxed);
    Ok(())
}

/// Returns a socket for datagrams with an abstract name.
fn bind(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // The first byte stays NUL: the name is in no file system (unix(7)).
    let Some(place) = address.sun_path.get_mut(1..=name.len()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    for (to, from) in place.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: a valid address of the length given.
    if unsafe { libc::bind(fd, (&raw const address).cast(), len as libc::socklen_t) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Answers whoever asks, for ever.
fn answer(fd: RawFd, unit: &Unit) {
    loop {
        let mut file = [0u8; LONGEST];
        // SAFETY: all zeros are a valid address.
        let mut from: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: `file` and `from` have the lengths given.
        let got =
            unsafe { libc::recvfrom(fd, file.as_mut_ptr().cast(), LONGEST, 0, (&raw mut from).cast(), &raw mut len) };
        let Ok(got) = usize::try_from(got) else {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return;
        };
        let counted = counted(unit);
        let value = std::str::from_utf8(&file[..got]).ok().and_then(|file| counter_value(file, &counted?));
        if let Some(value) = value {
            let bytes = value.to_ne_bytes();
            // SAFETY: the bytes and the address that `recvfrom` wrote. Who does not take the answer does not get it.
            unsafe {
                libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT, (&raw const from).cast(), len);
            }
        }
    }
}

/// Returns what a unit has counted; `None` if some thread is inside and does not come out in time.
fn counted(unit: &Unit) -> Option<Counted> {
    let state = unit.state.try_lock_for(PATIENCE)?;
    Some(Counted { nic: *state.nic_port.nic.counters(), port: state.nic_port.port.counters() })
}

/// Closes the sockets in children: there, nobody would answer.
fn forget_in_children() {
    extern "C" fn close() {
        for socket in &SOCKETS {
            let fd = socket.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                // SAFETY: the child's copy, which only this array names.
                unsafe { libc::close(fd) };
            }
        }
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handler stays, this object being never unloaded, and only closes descriptors.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(close));
    });
}
