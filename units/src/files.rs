//! Files that a process reads and writes: no output replaces an input, or another output.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are to be written, as absolute paths.
static OUTPUTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Files that are read, as absolute paths.
static INPUTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locked(files: &Mutex<Vec<PathBuf>>) -> MutexGuard<'_, Vec<PathBuf>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

fn both() -> io::Error {
    io::Error::other("it would be read and written")
}

/// Notes a file that is read, which no output of this process may replace.
///
/// # Errors
/// It is an output already.
pub fn input(path: &Path) -> io::Result<()> {
    // What does not exist is reported where it is read.
    let Ok(whole) = fs::canonicalize(path) else { return Ok(()) };
    if locked(&OUTPUTS).contains(&whole) {
        return Err(both());
    }
    let mut inputs = locked(&INPUTS);
    if !inputs.contains(&whole) {
        inputs.push(whole);
    }
    Ok(())
}

/// Reads a file that no output of this process may replace.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is an output already.
pub fn read(path: &Path) -> io::Result<String> {
    input(path)?;
    fs::read_to_string(path)
}

/// An output file that no other output of this process may be, until this is dropped.
#[derive(Debug)]
pub struct Output(PathBuf);

impl Output {
    /// Reserves a regular file, or one that does not exist yet. `None` for devices and pipes: several outputs may be
    /// one.
    ///
    /// # Errors
    /// It is an input, or another output; or its folder does not exist.
    pub fn reserve(path: &Path) -> io::Result<Option<Output>> {
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Ok(None);
        }
        let path = fs::canonicalize(path).or_else(|_| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok::<_, io::Error>(fs::canonicalize(folder)?.join(path.file_name().unwrap_or_default()))
        })?;
        if locked(&INPUTS).contains(&path) {
            return Err(both());
        }
        let mut outputs = locked(&OUTPUTS);
        if outputs.contains(&path) {
            return Err(io::Error::other("it has the content of another file already"));
        }
        outputs.push(path.clone());
        Ok(Some(Output(path)))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        locked(&OUTPUTS).retain(|path| *path != self.0);
    }
}
