//! The protocol of client and server over TCP: a greeting with their options, then for each run queue pair numbers,
//! PSNs, addresses and keys, and the outcome. Each message is a line of JSON.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use irnic_transports::config::WireFormat;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::endpoint::EndInfo;
use crate::error::PerfError;
use crate::figures::Line;
use crate::plan::{Length, Plan};
use crate::report::CounterMap;
use crate::sweep::Sweep;

/// First line of either side: protocol and version.
const BANNER: &str = "irnic-perf 2";
/// Maximum number of connections of which one may be the client's.
const MOST_CALLERS: usize = 64;
/// Interval of checks for Ctrl-C while waiting.
const TICK: Duration = Duration::from_millis(50);
/// Time for a peer to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for a client to retry connecting to a server that may be starting.
const CONNECT: Duration = Duration::from_secs(2);
/// Time after a local failure to wait for the peer's explanation.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Maximum length of a line, bytes: 16,384 queue pairs need half of it.
const MAX_LINE: usize = 2 << 20;

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    Hello(Hello),
    /// Queue pairs and memory of the next run, and the largest usable path MTU in bytes at this end.
    Ends(EndInfo, u16),
    /// This end's queue pairs are connected to the peer's.
    Ready,
    /// Everything this end wanted is done: the number of messages.
    Finished(u64),
    /// All messages of the peer have arrived as well: the measurements.
    Report(Report),
    /// The run has ended by Ctrl-C.
    Interrupted,
    /// The run has failed, with the reason.
    Failed(String),
}

/// The identity and options of an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Options that must agree: names and values.
    pub options: Vec<(String, String)>,
    /// `roce`, `irn` or `auto`.
    pub wire: String,
    pub ip: IpAddr,
    pub udp_port: u16,
    /// The ring created by the server.
    pub shm: Option<PathBuf>,
    /// Largest path MTU in bytes, or the one asked for.
    pub mtu: u16,
    /// Whether ICRCs must be computed although packets go through memory.
    pub tapped: bool,
}

/// The measurements of one end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub line: Line,
    /// Time from its first post to its last completion, s.
    pub seconds: f64,
    pub counters: CounterMap,
}

