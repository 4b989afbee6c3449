//! Location of the shared objects.

use std::path::{Path, PathBuf};

use irnic_verbs::config::{Distrusted, Variables, open_trusted};

use super::embedded;
use super::error::RunError;

/// The replacement of libibverbs.
pub const VERBS: &str = "libirnic_verbs.so";
/// The library that shows files under /sys and /dev.
pub const SYSFS: &str = "libirnic_sysfs.so";

/// The library that gives programs a lab's time.
pub const CLOCK: &str = "libirnic_clock.so";

/// The name by which the library is preloaded.
///
/// AddressSanitizer ends a program whose first object is neither its own runtime nor has `libasan.so` in its path: an
/// object ahead of the runtime might shadow a function that the runtime replaces. This one shadows none. (compiler-rt,
/// `AsanCheckDynamicRTPrereqs`. A runtime that is linked statically wants no object of that name mapped, and sees the
/// file that the link leads to.)
pub const PRELOADED: &str = "libirnic_verbs-precedes-libasan.so";
/// The name by which [`SYSFS`] is preloaded: like [`PRELOADED`], one that AddressSanitizer accepts ahead of its
/// runtime, whose functions are called by those of the library.
pub const SYSFS_PRELOADED: &str = "libirnic_sysfs-precedes-libasan.so";
/// The name by which [`CLOCK`] is preloaded, as [`SYSFS_PRELOADED`].
pub const CLOCK_PRELOADED: &str = "libirnic_clock-precedes-libasan.so";
/// The names that the dynamic loader, `dlopen` and linkers look for, and the name for preloading.
pub const VERBS_NAMES: [&str; 3] = ["libibverbs.so.1", "libibverbs.so", PRELOADED];

/// Candidate locations of a library of this installation, for a program in `directory`: where cargo puts the one built
/// with the program (a copy next to the program may be older), next to it, where packages install it.
fn places(directory: &Path, name: &str) -> [PathBuf; 5] {
    ["deps", "", "../lib/irnic", "../lib", "../lib64/irnic"].map(|place| directory.join(place).join(name))
}

/// A library of this installation: a separate file that only the caller and root can have written, otherwise the
/// embedded one.
pub fn installed(name: &str) -> Result<PathBuf, RunError> {
    let directory = directory()?;
    let mut distrusted = Vec::new();
    for place in places(&directory, name) {
        match trusted(&place) {
            Some(Ok(path)) => return Ok(path),
            Some(Err(file)) => distrusted.push(file),
            None => {}
        }
    }
    embedded::unpacked(name).unwrap_or_else(|| {
        if let Some(file) = distrusted.first() {
            return Err(RunError::Failed(format!("{file}; change that, or set IRNIC_LIBRARY to a library of yours")));
        }
        let directory = directory.display();
        Err(RunError::Failed(format!(
            "there is no {name} in {directory}, {directory}/deps or {directory}/../lib/irnic: install it there, or set \
             IRNIC_LIBRARY"
        )))
    })
}

/// Files that would be the library `name` of this installation if they were not writable by other users.
pub fn distrusted(name: &str) -> Vec<Distrusted> {
    let places = directory().map(|directory| places(&directory, name)).into_iter().flatten();
    places.filter_map(|place| trusted(&place)?.err()).collect()
}

/// The directory of the program.
fn directory() -> Result<PathBuf, RunError> {
    let program = std::env::current_exe().map_err(|e| RunError::Failed(format!("where irnic is: {e}")))?;
    Ok(program.parent().unwrap_or(Path::new("/")).into())
}

/// The library at `place`, with links resolved; `None` if there is no readable one.
fn trusted(place: &Path) -> Option<Result<PathBuf, Distrusted>> {
    match open_trusted(place).ok()?? {
        Ok(_) => place.canonicalize().ok().map(Ok),
        Err(file) => Some(Err(file)),
    }
}

/// The shared object that replaces libibverbs.
pub fn find(variables: &Variables) -> Result<PathBuf, RunError> {
    let Some((path, origin)) = variables.get("IRNIC_LIBRARY") else { return installed(VERBS) };
    let found = Path::new(path).canonicalize().ok().filter(|p| p.is_file());
    found.ok_or_else(|| RunError::Usage(format!("{origin}: {path}: expected {VERBS}, and there is no such file")))
}
