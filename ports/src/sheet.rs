//! Numbers that one process publishes to others of its user, in memory that only it can write.
//!
//! The meaning of the numbers is up to the caller. A reader gets all of one update, or all of the one before: never
//! parts of two. It copies no more than the memory holds, whatever the writer claims, and the numbers are untrusted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::host::{sealed_len, sys};
use crate::region::{PAGE, Region, Shared};
use crate::sync::{AtomicU64, Ordering, fence};

/// `IRNICSH` and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"IRNICSH\x01");
/// Words before the numbers.
const HEAD: usize = 8;
/// Reads of a sheet that is being written before the reader gives up.
const READ_ATTEMPTS: u32 = 1_000;

#[derive(Default)]
#[repr(C)]
struct HeadWords {
    magic: AtomicU64,
    /// Seqlock: odd while the sheet is written, a new number after each update.
    sequence: AtomicU64,
    /// Number of numbers.
    len: AtomicU64,
}

#[derive(Default)]
#[repr(transparent)]
struct Word(AtomicU64);

// SAFETY: atomics.
unsafe impl Shared for HeadWords {}
// SAFETY: one atomic.
unsafe impl Shared for Word {}

fn head(region: &Region) -> &HeadWords {
    region.object(0)
}

fn word(region: &Region, at: usize) -> &AtomicU64 {
    &region.object::<Word>((HEAD + at) * size_of::<u64>()).0
}

/// The owner's end of a sheet.
pub struct Sheet {
    region: Region,
    file: OwnedFd,
    room: usize,
}

impl Sheet {
    /// Creates an empty sheet with room for at least this many numbers.
    ///
    /// # Errors
    /// The system's error, for lack of memory or descriptors.
    pub fn create(numbers: usize) -> io::Result<Sheet> {
        let len = ((HEAD + numbers) * size_of::<u64>()).next_multiple_of(PAGE);
        let file = sys::unsealed_memory(c"irnic-stats", len)?;
        let region = Region::map(file.as_fd(), len)?;
        // Others can map it only read-only.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        head(&region).magic.store(MAGIC, Ordering::Release);
        Ok(Sheet { region, file, room: len / size_of::<u64>() - HEAD })
    }

    /// Returns the file with which others read it: [`SheetReader::open`].
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the number of numbers that fit.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Replaces the numbers. Those that do not fit are dropped.
    pub fn write(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.begin().put_all(numbers);
    }

    /// Begins an update: no reader sees its numbers before it is dropped.
    pub fn begin(&mut self) -> Writing<'_> {
        let sequence = &head(&self.region).sequence;
        let before = sequence.load(Ordering::Relaxed) & !1;
        sequence.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        Writing { sheet: self, len: 0, after: before.wrapping_add(2) }
    }

    /// Returns the numbers last written.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let len = head(&self.region).len.load(Ordering::Relaxed) as usize;
        (0..len.min(self.room)).map(|at| word(&self.region, at).load(Ordering::Relaxed))
    }
}

/// A sheet that is being written.
pub struct Writing<'a> {
    sheet: &'a mut Sheet,
    len: usize,
    after: u64,
}

impl Writing<'_> {
    /// Appends a number. One that does not fit is dropped.
    #[inline]
    pub fn put(&mut self, number: u64) {
        if self.len < self.sheet.room {
            word(&self.sheet.region, self.len).store(number, Ordering::Relaxed);
            self.len += 1;
        }
    }

    /// Appends numbers.
    pub fn put_all(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.put(number));
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let head = head(&self.sheet.region);
        head.len.store(self.len as u64, Ordering::Relaxed);
        head.sequence.store(self.after, Ordering::Release);
    }
}

/// A reader's end of a sheet.
pub struct SheetReader {
    region: Region,
    room: usize,
}

impl SheetReader {
    /// Maps a sheet by its file, read-only.
    ///
    /// # Errors
    /// The system's error; `InvalidData` for a file that is not a sheet of this user, or could shrink.
    pub fn open(file: BorrowedFd<'_>) -> io::Result<SheetReader> {
        /// Longest file accepted, in bytes.
        const LONGEST: usize = 1 << 20;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no sheet of numbers");
        let len = sealed_len(file).filter(|len| *len <= LONGEST).ok_or_else(wrong)?;
        let region = Region::map_to_read(file, len)?;
        if head(&region).magic.load(Ordering::Acquire) != MAGIC {
            return Err(wrong());
        }
        Ok(SheetReader { region, room: len / size_of::<u64>() - HEAD })
    }

