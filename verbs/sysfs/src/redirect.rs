//! Which path a path stands for.

use std::ffi::{CStr, c_char, c_int};

use crate::counters::{Counter, DIGITS, decimal, join};

/// What the kernel's drivers would provide.
const CLASSES: [&[u8]; 4] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_mad",
    b"/sys/class/infiniband_verbs",
    b"/sys/class/misc/rdma_cm",
];
/// Interfaces, whose directory `device` shows the RDMA devices on them.
const INTERFACES: &[u8] = b"/sys/class/net/";
const DEVICES: &[u8] = b"/dev/infiniband";
/// It is shown, and not opened: libirnic_verbs answers librdmacm itself, and commands must not vanish in /dev/null.
const CONNECTIONS: &[u8] = b"/dev/infiniband/rdma_cm";
/// What everybody may read and write, and is a character device.
const CHARACTER_DEVICE: &CStr = c"/dev/null";
/// Longer paths are left alone.
const LONGEST: usize = 1024;

/// What a function does with its path.
#[derive(Copy, Clone)]
pub enum How {
    /// It asks for attributes, or reads a directory.
    Look,
    /// It opens the file; a relative path begins at this descriptor of a directory.
    Open(c_int),
}

/// A path, perhaps another one than was asked for.
pub struct Redirected {
    original: *const c_char,
    other: Option<&'static CStr>,
    buffer: [u8; LONGEST],
    len: usize,
    /// A file without a name that the path leads to, or -1.
    file: c_int,
}

impl Redirected {
    /// What `path` stands for.
    ///
    /// # Safety
    /// `path` is NULL or a C string that lives as long as this.
    #[inline]
    pub unsafe fn new(path: *const c_char, how: How) -> Redirected {
        let mut redirected = Redirected { original: path, other: None, buffer: [0; LONGEST], len: 0, file: -1 };
        if !path.is_null() {
            // SAFETY: the caller's promise.
            redirected.look(unsafe { CStr::from_ptr(path) }.to_bytes(), how);
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

    /// Hands over the file without a name, closed on exec.
    pub fn take_file(&mut self) -> Option<c_int> {
        let file = std::mem::replace(&mut self.file, -1);
        // SAFETY: no memory is passed.
        (file >= 0 && unsafe { libc::lseek(file, 0, libc::SEEK_SET) } == 0).then_some(file)
    }

    fn look(&mut self, path: &[u8], how: How) {
        let absolute = path.first() == Some(&b'/');
        let device = absolute && is_below(path, DEVICES);
        let interface = absolute && is_of_interface(path);
        if device || interface || absolute && CLASSES.iter().any(|class| is_below(path, class)) {
            let Some(root) = root() else { return };
            if device && matches!(how, How::Open(_)) && path == CONNECTIONS {
                return;
            }
            let Some(len) = join(&mut self.buffer, &[root, path, b"\0"]) else { return };
            // What the interface's real device has stays: only what a driver would have put there is shown.
            if interface && !self.exists() {
                return;
            }
            self.len = len;
            if device && path.len() > DEVICES.len() + 1 && self.exists() {
                self.other = Some(CHARACTER_DEVICE);
            }
            self.look_for_counter(path, root, how);
        } else if let How::Open(directory) = how
            && (!absolute || contains(path, b"counters/"))
            && let Some(root) = root()
        {
            // Someone went into the directory that stands for /sys, or was told its name.
            let mut place = [0u8; LONGEST];
            let within = if absolute { path.starts_with(root) } else { is_within(directory, root, &mut place) };
            let joined = match (within, absolute) {
                (false, _) => return,
                (true, true) => join(&mut place, &[path]),
                (true, false) => {
                    let at = place.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
                    join(&mut place[at..], &[b"/", path.strip_prefix(b"./").unwrap_or(path)]).map(|len| at + len)
                }
            };
            if let Some(len) = joined {
                self.look_for_counter(&place[..len], root, how);
            }
        }
    }

    /// Leads to a file with the counter's value, if the path is one's.
    fn look_for_counter(&mut self, path: &[u8], root: &[u8], how: How) {
        let How::Open(_) = how else { return };
        let Some(file) = Counter::of(path).and_then(|counter| counter.open(root)) else { return };
        self.file = file;
        let mut digits = [0; DIGITS];
        let parts: [&[u8]; 3] = [b"/proc/self/fd/", decimal(file.unsigned_abs().into(), &mut digits), b"\0"];
        self.len = join(&mut self.buffer, &parts).unwrap_or(0);
    }

    /// Tells whether the file whose path is in the buffer is there. The system call itself: `access` is one of the
    /// functions that come here.
    fn exists(&self) -> bool {
        // SAFETY: the buffer has a C string.
        unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, self.buffer.as_ptr(), libc::F_OK) == 0 }
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        if self.file >= 0 {
            // SAFETY: this object's own.
            unsafe { libc::close(self.file) };
        }
    }
}

/// The directory that stands in.
fn root() -> Option<&'static [u8]> {
    // SAFETY: the environment is the application's; it must not change it while others read it.
    let root = unsafe { libc::getenv(c"IRNIC_SYSFS".as_ptr()) };
    if root.is_null() {
        return None;
    }
    // SAFETY: the environment holds C strings.
    Some(unsafe { CStr::from_ptr(root) }.to_bytes()).filter(|root| !root.is_empty())
}

/// Writes the path of an open directory, or of the working directory, and tells whether that is within `root`.
fn is_within(directory: c_int, root: &[u8], path: &mut [u8; LONGEST]) -> bool {
    // SAFETY: the buffers have the lengths given. The system calls themselves: `readlink` comes here too.
    let got = unsafe {
        if directory == libc::AT_FDCWD {
            libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), LONGEST)
        } else {
            let (mut link, mut digits) = ([0u8; 48], [0; DIGITS]);
            if join(&mut link, &[b"/proc/self/fd/", decimal(directory.unsigned_abs().into(), &mut digits)]).is_none() {
                return false;
            }
            libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), LONGEST - 1)
        }
    };
    got > 0 && path.starts_with(root)
}

/// Tells whether a path is a directory or within it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Tells whether a path is what an interface's device has of RDMA: /sys/class/net/INTERFACE/device/infiniband…
fn is_of_interface(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(INTERFACES) else { return false };
    let rest = &rest[rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len())..];
    is_below(rest, b"/device/infiniband") || is_below(rest, b"/device/infiniband_verbs")
}

fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}
