//! Functions of a shared object that the application has loaded.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A loaded shared object. It stays loaded.
pub(super) struct Library(NonNull<c_void>);

impl Library {
    /// Finds a shared object by its names. Loads none.
    pub(super) fn loaded(names: &[&CStr]) -> Option<Library> {
        // SAFETY: C strings; with RTLD_NOLOAD nothing is loaded or initialised.
        let find = |name: &&CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        names.iter().find_map(|name| NonNull::new(find(name))).map(Library)
    }

    /// Finds a function.
    pub(super) fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a handle from dlopen(3) and a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// Defines a structure of a library's functions, all of which return a number that is 0 on success.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident { $($field:ident = $symbol:literal ($($arg:ty),*);)+ }) => {
        $(#[$about])*
        pub(super) struct $name {
            $($field: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)+
        }

        impl $name {
            /// Finds the functions; `None` if one is missing.
            fn find(library: &$crate::gpu::library::Library) -> Option<$name> {
                Some($name {
                    $($field: {
                        let found = library.function($symbol)?.as_ptr();
                        // SAFETY: the library documents a function of this name to have this type.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) -> std::ffi::c_int>(
                                found,
                            )
                        }
                    },)+
                })
            }
        }
    };
}
pub(super) use functions;
