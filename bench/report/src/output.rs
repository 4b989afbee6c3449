//! Output: standard output, and files named by options. Lost output makes the exit status a failure.
//!
//! Everything is printed by [`println!`](println) or [`Stdout`], which remember write errors; [`finish`] reports them
//! and turns success into failure. If the reader of a pipe has closed it, the process ends as if by SIGPIPE: silently,
//! with status 141 in a shell. [`OutFile`] is a file that is checked before a run and replaced after it, [`Stream`] one
//! that is written meanwhile. One of them may be `-`, standard output: it then has only that file's contents, and
//! printed text is suppressed.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use irnic_ports::output::{CAPTURE, Output};
use irnic_units::files;
use signal_hook::consts::SIGPIPE;

/// Prints a line to standard output; replaces that of the standard library, which panics on errors.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::output::Stdout, $($arg)*);
    }};
}

/// Prints a line to standard error. Errors are ignored; the exit status remains.
#[macro_export]
macro_rules! eprintln {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}

/// The first write error.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Whether standard output is used as a file, [`DASH`].
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The name under which standard output is a file.
pub const DASH: &str = "-";

/// Whether a path means standard output.
fn is_dash(path: &Path) -> bool {
    path.as_os_str() == DASH
}

/// Whether standard output is used as a file: nothing else may be written there.
pub fn is_taken() -> bool {
    TAKEN.load(Ordering::Relaxed)
}

/// Reserves standard output for a file.
fn take() -> io::Result<Taken> {
    match TAKEN.swap(true, Ordering::Relaxed) {
        false => Ok(Taken),
        true => Err(io::Error::other("standard output has the content of another file already")),
    }
}

/// Standard output for printed text, line-buffered. If standard output is used as a file, the text is dropped.
#[derive(Copy, Clone, Debug)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_taken() { Ok(bytes.len()) } else { Taken.write(bytes) }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if is_taken() { Ok(()) } else { Taken.write_all(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Taken.flush()
    }
}

/// Standard output, reserved for a file.
#[derive(Copy, Clone, Debug)]
struct Taken;

impl Write for Taken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(unprinted)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::stdout().write_all(bytes).map_err(unprinted)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(unprinted)
    }
}

fn unprinted(error: io::Error) -> io::Error {
    lost("standard output", error)
}

/// Remembers the first write error. A broken pipe ends the process.
fn lost(of: impl Display, error: io::Error) -> io::Error {
    end_without_reader(&error);
    if error.kind() != ErrorKind::Interrupted
        && let Ok(mut first) = LOST.lock()
    {
        first.get_or_insert_with(|| format!("{of}: {error}"));
    }
    error
}

/// Ends the process as SIGPIPE does, if the error is a broken pipe.
fn end_without_reader(error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        die();
    }
}

fn die() -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    // If the signal is blocked: the status that a shell would report.
    std::process::exit(128 + SIGPIPE)
}

/// Prints a text.
pub fn print(text: &str) {
    // Errors are reported by `finish`.
    let _ = Stdout.write_all(text.as_bytes());
}

/// Records the result of printing by another writer.
pub fn note(printed: io::Result<()>) {
    let _ = printed.map_err(unprinted);
}

/// The exit status of a command that ended with `status`: lost output is a failure.
pub fn finish(status: ExitCode) -> ExitCode {
    let _ = Stdout.flush();
    let first = LOST.lock().ok().and_then(|mut first| first.take());
    match first {
        None => status,
        Some(what) => {
            eprintln!("irnic: {what}");
            if status == ExitCode::SUCCESS { ExitCode::FAILURE } else { status }
        }
    }
}

