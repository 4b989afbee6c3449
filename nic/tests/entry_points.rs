//! The entry points of `make fuzz`, on the committed corpora and on seeded random bytes. The rules are in `fuzz/src/`.

#[path = "../../fuzz/src/lib.rs"]
mod entry;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::PathBuf;

use irnic_ports::frames::FrameCounters;
use irnic_transports::wire::RateNotice;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// Runs every file of a target's corpus; names the file if one fails.
fn corpus<T>(target: &str, entry: impl Fn(&[u8]) -> T + RefUnwindSafe) -> Vec<T> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus")).join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).expect("a corpus").map(|e| e.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let run = |file: PathBuf| {
        let bytes = fs::read(&file).expect("a readable file");
        catch_unwind(|| entry(&bytes)).unwrap_or_else(|_| panic!("{} fails", file.display()))
    };
    files.into_iter().map(run).collect()
}

#[test]
fn the_parser_holds_on_its_corpus() {
    corpus("packet_parser", entry::packet_parser);
    let notice = include_bytes!("../../fuzz/corpus/packet_parser/rate-notice");
    assert_eq!(RateNotice::parse(notice).map(|notice| notice.emit().to_vec()), Ok(notice.to_vec()));
}

#[test]
fn the_mad_parser_holds_on_its_corpus() {
    corpus("mad_parser", entry::mad_parser);
}

#[test]
fn the_receive_path_holds_on_its_corpus() {
    let mut sums = BTreeMap::new();
    for (name, value, _) in corpus("nic_receive", entry::nic_receive).iter().flatten().flat_map(|c| c.iter()) {
        *sums.entry(name).or_default() += value;
    }
    // A corpus that reaches nothing proves nothing. Frames come without ICRC here, fences are those of posts, and
    // timeouts are found spurious only with evidence.
    let unreached = ["rx_icrc_encapsulated", "overlap_fences", "irn_spurious_timeouts"];
    let reached = |name: &str, sum: u64| sum > 0 || unreached.contains(&name);
    let missed: Vec<_> = sums.into_iter().filter(|&(name, sum)| !reached(name, sum)).collect();
    assert!(missed.is_empty(), "the corpus never reaches {missed:?}");
}

#[test]
fn the_grammar_holds_on_its_corpus() {
    corpus("impairment_grammar", |bytes| entry::impairment_grammar(&String::from_utf8_lossy(bytes)));
}

#[test]
fn a_station_holds_on_its_corpus() {
    let all = corpus("frame_link", entry::frame_link);
    let sum = |count: fn(&FrameCounters) -> u64| all.iter().map(|reached| count(&reached.counters)).sum::<u64>();
    // A corpus that reaches nothing proves nothing.
    let reached = [
        ("frames", all.iter().map(|r| r.frames).sum()),
        ("neighbours", all.iter().map(|r| r.neighbours).sum()),
        ("rx_other_mac", sum(|c| c.rx_other_mac)),
        ("rx_other_vlan", sum(|c| c.rx_other_vlan)),
        ("rx_other_address", sum(|c| c.rx_other_address)),
        ("rx_foreign", sum(|c| c.rx_foreign)),
        ("rx_options", sum(|c| c.rx_options)),
        ("rx_fragments", sum(|c| c.rx_fragments)),
        ("rx_checksum", sum(|c| c.rx_checksum)),
        ("rx_malformed", sum(|c| c.rx_malformed)),
        ("neighbour_requests", sum(|c| c.neighbour_requests)),
        ("neighbour_replies", sum(|c| c.neighbour_replies)),
        ("neighbour_failures", sum(|c| c.neighbour_failures)),
    ];
    let missed: Vec<_> = reached.iter().filter(|(_, sum)| *sum == 0).collect();
    assert!(missed.is_empty(), "the corpus never reaches {missed:?}");
}

#[test]
fn the_receive_path_holds_on_random_bytes() {
    let inputs = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    for seed in 0..inputs {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..2048)];
        rng.fill_bytes(&mut bytes);
        if catch_unwind(|| entry::nic_receive(&bytes)).is_err() {
            panic!("seed {seed} fails");
        }
    }
}

proptest! {
    #[test]
    fn the_parser_holds_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        entry::packet_parser(&bytes);
    }

    #[test]
    fn a_station_holds_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        entry::frame_link(&bytes);
    }

    #[test]
    fn the_grammar_holds_on_random_text(text: String) {
        entry::impairment_grammar(&text);
    }
}
