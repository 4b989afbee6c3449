//! Entry of a process into a lab: its first request to the server, and the answer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use super::{Addressing, Assignment, HELLO, LabSpec};
use crate::host::sys;

/// Time limit of the server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Request of a process to the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Its host number.
    Assignment,
    /// Entry into the lab.
    Entry,
    /// A service for the process in this slot of the host.
    Service { slot: u16, service: u64 },
    /// The page with the clock, without entry.
    Clock,
}

/// Bytes of the first message of a process.
const GREETING: usize = 32;

/// Returns the first message of a process: [`HELLO`], its request, and the host that it wishes to be, if any.
pub(super) fn hello(request: Request, wish: Wish) -> [u8; GREETING] {
    let mut message = [0; GREETING];
    let (kind, number) = match wish {
        Wish::Any => (0, 0),
        Wish::Host(host) => (1, host),
        Wish::Rank(rank) => (2, rank),
    };
    let (code, slot, service) = match request {
        Request::Assignment => (0, 0, 0),
        Request::Entry => (1, 0, 0),
        Request::Service { slot, service } => (2, slot, service),
        Request::Clock => (3, 0, 0),
    };
    message[..8].copy_from_slice(&HELLO);
    (message[8], message[9]) = (code, kind);
    message[10..12].copy_from_slice(&slot.to_le_bytes());
    message[12..16].copy_from_slice(&number.to_le_bytes());
    message[16..24].copy_from_slice(&service.to_le_bytes());
    message
}

/// Parses the first message of a process; `None` if it is not of this version.
pub(super) fn read_hello(message: &[u8]) -> Option<(Request, Wish)> {
    let message: &[u8; GREETING] = message.try_into().ok()?;
    let number = u32::from_le_bytes(std::array::from_fn(|i| message[12 + i]));
    let wish = match message[9] {
        0 => Wish::Any,
        1 => Wish::Host(number),
        2 => Wish::Rank(number),
        _ => return None,
    };
    let service = u64::from_le_bytes(std::array::from_fn(|i| message[16 + i]));
    let request = match message[8] {
        0 => Request::Assignment,
        1 => Request::Entry,
        2 => Request::Service { slot: u16::from_le_bytes([message[10], message[11]]), service },
        3 => Request::Clock,
        _ => return None,
    };
    (message[..8] == HELLO).then_some((request, wish))
}

/// Which host a process wishes to be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The one with the fewest processes, fixed from then on.
    Any,
    /// This host.
    Host(u32),
    /// The host of a rank of a parallel job, round robin.
    Rank(u32),
}

/// Variables in which launchers of parallel jobs pass a process's rank: PMI and PMIx, Open MPI, Slurm.
const RANKS: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Variable in which users set a process's host.
const HOST: &str = "IRNIC_LAB_HOST";

fn wish(spec: &LabSpec) -> io::Result<Wish> {
    if let Some(host) = spec.host {
        return Ok(Wish::Host(host));
    }
    if let Some(text) = std::env::var(HOST).ok().filter(|text| !text.is_empty()) {
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("{HOST}={text}: expected a host's number"));
        return text.parse().map(Wish::Host).map_err(|_| wrong());
    }
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    Ok(rank.map_or(Wish::Any, Wish::Rank))
}

/// The server's answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub assignment: Assignment,
    /// Bytes on the wire around a frame.
    pub encapsulation: u32,
    /// Slot of a process that has entered.
    pub slot: u16,
    /// The host's link is up.
    pub link_is_up: bool,
}

/// Bytes of an [`Answer`].
pub(super) const ANSWER: usize = 40;

impl Answer {
    pub(super) fn write(&self) -> [u8; ANSWER] {
        let mut to = [0; ANSWER];
        let Assignment { host, hosts, rate, addressing } = self.assignment;
        to[..4].copy_from_slice(&host.to_le_bytes());
        to[4..8].copy_from_slice(&hosts.to_le_bytes());
        to[8..16].copy_from_slice(&rate.to_le_bytes());
        to[16..20].copy_from_slice(&self.encapsulation.to_le_bytes());
        to[20..22].copy_from_slice(&self.slot.to_le_bytes());
        (to[22], to[23]) = (addressing as u8, u8::from(!self.link_is_up));
        to[32..].copy_from_slice(&HELLO);
        to
    }

    fn read(from: &[u8]) -> Option<Answer> {
        let from: &[u8; ANSWER] = from.try_into().ok()?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| from[at + i]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| from[at + i]));
        let addressing = Addressing::ALL.into_iter().find(|addressing| *addressing as u8 == from[22])?;
        let assignment = Assignment { host: word(0), hosts: word(4), rate: long(8), addressing };
        let slot = u16::from_le_bytes([from[20], from[21]]);
        let answer = Answer { assignment, encapsulation: word(16), slot, link_is_up: from[23] == 0 };
        (from[32..] == HELLO).then_some(answer)
    }
}

/// Waits for the next message of the server and returns it.
pub(super) fn next_message(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<sys::Message> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as libc::c_int) };
    if ready != 1 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the lab's server does not answer"));
    }
    sys::receive(socket.as_fd(), bytes)
}

/// Adds the lab to an error.
fn name(server: &std::path::Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("the lab at {}: {e}", server.display()))
}

/// Connects to the server and sends the first message.
pub(super) fn greet(server: &std::path::Path, hello: &[u8]) -> io::Result<OwnedFd> {
    let connect = || {
        let socket = sys::connect_to(server)?;
        if !sys::peer_user(socket.as_fd()).is_ok_and(sys::is_own_user) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
        }
        sys::send(socket.as_fd(), hello, &[])?;
        Ok(socket)
    };
    connect().map_err(|e| name(server, &e))
}

/// Connects to the server and sends a request.
pub(super) fn call(spec: &LabSpec, request: Request) -> io::Result<(OwnedFd, Answer)> {
    answered(&spec.socket, &hello(request, wish(spec)?))
}

/// Connects to the server and asks for the page with the clock, which follows the answer.
pub(super) fn request_clock(server: &std::path::Path) -> io::Result<(OwnedFd, Answer)> {
    answered(server, &hello(Request::Clock, Wish::Any))
}

/// Connects to the server, sends the first message, and waits for the answer.
fn answered(server: &std::path::Path, hello: &[u8]) -> io::Result<(OwnedFd, Answer)> {
    let name = |e: io::Error| name(server, &e);
    let socket = greet(server, hello)?;
    let mut bytes = [0; 256];
    let message = next_message(&socket, &mut bytes).map_err(name)?;
    if let Some(answer) = Answer::read(&bytes[..message.len]) {
        return Ok((socket, answer));
    }
    let why = match message.len {
        0 => "it is of another version of irnic than this process: give all of them one version".into(),
        len => String::from_utf8_lossy(&bytes[..len]),
    };
    Err(name(io::Error::other(why)))
}

/// Asks for the host number of this process.
pub(super) fn request_assignment(spec: &LabSpec) -> io::Result<Assignment> {
    call(spec, Request::Assignment).map(|(_, answer)| answer.assignment)
}
