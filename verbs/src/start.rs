//! Bringing a device to life: port, NIC, processing unit.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::capture::Captured;
use irnic_ports::host::{HostConfig, HostPort, HostUdp, domain};
use irnic_ports::impair::Impaired;
use irnic_ports::paced::Paced;
use irnic_transports::room;

use crate::config::{PortKind, file_of};
use crate::device::{self, Device, DeviceInfo};
use crate::gid::address_of;
use crate::output::{Output, OutputError};
use crate::stats;
use crate::unit::{DevicePort, Unit, now};

/// Queue pairs of one process: what the lower bits of a queue pair number count.
pub const MAX_QPS: u32 = 1 << 14;
/// Packets that a queue pair sends before the next one's turn: what UDP sends as one train.
const QUANTUM: u32 = 16;

/// What a device takes before it has any objects and links, in bytes: half of it measured.
const MEMORY: usize = 2 << 20;

/// Opens a device's port and puts a NIC behind it.
pub fn unit(info: &DeviceInfo) -> io::Result<Arc<Unit>> {
    room::ensure(MEMORY)?;
    let config = &info.config;
    let addresses: Vec<IpAddr> = info.gids.iter().map(address_of).collect();
    let udp = match config.port {
        PortKind::Auto => HostUdp::On,
        PortKind::Shm => HostUdp::Off,
        PortKind::Udp => HostUdp::Only,
    };
    let mut host = HostPort::open(&HostConfig {
        ring_bytes: config.ring,
        udp,
        segmentation: config.segmentation,
        socket_buffer: config.socket_buffer,
        kernel_stamps: config.kernel_stamps,
        ..HostConfig::new(domain(&config.name, &addresses), addresses)
    })?;
    for warning in host.take_warnings() {
        eprintln!("irnic: {}: {warning}", config.name);
    }
    let first_qpn = host.slot().first_qpn();
    let mut seed = [0; 32];
    // SAFETY: 32 bytes are written. Without entropy keys can be guessed, and nothing else is the matter.
    unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    let nic = Nic::new(NicConfig {
        max_qps: MAX_QPS,
        first_qpn,
        quantum: QUANTUM,
        seed,
        clock: config.clock,
        mtu: info.mtu,
        ..NicConfig::default()
    });
    let mut port: DevicePort = Box::new(host);
    if !config.impair.is_empty() {
        port = Box::new(Impaired::new(port, &config.impair, config.seed, u64::from(first_qpn)));
    }
    if let Some(rate) = config.rate {
        port = Box::new(Paced::new(port, rate));
    }
    if let Some(path) = &config.pcap {
        let file = capture_file(path)?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = since_1970.saturating_sub(Duration::from_nanos(now().0));
        port = Box::new(Captured::new(port, file, &config.name, epoch));
    }
    // Peers of this host leave ICRCs away, whatever this end does to packets.
    let unit = Unit::new(info.clone(), nic, port, Icrc::Needed)?;
    stats::at_exit();
    Ok(unit)
}

/// Names that are tried for a process's captures.
const CAPTURES: u32 = 100;

/// Makes the file of this process's capture. What another process recorded is never overwritten: where the name does not tell
/// processes apart and there is a file already, the process id is added to it.
fn capture_file(path: &Path) -> io::Result<Output> {
    let pid = std::process::id();
    let own = file_of(path, pid);
    let stem = own.file_stem().unwrap_or_default().to_string_lossy();
    let extension = own.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    // A process may have several devices.
    let others = (1..=CAPTURES).map(|attempt| {
        let number = if attempt == 1 { String::new() } else { format!(".{attempt}") };
        own.with_file_name(format!("{stem}.{pid}{number}{extension}"))
    });
    let failed = |path: &Path, e: OutputError| Err(io::Error::other(format!("capture {}: {e}", path.display())));
    for name in std::iter::once(own.clone()).chain(others) {
        match Output::create(&name) {
            Ok(file) => return Ok(file),
            Err(OutputError::Taken) => {}
            Err(e) => return failed(&name, e),
        }
    }
    failed(&own, OutputError::Taken)
}

/// Has children of this process begin anew: a NIC, its threads and its connections stay with the parent.
pub(crate) fn on_fork() {
    extern "C" fn prepare() {
        device::made().iter().for_each(Device::before_fork);
    }
    extern "C" fn parent() {
        // SAFETY: the C library calls this in the thread that called `prepare`.
        device::made().iter().for_each(|d| unsafe { d.after_fork(false) });
    }
    extern "C" fn child() {
        // SAFETY: as above; the child is a copy of that thread.
        device::made().iter().for_each(|d| unsafe { d.after_fork(true) });
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handlers touch only what belongs to this library.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    });
}
