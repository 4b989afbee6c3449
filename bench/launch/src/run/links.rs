//! A directory that gives the shared object the names that applications load.
//!
//! The installation may have prepared it next to the object; otherwise it is in the user's cache or runtime directory.
//! The links never change once they are correct, so any number of concurrent launches can share them.

use std::fs::{self, DirBuilder, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::error::RunError;

/// The caller's user id.
pub(super) fn user() -> u32 {
    // SAFETY: has no precondition.
    unsafe { libc::geteuid() }
}

/// Whether only `owners` may have written to a directory.
fn trusted(directory: &Metadata, owners: &[u32]) -> bool {
    directory.is_dir() && owners.contains(&directory.uid()) && directory.mode() & 0o022 == 0
}

/// Whether `directory` is the user's, and not writable by others.
pub(super) fn users_own(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|m| trusted(&m, &[user()]))
}

/// Creates `directory` if necessary, and checks that it is not writable by others.
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

/// The user's directory for data that can be recreated (XDG Base Directory Specification), if it is private.
pub(super) fn cache_directory() -> io::Result<PathBuf> {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    let none = || io::Error::other("no cache directory of the user's own");
    let cache = cache.ok_or_else(none)?;
    if !cache.exists() {
        own_directory(&cache, 0o700, &[user()])?;
    }
    if users_own(&cache) { Ok(cache.join("irnic")) } else { Err(none()) }
}

/// The user's directory for data that need not outlive the session.
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
    // The library's name goes into LD_PRELOAD, and has to hold in any directory.
    let temporary = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = temporary.unwrap_or_else(|| "/tmp".into()).join(format!("irnic-{}", user()));
    own_directory(&directory, 0o700, &[user()])?;
    Ok(directory)
}

/// Whether `directory` has all links.
fn complete(directory: &Path, library: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| directory.join(name).canonicalize().is_ok_and(|to| to == library))
}

/// Creates links in `directory`, each atomically with respect to concurrent launches.
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

/// Whether a path contains no separators of `LD_LIBRARY_PATH` and `LD_PRELOAD`.
fn loadable(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b":; ".contains(b))
}

/// A directory in which `library`, an absolute path without links, has all `names`.
pub fn directory(library: &Path, names: &[&str]) -> Result<PathBuf, RunError> {
    let home = library.parent().unwrap_or(Path::new("/"));
    for prepared in [home, &home.join("irnic-links")] {
        let found = fs::symlink_metadata(prepared);
        if loadable(prepared) && found.is_ok_and(|m| trusted(&m, &[user(), 0])) && complete(prepared, library, names) {
            return Ok(prepared.into());
        }
    }
    let mut hash = DefaultHasher::new();
    library.hash(&mut hash);
    let name = format!("links-{:016x}", hash.finish());
    let made = |parent: io::Result<PathBuf>| {
        let directory = parent?;
        own_directory(&directory, 0o700, &[user()])?;
        let directory = directory.join(&name);
        own_directory(&directory, 0o700, &[user()])?;
        fill(&directory, library, names)?;
        Ok::<_, io::Error>(directory)
    };
    let cached = made(cache_directory()).ok().filter(|directory| loadable(directory));
    match cached.map_or_else(|| made(runtime_directory()), Ok) {
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
