//! What `make fuzz` fuzzes of policies, on the committed corpus and on texts that differ from it at random. The rules
//! are in `fuzz/src/policy.rs`.

#[path = "../../fuzz/src/policy.rs"]
mod entry;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/policy_parser");
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.iter().map(|file| fs::read_to_string(file).expect("a text")).collect()
}

#[test]
fn policies_hold_on_their_corpus() {
    corpus().iter().for_each(|text| entry::policy_parser(text));
}

/// Pieces of policies in other places: most are refused, some run.
#[test]
fn policies_hold_on_texts_at_random() {
    let mut rng = Pcg64Mcg::seed_from_u64(8);
    let corpus = corpus();
    let words: Vec<&str> = corpus.iter().flat_map(|text| text.split_inclusive([' ', '(', ')', '.', ';'])).collect();
    for turn in 0..if cfg!(debug_assertions) { 600 } else { 20_000 } {
        let text = &corpus[rng.random_range(0..corpus.len())];
        let mut pieces: Vec<&str> = text.split_inclusive([' ', '(', ')', '.', ';']).collect();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..pieces.len());
            match rng.random_range(0..3) {
                0 => _ = pieces.remove(at),
                1 => pieces[at] = words[rng.random_range(0..words.len())],
                _ => pieces.insert(at, words[rng.random_range(0..words.len())]),
            }
        }
        let text = pieces.concat();
        assert!(catch_unwind(|| entry::policy_parser(&text)).is_ok(), "turn {turn} fails:\n{text}");
    }
}