    /// Returns a number that changes with each update.
    pub fn version(&self) -> u64 {
        head(&self.region).sequence.load(Ordering::Acquire)
    }

    /// Returns the numbers of the last update; `None` during one, which may last forever if the writer has ended.
    pub fn read(&self) -> Option<Vec<u64>> {
        let head = head(&self.region);
        for attempt in 0..READ_ATTEMPTS {
            let before = head.sequence.load(Ordering::Acquire);
            let len = usize::try_from(head.len.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(self.room);
            let numbers = (0..len).map(|at| word(&self.region, at).load(Ordering::Relaxed)).collect();
            fence(Ordering::Acquire);
            if before & 1 == 0 && head.sequence.load(Ordering::Relaxed) == before {
                return Some(numbers);
            }
            if attempt > READ_ATTEMPTS / 2 {
                std::thread::yield_now();
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_has_what_was_written_last() {
        let mut sheet = Sheet::create(3).unwrap();
        let reader = SheetReader::open(sheet.file()).unwrap();
        assert_eq!(reader.read(), Some(vec![]));
        let version = reader.version();
        sheet.write([1, 2, 3]);
        assert_eq!(reader.read(), Some(vec![1, 2, 3]));
        assert_ne!(reader.version(), version);
        sheet.write([4]);
        assert_eq!((reader.read(), sheet.numbers().collect()), (Some(vec![4]), vec![4]));
        // Numbers that do not fit are dropped.
        sheet.write(0..1_000_000);
        assert_eq!(reader.read(), Some((0..sheet.room() as u64).collect()));
        let mut writing = sheet.begin();
        writing.put(7);
        assert_eq!(reader.read(), None);
        drop(writing);
        assert_eq!(reader.read(), Some(vec![7]));
        assert!(Region::map(sheet.file(), PAGE).is_err(), "nobody else can map it to write");
    }

    #[test]
    fn nobody_reads_parts_of_two_writings() {
        let mut sheet = Sheet::create(500).unwrap();
        let reader = SheetReader::open(sheet.file()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..u64::MAX).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|n| {
                    sheet.write(std::iter::repeat_n(n, 100 + n as usize % 400));
                    std::thread::yield_now();
                });
            });
            for _ in 0..2_000 {
                let Some(numbers) = reader.read() else { continue };
                let first = numbers.first().copied().unwrap_or(0);
                assert!(numbers.iter().all(|n| *n == first), "{numbers:?}");
                assert!(numbers.is_empty() || numbers.len() == 100 + first as usize % 400);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_writer_that_lies_is_believed_no_further_than_its_memory() {
        // Another process may pass any sealed memory, and write to it at any time.
        let lie = |magic, sequence, len| {
            let file = sys::memory(c"irnic-test", PAGE).unwrap();
            let region = Region::map(file.as_fd(), PAGE).unwrap();
            for at in 0..PAGE / 8 - HEAD {
                word(&region, at).store(u64::MAX, Ordering::Relaxed);
            }
            let head = head(&region);
            head.magic.store(magic, Ordering::Relaxed);
            head.sequence.store(sequence, Ordering::Relaxed);
            head.len.store(len, Ordering::Relaxed);
            SheetReader::open(file.as_fd()).map(|reader| reader.read())
        };
        assert_eq!(lie(MAGIC, 2, u64::MAX).unwrap(), Some(vec![u64::MAX; PAGE / 8 - HEAD]));
        assert_eq!(lie(MAGIC, 3, 1).unwrap(), None);
        assert!(lie(MAGIC + 1, 2, 0).is_err());
        let long = sys::memory(c"irnic-test", 2 << 20).unwrap();
        assert!(SheetReader::open(long.as_fd()).is_err());
        let unsealed = sys::unsealed_memory(c"irnic-test", PAGE).unwrap();
        assert!(SheetReader::open(unsealed.as_fd()).is_err());
        assert!(SheetReader::open(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
