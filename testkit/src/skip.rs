//! Skipping of tests, with a message.

use std::io::{self, Write};

/// The environment variable that turns a skipped test into a failure, if its value is `all`. `make test` sets it to the
/// value of `IRNIC_REQUIRE`, which the library under test would reject as an unknown setting.
pub const REQUIRE: &str = "TESTS_REQUIRE";

/// Reasons for which a CI machine may skip tests. Other skips fail if `TESTS_REQUIRE=all` is set.
pub const EXCUSED: &[(&str, &str)] = &[
    ("no huge pages", "two huge pages, reserved at boot or by root"),
    ("there is no sched_getattr(2) here", "a kernel with that system call, which some sandboxes forbid"),
    ("this kernel has no slices", "Linux 6.12"),
    ("only where fs.protected_regular is on", "a setting of the host's kernel"),
    ("another user may not make user namespaces", "a setting of the host's kernel"),
    ("podman runs no containers here", "control groups and mounts that podman may use"),
    ("no history of this repository", "git, and a clone with all commits"),
    ("was counted with another compiler", "the version of Rust that ports/tests/host/instructions.txt names"),
];

/// Reports that a test is skipped, bypassing the test harness's capture of output: `SKIPPED` and the reason, on a line
/// of standard error.
///
/// # Panics
///
/// With `TESTS_REQUIRE=all` in the environment, unless the reason is one of [`EXCUSED`].
#[track_caller]
pub fn skipped(why: &str) {
    say(why);
    let required = std::env::var_os(REQUIRE).is_some_and(|what| what == "all");
    assert!(!required || excuse(why).is_some(), "skipped where {REQUIRE}=all: {why}");
}

/// Reports that a test is skipped because `make applications` runs it, which takes more than an hour.
pub fn long_form(what: &str) {
    say(&format!("{what}: set IRNIC_APPLICATIONS=long"));
}

fn say(why: &str) {
    writeln!(io::stderr(), "SKIPPED {why}").expect("standard error");
}

/// What the machine lacks, if `why` is one of the reasons of [`EXCUSED`].
pub fn excuse(why: &str) -> Option<&'static str> {
    EXCUSED.iter().find(|(reason, _)| why.contains(reason)).map(|(_, lacks)| *lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_reasons_are_excused() {
        assert!(excuse("pyverbs: test_mr: no huge pages, and no right to reserve any").is_some());
        assert_eq!(excuse("ib_write_bw is not installed"), None);
    }
}
