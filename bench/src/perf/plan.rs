//! What a run is to do, checked.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use irnic_ports::impair::Impairments;
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

/// A checked command line.
#[derive(Clone, Debug)]
pub struct Plan {
    pub test: Test,
    pub place: Place,
    pub tcp_port: u16,
    pub port: PortKind,
    pub bind: Option<IpAddr>,
    /// Message sizes in bytes, one run each.
    pub sizes: Vec<u32>,
    /// Messages of a queue pair, or what ends the run instead.
    pub iters: u64,
    pub duration: Option<Duration>,
    /// `None`: the largest that the port carries.
    pub mtu: Option<Mtu>,
    pub qps: usize,
    pub tx_depth: u32,
    pub rx_depth: u32,
    /// `None`: 100, or half of the queue if that is less.
    pub cq_mod: Option<u32>,
    pub inline: u32,
    pub post_list: u32,
    pub outs: u8,
    pub qp_timeout: u8,
    pub atomic: Atomic,
    pub bidirectional: bool,
    pub verify: bool,
    pub seed: u64,
    pub transport: TransportConfig,
    pub transport_text: String,
    pub impair: Impairments,
    pub impair_text: String,
    /// The link's rate, bit/s.
    pub rate: Option<u64>,
    /// What a queue pair may send, bit/s of payload.
    pub rate_limit: Option<u64>,
    pub pcap: Option<PathBuf>,
    pub gbits: bool,
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
        (both || side == 0, both || side == 1)
    }

    /// Whether frames pass through a link with a rate, an impairment or a capture, which must see real ICRCs.
    pub fn tapped(&self) -> bool {
        self.rate.is_some() || !self.impair.is_empty() || self.pcap.is_some()
    }

    /// Whether frames from UDP bear the time at which the kernel took them: queues before a line that trims are short, and
    /// frames that lay in the socket while this process was late would overrun them at once.
    pub fn kernel_stamps(&self) -> bool {
        self.impair.rx.trim.is_some()
    }
}
