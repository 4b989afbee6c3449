//! The folder of a sweep: a file for each run, named by its contents, and a description of the sweep.
//!
//! A run's name is a hash of its settings, its seed and irnic's version, so that an existing result is valid regardless
//! of the process that wrote it. Files are written to a temporary name and renamed.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

use irnic_report::output::{self, OutFile, check_folder};
use irnic_report::{CommandError, version};

use crate::command_line::Split;

/// Prefix of files that are being written; see [`irnic_report::output`].
const ASIDE: &str = ".irnic-";
/// Time without writes after which such a file is considered left behind by a killed process.
const LEFT_OVER: Duration = Duration::from_secs(3_600);
/// Suffix of the message for a run that exceeds a limit.
pub const LIMIT: &str = "than it may";
/// File that describes the sweep.
const SWEEP: &str = "sweep.json";

/// Returns 128 bits of the hash of some texts, as 32 digits.
pub fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Hash of settings and seed.
    pub run: String,
    /// Name in messages.
    pub name: String,
    /// Seed.
    pub seed: u64,
}

impl Named {
    /// Returns the name of its files for a version of irnic.
    pub fn id(&self, version: &str) -> String {
        digest(&[&self.run, version])
    }
}

/// A result, as stored in its file.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    /// Version that produced it.
    irnic: String,
    /// Hash of settings and seed.
    run: String,
    name: String,
    seed: u64,
    /// Core time that it took, s.
    core_seconds: f64,
    /// Hash of the result, as stored.
    sha256: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// A failure of a run, as stored in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    irnic: String,
    run: String,
    /// Name of the run.
    pub name: String,
    seed: u64,
    /// Error message.
    pub message: String,
    /// Number of consecutive failures with this message.
    times: u32,
    /// The command line that repeats the run.
    pub replay: String,
}

impl Failure {
    /// Returns whether it would fail again, given the messages of the current limits.
    pub fn is_final(&self, limits: &[String]) -> bool {
        self.times >= 2 && (!self.message.ends_with(LIMIT) || limits.contains(&self.message))
    }
}

/// The stored state of a run.
#[derive(Debug)]
pub enum State {
    /// Nothing.
    Missing,
    /// A result, with its core time, s.
    Done(f64),
    /// An invalid file.
    Damaged(String),
    /// A failure.
    Failed(Failure),
}

/// Description of the sweep of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of irnic that wrote it.
    pub irnic: String,
    /// The command line, without where and how runs are performed.
    pub arguments: Vec<String>,
    /// The text of the experiment file.
    pub experiment: Option<String>,
    /// Base directory of relative file names in it.
    pub directory: PathBuf,
}

impl Manifest {
    /// Returns the words of the command line that describe the runs.
    pub fn what(&self) -> Vec<String> {
        Split::of(&self.arguments).what
    }
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens a folder for results, and creates it if necessary.
    pub fn create(path: &Path) -> Result<Folder, CommandError> {
        let wrong = |e| CommandError::Usage(format!("--out {}: {e}", path.display()));
        check_folder(path).map_err(|e| CommandError::Usage(format!("--out {e}")))?;
        fs::create_dir_all(path).map_err(wrong)?;
        tempfile::Builder::new().prefix(ASIDE).tempfile_in(path).map_err(wrong)?;
        let folder = Folder(path.to_owned());
        folder.tidy();
        Ok(folder)
    }

    /// Opens an existing folder.
    pub fn open(path: &Path) -> Folder {
        Folder(path.to_owned())
    }

    /// Has no output of this process replace the description of the sweep.
    pub fn read_only(self) -> Result<Folder, CommandError> {
        output::input(&self.0.join(SWEEP)).map_err(CommandError::Usage)?;
        Ok(self)
    }

    /// Removes temporary files of killed processes.
    fn tidy(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(ASIDE)) {
            let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > LEFT_OVER) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn result(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    fn failure(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.failed"))
    }

    /// Returns the description of the sweep; `None` if there is none yet.
    pub fn manifest(&self) -> Result<Option<Manifest>, CommandError> {
        let path = self.0.join(SWEEP);
        let wrong = |e: &dyn std::fmt::Display| CommandError::Failed(format!("{}: {e}", path.display()));
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| wrong(&format_args!("damaged: {e}"))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(wrong(&e)),
        }
    }

    /// Writes the description of the sweep.
    pub fn describe(&self, manifest: &Manifest) -> Result<(), CommandError> {
        write(&self.0.join(SWEEP), manifest).map_err(CommandError::Failed)
    }

    /// Returns the state of a run for a version of irnic.
    pub fn state(&self, named: &Named, version: &str) -> State {
        let id = named.id(version);
        match fs::read(self.result(&id)) {
            Ok(text) => match whole(&text, named, version) {
                Ok(stored) => State::Done(stored.core_seconds),
                Err(why) => State::Damaged(format!("{}: {why}", self.result(&id).display())),
            },
            Err(e) if e.kind() != ErrorKind::NotFound => State::Damaged(format!("{}: {e}", self.result(&id).display())),
            Err(_) => match fs::read(self.failure(&id)) {
                Ok(text) => match serde_json::from_slice(&text) {
                    Ok(failure) => State::Failed(failure),
                    Err(e) => State::Damaged(format!("{}: damaged: {e}", self.failure(&id).display())),
                },
                Err(_) => State::Missing,
            },
        }
    }

    /// Returns the stored result of a run.
    pub fn load<T: DeserializeOwned>(&self, named: &Named, version: &str) -> Result<T, String> {
        let path = self.result(&named.id(version));
        let wrong = |why: String| format!("{}: {why}", path.display());
        let text = fs::read(&path).map_err(|e| wrong(e.to_string()))?;
        let stored = whole(&text, named, version).map_err(wrong)?;
        serde_json::from_str(stored.result.get()).map_err(|e| wrong(format!("damaged: {e}")))
    }

