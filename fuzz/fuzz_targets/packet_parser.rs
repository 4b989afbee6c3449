//! See [`irnic_fuzz::packet_parser`]. Run with `cargo +nightly fuzz run packet_parser`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| irnic_fuzz::packet_parser(data));
