//! Which path a path stands for.

use std::ffi::{CStr, c_char, c_int};

use crate::counters::{Counter, DIGITS, decimal, join};

/// What the kernel's drivers would provide.
const CLASSES: [&[u8]; 7] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_mad",
    b"/sys/class/infiniband_verbs",
    b"/sys/class/misc/rdma_cm",
    // Modules that give NICs access to the memory of GPUs.
    b"/sys/kernel/mm/memory_peers",
    b"/sys/module/nvidia_peermem",
    b"/sys/module/nv_peer_mem",
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

/// What a function does with its path, which begins at a descriptor of a directory if it is relative.
#[derive(Copy, Clone)]
pub enum How {
    /// It asks for attributes, or reads a directory.
    Look(c_int),
    /// It opens the file, with these flags.
    Open(c_int, c_int),
}

impl How {
    /// fopen(3) with a mode.
    ///
    /// # Safety
    /// `mode` is NULL or a C string.
    pub unsafe fn fopen(mode: *const c_char) -> How {
        // SAFETY: the caller's promise.
        let reads = mode.is_null() || unsafe { CStr::from_ptr(mode) }.to_bytes().iter().all(|c| !b"wa+".contains(c));
        How::Open(libc::AT_FDCWD, if reads { libc::O_RDONLY } else { libc::O_RDWR })
    }

    fn directory(self) -> c_int {
        let (How::Look(directory) | How::Open(directory, _)) = self;
        directory
    }

    fn writes(self) -> bool {
        matches!(self, How::Open(_, flags) if flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != libc::O_RDONLY)
    }
}

/// A path, perhaps another one than was asked for.
pub struct Redirected {
    original: *const c_char,
    other: Option<&'static CStr>,
    buffer: [u8; LONGEST],
    len: usize,
    /// A file without a name that the path leads to, or -1.
    file: c_int,
    refused: bool,
}

impl Redirected {
    /// What `path` stands for.
    ///
    /// # Safety
    /// `path` is NULL or a C string that lives as long as this.
    #[inline]
    pub unsafe fn new(path: *const c_char, how: How) -> Redirected {
        let mut redirected =
            Redirected { original: path, other: None, buffer: [0; LONGEST], len: 0, file: -1, refused: false };
        if !path.is_null() {
            // SAFETY: the caller's promise.
            redirected.redirect(unsafe { CStr::from_ptr(path) }.to_bytes(), how);
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

    fn redirect(&mut self, path: &[u8], how: How) {
        // What is far from both directories costs nothing.
        if path.first() == Some(&b'/') && ![&b"/sys"[..], b"/dev"].iter().any(|top| path.starts_with(top)) {
            let Some(root) = root() else { return };
            if !is_below(path, root) {
                return;
            }
        }
        let Some(root) = root() else { return };
        let mut place = [0u8; LONGEST];
        // A path that names a driver's directory is left as it is: `..` leads to what a link in it says.
        let mut from_root = false;
        let path = if is_shown(path) {
            path
        } else {
            let Some((len, through_root)) = resolve(path, how.directory(), root, &mut place) else { return };
            from_root = through_root;
            &place[..len]
        };
        let (device, interface, shown) = (is_below(path, DEVICES), is_of_interface(path), is_shown(path));
        if device && matches!(how, How::Open(..)) && path == CONNECTIONS {
            return;
        }
        if shown {
            let Some(len) = join(&mut self.buffer, &[root, path, b"\0"]) else { return };
            // What the interface's real device has stays: only what a driver would have put there is shown.
            if interface && !self.exists() {
                return;
            }
            self.len = len;
            if device && path.len() > DEVICES.len() + 1 && self.exists() {
                self.other = Some(CHARACTER_DEVICE);
            } else {
                self.refused = how.writes();
            }
            self.look_for_counter(path, root, how);
        } else if from_root && is_below(path, b"/sys") {
            // Someone has left the directories that stand for a driver's: the rest of /sys is the kernel's.
            self.len = join(&mut self.buffer, &[path, b"\0"]).unwrap_or(0);
        }
    }

    /// Tells whether the kernel would refuse to open the file: those of drivers are not written (EACCES).
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Leads to a file with the counter's value, if the path is one's.
    fn look_for_counter(&mut self, path: &[u8], root: &[u8], how: How) {
        let How::Open(..) = how else { return };
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

/// Writes the absolute path that `path` stands for, without `.` and `..`, as if `root` were the root of the file system
/// for what is in it. Returns its length, and whether the path leads through `root`; `None` if it is too long, or
/// empty.
fn resolve(path: &[u8], directory: c_int, root: &[u8], place: &mut [u8; LONGEST]) -> Option<(usize, bool)> {
    if path.is_empty() {
        return None;
    }
    let mut len = if path[0] == b'/' { 0 } else { directory_path(directory, place)? };
    let inside = |path: &[u8]| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    let mut from_root = false;
    let mut strip = |place: &mut [u8; LONGEST], len: &mut usize| {
        if inside(&place[..*len]) {
            place.copy_within(root.len()..*len, 0);
            *len -= root.len();
            from_root = true;
        }
    };
    strip(place, &mut len);
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => len = place[..len].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            _ => {
                len += join(place.get_mut(len..)?, &[b"/", part])?;
                strip(place, &mut len);
            }
        }
    }
    Some((len, from_root))
}

/// Writes the path of an open directory, or of the working directory. The system calls themselves: `readlink` comes
/// here, too.
fn directory_path(directory: c_int, path: &mut [u8; LONGEST]) -> Option<usize> {
    // SAFETY: the buffers have the lengths given.
    let got = unsafe {
        if directory == libc::AT_FDCWD {
            // With the terminating NUL.
            libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), LONGEST) - 1
        } else {
            let (mut link, mut digits) = ([0u8; 48], [0; DIGITS]);
            join(&mut link, &[b"/proc/self/fd/", decimal(directory.unsigned_abs().into(), &mut digits)])?;
            libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), LONGEST - 1)
        }
    };
    usize::try_from(got).ok().filter(|got| *got > 0 && path[0] == b'/')
}

/// Tells whether an absolute path is in a directory that is a driver's.
fn is_shown(path: &[u8]) -> bool {
    is_below(path, DEVICES) || is_of_interface(path) || CLASSES.iter().any(|class| is_below(path, class))
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
