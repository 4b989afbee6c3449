//! Opening a device: port, NIC, processing unit.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::capture::Captured;
use irnic_ports::frames::{FrameConfig, FramePort, FrameSpec};
use irnic_ports::host::{HostConfig, HostPort, HostUdp, Slot};
use irnic_ports::host_now as now;
use irnic_ports::impair::Impaired;
use irnic_ports::lab::{LabPort, LabSpec};
use irnic_ports::paced::Paced;
use irnic_transports::room;

use super::device::DeviceRuntime;
use super::port::{DevicePort, seed_at};
use super::units::{Open, Parts};
use crate::config::{PortKind, file_of};
use crate::device::{DeviceInfo, Live};
use crate::gid::address_of;
use irnic_ports::output::{Output, OutputError};

/// Memory of a device without objects and links, in bytes: twice the measured value.
const MEMORY: usize = 2 << 20;

impl DeviceRuntime {
    /// Opens a device's port and creates its NIC.
    pub(crate) fn open(live: &Arc<Live>) -> io::Result<DeviceRuntime> {
        let first = parts(live.get(), true)?;
        let open: Option<Open> = may_have_several(live.get()).then(|| {
            let live = live.clone();
            Box::new(move || parts(live.get(), false)) as Open
        });
        DeviceRuntime::with_units(live.clone(), first, open)
    }
}

/// Returns whether a device may have several units. Processing that applies to all packets of a process, in order or at
/// a rate, must be in one place, and an Ethernet station is one.
fn may_have_several(info: &DeviceInfo) -> bool {
    let config = &info.config;
    let one_place = matches!(config.port, PortKind::Frames(_) | PortKind::Lab(_));
    !one_place && config.impair.is_empty() && config.rate.is_none() && config.pcap.is_none()
}

/// Opens a port and creates a NIC, for the first unit of a device or for another.
fn parts(info: &DeviceInfo, first: bool) -> io::Result<Parts> {
    room::ensure(MEMORY)?;
    let (port, slot) = match &info.config.port {
        PortKind::Frames(spec) => frame_port(info, spec)?,
        PortKind::Lab(spec) => lab_port(spec)?,
        PortKind::Auto => host_port(info, HostUdp::On, first)?,
        PortKind::Shm => host_port(info, HostUdp::Off, first)?,
        PortKind::Udp => host_port(info, HostUdp::Only, first)?,
    };
    let first_qpn = slot.first_qpn();
    let seed = seed_at(&*port);
    let mut nic = Nic::new(NicConfig { first_qpn, seed, ..info.nic_config() });
    nic.set_memory_reader(read_if_mapped);
    let port = wrapped(port, first_qpn, info)?;
    // Peers on this host omit ICRCs, whatever this end does to packets.
    Ok((nic, port, Icrc::Needed))
}

/// Copies this process's memory if it is mapped: the kernel copies it, and fails with EFAULT where an access would end
/// the process. If the kernel refuses the call altogether, as in some sandboxes, it is read directly.
fn read_if_mapped(addr: u64, to: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: `to` is written, for its length; the kernel checks what is read.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if let Ok(read) = usize::try_from(read) {
        return read == to.len();
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
        return false;
    }
    // SAFETY: the application has promised that its memory stays as long as it is registered.
    unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, to.as_mut_ptr(), to.len()) };
    true
}

/// Opens the port between this process and others, on this host and beyond. The first unit's reports warnings.
fn host_port(info: &DeviceInfo, udp: HostUdp, first: bool) -> io::Result<(Box<dyn DevicePort>, Slot)> {
    let config = &info.config;
    let addresses: Vec<IpAddr> = info.gids.iter().map(address_of).collect();
    let host = HostConfig::new(info.domain(), addresses)
        .with_ring_bytes(config.ring)
        .with_cross_memory(config.cross_memory)
        .with_udp(udp)
        .with_segmentation(config.segmentation)
        .with_socket_buffer(config.socket_buffer)
        .with_kernel_stamps(config.kernel_stamps);
    let mut host = if first { HostPort::open(&host)? } else { further_port(host)? };
    for warning in host.take_warnings().iter().filter(|_| first) {
        eprintln!("irnic: {}: {warning}", config.name);
    }
    let slot = host.slot();
    Ok((Box::new(host), slot))
}

/// Number of slots that are tried for a unit after a process's first.
const TRIES: u32 = 16;

/// Opens the port of a unit after a process's first. It takes a slot of the upper half only: the others are reserved
/// for processes.
fn further_port(config: HostConfig) -> io::Result<HostPort> {
    const HALF: u16 = Slot::MAX / 2;
    let mut tries = TRIES;
    loop {
        let mut random = [0; 2];
        // SAFETY: two bytes are written. Without entropy the numbers of an ended process may be reused soon.
        unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        let slot = Slot::new(HALF + 1 + u16::from_ne_bytes(random) % HALF);
        tries -= 1;
        match HostPort::open(&config.clone().with_slot(slot)) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            opened => return opened,
        }
    }
}

/// Opens the port of a station on an Ethernet.
fn frame_port(info: &DeviceInfo, spec: &FrameSpec) -> io::Result<(Box<dyn DevicePort>, Slot)> {
    let addresses = info.gids.iter().map(address_of).collect();
    let config = FrameConfig::new(spec.clone(), addresses).with_socket_buffer(info.config.socket_buffer);
    let port = FramePort::open(&config)?;
    let slot = port.slot();
    Ok((Box::new(port), slot))
}

/// Opens the port of a process in a lab.
fn lab_port(spec: &LabSpec) -> io::Result<(Box<dyn DevicePort>, Slot)> {
    let port = LabPort::open(spec)?;
    let slot = port.slot();
    tell_clock();
    Ok((Box::new(port), slot))
}

/// Has the time stamp counter follow the lab's time, if the program's clocks do: the preloaded libirnic_clock.so does
/// it.
fn tell_clock() {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"irnic_clock_trap_counter".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the library's function of this name has this type.
        let trap: extern "C" fn() = unsafe { std::mem::transmute(found) };
        trap();
    }
}

/// Puts the configured wrappers around a port: impairments, a rate, a capture.
fn wrapped(mut port: Box<dyn DevicePort>, first_qpn: u32, info: &DeviceInfo) -> io::Result<Box<dyn DevicePort>> {
    let config = &info.config;
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
    Ok(port)
}

/// Number of names that are tried for a process's captures.
const CAPTURES: u32 = 100;

/// Creates the file of this process's capture. A recording of another process is never overwritten: if the name does
/// not contain the process id and the file exists, the process id is appended.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_where_it_is_mapped() {
        const PAGE: usize = 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, of which the second page is unmapped and to which nothing else refers.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            pages.cast::<u8>().write_bytes(7, PAGE);
            assert_eq!(libc::munmap(pages.cast::<u8>().add(PAGE).cast(), PAGE), 0);
            pages as u64
        };
        let mut to = [0; 100];
        assert!(read_if_mapped(pages + PAGE as u64 - 100, &mut to));
        assert_eq!(to, [7; 100]);
        for beyond in [PAGE - 99, PAGE, PAGE + 1000] {
            assert!(!read_if_mapped(pages + beyond as u64, &mut to), "{beyond}");
        }
    }
}
