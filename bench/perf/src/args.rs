//! The command line of `irnic perf`: perftest's flags where it has one. [`checked`](super::checked) parses their
//! values, [`refused`](super::refused) has those of perftest's that make no sense here.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use irnic_report::output;
use irnic_report::words::words;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::MAX_RD_ATOMIC;

use crate::plan::{Atomic, PortKind, Test};
use crate::refused::Refused;

const AFTER_HELP: &str = "\
Verification: every message carries bytes derived from --seed, queue pair and message number.
  send     the receiver checks each message when its receive completes
  write    the target checks each message before its slot is written again: after every half of the slots, the initiator
           sends an empty SEND on the same queue pair, which RC delivers after the preceding writes, and waits for the
           target's answer before it writes to them again. write-lat: a message has arrived when all of it is there
  read     the requester checks what it read; source and destination never hold the same message twice in a row
  atomic   the requester checks every value returned, and reads the final one
Each outstanding message has its own slot, 16 MiB per queue pair in total; long messages use fewer slots than --tx-depth.
With --no-verify all messages of a queue pair share one buffer, as in perftest.

Lists of --transport, --loss and -s run in every combination, --repeat times each, and are printed in one table.

Units: MiB/sec is 2^20 bytes, Gb/sec 10^9 bits of payload per second; latency is in microseconds, half a round trip for send
and write. Exit status: 0 done, 1 failed (the reason is on stderr), 2 bad arguments, 130 interrupted (partial results).

Examples:
  irnic perf                                        compare go-back-N with IRN over a lossy network
  irnic perf write-bw -s 64K --impair 'loss 1%'     both NICs in this process
  irnic perf send-lat --server --port shm           one process …
  irnic perf send-lat localhost --port shm          … and the other
  irnic perf write-bw -D 10 -i 1                    one line per second
  irnic perf write-bw -D 1 --transport roce,irn --loss 0,0.1,1 -s 4K,64K --repeat 5 --html loss.html";

/// What `--output` prints alone.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Average bandwidth
    Bandwidth,
    /// Messages per second, in millions
    #[value(name = "message_rate")]
    MessageRate,
    /// Average latency
    Latency,
}

/// Units of a `--rate_limit` that has none.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum RateUnit {
    /// MiB/sec
    #[value(name = "M")]
    Mebibytes,
    /// Gb/sec
    #[value(name = "g")]
    Gigabits,
    /// Packets, which perftest cannot limit by hardware either
    #[value(name = "p", hide = true)]
    Packets,
}

/// Benchmark RDMA between two software NICs, every byte verified.
///
/// Without arguments, compare go-back-N with IRN at 0 %, 0.1 % and 1 % packet loss, in under a minute.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true, version = irnic_report::version::get())]
pub struct PerfArgs {
    /// Benchmark to run [default: write-bw, if any option requires one]
    #[arg(value_enum, hide_possible_values = false)]
    pub(super) test: Option<Test>,
    /// Server to connect to [default: run both NICs in this process]
    #[arg(requires = "test")]
    pub(super) host: Option<String>,

