//! A pair of ports connected by shared memory, in two processes of one host or in two threads.
//!
//! The memory is an anonymous file (memfd) that its creator names by `/proc/<pid>/fd/<n>`. Only processes that may
//! inspect the creator (same user, or root) can open it, a crash leaves nothing behind, and its size is sealed, so that
//! the peer cannot take mapped pages away. Both processes must be in one pid namespace.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use irnic_nic::copy_bytes;
use irnic_transports::qp::PeerProcess;
use irnic_transports::{Path, Time};

use super::link::{Header, Link, RING_BYTES, Side, region_len};
use super::region::{Region, SEALS, seals};
use super::stamp::RingClock;
use super::sync::{AtomicU64, Ordering};
use super::{MAX_FRAME, Port, PortCounters, RxFrame, RxIcrc, TxFrame, mapped_octets};

/// `IRNICSH` and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"IRNICSH\x03");

/// Configuration of a shared-memory link, chosen by its creator. [`ShmConfig::new`] makes one.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct ShmConfig {
    /// Address of the creator, the source of the frames it sends.
    pub local: IpAddr,
    /// Address of the opener.
    pub remote: IpAddr,
    /// Size of each ring in bytes, clamped to 128 KiB to 64 MiB and rounded up to a power of two. Default: 512 KiB,
    /// which stays in the caches.
    pub ring_bytes: usize,
}

impl ShmConfig {
    /// Returns the default configuration for a link between two addresses.
    pub fn new(local: IpAddr, remote: IpAddr) -> ShmConfig {
        ShmConfig { local, remote, ring_bytes: 512 << 10 }
    }

    /// Returns the configuration with another size of each ring in bytes (clamped to 128 KiB to 64 MiB and rounded up
    /// to a power of two).
    #[must_use]
    pub fn with_ring_bytes(self, ring_bytes: usize) -> ShmConfig {
        ShmConfig { ring_bytes, ..self }
    }
}

/// Why a shared-memory file was not accepted. [`ShmPort::open`] returns it inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShmError {
    /// The file belongs to another user.
    #[error("{path} belongs to user {owner}, not to user {user}")]
    Owner {
        /// The file.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// Effective user id of this process.
        user: u32,
    },
    /// The size of the file is not sealed: its owner could truncate it while it is mapped.
    #[error("{path} is not a sealed shared-memory file (seals {seals:#x}, {SEALS:#x} needed)")]
    Seals {
        /// The file.
        path: PathBuf,
        /// Seals of the file (F_GET_SEALS), -1 for a file that cannot have any.
        seals: i32,
    },
    /// A field of the header differs from what this version writes.
    #[error("{path} is not a shared-memory link of this version: {what} is {value:#x}, expected {expected:#x}")]
    Header {
        /// The file.
        path: PathBuf,
        /// Name of the field.
        what: &'static str,
        /// Value found.
        value: u64,
        /// Value expected.
        expected: u64,
    },
    /// The link has been opened before.
    #[error("{path} is in use by process {process}")]
    InUse {
        /// The file.
        path: PathBuf,
        /// Process id of the other side.
        process: u32,
    },
}

impl From<ShmError> for io::Error {
    fn from(e: ShmError) -> io::Error {
        let kind = match e {
            ShmError::Owner { .. } => io::ErrorKind::PermissionDenied,
            ShmError::InUse { .. } => io::ErrorKind::AddrInUse,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, e)
    }
}

/// One side of a shared-memory link.
pub struct ShmPort {
    link: Link,
    local: IpAddr,
    remote: IpAddr,
    /// Buffer that frames are copied to before they are parsed, if copying is on.
    copy: Option<Box<[u8]>>,
    /// Keeps the creator's path valid.
    _file: File,
}

impl ShmPort {
    /// Default number of polls before [`Port::wait`] sleeps, about 10 µs. A sleeping peer answers 70 to 85 µs late.
    pub const SPIN: u32 = 200;

