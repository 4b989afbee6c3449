//! The version of the program, set by the program: libraries do not know the commit that they are built from.

use std::sync::OnceLock;

static VERSION: OnceLock<&str> = OnceLock::new();

/// Sets the version, with the commit if it is known: `0.1.0 (5d0c9d9a1b2c 2026-01-31)`. Later calls have no effect.
pub fn set(version: &'static str) {
    let _ = VERSION.set(version);
}

/// Returns the program's version; that of this crate if it was not set.
pub fn get() -> &'static str {
    VERSION.get_or_init(|| env!("CARGO_PKG_VERSION"))
}
