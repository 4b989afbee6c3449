//! Checks of a program that is to run on irnic: what it loads, and whether its libibverbs can be replaced.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Object, ObjectSymbol};

use super::finding::Finding;
use super::stacks;
use crate::run::program::{self, Obstacle};

/// A function that only libibverbs defines.
const VERBS: &str = "ibv_open_device";

/// Examines the program that `execvp` would run.
pub fn examine(name: &OsStr) -> Vec<Finding> {
    let Some(path) = program::locate(name) else {
        return vec![Finding::wrong("program", format!("{} is not there", name.display()), "")];
    };
    let data = match std::fs::read(&path) {
        Ok(data) => data,
        Err(error) => return vec![Finding::wrong("program", format!("{}: {error}", path.display()), "")],
    };
    if let Some(finding) = cannot_start(&path, &data) {
        return vec![finding];
    }
    if let Some(obstacle) = program::obstacle(&path) {
        let remedy = match obstacle {
            Obstacle::Static => "link libibverbs, or all of it, dynamically",
            Obstacle::Bits(_) => "build it for this machine's word size",
            Obstacle::Loader => "build it for glibc",
            Obstacle::Rights(_) => "run a copy of it without these rights (cp drops them)",
        };
        return vec![Finding::wrong("program", format!("{}: {obstacle}", path.display()), remedy)];
    }
    let mut findings = wheels(&path, &data);
    let Ok(file) = object::File::parse(&*data) else {
        findings.insert(0, Finding::ok("program", format!("{}: a script; what it starts finds irnic", path.display())));
        return findings;
    };
    let defines = |file: &object::File<'_>| {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        symbols.filter(|symbol| symbol.is_definition()).any(|symbol| symbol.name() == Ok(VERBS))
    };
    if defines(&file) {
        let found = format!("{} has a libibverbs linked into it, which stays", path.display());
        return vec![Finding::wrong("program", found, "link it with -libverbs as a shared library")];
    }
    findings.extend(loaded(&path));
    if !findings.iter().any(|finding| finding.about == "program") {
        findings.insert(0, Finding::ok("program", path.display().to_string()));
    }
    findings
}

/// Why the kernel would not start a program.
fn cannot_start(path: &Path, data: &[u8]) -> Option<Finding> {
    let wrong =
        |what: String, remedy: &str| Some(Finding::wrong("program", format!("{}{what}", path.display()), remedy));
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a string that ends in 0.
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } != 0 {
        return wrong(" is not executable".to_owned(), "chmod +x, or name the interpreter before it");
    }
    if data.starts_with(b"\x7fELF") && object::File::parse(data).is_err() {
        return wrong(" is damaged: its ELF headers lead nowhere".to_owned(), "build or install it again");
    }
    let line = data.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let interpreter = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    if interpreter.exists() {
        return None;
    }
    wrong(
        format!(": its interpreter, {}, is not there", interpreter.display()),
        "install it, or correct the first line",
    )
}

/// The program's libraries according to ldd(1).
fn loaded(path: &Path) -> Vec<Finding> {
    let Ok(output) = Command::new("ldd").arg(path).env("LC_ALL", "C").output() else {
        return vec![Finding::note("program", "there is no ldd, so what the program needs is not known", "")];
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let libraries = text.lines().filter_map(|line| line.trim().split_once(" => "));
    let mut findings = Vec::new();
    let places = libraries.clone().map(|(_, place)| place.split(" (0x").next().unwrap_or_default());
    findings.extend(stacks::of_objects(places.filter_map(|place| Path::new(place).canonicalize().ok())));
    for (name, place) in libraries {
        let place = place.split(" (0x").next().unwrap_or_default();
        if place == "not found" {
            let remedy = match name {
                "librdmacm.so.1" => "apt-get install librdmacm1, or dnf install librdmacm",
                _ => "install it, or name its folder in LD_LIBRARY_PATH",
            };
            // irnic provides this one.
            if name != "libibverbs.so.1" {
                findings.push(Finding::wrong("program", format!("it needs {name}, which is not found"), remedy));
            }
        } else if is_vendored(name, Path::new(place)) {
            let found = format!("it brings a libibverbs of its own, {place}; irnic run puts irnic's before it");
            findings.push(Finding::note(
                "vendored",
                found,
                "a program that opens it by its path keeps it: LD_DEBUG=libs shows",
            ));
        } else if name.starts_with("libasan") {
            let found = "it has AddressSanitizer; irnic is preloaded before it, by a name that it accepts";
            findings.push(Finding::ok("sanitizer", found));
        }
    }
    findings
}

/// Whether a library is a libibverbs that is not the system's.
fn is_vendored(name: &str, place: &Path) -> bool {
    let ours = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"].iter().any(|folder| place.starts_with(folder));
    name.starts_with("libibverbs") && (name != "libibverbs.so.1" || !ours)
}

/// The Python that a program is, or, of a script, is run by.
fn python(program: &Path, data: &[u8]) -> Option<PathBuf> {
    let is_python = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    if is_python(program) {
        return Some(program.to_owned());
    }
    let line = data.strip_prefix(b"#!")?.split(|c| *c == b'\n').next()?;
    let words = String::from_utf8_lossy(line);
    let mut words = words.split_whitespace();
    let first = Path::new(words.next()?).to_owned();
    let interpreter = if first.ends_with("env") { program::locate(OsStr::new(words.next()?))? } else { first };
    is_python(&interpreter).then_some(interpreter)
}

/// Folders in which a Python looks for packages: as it says, or else those below its own.
fn package_folders(python: &Path) -> Vec<PathBuf> {
    let mut asked = Command::new(python);
    asked.args(["-c", "import sys; print(*sys.path, sep='\\n')"]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = asked.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let folders: Vec<PathBuf> = said.lines().map(PathBuf::from).filter(|path| path.is_absolute()).collect();
    if !folders.is_empty() {
        return folders;
    }
    let Some(prefix) = python.parent().and_then(Path::parent) else { return Vec::new() };
    entries(&prefix.join("lib"))
        .filter(|path| named(path, "python3"))
        .flat_map(|python| [python.join("site-packages"), python.join("dist-packages")])
        .collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn named(path: &Path, part: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))
}

/// Communication libraries and copies of libibverbs in wheels, which a Python program may load.
fn wheels(program: &Path, data: &[u8]) -> Vec<Finding> {
    let Some(python) = python(program, data) else { return Vec::new() };
    let packages = package_folders(&python);
    let mut findings = stacks::of_packages(packages.iter().cloned());
    let libs = packages.iter().flat_map(|folder| entries(folder)).filter(|folder| named(folder, ".libs"));
    let copies: Vec<PathBuf> = libs.flat_map(|folder| entries(&folder)).collect();
    findings.extend(stacks::of_objects(copies.iter().cloned()));
    findings.extend(copies.iter().filter(|library| named(library, "libibverbs")).map(|library| {
        let found = format!("{} comes with a wheel; irnic run puts irnic's before it", library.display());
        Finding::note("vendored", found, "IRNIC_STATS=on shows at the end whether irnic carried anything")
    }));
    findings
}
