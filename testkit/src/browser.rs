//! Pages in headless Chromium.

use std::path::Path;
use std::process::Command;

/// What Chromium does besides showing the page: it looks for updates and accounts, over a network that it may not have.
const QUIET: [&str; 6] = [
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-dev-shm-usage",
];

/// Opens a page in a browser whose files are in `folder`, and returns its standard output. Pages see a clock that goes
/// `budget` ms ahead. `options` say what is wanted, such as `--dump-dom`.
///
/// # Panics
///
/// If the browser fails, with its status and standard error.
#[track_caller]
pub fn open(folder: &Path, address: &str, budget: u32, options: &[&str]) -> Vec<u8> {
    let mut browser = Command::new("timeout");
    browser.args(["-k", "5", "120", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]).args(QUIET);
    browser.arg(format!("--virtual-time-budget={budget}")).args(options);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let output = browser.env("HOME", folder).arg(address).output().expect("timeout(1) starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium: {}: {error}", output.status);
    output.stdout
}
