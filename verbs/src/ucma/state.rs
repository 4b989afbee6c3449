//! Files and ids: what the kernel would keep for each open `/dev/infiniband/rdma_cm`.
//!
//! One lock protects all of it. It comes after a unit's lock: the communication manager's listener takes it with the
//! unit's held, so nobody asks for a unit's lock who has this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use irnic_cm::{CmId, PortSpace, QpKind};
use irnic_ports::host::ServiceClaim;
use parking_lot::{Mutex, MutexGuard};

use super::abi::{EventResp, event, zeroed};
use super::address::Address;
use crate::errno::{Errno, Result};
use crate::runtime::forked;

/// Most ids of a process: librdmacm has room for so many handles.
const MAX_IDS: usize = 1 << 16;

/// An id of a device's communication manager: the device's place in the list, and the manager's handle.
pub(super) type DeviceCmId = (usize, CmId);

/// An event that waits to be taken.
pub(super) struct Queued {
    /// Whose events it counts among: the listener's for a connection request.
    pub(super) id: u32,
    /// The id that it brings.
    pub(super) new: Option<u32>,
    /// The group that it is about.
    pub(super) group: Option<u32>,
    pub(super) resp: EventResp,
}

/// An open file. The application has the read end of a pipe, in which there is a byte for each event: so it can wait
/// for one with whatever waits for descriptors, and its `O_NONBLOCK` decides whether GET_EVENT waits.
struct File {
    /// The application's.
    read_end: RawFd,
    write_end: OwnedFd,
    queue: VecDeque<Queued>,
}

/// A claim on a service id, among the processes of a device, and how many ids share it.
struct Claimed {
    users: usize,
    claim: Option<ServiceClaim>,
}

/// An id as librdmacm has it.
pub(super) struct Id {
    /// The application's name for it; 0 until a request is accepted, when there are no events for it.
    pub(super) uid: u64,
    pub(super) file: RawFd,
    pub(super) space: PortSpace,
    pub(super) kind: QpKind,
    /// What it was bound to, or resolved from.
    pub(super) src: Option<Address>,
    /// What it was resolved to.
    pub(super) dst: Option<Address>,
    /// The device that it is bound to.
    pub(super) device: Option<usize>,
    /// Its ids at the communication managers: one, or of a wildcard one on each device.
    pub(super) cm_ids: Vec<DeviceCmId>,
    /// Claims on services: device and service id.
    pub(super) claims: Vec<(usize, u64)>,
    pub(super) options: Options,
    /// A peer asked for it.
    pub(super) passive: bool,
    pub(super) route_resolved: bool,
    /// Events that the application has taken.
    pub(super) reported: u32,
}

/// What SET_OPTION has said.
#[derive(Copy, Clone, Default)]
pub(super) struct Options {
    pub(super) tos: Option<u8>,
    pub(super) ack_timeout: Option<u8>,
    pub(super) reuse: bool,
    pub(super) afonly: Option<bool>,
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

/// What a handle names.
enum Entry {
    Id(Box<Id>),
    Group(Group),
}

/// All files and ids of the process.
pub(super) struct State {
    files: BTreeMap<RawFd, File>,
    /// Ids and groups by their handles, from 0 on.
    entries: Vec<Option<Entry>>,
    /// Handles below the length of `entries` that name nothing.
    free: BTreeSet<u32>,
    /// How many entries are groups.
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

/// Forgets everything in the child of a fork: its ids and devices are the parent's.
pub(super) fn forget_after_fork() {
    // SAFETY: the child has one thread. What another of the parent's was doing to the state is never finished, and
    // nothing of it is dropped: descriptors are close-on-exec, memory is the child's to lose.
    unsafe {
        STATE.data_ptr().write(State::new());
        forked::unlock(&STATE, true);
    }
}

/// What an id was that is removed: to be destroyed at the communication managers when the state is not locked any more.
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
        let gone: Vec<RawFd> = self.files.iter().filter(|(_, file)| file.is_gone()).map(|(fd, _)| *fd).collect();
        let mut removed: Vec<Removed> = gone.into_iter().flat_map(|fd| self.close(fd)).collect();
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let [read_end, write_end] = ends;
        // SAFETY: the application's descriptor blocks or not, as it said; the other never does. Both are new.
        let write_end = unsafe {
            libc::fcntl(read_end, libc::F_SETFL, flags & libc::O_NONBLOCK);
            OwnedFd::from_raw_fd(write_end)
        };
        // Closed without our hearing of it, and its number used again.
        removed.extend(self.close(read_end));
        self.files.insert(read_end, File { read_end, write_end, queue: VecDeque::new() });
        Ok((read_end, removed))
    }

    /// Tells whether a descriptor is a file.
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

    /// Takes what a handle names, and frees the handle.
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

