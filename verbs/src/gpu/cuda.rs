//! CUDA's driver API.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use irnic_nic::{Accelerator, CopyError};

use super::common::{GpuError, Streams, common};
use super::library::{Library, functions};

/// CUcontext and CUstream.
type Context = *mut c_void;
type Stream = *mut c_void;

/// Of CUpointer_attribute.
const ATTRIBUTE_CONTEXT: c_int = 1;
const ATTRIBUTE_MEMORY_TYPE: c_int = 2;
const ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
/// Of CUmemorytype.
const MEMORY_DEVICE: c_uint = 2;
/// Of CUstream_flags: the stream does not wait for the default one, nor that for it.
const NON_BLOCKING: c_uint = 1;
/// Of CUstreamCaptureMode: captures of other streams do not forbid anything to the thread.
const CAPTURE_RELAXED: c_int = 2;

functions! {
    /// Functions of the driver API, as CUDA 10.1 and later have them.
    Functions {
        pointer_attribute = c"cuPointerGetAttribute" (*mut c_void, c_int, u64);
        device = c"cuDeviceGet" (*mut c_int, c_int);
        retain_primary = c"cuDevicePrimaryCtxRetain" (*mut Context, c_int);
        release_primary = c"cuDevicePrimaryCtxRelease" (c_int);
        push = c"cuCtxPushCurrent_v2" (Context);
        pop = c"cuCtxPopCurrent_v2" (*mut Context);
        create_stream = c"cuStreamCreate" (*mut Stream, c_uint);
        destroy_stream = c"cuStreamDestroy_v2" (Stream);
        synchronize = c"cuStreamSynchronize" (Stream);
        to_host = c"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Stream);
        to_device = c"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Stream);
        exchange_mode = c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
    }
}

/// Returns the functions if the driver is loaded.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    let found = Functions::find(&Library::loaded(&[c"libcuda.so.1", c"libcuda.so"])?)?;
    Some(FOUND.get_or_init(|| found))
}

/// What memory belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// A context, by its address.
    Context(usize),
    /// The primary context of a device: memory of cuMemCreate belongs to none.
    Device(c_int),
}

impl Functions {
    /// Returns an attribute of a pointer.
    fn attribute<T: Default>(&self, which: c_int, addr: u64) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the attribute has the type T.
        let code = unsafe { (self.pointer_attribute)((&raw mut value).cast(), which, addr) };
        (code == 0).then_some(value)
    }

    /// Returns the owner of memory of a device; `None` for other memory.
    fn owner(&self, addr: u64) -> Option<Owner> {
        if self.attribute::<c_uint>(ATTRIBUTE_MEMORY_TYPE, addr)? != MEMORY_DEVICE {
            return None;
        }
        match self.attribute::<usize>(ATTRIBUTE_CONTEXT, addr) {
            Some(context) if context != 0 => Some(Owner::Context(context)),
            _ => self.attribute(ATTRIBUTE_DEVICE_ORDINAL, addr).map(Owner::Device),
        }
    }
}

/// A stream of a context, on which nothing else runs.
struct Copies {
    functions: &'static Functions,
    context: Context,
    stream: Stream,
    /// The device whose primary context it is, to be released.
    device: Option<c_int>,
}

// SAFETY: contexts and streams may be used by all threads (CUDA's driver API is thread-safe).
unsafe impl Send for Copies {}
// SAFETY: as above.
unsafe impl Sync for Copies {}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA context {:p}, stream {:p}", self.context, self.stream)
    }
}

/// Returns an error of the driver as such.
fn check(call: &'static str, code: c_int) -> Result<(), GpuError> {
    if code == 0 { Ok(()) } else { Err(GpuError::Driver { call, code }) }
}

/// Makes a context current in the calling thread for the duration of `act`.
fn within<T>(
    functions: &Functions,
    context: Context,
    act: impl FnOnce() -> Result<T, GpuError>,
) -> Result<T, GpuError> {
    let mut mode = CAPTURE_RELAXED;
    // SAFETY: a mode to be exchanged.
    check("cuThreadExchangeStreamCaptureMode", unsafe { (functions.exchange_mode)(&raw mut mode) })?;
    // SAFETY: the driver checks the context.
    let pushed = check("cuCtxPushCurrent", unsafe { (functions.push)(context) });
    let done = pushed.and_then(|()| {
        let done = act();
        let mut popped = null_mut();
        // SAFETY: there is a context on the thread's stack.
        unsafe { (functions.pop)(&raw mut popped) };
        done
    });
    // SAFETY: the mode that was the thread's.
    unsafe { (functions.exchange_mode)(&raw mut mode) };
    done
}

impl Copies {
    fn new(functions: &'static Functions, owner: Owner) -> Result<Copies, GpuError> {
        let (mut context, mut device): (Context, _) = (null_mut(), None);
        match owner {
            Owner::Context(address) => context = address as Context,
            Owner::Device(ordinal) => {
                let mut handle = 0;
                // SAFETY: the handle is written.
                check("cuDeviceGet", unsafe { (functions.device)(&raw mut handle, ordinal) })?;
                // SAFETY: the context is written.
                let code = unsafe { (functions.retain_primary)(&raw mut context, handle) };
                check("cuDevicePrimaryCtxRetain", code)?;
                device = Some(handle);
            }
        }
        let mut copies = Copies { functions, context, stream: null_mut(), device };
        let stream = &raw mut copies.stream;
        // SAFETY: the stream is written.
        let create = || check("cuStreamCreate", unsafe { (functions.create_stream)(stream, NON_BLOCKING) });
        within(functions, context, create)?;
        Ok(copies)
    }

    /// Starts a copy, and waits for its end.
    fn copy(&self, start: impl FnOnce(&Functions, Stream) -> c_int) -> Result<(), CopyError> {
        let copied = within(self.functions, self.context, || {
            let started = check("cuMemcpyAsync", start(self.functions, self.stream));
            // In any case: nothing may use the host's memory any more.
            // SAFETY: the stream exists.
            let ended = check("cuStreamSynchronize", unsafe { (self.functions.synchronize)(self.stream) });
            started.and(ended)
        });
        copied.map_err(|_| CopyError)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // Fails if the application has destroyed the context, with all streams.
            let _ = within(self.functions, self.context, || {
                // SAFETY: nobody uses the stream.
                check("cuStreamDestroy", unsafe { (self.functions.destroy_stream)(self.stream) })
            });
        }
        if let Some(device) = self.device {
            // SAFETY: retained by `new`.
            unsafe { (self.functions.release_primary)(device) };
        }
    }
}

impl Accelerator for Copies {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), CopyError> {
        // SAFETY: `to` is written, for its length, until the stream is synchronized; the driver checks the device's
        // memory.
        self.copy(|f, stream| unsafe { (f.to_host)(to.as_mut_ptr().cast(), addr, to.len(), stream) })
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), CopyError> {
        // SAFETY: as above, and `from` is read.
        self.copy(|f, stream| unsafe { (f.to_device)(addr, from.as_ptr().cast(), from.len(), stream) })
    }
}

/// Returns the means to copy the range if it is a CUDA device's memory.
pub(super) fn accelerator(addr: u64, len: u64) -> Result<Option<Arc<dyn Accelerator>>, GpuError> {
    static STREAMS: Streams<Owner, Copies> = Streams::new();
    let Some(functions) = functions() else { return Ok(None) };
    let Some(owner) = common(addr, len, |addr| functions.owner(addr))? else { return Ok(None) };
    Ok(Some(STREAMS.get(owner, || Copies::new(functions, owner))?))
}