    /// Creates a link and returns its first port, and the path with which the other process opens the second, once, by
    /// [`ShmPort::open`]. The path is valid as long as the port is alive.
    ///
    /// # Errors
    /// The system's error, if there is no memory or no file descriptor.
    pub fn create(config: &ShmConfig) -> io::Result<(ShmPort, PathBuf)> {
        let ring_bytes = config.ring_bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end()).next_power_of_two();
        let len = region_len(ring_bytes);
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"irnic-shm".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor with no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        // SAFETY: no memory is passed.
        if unsafe { libc::fchmod(fd, 0o600) } < 0 || unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let region = Arc::new(Region::map(file.as_fd(), len)?);
        let header = region.object::<Header>(0);
        store_address(&header.sides[0], config.local);
        store_address(&header.sides[1], config.remote);
        header.max_frame.store(MAX_FRAME as u64, Ordering::Relaxed);
        header.ring_bytes.store(ring_bytes as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        let path = PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id()));
        let link = Link::new(region, 0, ring_bytes, MAX_FRAME, RingClock::host());
        Ok((ShmPort::new(link, config.local, config.remote, file), path))
    }

    /// Opens the second port of a link by the path that [`ShmPort::create`] returned.
    ///
    /// # Errors
    /// A [`ShmError`] if the file belongs to another user, is not a link of this version, is not sealed, or has been
    /// opened before; otherwise the system's error.
    pub fn open(path: &FilePath) -> io::Result<ShmPort> {
        let name = || path.to_path_buf();
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        // SAFETY: no memory is passed.
        let user = unsafe { libc::geteuid() };
        let seals = seals(file.as_fd());
        let metadata = file.metadata()?;
        if metadata.uid() != user {
            return Err(ShmError::Owner { path: name(), owner: metadata.uid(), user }.into());
        }
        if seals < 0 || seals & SEALS != SEALS {
            return Err(ShmError::Seals { path: name(), seals }.into());
        }
        let wrong = |what, value, expected| ShmError::Header { path: name(), what, value, expected };
        let smallest = region_len(*RING_BYTES.start()) as u64;
        let largest = region_len(*RING_BYTES.end()) as u64;
        let len = metadata.len();
        if !(smallest..=largest).contains(&len) {
            return Err(wrong("the file's size", len, smallest).into());
        }
        let ring_bytes = (len as usize - region_len(0)) / 2;
        if !ring_bytes.is_power_of_two() || region_len(ring_bytes) as u64 != len {
            return Err(wrong("the file's size", len, region_len(ring_bytes.next_power_of_two()) as u64).into());
        }
        let region = Arc::new(Region::map(file.as_fd(), len as usize)?);
        let header = region.object::<Header>(0);
        let fields = [
            ("the magic", &header.magic, MAGIC),
            ("the ring size", &header.ring_bytes, ring_bytes as u64),
            ("the largest frame", &header.max_frame, MAX_FRAME as u64),
        ];
        for (what, field, expected) in fields {
            let value = field.load(Ordering::Acquire);
            if value != expected {
                return Err(wrong(what, value, expected).into());
            }
        }
        let claim = &header.sides[1].process;
        if let Err(process) = claim.compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Acquire) {
            return Err(ShmError::InUse { path: name(), process }.into());
        }
        let (local, remote) = (load_address(&header.sides[1]), load_address(&header.sides[0]));
        let link = Link::new(region, 1, ring_bytes, MAX_FRAME, RingClock::host());
        Ok(ShmPort::new(link, local, remote, file))
    }

    /// Creates both ports of a link in this process, for two threads. The second has the addresses reversed.
    pub fn pair(config: &ShmConfig) -> io::Result<(ShmPort, ShmPort)> {
        let (creator, path) = ShmPort::create(config)?;
        let opener = ShmPort::open(&path)?;
        Ok((creator, opener))
    }

    fn new(mut link: Link, local: IpAddr, remote: IpAddr, file: File) -> ShmPort {
        link.spin = ShmPort::SPIN;
        let copy = Some(vec![0; MAX_FRAME].into());
        ShmPort { link, local, remote, copy, _file: file }
    }

    /// Returns the address of this side.
    pub fn local_addr(&self) -> IpAddr {
        self.local
    }

    /// Returns the address of the other side.
    pub fn remote_addr(&self) -> IpAddr {
        self.remote
    }

    /// Sets whether each frame is copied into private memory before the receiver sees it (the default).
    ///
    /// Without the copy, a peer that violates the protocol can change a frame while it is parsed, so switch it off only
    /// for trusted peers. It saves little: nothing between distant cores, a tenth between cores that share a cache.
    pub fn set_private_copy(&mut self, on: bool) {
        self.copy = on.then(|| vec![0; MAX_FRAME].into());
    }

    /// Sets how many times [`Port::wait`] polls before it sleeps (default [`ShmPort::SPIN`]).
    pub fn set_spin(&mut self, polls: u32) {
        self.link.spin = polls;
    }
}

fn store_address(side: &Side, address: IpAddr) {
    for (word, half) in side.address.iter().zip(mapped_octets(address).as_chunks::<8>().0) {
        word.store(u64::from_ne_bytes(*half), Ordering::Relaxed);
    }
}

fn load_address(side: &Side) -> IpAddr {
    let half = |word: &AtomicU64| u128::from(u64::from_be(word.load(Ordering::Relaxed)));
    let [high, low] = &side.address;
    IpAddr::V6(Ipv6Addr::from(half(high) << 64 | half(low))).to_canonical()
}

impl Port for ShmPort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn wire_path(&self, path: &Path) -> Path {
        Path { src: self.local, dst: self.remote, ..*path }
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let path = frame.path;
        let [a, b] = path.udp_src.to_le_bytes();
        self.link.push(now, frame.len, u32::from_le_bytes([a, b, path.traffic_class, path.hop_limit]), fill)
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        Ok(self.link.flush()?)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let (src, dst, copy) = (self.remote, self.local, &mut self.copy);
        Ok(self.link.receive(now, budget, |tag, arrived, bytes| {
            let [a, b, traffic_class, hop_limit] = tag.to_le_bytes();
            let path = Path { src, dst, udp_src: u16::from_le_bytes([a, b]), traffic_class, hop_limit };
            let bytes = match copy {
                None => bytes,
                Some(copy) => {
                    let copy = &mut copy[..bytes.len()];
                    copy_bytes(bytes, copy);
                    copy
                }
            };
            each(RxFrame { path, bytes, arrived, icrc: RxIcrc::Exact });
        })?)
    }

    fn mark_answered(&mut self) {
        self.link.mark_answered();
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        Ok(self.link.wait(timeout)?)
    }

    fn peer_process(&mut self, _path: &Path, _dest_qp: u32) -> PeerProcess {
        self.link.peer_process()
    }

    fn counters(&self) -> PortCounters {
        self.link.counters
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
