//! Summary of a test run, from the JUnit file that cargo-nextest writes.

use std::collections::BTreeMap;
use std::fmt::Write;

use quick_junit::{DeserializeError, NonSuccessKind, Report, TestCase, TestCaseStatus};

use crate::crash;

/// Maximum number of retried rows of a successful run: a premise that fails more often is none.
pub const MOST_RETRIED: usize = 3;
/// Number of slowest tests listed.
const SLOWEST: usize = 10;

/// Summary of test runs.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// Tests that passed, without those skipped.
    pub passed: usize,
    /// Names of failed tests, and how they failed.
    pub failed: Vec<(String, String)>,
    /// Tests that were skipped, and why.
    pub skipped: Vec<String>,
    /// Reasons for retries, with the tests.
    pub retried: BTreeMap<String, Vec<String>>,
    /// Tests and their times, s.
    times: Vec<(String, f64)>,
}

impl Summary {
    /// Adds the contents of a JUnit file.
    ///
    /// # Errors
    ///
    /// If the file is not JUnit.
    pub fn add(&mut self, xml: &str) -> Result<(), DeserializeError> {
        for suite in Report::deserialize_from_str(xml)?.test_suites {
            for case in &suite.test_cases {
                self.add_case(suite.name.as_str(), case);
            }
        }
        Ok(())
    }

    fn add_case(&mut self, suite: &str, case: &TestCase) {
        let name = format!("{suite} {}", case.name.as_str());
        self.times.push((name.clone(), case.time.unwrap_or_default().as_secs_f64()));
        let output = [&case.system_out, &case.system_err].map(|text| text.as_ref().map_or("", |text| text.as_str()));
        let lines = || output.iter().flat_map(|text| text.lines());
        self.skipped.extend(lines().filter_map(|line| line.strip_prefix("SKIPPED ")).map(str::to_owned));
        for line in lines().filter_map(|line| line.strip_prefix("RETRIED ")) {
            // Names contain colons; reasons begin after the last one that is followed by a premise's reason.
            let known = crate::retry::PREMISES.iter().find(|premise| line.ends_with(premise.reason));
            let (test, reason) = known.map_or((line, "a reason that is not listed"), |premise| {
                (line.trim_end_matches(premise.reason).trim_end_matches(": "), premise.reason)
            });
            self.retried.entry(reason.to_owned()).or_default().push(test.to_owned());
        }
        // Cases that share a process have a line each.
        let cases = |how: &str| lines().filter(|line| line.starts_with("test ") && line.contains(how)).count();
        let skipped = lines().filter(|line| line.starts_with("SKIPPED ")).count();
        if let TestCaseStatus::NonSuccess { kind, message, ty, description, .. } = &case.status {
            let kind = if *kind == NonSuccessKind::Error { "error" } else { "failure" };
            let parts = [message, ty, description].map(|part| part.as_ref().map_or("", |part| part.as_str()));
            self.failed.push((name, format!("{kind}: {}", parts.join(": "))));
        } else if let Some(panic) = lines().find(|line| crash::is_panic_of_the_library(line)) {
            self.failed.push((name, format!("passed, although the library panicked: {panic}")));
        } else {
            self.passed += cases(" ... ok after ").max(1).saturating_sub(skipped);
        }
    }

    /// Whether nothing failed, and no more was retried than is allowed.
    pub fn is_success(&self) -> bool {
        self.failed.is_empty() && self.retried_rows() <= MOST_RETRIED
    }

    /// Number of retries.
    pub fn retried_rows(&self) -> usize {
        self.retried.values().map(Vec::len).sum()
    }

