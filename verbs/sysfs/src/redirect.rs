//! Which path a path stands for.

use std::ffi::{CStr, c_char};

/// What the kernel's drivers would provide.
const CLASSES: [&[u8]; 2] = [b"/sys/class/infiniband", b"/sys/class/infiniband_verbs"];
const DEVICES: &[u8] = b"/dev/infiniband";
/// What everybody may read and write, and is a character device.
const CHARACTER_DEVICE: &CStr = c"/dev/null";
/// Longer paths are left alone.
const LONGEST: usize = 1024;

/// A path, perhaps another one than was asked for.
pub struct Redirected {
    original: *const c_char,
    other: Option<&'static CStr>,
    buffer: [u8; LONGEST],
    len: usize,
}

impl Redirected {
    /// What `path` stands for.
    ///
    /// # Safety
    /// `path` is NULL or a C string that lives as long as this.
    #[inline]
    pub unsafe fn new(path: *const c_char) -> Redirected {
        let mut redirected = Redirected { original: path, other: None, buffer: [0; LONGEST], len: 0 };
        // SAFETY: the caller's promise.
        if !path.is_null() && unsafe { *path } == b'/' as c_char {
            // SAFETY: the caller's promise.
            redirected.look(unsafe { CStr::from_ptr(path) }.to_bytes());
        }
        redirected
    }

    /// What to give to the C library.
    pub fn as_ptr(&self) -> *const c_char {
        match (self.other, self.len) {
            (Some(other), _) => other.as_ptr(),
            (None, 0) => self.original,
            (None, _) => self.buffer.as_ptr().cast(),
        }
    }

    fn look(&mut self, path: &[u8]) {
        let device = is_below(path, DEVICES);
        if !device && !CLASSES.iter().any(|class| is_below(path, class)) {
            return;
        }
        // SAFETY: the environment is the application's; it must not change it while others read it.
        let root = unsafe { libc::getenv(c"IRNIC_SYSFS".as_ptr()) };
        if root.is_null() {
            return;
        }
        // SAFETY: the environment holds C strings.
        let root = unsafe { CStr::from_ptr(root) }.to_bytes();
        let len = root.len() + path.len();
        if root.is_empty() || len >= LONGEST {
            return;
        }
        self.buffer[..root.len()].copy_from_slice(root);
        self.buffer[root.len()..len].copy_from_slice(path);
        self.buffer[len] = 0;
        self.len = len;
        if device && path.len() > DEVICES.len() + 1 {
            // SAFETY: a C string. The system call itself: `access` is one of the functions that come here.
            let there = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, self.buffer.as_ptr(), libc::F_OK) };
            if there == 0 {
                self.other = Some(CHARACTER_DEVICE);
            }
        }
    }
}

/// Tells whether a path is a directory or within it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
