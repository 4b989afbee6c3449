//! Checks of the machine: kernel features that irnic needs, and performance.

use std::io;
use std::os::fd::AsRawFd;

use super::finding::Finding;

/// Clock sources that are read without a system call (vDSO).
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// UDP's socket option for segmentation (udp(7)).
const UDP_SEGMENT: libc::c_int = 103;
/// Locked memory limit that MPI and UCX expect, bytes.
const MEMLOCK: u64 = 64 << 20;

/// Examines the machine.
pub fn examine() -> Vec<Finding> {
    vec![cores(), clock(), calls(), segmentation(), memlock(), rdmacm()]
}

fn cores() -> Finding {
    // By affinity and cgroup quota.
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => Finding::note(
            "processors",
            "1: applications that poll and irnic's thread take it from each other",
            "give the program two, or set IRNIC_SPIN=0",
        ),
        n => Finding::ok("processors", format!("{n}: as many threads may poll at a time")),
    }
}

fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Ok(source) = std::fs::read_to_string(path) else {
        return Finding::note("clock", format!("{path} cannot be read"), "");
    };
    let source = source.trim();
    if FAST_CLOCKS.contains(&source) {
        return Finding::ok("clock", source);
    }
    Finding::note(
        "clock",
        format!("{source}: each look at the clock is a system call, and there are several for a packet"),
        "boot with tsc=reliable if the processor's counter can be trusted",
    )
}

/// Makes the system calls that irnic depends on.
fn calls() -> Finding {
    let failed = [
        ("memfd_create", memory()),
        (
            "epoll_create1",
            descriptor(|| {
                // SAFETY: no memory is passed.
                unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }
            }),
        ),
        (
            "eventfd",
            descriptor(|| {
                // SAFETY: no memory is passed.
                unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }
            }),
        ),
        ("socket(AF_UNIX)", std::os::unix::net::UnixDatagram::unbound().map(drop)),
    ]
    .into_iter()
    .find_map(|(call, made)| Some((call, made.err()?)));
    match failed {
        None => Finding::ok("system calls", "those that irnic needs are allowed"),
        Some((call, error)) => Finding::wrong(
            "system calls",
            format!("{call}: {error}; seccomp or a container's rules refuse it"),
            "allow it: docker run --security-opt seccomp=FILE",
        ),
    }
}

fn descriptor(make: impl FnOnce() -> libc::c_int) -> io::Result<()> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let fd = make();
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just created, and is not owned elsewhere.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Tests sealed shared memory.
fn memory() -> io::Result<()> {
    descriptor(|| {
        // SAFETY: a name that ends with NUL.
        let fd = unsafe { libc::memfd_create(c"irnic-doctor".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: no memory is passed.
        if fd >= 0 && unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } < 0 {
            // SAFETY: the descriptor is closed once.
            unsafe { libc::close(fd) };
            return -1;
        }
        fd
    })
}

fn segmentation() -> Finding {
    let set = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
        let bytes: libc::c_int = 1024;
        // SAFETY: an int, and its size.
        let done = unsafe {
            let len = size_of_val(&bytes) as libc::socklen_t;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const bytes).cast(), len)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    });
    match set {
        Ok(()) => Finding::ok("segmentation", "the kernel cuts UDP sends (UDP_SEGMENT)"),
        Err(error) => Finding::note(
            "segmentation",
            format!("UDP_SEGMENT: {error}: each packet over UDP is a system call"),
            "Linux 4.18 and later have it",
        ),
    }
}

fn memlock() -> Finding {
    // SAFETY: filled in by the call.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit);
        limit.rlim_cur
    };
    if limit >= MEMLOCK {
        return Finding::ok("memlock", "irnic locks no memory, and the limit is no obstacle to others");
    }
    Finding::note(
        "memlock",
        format!("{} KiB: irnic locks no memory, but MPI and UCX may warn or refuse", limit >> 10),
        "ulimit -l unlimited",
    )
}

fn rdmacm() -> Finding {
    // SAFETY: its initialisers run, as they would in an application.
    let handle = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Finding::note(
            "librdmacm",
            "it is not there: programs that connect by rdma_cm do not start",
            "apt-get install librdmacm1, or dnf install librdmacm",
        );
    }
    Finding::ok("librdmacm", "it is there, for programs that connect by rdma_cm")
}
