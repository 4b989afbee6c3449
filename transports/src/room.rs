//! Memory that may not be there: the standard library ends the process when there is none, and a device must leave its
//! application standing. What is as long as the application says is [`boxed`]; small parts are asked for before
//! ([`ensure`]).

use std::collections::VecDeque;
use std::hint::black_box;

/// There is not enough memory. Nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {0} bytes")]
pub struct OutOfMemory(
    /// Bytes that were asked for.
    pub usize,
);

impl From<OutOfMemory> for std::io::Error {
    fn from(e: OutOfMemory) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::OutOfMemory, e)
    }
}

/// What small parts of an object, and of the tables that it is entered in, take beside what is asked for, in bytes.
const MARGIN: usize = 64 << 10;

/// Finds out whether `bytes` more can be allocated, and some for small parts beside. They are given back at once:
/// another thread may still take them, but nobody who only makes objects of one device, which is done under its lock.
pub fn ensure(bytes: usize) -> Result<(), OutOfMemory> {
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(bytes.saturating_add(MARGIN)).map_err(|_| OutOfMemory(bytes))?;
    // An allocation that nobody looks at may be left out.
    black_box(&mut room);
    Ok(())
}

/// `n` times `value`.
pub fn boxed<T: Clone>(value: T, n: usize) -> Result<Box<[T]>, OutOfMemory> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(n).map_err(|_| OutOfMemory(n.saturating_mul(size_of::<T>())))?;
    elements.resize(n, value);
    Ok(elements.into_boxed_slice())
}

/// Makes sure that the next `push_back` takes no memory. Returns false if there is none.
#[inline]
pub fn reserve<T>(queue: &mut VecDeque<T>) -> bool {
    queue.len() < queue.capacity() || queue.try_reserve(1).is_ok()
}

/// Bytes that the next `push` allocates, the old elements being there still.
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
