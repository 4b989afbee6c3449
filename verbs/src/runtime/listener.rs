//! Listeners for the events of a NIC's objects.

use std::sync::atomic::{AtomicU64, Ordering};

use irnic_transports::qp::Event;
use irnic_transports::room::{self, OutOfMemory};

/// Receives the events of the object that it was registered with.
///
/// Called with the unit's lock held, on whichever thread runs the unit. So it must hand over the event, to a queue or a
/// condition variable, and return: it calls nothing of the runtime and waits for no thread that may.
pub(crate) trait Listener: Send {
    /// Called when a completion queue has the completion requested by [`State::arm_cq`](super::State::arm_cq). It is
    /// then no longer armed.
    fn completion(&self) {}

    /// Called with an asynchronous event of a queue pair, completion queue or shared receive queue (IBA 11.6.3).
    fn event(&self, event: Event);
}

/// Identifies a creator of objects, such as one open context of an application. An owner's remaining objects are
/// stopped together ([`DeviceRuntime::abandon`](super::DeviceRuntime::abandon)).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Returns a new owner.
    pub(crate) fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An object of the NIC with its listener.
pub(super) struct Registered {
    pub(super) owner: Owner,
    pub(super) listener: Box<dyn Listener>,
    /// For a completion queue: its owner waits for the next completion.
    pub(super) armed: bool,
}

/// The objects of one kind in a unit, by the NIC's handle.
pub(super) struct Registry {
    /// The lowest handle.
    first: u32,
    objects: Vec<Option<Registered>>,
}

impl Registry {
    /// Returns an empty registry for objects whose handles count from `first`.
    pub(super) fn new(first: u32) -> Registry {
        Registry { first, objects: Vec::new() }
    }

    fn index(&self, handle: u32) -> usize {
        handle.wrapping_sub(self.first) as usize
    }

    /// Checks that there is memory for one more object: the NIC assigns handles without gaps.
    pub(super) fn reserve(&self) -> Result<(), OutOfMemory> {
        room::ensure(room::growth(&self.objects))
    }

    /// Registers an object that was just created.
    pub(super) fn insert(&mut self, handle: u32, owner: Owner, listener: Box<dyn Listener>) {
        let index = self.index(handle);
        while self.objects.len() <= index {
            self.objects.push(None);
        }
        self.objects[index] = Some(Registered { owner, listener, armed: false });
    }

    /// Removes an object, which is no longer notified. Returns what was registered.
    pub(super) fn remove(&mut self, handle: u32) -> Option<Registered> {
        let index = self.index(handle);
        self.objects.get_mut(index)?.take()
    }

    /// Returns the object with a handle.
    pub(super) fn get(&self, handle: u32) -> Option<&Registered> {
        self.objects.get(self.index(handle))?.as_ref()
    }

    /// Returns the object with a handle mutably.
    pub(super) fn get_mut(&mut self, handle: u32) -> Option<&mut Registered> {
        let index = self.index(handle);
        self.objects.get_mut(index)?.as_mut()
    }

    /// Iterates over the handles of all objects, in order.
    pub(super) fn handles(&self) -> impl Iterator<Item = u32> + Clone {
        self.all().map(|(handle, _)| handle)
    }

    /// Returns the handles of an owner's objects, in order.
    pub(super) fn handles_of(&self, owner: Owner) -> Vec<u32> {
        self.all().filter(|(_, object)| object.owner == owner).map(|(handle, _)| handle).collect()
    }

    fn all(&self) -> impl Iterator<Item = (u32, &Registered)> + Clone {
        (self.first..).zip(&self.objects).filter_map(|(handle, object)| Some((handle, object.as_ref()?)))
    }
}
