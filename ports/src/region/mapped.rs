//! Memory regions of this machine.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use super::{PAGE, Shared};
use crate::sync::AtomicU64;

/// Zeroed, page-aligned, resident memory.
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    mapped: bool,
}

// SAFETY: a region is only an address range; access to its bytes is governed by the types laid over it, which are
// `Shared`, and by the ring's protocol.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `len` bytes (a multiple of [`PAGE`], not 0) on the heap.
    pub(crate) fn heap(len: usize) -> Region {
        let layout = Region::layout(len);
        // SAFETY: the layout's size is not zero (asserted by `layout`).
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        for offset in (0..len).step_by(PAGE) {
            // SAFETY: within the allocation. A volatile write makes each page resident before the first packet needs
            // it.
            unsafe { base.as_ptr().add(offset).write_volatile(0) };
        }
        Region { base, len, mapped: false }
    }

    /// Maps the first `len` bytes (a multiple of [`PAGE`], not 0) of a file, shared and resident. The file must be at
    /// least that long, and sealed against shrinking, or accesses can raise SIGBUS.
    pub(crate) fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        Region::map_for(file, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps a file like [`Region::map`], but read-only: writing to the region raises SIGSEGV.
    pub(crate) fn map_to_read(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        Region::map_for(file, len, libc::PROT_READ)
    }

    fn map_for(file: BorrowedFd<'_>, len: usize, access: libc::c_int) -> io::Result<Region> {
        Region::layout(len);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses; it aliases no Rust object.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Region { base, len, mapped: true })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0 && len.is_multiple_of(PAGE), "a region of {len} bytes is not made of pages");
        Layout::from_size_align(len, PAGE).expect("the page size is a power of two")
    }

    #[inline]
    fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Returns the address of `len` bytes at `offset`. Panics if they are not all inside the region.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(self.contains(offset, len), "{len} bytes at {offset} of {}", self.len);
        // SAFETY: inside the region, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Returns the object of type `T` at `offset`. Panics if it is not all inside the region, or misaligned.
    pub(crate) fn object<T: Shared>(&self, offset: usize) -> &T {
        let at = self.bytes(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: inside the region, aligned, and valid for any bit pattern and under concurrent writes, as required by
        // `Shared`.
        unsafe { at.as_ref() }
    }

    /// Returns the word at `offset`.
    ///
    /// # Safety
    /// It must be inside the region, and `offset` a multiple of 8.
    #[inline]
    pub(crate) unsafe fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && self.contains(offset, size_of::<u64>()));
        // SAFETY: the caller's promise; the region is aligned to a page.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).as_ptr().cast()) }
    }

    /// Returns `len` bytes at `offset`.
    ///
    /// # Safety
    /// They must be inside the region, and not be written while they are borrowed, except by a peer that violates its
    /// protocol.
    #[inline]
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        debug_assert!(self.contains(offset, len));
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(offset).as_ptr(), len) }
    }

    /// Has `fill` write `len` bytes at `offset`.
    ///
    /// # Safety
    /// They must be inside the region, and not be read or written meanwhile, except by a peer that violates its
    /// protocol.
    #[inline]
    pub(crate) unsafe fn write(&self, offset: usize, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        debug_assert!(self.contains(offset, len));
        // SAFETY: the caller's promise.
        fill(unsafe { std::slice::from_raw_parts_mut(self.base.add(offset).as_ptr(), len) });
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: exactly the mapping created by `map`; references into it borrow from `self`.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        } else {
            // SAFETY: allocated in `heap` with this layout.
            unsafe { dealloc(self.base.as_ptr(), Region::layout(self.len)) };
        }
    }
}
