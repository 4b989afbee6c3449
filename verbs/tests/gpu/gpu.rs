//! A GPU: that of `driver.c`, or a real one.

use std::ffi::{CStr, CString, c_int, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use irnic_testkit::{once, skipped};
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;

use crate::kit::{Pd, errno};

/// A programming interface.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Api {
    Cuda,
    Hip,
}

type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// What only `driver.c` has.
#[derive(Copy, Clone)]
pub struct Fake {
    streams: unsafe extern "C" fn() -> c_int,
    fail: unsafe extern "C" fn(c_int),
}

impl Fake {
    /// The number of streams that exist.
    pub fn streams(&self) -> c_int {
        // SAFETY: has no precondition.
        unsafe { (self.streams)() }
    }

    /// Has copies on streams fail: those to the GPU, or those from it, or none.
    pub fn fail(&self, to_gpu: Option<bool>) {
        // SAFETY: has no precondition.
        unsafe { (self.fail)(to_gpu.map_or(-1, c_int::from)) }
    }
}

/// A GPU, used by the thread that opened it.
pub struct Gpu {
    api: Api,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    /// CUDA's take three arguments, and HIP's a direction.
    to_device: Copy,
    to_host: Copy,
    pub fake: Option<Fake>,
}

/// Whether the host's own GPU is to be used.
fn real() -> bool {
    std::env::var_os("TESTS_GPU").is_some_and(|which| which == "real")
}

/// Builds `driver.c` under the name of an interface's library.
fn build(api: Api) -> CString {
    let (name, define) = if api == Api::Cuda { ("libcuda.so.1", "CUDA") } else { ("libamdhip64.so.6", "HIP") };
    let folder = once::folder(name, |folder| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/driver.c");
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-pthread", "-D", define, source, "-o"]);
        cc.arg(folder.join(name)).arg(format!("-Wl,-soname,{name}"));
        let output = cc.output().map_err(|e| format!("cc: {e}"))?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });
    let path = folder.unwrap_or_else(|e| panic!("{e}")).join(name);
    CString::new(path.into_os_string().into_encoded_bytes()).expect("a path without NUL")
}

/// The function of a library.
fn function<F>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: a handle and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "no {name:?}");
    assert_eq!(size_of::<F>(), size_of_val(&found));
    // SAFETY: the callers name the type that the function has in C.
    unsafe { std::mem::transmute_copy(&found) }
}

impl Gpu {
    /// Those to test with. Other tests of the process wait until they are used.
    pub fn all() -> impl Iterator<Item = Gpu> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let apis: &[Api] = if real() { &[Api::Cuda] } else { &[Api::Cuda, Api::Hip] };
        apis.iter().filter_map(move |&api| {
            let _ = &alone;
            Gpu::open(api)
        })
    }

    pub fn open(api: Api) -> Option<Gpu> {
        let name = if real() { c"libcuda.so.1".to_owned() } else { build(api) };
        // SAFETY: the driver, or `driver.c`.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() && real() {
            skipped("no GPU: there is no libcuda.so.1");
            return None;
        }
        assert!(!library.is_null(), "{name:?} is not loaded");
        if api == Api::Cuda && !enter(library) {
            skipped("no GPU: CUDA finds none");
            return None;
        }
        let names = match api {
            Api::Cuda => [c"cuMemAlloc_v2", c"cuMemFree_v2", c"cuMemcpyHtoD_v2", c"cuMemcpyDtoH_v2"],
            Api::Hip => [c"hipMalloc", c"hipFree", c"hipMemcpy", c"hipMemcpy"],
        };
        let [allocate, free, to_device, to_host] = names;
        let fake = (!real())
            .then(|| Fake { streams: function(library, c"fake_streams"), fail: function(library, c"fake_fail") });
        Some(Gpu {
            api,
            allocate: function(library, allocate),
            free: function(library, free),
            to_device: function(library, to_device),
            to_host: function(library, to_host),
            fake,
        })
    }

    /// Allocates memory, and returns its address.
    pub fn allocate(&self, len: usize) -> u64 {
        let mut at = 0;
        // SAFETY: the address is written.
        assert_eq!(unsafe { (self.allocate)(&mut at, len) }, 0, "{:?}: no memory", self.api);
        at
    }

    /// Allocates and registers memory.
    pub fn register(&self, pd: &Pd, len: usize, access: u32) -> Memory<'_> {
        let at = self.allocate(len);
        // SAFETY: the memory lives as long as the region.
        let mr = unsafe { ibv_reg_mr(pd.0, at as *mut c_void, len, access as c_int) };
        assert!(!mr.is_null(), "errno {}", errno());
        Memory { gpu: self, at, mr }
    }
}

/// Makes the primary context of the first device current; returns false if there is none.
fn enter(library: *mut c_void) -> bool {
    let init: unsafe extern "C" fn(u32) -> c_int = function(library, c"cuInit");
    let device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = function(library, c"cuDeviceGet");
    let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int = function(library, c"cuDevicePrimaryCtxRetain");
    let current: unsafe extern "C" fn(*mut *mut c_void) -> c_int = function(library, c"cuCtxGetCurrent");
    let push: unsafe extern "C" fn(*mut c_void) -> c_int = function(library, c"cuCtxPushCurrent_v2");
    let (mut handle, mut context, mut now) = (0, null_mut(), null_mut());
    // SAFETY: each gets what the one before returned.
    unsafe {
        init(0) == 0
            && device(&mut handle, 0) == 0
            && retain(&mut context, handle) == 0
            && current(&mut now) == 0
            && (now == context || push(context) == 0)
    }
}

/// Registered memory of a GPU.
pub struct Memory<'g> {
    gpu: &'g Gpu,
    at: u64,
    pub mr: *mut ibv_mr,
}

impl Memory<'_> {
    pub fn addr(&self) -> u64 {
        self.at
    }

    /// `len` bytes from `at`, as a scatter/gather element.
    pub fn sge(&self, at: usize, len: usize) -> ibv_sge {
        // SAFETY: exists.
        ibv_sge { addr: self.at + at as u64, length: len as u32, lkey: unsafe { (*self.mr).lkey } }
    }

    /// The address and the key for peers.
    pub fn remote(&self, at: usize) -> (u64, u32) {
        // SAFETY: exists.
        (self.at + at as u64, unsafe { (*self.mr).rkey })
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = (self.at + at as u64) as *mut c_void;
        // SAFETY: the bytes are read; the driver checks the range. CUDA ignores the direction.
        assert_eq!(unsafe { (self.gpu.to_device)(to, bytes.as_ptr().cast(), bytes.len(), 1) }, 0);
    }

    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let (mut bytes, from) = (vec![0_u8; len], (self.at + at as u64) as *const c_void);
        // SAFETY: the bytes are written; the driver checks the range. CUDA ignores the direction.
        assert_eq!(unsafe { (self.gpu.to_host)(bytes.as_mut_ptr().cast(), from, len, 2) }, 0);
        bytes
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: both exist.
        let ended = unsafe { (ibv_dereg_mr(self.mr), (self.gpu.free)(self.at)) };
        assert!(std::thread::panicking() || ended == (0, 0), "{ended:?}");
    }
}
