//! Memory of GPUs that is registered: work requests with inline data name it by its address alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use irnic_nic::{Accelerator, CopyError};

/// By address and number of the registration: its end, and its driver.
type Ranges = BTreeMap<(u64, usize), (u64, Arc<dyn Accelerator>)>;

static RANGES: RwLock<Ranges> = RwLock::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A range that is registered, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered((u64, usize));

impl Registered {
    pub(crate) fn new(addr: u64, len: u64, driver: Arc<dyn Accelerator>) -> Registered {
        let key = (addr, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut ranges = RANGES.write().unwrap_or_else(PoisonError::into_inner);
        ranges.insert(key, (addr.saturating_add(len), driver));
        COUNT.store(ranges.len(), Ordering::Release);
        Registered(key)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut ranges = RANGES.write().unwrap_or_else(PoisonError::into_inner);
        ranges.remove(&self.0);
        COUNT.store(ranges.len(), Ordering::Release);
    }
}

/// Returns whether memory of a GPU is registered.
#[inline]
pub(crate) fn any_registered() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Copies memory from `addr` on: registered memory of a GPU by its driver, other memory directly.
///
/// # Safety
/// If it is not registered memory of a GPU, it may be read.
pub(crate) unsafe fn read(addr: u64, to: &mut [u8]) -> Result<(), CopyError> {
    if any_registered() {
        let end = addr.saturating_add(to.len() as u64);
        let ranges = RANGES.read().unwrap_or_else(PoisonError::into_inner);
        let before = ranges.range(..=(addr, usize::MAX)).rev();
        if let Some((_, (_, driver))) = before.into_iter().find(|(_, (last, _))| end <= *last) {
            return driver.read(addr, to);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, to.as_mut_ptr(), to.len()) };
    Ok(())
}
