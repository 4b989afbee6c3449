//! Memory regions and protection: the only module in which the NIC accesses memory that is not its own.

mod accelerator;
mod by_driver;
mod calls;
mod copy;
pub mod prefetch;
mod region;
mod regions;
mod shared;
mod staged;
mod staging;
mod windows;

use std::ops::{Deref, DerefMut};

use irnic_transports::Gather;
use irnic_transports::qp::{Access, Caller, GatherList, MemError, Qp};
use irnic_transports::wire::Mtu;

pub use accelerator::{Accelerator, CopyError};
pub(crate) use copy::pieces;
pub use copy::{copy_bytes, copy_payload};
pub use region::{Mr, MrChanges};
pub(crate) use regions::Regions;
use shared::Shared;
use staging::Staging;
pub use windows::{Mw, MwKind};

/// A NIC's access to memory: regions, possibly shared with other NICs, and the means to read them.
#[derive(Debug)]
pub(crate) struct Memory {
    table: Shared,
    /// Reader of application memory that may be unmapped, and a buffer for a packet's payload.
    reader: Option<(MemoryReader, Box<[u8]>)>,
    /// Copies of accelerators' memory.
    staging: Option<Box<Staging>>,
    /// Whether payloads may be placed late, where a driver places them.
    late: bool,
}

/// Copies the application's memory from an address on. Returns false if it is not mapped, without a fault.
pub type MemoryReader = fn(addr: u64, to: &mut [u8]) -> bool;

impl Deref for Memory {
    type Target = Regions;

    #[inline(always)]
    fn deref(&self) -> &Regions {
        &self.table
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut Regions {
        &mut self.table
    }
}

impl Memory {
    pub(crate) fn new(limit: usize, domains: usize, seed: [u8; 32]) -> Memory {
        Memory { table: Shared::new(Regions::new(limit, domains, seed)), reader: None, staging: None, late: false }
    }

    pub(crate) fn set_reader(&mut self, reader: MemoryReader) {
        self.reader = Some((reader, vec![0; Mtu::B8192.bytes()].into()));
    }

    /// Replaces the regions with another's.
    pub(crate) fn share(&mut self, with: &Memory) {
        self.table = with.table.join();
    }

    /// Returns a packet's payload in place, by the list that `qp` has just made for it.
    #[inline]
    pub(crate) fn lend<'a>(&'a self, _qp: &'a Qp, list: &'a GatherList) -> Gather<'a> {
        // SAFETY: each segment belongs to the queue pair, to a region of this table, to the table, or to the copies
        // made here. They are borrowed for as long as the list, so none can change or be freed before it.
        unsafe { Gather::new(list.segments()) }.with_stable(list.stable)
    }

    /// Sets whether payloads may be placed late.
    #[inline]
    pub(crate) fn place_late(&mut self, late: bool) {
        self.late = late;
    }

    /// Places what was to be placed late: before an acknowledgement leaves, or the application may reuse the memory.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(staging) = &mut self.staging {
            staging.flush(&self.table);
        }
    }

    /// Returns whether [`Self::settle`] has nothing to do.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.staging.is_none()
    }

    /// Lists remotely readable memory as [`Self::gather_remote`] does, or a copy of it made by the reader.
    pub(crate) fn gather_again(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        let mut addr = match self.remote(by, rkey, va, u64::from(len), Access::REMOTE_READ) {
            Ok(addr) => addr,
            Err(error) => return self.gather_remote_copy(error, by, rkey, va, len, None, out),
        };
        // A region without memory has nothing to read.
        if let Some((read, room)) = self.reader.as_mut().filter(|_| addr != 0) {
            let copy = room.get_mut(..len as usize).ok_or(MemError::Key(rkey))?;
            if !read(addr, copy) {
                return Err(MemError::Key(rkey));
            }
            addr = copy.as_ptr() as u64;
        }
        out.push(addr, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
