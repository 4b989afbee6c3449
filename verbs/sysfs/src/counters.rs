//! Counters that live in the processes whose devices they are: read when their file is opened.
//!
//! A file below `ports/1/counters` and `ports/1/hw_counters` of a device is shown as the sum over the user's processes
//! that have the device now and were started with `irnic run --sysfs`. Each is asked by a datagram to its abstract
//! name, which ends with its slot; the names of all slots are tried, which takes about a millisecond. One that does not
//! answer in time, such as a stopped one, is left out.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

use libc::{sa_family_t, sockaddr_un, socklen_t};

/// How long processes have to answer, ms. They may wait for a second themselves.
const PATIENCE: i64 = 2000;
/// A process has one of these slots (irnic-ports).
const SLOTS: std::ops::RangeInclusive<u32> = 1..=1022;
/// Longest path of the file that has the name of a device's sockets.
const LONGEST: usize = 512;
/// Most decimal digits of a number.
pub const DIGITS: usize = 20;

/// A file with a counter.
#[derive(Copy, Clone)]
pub struct Counter<'a> {
    device: &'a [u8],
    folder: &'a [u8],
    name: &'a [u8],
}

impl<'a> Counter<'a> {
    /// The counter of a path …/DEVICE/ports/1/counters/NAME or …/DEVICE/ports/1/hw_counters/NAME.
    pub fn of(path: &'a [u8]) -> Option<Counter<'a>> {
        let mut parts = path.rsplit(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let (name, folder, port, ports, device) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let known = matches!(folder, b"counters" | b"hw_counters") && port == b"1" && ports == b"ports";
        let up = |part: &[u8]| part == b"..";
        (known && !up(name) && !up(device)).then_some(Counter { device, folder, name })
    }

    /// The counter's value as text, in a file without a name. Its descriptor is the caller's.
    pub fn open(&self, root: &[u8]) -> Option<c_int> {
        let (mut digits, mut text) = ([0u8; DIGITS], [0u8; DIGITS + 1]);
        let len = join(&mut text, &[decimal(self.sum(root)?, &mut digits), b"\n"])?;
        // SAFETY: a C string, and as many bytes as there are.
        unsafe {
            let file = libc::syscall(libc::SYS_memfd_create, c"counter".as_ptr(), libc::MFD_CLOEXEC) as c_int;
            if file < 0 {
                return None;
            }
            if libc::write(file, text.as_ptr().cast(), len) == len as isize {
                return Some(file);
            }
            libc::close(file);
        }
        None
    }

    /// Asks all processes that have the device.
    fn sum(&self, root: &[u8]) -> Option<u64> {
        let mut path = [0u8; LONGEST];
        let mut name = [0u8; 96];
        let len = join(&mut path, &[root, b"/irnic/", self.device, b"\0"])?;
        let read = read(CStr::from_bytes_with_nul(&path[..len]).ok()?, &mut name)?;
        let prefix = name[..read].trim_ascii_end();
        let socket = Socket::new()?;
        let mut file = [0u8; 64];
        let len = join(&mut file, &[self.folder, b"/", self.name])?;
        let queried = SLOTS.filter(|slot| socket.query(prefix, *slot, &file[..len])).count();
        Some(socket.answers(prefix, queried))
    }
}

/// Puts parts after each other. Returns their length; `None` if there is no room.
pub fn join(to: &mut [u8], parts: &[&[u8]]) -> Option<usize> {
    let mut len = 0;
    for part in parts {
        to.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    Some(len)
}

/// Returns a number's digits.
pub fn decimal(mut number: u64, to: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = DIGITS;
    loop {
        at -= 1;
        to[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &to[at..];
        }
    }
}

/// Reads a short file by system calls: `open` is one of the functions that come here.
fn read(path: &CStr, to: &mut [u8]) -> Option<usize> {
    // SAFETY: a C string, and as many bytes as there are.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) as c_int;
        if file < 0 {
            return None;
        }
        let got = libc::read(file, to.as_mut_ptr().cast(), to.len());
        libc::close(file);
        usize::try_from(got).ok()
    }
}

/// A socket for datagrams with a name of its own.
struct Socket(c_int);

impl Socket {
    fn new() -> Option<Socket> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed.
        let socket = Socket(unsafe { libc::socket(libc::AF_UNIX, kind, 0) });
        let family = libc::AF_UNIX as sa_family_t;
        // SAFETY: an address without a path: the kernel gives a name (unix(7), autobind).
        let bound = unsafe { libc::bind(socket.0, (&raw const family).cast(), size_of::<sa_family_t>() as socklen_t) };
        (socket.0 >= 0 && bound == 0).then_some(socket)
    }

    /// Asks the process in a slot. Returns whether there is one.
    fn query(&self, prefix: &[u8], slot: u32, file: &[u8]) -> bool {
        let mut address = sockaddr_un { sun_family: libc::AF_UNIX as sa_family_t, sun_path: [0; 108] };
        let (mut name, mut digits) = ([0u8; 107], [0u8; DIGITS]);
        let Some(len) = join(&mut name, &[prefix, decimal(slot.into(), &mut digits)]) else { return false };
        // The first byte stays NUL: the name is in no file system.
        for (to, from) in address.sun_path[1..].iter_mut().zip(&name[..len]) {
            *to = *from as libc::c_char;
        }
        let len = (size_of::<sa_family_t>() + 1 + len) as socklen_t;
        // SAFETY: bytes and an address of the lengths given.
        unsafe { libc::sendto(self.0, file.as_ptr().cast(), file.len(), 0, (&raw const address).cast(), len) >= 0 }
    }

    /// Adds up as many answers as come in time.
    fn answers(&self, prefix: &[u8], queried: usize) -> u64 {
        let (mut sum, mut got) = (0u64, 0);
        let end = now_ms() + PATIENCE;
        while got < queried {
            let mut wait = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
            let left = (end - now_ms()).clamp(0, PATIENCE) as c_int;
            // SAFETY: one valid pollfd.
            if left == 0 || unsafe { libc::poll(&mut wait, 1, left) } == 0 {
                break;
            }
            while let Some(value) = self.answer(prefix) {
                sum = sum.wrapping_add(value);
                got += 1;
            }
        }
        sum
    }

    /// Takes an answer that is there, of a process that was asked.
    fn answer(&self, prefix: &[u8]) -> Option<u64> {
        loop {
            let mut value = 0u64;
            // SAFETY: all zeros are a valid address.
            let mut from: sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
            let mut len = size_of::<sockaddr_un>() as socklen_t;
            // SAFETY: eight bytes and an address are written.
            let got =
                unsafe { libc::recvfrom(self.0, (&raw mut value).cast(), 8, 0, (&raw mut from).cast(), &raw mut len) };
            if got < 0 {
                return None;
            }
            let name = from.sun_path[1..].iter().map(|byte| byte.to_ne_bytes()[0]);
            if got == 8 && name.zip(prefix).all(|(a, b)| a == *b) {
                return Some(value);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: this object's own, or -1, which the call refuses.
        unsafe { libc::close(self.0) };
    }
}

fn now_ms() -> i64 {
    // SAFETY: all zeros are a valid time, into which the call writes.
    unsafe {
        let mut time: libc::timespec = MaybeUninit::zeroed().assume_init();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    }
}
