//! Who asks a running lab over HTTP: `irnic top` by a Unix socket, browsers and Prometheus over TCP.
//!
//! One thread, one request at a time. It reads what the thread that has the network says when it is asked ([`Board`]),
//! and changes nothing.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::metrics;
use super::socket::{self, is_own};
use super::stats::{Board, Point, Stats};
use super::told::Told;

/// How long a request may take to come, and its answer to go.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a lab may take to answer: it sleeps for a tenth of a second at most.
const ANSWER: Duration = Duration::from_secs(1);
/// The longest request, bytes.
const REQUEST: usize = 8 << 10;
/// How often the curves of the page have a point, and how many they have: a minute.
const TICK: Duration = Duration::from_millis(500);
const POINTS: usize = 121;

/// The page of `--live`.
const PAGE: &str = include_str!("live.html");

/// Where a lab answers.
#[derive(Default)]
pub struct Addresses {
    /// For browsers, and for Prometheus.
    pub live: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    /// Foreign addresses are meant.
    pub public: bool,
    /// Processes are looked at now and then, whoever asks.
    pub looks: bool,
}

impl Addresses {
    /// Tells what is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        for (option, address) in [("--live", self.live), ("--metrics", self.metrics)] {
            if let Some(address) = address.filter(|address| !self.public && !address.ip().is_loopback()) {
                return Err(format!(
                    "{option} {address}: others could read it there; --live-public allows that, 127.0.0.1:{} is this \
                     machine's alone",
                    address.port()
                ));
            }
        }
        Ok(())
    }
}

/// What a listener has.
#[derive(Copy, Clone, Debug, Default)]
struct Serves {
    page: bool,
    stats: bool,
    metrics: bool,
    /// Names of the machine that are not its own are refused: a page of another site that has its name point here would
    /// read the answers (DNS rebinding).
    strict: bool,
}

enum Listener {
    Tcp(TcpListener, Serves),
    Unix(UnixListener),
}

