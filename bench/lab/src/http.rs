//! Non-blocking HTTP clients of a lab.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time limit for receiving a request, and for sending its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of a request, bytes.
pub(super) const REQUEST: usize = 8 << 10;
/// Maximum number of clients of a listener: beyond it, a new one evicts one that has sent nothing yet.
const CLIENTS: usize = 64;

/// A non-blocking connection.
pub(super) trait Stream: Read + Write + AsRawFd + Send {
    /// Makes it non-blocking.
    fn never_wait(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn never_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

impl Stream for UnixStream {
    fn never_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

/// A request's head.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub host: String,
}

impl Request {
    /// Parses the head of a request; an error is returned as the answer. `None`: it is incomplete.
    fn parse(bytes: &[u8]) -> Option<Result<Request, Reply>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            let long = Reply::error("431 Request Header Fields Too Large", "the request is too long");
            return (bytes.len() > REQUEST).then_some(Err(long));
        };
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.split("\r\n");
        let mut parts = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Some(Err(Reply::error("400 Bad Request", "expected GET PATH HTTP/1.1")));
        };
        if !version.starts_with("HTTP/1.") {
            return Some(Err(Reply::error("400 Bad Request", "expected HTTP/1.1")));
        }
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        let host = headers.find(|(name, _)| name.eq_ignore_ascii_case("host")).map_or("", |(_, value)| value.trim());
        Some(Ok(Request { method: method.into(), path: path.into(), host: host.into() }))
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct Reply {
    status: &'static str,
    kind: &'static str,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn ok(kind: &'static str, body: Vec<u8>) -> Reply {
        Reply { status: "200 OK", kind, body }
    }

    pub fn error(status: &'static str, why: &str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n").into() }
    }

    /// Returns the serialized response.
    fn bytes(self) -> Vec<u8> {
        let Reply { status, kind, body } = self;
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: \
             close\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src \
             'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'self'\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend(body);
        bytes
    }
}

enum Stage {
    /// The request so far.
    Receiving(Vec<u8>),
    /// The response, and how much of it has been sent.
    Sending(Vec<u8>, usize),
}

struct Client {
    stream: Box<dyn Stream>,
    stage: Stage,
    /// Time at which it is dropped.
    until: Instant,
}

impl Client {
    /// Proceeds as far as possible without blocking. Returns whether there is more to do.
    fn proceed(&mut self, reply: impl FnOnce(&Request) -> Reply) -> io::Result<bool> {
        if let Stage::Receiving(bytes) = &mut self.stage {
            let mut some = [0; 1 << 10];
            let request = loop {
                match self.stream.read(&mut some) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => bytes.extend_from_slice(&some[..n]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(e) => return Err(e),
                }
                if let Some(request) = Request::parse(bytes) {
                    break request;
                }
            };
            let answer = request.map_or_else(|refused| refused, |request| reply(&request));
            self.stage = Stage::Sending(answer.bytes(), 0);
            self.until = Instant::now() + PATIENCE;
        }
        let Stage::Sending(answer, sent) = &mut self.stage else { return Ok(true) };
        while *sent < answer.len() {
            match self.stream.write(&answer[*sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => *sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }
}

/// The clients of a listener, oldest first.
#[derive(Default)]
pub(super) struct Clients(VecDeque<Client>);

impl Clients {
    /// Adds a new client, and evicts another if there are too many.
    pub fn add(&mut self, stream: impl Stream + 'static) {
        if self.0.len() >= CLIENTS {
            self.evict();
        }
        if stream.never_wait().is_ok() {
            let (stage, until) = (Stage::Receiving(Vec::new()), Instant::now() + PATIENCE);
            self.0.push_back(Client { stream: Box::new(stream), stage, until });
        }
    }

    /// Evicts the oldest client that has sent nothing, otherwise the oldest.
    pub fn evict(&mut self) {
        let silent =
            self.0.iter().position(|client| matches!(&client.stage, Stage::Receiving(bytes) if bytes.is_empty()));
        self.0.remove(silent.unwrap_or(0));
    }

    /// Returns the next time at which one is dropped.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|client| client.until).min()
    }

    /// Returns the event that each waits for.
    pub fn polled(&self) -> impl Iterator<Item = libc::pollfd> {
        self.0.iter().map(|client| {
            let events = if matches!(client.stage, Stage::Receiving(_)) { libc::POLLIN } else { libc::POLLOUT };
            let fd: RawFd = client.stream.as_raw_fd();
            libc::pollfd { fd, events, revents: 0 }
        })
    }

    /// Proceeds with those that are ready, in the order of [`Clients::polled`]; `reply` answers requests. Clients that
    /// have their answer, have disconnected or timed out are removed.
    pub fn proceed(&mut self, ready: &mut impl Iterator<Item = bool>, mut reply: impl FnMut(&Request) -> Reply) {
        let now = Instant::now();
        self.0.retain_mut(|client| {
            if ready.next().unwrap_or_default() {
                client.proceed(&mut reply).unwrap_or(false)
            } else {
                now < client.until
            }
        });
    }
}