/// Ends the process as soon as the reader of its standard output has closed it, if that is a pipe: otherwise a run
/// would continue until the next line.
pub fn watch() {
    let is_pipe = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    if !is_pipe.is_ok_and(|m| m.file_type().is_fifo()) {
        return;
    }
    let wait = || {
        let mut pipe = libc::pollfd { fd: io::stdout().as_raw_fd(), events: 0, revents: 0 };
        loop {
            // SAFETY: one descriptor, which lives as long as the call.
            let ready = unsafe { libc::poll(&raw mut pipe, 1, -1) };
            match ready {
                1.. if pipe.revents & libc::POLLERR != 0 => die(),
                -1 if io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    };
    // Without the thread, it is detected at the next write.
    let _ = std::thread::Builder::new().name("stdout".into()).spawn(wait);
}

/// Notes a file that is read, which no output of this process may replace. Errors name it: it is an output already.
pub fn input(path: &Path) -> Result<(), String> {
    files::input(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// A file that is written during a run, such as a capture. Write errors are remembered like those of standard output.
#[derive(Debug)]
pub struct Stream {
    path: PathBuf,
    to: StreamTo,
}

#[derive(Debug)]
enum StreamTo {
    File(Output, #[expect(dead_code, reason = "reserves the file")] Option<files::Output>),
    Stdout(Taken),
}

impl Stream {
    /// Creates a capture, replacing an earlier one; any other file is left unchanged. `-` is standard output. Errors
    /// name the path.
    pub fn capture(path: &Path) -> Result<Stream, String> {
        let to = match is_dash(path) {
            true => take().map(StreamTo::Stdout).map_err(|e| e.to_string()),
            false => files::Output::reserve(path).map_err(|e| e.to_string()).and_then(|sole| {
                Output::replace(path, &CAPTURE).map(|file| StreamTo::File(file, sole)).map_err(|e| e.to_string())
            }),
        };
        Ok(Stream { path: path.to_owned(), to: to.map_err(|e| format!("{}: {e}", path.display()))? })
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            StreamTo::File(file, _) => file.write(bytes).map_err(|e| lost(self.path.display(), e)),
            StreamTo::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            StreamTo::File(file, _) => file.flush().map_err(|e| lost(self.path.display(), e)),
            StreamTo::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// A result file: checked for writability when it is opened, before the run, and written at the end. A regular file is
/// then replaced atomically: until then, and if the run or the writing fails, an existing file is unchanged, and no new
/// one appears.
#[derive(Debug)]
pub struct OutFile {
    /// As given by the user.
    path: PathBuf,
    to: To,
}

#[derive(Debug)]
enum To {
    /// A temporary file replaces this one.
    Replaced(PathBuf, #[expect(dead_code, reason = "reserves the file")] Option<files::Output>),
    /// A device or a pipe; or a file in a folder in which no file can be created.
    Open(File),
    /// [`DASH`].
    Stdout(Taken),
}

impl OutFile {
    /// Checks that `path` can be written, where `-` is standard output, in place of printed text. At most one file may
    /// be `-`. Errors name the path.
    pub fn open(path: &Path) -> Result<OutFile, String> {
        let to = to(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(OutFile { path: path.to_owned(), to })
    }

    /// Writes the contents. Errors name the path.
    pub fn write(
        self,
        write: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>,
    ) -> Result<(), String> {
        let whole = |to: Box<dyn Write + Send>| {
            let mut to = BufWriter::new(to);
            write(&mut to).and_then(|()| to.flush())
        };
        let written = match self.to {
            // Errors are reported by `finish`.
            To::Stdout(stdout) => return whole(Box::new(stdout)).or(Ok(())),
            To::Open(file) => start_over(&file).and_then(|()| whole(Box::new(file))),
            To::Replaced(ref path, _) => replace(path, whole),
        };
        written.map_err(|e| {
            end_without_reader(&e);
            format!("{}: {e}", self.path.display())
        })
    }
}

/// Decides how a file is written.
fn to(path: &Path) -> io::Result<To> {
    if is_dash(path) {
        return take().map(To::Stdout);
    }
    // A link is kept, and its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let file = match OpenOptions::new().write(true).open(&target) {
        Ok(file) if !file.metadata()?.is_file() => return Ok(To::Open(file)),
        Ok(file) => Some(file),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    match (new_sibling(&target), file) {
        (Ok(_), _) => files::Output::reserve(&target).map(|sole| To::Replaced(target, sole)),
        (Err(_), Some(file)) => Ok(To::Open(file)),
        // The target of a dangling link; or the system's error.
        (Err(_), None) => File::create(path).map(To::Open),
    }
}

/// Rejects `-` and the name of a picture as a folder. Errors name it.
pub fn check_folder(path: &Path) -> Result<(), String> {
    match path.extension() {
        _ if is_dash(path) => Err(format!("{DASH}: expected a folder, which standard output is not")),
        Some(extension) if extension == "svg" => {
            Err(format!("{}: expected a folder for the figures, which are named after their numbers", path.display()))
        }
        _ => Ok(()),
    }
}

/// Parses the name of a picture: `-`, or one that does not end as another format's does.
pub fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension != "svg" => {
            Err("the picture is an SVG: expected a name that ends in .svg".to_owned())
        }
        _ => Ok(path),
    }
}

/// Creates a file next to `path`, which is removed on drop.
fn new_sibling(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Subject to the umask, as any other new file.
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".irnic-").permissions(permissions).tempfile_in(folder)
}

fn replace(path: &Path, whole: impl FnOnce(Box<dyn Write + Send>) -> io::Result<()>) -> io::Result<()> {
    let new = new_sibling(path)?;
    if let Ok(old) = fs::metadata(path) {
        fs::set_permissions(new.path(), old.permissions())?;
    }
    whole(Box::new(new.as_file().try_clone()?))?;
    new.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Truncates a file; for a device or a pipe, there is nothing to do.
fn start_over(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").file_name());
        entries.map(|name| name.into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn a_file_is_replaced_when_it_is_written_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.json");
        let file = OutFile::open(&path).expect("a file");
        assert_eq!(names(folder.path()), [""; 0], "a run that fails leaves nothing");
        file.write(|to| to.write_all(b"new")).expect("written");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("new", 1));

        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let failed = OutFile::open(&path).expect("a file").write(|to| {
            to.write_all(&[b'x'; 100_000])?;
            Err(ErrorKind::StorageFull.into())
        });
        assert!(failed.unwrap_err().ends_with("r.json: no storage space"));
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path()).len()), ("new", 1));
        OutFile::open(&path).expect("a file").write(|to| to.write_all(b"newer")).expect("written");
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_is_the_output_of_one_option() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, link] = ["r.json", "link"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("r.json", &link).unwrap();
        let first = OutFile::open(&path).expect("a file");
        let again = folder.path().join("..").join(folder.path().file_name().unwrap()).join("r.json");
        let refused = OutFile::open(&again).unwrap_err();
        assert!(refused.ends_with("r.json: it has the content of another file already"), "{refused}");
        assert!(Stream::capture(&path).unwrap_err().ends_with("another file already"));
        first.write(|to| to.write_all(b"new")).expect("written");
        let through = OutFile::open(&link).expect("a file");
        assert!(OutFile::open(&path).is_err());
        drop(through);
        OutFile::open(&path).expect("a file");
    }

    #[test]
    fn what_is_read_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let [read, written] = ["in.toml", "out.json"].map(|name| folder.path().join(name));
        fs::write(&read, "precious").unwrap();
        fs::write(&written, "old").unwrap();
        input(&read).expect("nothing is written there");
        let refused = OutFile::open(&read).unwrap_err();
        assert!(refused.ends_with("in.toml: it would be read and written"), "{refused}");
        let output = OutFile::open(&written).expect("a file");
        assert!(input(&written).unwrap_err().ends_with("out.json: it would be read and written"));
        drop(output);
    }

    #[test]
    fn a_link_stays_and_a_device_is_no_file_to_be_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let [old, link] = ["old", "link"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        std::os::unix::fs::symlink("old", &link).unwrap();
        OutFile::open(&link).expect("a file").write(|to| to.write_all(b"new")).expect("written");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&old).unwrap(), "new");
        let full = OutFile::open(Path::new("/dev/full")).expect("a device").write(|to| to.write_all(b"x"));
        assert_eq!(full.unwrap_err(), "/dev/full: No space left on device (os error 28)");
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }

    #[test]
    fn what_cannot_be_written_is_named_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, why) in [(folder.path().to_owned(), "Is a directory"), (folder.path().join("no/r"), "No such file")]
        {
            let error = OutFile::open(&path).unwrap_err();
            assert!(error.starts_with(&format!("{}: {why}", path.display())), "{error}");
        }
    }
}
