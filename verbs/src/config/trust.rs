//! Whether a file in a default place may be read: other users must not control where captures and statistics are
//! written.
//!
//! As in ssh(1) and git(1): a file in a default place counts only if no user except the caller and root can have
//! written it. A file named by the caller is the caller's decision.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Returns whether the process has rights that its caller does not have (setuid, setgid, file capabilities): then
/// neither variables nor files of the caller count.
pub(super) fn is_secure() -> bool {
    // SAFETY: reads a value that the kernel passed to this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// What is wrong with a file, or with its directory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Wrong {
    /// It belongs to this user, who is neither the caller nor root.
    Owner(u32),
    /// Others may write it; holds its permissions.
    Writable(u32),
    /// A pipe, a device, a directory.
    NotAFile,
    /// It was replaced while it was checked.
    Moved,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Owner(uid) => write!(f, "belongs to user {uid}, neither you ({}) nor root", user()),
            Wrong::Writable(mode) => write!(f, "can be written by others (mode {mode:04o}; chmod go-w)"),
            Wrong::NotAFile => f.write_str("is no regular file"),
            Wrong::Moved => f.write_str("was replaced while it was looked at"),
        }
    }
}

/// A file in a default place that another user can have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distrusted {
    path: PathBuf,
    place: Place,
    wrong: Wrong,
}

/// A source of settings that is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored(What);

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Variables of a caller with fewer rights.
    Variables,
    File(Distrusted),
}

/// The object that a problem is with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The file itself.
    File,
    /// The directory of the file.
    Directory,
    /// The directory of the target if the file is a symbolic link.
    Target(PathBuf),
}

impl Ignored {
    /// Variables of a caller with fewer rights than the process.
    pub(super) const VARIABLES: Ignored = Ignored(What::Variables);
}

impl From<Distrusted> for Ignored {
    fn from(file: Distrusted) -> Ignored {
        Ignored(What::File(file))
    }
}

impl fmt::Display for Distrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name may be another user's choice: characters that would break the line are escaped.
        let path = self.path.to_string_lossy();
        write!(f, "{} is ignored: ", path.escape_debug())?;
        match &self.place {
            Place::File => f.write_str("it")?,
            Place::Directory => f.write_str("its directory")?,
            Place::Target(target) => write!(f, "{}, where it leads,", target.to_string_lossy().escape_debug())?,
        }
        write!(f, " {}", self.wrong)
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            What::Variables => f.write_str(
                "IRNIC_* variables and irnic.toml are ignored: the program runs with rights that its caller does not have (setuid, setgid or file capabilities)",
            ),
            What::File(file) => {
                write!(f, "{file}; IRNIC_CONFIG={} reads it all the same", file.path.to_string_lossy().escape_debug())
            }
        }
    }
}

/// Returns the caller's user id.
fn user() -> u32 {
    // SAFETY: has no precondition.
    unsafe { libc::geteuid() }
}

fn wrong(found: &Metadata) -> Option<Wrong> {
    if found.uid() != user() && found.uid() != 0 {
        return Some(Wrong::Owner(found.uid()));
    }
    // An access control list (acl(5)) shows in the group's bits. The sticky bit makes no difference: in /tmp others
    // cannot replace the file, but can still choose which of the caller's files is linked to by its name.
    (found.mode() & 0o022 != 0).then_some(Wrong::Writable(found.mode() & 0o7777))
}

/// Opens a file in a default place for reading, if it exists and only the caller and root can have written it.
///
/// The file, its directory and the target of a link must not belong to, or be writable by, any other user. They are
/// checked through open descriptors. Returns `None` if there is no such file. Fails if it or its directory cannot be
/// opened.
pub fn open_trusted(path: &Path) -> io::Result<Option<Result<File, Distrusted>>> {
    let ignored = |place, wrong| Ok(Some(Err(Distrusted { path: path.into(), place, wrong })));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(listed) = fs::symlink_metadata(path) else { return Ok(None) };
    // Opening a pipe or a device may block, or have side effects that others must not trigger, so the directory is
    // checked first, and the file is opened in the directory that was checked.
    let directory = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(parent)?;
    if let Some(wrong) = wrong(&directory.metadata()?) {
        return ignored(Place::Directory, wrong);
    }
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: an open directory, and a name that ends with 0.
    let fd = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, with no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    let found = file.metadata()?;
    if !found.is_file() {
        return ignored(Place::File, Wrong::NotAFile);
    }
    if let Some(wrong) = wrong(&found) {
        return ignored(Place::File, wrong);
    }
    // A link of the caller's own; its target must not be under the control of others either.
    if listed.is_symlink() {
        let target = path.canonicalize()?;
        let home = target.parent().unwrap_or(Path::new("/"));
        let at_home = fs::metadata(&target)?;
        if (at_home.dev(), at_home.ino()) != (found.dev(), found.ino()) {
            return ignored(Place::File, Wrong::Moved);
        }
        if let Some(wrong) = wrong(&fs::metadata(home)?) {
            return ignored(Place::Target(home.into()), wrong);
        }
    }
    Ok(Some(Ok(file)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Returns the outcome of opening a file: "read", "absent" or the message.
    fn outcome(path: &Path) -> String {
        match open_trusted(path) {
            Ok(Some(Ok(_))) => "read".into(),
            Ok(Some(Err(ignored))) => ignored.to_string(),
            Ok(None) => "absent".into(),
            Err(e) => e.to_string(),
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_counts_if_only_the_caller_can_have_written_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        let file = home.join("irnic.toml");
        assert_eq!(outcome(&file), "absent");
        fs::write(&file, "").unwrap();
        for (directory, of_file, said) in [
            (0o755, 0o644, "read"),
            (0o700, 0o600, "read"),
            (0o755, 0o664, "it can be written by others (mode 0664"),
            (0o755, 0o646, "it can be written by others (mode 0646"),
            (0o775, 0o644, "its directory"),
            (0o757, 0o644, "can be written by others (mode 0757"),
            // As /tmp is.
            (0o1777, 0o644, "can be written by others (mode 1777"),
        ] {
            chmod(&home, directory);
            chmod(&file, of_file);
            let outcome = outcome(&file);
            assert!(outcome.contains(said), "{directory:o} {of_file:o}: {outcome}");
            assert_eq!(outcome == "read", said == "read", "{outcome}");
        }
    }

    #[test]
    fn a_link_counts_if_what_it_leads_to_does() {
        let folder = tempfile::tempdir().unwrap();
        let (home, shared) = (folder.path().join("home"), folder.path().join("shared"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("mine"), "").unwrap();
        chmod(&home, 0o755);
        let link = home.join("irnic.toml");
        symlink(shared.join("mine"), &link).unwrap();
        chmod(&shared, 0o755);
        assert_eq!(outcome(&link), "read");
        chmod(&shared, 0o777);
        let said = outcome(&link);
        assert!(said.contains("shared, where it leads, can be written by others"), "{said}");
    }

    #[test]
    fn a_pipe_is_no_file_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        chmod(folder.path(), 0o700);
        let path = folder.path().join("irnic.toml");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(outcome(&path).contains("it is no regular file"));
    }

    #[test]
    fn what_is_said_is_one_line_whatever_the_names() {
        let place = Place::Target("c\x1b[m\nd".into());
        let said = Ignored::from(Distrusted { path: "a\nb".into(), place, wrong: Wrong::Owner(7) }).to_string();
        assert!(!said.contains('\n') && !said.contains('\x1b') && said.contains("belongs to user 7"), "{said}");
    }
}
