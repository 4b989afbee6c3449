//! What a run is to do, checked.

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

/// What moves data.
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

/// What carries packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    Mem,
    Udp,
    Shm,
}

impl PortKind {
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Mem => "mem",
            PortKind::Udp => "udp",
            PortKind::Shm => "shm",
        }
    }
}

/// Where the two ends are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both in this process.
    Here,
    /// This is the server; the client comes to it.
    Server,
    /// This is the client of the server on this host.
    Client(String),
}

/// What ends a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many messages of each queue pair.
    Messages(u64),
    /// Time, of which the margins at both ends are not measured.
    Time { duration: Duration, margin: Duration },
    /// Ctrl-C.
    Endless,
}

impl Length {
    /// Messages of each queue pair; `None`: time ends the run.
    pub fn messages(self) -> Option<u64> {
        if let Length::Messages(n) = self { Some(n) } else { None }
    }

    /// How long it takes, if time ends it.
    pub fn duration(self) -> Option<Duration> {
        if let Length::Time { duration, .. } = self { Some(duration) } else { None }
    }

    /// What of a run is measured: from so long after its start until so long after, in ns.
    pub fn window(self) -> (u64, u64) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Length::Time { duration, margin } => (ns(margin), ns(duration.saturating_sub(margin))),
            Length::Messages(_) | Length::Endless => (0, u64::MAX),
        }
    }
}

/// One run, checked: a test with one transport, network and message size.
#[derive(Clone, Debug)]
pub struct Plan {
    pub test: Test,
    pub place: Place,
    pub tcp_port: u16,
    /// This end's address of the TCP connection.
    pub source: Option<IpAddr>,
    pub port: PortKind,
    pub bind: Option<IpAddr>,
    /// Addresses are IPv6 where nothing else says which.
    pub ipv6: bool,
    /// Message size in bytes.
    pub size: u32,
    pub length: Length,
    /// `None`: the largest that the port carries.
    pub mtu: Option<Mtu>,
    pub qps: usize,
    pub tx_depth: u32,
    pub rx_depth: u32,
    /// `None`: 100, or half of the queue if that is less.
    pub cq_mod: Option<u32>,
    pub inline: u32,
    pub post_list: u32,
    pub recv_post_list: u32,
    pub outs: u8,
    pub qp_timeout: u8,
    pub retry_count: u8,
    /// DSCP and ECN of packets, and how far they go.
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub atomic: Atomic,
    pub bidirectional: bool,
    /// The server asks, not the client.
    pub reversed: bool,
    /// Queue pairs of an end share their receives, and have memory regions of their own.
    pub srq: bool,
    pub mr_per_qp: bool,
    /// Sleep until completions raise events.
    pub events: bool,
    /// Connect by rdma_cm.
    pub rdma_cm: bool,
    /// Messages of each queue pair before those that are measured.
    pub warm_up: u64,
    /// Between two messages of a latency test, in ns.
    pub gap: u64,
    /// Keep every sample of a latency test.
    pub samples: bool,
    /// Look for the best stretch.
    pub peak: bool,
    pub verify: bool,
    pub seed: u64,
    pub transport: TransportConfig,
    pub transport_text: String,
    /// The transport among others of the same command: no longer than it takes to tell them apart.
    pub label: String,
    /// Packets lost each way by the client, which is part of `impair` there.
    pub loss: Option<Percent>,
    pub impair: Impairments,
    pub impair_text: String,
    /// Time stands still while the process does not run: a step of the clock lasts at most so long, in ns.
    pub longest_step: u64,
    /// The link's rate, bit/s.
    pub rate: Option<u64>,
    /// What a queue pair may send, bit/s of payload.
    pub rate_limit: Option<u64>,
    /// Messages that a queue pair with a limit may send at once after it was idle.
    pub burst: Option<u32>,
    pub pcap: Option<PathBuf>,
}

/// Bytes of a verified run's buffers in one queue pair, at one end: what tx-depth asks for, but not more.
const VERIFIED_BYTES: u64 = 16 << 20;
/// Bytes of a verified run's buffers in all queue pairs together, at one end.
const VERIFIED_BYTES_IN_ALL: u64 = 256 << 20;

impl Plan {
    /// Messages that may be outstanding on a queue pair. Where every message has a place of its own, long ones are
    /// fewer.
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

    /// A completion every so many messages.
    pub fn cq_mod(&self, size: u32) -> u32 {
        let depth = self.depth(size);
        self.cq_mod.map_or(100.min(depth.div_ceil(2)), |n| n.min(depth))
    }

    /// Whether the end of this side (0 client, 1 server) asks for something, and whether something is asked of it.
    pub fn roles(&self, side: usize) -> (bool, bool) {
        let both = self.bidirectional || self.test.is_latency();
        let asks = (side == 0) != self.reversed;
        (both || asks, both || !asks)
    }

    /// Whether frames pass through a link with a rate, an impairment or a capture, which must see real ICRCs.
    pub fn tapped(&self) -> bool {
        self.rate.is_some() || !self.impair.is_empty() || self.pcap.is_some()
    }

    /// Whether frames from UDP bear the time at which the kernel took them: queues before a line that trims, or drops
    /// by priority, are short, and frames that lay in the socket while this process was late would overrun them at
    /// once.
    pub fn kernel_stamps(&self) -> bool {
        self.impair.rx.trim.is_some() || self.impair.rx.prio.is_some()
    }
}
