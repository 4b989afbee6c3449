//! See `fuzz/src/policy.rs`. Run with `cargo +nightly fuzz run policy_parser`.

#![no_main]

#[path = "../src/policy.rs"]
mod policy;

libfuzzer_sys::fuzz_target!(|text: &str| policy::policy_parser(text));
