//! Instructions of each message through the whole library, in the thread of an application that calls it: two queue
//! pairs of one process, and a clock that valgrind does not slow down.
//!
//! ```text
//! GOLDEN=write cargo nextest run -p irnic-verbs --all-features -E 'binary(instructions)'        writes the table
//! cargo test --release -p irnic-verbs --test instructions -- --nocapture                        counts a release
//! ```

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use irnic_testkit::instructions::{can_count, compare};
use support::{library, skipped};

/// What is counted, and the word for it to the program.
const ROWS: &[(&str, &str)] = &[
    ("SEND 2 B, in turn", "send"),
    ("WRITE 8 B", "write"),
    ("WRITE 8 B, 32 at a time", "stream"),
    ("READ 8 B", "read"),
    ("FETCH_ADD 8 B", "atomic"),
    ("WRITE 64 KiB", "large"),
    ("empty poll", "empty"),
];
/// Messages that are counted.
const MESSAGES: u64 = 960;

fn source(name: &str) -> String {
    format!("{}/tests/instructions/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Compiles the program and the clock; `None` if that is not possible here.
fn build(folder: &Path) -> Option<()> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skipped("libibverbs-dev is not installed");
    }
    std::os::unix::fs::symlink(library(), folder.join("libibverbs.so")).expect("a symbolic link");
    std::os::unix::fs::symlink(library(), folder.join("libibverbs.so.1")).expect("a symbolic link");
    let (program, clock) = (source("messages.c"), source("clock.c"));
    for (arguments, to) in [
        (vec!["-O1", "-Wall", "-Wextra", "-Werror", &program, "-L.", "-libverbs"], "messages"),
        (vec!["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", &clock], "clock.so"),
    ] {
        let Ok(output) = Command::new("cc").current_dir(folder).args(arguments).args(["-o", to]).output() else {
            return skipped("there is no C compiler");
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Some(())
}

/// Returns the instructions of a message, at both ends.
fn count(row: &str, folder: &Path) -> u64 {
    let mut command = Command::new("valgrind");
    command.current_dir(folder).args(["--tool=callgrind", "--separate-threads=yes", "--collect-atstart=no"]);
    command.args(["--toggle-collect=counted", &format!("--callgrind-out-file={row}")]);
    command.args(["./messages", row, &MESSAGES.to_string()]);
    command.env("LD_PRELOAD", "./clock.so").env("LD_LIBRARY_PATH", ".");
    command.env("IRNIC_PORT", "shm").env("IRNIC_ADDRESSES", "127.0.0.1");
    // Otherwise it depends on the time that copies take.
    command.env("IRNIC_CROSS_MEMORY", "off");
    let output = command.output().expect("valgrind starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{row}: {errors}");
    // Of the first thread: the background thread is the second.
    let text = fs::read_to_string(folder.join(format!("{row}-01"))).expect("counts");
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.parse::<u64>().ok()).expect("a total");
    assert!(total > MESSAGES, "{row}: {total}: {errors}");
    total / MESSAGES
}

#[test]
fn no_change_adds_any_unseen() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    if !can_count() || build(folder.path()).is_none() {
        return;
    }
    let counts: Vec<_> = ROWS.iter().map(|(name, row)| (*name, count(row, folder.path()))).collect();
    compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions/instructions.txt"), &counts);
}