/// What serves.
pub struct Server {
    board: Arc<Board>,
    listeners: Vec<Listener>,
    history: VecDeque<Point>,
    told: Told,
    /// Keeps the last minute.
    remembers: bool,
    /// Looks now and then, whoever asks: what a process tells last is told at the lab's end, also if it is killed.
    looks: bool,
    live: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Server {
    /// Listens at a place of [`socket`] and on the addresses.
    pub fn bind(board: Arc<Board>, place: &str, at: &Addresses) -> io::Result<Server> {
        let unix = socket::listen(place)?;
        unix.set_nonblocking(true)?;
        let mut listeners = vec![Listener::Unix(unix)];
        let mut tcp = |address: SocketAddr, serves| -> io::Result<SocketAddr> {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{address}: {e}"));
            let listener = TcpListener::bind(address).map_err(named)?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            listeners.push(Listener::Tcp(listener, serves));
            Ok(bound)
        };
        let both = at.live.is_some() && at.live == at.metrics;
        let strict = !at.public;
        let page = Serves { page: true, stats: true, metrics: both, strict };
        let live = at.live.map(|address| tcp(address, page)).transpose()?;
        let metrics = match at.metrics {
            Some(_) if both => live,
            Some(address) => Some(tcp(address, Serves { metrics: true, strict, ..Serves::default() })?),
            None => None,
        };
        Ok(Server {
            board,
            listeners,
            history: VecDeque::new(),
            told: Told::default(),
            remembers: live.is_some(),
            looks: at.looks,
            live,
            metrics,
        })
    }

    /// Returns where the page is.
    pub fn live(&self) -> Option<SocketAddr> {
        self.live
    }

    /// Returns where the metrics are.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Serves until the process ends, in a thread of its own.
    pub fn start(mut self) -> io::Result<()> {
        std::thread::Builder::new().name("stats".into()).spawn(move || self.run()).map(|_| ())
    }

    fn run(&mut self) {
        let mut tick = Instant::now();
        loop {
            let timeout = if self.looks || self.remembers {
                tick.saturating_duration_since(Instant::now())
            } else {
                Duration::MAX
            };
            let ready = self.wait(timeout);
            if (self.looks || self.remembers) && Instant::now() >= tick {
                self.remember();
                tick = Instant::now() + TICK;
            }
            for at in ready {
                self.accept(at);
            }
        }
    }

    /// Returns the places of listeners with somebody who wants to be heard.
    fn wait(&self, timeout: Duration) -> Vec<usize> {
        let fd = |listener: &Listener| match listener {
            Listener::Tcp(listener, _) => listener.as_raw_fd(),
            Listener::Unix(listener) => listener.as_raw_fd(),
        };
        let poll = |listener| libc::pollfd { fd: fd(listener), events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = self.listeners.iter().map(poll).collect();
        let timeout = timeout.as_millis().try_into().unwrap_or(-1);
        // SAFETY: so many valid pollfds.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        (0..polled.len()).filter(|at| polled[*at].revents != 0).collect()
    }

    fn remember(&mut self) {
        let Some(stats) = self.look() else { return };
        if !self.remembers {
            return;
        }
        if self.history.len() == POINTS {
            self.history.pop_front();
        }
        self.history.push_back(stats.point());
    }

    fn accept(&mut self, at: usize) {
        let served = match &self.listeners[at] {
            Listener::Tcp(listener, serves) => {
                let (accepted, serves) = (listener.accept(), *serves);
                accepted.map(|(mut stream, _)| {
                    let _ = stream.set_nonblocking(false);
                    self.serve(&mut stream, serves)
                })
            }
            Listener::Unix(listener) => listener.accept().map(|(mut stream, _)| {
                if !is_own(&stream) {
                    return Ok(());
                }
                let _ = stream.set_nonblocking(false);
                self.serve(&mut stream, Serves { stats: true, metrics: true, ..Serves::default() })
            }),
        };
        // Who does not wait for the answer does not get it.
        let _: io::Result<io::Result<()>> = served;
    }

    fn serve(&mut self, stream: &mut impl Stream, serves: Serves) -> io::Result<()> {
        let reply = match request(stream)? {
            Ok(request) => self.reply(&request, serves),
            Err(refused) => refused,
        };
        reply.send(stream)
    }

    fn reply(&mut self, request: &Request, serves: Serves) -> Reply {
        if request.method != "GET" && request.method != "HEAD" {
            return Reply::error("405 Method Not Allowed", "only GET is answered here");
        }
        if serves.strict && !is_own_name(&request.host) {
            return Reply::error("403 Forbidden", "not under this name; use an address, or localhost");
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let mut reply = match path {
            "/" if serves.page => Reply::ok("text/html; charset=utf-8", PAGE.into()),
            "/stats.json" if serves.stats => match self.stats() {
                Some(stats) => match serde_json::to_vec(&stats) {
                    Ok(text) => Reply::ok("application/json", text),
                    Err(e) => Reply::error("500 Internal Server Error", &e.to_string()),
                },
                None => Reply::error("503 Service Unavailable", "the lab does not answer"),
            },
            "/metrics" if serves.metrics => match self.stats() {
                Some(stats) => Reply::ok("text/plain; version=0.0.4; charset=utf-8", metrics::text(&stats).into()),
                None => Reply::error("503 Service Unavailable", "the lab does not answer"),
            },
            _ => Reply::error("404 Not Found", "there is nothing here"),
        };
        if request.method == "HEAD" {
            reply.body.clear();
        }
        reply
    }

    /// Returns the lab as it is, with what its processes tell.
    fn look(&mut self) -> Option<Stats> {
        let look = self.board.ask(ANSWER)?;
        let mut stats = look.stats.clone();
        (stats.counted, stats.ended) = self.told.look(&mut stats.processes, &look.shown, &look.departed, stats.hosts);
        Some(stats)
    }

    fn stats(&mut self) -> Option<Stats> {
        let history = self.history.iter().cloned().collect();
        Some(Stats { history, ..self.look()? })
    }
}

/// Whether a request names the machine as nobody else can have it named: by an address, or as localhost.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

trait Stream: Read + Write {
    /// How long the next call may take.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// Returns what is left until a time.
fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[derive(Debug, Default)]
struct Request {
    method: String,
    path: String,
    host: String,
}

/// Reads the head of a request; what is wrong with it is the answer.
fn request(stream: &mut impl Stream) -> io::Result<Result<Request, Reply>> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let end = loop {
        let mut some = [0; 1 << 10];
        stream.limit(left(until)?)?;
        match stream.read(&mut some)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&some[..n]),
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > REQUEST {
            return Ok(Err(Reply::error("431 Request Header Fields Too Large", "the request is too long")));
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Ok(Err(Reply::error("400 Bad Request", "expected GET PATH HTTP/1.1")));
    };
    if !version.starts_with("HTTP/1.") {
        return Ok(Err(Reply::error("400 Bad Request", "expected HTTP/1.1")));
    }
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let host = headers.find(|(name, _)| name.eq_ignore_ascii_case("host")).map_or("", |(_, value)| value.trim());
    Ok(Ok(Request { method: method.into(), path: path.into(), host: host.into() }))
}

#[derive(Debug)]
struct Reply {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Reply {
    fn ok(kind: &'static str, body: Vec<u8>) -> Reply {
        Reply { status: "200 OK", kind, body }
    }

    fn error(status: &'static str, why: &str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n").into() }
    }

    fn send(&self, stream: &mut impl Stream) -> io::Result<()> {
        let Reply { status, kind, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: \
             close\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src \
             'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'self'\r\n\r\n",
            body.len()
        );
        let until = Instant::now() + PATIENCE;
        for mut part in [head.as_bytes(), body] {
            while !part.is_empty() {
                stream.limit(left(until)?)?;
                match stream.write(part)? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    n => part = &part[n..],
                }
            }
        }
        stream.flush()
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
