//! The functions of the C library that take paths.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{AT_FDCWD, DIR, FILE, mode_t, size_t, ssize_t};

use crate::redirect::{How, Redirected};

/// Functions that call the next one of their name with another path. Those of a name's older generations are exported
/// too: old binaries import them. A C library that lacks one sets ENOSYS.
macro_rules! redirect {
    ($($(#[$attribute:meta])* [$how:expr] fn $name:ident($($before:ident: $b:ty,)* *path $(, $after:ident: $a:ty)*) -> $result:ty, $failed:expr;)+) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// That of the function of this name in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($before: $b,)* path: *const c_char $(, $after: $a)*) -> $result {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                let next = next(&NEXT, concat!(stringify!($name), "\0"));
                if next.is_null() {
                    // SAFETY: this thread's.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type; `path` is its caller's.
                unsafe {
                    let function: unsafe extern "C" fn($($b,)* *const c_char $(, $a)*) -> $result =
                        std::mem::transmute(next);
                    let mut redirected = Redirected::new(path, $how);
                    if redirected.is_refused() {
                        *libc::__errno_location() = libc::EACCES;
                        return $failed;
                    }
                    let result = function($($before,)* redirected.as_ptr() $(, $after)*);
                    result.or_file(&mut redirected)
                }
            }
        )+
    };
}

/// What a function returns.
trait Outcome: Sized {
    /// The file that the path leads to, if it was not to be had by its path.
    fn or_file(self, _of: &mut Redirected) -> Self {
        self
    }
}

impl Outcome for c_int {
    #[inline]
    fn or_file(self, of: &mut Redirected) -> c_int {
        // The path is a symbolic link under /proc, which O_NOFOLLOW refuses.
        if self < 0 { of.take_file().unwrap_or(self) } else { self }
    }
}

impl Outcome for i64 {}
impl Outcome for ssize_t {}
impl<T> Outcome for *mut T {}

/// The next function of a name after this object's, found once.
fn next(cache: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// `struct stat`, `struct statx`, of whatever generation.
type Stat = *mut c_void;

// `open` and its kind are variadic in C: the mode is passed as a named argument would be, and may be anything if the
// flags do not ask for it.
redirect! {
    [How::Open(AT_FDCWD, flags)] fn open(*path, flags: c_int, mode: mode_t) -> c_int, -1;
    [How::Open(AT_FDCWD, flags)] fn open64(*path, flags: c_int, mode: mode_t) -> c_int, -1;
    [How::Open(dir, flags)] fn openat(dir: c_int, *path, flags: c_int, mode: mode_t) -> c_int, -1;
    [How::Open(dir, flags)] fn openat64(dir: c_int, *path, flags: c_int, mode: mode_t) -> c_int, -1;
    [How::Open(AT_FDCWD, flags)] fn __open_2(*path, flags: c_int) -> c_int, -1;
    [How::Open(AT_FDCWD, flags)] fn __open64_2(*path, flags: c_int) -> c_int, -1;
    [How::Open(dir, flags)] fn __openat_2(dir: c_int, *path, flags: c_int) -> c_int, -1;
    [How::Open(dir, flags)] fn __openat64_2(dir: c_int, *path, flags: c_int) -> c_int, -1;
    [How::fopen(mode)] fn fopen(*path, mode: *const c_char) -> *mut FILE, std::ptr::null_mut();
    [How::fopen(mode)] fn fopen64(*path, mode: *const c_char) -> *mut FILE, std::ptr::null_mut();
    [How::Look(AT_FDCWD)] fn stat(*path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn stat64(*path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn lstat(*path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn lstat64(*path, to: Stat) -> c_int, -1;
    [How::Look(dir)] fn fstatat(dir: c_int, *path, to: Stat, flags: c_int) -> c_int, -1;
    [How::Look(dir)] fn fstatat64(dir: c_int, *path, to: Stat, flags: c_int) -> c_int, -1;
    [How::Look(dir)] fn statx(dir: c_int, *path, flags: c_int, mask: c_uint, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn __xstat(version: c_int, *path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn __xstat64(version: c_int, *path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn __lxstat(version: c_int, *path, to: Stat) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn __lxstat64(version: c_int, *path, to: Stat) -> c_int, -1;
    [How::Look(dir)] fn __fxstatat(version: c_int, dir: c_int, *path, to: Stat, flags: c_int) -> c_int, -1;
    [How::Look(dir)] fn __fxstatat64(version: c_int, dir: c_int, *path, to: Stat, flags: c_int) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn access(*path, mode: c_int) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn eaccess(*path, mode: c_int) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn euidaccess(*path, mode: c_int) -> c_int, -1;
    [How::Look(dir)] fn faccessat(dir: c_int, *path, mode: c_int, flags: c_int) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn readlink(*path, to: *mut c_char, size: size_t) -> ssize_t, -1;
    [How::Look(AT_FDCWD)] fn __readlink_chk(*path, to: *mut c_char, size: size_t, room: size_t) -> ssize_t, -1;
    [How::Look(dir)] fn readlinkat(dir: c_int, *path, to: *mut c_char, size: size_t) -> ssize_t, -1;
    [How::Look(AT_FDCWD)] fn chdir(*path) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn opendir(*path) -> *mut DIR, std::ptr::null_mut();
    [How::Look(AT_FDCWD)] fn realpath(*path, to: *mut c_char) -> *mut c_char, std::ptr::null_mut();
    [How::Look(AT_FDCWD)] fn __realpath_chk(*path, to: *mut c_char, room: size_t) -> *mut c_char, std::ptr::null_mut();
    [How::Look(AT_FDCWD)] fn canonicalize_file_name(*path) -> *mut c_char, std::ptr::null_mut();
    [How::Look(AT_FDCWD)] fn getxattr(*path, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t, -1;
    [How::Look(AT_FDCWD)] fn lgetxattr(*path, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t, -1;
    [How::Look(AT_FDCWD)] fn pathconf(*path, name: c_int) -> c_long, -1;
    [How::Look(AT_FDCWD)] fn scandir(*path, to: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, -1;
    [How::Look(AT_FDCWD)] fn scandir64(*path, to: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, -1;
}
