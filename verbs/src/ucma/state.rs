//! Files and ids: the state that the kernel would keep for each open `/dev/infiniband/rdma_cm`.
//!
//! One lock protects all of it. It comes after a unit's lock: the communication manager's listener takes it with the
//! unit's held, so a thread that holds this one must not lock a unit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use irnic_cm::{Cm, CmError, CmId, PortSpace, QpKind};
use irnic_ports::host::ServiceClaim;
use parking_lot::{Mutex, MutexGuard};

use super::abi::{EventResp, event, zeroed};
use super::address::Address;
use crate::errno::{Errno, Result};
use crate::runtime::forked;

/// Maximum number of ids of a process: librdmacm has room for this many handles.
const MAX_IDS: usize = 1 << 16;

/// An id of a device's communication manager: the device's index in the list, and the manager's handle.
pub(super) type DeviceCmId = (usize, CmId);

/// An event that waits to be taken.
pub(super) struct Queued {
    /// The id whose events it counts among: the listener's for a connection request.
    pub(super) id: u32,
    /// The new id that it carries.
    pub(super) new: Option<u32>,
    /// The multicast group that it concerns.
    pub(super) group: Option<u32>,
    pub(super) resp: EventResp,
}

/// An open file. The application has the read end of a pipe, which contains a byte for each event: so it can wait for
/// one with any function that waits for descriptors, and its `O_NONBLOCK` determines whether GET_EVENT waits.
struct File {
    /// The application's end.
    read_end: RawFd,
    write_end: OwnedFd,
    queue: VecDeque<Queued>,
}

/// A claim on a service id, among the processes of a device, and the number of ids that share it.
struct Claimed {
    users: usize,
    claim: Option<ServiceClaim>,
}

/// An id of librdmacm.
pub(super) struct Id {
    /// The application's identifier for it; 0 until a request is accepted, when it has no events.
    pub(super) uid: u64,
    pub(super) file: RawFd,
    pub(super) space: PortSpace,
    pub(super) kind: QpKind,
    /// Its bound or source address.
    pub(super) src: Option<Address>,
    /// Its resolved destination.
    pub(super) dst: Option<Address>,
    /// The device that it is bound to.
    pub(super) device: Option<usize>,
    /// Its ids in the communication managers: one, or for the wildcard one on each device.
    pub(super) cm_ids: Vec<DeviceCmId>,
    /// Claims on services: device and service id.
    pub(super) claims: Vec<(usize, u64)>,
    pub(super) options: Options,
    /// It was created for a peer's request.
    pub(super) passive: bool,
    pub(super) route_resolved: bool,
    /// Events that the application has taken.
    pub(super) reported: u32,
}

/// Options set by SET_OPTION.
#[derive(Copy, Clone, Default)]
pub(super) struct Options {
    pub(super) tos: Option<u8>,
    pub(super) ack_timeout: Option<u8>,
    pub(super) reuse: bool,
    pub(super) afonly: Option<bool>,
}

impl Options {
    /// Applies the options to an id of a communication manager.
    pub(super) fn apply(self, cm: &mut Cm, id: CmId) -> std::result::Result<(), CmError> {
        self.tos.map_or(Ok(()), |tos| cm.set_tos(id, tos))?;
        self.ack_timeout.map_or(Ok(()), |code| cm.set_ack_timeout(id, code))?;
        self.afonly.map_or(Ok(()), |afonly| cm.set_afonly(id, afonly))
    }
}

impl Id {
    pub(super) fn new(uid: u64, file: RawFd, space: PortSpace, kind: QpKind) -> Id {
        Id {
            uid,
            file,
            space,
            kind,
            src: None,
            dst: None,
            device: None,
            cm_ids: Vec::new(),
            claims: Vec::new(),
            options: Options::default(),
            passive: false,
            route_resolved: false,
            reported: 0,
        }
    }
}

/// A multicast group that an id has joined.
pub(super) struct Group {
    pub(super) id: u32,
    uid: u64,
    reported: u32,
}

/// Target of a handle.
enum Entry {
    Id(Box<Id>),
    Group(Group),
}

/// All files and ids of the process.
pub(super) struct State {
    files: BTreeMap<RawFd, File>,
    /// Ids and groups by their handles, from 0 on.
    entries: Vec<Option<Entry>>,
    /// Unused handles below the length of `entries`.
    free: BTreeSet<u32>,
    /// Number of entries that are groups.
    groups: usize,
    /// Handles by the ids of communication managers.
    by_cm_id: BTreeMap<DeviceCmId, u32>,
    claims: BTreeMap<(usize, u64), Claimed>,
}

