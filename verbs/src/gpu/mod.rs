//! Memory of GPUs, which is reached by copies of the driver that the application itself has loaded.
//!
//! Nothing is linked or loaded: without a driver in the process there is no such memory.

mod common;
mod cuda;
mod hip;
mod library;
mod registered;

use std::sync::Arc;

use irnic_nic::Accelerator;

pub(crate) use common::GpuError;
pub(crate) use registered::{Registered, any_registered, read};

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
