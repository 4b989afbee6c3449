//! The HTTP server of a running lab: `irnic top` by a Unix socket, browsers and Prometheus over TCP.
//!
//! A single thread, which never blocks on a client. It reads snapshots from the network's thread ([`Board`]), and
//! changes nothing.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::http::{Clients, Reply, Request};
use crate::metrics;
use crate::process_stats::ProcessPages;
use crate::socket::{self, is_own};
use crate::stats::{Board, Point, Stats};

/// Time for a lab to answer: it sleeps for a tenth of a second at most.
const ANSWER: Duration = Duration::from_secs(1);
/// Pause of accepting after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval and number of the points of the page's curves: a minute.
const TICK: Duration = Duration::from_millis(500);
const POINTS: usize = 121;

/// The page of `--live`.
const PAGE: &str = include_str!("live.html");

/// Addresses of a lab's server.
#[derive(Default)]
pub struct Addresses {
    /// For browsers, and for Prometheus.
    pub live: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    /// Whether addresses other than loopback are allowed.
    pub public: bool,
    /// Whether processes are polled periodically, even without requests.
    pub polls: bool,
}

impl Addresses {
    /// Returns what is wrong with them.
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

/// What a listener serves.
#[derive(Copy, Clone, Debug, Default)]
struct Serves {
    page: bool,
    stats: bool,
    metrics: bool,
    /// Whether requests with another host name are rejected: a page of another site whose name resolves to this machine
    /// could read the answers (DNS rebinding).
    strict: bool,
}

enum Listener {
    Tcp(TcpListener, Serves),
    Unix(UnixListener),
}

impl Listener {
    fn fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener, _) => listener.as_raw_fd(),
            Listener::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

/// The server.
pub struct Server {
    board: Arc<Board>,
    /// Each with its own clients, so that the clients of one listener cannot evict those of another.
    listeners: Vec<(Listener, Clients)>,
    /// Nothing is accepted before.
    paused_until: Option<Instant>,
    history: VecDeque<Point>,
    pages: ProcessPages,
    /// Whether the last minute is recorded.
    remembers: bool,
    /// Whether it polls periodically, even without requests: the last numbers of a process are then known at the lab's
    /// end, even if it is killed.
    polls: bool,
    live: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Server {
    /// Listens at an address of [`socket`] and on TCP addresses.
    pub fn bind(board: Arc<Board>, place: &str, at: &Addresses) -> io::Result<Server> {
        let unix = socket::listen(place)?;
        unix.set_nonblocking(true)?;
        let mut listeners = vec![(Listener::Unix(unix), Clients::default())];
        let mut tcp = |address: SocketAddr, serves| -> io::Result<SocketAddr> {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{address}: {e}"));
            let listener = TcpListener::bind(address).map_err(named)?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            listeners.push((Listener::Tcp(listener, serves), Clients::default()));
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
            paused_until: None,
            history: VecDeque::new(),
            pages: ProcessPages::default(),
            remembers: live.is_some(),
            polls: at.polls,
            live,
            metrics,
        })
    }

    /// Returns the address of the page.
    pub fn live(&self) -> Option<SocketAddr> {
        self.live
    }

    /// Returns the address of the metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Serves in a thread of its own until the process ends.
    pub fn start(mut self) -> io::Result<()> {
        std::thread::Builder::new().name("stats".into()).spawn(move || self.run()).map(|_| ())
    }

    fn run(&mut self) {
        let mut tick = Instant::now();
        loop {
            self.turn((self.polls || self.remembers).then_some(tick));
            if (self.polls || self.remembers) && Instant::now() >= tick {
                self.remember();
                tick = Instant::now() + TICK;
            }
        }
    }

    /// Waits for a client or until a time, and does what can be done without blocking.
    fn turn(&mut self, until: Option<Instant>) {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| *until > now);
        let deadlines = self.listeners.iter().filter_map(|(_, clients)| clients.deadline());
        let until = deadlines.chain(until).chain(self.paused_until).min();
        let mut polled = Vec::new();
        for (listener, clients) in &self.listeners {
            let events = if self.paused_until.is_some() { 0 } else { libc::POLLIN };
            polled.push(libc::pollfd { fd: listener.fd(), events, revents: 0 });
            polled.extend(clients.polled());
        }
        // Rounded up: a wait of 0 would spin until the time has come.
        let timeout = until.map_or(-1, |until| {
            let left = until.saturating_duration_since(now) + Duration::from_micros(999);
            left.as_millis().try_into().unwrap_or(i32::MAX)
        });
        // SAFETY: an array of valid pollfds with its length.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        let mut listeners = std::mem::take(&mut self.listeners);
        let mut polled = polled.into_iter().map(|polled| polled.revents != 0);
        for (listener, clients) in &mut listeners {
            let comes = polled.next().unwrap_or_default();
            let serves = match listener {
                Listener::Tcp(_, serves) => *serves,
                Listener::Unix(_) => Serves { stats: true, metrics: true, ..Serves::default() },
            };
            clients.proceed(&mut polled, |request| self.reply(request, serves));
            if comes {
                self.accept(listener, clients);
            }
        }
        self.listeners = listeners;
    }

    /// Accepts waiting clients of a listener.
    fn accept(&mut self, listener: &Listener, clients: &mut Clients) {
        let accepted = match listener {
            Listener::Tcp(listener, _) => listener.accept().map(|(stream, _)| clients.add(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| {
                if is_own(&stream) {
                    clients.add(stream);
                }
            }),
        };
        // Out of descriptors, the listener stays readable: evict the client that has waited longest.
        if accepted.is_err_and(|e| matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))) {
            clients.evict();
            self.paused_until = Some(Instant::now() + PAUSE);
        }
    }

    fn remember(&mut self) {
        let Some(stats) = self.snapshot() else { return };
        if !self.remembers {
            return;
        }
        if self.history.len() == POINTS {
            self.history.pop_front();
        }
        self.history.push_back(stats.point());
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

    /// Returns a snapshot of the lab, with the numbers of its processes.
    fn snapshot(&mut self) -> Option<Stats> {
        let snapshot = self.board.ask(ANSWER)?;
        let mut stats = snapshot.stats.clone();
        (stats.counted, stats.ended) =
            self.pages.update(&mut stats.processes, &snapshot.shown, &snapshot.departed, stats.hosts);
        Some(stats)
    }

    fn stats(&mut self) -> Option<Stats> {
        let history = self.history.iter().cloned().collect();
        Some(Stats { history, ..self.snapshot()? })
    }
}

/// Whether a request names the machine in a way that no other site can use: by an address, or as localhost.
fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
