//! Checks whether the dynamic loader can load irnic's library into a program.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The reason why a program keeps its libibverbs, or has none.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It has no dynamic loader.
    Static,
    /// It has another word size than the library.
    Bits(u32),
    /// Its dynamic loader belongs to another C library than irnic's library, and would crash a program with that
    /// preloaded.
    Loader,
    /// It gains privileges, in this way: the loader ignores the caller's variables.
    Rights(&'static str),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => f.write_str("it is linked statically, so the libibverbs in it stays"),
            Obstacle::Bits(bits) => write!(f, "it is a {bits}-bit program, and irnic's library has {}", usize::BITS),
            Obstacle::Loader => f.write_str("its C library is musl, and irnic's library was built for another"),
            Obstacle::Rights(how) => write!(
                f,
                "it gets rights that you do not have ({how}), so the dynamic loader ignores LD_LIBRARY_PATH and LD_PRELOAD"
            ),
        }
    }
}

/// Returns the file that `execvp` would run.
pub fn locate(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|place| place.join(program)).find(|path| path.is_file())
}

/// The obstacle to irnic in the program at `path`. Unreadable files and scripts have none that can be detected here.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    let mut file = File::open(path).ok()?;
    let elf = elf(&mut file).unwrap_or(None);
    // The kernel applies these to programs, not to scripts.
    elf.and_then(|elf| rights(&file).or_else(|| elf.obstacle(path)))
}