static STATE: Mutex<State> = Mutex::new(State::new());

/// Locks the state.
pub(super) fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// Discards everything in the child of a fork: its ids and devices are the parent's.
pub(super) fn forget_after_fork() {
    // SAFETY: the child has one thread. What another thread of the parent was doing to the state is never finished, and
    // nothing of it is dropped: descriptors are close-on-exec, and the child may leak memory.
    unsafe {
        STATE.data_ptr().write(State::new());
        forked::unlock(&STATE, true);
    }
}

/// Remains of a removed id: to be destroyed in the communication managers after the state is unlocked.
#[derive(Default)]
pub(super) struct Removed {
    pub(super) cm_ids: Vec<DeviceCmId>,
    /// Events that the application has taken.
    pub(super) reported: u32,
}

impl State {
    const fn new() -> State {
        State {
            files: BTreeMap::new(),
            entries: Vec::new(),
            free: BTreeSet::new(),
            groups: 0,
            by_cm_id: BTreeMap::new(),
            claims: BTreeMap::new(),
        }
    }

    // Files.

    /// Opens a file and returns the application's descriptor.
    pub(super) fn open(&mut self, flags: i32) -> io::Result<(RawFd, Vec<Removed>)> {
        let closed: Vec<RawFd> = self.files.iter().filter(|(_, file)| file.is_closed()).map(|(fd, _)| *fd).collect();
        let mut removed: Vec<Removed> = closed.into_iter().flat_map(|fd| self.close(fd)).collect();
        let mut ends = [0; 2];
        // SAFETY: space for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let [read_end, write_end] = ends;
        // SAFETY: the application's descriptor blocks or not, as requested; the other never does. Both are new.
        let write_end = unsafe {
            libc::fcntl(read_end, libc::F_SETFL, flags & libc::O_NONBLOCK);
            OwnedFd::from_raw_fd(write_end)
        };
        // It was closed without notice, and its number reused.
        removed.extend(self.close(read_end));
        self.files.insert(read_end, File { read_end, write_end, queue: VecDeque::new() });
        Ok((read_end, removed))
    }

    /// Returns whether a descriptor is a file.
    pub(super) fn has(&self, fd: RawFd) -> bool {
        self.files.contains_key(&fd)
    }

    /// Closes a file and removes its ids.
    pub(super) fn close(&mut self, fd: RawFd) -> Vec<Removed> {
        if !self.has(fd) {
            return Vec::new();
        }
        let of_file = |(handle, entry): (usize, &Option<Entry>)| match entry {
            Some(Entry::Id(id)) if id.file == fd => Some(handle as u32),
            _ => None,
        };
        let ids: Vec<u32> = self.entries.iter().enumerate().filter_map(of_file).collect();
        let removed = ids.into_iter().filter_map(|id| self.remove(id)).collect();
        self.files.remove(&fd);
        removed
    }

    // Ids.

    fn add(&mut self, entry: Entry) -> Result<u32> {
        let handle = match self.free.pop_first() {
            Some(handle) => handle,
            None if self.entries.len() < MAX_IDS => {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            }
            None => return Err(Errno(libc::ENOMEM)),
        };
        self.groups += usize::from(matches!(entry, Entry::Group(_)));
        self.entries[handle as usize] = Some(entry);
        Ok(handle)
    }

    /// Takes the target of a handle, and frees the handle.
    fn take_entry(&mut self, handle: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(handle as usize)?.take()?;
        self.groups -= usize::from(matches!(entry, Entry::Group(_)));
        self.free.insert(handle);
        Some(entry)
    }

    /// Removes the groups of an id.
    fn remove_groups(&mut self, id: u32) {
        if self.groups == 0 {
            return;
        }
        for handle in 0..self.entries.len() as u32 {
            if matches!(&self.entries[handle as usize], Some(Entry::Group(group)) if group.id == id) {
                self.take_entry(handle);
            }
        }
    }

    /// Adds an id and returns its handle.
    pub(super) fn add_id(&mut self, id: Id) -> Result<u32> {
        let cm_ids = id.cm_ids.clone();
        let handle = self.add(Entry::Id(Box::new(id)))?;
        for cm_id in cm_ids {
            self.by_cm_id.insert(cm_id, handle);
        }
        Ok(handle)
    }

    /// Returns an id of any file.
    pub(super) fn id(&mut self, handle: u32) -> Result<&mut Id> {
        match self.entries.get_mut(handle as usize) {
            Some(Some(Entry::Id(id))) => Ok(id),
            _ => Err(Errno(libc::ENOENT)),
        }
    }

