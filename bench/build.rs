//! Tells a release build which commit it is of, where git knows, and which shared objects it is to carry in itself.

use std::path::{Path, PathBuf};
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns where cargo leaves the shared objects of this build, with a file in place of each that is not there yet:
/// `cargo check` reads what only `cargo build` makes, which it does before it compiles the program.
fn objects() -> Option<PathBuf> {
    let out = std::env::var_os("OUT_DIR").expect("cargo names a directory");
    // PROFILE/build/PACKAGE/out
    let directory = Path::new(&out).ancestors().nth(3)?.join("deps");
    for name in ["libirnic_verbs.so", "libirnic_sysfs.so", "libirnic_clock.so"] {
        let path = directory.join(name);
        if !path.exists() {
            std::fs::write(path, []).ok()?;
        }
    }
    Some(directory)
}

fn main() {
    println!("cargo:rustc-check-cfg=cfg(embedded)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=BUILD_COMMIT");
    // Else each commit would build the program of the tests anew.
    let released = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Else each program of the tests would carry them.
    if released
        && std::env::var_os("CARGO_FEATURE_EMBED").is_some()
        && let Some(objects) = objects()
    {
        println!("cargo:rustc-cfg=embedded");
        println!("cargo:rustc-env=EMBEDDED_FROM={}", objects.display());
    }
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
