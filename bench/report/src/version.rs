//! The version of the program, which it says itself: libraries do not know of which commit they are built.

use std::sync::OnceLock;

static VERSION: OnceLock<&str> = OnceLock::new();

/// Sets the version, with the commit if it is known: `0.1.0 (5d0c9d9a1b2c 2026-01-31)`. The first call counts.
pub fn set(version: &'static str) {
    let _ = VERSION.set(version);
}

/// Returns the program's version; that of this crate if the program has said none.
pub fn get() -> &'static str {
    VERSION.get_or_init(|| env!("CARGO_PKG_VERSION"))
}
