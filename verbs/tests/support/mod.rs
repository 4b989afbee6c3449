//! What the tests of the shared object share.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::PathBuf;
use std::process::Command;

/// Says that a test was not run, past the test harness's capture of output: nobody should take it for a success.
pub fn skipped<T>(why: &str) -> Option<T> {
    irnic_testkit::skipped(why);
    None
}

/// The shared object that was built together with this test: cargo puts both into one directory.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let library = test.with_file_name("libirnic_verbs.so");
    assert!(library.exists(), "no {}", library.display());
    library
}

/// One entry of a dynamic symbol table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    pub name: String,
    /// Empty for a symbol without version.
    pub version: String,
    /// Whether a reference without version gets this one.
    pub default: bool,
    pub defined: bool,
}

/// The dynamic symbol table of a file, as binutils' readelf prints it.
pub fn symbols(file: &std::path::Path) -> Option<Vec<Symbol>> {
    let output = match Command::new("readelf").env("LC_ALL", "C").args(["--wide", "--dyn-syms"]).arg(file).output() {
        Ok(output) => output,
        Err(e) => return skipped(&format!("readelf does not start: {e}")),
    };
    assert!(output.status.success(), "readelf {}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let symbols = text.lines().filter_map(|line| {
        // Num: Value Size Type Bind Vis Ndx Name [(index of a needed version)]
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[number, _, _, _, _, _, section, symbol, ..] = &fields[..] else { return None };
        number.strip_suffix(':')?.parse::<u32>().ok()?;
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
        // Each version node has an absolute symbol of its own name.
        (section != "ABS").then(|| Symbol {
            name: name.to_owned(),
            version: version.trim_start_matches('@').to_owned(),
            default: version.starts_with('@'),
            defined: section != "UND",
        })
    });
    Some(symbols.collect())
}
