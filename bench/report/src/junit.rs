//! JUnit XML of checks by irnic, which CI systems show as test results.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::output::OutFile;

/// Result of a check.
pub enum Verdict {
    /// The check passed.
    Passed,
    /// The check failed, with a one-line reason.
    Failed(String),
    /// The check was skipped, with the reason.
    Skipped(String),
}

/// A test case.
pub struct Case {
    /// Name, unique in the report.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Details.
    pub output: String,
    /// How long it took, if that is known of it alone.
    pub took: Option<Duration>,
}

/// The file of a report, opened before the checks.
pub struct File {
    file: OutFile,
    opened: Instant,
}

impl File {
    /// Checks that `path` can be written, where `-` is standard output, in place of printed text. Errors name it.
    pub fn open(path: &Path) -> Result<File, String> {
        Ok(File { file: OutFile::open(path)?, opened: Instant::now() })
    }

    /// Writes a report with one suite, which took the time since [`File::open`]. `suite` names what was run, such as
    /// `irnic doctor`. Errors name the path.
    pub fn write(self, suite: &str, cases: impl IntoIterator<Item = Case>) -> Result<(), String> {
        let mut tests = TestSuite::new(suite);
        tests.add_test_cases(cases.into_iter().map(|case| {
            let status = match case.verdict {
                Verdict::Passed => TestCaseStatus::success(),
                Verdict::Failed(why) => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message(why);
                    status
                }
                Verdict::Skipped(why) => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(why);
                    status
                }
            };
            let mut test = TestCase::new(case.name, status);
            test.set_classname(suite);
            if let Some(took) = case.took {
                test.set_time(took);
            }
            if !case.output.is_empty() {
                test.set_system_out(case.output);
            }
            test
        }));
        let took = self.opened.elapsed();
        tests.set_time(took);
        let mut report = Report::new("irnic");
        report.set_time(took).add_test_suite(tests);
        self.file.write(|to| report.serialize(to).map_err(io::Error::other))
    }
}
