//! What all drivers need.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Why memory of a GPU cannot be registered.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GpuError {
    /// Part of the range is other memory.
    #[error("{len} bytes at {addr:#x} are not all memory of one GPU")]
    Range { addr: u64, len: u64 },
    /// A call of the driver failed.
    #[error("the GPU's driver: {call} returns {code}")]
    Driver { call: &'static str, code: c_int },
}

/// Returns what is common to the first and the last byte of a range; `None` if the first is other memory.
pub(super) fn common<T: PartialEq>(addr: u64, len: u64, of: impl Fn(u64) -> Option<T>) -> Result<Option<T>, GpuError> {
    let Some(first) = of(addr) else { return Ok(None) };
    let last = addr.checked_add(len - 1).and_then(of);
    if last.as_ref() == Some(&first) { Ok(Some(first)) } else { Err(GpuError::Range { addr, len }) }
}

/// Streams by what they belong to, for as long as a region uses them.
pub(super) struct Streams<K, S>(Mutex<Vec<(K, Weak<S>)>>);

impl<K: PartialEq, S> Streams<K, S> {
    pub(super) const fn new() -> Streams<K, S> {
        Streams(Mutex::new(Vec::new()))
    }

    /// Returns the stream of `key`, which `make` makes if there is none.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<S, GpuError>) -> Result<Arc<S>, GpuError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().find(|(k, _)| *k == key).and_then(|(_, stream)| stream.upgrade()) {
            return Ok(found);
        }
        all.retain(|(_, stream)| stream.strong_count() > 0);
        let made = Arc::new(make()?);
        all.push((key, Arc::downgrade(&made)));
        Ok(made)
    }
}