    /// Stores a result, and removes a stored failure.
    pub fn keep(&self, named: &Named, core_seconds: f64, result: &impl Serialize) -> Result<(), String> {
        let id = named.id(version::get());
        let result = to_raw_value(result).map_err(|e| e.to_string())?;
        let Named { run, name, seed } = named.clone();
        let sha256 = checksum(&result);
        let stored =
            Stored { irnic: version::get().to_owned(), run, name, seed, core_seconds, sha256, result: &result };
        write(&self.result(&id), &stored)?;
        let _ = fs::remove_file(self.failure(&id));
        Ok(())
    }

    /// Stores a failure, following the one `before`.
    pub fn fail(
        &self,
        named: &Named,
        before: Option<&Failure>,
        message: String,
        replay: String,
    ) -> Result<Failure, String> {
        let times = before.filter(|before| before.message == message).map_or(0, |before| before.times) + 1;
        let Named { run, name, seed } = named.clone();
        let failure = Failure { irnic: version::get().to_owned(), run, name, seed, message, times, replay };
        write(&self.failure(&named.id(version::get())), &failure)?;
        Ok(failure)
    }

    /// Returns the versions of the stored results and failures.
    pub fn versions(&self) -> Vec<String> {
        /// The relevant fields.
        #[derive(Deserialize)]
        struct Made {
            irnic: String,
        }
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let is_run = |path: &Path| {
            let end = path.extension().is_some_and(|end| end == "json" || end == "failed");
            end && path.file_name().is_some_and(|name| name != SWEEP)
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_run(path));
        let version = |path: PathBuf| Some(serde_json::from_slice::<Made>(&fs::read(path).ok()?).ok()?.irnic);
        let mut versions: Vec<String> = paths.filter_map(version).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }
}

fn checksum(result: &RawValue) -> String {
    Sha256::digest(result.get()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Validates the contents of a file, or returns why they are not the result of the run.
fn whole<'a>(text: &'a [u8], named: &Named, version: &str) -> Result<Stored<'a>, String> {
    let stored: Stored<'a> = serde_json::from_slice(text).map_err(|e| format!("damaged: {e}"))?;
    if checksum(stored.result) != stored.sha256 {
        return Err("damaged: the checksum of the result is another".to_owned());
    }
    if (stored.run.as_str(), stored.irnic.as_str()) != (&named.run, version) {
        return Err("damaged: it is of another run than its name says".to_owned());
    }
    Ok(stored)
}

/// Writes to a temporary file and renames it.
fn write(path: &Path, content: &impl Serialize) -> Result<(), String> {
    OutFile::open(path)?.write(|to| {
        serde_json::to_writer(&mut *to, content)?;
        writeln!(to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(seed: u64) -> Named {
        Named { run: digest(&["settings", &seed.to_string()]), name: format!("seed={seed}"), seed }
    }

    #[test]
    fn parts_are_told_apart_in_hashes() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["a"]).len(), 32);
    }

    #[test]
    fn results_come_back_to_the_last_bit_and_damaged_ones_do_not() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path()).unwrap();
        let result = vec![0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, 5e-324, 1.797e308, 123_456_789.123_456_79];
        folder.keep(&named(1), 2.5, &result).unwrap();
        assert!(matches!(folder.state(&named(1), version::get()), State::Done(2.5)));
        assert_eq!(folder.load::<Vec<f64>>(&named(1), version::get()), Ok(result));
        assert!(matches!(folder.state(&named(2), version::get()), State::Missing));
        assert!(matches!(folder.state(&named(1), "0.0.1"), State::Missing));

        let path = folder.result(&named(1).id(version::get()));
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replacen("0.30000000000000004", "0.30000000000000003", 1);
        for (text, why) in [(&text[..text.len() / 2], "EOF"), ("", "EOF"), (&changed, "checksum")] {
            fs::write(&path, text).unwrap();
            let State::Damaged(said) = folder.state(&named(1), version::get()) else { panic!("{text}") };
            assert!(said.starts_with(&format!("{}: damaged: ", path.display())) && said.contains(why), "{said}");
            assert!(folder.load::<Vec<f64>>(&named(1), version::get()).is_err());
        }
        fs::write(folder.result(&named(2).id(version::get())), &text).unwrap();
        let State::Damaged(said) = folder.state(&named(2), version::get()) else { panic!("another run's") };
        assert!(said.ends_with("damaged: it is of another run than its name says"), "{said}");
    }

    #[test]
    fn a_run_that_fails_twice_with_the_same_message_is_final() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path()).unwrap();
        let mut before = None;
        for (message, is_final) in [("one", false), ("two", false), ("two", true), ("one", false)] {
            let failure = folder.fail(&named(1), before.as_ref(), message.to_owned(), "irnic".to_owned()).unwrap();
            assert_eq!(failure.is_final(&[]), is_final, "{message}");
            let State::Failed(found) = folder.state(&named(1), version::get()) else { panic!("no failure") };
            assert_eq!(found, failure);
            before = Some(found);
        }
        // The limit may have been different.
        let message = format!("too long {LIMIT}");
        for _ in 0..2 {
            before = folder.fail(&named(1), before.as_ref(), message.clone(), String::new()).ok();
        }
        let failure = before.unwrap();
        assert!(failure.is_final(&[message]) && !failure.is_final(&[]));
        folder.keep(&named(1), 1.0, &1).unwrap();
        assert!(matches!(folder.state(&named(1), version::get()), State::Done(_)));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "the failure is gone");
        assert_eq!(folder.versions(), [version::get()]);
    }
}
