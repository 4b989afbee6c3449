//! Tests that are not run, and say so.

use std::io::{self, Write};

/// The variable of the environment that makes a skipped test a failure, if its value is `all`. `make test` sets it to
/// what `IRNIC_REQUIRE` has, which the library under test would take for a setting that it does not know.
pub const REQUIRE: &str = "TESTS_REQUIRE";

/// What a machine for continuous integration may lack, by the words that say so. A test that is skipped for another
/// reason fails where `TESTS_REQUIRE=all` is set.
pub const EXCUSED: &[(&str, &str)] = &[
    ("no huge pages", "two huge pages, reserved at boot or by root"),
    ("there is no sched_getattr(2) here", "a kernel with that system call, which some sandboxes forbid"),
    ("this kernel has no slices", "Linux 6.12"),
    ("only where fs.protected_regular is on", "a setting of the host's kernel"),
    ("another user may not make user namespaces", "a setting of the host's kernel"),
];

/// Says that a test is not run, past the test harness's capture of output: `SKIPPED` and the reason, on a line of
/// standard error.
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

/// Says that a test is not run because `make applications` runs it, which takes more than an hour.
pub fn long_form(what: &str) {
    say(&format!("{what}: set IRNIC_APPLICATIONS=long"));
}

fn say(why: &str) {
    writeln!(io::stderr(), "SKIPPED {why}").expect("standard error");
}

/// What the machine lacks if `why` is one of the reasons of [`EXCUSED`].
pub fn excuse(why: &str) -> Option<&'static str> {
    EXCUSED.iter().find(|(words, _)| why.contains(words)).map(|(_, lacks)| *lacks)
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
