//! Who may name whom: a paper's mechanism is in one place.

use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    folders.iter().flat_map(|folder| self::files(folder)).chain(files).collect()
}

/// The halves of a connection call the hooks of a discipline, whichever it is: `rc/discipline` alone knows which there
/// are.
#[test]
fn disciplines_are_known_in_their_folder_only() {
    let rc = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rc");
    let (own, others): (Vec<_>, Vec<_>) =
        files(&rc).into_iter().partition(|path| path.starts_with(rc.join("discipline")));
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a source file");
    let known = |text: &str| text.matches("Discipline::").count() - text.matches("Discipline::of_re").count();
    assert!(own.iter().map(read).any(|text| known(&text) > 0), "they are known there");
    for path in others {
        let text = read(&path);
        assert_eq!(known(&text), 0, "{}: use a hook of rc::discipline", path.display());
        for module in ["pull", "tlt", "tlp", "rc3"] {
            assert!(!text.contains(&format!("discipline::{module}")), "{}: {module}", path.display());
        }
    }
}
