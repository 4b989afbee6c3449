//! Tests that share a resource that only one process can hold, such as a virtual machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libtest_mimic::{Failed, Trial};

/// A test: its name and function.
pub type Case = (String, Box<dyn FnOnce() -> Result<(), Failed> + Send>);

/// Makes a test of each case. cargo-nextest starts a process for each test, so there all of them are a single one named
/// `all`, which prints a line for each and continues after a failure.
pub fn trials(all: &str, cases: Vec<Case>) -> Vec<Trial> {
    if std::env::var_os("NEXTEST").is_none() {
        return cases.into_iter().map(|(name, case)| Trial::test(name, case)).collect();
    }
    vec![Trial::test(all, move || {
        let failures: Vec<String> = cases.into_iter().filter_map(|(name, case)| failure(&name, case)).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
    })]
}

/// Runs a case, reports its result, and returns the reason if it failed.
fn failure(name: &str, case: impl FnOnce() -> Result<(), Failed>) -> Option<String> {
    let begun = std::time::Instant::now();
    // The panic message is on standard error already.
    let why = match catch_unwind(AssertUnwindSafe(case)) {
        Ok(Ok(())) => None,
        Ok(Err(failed)) => Some(failed.message().unwrap_or_default().to_owned()),
        Err(_) => Some("it panicked".to_owned()),
    };
    let how = if why.is_none() { "ok" } else { "FAILED" };
    println!("test {name} ... {how} after {:.1} s", begun.elapsed().as_secs_f64());
    why.map(|why| format!("---- {name} ----\n{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(failure("one", || Ok(())), None);
        assert_eq!(failure("two", || Err("no guest".into())).as_deref(), Some("---- two ----\nno guest"));
        assert_eq!(failure("three", || panic!("wrong")).as_deref(), Some("---- three ----\nit panicked"));
    }
}
