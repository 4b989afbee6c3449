//! docs/applications.md: which applications were run, how, and what was checked, as the tests themselves have it.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A line of the table.
#[derive(Copy, Clone)]
pub struct Row {
    pub application: &'static str,
    /// The Debian package whose version the table names, or `=` and the version.
    pub package: &'static str,
    pub command: &'static str,
    /// What the test looks at, beyond the exit status.
    pub checked: &'static str,
    /// What carries packets, and what is lost of them.
    pub network: &'static str,
}

const HEAD: &str = "| application | version | command | checked | carrier and loss |\n|---|---|---|---|---|\n";

/// Compares the table of `section` in docs/applications.md with `rows`. With `GOLDEN=write` in the environment it is
/// written instead, with the versions that are installed; otherwise versions are not compared.
pub fn compare(section: &str, rows: &[Row]) -> Result<(), String> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/applications.md");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let (begin, end) = (format!("<!-- made by {section} -->\n"), format!("<!-- end of {section} -->\n"));
    let parts = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (found, after)) = parts.ok_or_else(|| format!("{} has no section {section}", file.display()))?;
    if irnic_testkit::golden::is_written() {
        let table = table(rows, |_, package| version(package));
        return fs::write(&file, format!("{before}{begin}{table}{end}{after}")).map_err(|e| e.to_string());
    }
    let versions: Vec<&str> = found.lines().skip(2).map(|line| line.split(" | ").nth(1).unwrap_or_default()).collect();
    let expected = table(rows, |i, _| versions.get(i).copied().unwrap_or_default().to_owned());
    if found == expected {
        return Ok(());
    }
    Err(format!("docs/applications.md is not what {section} tests: write it anew with GOLDEN=write\n{expected}"))
}

fn table(rows: &[Row], version: impl Fn(usize, &str) -> String) -> String {
    let mut table = HEAD.to_owned();
    for (i, row) in rows.iter().enumerate() {
        let version = version(i, row.package);
        let Row { application, command, checked, network, .. } = row;
        writeln!(table, "| {application} | {version} | `{command}` | {checked} | {network} |")
            .expect("writing to a string");
    }
    table
}

fn version(package: &str) -> String {
    if let Some(version) = package.strip_prefix('=') {
        return version.to_owned();
    }
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let version = output.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    version.unwrap_or_else(|| "not installed".into())
}
