//! See [`irnic_fuzz::nic_receive`]. Run with `cargo +nightly fuzz run nic_receive`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| _ = irnic_fuzz::nic_receive(data));
