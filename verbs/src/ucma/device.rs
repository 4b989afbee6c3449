//! The file operations of `/dev/infiniband/rdma_cm`.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Once;

use super::abi::{Answer, Header, command, read};
use super::calls;
use super::state::{forget_after_fork, state};
use crate::errno::{Errno, Result, guard, set_errno};
use crate::runtime::wait;

/// Opens a file. Returns a descriptor, or −1 and `errno`.
pub(super) fn open(flags: c_int) -> RawFd {
    forget_in_children();
    guard(-1, || {
        let opened = state().open(flags);
        match opened {
            Ok((fd, removed)) => {
                removed.into_iter().for_each(calls::destroy_removed);
                fd
            }
            Err(e) => {
                set_errno(e.raw_os_error().unwrap_or(libc::EMFILE));
                -1
            }
        }
    })
}

/// Returns whether a descriptor is an open file.
pub(super) fn has(fd: RawFd) -> bool {
    state().has(fd)
}

/// Destroys the ids of a file, if the descriptor is one. The caller closes the descriptor.
pub(super) fn close(fd: RawFd) {
    guard((), || {
        let removed = state().close(fd);
        removed.into_iter().for_each(calls::destroy_removed);
    });
}

/// Executes a command. Returns its length, or −1 and `errno`. GET_EVENT, which waits, is a cancellation point
/// (pthreads(7)).
///
/// # Safety
/// The command's references to the caller's memory are correct: buffers for replies, of the size in its header, and
/// options. Unmapped addresses are rejected.
pub(super) unsafe fn command(fd: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: the caller's promise.
    let mut done = guard(Err(Errno(libc::EIO)), || unsafe { execute(fd, bytes) });
    // No lock is held here.
    while let Ok(Done::Waits(response, answer)) = done {
        // Another reader may have taken the event: then this waits, as configured for the descriptor.
        match wait::<1>(fd) {
            1 => {}
            // Another thread has closed the file while this one waited for an event. The kernel lets it wait until a
            // signal, and programs rely on that: rping closes its channel and ends while one of its threads waits.
            0 => {
                // SAFETY: has no precondition.
                unsafe { pause() };
                set_errno(libc::EINTR);
                return -1;
            }
            _ => return -1,
        }
        done = guard(Err(Errno(libc::EIO)), || {
            // SAFETY: the caller's promise.
            let taken = unsafe { calls::take_event(fd, response, answer) }?;
            if taken {
                return Ok(Done::Whole);
            }
            calls::await_event(fd, answer)?;
            Ok(Done::Waits(response, answer))
        });
    }
    match done {
        Ok(_) => bytes.len() as isize,
        Err(Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

// A thread may be cancelled in it (pthreads(7)), which unwinds.
unsafe extern "C-unwind" {
    fn pause() -> c_int;
}

/// Progress of a command.
#[derive(Copy, Clone)]
enum Done {
    Whole,
    /// It waits for an event: address and size of the reply buffer.
    Waits(u64, Answer),
}

/// # Safety
/// As for [`command`].
unsafe fn execute(fd: RawFd, bytes: &[u8]) -> Result<Done> {
    const HEADER: usize = size_of::<Header>();
    if bytes.len() < HEADER {
        return Err(Errno(libc::EINVAL));
    }
    let Header { cmd, input, output } = read(bytes);
    let Some(body) = bytes[HEADER..].get(..input.into()) else { return Err(Errno(libc::EINVAL)) };
    let answer = Answer { room: output };
    if cmd == command::GET_EVENT {
        let response = read(body);
        calls::await_event(fd, answer)?;
        return Ok(Done::Waits(response, answer));
    }
    // SAFETY: the caller's promise, in each case with a reply.
    let executed = unsafe {
        match cmd {
            command::CREATE_ID => calls::create_id(fd, &read(body), answer),
            command::DESTROY_ID => calls::destroy_id(fd, &read(body), answer),
            command::BIND => calls::bind(fd, &read(body)),
            command::RESOLVE_ADDR => calls::resolve_addr(fd, &read(body)),
            command::RESOLVE_ROUTE => calls::resolve_route(fd, &read(body)),
            command::QUERY => calls::query(fd, &read(body), answer),
            command::LISTEN => calls::listen(fd, &read(body)),
            command::CONNECT => calls::connect(fd, &read(body)),
            command::ACCEPT => calls::accept(fd, &read(body)),
            command::REJECT => calls::reject(fd, &read(body)),
            command::DISCONNECT => calls::disconnect(fd, &read(body)),
            command::INIT_QP_ATTR => calls::init_qp_attr(fd, &read(body), answer),
            command::SET_OPTION => calls::set_option(fd, &read(body)),
            command::NOTIFY => calls::notify(fd, &read(body)),
            command::MIGRATE_ID => calls::migrate_id(fd, &read(body), answer),
            command::JOIN_MCAST => calls::join_mcast(fd, &read(body), answer),
            command::LEAVE_MCAST => calls::leave_mcast(fd, &read(body), answer),
            // Newer commands, and those used by librdmacm before AF_IB (2014).
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    };
    executed.map(|()| Done::Whole)
}

/// Makes children of this process start without files: its devices are its own.
fn forget_in_children() {
    extern "C" fn child() {
        forget_after_fork();
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handler accesses only what belongs to this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(child));
    });
}
