//! Tells others what a device of this process has counted: who reads the files under /sys/class/infiniband that `irnic
//! run --sysfs` shows.
//!
//! A thread waits at a socket with an abstract name, which ends with the process. A datagram that names a file is
//! answered with the counter's value, eight bytes in the host's order. There is such a thread only in processes that are
//! shown those files themselves; packets pay for nothing.

use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
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
    let name = SocketAddr::from_abstract_name(format!("{}{slot}", counter_socket(unit.info())))?;
    let socket = UnixDatagram::bind_addr(&name)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    room::ensure(STACK)?;
    forget_in_children();
    let Some(place) = SOCKETS.iter().find(|s| s.load(Ordering::Relaxed) < 0) else { return Ok(()) };
    let unit = unit.clone();
    let fd = socket.as_raw_fd();
    super::background::with_signals_blocked(|| {
        std::thread::Builder::new().name("irnic-counters".into()).stack_size(STACK).spawn(move || {
            answer(&socket, &unit);
            // The array names it as long as the process lives.
            std::mem::forget(socket);
        })
    })?;
    place.store(fd, Ordering::Relaxed);
    Ok(())
}

/// Answers whoever asks, for ever.
fn answer(socket: &UnixDatagram, unit: &Unit) {
    loop {
        let mut file = [0u8; LONGEST];
        let (len, from) = match socket.recv_from(&mut file) {
            Ok(asked) => asked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let counted = counted(unit);
        let value = std::str::from_utf8(&file[..len]).ok().and_then(|file| counter_value(file, &counted?));
        if let Some(value) = value {
            // Who does not take the answer does not get it.
            let _ = socket.send_to_addr(&value.to_ne_bytes(), &from);
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