    /// The summary as text: seconds by target, the slowest tests, and those skipped, retried, and failed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |arguments: std::fmt::Arguments| writeln!(text, "{arguments}").expect("writing to a string");
        let mut targets: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
        for (name, time) in &self.times {
            let target = targets.entry(name.split(' ').next().unwrap_or_default()).or_default();
            *target = (target.0 + time, target.1 + 1);
        }
        let mut targets: Vec<_> = targets.into_iter().collect();
        targets.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
        line(format_args!("seconds by target"));
        for (target, (seconds, tests)) in targets.iter().filter(|(_, (seconds, _))| *seconds >= 1.0) {
            line(format_args!("{seconds:7.1}  {target}, {tests} tests"));
        }
        let mut slowest: Vec<_> = self.times.iter().collect();
        slowest.sort_by(|one, other| other.1.total_cmp(&one.1));
        line(format_args!("the slowest tests"));
        for (name, time) in slowest.iter().take(SLOWEST) {
            line(format_args!("{time:7.1}  {name}"));
        }
        let mut skipped: Vec<_> = self.skipped.iter().collect();
        skipped.sort();
        skipped.dedup();
        for why in skipped {
            line(format_args!("SKIPPED {why}"));
        }
        for (reason, tests) in &self.retried {
            line(format_args!("RETRIED {} times: {reason}: {}", tests.len(), tests.join("; ")));
        }
        if self.retried_rows() > MOST_RETRIED {
            line(format_args!("FAILED {} rows were run again, {MOST_RETRIED} may be", self.retried_rows()));
        }
        for (name, how) in &self.failed {
            line(format_args!("FAILED {name}: {}", how.chars().take(4_000).collect::<String>()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with a test case of this name, its output and, if it failed, how.
    fn file(name: &str, error: &str, failure: &str) -> String {
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="nextest-run" tests="1" failures="0" errors="0">
              <testsuite name="irnic::lab" tests="1" disabled="0" errors="0" failures="0">
                <testcase name="{name}" classname="irnic::lab" time="1.500">{failure}
                  <system-out></system-out><system-err>{error}</system-err>
                </testcase>
              </testsuite>
            </testsuites>"#
        )
    }

    fn summary_of(xml: &str) -> Result<Summary, DeserializeError> {
        let mut summary = Summary::default();
        summary.add(xml)?;
        Ok(summary)
    }

    #[test]
    fn a_signal_is_a_failure() {
        let failure = r#"<failure type="test abort with signal 11: SIGSEGV"/>"#;
        let summary = summary_of(&file("hosts::one", "", failure)).unwrap();
        assert!(!summary.is_success());
        let text = summary.text();
        assert!(text.contains("FAILED irnic::lab hosts::one: failure: : test abort with signal 11: SIGSEGV"), "{text}");
    }

    #[test]
    fn a_panic_of_the_librarys_thread_fails_the_test_that_passed() {
        let error = "thread 'irnic' (77) panicked at verbs/src/runtime/unit.rs:1:2:";
        let summary = summary_of(&file("hosts::one", error, "")).unwrap();
        assert_eq!((summary.passed, summary.failed.len(), summary.is_success()), (0, 1, false));
    }

    #[test]
    fn reasons_are_counted_and_too_many_fail() {
        let reason = "the guest's kernel panicked";
        let row = |n: u32| format!("\nRETRIED rdma_cm: rping -c, irnic as client {n}: {reason}\n    why\n");
        let error: String = (0..3).map(row).collect();
        let summary = summary_of(&file("all", &error, "")).unwrap();
        assert!(summary.is_success() && summary.retried_rows() == 3);
        assert!(summary.text().contains("RETRIED 3 times: the guest's kernel panicked: rdma_cm: rping -c, irnic as"));
        let summary = summary_of(&file("all", &(error + &row(4)), "")).unwrap();
        assert!(!summary.is_success() && summary.text().contains("FAILED 4 rows were run again, 3 may be"));
    }

    #[test]
    fn skipped_tests_did_not_pass() {
        let summary = summary_of(&file("one", "SKIPPED there is no tshark\n", "")).unwrap();
        assert_eq!((summary.passed, summary.skipped), (0, vec!["there is no tshark".to_owned()]));
    }

    #[test]
    fn cases_that_share_a_process_count() {
        let summary = summary_of(&file("all", "test a ... ok after 1.0 s\ntest b ... ok after 2.0 s\n", "")).unwrap();
        assert_eq!(summary.passed, 2);
    }
}
