//! See [`irnic_fuzz::mad_parser`]. Run with `cargo +nightly fuzz run mad_parser`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| irnic_fuzz::mad_parser(data));
