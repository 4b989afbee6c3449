//! Where the shared objects are.

use std::path::{Path, PathBuf};

use irnic_verbs::config::Variables;

use super::RunError;

/// What stands in for libibverbs.
const VERBS: &str = "libirnic_verbs.so";
/// What the dynamic loader, `dlopen` and linkers ask for.
pub const VERBS_NAMES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];
/// What shows files under /sys and /dev.
pub const SYSFS: &str = "libirnic_sysfs.so";

/// Where a library of this installation may be, the program being in `directory`: where cargo leaves the one that
/// belongs to the program (what is beside the program may be older), beside it, where packages put it.
fn places(directory: &Path, name: &str) -> [PathBuf; 5] {
    ["deps", "", "../lib/irnic", "../lib", "../lib64/irnic"].map(|place| directory.join(place).join(name))
}

/// A library of this installation.
pub fn beside_program(name: &str) -> Result<PathBuf, RunError> {
    let program = std::env::current_exe().map_err(|e| RunError::Failed(format!("where irnic is: {e}")))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = places(directory, name);
    match places.iter().find(|p| p.is_file()) {
        Some(place) => place.canonicalize().map_err(|e| RunError::Failed(format!("{}: {e}", place.display()))),
        None => {
            let directory = directory.display();
            Err(RunError::Failed(format!(
                "there is no {name} in {directory}, {directory}/deps or {directory}/../lib/irnic: install it there, or set \
                 IRNIC_LIBRARY"
            )))
        }
    }
}

/// The shared object that stands in for libibverbs.
pub fn find(variables: &Variables) -> Result<PathBuf, RunError> {
    let Some((path, origin)) = variables.get("IRNIC_LIBRARY") else { return beside_program(VERBS) };
    let found = Path::new(path).canonicalize().ok().filter(|p| p.is_file());
    found.ok_or_else(|| RunError::Usage(format!("{origin}: {path}: expected {VERBS}, and there is no such file")))
}
