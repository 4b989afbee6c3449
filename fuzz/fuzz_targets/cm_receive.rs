//! See `fuzz/src/cm.rs`. Run with `cargo +nightly fuzz run cm_receive`.

#![no_main]

#[path = "../src/cm.rs"]
mod cm;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cm::cm_receive(data);
});
