//! Serves the counters of a device of this process: to readers of the files under /sys/class/infiniband that `irnic run
//! --sysfs` provides, and to a running lab.
//!
//! A thread waits at a socket with an abstract name, which disappears with the process. Any datagram makes it update
//! the unit's page ([`OwnPage`]). A datagram that names a file is answered with the counter's value, eight bytes in the
//! host's order. The thread exists only in processes that may be queried; packets do not pay for it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use irnic_ports::host::Slot;
use irnic_transports::room;

use super::unit::Unit;
use crate::config::PortKind;
use crate::device::{Counted, counter_socket, counter_value};
use crate::stats::page::OwnPage;

/// Set by `irnic run --sysfs`.
const WANTED: &str = "IRNIC_SYSFS";
/// The thread's stack.
const STACK: usize = 64 << 10;
/// How long a query waits for threads that are inside the device; the client's timeout is longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of a file name.
const LONGEST: usize = 64;
/// Maximum number of devices of a process that serve their counters.
const DEVICES: usize = 16;

/// The sockets of this process, or -1.
static SOCKETS: [AtomicI32; DEVICES] = [const { AtomicI32::new(-1) }; DEVICES];

/// Starts serving a unit's counters, if they may be queried. Without memory, descriptors or threads they are not
/// served.
pub(super) fn serve(unit: &Arc<Unit>) {
    let in_lab = matches!(unit.info().config.port, PortKind::Lab(_));
    if !in_lab && std::env::var_os(WANTED).is_none() || unit.serves_counters.swap(true, Ordering::Relaxed) {
        return;
    }
    let _ = try_serve(unit);
}

fn try_serve(unit: &Arc<Unit>) -> io::Result<()> {
    let slot = Slot::of(unit.state.lock().nic().qp_numbers().start);
    let Some(slot) = slot else { return Ok(()) };
    let name = format!("{}{slot}", counter_socket(unit.info()));
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let page = Box::new(OwnPage::create()?);
    let mut state = unit.state.lock();
    state.nic_port.port.show(page.sheet(), &name)?;
    state.page = Some(page);
    state.publish(false);
    drop(state);
    room::ensure(STACK)?;
    forget_in_children();
    let Some(place) = SOCKETS.iter().find(|s| s.load(Ordering::Relaxed) < 0) else { return Ok(()) };
    let unit = unit.clone();
    let fd = socket.as_raw_fd();
    super::background::with_signals_blocked(|| {
        std::thread::Builder::new().name("irnic-stats".into()).stack_size(STACK).spawn(move || {
            answer(&socket, &unit);
            // The array refers to it as long as the process lives.
            std::mem::forget(socket);
        })
    })?;
    place.store(fd, Ordering::Relaxed);
    Ok(())
}

/// Answers queries forever.
fn answer(socket: &UnixDatagram, unit: &Unit) {
    loop {
        let mut file = [0u8; LONGEST];
        let (len, from) = match socket.recv_from(&mut file) {
            Ok(query) => query,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let counted = counted(unit);
        let value = std::str::from_utf8(&file[..len]).ok().and_then(|file| counter_value(file, &counted?));
        if let Some(value) = value {
            // A client that does not receive the answer misses it.
            let _ = socket.send_to_addr(&value.to_ne_bytes(), &from);
        }
    }
}

/// Updates a unit's page, and returns the unit's counters in it; `None` if another thread stays inside the unit for too
/// long.
fn counted(unit: &Unit) -> Option<Counted> {
    let mut state = unit.state.try_lock_for(PATIENCE)?;
    state.publish(false);
    let (nic, port) = state.page.as_ref()?.counters()?;
    Some(Counted { nic, port })
}

/// Closes the sockets in children, which would not answer.
fn forget_in_children() {
    extern "C" fn close() {
        for socket in &SOCKETS {
            let fd = socket.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                // SAFETY: the child's copy, to which only this array refers.
                unsafe { libc::close(fd) };
            }
        }
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handler remains valid, as this object is never unloaded, and only closes descriptors.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(close));
    });
}
