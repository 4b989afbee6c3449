//! The parameters of a run, validated.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use irnic_ports::impair::{Impairments, Percent};
use irnic_transports::config::TransportConfig;
use irnic_transports::wire::Mtu;

/// Which benchmark.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Bandwidth of SEND
    SendBw,
    /// Latency of SEND, there and back, halved
    SendLat,
    /// Bandwidth of RDMA WRITE
    WriteBw,
    /// Latency of RDMA WRITE, there and back, halved
    WriteLat,
    /// Bandwidth of RDMA READ
    ReadBw,
    /// Latency of RDMA READ
    ReadLat,
    /// Rate of atomics
    AtomicBw,
    /// Latency of atomics
    AtomicLat,
}

/// The operation that moves data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Send,
    Write,
    Read,
    Atomic,
}

impl Test {
    pub fn verb(self) -> Verb {
        match self {
            Test::SendBw | Test::SendLat => Verb::Send,
            Test::WriteBw | Test::WriteLat => Verb::Write,
            Test::ReadBw | Test::ReadLat => Verb::Read,
            Test::AtomicBw | Test::AtomicLat => Verb::Atomic,
        }
    }

    pub fn is_latency(self) -> bool {
        matches!(self, Test::SendLat | Test::WriteLat | Test::ReadLat | Test::AtomicLat)
    }

    /// As typed: `write-bw`.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// perftest's title of the test.
    pub fn title(self, atomic: Atomic) -> String {
        let what = match self.verb() {
            Verb::Send => "Send",
            Verb::Write => "RDMA_Write",
            Verb::Read => "RDMA_Read",
            Verb::Atomic if atomic == Atomic::CompareSwap => "Atomic CMP_AND_SWAP",
            Verb::Atomic => "Atomic FETCH_AND_ADD",
        };
        format!("{what} {}", if self.is_latency() { "Latency" } else { "BW" })
    }
}

/// Which atomic.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Atomic {
    /// Compare and swap
    #[value(name = "CMP_AND_SWAP")]
    CompareSwap,
    /// Fetch and add
    #[value(name = "FETCH_AND_ADD")]
    FetchAdd,
}

/// The carrier of packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    Mem,
    Udp,
    Shm,
}

impl PortKind {
    pub const ALL: [PortKind; 3] = [PortKind::Mem, PortKind::Udp, PortKind::Shm];

    pub fn name(self) -> &'static str {
        match self {
            PortKind::Mem => "mem",
            PortKind::Udp => "udp",
            PortKind::Shm => "shm",
        }
    }
}

/// Location of the two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both in this process.
    Here,
    /// This is the server; the client connects to it.
    Server,
    /// This is the client of the server on this host.
    Client(String),
}

/// The condition that ends a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many messages of each queue pair.
    Messages(u64),
    /// Time; the margins at both ends are not measured.
    Time { duration: Duration, margin: Duration },
    /// Ctrl-C.
    Endless,
}

impl Length {
    /// Number of messages of each queue pair; `None`: time ends the run.
    pub fn messages(self) -> Option<u64> {
        if let Length::Messages(n) = self { Some(n) } else { None }
    }

    /// Duration, if time ends the run.
    pub fn duration(self) -> Option<Duration> {
        if let Length::Time { duration, .. } = self { Some(duration) } else { None }
    }

    /// The measured part of a run: start and end after the start of the run, ns.
    pub fn window(self) -> (u64, u64) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Length::Time { duration, margin } => (ns(margin), ns(duration.saturating_sub(margin))),
            Length::Messages(_) | Length::Endless => (0, u64::MAX),
        }
    }
}

