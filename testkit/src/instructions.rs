//! Tables of instructions, counted by valgrind: time varies from run to run, and instructions do not.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Prints counts, and compares them with a table within 3 %, so that no change adds any unseen. Tables are of debug
/// builds with one compiler; `GOLDEN=write` writes them.
///
/// # Panics
/// If a count differs from the table's.
pub fn compare(table: &Path, counts: &[(&str, u64)]) {
    let mut found = String::new();
    for (name, count) in counts {
        writeln!(found, "{name:<26}{count:>8}").expect("text");
    }
    eprint!("{found}");
    if !cfg!(debug_assertions) {
        return;
    }
    let rustc = Command::new("rustc").arg("--version").output().expect("rustc");
    let built = format!("{}, {}\n", String::from_utf8_lossy(&rustc.stdout).trim(), std::env::consts::ARCH);
    if crate::golden::is_written() {
        return std::fs::write(table, built + &found).expect("the table");
    }
    let known = std::fs::read_to_string(table).expect("the table");
    let Some(known) = known.strip_prefix(&built) else {
        return crate::skipped("the table was counted with another compiler");
    };
    assert_eq!(known.lines().count(), counts.len(), "GOLDEN=write adds a row");
    for (line, (name, count)) in known.lines().zip(counts) {
        let before: u64 = line.strip_prefix(name).and_then(|n| n.trim().parse().ok()).expect("the row's number");
        let most = before + before * 3 / 100;
        assert!(*count <= most, "{name}: {count} instructions, {before} before; GOLDEN=write accepts them\n{found}");
        assert!(
            count + count * 3 / 100 >= before,
            "{name}: only {count}, not {before}: GOLDEN=write notes it\n{found}"
        );
    }
}

/// Returns whether valgrind can be run. Where it is missing, the test is skipped.
pub fn can_count() -> bool {
    let is_there = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_there {
        crate::skipped("valgrind is not installed");
    }
    is_there
}
