//! Shared objects embedded in the program, which are written to files that the dynamic loader can map.
//!
//! `cargo install` installs only a program, and a program copied into an image is often alone.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::RunError;
use super::links::{cache_directory, own_directory, runtime_directory, user};

/// Name and content of an object; the content is empty if the build had none, as with `cargo check`.
pub type Object = (&'static str, &'static [u8]);

static OBJECTS: OnceLock<&[Object]> = OnceLock::new();

/// Sets the embedded objects. Later calls have no effect.
pub fn carry(objects: &'static [Object]) {
    let _ = OBJECTS.set(objects);
}

/// Writes `content` into `directory` under `name`, atomically with respect to concurrent writers.
fn place(directory: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(path);
    }
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    draft.write_all(content)?;
    draft.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
    draft.persist(&path)?;
    Ok(path)
}

/// Writes `content` below `parent`, which is created.
fn unpack_below(parent: io::Result<PathBuf>, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let parent = parent?;
    own_directory(&parent, 0o700, &[user()])?;
    // Each content has its own directory: another version may be in use.
    let directory = parent.join(format!("lib-{:08x}", crc32fast::hash(content)));
    own_directory(&directory, 0o700, &[user()])?;
    place(&directory, name, content)
}

/// Returns the path of the object `name`, written there if necessary; `None` if it is not embedded.
pub fn unpacked(name: &str) -> Option<Result<PathBuf, RunError>> {
    let objects: &[Object] = OBJECTS.get().copied().unwrap_or_default();
    let (_, content) = objects.iter().find(|(own, content)| *own == name && !content.is_empty())?;
    let path =
        unpack_below(cache_directory(), name, content).or_else(|_| unpack_below(runtime_directory(), name, content));
    Some(path.map_err(|e| {
        RunError::Failed(format!(
            "no place for {name}, which this program carries: {e}; set TMPDIR to a directory of yours"
        ))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_written_again() {
        let parent = tempfile::tempdir().unwrap();
        let below = || unpack_below(Ok(parent.path().join("irnic")), "lib.so", b"object");
        let path = below().unwrap();
        let written = fs::metadata(&path).unwrap();
        assert_eq!((written.permissions().mode() & 0o777, written.len()), (0o755, 6));
        fs::write(&path, b"obj").unwrap();
        assert_eq!(below().unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"object");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft stays");
    }

    #[test]
    fn contents_do_not_replace_each_other() {
        let parent = tempfile::tempdir().unwrap();
        let paths =
            [&b"old"[..], b"new"].map(|content| unpack_below(Ok(parent.path().into()), "lib.so", content).unwrap());
        assert_eq!(paths.map(|path| fs::read(path).unwrap()), [b"old".to_vec(), b"new".to_vec()]);
    }

    #[test]
    fn a_place_that_others_write_to_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(unpack_below(Ok(parent.path().into()), "lib.so", b"object").is_err());
    }
}
