//! The library's exports have the C library's names, so that no test can be in it.

#[path = "../src/seen.rs"]
mod seen;
