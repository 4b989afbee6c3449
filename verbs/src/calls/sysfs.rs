//! Files under `/sys`, for the libraries that read them through libibverbs.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::slice;
use std::sync::OnceLock;

use crate::errno::{guard, set_errno};

/// Returns the mount point of sysfs: `SYSFS_PATH` without its trailing slashes, or `/sys`. A set-user-ID program
/// ignores its environment. The string lives as long as the process.
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    guard(c"/sys".as_ptr(), || {
        PATH.get_or_init(|| {
            // SAFETY: neither call has a precondition.
            let own_environment = unsafe { libc::getuid() == libc::geteuid() };
            let mut path = match env::var_os("SYSFS_PATH") {
                Some(path) if own_environment => path.into_vec(),
                _ => b"/sys".to_vec(),
            };
            while path.last() == Some(&b'/') {
                path.pop();
            }
            // The environment holds C strings: there is no NUL inside.
            CString::new(path).unwrap_or_default()
        })
        .as_ptr()
    })
}

/// Reads `dir/file` into `buf` of `size` bytes and replaces a final newline by a NUL, or appends one.
///
/// Returns the length of the text, or -1 with `errno`: that of the file, or `ENOSPC` if the NUL does not fit.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard(-1, || {
        // SAFETY: both are C strings, per the prototype.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let mut path = PathBuf::from(OsStr::from_bytes(dir.to_bytes()));
        path.push(OsStr::from_bytes(file.to_bytes()));
        // SAFETY: the caller owns `size` bytes at `buf`. A file writes bytes there, never reads them.
        let buf = unsafe { slice::from_raw_parts_mut(buf.cast::<u8>(), size) };
        let len = match File::open(path).and_then(|mut file| file.read(buf)) {
            Ok(len) => len,
            Err(e) => {
                set_errno(e.raw_os_error().unwrap_or(libc::EIO));
                return -1;
            }
        };
        if len == 0 {
            return 0;
        }
        if buf[len - 1] == b'\n' {
            buf[len - 1] = 0;
            return len as c_int - 1;
        }
        let Some(end) = buf.get_mut(len) else {
            set_errno(libc::ENOSPC);
            return -1;
        };
        *end = 0;
        len as c_int
    })
}
