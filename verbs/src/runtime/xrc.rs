//! Domains of extended reliable connections (XRC), and the queue pairs in them that several handles share.
//!
//! A domain is identified by a file: all who open it with a descriptor of the same file get the same domain, as long as
//! it is open. Domains, like all objects of a device, belong to one process.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use irnic_nic::{NicError, QpConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Event, XrcdId};
use parking_lot::Mutex;
use thiserror::Error;

use super::listener::{Listener, Owner};
use super::unit::Unit;
use super::units::Place;

/// Error of opening a domain.
#[derive(Debug, Error)]
pub(crate) enum XrcError {
    /// The descriptor is not that of a file.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The device has no room for it.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// It exists, and the caller requires a new one.
    #[error("the file has a domain already, and O_EXCL asks for a new one")]
    Exists,
    /// It does not exist, and the caller does not allow a new one.
    #[error("the file has no domain yet, and O_CREAT is not given")]
    Absent,
}

/// Domains identified by files.
#[derive(Default)]
pub(super) struct NamedDomains(Mutex<Vec<Weak<XrcDomain>>>);

impl NamedDomains {
    /// Returns the domain of a file, or a private one. `create`: it may be new; `exclusive`: it must be new.
    pub(super) fn open(
        &self,
        place: impl FnOnce() -> Place,
        file: Option<BorrowedFd<'_>>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<XrcDomain>, XrcError> {
        let Some(fd) = file else {
            return if create { XrcDomain::new(place(), None) } else { Err(XrcError::Absent) };
        };
        let file = keep(fd)?;
        let metadata = file.metadata()?;
        let name = (metadata.dev(), metadata.ino());
        let mut domains = self.0.lock();
        domains.retain(|domain| domain.strong_count() > 0);
        let found = domains.iter().filter_map(Weak::upgrade).find(|d| d.file.as_ref().is_some_and(|f| f.1 == name));
        match found {
            Some(_) if exclusive => Err(XrcError::Exists),
            Some(domain) => Ok(domain),
            None if !create => Err(XrcError::Absent),
            None => {
                let domain = XrcDomain::new(place(), Some((file, name)))?;
                domains.push(Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }
}

/// Returns a descriptor of the same file: while it is open, no other file has its number.
fn keep(fd: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: a borrowed descriptor is open.
    let own = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { File::from_raw_fd(own) })
}

/// An XRC domain, deallocated with its last reference.
pub(crate) struct XrcDomain {
    place: Place,
    id: XrcdId,
    /// Its identity: the file, with its device and inode number.
    file: Option<(File, (u64, u64))>,
    targets: Mutex<Vec<Weak<Target>>>,
}

impl XrcDomain {
    fn new(place: Place, file: Option<(File, (u64, u64))>) -> Result<Arc<XrcDomain>, XrcError> {
        let id = place.unit().lock().nic().alloc_xrcd()?;
        Ok(Arc::new(XrcDomain { place, id, file, targets: Mutex::default() }))
    }

    /// Returns the unit in which its queues and queue pairs are.
    pub(crate) fn unit(&self) -> &Arc<Unit> {
        self.place.unit()
    }

    /// Returns the NIC's handle.
    pub(crate) fn id(&self) -> XrcdId {
        self.id
    }

    /// Creates a target queue pair and its first handle, whose listener `listen` returns.
    pub(crate) fn create_target(
        self: &Arc<Self>,
        transport: TransportConfig,
        owner: Owner,
        listen: impl FnOnce(&Arc<Target>) -> (usize, Box<dyn Listener>),
    ) -> Result<(), NicError> {
        let mut made = None;
        self.unit().lock().create_qp(&QpConfig::xrc_target(self.id, transport), owner, |number| {
            let target = Arc::new(Target { domain: self.clone(), number, handles: Arc::default() });
            let (key, listener) = listen(&target);
            target.handles.lock().push(Handle { key, owner, listener });
            let everyone = Everyone(target.handles.clone());
            made = Some(target);
            Box::new(everyone)
        })?;
        self.targets.lock().extend(made.as_ref().map(Arc::downgrade));
        Ok(())
    }

    /// Returns the target queue pair with a number; `None` if there is none in this domain.
    pub(crate) fn target(&self, number: u32) -> Option<Arc<Target>> {
        let mut targets = self.targets.lock();
        targets.retain(|target| target.strong_count() > 0);
        targets.iter().filter_map(Weak::upgrade).find(|target| target.number == number)
    }
}

impl Drop for XrcDomain {
    fn drop(&mut self) {
        // It is empty: its queue pairs and the owners of its queues hold references to it.
        let _ = self.unit().lock().nic().dealloc_xrcd(self.id);
    }
}

/// A target queue pair, which exists as long as it has handles (ibv_open_qp(3)).
pub(crate) struct Target {
    domain: Arc<XrcDomain>,
    number: u32,
    handles: Arc<Mutex<Vec<Handle>>>,
}

struct Handle {
    key: usize,
    owner: Owner,
    listener: Box<dyn Listener>,
}

impl Target {
    /// Returns the queue pair number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Adds a handle, which receives the queue pair's events. Returns false if the last one was closed meanwhile.
    pub(crate) fn open(&self, key: usize, owner: Owner, listener: Box<dyn Listener>) -> bool {
        let _state = self.domain.unit().lock();
        let mut handles = self.handles.lock();
        if handles.is_empty() {
            return false;
        }
        handles.push(Handle { key, owner, listener });
        true
    }

    /// Removes a handle, and the queue pair with the last one.
    pub(crate) fn close(&self, key: usize) -> Result<(), NicError> {
        let mut state = self.domain.unit().lock();
        let mut handles = self.handles.lock();
        match handles.iter().find(|handle| handle.key != key) {
            Some(other) => state.give_qp(self.number, other.owner),
            None => state.destroy_qp(self.number)?,
        }
        handles.retain(|handle| handle.key != key);
        Ok(())
    }
}

/// Notifies all handles of a queue pair.
struct Everyone(Arc<Mutex<Vec<Handle>>>);

impl Listener for Everyone {
    fn event(&self, event: Event) {
        self.0.lock().iter().for_each(|handle| handle.listener.event(event));
    }
}
