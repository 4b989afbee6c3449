//! The C library's own functions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name after this object's.
pub struct Next {
    name: &'static CStr,
    /// The version of the symbol, for functions of which there are several.
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, version: None, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Next {
        Next { name, version: Some(version), found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function; null if there is none.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let name = self.name.as_ptr();
        let versioned = self.version.map(|version| {
            // SAFETY: two C strings.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr()) }
        });
        // SAFETY: a C string.
        let found = versioned.filter(|f| !f.is_null()).unwrap_or_else(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name) });
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the next function of a name with the type of the function around it, or returns a value if there is none.
macro_rules! next {
    ($next:expr, $missing:expr, ($($argument:expr => $type:ty),*) -> $result:ty) => {{
        let found = $next.get();
        if found.is_null() {
            return $missing;
        }
        // SAFETY: the C library's function of this name has this type, and the arguments are the caller's.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(found);
            function($($argument),*)
        }
    }};
}

/// The name of a function as a C string.
macro_rules! c_name {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name"),
        }
    };
}

pub(crate) use {c_name, next};