impl Hello {
    /// The options of a command that both ends must share.
    pub fn options(sweep: &Sweep) -> Vec<(String, String)> {
        let plan = sweep.first();
        let list = |all: Vec<String>| all.join(",");
        let length = match plan.length {
            Length::Messages(n) => n.to_string(),
            Length::Time { duration, margin } if margin.is_zero() => format!("{} s", duration.as_secs_f64()),
            Length::Time { duration, margin } => {
                format!("{} s with margins of {} s", duration.as_secs_f64(), margin.as_secs_f64())
            }
            Length::Endless => "endless".to_owned(),
        };
        [
            ("the test", plan.test.name()),
            ("--size", list(sweep.sizes().iter().map(u32::to_string).collect())),
            ("the number of --transport", sweep.transports().len().to_string()),
            ("--loss", list(sweep.losses().iter().map(|loss| loss.map_or("none".into(), |l| l.to_string())).collect())),
            ("--repeat", sweep.repeat.to_string()),
            ("--iters or --duration", length),
            ("--qp", plan.qps.to_string()),
            ("--tx-depth", plan.tx_depth.to_string()),
            ("--rx-depth", plan.rx_depth.to_string()),
            ("--outs", plan.outs.to_string()),
            ("--atomic_type", format!("{:?}", plan.atomic)),
            ("--bidirectional", plan.bidirectional.to_string()),
            ("--reversed", plan.reversed.to_string()),
            ("--rdma_cm", plan.rdma_cm.to_string()),
            ("--use-srq", plan.srq.to_string()),
            ("--mr_per_qp", plan.mr_per_qp.to_string()),
            ("--perform_warm_up", (plan.warm_up > 0).to_string()),
            ("--port", plan.port.name().to_owned()),
            ("--seed", plan.seed.to_string()),
            ("verification", plan.verify.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// The name of a wire format.
    pub fn wire(format: WireFormat) -> String {
        match format {
            WireFormat::Roce => "roce",
            WireFormat::Irn => "irn",
            WireFormat::Auto => "auto",
        }
        .to_owned()
    }

    /// Checks that the peer has the same options.
    pub fn agrees(&self, peer: &Hello) -> Result<(), PerfError> {
        let differs = |name: &str, here: &str, there: &str| {
            Err(PerfError::Usage(format!(
                "{name} is {here} here and {there} at the peer: start both with the same options"
            )))
        };
        for ((name, here), (_, there)) in self.options.iter().zip(&peer.options) {
            if here != there {
                return differs(name, here, there);
            }
        }
        // `auto` is negotiated.
        if self.wire != peer.wire && self.wire != "auto" && peer.wire != "auto" {
            return differs("--transport", &self.wire, &peer.wire);
        }
        Ok(())
    }
}

/// A connection to the peer.
pub struct Control {
    stream: TcpStream,
    received: Vec<u8>,
}

fn connect_from(source: Option<IpAddr>, to: &SocketAddr) -> std::io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect_timeout(to, PATIENCE) };
    let socket = Socket::new(Domain::for_address(*to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&(*to).into(), PATIENCE)?;
    Ok(socket.into())
}

/// Returns whether a first line is that of irnic perf, of whatever version.
fn is_perf(banner: &[u8]) -> bool {
    banner.starts_with(b"irnic-perf ")
}

/// Checks the peer's first line.
fn check(banner: &[u8]) -> Result<(), PerfError> {
    if banner == BANNER.as_bytes() {
        return Ok(());
    }
    let banner: String = String::from_utf8_lossy(banner).chars().take(40).collect();
    Err(PerfError::Failed(format!(
        "the peer says {banner:?}, not {BANNER:?}: both ends must be irnic perf of the same version"
    )))
}

fn peer_closed() -> PerfError {
    PerfError::failed("the peer went away")
}

impl Control {
    /// Waits for a client.
    pub fn accept(plan: &Plan, interrupted: &AtomicBool) -> Result<Control, PerfError> {
        let port = plan.tcp_port;
        let listener = match plan.source {
            Some(source) => TcpListener::bind((source, port)),
            None => TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))),
        };
        let listener = listener.map_err(|e| {
            let at = plan.source.map(|source| format!("{source}, ")).unwrap_or_default();
            PerfError::Failed(format!("cannot listen on {at}TCP port {port}: {e}; -p chooses another, at both ends"))
        })?;
        listener.set_nonblocking(true)?;
        // Whoever connects may be something else, such as a port scan: the first that greets like a client is the one.
        let mut callers = VecDeque::new();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if callers.len() == MOST_CALLERS {
                        callers.pop_front();
                    }
                    callers.extend(Control::greet(stream).ok());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(TICK / 5),
                Err(e) => return Err(e.into()),
            }
            for _ in 0..callers.len() {
                let Some(mut caller) = callers.pop_front() else { break };
                match caller.arrived() {
                    Ok(Some(banner)) if is_perf(&banner) => return check(&banner).map(|()| caller),
                    Ok(None) => callers.push_back(caller),
                    _ => {}
                }
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(PerfError::Interrupted);
            }
        }
    }

    /// Connects to the server on `host`, which may be just about to start.
    pub fn connect(plan: &Plan, host: &str, interrupted: &AtomicBool) -> Result<Control, PerfError> {
        let port = plan.tcp_port;
        let fail = |e: std::io::Error| {
            PerfError::Failed(format!(
                "cannot connect to {host}, TCP port {port}: {e}; start irnic perf with the same options and --server there"
            ))
        };
        let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(fail)?.collect();
        let suits = |address: &&SocketAddr| {
            (!plan.ipv6 || address.is_ipv6()) && plan.source.is_none_or(|source| source.is_ipv6() == address.is_ipv6())
        };
        let addresses: Vec<_> = addresses.iter().filter(suits).collect();
        if addresses.is_empty() {
            return Err(PerfError::Usage(format!(
                "{host} has no address of the kind that --ipv6 or --source_ip asks for"
            )));
        }
        let start = Instant::now();
        loop {
            let mut error = ErrorKind::NotFound.into();
            for address in &addresses {
                match connect_from(plan.source, address) {
                    Ok(stream) => return Control::new(stream, interrupted),
                    Err(e) => error = e,
                }
            }
            if error.kind() != ErrorKind::ConnectionRefused || start.elapsed() > CONNECT {
                return Err(fail(error));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(PerfError::Interrupted);
            }
            std::thread::sleep(TICK);
        }
    }

    fn new(stream: TcpStream, interrupted: &AtomicBool) -> Result<Control, PerfError> {
        let mut control = Control::greet(stream)?;
        check(&control.line(interrupted)?)?;
        Ok(control)
    }

    fn greet(stream: TcpStream) -> Result<Control, PerfError> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut control = Control { stream, received: Vec::new() };
        control.stream.write_all(format!("{BANNER}\n").as_bytes()).map_err(|_| peer_closed())?;
        Ok(control)
    }

    /// The local address of the connection.
    pub fn local_ip(&self) -> Result<IpAddr, PerfError> {
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> Result<(), PerfError> {
        let mut text = serde_json::to_vec(message).map_err(PerfError::failed)?;
        text.push(b'\n');
        self.stream.write_all(&text).map_err(|_| self.reason(peer_closed()))
    }

    /// The cause of a failure: the peer's explanation, if it arrives within [`LAST_WORD`], since the failure `here` may
    /// be a consequence of the peer's, otherwise `here`.
    pub fn reason(&mut self, here: PerfError) -> PerfError {
        let start = Instant::now();
        loop {
            while let Some(line) = self.take_line() {
                if let Err(said) = Control::parse(&line) {
                    return said;
                }
            }
            if start.elapsed() >= LAST_WORD || self.read().is_err() {
                return here;
            }
        }
    }

    /// Takes a complete line.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|&b| b == b'\n')?;
        let mut line: Vec<u8> = self.received.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Reads available data; false if there was none.
    fn read(&mut self) -> Result<bool, PerfError> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(peer_closed()),
            Ok(n) if self.received.len() + n <= MAX_LINE => {
                self.received.extend_from_slice(&bytes[..n]);
                Ok(true)
            }
            Ok(_) => Err(PerfError::failed("the peer's message is too long")),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(_) => Err(peer_closed()),
        }
    }

    fn line(&mut self, interrupted: &AtomicBool) -> Result<Vec<u8>, PerfError> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.take_line() {
                return Ok(line);
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(PerfError::Interrupted);
            }
            if !self.read()? && start.elapsed() > PATIENCE {
                return Err(PerfError::failed("the peer does not answer over TCP"));
            }
        }
    }

    fn parse(line: &[u8]) -> Result<Message, PerfError> {
        match serde_json::from_slice(line) {
            Ok(Message::Interrupted) => Err(PerfError::PeerInterrupted),
            Ok(Message::Failed(why)) => Err(PerfError::Failed(format!("the peer gave up: {why}"))),
            Ok(message) => Ok(message),
            Err(e) => Err(PerfError::Failed(format!("the peer's message makes no sense: {e}"))),
        }
    }

    /// Waits for a message. A failure of the peer is returned as an error.
    pub fn receive(&mut self, interrupted: &AtomicBool) -> Result<Message, PerfError> {
        let line = self.line(interrupted)?;
        Control::parse(&line)
    }

    /// A message that has arrived, if any.
    pub fn poll(&mut self) -> Result<Option<Message>, PerfError> {
        self.arrived()?.map(|line| Control::parse(&line)).transpose()
    }

    /// A line that has arrived, if any.
    fn arrived(&mut self) -> Result<Option<Vec<u8>>, PerfError> {
        self.stream.set_nonblocking(true)?;
        let read = self.read();
        self.stream.set_nonblocking(false)?;
        match self.take_line() {
            Some(line) => Ok(Some(line)),
            None => read.map(|_| None),
        }
    }
}

/// The error for a message out of sequence.
pub fn unexpected() -> PerfError {
    PerfError::failed("the peer's message came out of turn: both ends must be irnic perf of the same version")
}
