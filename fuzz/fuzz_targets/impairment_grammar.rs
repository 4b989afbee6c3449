//! See [`irnic_fuzz::impairment_grammar`]. Run with `cargo +nightly fuzz run impairment_grammar`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| irnic_fuzz::impairment_grammar(text));
