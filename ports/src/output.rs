//! Output files named by settings: irnic replaces what it wrote before, and leaves all other files unchanged.
//!
//! A symbolic link to a file is not followed, since its creator may have meant something else; one to a pipe or a
//! device (`/dev/stdout`, a shell's `>(…)`) is. A pipe must have a reader.
//!
//! Existing files are opened with O_CREAT: then Linux protects this process from files planted by others in a directory
//! like /tmp (`fs.protected_regular` and `fs.protected_fifos`, proc(5)).

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Type of the contents of a file.
#[derive(Debug)]
pub struct Kind {
    /// For messages: "a pcapng capture".
    name: &'static str,
    /// Returns whether a non-empty file is of this kind, reading from its beginning.
    is_own: fn(&mut File) -> io::Result<bool>,
}

impl Kind {
    /// Creates a kind called `name` in messages. `is_own` checks a non-empty file from its beginning.
    pub const fn new(name: &'static str, is_own: fn(&mut File) -> io::Result<bool>) -> Kind {
        Kind { name, is_own }
    }
}

/// pcapng: a section header block, in either byte order.
pub static CAPTURE: Kind = Kind { name: "a pcapng capture", is_own: is_capture };

fn is_capture(file: &mut File) -> io::Result<bool> {
    // Block type, length, byte-order magic (draft-ietf-opsawg-pcapng 4.1).
    let mut head = [0; 12];
    let read = file.read_exact(&mut head);
    Ok(read.is_ok()
        && head[..4] == [0x0a, 0x0d, 0x0d, 0x0a]
        && matches!(head[8..], [0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a]))
}

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file of another kind exists, and is kept.
    #[error("there is a file that is not {0}, and it stays as it is; expected a new name, or that of an earlier one")]
    Foreign(&'static str),
    /// A file exists that was to be kept.
    #[error("there is such a file already")]
    Taken,
    /// Another process writes it.
    #[error("another process is writing it")]
    Busy,
    /// It leads to a file, or nowhere.
    #[error("it is a symbolic link; expected the name of the file itself")]
    Link,
    /// Opening it would block forever.
    #[error("no process reads from this pipe; expected a reader to be there first")]
    NoReader,
    /// Two captures in one pipe are not a valid capture.
    #[error("another process writes to this pipe; expected one pipe for each")]
    Shared,
    /// System error.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A file, a pipe or a device to write to.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// The reader may close its end.
    pipe: bool,
}

/// Result of opening a path.
enum Found {
    /// There was nothing; an empty file was created.
    New(File),
    /// A file that this process has locked and no other writes.
    Old(File),
    /// A file that another process writes.
    Locked,
    /// A pipe, a device.
    Stream(Output),
}

/// Marks the file as being written, until it is closed. Returns false if another process has marked it.
fn lock(file: &File) -> bool {
    // SAFETY: an open descriptor. On file systems without locks, no file counts as marked.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    locked || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

fn regular(path: &Path) -> Result<Found, OutputError> {
    // Neither followed nor waited for, if it was replaced meanwhile.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it was replaced while it was opened").into());
    }
    Ok(if lock(&file) { Found::Old(file) } else { Found::Locked })
}

fn stream(path: &Path) -> Result<Found, OutputError> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = File::options().write(true).create(true).truncate(false).custom_flags(flags).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => OutputError::NoReader,
        _ => e.into(),
    })?;
    let found = file.metadata()?.file_type();
    if found.is_file() {
        return Err(OutputError::Link);
    }
    if found.is_fifo() && !lock(&file) {
        return Err(OutputError::Shared);
    }
    // From now on writes block for a slow reader, so that nothing written is lost.
    // SAFETY: an open descriptor of this function's own.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(Found::Stream(Output { file, pipe: found.is_fifo() }))
}

fn find(path: &Path) -> Result<Found, OutputError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => regular(path),
        Ok(found) if found.is_symlink() => match fs::metadata(path) {
            Ok(target) if !target.is_file() => stream(path),
            _ => Err(OutputError::Link),
        },
        Ok(_) => stream(path),
        Err(_) => match File::options().read(true).write(true).create_new(true).open(path) {
            // Another process may have locked it in between.
            Ok(file) => Ok(if lock(&file) { Found::New(file) } else { Found::Locked }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => regular(path),
            Err(e) => Err(e.into()),
        },
    }
}

