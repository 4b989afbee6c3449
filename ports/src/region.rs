//! Memory shared by two parties: two threads (heap) or two processes (a mapped file).

use std::os::fd::{AsRawFd, BorrowedFd};

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
#[path = "region/model.rs"]
mod mapped;

pub(super) use mapped::Region;

/// Alignment of a region, and the unit of its layout, in bytes.
pub(super) const PAGE: usize = 4096;

/// Seals of a shared-memory file: its size and its seals are fixed. A file that shrinks while it is mapped raises
/// SIGBUS.
pub(super) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Returns the seals of a file; -1 if it cannot have seals, or is backed by huge pages: these can run out under a
/// mapping, which also raises SIGBUS.
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

/// A type that may be placed in shared memory.
///
/// # Safety
/// The type must consist of atomics and of bytes that are never read, so that every bit pattern is valid and concurrent
/// writes by the other party are defined. Its alignment must be at most [`PAGE`]. Its default is that of zeroed memory.
pub(super) unsafe trait Shared: Default + Send + Sync + 'static {}

#[cfg(all(test, not(loom)))]
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
            // SAFETY: a new descriptor with no other owner.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        assert_eq!(seals(file(0).as_fd()) & SEALS, SEALS);
        assert_eq!(seals(file(libc::MFD_HUGETLB).as_fd()), -1);
        assert_eq!(seals(std::fs::File::open("/dev/null").unwrap().as_fd()), -1);
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(seals(pipe.as_fd()), -1);
    }
}