/// One run, validated: a test with one transport, network and message size.
#[derive(Clone, Debug)]
pub struct Plan {
    pub test: Test,
    pub place: Place,
    pub tcp_port: u16,
    /// Local address of the TCP connection.
    pub source: Option<IpAddr>,
    pub port: PortKind,
    pub bind: Option<IpAddr>,
    /// Whether addresses are IPv6 where nothing else determines that.
    pub ipv6: bool,
    /// Message size, bytes.
    pub size: u32,
    pub length: Length,
    /// Path MTU. `None`: the largest that the port supports.
    pub mtu: Option<Mtu>,
    pub qps: usize,
    pub tx_depth: u32,
    pub rx_depth: u32,
    /// Interval of signaled messages. `None`: 100, or half of the queue if that is less.
    pub cq_mod: Option<u32>,
    pub inline: u32,
    pub post_list: u32,
    pub recv_post_list: u32,
    pub outs: u8,
    pub qp_timeout: u8,
    pub retry_count: u8,
    /// DSCP and ECN of packets, and their hop limit.
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub atomic: Atomic,
    pub bidirectional: bool,
    /// Whether the server is the initiator, not the client.
    pub reversed: bool,
    /// Whether the queue pairs of an end share a receive queue, and whether they have separate memory regions.
    pub srq: bool,
    pub mr_per_qp: bool,
    /// Whether to sleep until completion events.
    pub events: bool,
    /// Whether to connect by rdma_cm.
    pub rdma_cm: bool,
    /// Warm-up messages of each queue pair.
    pub warm_up: u64,
    /// Time between two messages of a latency test, ns.
    pub gap: u64,
    /// Whether to keep every sample of a latency test.
    pub samples: bool,
    /// Whether to compute the peak.
    pub peak: bool,
    pub verify: bool,
    pub seed: u64,
    pub transport: TransportConfig,
    pub transport_text: String,
    /// Name of the transport within the command: no longer than needed to distinguish it.
    pub label: String,
    /// Packets lost in each direction by the client, which is part of `impair` there.
    pub loss: Option<Percent>,
    pub impair: Impairments,
    pub impair_text: String,
    /// Maximum step of the clock, ns: time stops while the process does not run.
    pub longest_step: u64,
    /// Rate of the link, bit/s.
    pub rate: Option<u64>,
    /// Rate limit of a queue pair, bit/s of payload.
    pub rate_limit: Option<u64>,
    /// Messages that a queue pair with a limit may send at once after idling.
    pub burst: Option<u32>,
    pub pcap: Option<PathBuf>,
}

/// Size of a verified run's buffers in one queue pair, at one end, bytes: as tx-depth requires, but not more.
const VERIFIED_BYTES: u64 = 16 << 20;
/// Size of a verified run's buffers in all queue pairs together, at one end, bytes.
const VERIFIED_BYTES_IN_ALL: u64 = 256 << 20;

impl Plan {
    /// Maximum number of outstanding messages of a queue pair. If every message has its own place, it is less for long
    /// ones.
    pub fn depth(&self, size: u32) -> u32 {
        if self.test.is_latency() {
            return 1;
        }
        if !self.verify || self.test.verb() == Verb::Atomic {
            return self.tx_depth;
        }
        let bytes = VERIFIED_BYTES.min(VERIFIED_BYTES_IN_ALL / self.qps as u64);
        let places = bytes / u64::from(size.max(1));
        self.tx_depth.min(u32::try_from(places).unwrap_or(u32::MAX)).max(1)
    }

    /// Interval of signaled messages.
    pub fn cq_mod(&self, size: u32) -> u32 {
        let depth = self.depth(size);
        self.cq_mod.map_or(100.min(depth.div_ceil(2)), |n| n.min(depth))
    }

    /// Whether the end of this side (0 client, 1 server) is an initiator, and whether it is a target.
    pub fn roles(&self, side: usize) -> (bool, bool) {
        let both = self.bidirectional || self.test.is_latency();
        let initiates = (side == 0) != self.reversed;
        (both || initiates, both || !initiates)
    }

    /// Whether frames pass through a link with a rate, an impairment or a capture, which requires real ICRCs.
    pub fn tapped(&self) -> bool {
        self.rate.is_some() || !self.impair.is_empty() || self.pcap.is_some()
    }

    /// Whether frames from UDP carry the kernel's receive timestamps: queues before a line that trims, or drops by
    /// priority, are short, and frames that accumulated in the socket while this process was late would overflow them
    /// at once.
    pub fn kernel_stamps(&self) -> bool {
        self.impair.rx.trim.is_some() || self.impair.rx.prio.is_some()
    }
}
