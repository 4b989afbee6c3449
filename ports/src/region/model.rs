//! A region for the model checker loom: its words are loom's, and accesses to its bytes are checked for data races.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, Weak};

use super::Shared;
use crate::sync::{AtomicU64, Ordering};

/// Bytes that are checked as a unit. No two records of a ring share a line.
const LINE: usize = 64;

/// Objects are created on first use: this must be by the thread that creates the others, or loom complains.
#[derive(Clone)]
pub(crate) struct Region(Arc<Inner>);

struct Inner {
    len: usize,
    objects: Mutex<BTreeMap<usize, Box<dyn Any + Send + Sync>>>,
    lines: Mutex<BTreeMap<usize, Arc<loom::cell::UnsafeCell<()>>>>,
    bytes: *mut [u8],
    /// Number of times it was mapped.
    passed: AtomicU64,
}

/// Mapped files, by device and inode.
static FILES: Mutex<BTreeMap<(u64, u64), Weak<Inner>>> = Mutex::new(BTreeMap::new());

// SAFETY: the bytes are the region's own, and `lines` detects two threads accessing the same ones.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: from a box, and no borrow remains.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

impl Region {
    /// Creates a region that is shared by its clones.
    pub(crate) fn heap(len: usize) -> Region {
        let bytes = Box::into_raw(vec![0; len].into());
        Region(Arc::new(Inner {
            len,
            objects: Mutex::default(),
            lines: Mutex::default(),
            bytes,
            passed: AtomicU64::new(0),
        }))
    }

    /// Maps a file: all mappings of the same one share the memory. Receiving a descriptor makes everything visible that
    /// its sender has seen.
    pub(crate) fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        let metadata = File::from(file.try_clone_to_owned()?).metadata()?;
        let mut files = FILES.lock().unwrap();
        let file = files.entry((metadata.dev(), metadata.ino())).or_default();
        let region = match file.upgrade() {
            Some(inner) => Region(inner),
            None => Region::heap(len),
        };
        *file = Arc::downgrade(&region.0);
        drop(files);
        region.0.passed.fetch_add(1, Ordering::AcqRel);
        Ok(region)
    }

    /// Like [`Region::map`].
    pub(crate) fn map_to_read(file: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        Region::map(file, len)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    pub(crate) fn object<T: Shared>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>().min(1) <= self.0.len);
        let mut objects = self.0.objects.lock().unwrap();
        let object = objects.entry(offset).or_insert_with(|| Box::new(T::default()));
        let object: *const T = object.downcast_ref().expect("one type in each place");
        // SAFETY: boxes are neither moved nor dropped before the region.
        unsafe { &*object }
    }

    /// # Safety
    /// The place is checked.
    pub(crate) unsafe fn word(&self, offset: usize) -> &AtomicU64 {
        self.object(offset)
    }

    fn touch(&self, offset: usize, len: usize, how: impl Fn(&loom::cell::UnsafeCell<()>)) -> *mut u8 {
        assert!(offset + len <= self.0.len);
        for line in offset / LINE..(offset + len).div_ceil(LINE) {
            let cell = self.0.lines.lock().unwrap().entry(line).or_default().clone();
            how(&cell);
        }
        self.0.bytes.cast::<u8>().wrapping_add(offset)
    }

    /// # Safety
    /// loom reports concurrent writes.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        let at = self.touch(offset, len, |line| line.with(|_| ()));
        // SAFETY: checked by `touch`.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// # Safety
    /// loom reports concurrent accesses.
    pub(crate) unsafe fn write(&self, offset: usize, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        let at = self.touch(offset, len, |line| line.with_mut(|_| ()));
        // SAFETY: checked by `touch`.
        fill(unsafe { std::slice::from_raw_parts_mut(at, len) });
    }
}

// SAFETY: an atomic.
unsafe impl Shared for AtomicU64 {}
