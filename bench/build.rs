//! Tells a release build which commit it is of, where git knows, and which shared objects it is to carry in itself.

#[path = "build/version.rs"]
mod version;

use std::path::{Path, PathBuf};

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
    println!("cargo:rerun-if-changed=build/version.rs");
    let released = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Else each program of the tests would carry them.
    if released
        && std::env::var_os("CARGO_FEATURE_EMBED").is_some()
        && let Some(objects) = objects()
    {
        println!("cargo:rustc-cfg=embedded");
        println!("cargo:rustc-env=EMBEDDED_FROM={}", objects.display());
    }
    version::emit();
}