/// Checks that a file is empty or of this kind.
fn check(file: &mut File, kind: &Kind) -> Result<(), OutputError> {
    if file.metadata()?.len() == 0 || (kind.is_own)(file)? { Ok(()) } else { Err(OutputError::Foreign(kind.name)) }
}

impl Output {
    /// Opens the file at `path` for writing from its beginning. An existing file is replaced if it is of this kind or
    /// empty.
    pub fn replace(path: &Path, kind: &Kind) -> Result<Output, OutputError> {
        match find(path)? {
            Found::Stream(output) => Ok(output),
            Found::Locked => Err(OutputError::Busy),
            Found::New(mut file) | Found::Old(mut file) => {
                check(&mut file, kind)?;
                file.set_len(0)?;
                file.rewind()?;
                Ok(Output { file, pipe: false })
            }
        }
    }

    /// Creates the file at `path`. An existing non-empty one is [`OutputError::Taken`].
    pub fn create(path: &Path) -> Result<Output, OutputError> {
        match find(path)? {
            Found::Stream(output) => Ok(output),
            Found::New(file) | Found::Old(file) if file.metadata()?.len() == 0 => Ok(Output { file, pipe: false }),
            _ => Err(OutputError::Taken),
        }
    }

    /// Checks that [`Output::replace`] would not find a file at `path` that must be kept. A pipe is not opened: its
    /// reader would see it close.
    pub fn check(path: &Path, kind: &Kind) -> Result<(), OutputError> {
        Self::earlier(path, kind).map(drop)
    }

    /// Empties a file of this kind that no process is writing.
    pub fn clear(path: &Path, kind: &Kind) -> Result<(), OutputError> {
        Ok(Self::earlier(path, kind)?.map_or(Ok(()), |file| file.set_len(0))?)
    }

    /// Returns the file of this kind at `path`, if no process is writing it.
    fn earlier(path: &Path, kind: &Kind) -> Result<Option<File>, OutputError> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(None) };
        if found.is_symlink() && fs::metadata(path).map_or(true, |target| target.is_file()) {
            return Err(OutputError::Link);
        }
        if !found.is_file() {
            return Ok(None);
        }
        let Found::Old(mut file) = regular(path)? else { return Ok(None) };
        check(&mut file, kind)?;
        Ok(Some(file))
    }
}

