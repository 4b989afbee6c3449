//! Where on standard error the report begins: after all that the application wrote, on a line of its own.
//!
//! A process exits by running what was registered with atexit(3), the report among it, and empties its C streams after
//! that. So the streams come first here. Whether the last line was ended is known of a file, and of a stream whose end
//! was just emptied; a terminal needs not be asked.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;

use irnic_ports::output::without_sigpipe;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
    fn __fpending(stream: *mut libc::FILE) -> usize;
}

/// The beginning of the C library's streams (`struct _IO_FILE` of glibc, which its macros made part of the ABI).
#[repr(C)]
struct Stream {
    _flags: c_int,
    _read: [*const c_char; 3],
    write_base: *const c_char,
    write_ptr: *const c_char,
}

/// Empties a stream, unless a thread is inside, which may never come out. Returns the last byte that was in it.
///
/// # Safety
/// `stream` is open, or NULL.
unsafe fn empty(stream: *mut libc::FILE) -> Option<u8> {
    // SAFETY: the caller's promise.
    if stream.is_null() || unsafe { ftrylockfile(stream) } != 0 {
        return None;
    }
    // SAFETY: the stream is this thread's. What is read of its fields must agree with what it says of itself.
    unsafe {
        let pending = __fpending(stream);
        let fields = &*stream.cast::<Stream>();
        let agrees = fields.write_ptr.addr().wrapping_sub(fields.write_base.addr()) == pending;
        let last = (pending > 0 && agrees).then(|| fields.write_ptr.sub(1).cast::<u8>().read());
        without_sigpipe(|| libc::fflush(stream));
        funlockfile(stream);
        last
    }
}

fn stat(fd: c_int) -> Option<libc::stat> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: filled in if the call succeeds.
    (unsafe { libc::fstat(fd, found.as_mut_ptr()) } == 0).then(|| unsafe { found.assume_init() })
}

/// Returns the last byte of the file that standard error is.
fn last_of_file() -> io::Result<u8> {
    // Opened anew, since it was opened for writing.
    let file = File::open("/proc/self/fd/2")?;
    let mut last = [b'\n'];
    if let Some(at) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    Ok(last[0])
}

/// Empties the application's streams and returns what has to be written to standard error before a line begins there.
pub(super) fn new_line() -> String {
    // SAFETY: the C library's own, which a process may close but not take away.
    let last = unsafe {
        empty(stderr);
        empty(stdout)
    };
    let Some(found) = stat(libc::STDERR_FILENO) else { return String::new() };
    let unfinished = match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => last_of_file().is_ok_and(|last| last != b'\n'),
        libc::S_IFCHR => return terminal(),
        // A pipe keeps nothing. If the application wrote to the same one last, it ends as that did.
        _ => {
            let same = |other: libc::stat| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino);
            last.is_some_and(|last| last != b'\n') && stat(libc::STDOUT_FILENO).is_some_and(same)
        }
    };
    if unfinished { "\n".into() } else { String::new() }
}

/// Returns as many spaces as a line has, and the way back to its beginning: from the beginning of a line that leads
/// nowhere, from elsewhere to the next line.
fn terminal() -> String {
    // SAFETY: all-zero is a valid size, and the call fills it in, or fails on what is no terminal.
    let (asked, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size), size)
    };
    if asked != 0 || size.ws_col == 0 {
        return String::new();
    }
    " ".repeat(size.ws_col.into()) + "\r"
}
