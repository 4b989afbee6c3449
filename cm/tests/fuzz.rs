//! The manager's entry point of `make fuzz`, on the committed corpus and on seeded random bytes. The rules are in
//! `fuzz/src/cm.rs`.

#[path = "../../fuzz/src/cm.rs"]
mod entry;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use irnic_cm::EventKind;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

#[test]
fn the_manager_holds_on_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/cm_receive");
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("a file").path();
        let bytes = fs::read(&path).expect("a readable file");
        assert!(catch_unwind(|| entry::cm_receive(&bytes)).is_ok(), "{} fails", path.display());
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn the_manager_holds_on_random_bytes() {
    let inputs = if cfg!(debug_assertions) { 3_000 } else { 100_000 };
    let mut reached = Vec::new();
    for seed in 0..inputs {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..4096)];
        rng.fill_bytes(&mut bytes);
        let kinds = catch_unwind(|| entry::cm_receive(&bytes)).unwrap_or_else(|_| panic!("seed {seed} fails"));
        reached.extend(kinds);
    }
    // Choices that reach nothing prove nothing.
    for kind in [
        EventKind::ConnectRequest,
        EventKind::ConnectResponse,
        EventKind::Unreachable,
        EventKind::Rejected,
        EventKind::Established,
        EventKind::Disconnected,
        EventKind::TimewaitExit,
    ] {
        assert!(reached.contains(&kind), "{kind:?} is never reached");
    }
}
