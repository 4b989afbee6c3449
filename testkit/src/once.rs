//! Fixtures built once per test run, although each test is a process of its own.

use std::fs::{self, File};
use std::path::PathBuf;

/// The folder in which `make` has built something, once per test run: the first process that asks builds it, others
/// wait. cargo-nextest numbers the runs; without it, every process builds its own.
///
/// # Errors
///
/// The error of `make`, for every process that asks, and errors of the file system.
pub fn folder(name: &str, make: impl FnOnce(&PathBuf) -> Result<(), String>) -> Result<PathBuf, String> {
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| format!("process-{}", std::process::id()));
    // target/PROFILE/deps/TEST: `cargo clean` removes the folder.
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let target = program.ancestors().nth(3).ok_or("a test program has no folder")?;
    let all = target.join("once");
    let own = all.join(&run);
    fs::create_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
    let lock = File::create(own.join(format!("{name}.lock"))).map_err(|e| e.to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|e| e.to_string())?;
    let (folder, failure) = (own.join(name), own.join(format!("{name}.failed")));
    if let Ok(why) = fs::read_to_string(&failure) {
        return Err(why);
    }
    if !folder.exists() {
        remove_older(&all, &run);
        let unfinished = own.join(format!("{name}.unfinished"));
        let made = fs::create_dir_all(&unfinished).map_err(|e| e.to_string()).and_then(|()| make(&unfinished));
        if let Err(why) = made {
            fs::write(&failure, &why).map_err(|e| e.to_string())?;
            return Err(why);
        }
        fs::rename(&unfinished, &folder).map_err(|e| e.to_string())?;
    }
    Ok(folder)
}

/// Removes leftovers of runs of more than a day ago.
fn remove_older(all: &PathBuf, run: &str) {
    const DAY: u64 = 24 * 60 * 60;
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if entry.file_name() != *run && age.is_some_and(|age| age.as_secs() > DAY) {
            // Another process may do the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let mut made = 0;
        for _ in 0..2 {
            let folder = folder("testkit-once", |folder| {
                made += 1;
                fs::write(folder.join("file"), "text").map_err(|e| e.to_string())
            });
            assert_eq!(fs::read_to_string(folder.unwrap().join("file")).unwrap(), "text");
        }
        assert_eq!(made, 1);
        let failed = || folder("testkit-fails", |_| Err("no room".into()));
        assert_eq!((failed(), failed()), (Err("no room".into()), Err("no room".into())));
    }
}
