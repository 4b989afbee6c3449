//! Memory shared by two parties: two threads (heap) or two processes (a mapped file).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Alignment of a region, and the unit of its layout, in bytes.
pub(super) const PAGE: usize = 4096;

/// Seals of a shared-memory file: its size and its seals are fixed. A file that shrinks while it is mapped raises
/// SIGBUS.
pub(super) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Returns the seals of a file; -1 if it cannot have seals, or lies in huge pages: these can run out under a mapping,
/// which raises SIGBUS, too.
pub(super) fn seals(file: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: all-zero bytes are a valid statfs.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a writable statfs.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut system) } == 0;
    if !known || system.f_type != libc::TMPFS_MAGIC {
        return -1;
    }
    // SAFETY: no memory is passed.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) }
}

/// A type that may lie in shared memory.
///
/// # Safety
/// The type must consist of atomics and of bytes that are never read, so that every bit pattern is valid and concurrent
/// writes by the other party are defined. Its alignment must be at most [`PAGE`].
pub(super) unsafe trait Shared {}

/// Zeroed, page-aligned, resident memory.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    mapped: bool,
}

// SAFETY: a region is only an address range; how its bytes are accessed is up to the types laid over it, which are
// `Shared`, and to the ring's protocol.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `len` bytes (a multiple of [`PAGE`], not 0) on the heap.
    pub(super) fn heap(len: usize) -> Region {
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
    pub(super) fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        Region::map_for(file, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps a file as [`Region::map`] does, but only to read: writing to the region raises SIGSEGV.
    pub(super) fn map_to_read(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
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

    fn layout(len: usize) -> Layout {
        assert!(len > 0 && len.is_multiple_of(PAGE), "a region of {len} bytes is not made of pages");
        Layout::from_size_align(len, PAGE).expect("the page size is a power of two")
    }

    /// Returns the address of `len` bytes at `offset`. Panics if they are not all inside.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "{len} bytes at {offset} of {}", self.len);
        // SAFETY: inside the region, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Returns the object of type `T` at `offset`. Panics if it is not all inside, or misaligned.
    pub(super) fn object<T: Shared>(&self, offset: usize) -> &T {
        let at = self.bytes(offset, size_of::<T>()).cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: inside the region, aligned, and valid for any bit pattern and under concurrent writes, as `Shared`
        // says.
        unsafe { at.as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: exactly the mapping made by `map`; references into it borrow from `self`.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        } else {
            // SAFETY: allocated in `heap` with this layout.
            unsafe { dealloc(self.base.as_ptr(), Region::layout(self.len)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;

    #[test]
    fn only_files_that_cannot_shrink_under_a_mapping_have_seals() {
        let file = |flags| {
            // SAFETY: the name is a C string.
            let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | flags) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: no memory is passed.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) }, 0);
            // SAFETY: a new descriptor that nobody else owns.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        assert_eq!(seals(file(0).as_fd()) & SEALS, SEALS);
        assert_eq!(seals(file(libc::MFD_HUGETLB).as_fd()), -1);
        assert_eq!(seals(std::fs::File::open("/dev/null").unwrap().as_fd()), -1);
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(seals(pipe.as_fd()), -1);
    }
}
