//! AMD's HIP, as ROCm 6 and later have it.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use irnic_nic::{Accelerator, CopyError};

use super::common::{GpuError, Streams, common};
use super::library::{Library, functions};

/// hipStream_t.
type Stream = *mut c_void;

/// The first version whose memory types are those below.
const ROCM_6: c_int = 60_000_000;
/// Of hipMemoryType.
const MEMORY_DEVICE: c_int = 2;
/// hipStreamNonBlocking: the stream does not wait for the default one, nor that for it.
const NON_BLOCKING: c_uint = 1;
/// Of hipMemcpyKind.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;

/// hipPointerAttribute_t.
#[repr(C)]
struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    is_managed: c_int,
    flags: c_uint,
}

functions! {
    /// Functions of the runtime.
    Functions {
        version = c"hipRuntimeGetVersion" (*mut c_int);
        attributes = c"hipPointerGetAttributes" (*mut Attributes, *const c_void);
        get_device = c"hipGetDevice" (*mut c_int);
        set_device = c"hipSetDevice" (c_int);
        create_stream = c"hipStreamCreateWithFlags" (*mut Stream, c_uint);
        destroy_stream = c"hipStreamDestroy" (Stream);
        synchronize = c"hipStreamSynchronize" (Stream);
        last_error = c"hipGetLastError" ();
        copy = c"hipMemcpyAsync" (*mut c_void, *const c_void, usize, c_int, Stream);
    }
}

/// Returns the functions if the runtime is loaded, and of a known version.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    let names = [c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so"];
    let found = Functions::find(&Library::loaded(&names)?)?;
    let mut version = 0;
    // SAFETY: the version is written.
    let known = unsafe { (found.version)(&raw mut version) } == 0 && version >= ROCM_6;
    known.then(|| FOUND.get_or_init(|| found))
}

impl Functions {
    /// Returns the device whose memory this is; `None` for other memory.
    fn device(&self, addr: u64) -> Option<c_int> {
        let (device_pointer, host_pointer) = (null_mut(), null_mut());
        let mut found = Attributes { kind: 0, device: 0, device_pointer, host_pointer, is_managed: 0, flags: 0 };
        // SAFETY: the attributes are written; the pointer is only looked up.
        let code = unsafe { (self.attributes)(&raw mut found, addr as *const c_void) };
        if code != 0 {
            // That of an unknown pointer is not the application's.
            // SAFETY: has no precondition.
            unsafe { (self.last_error)() };
        }
        (code == 0 && found.kind == MEMORY_DEVICE).then_some(found.device)
    }
}

/// A stream of a device, on which nothing else runs.
struct Copies {
    functions: &'static Functions,
    device: c_int,
    stream: Stream,
}

// SAFETY: streams may be used by all threads.
unsafe impl Send for Copies {}
// SAFETY: as above.
unsafe impl Sync for Copies {}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HIP device {}, stream {:p}", self.device, self.stream)
    }
}

/// Returns an error of the runtime as such.
fn check(call: &'static str, code: c_int) -> Result<(), GpuError> {
    if code == 0 { Ok(()) } else { Err(GpuError::Driver { call, code }) }
}

/// Makes a device the calling thread's for the duration of `act`.
fn within(functions: &Functions, device: c_int, act: impl FnOnce() -> Result<(), GpuError>) -> Result<(), GpuError> {
    let mut before = 0;
    // SAFETY: the device is written.
    check("hipGetDevice", unsafe { (functions.get_device)(&raw mut before) })?;
    // SAFETY: numbers.
    check("hipSetDevice", unsafe { (functions.set_device)(device) })?;
    let done = act();
    // SAFETY: the device that was the thread's.
    unsafe { (functions.set_device)(before) };
    done
}

impl Copies {
    fn new(functions: &'static Functions, device: c_int) -> Result<Copies, GpuError> {
        let mut copies = Copies { functions, device, stream: null_mut() };
        let stream = &raw mut copies.stream;
        within(functions, device, || {
            // SAFETY: the stream is written.
            check("hipStreamCreateWithFlags", unsafe { (functions.create_stream)(stream, NON_BLOCKING) })
        })?;
        Ok(copies)
    }

    /// Copies, and waits for the end.
    ///
    /// # Safety
    /// What belongs to the host may be written or read, for `len` bytes.
    unsafe fn copy(&self, to: *mut c_void, from: *const c_void, len: usize, kind: c_int) -> Result<(), CopyError> {
        let copied = within(self.functions, self.device, || {
            // SAFETY: the caller's promise; the runtime checks the device's memory.
            let started = check("hipMemcpyAsync", unsafe { (self.functions.copy)(to, from, len, kind, self.stream) });
            // In any case: nothing may use the host's memory any more.
            // SAFETY: the stream exists.
            let ended = check("hipStreamSynchronize", unsafe { (self.functions.synchronize)(self.stream) });
            started.and(ended)
        });
        copied.map_err(|_| CopyError)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // Fails if the application has reset the device.
            // SAFETY: nobody uses the stream.
            unsafe { (self.functions.destroy_stream)(self.stream) };
        }
    }
}

impl Accelerator for Copies {
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), CopyError> {
        // SAFETY: `to` is written, for its length.
        unsafe { self.copy(to.as_mut_ptr().cast(), addr as *const c_void, to.len(), TO_HOST) }
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), CopyError> {
        // SAFETY: `from` is read, for its length.
        unsafe { self.copy(addr as *mut c_void, from.as_ptr().cast(), from.len(), TO_DEVICE) }
    }
}

/// Returns the means to copy the range if it is an AMD GPU's memory.
pub(super) fn accelerator(addr: u64, len: u64) -> Result<Option<Arc<dyn Accelerator>>, GpuError> {
    static STREAMS: Streams<c_int, Copies> = Streams::new();
    let Some(functions) = functions() else { return Ok(None) };
    let Some(device) = common(addr, len, |addr| functions.device(addr))? else { return Ok(None) };
    Ok(Some(STREAMS.get(device, || Copies::new(functions, device))?))
}
