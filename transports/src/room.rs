//! Fallible allocation: the standard library aborts the process when memory runs out, and a device must not end its
//! application. Storage whose size the application chooses is allocated by [`boxed`]; for small parts, memory is
//! checked in advance ([`ensure`]).

use std::collections::VecDeque;
use std::hint::black_box;

/// There is not enough memory. Nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {0} bytes")]
pub struct OutOfMemory(
    /// Bytes requested.
    pub usize,
);

impl From<OutOfMemory> for std::io::Error {
    fn from(e: OutOfMemory) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::OutOfMemory, e)
    }
}

/// Allowance for small parts of an object and of the tables that it is entered in, bytes.
const MARGIN: usize = 64 << 10;

/// Checks that `bytes` more can be allocated, and an allowance for small parts. The memory is freed at once: another
/// thread may still take it, but not one that only creates objects of the same device, which is done under its lock.
pub fn ensure(bytes: usize) -> Result<(), OutOfMemory> {
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(bytes.saturating_add(MARGIN)).map_err(|_| OutOfMemory(bytes))?;
    // An unused allocation may be optimized away.
    black_box(&mut room);
    Ok(())
}

/// Allocates `n` copies of `value`.
pub fn boxed<T: Clone>(value: T, n: usize) -> Result<Box<[T]>, OutOfMemory> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(n).map_err(|_| OutOfMemory(n.saturating_mul(size_of::<T>())))?;
    elements.resize(n, value);
    Ok(elements.into_boxed_slice())
}

/// Makes sure that the next `push_back` does not allocate. Returns false if there is no memory.
#[inline]
pub fn reserve<T>(queue: &mut VecDeque<T>) -> bool {
    queue.len() < queue.capacity() || queue.try_reserve(1).is_ok()
}

/// Returns the bytes that the next `push` allocates, while the old elements still exist.
pub fn growth<T>(vec: &Vec<T>) -> usize {
    if vec.len() < vec.capacity() { 0 } else { 2 * vec.capacity().max(4) * size_of::<T>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert_eq!(ensure(1 << 20), Ok(()));
        assert_eq!(*boxed(7_u8, 3).unwrap(), [7; 3]);
        for bytes in [1 << 62, usize::MAX] {
            assert_eq!(ensure(bytes), Err(OutOfMemory(bytes)));
            assert_eq!(boxed(7_u8, bytes), Err(OutOfMemory(bytes)));
        }
    }

    #[test]
    fn a_vector_grows_when_it_is_full() {
        let mut vec: Vec<u64> = Vec::with_capacity(10);
        assert_eq!(growth(&vec), 0);
        vec.resize(vec.capacity(), 0);
        assert_eq!(growth(&vec), 16 * vec.capacity());
    }
}
