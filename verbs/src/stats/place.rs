//! The place of the report on standard error: after all output of the application, on a line of its own.
//!
//! A process exits by running the handlers registered with atexit(3), the report among them, and flushes its C streams
//! after that. So the streams are flushed first here. Whether the last line was ended is known for a file, and for a
//! stream that was just flushed; for a terminal it does not matter.

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

/// Flushes a stream, unless another thread holds its lock, possibly forever. Returns the last byte that was in it.
///
/// # Safety
/// `stream` is open, or NULL.
unsafe fn empty(stream: *mut libc::FILE) -> Option<u8> {
    // SAFETY: the caller's promise.
    if stream.is_null() || unsafe { ftrylockfile(stream) } != 0 {
        return None;
    }
    // SAFETY: this thread holds the stream's lock. The fields read must agree with the results of its functions.
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

/// Returns the last byte of the file that is standard error.
fn last_of_file() -> io::Result<u8> {
    // Opened again, since it was opened for writing.
    let file = File::open("/proc/self/fd/2")?;
    let mut last = [b'\n'];
    if let Some(at) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    Ok(last[0])
}

/// Flushes the application's streams and returns what has to be written to standard error to begin a line there.
pub(super) fn new_line() -> String {
    // SAFETY: the C library's own, which a process may close but not free.
    let last = unsafe {
        empty(stderr);
        empty(stdout)
    };
    let Some(found) = stat(libc::STDERR_FILENO) else { return String::new() };
    let unfinished = match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => last_of_file().is_ok_and(|last| last != b'\n'),
        libc::S_IFCHR => return terminal(),
        // The contents of a pipe are unknown. If the application last wrote to the same one, it ends like that output.
        _ => {
            let same = |other: libc::stat| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino);
            last.is_some_and(|last| last != b'\n') && stat(libc::STDOUT_FILENO).is_some_and(same)
        }
    };
    if unfinished { "\n".into() } else { String::new() }
}

/// Returns a line of spaces and a carriage return: at the beginning of a line this has no effect, elsewhere it leads to
/// the next line.
fn terminal() -> String {
    // SAFETY: all-zero is a valid size, and the call fills it in, or fails if it is not a terminal.
    let (result, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size), size)
    };
    if result != 0 || size.ws_col == 0 {
        return String::new();
    }
    " ".repeat(size.ws_col.into()) + "\r"
}
