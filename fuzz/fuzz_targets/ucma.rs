//! See `verbs/src/ucma/forged.rs`. Run with `cargo +nightly fuzz run ucma`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    irnic_verbs::forged_commands(data);
});
