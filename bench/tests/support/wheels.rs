//! Programs of PyPI: what wheels hold, fetched once and kept with what cargo builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{skipped, text};

/// What a wheel holds that is for any Python, unpacked. If it cannot be fetched, the test is skipped.
pub fn wheel(requirement: &str, wanted: impl FnMut(&str) -> bool) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skipped(&format!("{requirement}: for x86-64 only"));
        return None;
    }
    let target = ["--python-version=3.11", "--platform=manylinux_2_28_x86_64"];
    fetch(requirement, &target, Path::new(requirement), wanted)
}

/// What a wheel holds for this machine's Python, likewise.
pub fn wheel_for_python(requirement: &str, wanted: impl FnMut(&str) -> bool) -> Option<PathBuf> {
    let tag = Command::new("python3").args(["-c", "import sys; print(sys.implementation.cache_tag)"]).output();
    let tag = text(&tag.expect("python3 starts").stdout);
    fetch(requirement, &[], &Path::new(tag.trim()).join(requirement), wanted)
}

/// Fetches a wheel into a folder among wheels, unless it is there.
fn fetch(requirement: &str, target: &[&str], folder: &Path, mut wanted: impl FnMut(&str) -> bool) -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels").join(folder);
    if home.is_dir() {
        return Some(home);
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=1"]);
    pip.args(target).arg("--dest").arg(place.path()).arg(requirement);
    let output = pip.stdin(Stdio::null()).output();
    let failed = match &output {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(text(&output.stderr)),
        Err(e) => Some(e.to_string()),
    };
    if let Some(why) = failed {
        skipped(&format!("{requirement} cannot be fetched: {}", why.lines().last().unwrap_or_default()));
        return None;
    }
    let file = std::fs::read_dir(place.path()).unwrap().next().expect("the wheel").unwrap().path();
    let list = Command::new("python3").args(["-m", "zipfile", "-l"]).arg(&file).output().unwrap();
    assert!(text(&list.stdout).lines().any(&mut wanted), "{requirement} has changed");
    let unpacked = place.path().join("unpacked");
    let done = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&unpacked).status().unwrap();
    assert!(done.success(), "{requirement}");
    std::fs::create_dir_all(home.parent().unwrap()).unwrap();
    // Another test process may have been first.
    let moved = std::fs::rename(&unpacked, &home);
    assert!(home.is_dir(), "{moved:?}");
    Some(home)
}