    /// Returns an id of a file; ENOENT, EINVAL if it is another file's.
    pub(super) fn id_of(&mut self, fd: RawFd, handle: u32) -> Result<&mut Id> {
        let id = self.id(handle)?;
        if id.file == fd { Ok(id) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Returns the handle of an id of a communication manager.
    pub(super) fn handle_of(&self, cm_id: DeviceCmId) -> Option<u32> {
        self.by_cm_id.get(&cm_id).copied()
    }

    /// Notes what an id is at a communication manager.
    pub(super) fn add_cm_id(&mut self, handle: u32, cm_id: DeviceCmId) -> Result<()> {
        self.id(handle)?.cm_ids.push(cm_id);
        self.by_cm_id.insert(cm_id, handle);
        Ok(())
    }

    /// Forgets, and returns, what an id is at the communication managers.
    pub(super) fn take_cm_ids(&mut self, handle: u32) -> Vec<DeviceCmId> {
        let cm_ids = self.id(handle).map(|id| std::mem::take(&mut id.cm_ids)).unwrap_or_default();
        for one in &cm_ids {
            self.by_cm_id.remove(one);
        }
        cm_ids
    }

    /// Removes an id, its groups, claims and events. Requests among these go with it.
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

    /// Moves an id and its events to another file. Returns how many events were reported until now.
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

    /// Returns whether this process has claimed a service already, and counts one more id that has.
    pub(super) fn share_claim(&mut self, claim: (usize, u64)) -> bool {
        let claimed = self.claims.get_mut(&claim);
        claimed.map(|claimed| claimed.users += 1).is_some()
    }

    /// Notes a claim of one id.
    pub(super) fn add_claim(&mut self, at: (usize, u64), claim: Option<ServiceClaim>) {
        let claimed = self.claims.entry(at).or_insert(Claimed { users: 0, claim });
        claimed.users += 1;
    }

    /// Has requests for the services that an id has claimed come to this process.
    pub(super) fn listen_on_claims(&mut self, handle: u32) -> Result<()> {
        for claim in self.id(handle)?.claims.clone() {
            if let Some(Claimed { claim: Some(claim), .. }) = self.claims.get_mut(&claim) {
                claim.listen()?;
            }
        }
        Ok(())
    }

    /// Has an id share claims of another.
    pub(super) fn share_claims(&mut self, handle: u32, claims: Vec<(usize, u64)>) {
        let claims = claims.into_iter().filter(|claim| self.share_claim(*claim)).collect();
        if let Ok(id) = self.id(handle) {
            id.claims = claims;
        }
    }

    /// Gives up all claims of an id.
    pub(super) fn release_claims(&mut self, handle: u32) {
        let claims = self.id(handle).map(|id| std::mem::take(&mut id.claims)).unwrap_or_default();
        claims.into_iter().for_each(|claim| self.release(claim));
    }

    /// Gives up a claim of one id.
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

    /// Removes a group and its events. Returns how many were reported.
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
    pub(super) fn tell(&mut self, handle: u32, event: u32, status: i32) {
        let resp = EventResp { event, status: status as u32, ..zeroed() };
        self.push(Queued { id: handle, new: None, group: None, resp });
    }

    /// Queues an event of all ids that are bound to a device, without parameters.
    pub(super) fn tell_all(&mut self, device: usize, event: u32) {
        let bound = |entry: &Option<Entry>| matches!(entry, Some(Entry::Id(id)) if id.device == Some(device));
        let ids: Vec<u32> = (0..).zip(&self.entries).filter_map(|(id, entry)| bound(entry).then_some(id)).collect();
        ids.into_iter().for_each(|id| self.tell(id, event, 0));
    }

    /// Queues what was found of the way to the destination of an id. One that was not found may be asked for again.
    pub(super) fn tell_way(&mut self, handle: u32, status: i32) {
        if status == 0 {
            self.tell(handle, event::ADDR_RESOLVED, 0);
            return;
        }
        if let Ok(id) = self.id(handle) {
            id.dst = None;
        }
        self.tell(handle, event::ADDR_ERROR, status);
    }

    /// Queues an event, at the file of its id. An id without a name has none. Returns whether it was queued.
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

    /// Tells whether a file has events.
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
    /// Tells whether the application has closed its end.
    fn is_gone(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.write_end.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid pollfd; returns at once.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 && poll.revents & libc::POLLERR != 0 }
    }

    /// Queues an event. Returns false if the pipe is full or closed: 65,536 events wait.
    fn push(&mut self, event: Queued) -> bool {
        // The application may have closed the other end and ignore nothing: no SIGPIPE from here.
        if self.is_gone() {
            return false;
        }
        // SAFETY: one byte is read.
        let written = unsafe { libc::write(self.write_end.as_raw_fd(), [0u8].as_ptr().cast(), 1) };
        if written == 1 {
            self.queue.push_back(event);
        }
        written == 1
    }

    /// Removes events, and their bytes from the pipe. Where a reader was faster, or the kernel does not read from a
    /// pipe without waiting, a byte stays, and whoever reads it finds no event.
    fn purge(&mut self, unwanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let (gone, kept) = self.queue.drain(..).partition::<Vec<_>, _>(|event| unwanted(event));
        self.queue = kept.into();
        for _ in &gone {
            let mut byte = 0u8;
            let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            // SAFETY: one byte is written.
            unsafe { libc::preadv2(self.read_end, &to, 1, -1, libc::RWF_NOWAIT) };
        }
        gone
    }
}
