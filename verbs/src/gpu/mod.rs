//! Memory of GPUs, which is reached by copies of the driver that the application itself has loaded.
//!
//! Nothing is linked or loaded: without a driver in the process there is no such memory.

mod cuda;
mod hip;
mod library;
mod registered;

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use irnic_nic::Accelerator;

pub(crate) use registered::{Registered, any_registered, read};

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

/// Returns the driver of `len` bytes at `addr` if they are memory of a GPU.
pub(crate) fn accelerator(addr: u64, len: u64) -> Result<Option<Arc<dyn Accelerator>>, GpuError> {
    if len == 0 {
        return Ok(None);
    }
    match cuda::accelerator(addr, len)? {
        Some(found) => Ok(Some(found)),
        None => hip::accelerator(addr, len),
    }
}

/// Returns what is common to the first and the last byte of a range; `None` if the first is other memory.
fn common<T: PartialEq>(addr: u64, len: u64, of: impl Fn(u64) -> Option<T>) -> Result<Option<T>, GpuError> {
    let Some(first) = of(addr) else { return Ok(None) };
    let last = addr.checked_add(len - 1).and_then(of);
    if last.as_ref() == Some(&first) { Ok(Some(first)) } else { Err(GpuError::Range { addr, len }) }
}

/// Streams by what they belong to, for as long as a region uses them.
struct Streams<K, S>(Mutex<Vec<(K, Weak<S>)>>);

impl<K: PartialEq, S> Streams<K, S> {
    const fn new() -> Streams<K, S> {
        Streams(Mutex::new(Vec::new()))
    }

    /// Returns the stream of `key`, which `make` makes if there is none.
    fn get(&self, key: K, make: impl FnOnce() -> Result<S, GpuError>) -> Result<Arc<S>, GpuError> {
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
