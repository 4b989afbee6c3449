//! See [`irnic_fuzz::frame_link`]. Run with `cargo +nightly fuzz run frame_link`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    irnic_fuzz::frame_link(data);
});
