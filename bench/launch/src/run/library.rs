//! Where the shared objects are.

use std::path::{Path, PathBuf};

use irnic_verbs::config::{Distrusted, Variables, open_trusted};

use super::embedded;
use super::error::RunError;

/// What stands in for libibverbs.
pub const VERBS: &str = "libirnic_verbs.so";
/// What shows files under /sys and /dev.
pub const SYSFS: &str = "libirnic_sysfs.so";

/// The name by which the library is preloaded.
///
/// AddressSanitizer ends a program whose first object is neither its own runtime nor has `libasan.so` in its path: an
/// object in front of the runtime might hide a function that the runtime replaces. This one hides none.
/// (compiler-rt, `AsanCheckDynamicRTPrereqs`. A runtime that is linked statically wants no object of that name mapped,
/// and sees the file that the link leads to.)
pub const PRELOADED: &str = "libirnic_verbs-precedes-libasan.so";
/// The name by which [`SYSFS`] is preloaded: as for [`PRELOADED`], one that AddressSanitizer accepts in front of its
/// runtime, whose functions those of the library call.
pub const SYSFS_PRELOADED: &str = "libirnic_sysfs-precedes-libasan.so";
/// What the dynamic loader, `dlopen` and linkers ask for, and the name for preloading.
pub const VERBS_NAMES: [&str; 3] = ["libibverbs.so.1", "libibverbs.so", PRELOADED];

/// Where a library of this installation may be, the program being in `directory`: where cargo leaves the one that
/// belongs to the program (what is beside the program may be older), beside it, where packages put it.
fn places(directory: &Path, name: &str) -> [PathBuf; 5] {
    ["deps", "", "../lib/irnic", "../lib", "../lib64/irnic"].map(|place| directory.join(place).join(name))
}

/// A library of this installation: a file of its own that only the caller and root can have written, else what the
/// program carries.
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

/// Files that would be the library `name` of this installation if no other user could write them.
pub fn distrusted(name: &str) -> Vec<Distrusted> {
    let places = directory().map(|directory| places(&directory, name)).into_iter().flatten();
    places.filter_map(|place| trusted(&place)?.err()).collect()
}

/// Where the program is.
fn directory() -> Result<PathBuf, RunError> {
    let program = std::env::current_exe().map_err(|e| RunError::Failed(format!("where irnic is: {e}")))?;
    Ok(program.parent().unwrap_or(Path::new("/")).into())
}

/// The library at `place`, without links in its path; `None` if there is none that can be read.
fn trusted(place: &Path) -> Option<Result<PathBuf, Distrusted>> {
    match open_trusted(place).ok()?? {
        Ok(_) => place.canonicalize().ok().map(Ok),
        Err(file) => Some(Err(file)),
    }
}

/// The shared object that stands in for libibverbs.
pub fn find(variables: &Variables) -> Result<PathBuf, RunError> {
    let Some((path, origin)) = variables.get("IRNIC_LIBRARY") else { return installed(VERBS) };
    let found = Path::new(path).canonicalize().ok().filter(|p| p.is_file());
    found.ok_or_else(|| RunError::Usage(format!("{origin}: {path}: expected {VERBS}, and there is no such file")))
}