    /// Run as server: wait for one client
    #[arg(long, conflicts_with = "host", requires = "test")]
    pub(super) server: bool,
    /// TCP port for the connection between client and server
    #[arg(short = 'p', long = "tcp-port", value_name = "N", default_value_t = 18515, requires = "test")]
    pub(super) tcp_port: u16,
    /// Local address of the TCP connection
    #[arg(long = "source_ip", alias = "source-ip", value_name = "ADDR", requires = "test")]
    pub(super) source_ip: Option<IpAddr>,
    /// Packet carrier: mem, udp or shm [default: mem in one process, udp in two]
    #[arg(long, value_name = "KIND", requires = "test")]
    #[arg(value_parser = words(PortKind::ALL.map(PortKind::name)), hide_possible_values = true)]
    pub(super) port: Option<String>,
    /// Local address of the UDP socket [default: the TCP connection's; 127.0.0.1 in one process]
    #[arg(long, value_name = "ADDR", requires = "test")]
    pub(super) bind: Option<IpAddr>,
    /// Use this device, as listed by irnic devinfo: its address and, unless options override them, its port, MTU, rate,
    /// transport and impairments
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE", requires = "test", conflicts_with = "bind")]
    pub(super) ib_dev: Option<String>,
    /// Use the address at this index of the device's GID table [default: the first that fits]
    #[arg(short = 'x', long = "gid-index", value_name = "INDEX", requires = "test", conflicts_with = "bind")]
    pub(super) gid_index: Option<usize>,
    /// Use IPv6 addresses
    #[arg(long, requires = "test", conflicts_with_all = ["gid_index", "bind"])]
    pub(super) ipv6: bool,
    /// Connect queue pairs with rdma_cm
    #[arg(short = 'R', long = "rdma_cm", alias = "rdma-cm", requires = "test")]
    pub(super) rdma_cm: bool,
    /// Type of service of queue pairs connected with rdma_cm, 0 to 255
    #[arg(short = 'T', long, value_name = "N", requires = "rdma_cm", conflicts_with = "tclass")]
    pub(super) tos: Option<u8>,
    /// Traffic class of packets: DSCP * 4 + ECN, 0 to 255; the upper three bits are the priority: 226 is priority 7
    /// [default: 2, ECN-capable]
    #[arg(long, value_name = "N", requires = "test")]
    pub(super) tclass: Option<u8>,
    /// Hop limit (TTL) of packets, 0 to 255
    #[arg(
        short = 'L',
        long = "hop_limit",
        alias = "hop-limit",
        value_name = "N",
        default_value_t = 64,
        requires = "test"
    )]
    pub(super) hop_limit: u8,

    /// Message sizes in bytes, such as 4K,64K; K and M are 2^10 and 2^20 [default: 65536 for bandwidth, 2 for latency]
    #[arg(short, long, value_name = "BYTES[,…]", value_delimiter = ',', conflicts_with = "all", requires = "test")]
    pub(super) size: Vec<String>,
    /// Run all sizes from 2 B to 8 MiB, in powers of two
    #[arg(short, long, requires = "test")]
    pub(super) all: bool,
    /// Messages per queue pair, at least 5 [default: 5000 for write-bw, 1000 for others]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", requires = "test")]
    pub(super) iters: Option<u64>,
    /// Run for this many seconds instead of --iters messages
    #[arg(short = 'D', long, value_name = "SECONDS", requires = "test")]
    pub(super) duration: Option<f64>,
    /// Seconds at the start and at the end of --duration to exclude from the measurement (perftest: a quarter of it)
    #[arg(short = 'f', long, value_name = "SECONDS", default_value_t = 0.0, requires = "duration")]
    pub(super) margin: f64,
    /// Run until Ctrl-C, and print results every --duration seconds [default: 5] (bandwidth)
    #[arg(long = "run_infinitely", alias = "run-infinitely", requires = "test", conflicts_with_all = ["iters", "margin"])]
    pub(super) run_infinitely: bool,
    /// Before measuring, send as many messages as may be outstanding (bandwidth of read, write and atomic)
    #[arg(long = "perform_warm_up", alias = "perform-warm-up", requires = "test")]
    pub(super) warm_up: bool,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that fits]
    #[arg(short = 'm', long, value_name = "BYTES", requires = "test")]
    pub(super) mtu: Option<usize>,
    /// Number of queue pairs, 1 to 16384 (bandwidth)
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "test")]
    pub(super) qp: usize,
    /// Outstanding messages per queue pair, 1 to 15000 (bandwidth)
    #[arg(short, long, value_name = "N", default_value_t = 128, requires = "test")]
    pub(super) tx_depth: u32,
    /// Posted receives per queue pair, 1 to 16384 (send)
    #[arg(short, long, value_name = "N", default_value_t = 512, requires = "test")]
    pub(super) rx_depth: u32,
    /// Signal every Nth message (bandwidth) [default: 100, or half of tx-depth if less]
    #[arg(short = 'Q', long, value_name = "N", requires = "test")]
    pub(super) cq_mod: Option<u32>,
    /// Send messages up to this size inline [default: 0 for bandwidth; 220 for write-lat, 236 for send-lat]
    #[arg(short = 'I', long = "inline_size", alias = "inline-size", value_name = "BYTES", requires = "test")]
    pub(super) inline_size: Option<u32>,
    /// Number of messages to post at a time (bandwidth)
    #[arg(
        short = 'l',
        long = "post_list",
        alias = "post-list",
        value_name = "N",
        default_value_t = 1,
        requires = "test"
    )]
    pub(super) post_list: u32,
    /// Number of receives to post at a time (bandwidth of send)
    #[arg(long = "recv_post_list", alias = "recv-post-list", value_name = "N", default_value_t = 1, requires = "test")]
    pub(super) recv_post_list: u32,
    /// Outstanding READs or atomics per queue pair, 1 to 128
    #[arg(short, long, value_name = "N", default_value_t = MAX_RD_ATOMIC, requires = "test")]
    pub(super) outs: u8,
    /// Local ACK timeout: 4.096 us * 2^N, N from 0 to 31
    #[arg(short = 'u', long = "qp-timeout", value_name = "N", default_value_t = 14, requires = "test")]
    pub(super) qp_timeout: u8,
    /// Retries after a timeout, for queue pairs connected with rdma_cm, 0 to 7
    #[arg(long = "retry_count", alias = "retry-count", value_name = "N", default_value_t = 7, requires = "rdma_cm")]
    pub(super) retry_count: u8,
    /// Atomic operation
    #[arg(
        short = 'A',
        long = "atomic_type",
        alias = "atomic-type",
        value_enum,
        default_value = "FETCH_AND_ADD",
        requires = "test"
    )]
    pub(super) atomic_type: Atomic,
    /// Send from both ends, and report the sum (bandwidth)
    #[arg(short, long, requires = "test")]
    pub(super) bidirectional: bool,
    /// Reverse the roles: the server is the requester, the client the responder (bandwidth)
    #[arg(long, requires = "test", conflicts_with = "bidirectional")]
    pub(super) reversed: bool,
    /// Share one receive queue, of --rx-depth, among the queue pairs of each end (send)
    #[arg(long = "use-srq", alias = "use_srq", requires = "test")]
    pub(super) use_srq: bool,
    /// Use one memory region per queue pair
    #[arg(long = "mr_per_qp", alias = "mr-per-qp", requires = "test")]
    pub(super) mr_per_qp: bool,
    /// Sleep until completion events instead of polling
    #[arg(short = 'e', long, requires = "test")]
    pub(super) events: bool,
    /// Interval between messages in microseconds (latency)
    #[arg(long = "latency_gap", alias = "latency-gap", value_name = "US", requires = "test")]
    pub(super) latency_gap: Option<f64>,
    /// Seconds to wait before destroying queue pairs and memory
    #[arg(long = "wait_destroy", alias = "wait-destroy", value_name = "SECONDS", requires = "test")]
    pub(super) wait_destroy: Option<f64>,
    /// No effect; accepted for compatibility with perftest
    #[arg(short = 'F', long = "CPU-freq", requires = "test")]
    pub(super) cpu_freq: bool,

    /// List of transports: roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp, each with parameters:
    /// roce,irn,cap=110,rto-min=1ms are two [default: irn]
    #[arg(long, value_name = "PRESET[,KEY=VALUE…][,…]", requires = "test")]
    #[arg(value_parser = words(TransportConfig::PRESETS), hide_possible_values = true)]
    pub(super) transport: Vec<String>,
    /// Percentages of packets to lose at random in each direction, such as 0,0.1,1. With two processes, give both the
    /// same list; the client drops the packets
    #[arg(long, value_name = "PERCENT[,…]", value_delimiter = ',', requires = "test")]
    pub(super) loss: Vec<String>,
    /// Repeat the whole list of runs this many times; the table shows median, minimum and maximum
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) repeat: u32,
    /// Impair the network, in tc netem syntax: 'loss 1% delay 50us', 'tx loss 1%; rx delay 1ms'; tx is what this end
    /// sends (in one process: the client); without tx and rx, both directions. Also an NDP switch: 'rx rate 1gbit trim
    /// 8 return', or a switch with strict priorities: 'rx rate 1gbit prio 5m'
    #[arg(long, value_name = "TEXT", requires = "test")]
    pub(super) impair: Option<String>,
    /// Link rate, such as 10G, which limits what this end sends (in one process: the client)
    #[arg(long, value_name = "RATE", requires = "test")]
    pub(super) rate: Option<String>,
    /// Maximum payload rate of each queue pair, such as 500M or 2.5G bit/s, or a number of --rate_units (bandwidth of
    /// send and write); the accuracy over each 10 ms is reported
    #[arg(long = "rate_limit", alias = "rate-limit", value_name = "RATE", requires = "test")]
    pub(super) rate_limit: Option<String>,
    /// Unit of a --rate_limit without one: M is MiB/sec, g is Gb/sec
    #[arg(long = "rate_units", alias = "rate-units", value_enum, default_value = "g", requires = "rate_limit")]
    pub(super) rate_units: RateUnit,
    /// Messages that a queue pair with a --rate_limit may send at once after being idle [default: 100 us of the rate,
    /// at most 16 KiB]
    #[arg(long = "burst_size", alias = "burst-size", value_name = "N", requires = "rate_limit")]
    pub(super) burst_size: Option<u32>,
    /// Record this end's packets (in one process: the client's) for Wireshark or irnic decode; - writes to standard
    /// output instead of the table
    #[arg(long, value_name = "FILE", requires = "test")]
    pub(super) pcap: Option<PathBuf>,
    /// Random seed of payload, keys, PSNs and impairments
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Do not verify received data
    #[arg(long, requires = "test")]
    pub(super) no_verify: bool,

    /// Report Gb/sec instead of MiB/sec
    #[arg(long = "report_gbits", alias = "report-gbits", requires = "test")]
    pub(super) report_gbits: bool,
    /// Report both directions of --bidirectional in addition to their sum
    #[arg(long = "report-both", alias = "report_both", requires = "bidirectional")]
    pub(super) report_both: bool,
    /// Print results at this interval in seconds, like iperf3
    #[arg(short = 'i', long, value_name = "SECONDS", requires = "test", conflicts_with = "run_infinitely")]
    pub(super) interval: Option<f64>,
    /// Report CPU utilization of the host, with --duration
    #[arg(long = "cpu_util", alias = "cpu-util", requires = "duration")]
    pub(super) cpu_util: bool,
    /// Print these counters of the client's NIC below each result, such as out_of_buffer,sent_acks
    #[arg(
        short = 'W',
        long = "report-counters",
        alias = "report_counters",
        value_name = "NAME[,…]",
        value_delimiter = ',',
        requires = "test"
    )]
    pub(super) report_counters: Vec<String>,
    /// Do not compute the peak bandwidth
    #[arg(short = 'N', long = "noPeak", requires = "test")]
    pub(super) no_peak: bool,
    /// Print every sample, sorted (latency)
    #[arg(short = 'H', long = "report-histogram", alias = "report_histogram", requires = "test")]
    pub(super) report_histogram: bool,
    /// Print every sample in the order of measurement (latency)
    #[arg(short = 'U', long = "report-unsorted", alias = "report_unsorted", requires = "test")]
    pub(super) report_unsorted: bool,
    /// Print only one number
    #[arg(long, value_enum, value_name = "WHAT", requires = "test")]
    pub(super) output: Option<Only>,
    /// Fail if the average bandwidth is below this, in the unit of the table
    #[arg(short = 'w', long = "limit_bw", alias = "limit-bw", value_name = "RATE", value_parser = least, requires = "test")]
    pub(super) limit_bw: Option<f64>,
    /// Fail if the message rate is below this, in millions per second
    #[arg(short = 'y', long = "limit_msgrate", alias = "limit-msgrate", value_name = "MPPS", value_parser = least, requires = "test")]
    pub(super) limit_msgrate: Option<f64>,
    /// Write results as JSON to perftest_out.json
    #[arg(long = "out_json", alias = "out-json")]
    pub(super) out_json: bool,
    /// Write results as JSON to this file; - writes to standard output instead of the table
    #[arg(long = "out_json_file", alias = "out-json-file", value_name = "FILE")]
    pub(super) out_json_file: Option<PathBuf>,
    /// Write one line per run as CSV; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Plot the results over loss, size or time; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE.svg", value_parser = output::svg)]
    pub(super) svg: Option<PathBuf>,
    /// Write a self-contained HTML report with plots; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE.html")]
    pub(super) html: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    pub(super) refused: Refused,
    /// First measure this machine without a NIC: a copy, a ring, a UDP socket
    #[arg(long)]
    pub baseline: bool,
}

/// Parses a lower limit of a result.
fn least(text: &str) -> Result<f64, String> {
    let limit = text.parse::<f64>().ok().filter(|limit| limit.is_finite() && *limit >= 0.0);
    limit.ok_or_else(|| "expected a number from 0 on".into())
}
