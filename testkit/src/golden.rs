//! Files of expected results.

/// Returns whether tests write what they find, instead of comparing it with files of expected results: with
/// `GOLDEN=write` in the environment.
pub fn is_written() -> bool {
    std::env::var_os("GOLDEN").is_some_and(|what| what == "write")
}
