//! The version of a program, with the commit that a release build is of, where git knows it.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Sets `VERSION_WITH_COMMIT` for the program that is built.
pub fn emit() {
    println!("cargo:rerun-if-env-changed=BUILD_COMMIT");
    // Else each commit would build the program of the tests anew.
    let released = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // A package is built from files without their history, and may say what they are of.
    let mut commit = std::env::var("BUILD_COMMIT").ok();
    if released && commit.is_none() {
        commit = git(&["show", "--no-patch", "--format=%h %cs", "--abbrev=12", "HEAD"]);
        // HEAD changes with the branch, its log with each commit.
        let changed = ["HEAD", "logs/HEAD"].map(|name| git(&["rev-parse", "--git-path", name]));
        changed.into_iter().flatten().for_each(|path| println!("cargo:rerun-if-changed={path}"));
    }
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo names the version");
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    // cargo hands it to tests and to what it runs, where a name of irnic's would be a setting.
    println!("cargo:rustc-env=VERSION_WITH_COMMIT={version}{commit}");
}
