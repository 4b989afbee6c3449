//! Objects by their handles, and domains.

use std::sync::atomic::AtomicU32;

/// Objects by their handles.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Option<T>>,
    limit: usize,
}

impl<T> Table<T> {
    pub(crate) fn new(limit: usize) -> Table<T> {
        Table { slots: Vec::new(), limit }
    }

    /// Returns the bytes that adding an object may allocate.
    pub(crate) fn growth(&self) -> usize {
        irnic_transports::room::growth(&self.slots)
    }

    /// Adds an object and returns its handle; `None` if there are too many.
    pub(crate) fn add(&mut self, object: T) -> Option<u32> {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            self.slots[free] = Some(object);
            return Some(free as u32);
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        self.slots.push(Some(object));
        Some(self.slots.len() as u32 - 1)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        self.slots.get_mut(id as usize)?.take()
    }
}

/// A protection domain: the number of queue pairs and shared receive queues in it.
#[derive(Debug, Default)]
pub(crate) struct Pd {
    /// NICs that share their memory share their domains.
    pub(crate) users: AtomicU32,
}

/// An XRC domain: the number of queue pairs and shared receive queues in it.
#[derive(Debug, Default)]
pub(crate) struct Xrcd {
    pub(crate) users: u32,
}