    /// Returns an id of a file; ENOENT, or EINVAL if it belongs to another file.
    pub(super) fn id_of(&mut self, fd: RawFd, handle: u32) -> Result<&mut Id> {
        let id = self.id(handle)?;
        if id.file == fd { Ok(id) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Returns the handle of an id of a communication manager.
    pub(super) fn handle_of(&self, cm_id: DeviceCmId) -> Option<u32> {
        self.by_cm_id.get(&cm_id).copied()
    }

    /// Records the id in a communication manager.
    pub(super) fn add_cm_id(&mut self, handle: u32, cm_id: DeviceCmId) -> Result<()> {
        self.id(handle)?.cm_ids.push(cm_id);
        self.by_cm_id.insert(cm_id, handle);
        Ok(())
    }

    /// Removes and returns the ids in the communication managers.
    pub(super) fn take_cm_ids(&mut self, handle: u32) -> Vec<DeviceCmId> {
        let cm_ids = self.id(handle).map(|id| std::mem::take(&mut id.cm_ids)).unwrap_or_default();
        for one in &cm_ids {
            self.by_cm_id.remove(one);
        }
        cm_ids
    }

    /// Removes an id, its groups, claims and events. Connection requests among these are removed as well.
    pub(super) fn remove(&mut self, handle: u32) -> Option<Removed> {
        self.id(handle).ok()?;
        let mut cm_ids = self.take_cm_ids(handle);
        let Some(Entry::Id(id)) = self.take_entry(handle) else { return None };
        for claim in id.claims {
            self.release(claim);
        }
        self.remove_groups(handle);
        let requests: Vec<u32> = match self.files.get_mut(&id.file) {
            Some(file) => file.purge(|event| event.id == handle).iter().filter_map(|event| event.new).collect(),
            None => Vec::new(),
        };
        for request in requests {
            cm_ids.extend(self.remove(request).map(|removed| removed.cm_ids).unwrap_or_default());
        }
        Some(Removed { cm_ids, reported: id.reported })
    }

    /// Moves an id and its events to another file. Returns the number of events reported so far.
    pub(super) fn migrate(&mut self, handle: u32, to: RawFd) -> Result<u32> {
        if !self.has(to) {
            return Err(Errno(libc::EBADF));
        }
        let id = self.id(handle)?;
        let (from, reported) = (std::mem::replace(&mut id.file, to), id.reported);
        if from != to {
            let moved = self.files.get_mut(&from).map(|file| file.purge(|event| event.id == handle));
            for event in moved.unwrap_or_default() {
                self.push(event);
            }
        }
        Ok(reported)
    }

    // Claims.

    /// Returns whether this process has claimed a service already, and if so counts one more id.
    pub(super) fn share_claim(&mut self, claim: (usize, u64)) -> bool {
        let claimed = self.claims.get_mut(&claim);
        claimed.map(|claimed| claimed.users += 1).is_some()
    }

    /// Records a claim of one id.
    pub(super) fn add_claim(&mut self, at: (usize, u64), claim: Option<ServiceClaim>) {
        let claimed = self.claims.entry(at).or_insert(Claimed { users: 0, claim });
        claimed.users += 1;
    }

    /// Directs requests for the services that an id has claimed to this process.
    pub(super) fn listen_on_claims(&mut self, handle: u32) -> Result<()> {
        for claim in self.id(handle)?.claims.clone() {
            if let Some(Claimed { claim: Some(claim), .. }) = self.claims.get_mut(&claim) {
                claim.listen()?;
            }
        }
        Ok(())
    }

    /// Makes an id share claims of another.
    pub(super) fn share_claims(&mut self, handle: u32, claims: Vec<(usize, u64)>) {
        let claims = claims.into_iter().filter(|claim| self.share_claim(*claim)).collect();
        if let Ok(id) = self.id(handle) {
            id.claims = claims;
        }
    }

    /// Releases all claims of an id.
    pub(super) fn release_claims(&mut self, handle: u32) {
        let claims = self.id(handle).map(|id| std::mem::take(&mut id.claims)).unwrap_or_default();
        claims.into_iter().for_each(|claim| self.release(claim));
    }

    /// Releases a claim of one id.
    pub(super) fn release(&mut self, claim: (usize, u64)) {
        if let Some(claimed) = self.claims.get_mut(&claim) {
            claimed.users -= 1;
            if claimed.users == 0 {
                self.claims.remove(&claim);
            }
        }
    }

    // Groups.

    /// Adds a multicast group of an id and returns its handle.
    pub(super) fn add_group(&mut self, id: u32, uid: u64) -> Result<u32> {
        self.add(Entry::Group(Group { id, uid, reported: 0 }))
    }

    /// Removes a group and its events. Returns the number of reported events.
    pub(super) fn remove_group(&mut self, fd: RawFd, handle: u32) -> Result<u32> {
        let Some(Some(Entry::Group(group))) = self.entries.get(handle as usize) else {
            return Err(Errno(libc::ENOENT));
        };
        let (id, reported) = (group.id, group.reported);
        self.id_of(fd, id)?;
        self.take_entry(handle);
        if let Some(file) = self.files.get_mut(&fd) {
            file.purge(|event| event.group == Some(handle));
        }
        Ok(reported)
    }

    // Events.

    /// Queues an event of an id, without parameters.
    pub(super) fn queue_event(&mut self, handle: u32, event: u32, status: i32) {
        let resp = EventResp { event, status: status as u32, ..zeroed() };
        self.push(Queued { id: handle, new: None, group: None, resp });
    }

    /// Queues an event of all ids that are bound to a device, without parameters.
    pub(super) fn queue_device_event(&mut self, device: usize, event: u32) {
        let bound = |entry: &Option<Entry>| matches!(entry, Some(Entry::Id(id)) if id.device == Some(device));
        let ids: Vec<u32> = (0..).zip(&self.entries).filter_map(|(id, entry)| bound(entry).then_some(id)).collect();
        ids.into_iter().for_each(|id| self.queue_event(id, event, 0));
    }

    /// Queues the result of resolving the destination of an id. A failed resolution may be retried.
    pub(super) fn queue_resolution(&mut self, handle: u32, status: i32) {
        if status == 0 {
            self.queue_event(handle, event::ADDR_RESOLVED, 0);
            return;
        }
        if let Ok(id) = self.id(handle) {
            id.dst = None;
        }
        self.queue_event(handle, event::ADDR_ERROR, status);
    }

    /// Queues an event in the file of its id. An id without an identifier gets none. Returns whether it was queued.
    pub(super) fn push(&mut self, mut event: Queued) -> bool {
        let Ok(id) = self.id(event.id) else { return false };
        if id.uid == 0 {
            return false;
        }
        (event.resp.uid, event.resp.id) = (id.uid, event.new.unwrap_or(event.id));
        let fd = id.file;
        if let Some(handle) = event.group
            && let Some(Some(Entry::Group(group))) = self.entries.get(handle as usize)
        {
            (event.resp.uid, event.resp.id) = (group.uid, handle);
        }
        self.files.get_mut(&fd).is_some_and(|file| file.push(event))
    }

    /// Returns whether a file has events.
    pub(super) fn has_events(&self, fd: RawFd) -> Result<bool> {
        self.files.get(&fd).map(|file| !file.queue.is_empty()).ok_or(Errno(libc::EBADF))
    }

    /// Takes the oldest event of a file, and counts it.
    pub(super) fn take(&mut self, fd: RawFd) -> Result<Option<EventResp>> {
        let file = self.files.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
        let Some(event) = file.queue.pop_front() else { return Ok(None) };
        if let Ok(id) = self.id(event.id) {
            id.reported += 1;
        }
        if let Some(handle) = event.group
            && let Some(Some(Entry::Group(group))) = self.entries.get_mut(handle as usize)
        {
            group.reported += 1;
        }
        Ok(Some(event.resp))
    }
}

impl File {
    /// Returns whether the application has closed its end.
    fn is_closed(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.write_end.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid pollfd; returns at once.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 && poll.revents & libc::POLLERR != 0 }
    }

    /// Queues an event. Returns false if the pipe is full or closed: 65,536 events wait.
    fn push(&mut self, event: Queued) -> bool {
        // The application may have closed the other end without ignoring signals: avoid SIGPIPE.
        if self.is_closed() {
            return false;
        }
        // SAFETY: one byte is read.
        let written = unsafe { libc::write(self.write_end.as_raw_fd(), [0u8].as_ptr().cast(), 1) };
        if written == 1 {
            self.queue.push_back(event);
        }
        written == 1
    }

    /// Removes events, and their bytes from the pipe. If a reader was faster, or the kernel does not read from a pipe
    /// without waiting, a byte stays, and its reader finds no event.
    fn purge(&mut self, unwanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let (removed, kept) = self.queue.drain(..).partition::<Vec<_>, _>(|event| unwanted(event));
        self.queue = kept.into();
        for _ in &removed {
            let mut byte = 0u8;
            let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            // SAFETY: one byte is written.
            unsafe { libc::preadv2(self.read_end, &to, 1, -1, libc::RWF_NOWAIT) };
        }
        removed
    }
}
