//! The modules of this crate are layers: each takes from those below it only.

use std::fs;
use std::path::{Path, PathBuf};

/// All modules, from the ground up.
const LAYERS: [&str; 13] = [
    "abi", "gid", "gpu", "config", "explain", "errno", "device", "stats", "runtime", "objects", "ucma", "calls",
    "symbols",
];

/// What the runtime takes: nothing of C.
const OF_RUNTIME: [&str; 6] = ["gid", "config", "explain", "device", "stats", "runtime"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The modules that a source names, comments apart.
fn named(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1)).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn no_module_takes_from_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut seen = Vec::new();
    for path in all {
        let inside = path.strip_prefix(&root).expect("inside").to_str().expect("UTF-8");
        if inside == "lib.rs" {
            continue;
        }
        let own = inside.split(['/', '.']).next().expect("a name");
        let floor = LAYERS.iter().position(|s| *s == own).unwrap_or_else(|| panic!("{inside} is of no layer"));
        for name in named(&fs::read_to_string(&path).expect("a source")) {
            let Some(at) = LAYERS.iter().position(|s| *s == name) else { panic!("{inside}: {name} is no module") };
            assert!(at <= floor, "{inside} takes from {name}, which is above it");
            assert!(own != "runtime" || OF_RUNTIME.contains(&name), "{inside}: the runtime knows nothing of {name}");
            seen.push((own.to_owned(), name.to_owned()));
        }
    }
    // A search that finds nothing proves nothing.
    for (from, to) in [("symbols", "calls"), ("calls", "objects"), ("objects", "runtime"), ("runtime", "device")] {
        assert!(seen.contains(&(from.into(), to.into())), "{from} takes from {to}, and nobody saw it");
    }
}
