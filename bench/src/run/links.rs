//! A directory in which the shared object has the names that applications load.
//!
//! It is beside the object where that can be written, or was prepared there by whoever installed it; else in the user's
//! runtime directory. The links never change once they are right, so any number of launches may meet there.

use std::fs::{self, DirBuilder, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::RunError;

/// The caller's user id.
pub(super) fn user() -> u32 {
    // SAFETY: has no precondition.
    unsafe { libc::geteuid() }
}

/// A directory that only `owners` may have written to.
fn trusted(directory: &Metadata, owners: &[u32]) -> bool {
    directory.is_dir() && owners.contains(&directory.uid()) && directory.mode() & 0o022 == 0
}

/// Whether `directory` is the user's, and nobody else can have put anything into it.
pub(super) fn users_own(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|m| trusted(&m, &[user()]))
}

/// Makes `directory` unless it is there, and sees that nobody else can have put anything into it.
pub(super) fn own_directory(directory: &Path, mode: u32, owners: &[u32]) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if !trusted(&found, owners) {
        let text = format!("{} belongs to, or can be written by, somebody else", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// The user's own directory for things that need not outlive the session.
pub(super) fn runtime_directory() -> io::Result<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(runtime) = given
        && users_own(&runtime)
    {
        let directory = runtime.join("irnic");
        if own_directory(&directory, 0o700, &[user()]).is_ok() {
            return Ok(directory);
        }
    }
    let directory = std::env::temp_dir().join(format!("irnic-{}", user()));
    own_directory(&directory, 0o700, &[user()])?;
    Ok(directory)
}

/// Whether `directory` has every link.
fn complete(directory: &Path, library: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| directory.join(name).canonicalize().is_ok_and(|to| to == library))
}

/// Makes links in `directory`. Each appears at once and right, whoever else does the same.
fn fill(directory: &Path, library: &Path, names: &[&str]) -> io::Result<()> {
    for name in names {
        let link = directory.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == library) {
            continue;
        }
        let draft = directory.join(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        symlink(library, &draft)?;
        fs::rename(&draft, &link)?;
    }
    Ok(())
}

/// Separates the entries of `LD_LIBRARY_PATH`, and of `LD_PRELOAD`: no path may contain them.
fn loadable(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b":; ".contains(b))
}

/// The directory where `library`, an absolute path without links in it, has all `names`.
pub fn directory(library: &Path, names: &[&str]) -> Result<PathBuf, RunError> {
    let home = library.parent().unwrap_or(Path::new("/"));
    let owner = fs::metadata(library).map_err(|e| RunError::Failed(format!("{}: {e}", library.display())))?.uid();
    let owners = [user(), owner, 0];
    // Prepared by whoever installed the library, who is trusted with the library too.
    let beside = home.join("irnic-links");
    for directory in [home, &beside] {
        if loadable(directory) && complete(directory, library, names) {
            let found = fs::symlink_metadata(directory);
            if directory == home || found.is_ok_and(|m| trusted(&m, &owners)) {
                return Ok(directory.into());
            }
        }
    }
    if loadable(&beside) && own_directory(&beside, 0o755, &owners).and_then(|()| fill(&beside, library, names)).is_ok()
    {
        return Ok(beside);
    }
    let mut hash = DefaultHasher::new();
    library.hash(&mut hash);
    let made = runtime_directory().and_then(|runtime| {
        let directory = runtime.join(format!("links-{:016x}", hash.finish()));
        own_directory(&directory, 0o700, &[user()])?;
        fill(&directory, library, names)?;
        Ok(directory)
    });
    match made {
        Ok(directory) if loadable(&directory) => Ok(directory),
        Ok(directory) => Err(RunError::Failed(format!(
            "{}: the dynamic loader takes no path with colons, semicolons or spaces: set TMPDIR to another",
            directory.display()
        ))),
        Err(e) => {
            Err(RunError::Failed(format!("no place for links to the library: {e}; set TMPDIR to a directory of yours")))
        }
    }
}