/// How a program gains privileges.
fn rights(file: &File) -> Option<Obstacle> {
    // SAFETY: none of these has a precondition but an open descriptor and room for the answer.
    let (user, group, gains) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        let kept = libc::fstatvfs(file.as_raw_fd(), &mut found) == 0 && found.f_flag & libc::ST_NOSUID != 0;
        (libc::getuid(), libc::getgid(), !kept && libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
    };
    // SAFETY: an open descriptor and a name; only the size is asked for.
    let capable =
        unsafe { libc::fgetxattr(file.as_raw_fd(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 };
    gained(&file.metadata().ok()?, capable, user, group).filter(|_| gains).map(Obstacle::Rights)
}

fn gained(program: &Metadata, capable: bool, user: u32, group: u32) -> Option<&'static str> {
    // Without execute permission, the setgid bit has another meaning (chmod(2)).
    match program.mode() {
        mode if mode & libc::S_ISUID != 0 && program.uid() != user => Some("setuid"),
        mode if mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP && program.gid() != group => {
            Some("setgid")
        }
        _ if capable && user != 0 => Some("file capabilities"),
        _ => None,
    }
}

/// The relevant properties of an ELF file (elf(5)).
struct Elf {
    bits: u32,
    /// Whether it names a loader.
    dynamic: bool,
    /// Whether the loader is musl's.
    musl: bool,
}

impl Elf {
    fn obstacle(&self, path: &Path) -> Option<Obstacle> {
        // The loader itself names none.
        let loader = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld"));
        match self {
            Elf { dynamic: false, .. } if !loader => Some(Obstacle::Static),
            Elf { bits, .. } if *bits != usize::BITS => Some(Obstacle::Bits(*bits)),
            Elf { musl: true, .. } if !cfg!(target_env = "musl") => Some(Obstacle::Loader),
            _ => None,
        }
    }
}

/// Reads an ELF file's program headers; `None` of any other file.
fn elf(file: &mut (impl Read + Seek)) -> io::Result<Option<Elf>> {
    const PT_INTERP: u64 = 3;
    let mut head = [0; 64];
    file.read_exact(&mut head[..20])?;
    if head[..4] != *b"\x7fELF" {
        return Ok(None);
    }
    file.read_exact(&mut head[20..52])?;
    let long = head[4] == 2;
    if long {
        file.read_exact(&mut head[52..])?;
    }
    let big = head[5] == 2;
    let number = |bytes: &[u8]| {
        let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if big { bytes.iter().fold(0, append) } else { bytes.iter().rev().fold(0, append) }
    };
    // Offset, entry size and number of the program headers.
    let (at, size, count) = if long { (32..40, 54..56, 56..58) } else { (28..32, 42..44, 44..46) };
    let (at, size, count) = (number(&head[at]), number(&head[size]), number(&head[count]));
    let mut found = Elf { bits: if long { 64 } else { 32 }, dynamic: false, musl: false };
    for index in 0..count {
        let mut kind = [0; 4];
        let header = at.saturating_add(index * size);
        file.seek(SeekFrom::Start(header))?;
        file.read_exact(&mut kind)?;
        if number(&kind) == PT_INTERP {
            found.dynamic = true;
            // p_offset.
            let (place, mut offset) = if long { (8, [0; 8].to_vec()) } else { (4, [0; 4].to_vec()) };
            file.seek(SeekFrom::Start(header.saturating_add(place)))?;
            file.read_exact(&mut offset)?;
            found.musl = is_musl(file, number(&offset)).unwrap_or(false);
        }
    }
    Ok(Some(found))
}

/// Returns whether the path at `offset` is that of musl's dynamic loader.
fn is_musl(file: &mut (impl Read + Seek), offset: u64) -> io::Result<bool> {
    let mut path = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(libc::PATH_MAX as u64).read_to_end(&mut path)?;
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(path.split(|byte| *byte == b'/').next_back().is_some_and(|name| name.starts_with(b"ld-musl")))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Cursor;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A header and one program header of this type.
    fn image(long: bool, big: bool, kind: u32) -> Vec<u8> {
        let order = |value: u64, bytes: usize| {
            let all = if big { value.to_be_bytes() } else { value.to_le_bytes() };
            if big { all[8 - bytes..].to_vec() } else { all[..bytes].to_vec() }
        };
        let (length, at, word) = if long { (64, 32, 8) } else { (52, 28, 4) };
        let mut image = vec![0; length];
        image[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1 + u8::from(long), 1 + u8::from(big)]);
        image[at..at + word].copy_from_slice(&order(length as u64, word));
        let counts = if long { 54 } else { 42 };
        image[counts..counts + 2].copy_from_slice(&order(32, 2));
        image[counts + 2..counts + 4].copy_from_slice(&order(1, 2));
        image.extend(order(kind.into(), 4));
        // p_flags comes earlier in the 64-bit format.
        image.extend(order(5, if long { 4 } else { 0 }));
        let end = image.len() + word;
        image.extend(order(end as u64, word));
        image
    }

    #[test]
    fn the_loader_tells_the_c_library() {
        for (loader, obstacle) in [
            ("/lib/ld-musl-x86_64.so.1", Some(Obstacle::Loader)),
            ("/lib64/ld-linux-x86-64.so.2", None),
            ("/opt/ld-musl/ld.so", None),
        ] {
            let mut image = image(true, false, 3);
            image.extend([loader.as_bytes(), b"\0/ld-musl"].concat());
            let elf = elf(&mut Cursor::new(image)).unwrap().expect("an ELF file");
            assert_eq!(elf.obstacle(Path::new("program")), obstacle, "{loader}");
        }
    }

    #[test]
    fn a_program_without_a_loader_is_static_in_any_format() {
        for (long, big, kind) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, if n & 4 != 0 { 3 } else { 1 })) {
            let elf = elf(&mut Cursor::new(image(long, big, kind))).unwrap().expect("an ELF file");
            assert_eq!((elf.bits, elf.dynamic), (if long { 64 } else { 32 }, kind == 3), "{long} {big} {kind}");
        }
        let whole = image(true, false, 3);
        for length in 20..whole.len() {
            assert!(elf(&mut Cursor::new(&whole[..length])).is_err(), "{length}");
        }
        assert!(elf(&mut Cursor::new(b"#!/bin/sh\nexec something")).unwrap().is_none());
    }

    #[test]
    fn this_program_has_a_loader_and_a_shell_script_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), "#!/bin/sh\n").unwrap();
        fs::set_permissions(script.path(), Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(obstacle(script.path()), None);
    }

    #[test]
    fn rights_count_if_the_caller_does_not_have_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = fs::metadata(file.path()).unwrap();
        let (user, group) = (found.uid(), found.gid());
        for (mode, user, group, how) in [
            (0o755, user + 1, group + 1, None),
            (0o4755, user + 1, group, Some("setuid")),
            (0o4755, user, group, None),
            (0o2755, user, group + 1, Some("setgid")),
            (0o2745, user, group + 1, None),
            (0o2755, user, group, None),
        ] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(gained(&fs::metadata(file.path()).unwrap(), false, user, group), how, "{mode:o}");
        }
        assert_eq!(gained(&found, true, 1000, group), Some("file capabilities"));
        assert_eq!(gained(&found, true, 0, group), None);
    }
}
