//! JUnit's XML, which CI systems show as results of tests, of what irnic judges.

use std::io;
use std::path::Path;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::output::OutFile;

/// What irnic found of one thing.
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Not as it should be: what is wrong, in a line.
    Failed(String),
    /// Not judged, and why.
    Skipped(String),
}

/// A test case.
pub struct Case {
    /// Its name, unique in the report.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found, for who looks at the case.
    pub output: String,
}

/// A file for a report, which is opened before there is anything to report.
pub struct File(OutFile);

impl File {
    /// Checks that `path` can be written, where `-` is standard output, in place of what is printed. Errors name it.
    pub fn open(path: &Path) -> Result<File, String> {
        OutFile::open(path).map(File)
    }

    /// Writes a report with one suite. `suite` is what was run, such as `irnic doctor`. Errors name the path.
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
            if !case.output.is_empty() {
                test.set_system_out(case.output);
            }
            test
        }));
        let mut report = Report::new("irnic");
        report.add_test_suite(tests);
        self.0.write(|to| report.serialize(to).map_err(io::Error::other))
    }
}
