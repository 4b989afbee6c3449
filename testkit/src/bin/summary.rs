//! Summarizes test runs: `summary FILE.xml... FOLDER...`, with JUnit files and the folders in which tests ran, for
//! backtraces of their cores. The last line counts the tests; the status is 0 only if nothing failed.

use std::path::Path;
use std::process::ExitCode;

use irnic_testkit::crash;
use irnic_testkit::summary::Summary;

fn main() -> ExitCode {
    let (files, folders): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.ends_with(".xml"));
    let mut summary = Summary::default();
    for file in &files {
        let read = std::fs::read_to_string(file).map_err(|e| e.to_string());
        if let Err(e) = read.and_then(|xml| summary.add(&xml).map_err(|e| e.to_string())) {
            eprintln!("summary: {file}: {e}");
            return ExitCode::from(2);
        }
    }
    print!("{}", summary.text());
    // Processes of passing tests may crash on purpose.
    let crashed = summary.failed.iter().any(|(_, how)| how.contains("abort with signal"));
    for folder in folders.iter().map(Path::new).filter(|folder| crashed && !crash::cores(folder).is_empty()) {
        let backtrace = crash::backtrace(folder).unwrap_or_else(|why| why);
        println!("a test crashed in {}:\n{backtrace}", folder.display());
    }
    println!("{} passed, {} failed, {} skipped", summary.passed, summary.failed.len(), summary.skipped.len());
    if summary.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