/// Runs `body`, which may write to a pipe without a reader. The write then fails with an error, and does not terminate
/// the application.
pub fn without_sigpipe<T>(body: impl FnOnce() -> T) -> T {
    let [mut pipe, mut pending, mut old] = [MaybeUninit::<libc::sigset_t>::uninit(); 3];
    // SAFETY: each set is filled in before it is read. The signal raised by a write goes to the writing thread, and is
    // consumed here unless one was pending already.
    unsafe {
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::sigpending(pending.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), old.as_mut_ptr());
        let done = body();
        if libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 0 {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(pipe.as_ptr(), std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut());
        done
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pipe { without_sigpipe(|| self.file.write(bytes)) } else { self.file.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    const LITTLE: &[u8] = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a and what follows";
    const BIG: &[u8] = b"\x0a\x0d\x0d\x0a\0\0\0\x1c\x1a\x2b\x3c\x4d and what follows";

    fn fifo(folder: &Path) -> PathBuf {
        let path = folder.join("pipe");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        path
    }

    /// Tries every function on a file, each with the contents afterwards.
    fn all(path: &Path, before: &[u8], kind: &Kind) -> Vec<(Result<(), String>, Vec<u8>)> {
        type Way = fn(&Path, &Kind) -> Result<(), OutputError>;
        let replace: Way = |path, kind| Ok(Output::replace(path, kind)?.write_all(b"new")?);
        let mut outcomes = Vec::new();
        for way in [replace, Output::check, Output::clear] {
            fs::write(path, before).unwrap();
            let done = way(path, kind).map_err(|e| e.to_string());
            outcomes.push((done, fs::read(path).unwrap()));
        }
        outcomes
    }

    #[test]
    fn only_what_irnic_wrote_and_what_is_empty_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for own in [LITTLE, BIG, b""] {
            let outcomes = all(&path, own, &CAPTURE);
            assert_eq!(outcomes[0], (Ok(()), b"new".to_vec()));
            assert_eq!(outcomes[1], (Ok(()), own.to_vec()));
            assert_eq!(outcomes[2], (Ok(()), Vec::new()));
        }
        let cut = &LITTLE[..11];
        let no_order = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\0\0\0\0 something";
        for foreign in [&b"years of work"[..], cut, no_order] {
            for (done, left) in all(&path, foreign, &CAPTURE) {
                assert!(done.unwrap_err().contains(CAPTURE.name));
                assert_eq!(left, foreign);
            }
        }
    }

    #[test]
    fn one_that_is_being_written_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut first = Output::create(&path).unwrap();
        // Empty as it still is.
        assert!(matches!(Output::create(&path), Err(OutputError::Taken)));
        first.write_all(LITTLE).unwrap();
        assert!(matches!(Output::replace(&path, &CAPTURE), Err(OutputError::Busy)));
        Output::clear(&path, &CAPTURE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LITTLE);
        drop(first);
        assert!(matches!(Output::create(&path), Err(OutputError::Taken)));
        Output::clear(&path, &CAPTURE).unwrap();
        Output::create(&path).unwrap();
    }

    #[test]
    fn a_link_to_a_file_is_refused_and_one_to_a_device_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        for (name, to) in
            [("file", target.as_path()), ("nowhere", Path::new("nosuch")), ("device", Path::new("/dev/null"))]
        {
            symlink(to, folder.path().join(name)).unwrap();
        }
        fs::write(&target, LITTLE).unwrap();
        for name in ["file", "nowhere"] {
            let path = folder.path().join(name);
            for refused in [
                Output::replace(&path, &CAPTURE).map(drop),
                Output::create(&path).map(drop),
                Output::clear(&path, &CAPTURE),
            ] {
                assert!(matches!(refused, Err(OutputError::Link)), "{name}: {refused:?}");
            }
        }
        assert_eq!(fs::read(&target).unwrap(), LITTLE);
        Output::replace(&folder.path().join("device"), &CAPTURE).unwrap().write_all(b"gone").unwrap();
        Output::clear(&folder.path().join("device"), &CAPTURE).unwrap();
    }

    #[test]
    fn what_others_have_laid_ready_in_a_common_directory_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let protects = fs::read_to_string("/proc/sys/fs/protected_regular").is_ok_and(|level| level.trim() != "0");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        if !protects || chown(&path, Some(65_530), None).is_err() {
            // Past the harness's capture of output.
            irnic_testkit::skipped("only root can, and only where fs.protected_regular is on");
            return;
        }
        Output::create(&path).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        for refused in [Output::create(&path).map(drop), Output::replace(&path, &CAPTURE).map(drop)] {
            assert!(matches!(refused, Err(OutputError::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied));
        }
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        assert!(matches!(Output::replace(&path, &CAPTURE), Err(OutputError::NoReader)));
        assert!(matches!(Output::create(&path), Err(OutputError::NoReader)));
        Output::clear(&path, &CAPTURE).unwrap();
    }

    #[test]
    fn a_pipe_takes_all_however_slow_its_reader_and_ends_in_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(folder.path());
        // Opened without blocking, then read like any pipe.
        let mut reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, 0) }, 0);
        let mut output = Output::create(&path).unwrap();
        assert!(matches!(Output::create(&path), Err(OutputError::Shared)));
        // Sixteen times the capacity of a pipe.
        let sent: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
        let received = std::thread::scope(|scope| {
            let writer = scope.spawn(|| output.write_all(&sent));
            let mut received = vec![0; sent.len()];
            reader.read_exact(&mut received).unwrap();
            writer.join().unwrap().unwrap();
            received
        });
        assert!(received == sent);
        drop(reader);
        // An unblocked signal would end the test here.
        // SAFETY: the default disposition, which the harness changed.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(output.write_all(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        // SAFETY: restores the previous disposition.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
