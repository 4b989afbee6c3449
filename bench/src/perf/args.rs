//! The command line of `irnic perf`: perftest's flags where it has one.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use irnic_nic::Nic;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::MAX_RD_ATOMIC;
use irnic_transports::wire::Mtu;
use irnic_units as units;

use super::PerfError;
use super::endpoint::CONTROLS;
use super::layout::Layout;
use super::plan::{Atomic, Place, Plan, PortKind, Test, Verb};

const AFTER_HELP: &str = "\
Verification: every message carries bytes that follow from --seed, queue pair and message number.
  send     the receiver checks each message when its receive completes
  write    the target checks each message before its place is written again: after every half of the places, the initiator
           sends an empty SEND on the same queue pair, which RC delivers after the writes before it, and waits for the
           target's answer before it writes to them again. write-lat: a message has arrived when all of it is there
  read     the requester checks what it read; source and destination never hold the same message twice in a row
  atomic   the requester checks every value returned, and reads the final one
Each outstanding message has a place of its own, 16 MiB a queue pair in all: long messages are fewer than --tx-depth.
With --no-verify all messages of a queue pair share one buffer, as in perftest.

Units: MiB/sec is 2^20 bytes, Gb/sec 10^9 bits of payload a second; latency is microseconds, half a round trip for send and
write. Exit status: 0 done, 1 failed (the reason is on stderr), 2 bad arguments, 130 interrupted (partial results).

Examples:
  irnic perf                                        go-back-N beside IRN over a lossy network
  irnic perf write-bw -s 64K --impair 'loss 1%'     both NICs in this process
  irnic perf send-lat --server --port shm           one process …
  irnic perf send-lat localhost --port shm          … and the other";

/// RDMA benchmarks between two software NICs, every byte verified.
///
/// Without arguments: go-back-N beside IRN at 0 %, 0.1 % and 1 % packet loss, in under a minute.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct PerfArgs {
    /// Benchmark
    #[arg(value_enum, hide_possible_values = false)]
    test: Option<Test>,
    /// Server to connect to; without it both NICs are in this process
    #[arg(requires = "test")]
    host: Option<String>,

    /// Be the server: wait for one client
    #[arg(long, conflicts_with = "host", requires = "test")]
    server: bool,
    /// TCP port on which server and client meet
    #[arg(short = 'p', long = "tcp-port", value_name = "N", default_value_t = 18515, requires = "test")]
    tcp_port: u16,
    /// What carries packets: mem, udp or shm [default: mem in one process, udp in two]
    #[arg(long, value_name = "KIND", requires = "test")]
    port: Option<String>,
    /// Address of this end's UDP socket [default: the TCP connection's, 127.0.0.1 in one process]
    #[arg(long, value_name = "ADDR", requires = "test")]
    bind: Option<IpAddr>,

    /// Message size in bytes, K and M are 2^10 and 2^20 [default: 65536 for bandwidth, 2 for latency]
    #[arg(short, long, value_name = "BYTES", conflicts_with = "all", requires = "test")]
    size: Option<String>,
    /// Sizes from 2 B to 8 MiB, each power of two
    #[arg(short, long, requires = "test")]
    all: bool,
    /// Messages of each queue pair, at least 5 [default: 5000 for write-bw, 1000 for others]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", requires = "test")]
    iters: Option<u64>,
    /// Run for so many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", requires = "test")]
    duration: Option<f64>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that fits]
    #[arg(short = 'm', long, value_name = "BYTES", requires = "test")]
    mtu: Option<usize>,
    /// Queue pairs, 1 to 16384 (bandwidth)
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "test")]
    qp: usize,
    /// Messages outstanding on a queue pair, 1 to 15000 (bandwidth)
    #[arg(short, long, value_name = "N", default_value_t = 128, requires = "test")]
    tx_depth: u32,
    /// Receives posted on a queue pair, 1 to 16384 (send)
    #[arg(short, long, value_name = "N", default_value_t = 512, requires = "test")]
    rx_depth: u32,
    /// A completion every so many messages (bandwidth) [default: 100, or half of tx-depth if less]
    #[arg(short = 'Q', long, value_name = "N", requires = "test")]
    cq_mod: Option<u32>,
    /// Messages up to this size are sent inline [default: 0 for bandwidth; 220 for write-lat, 236 for send-lat]
    #[arg(short = 'I', long = "inline_size", alias = "inline-size", value_name = "BYTES", requires = "test")]
    inline_size: Option<u32>,
    /// Post so many messages at a time (bandwidth)
    #[arg(
        short = 'l',
        long = "post_list",
        alias = "post-list",
        value_name = "N",
        default_value_t = 1,
        requires = "test"
    )]
    post_list: u32,
    /// READs or atomics outstanding on a queue pair, 1 to 128
    #[arg(short, long, value_name = "N", default_value_t = MAX_RD_ATOMIC, requires = "test")]
    outs: u8,
    /// Local ACK Timeout: 4.096 us * 2^N, 0 to 31
    #[arg(short = 'u', long = "qp-timeout", value_name = "N", default_value_t = 14, requires = "test")]
    qp_timeout: u8,
    /// Which atomic
    #[arg(
        short = 'A',
        long = "atomic_type",
        alias = "atomic-type",
        value_enum,
        default_value = "FETCH_AND_ADD",
        requires = "test"
    )]
    atomic_type: Atomic,
    /// Both ends send; the sum is reported (bandwidth)
    #[arg(short, long, requires = "test")]
    bidirectional: bool,
    /// Accepted for perftest's sake, no effect
    #[arg(short = 'F', long = "CPU-freq", requires = "test")]
    cpu_freq: bool,

    /// Transport: roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp, with parameters:
    /// irn,cap=110,rto-min=1ms
    #[arg(long, value_name = "PRESET[,KEY=VALUE…]", default_value = "irn", requires = "test")]
    transport: String,
    /// Impairs the network in the words of tc netem: 'loss 1% delay 50us', 'tx loss 1%; rx delay 1ms'; tx is what this
    /// end sends (in one process: the client), without tx and rx both ways. Also a switch as NDP has it: 'rx rate 1gbit
    /// trim 8 return'
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, requires = "test")]
    impair: String,
    /// The link's rate, such as 10G: the most that this end sends (in one process: the client)
    #[arg(long, value_name = "RATE", requires = "test")]
    rate: Option<String>,
    /// The most payload that each queue pair sends, such as 500M or 2.5G (bandwidth of send and write); how well that
    /// held over each 10 ms is reported
    #[arg(long = "rate_limit", alias = "rate-limit", value_name = "RATE", requires = "test")]
    rate_limit: Option<String>,
    /// Records this end's packets (in one process: the client's) for Wireshark or irnic decode
    #[arg(long, value_name = "FILE", requires = "test")]
    pcap: Option<PathBuf>,
    /// Seed of payload, keys, PSNs and impairments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not check what arrives
    #[arg(long, requires = "test")]
    no_verify: bool,

    /// Gb/sec instead of MiB/sec
    #[arg(long = "report_gbits", alias = "report-gbits", requires = "test")]
    report_gbits: bool,
    /// Write results to perftest_out.json
    #[arg(long = "out_json", alias = "out-json")]
    out_json: bool,
    /// Write results to this file; - is standard output
    #[arg(long = "out_json_file", alias = "out-json-file", value_name = "FILE")]
    out_json_file: Option<PathBuf>,
    /// First print what this machine can do without a NIC: a copy, a ring, a UDP socket
    #[arg(long)]
    pub baseline: bool,
}

/// Where `--out_json` goes.
const JSON_FILE: &str = "perftest_out.json";

fn usage<T>(what: impl Into<String>) -> Result<T, PerfError> {
    Err(PerfError::Usage(what.into()))
}

fn within<T: PartialOrd + std::fmt::Display>(flag: &str, value: T, min: T, max: T) -> Result<T, PerfError> {
    if value < min || value > max {
        return usage(format!("{flag} {value}: expected {min} to {max}"));
    }
    Ok(value)
}

fn parse_size(text: &str) -> Result<u32, PerfError> {
    let wrong = || PerfError::Usage(format!("--size {text}: expected 1 to 1G, such as 4096, 64K or 8M"));
    let (digits, scale) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(wrong)?;
    if !(1..=1 << 30).contains(&bytes) {
        return Err(wrong());
    }
    Ok(bytes as u32)
}

/// Most memory for the buffers of a run, in bytes.
const MAX_MEMORY: u64 = 8 << 30;

/// Whether queues and buffers of all queue pairs together stay within the device's limits, and sensible ones.
fn fits(plan: &Plan) -> Result<(), PerfError> {
    let qps = plan.qps as u64;
    for &size in &plan.sizes {
        let layout = Layout::new(plan, size);
        let send = matches!(plan.test.verb(), Verb::Send) && !plan.test.is_latency();
        let receives = if send { layout.receives } else { 0 };
        for (flag, depth) in [("--tx-depth", plan.depth(size) + CONTROLS), ("--rx-depth", receives)] {
            if qps * u64::from(depth) > Nic::MAX_CQE.into() {
                return usage(format!(
                    "--qp {qps} with this {flag}: the completion queue would be too long; lower one"
                ));
            }
        }
        let sides = if plan.bidirectional { 2 } else { 1 };
        let bytes = qps * sides * (layout.local_bytes() + layout.remote_bytes());
        if bytes > MAX_MEMORY {
            let gib = bytes.div_ceil(1 << 30);
            return usage(format!("--qp {qps} with --size {size} needs {gib} GiB of memory: lower one"));
        }
    }
    Ok(())
}

impl PerfArgs {
    /// Where JSON is to be written.
    pub fn json(&self) -> Option<PathBuf> {
        self.out_json_file.clone().or_else(|| self.out_json.then(|| JSON_FILE.into()))
    }

    /// The seed given.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn port(&self) -> Result<PortKind, PerfError> {
        let here = self.host.is_none() && !self.server;
        Ok(match self.port.as_deref() {
            None if here => PortKind::Mem,
            None | Some("udp") => PortKind::Udp,
            Some("shm") => PortKind::Shm,
            Some("mem") if here => PortKind::Mem,
            Some("mem") => return usage("--port mem joins NICs of one process only; choose udp or shm for two"),
            Some(n) if n.parse::<u16>().is_ok() => {
                return usage(format!("--port {n}: chooses mem, udp or shm here; the TCP port is -p {n}"));
            }
            Some(other) => return usage(format!("--port {other}: expected mem, udp or shm")),
        })
    }

    fn sizes(&self, test: Test) -> Result<Vec<u32>, PerfError> {
        if test.verb() == Verb::Atomic {
            if self.all || self.size.is_some() {
                return usage("atomics are 8 bytes: leave out --size and --all");
            }
            return Ok(vec![8]);
        }
        if self.all {
            return Ok((1..=23).map(|shift| 1 << shift).collect());
        }
        match &self.size {
            Some(text) => Ok(vec![parse_size(text)?]),
            None => Ok(vec![if test.is_latency() { 2 } else { 65536 }]),
        }
    }

    /// The plan that these words ask for, as after `irnic perf`.
    pub fn plan_of(words: &[&str]) -> Result<Plan, PerfError> {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            args: PerfArgs,
        }
        let alone = Alone::try_parse_from([&["perf"], words].concat()).map_err(PerfError::failed)?;
        alone.args.plan()?.ok_or_else(|| PerfError::failed("no test"))
    }

    /// The run that is asked for; `None` if no test is named.
    pub fn plan(&self) -> Result<Option<Plan>, PerfError> {
        let Some(test) = self.test else {
            return Ok(None);
        };
        let latency = test.is_latency();
        if latency && self.bidirectional {
            return usage("-b measures bandwidth: use it with a -bw test");
        }
        if latency && self.qp > 1 {
            return usage("a latency test has one queue pair: leave out -q");
        }
        let duration = match self.duration {
            None => None,
            Some(s) if s > 0.0 && s <= 1e6 => Some(Duration::from_secs_f64(s)),
            Some(s) => return usage(format!("--duration {s}: expected seconds above 0, at most 1000000")),
        };
        let mtu = match self.mtu {
            None => None,
            Some(m) => Some(
                Mtu::from_bytes(m)
                    .ok_or_else(|| PerfError::Usage(format!("--mtu {m}: expected 256, 512, 1024, 2048 or 4096")))?,
            ),
        };
        let transport = TransportConfig::parse(&self.transport, true)
            .and_then(|transport| transport.check_without_telemetry().map(|()| transport))
            .map_err(|e| PerfError::Usage(format!("--transport: {e}")))?;
        let impair = self.impair.parse().map_err(|e| PerfError::Usage(format!("--impair: {e}")))?;
        let rate = |option: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => match units::rate(text) {
                Some(rate) => Ok(Some(rate)),
                None => Err(PerfError::Usage(format!("{option} {text}: expected {}", units::RATE))),
            },
        };
        let rate_limit = rate("--rate_limit", &self.rate_limit)?;
        if rate_limit.is_some() && (latency || !matches!(test.verb(), Verb::Send | Verb::Write)) {
            return usage("--rate_limit paces what is sent: use it with send-bw or write-bw");
        }
        let inline = self.inline_size.unwrap_or(match test {
            Test::WriteLat => 220,
            Test::SendLat => 236,
            _ => 0,
        });
        let inline_max = if matches!(test.verb(), Verb::Read | Verb::Atomic) { 0 } else { Nic::MAX_INLINE };
        if inline > 0 && inline_max == 0 {
            return usage("READs and atomics cannot be inline: leave out --inline_size");
        }
        let tx_depth = within("--tx-depth", self.tx_depth, 1, 15_000)?;
        let iters = self.iters.unwrap_or(if test == Test::WriteBw { 5000 } else { 1000 });
        let place = match &self.host {
            Some(host) => Place::Client(host.clone()),
            None if self.server => Place::Server,
            None => Place::Here,
        };
        let plan = Plan {
            test,
            place,
            tcp_port: self.tcp_port,
            port: self.port()?,
            bind: self.bind,
            sizes: self.sizes(test)?,
            iters: within("--iters", iters, 5, 1 << 32)?,
            duration,
            mtu,
            qps: within("--qp", self.qp, 1, 16384)?,
            tx_depth,
            rx_depth: within("--rx-depth", self.rx_depth, 1, 16384)?,
            cq_mod: self.cq_mod.map(|n| within("--cq-mod", n, 1, 1024)).transpose()?,
            inline: within("--inline_size", inline, 0, inline_max)?,
            post_list: within("--post_list", self.post_list, 1, tx_depth)?,
            outs: within("--outs", self.outs, 1, MAX_RD_ATOMIC)?,
            qp_timeout: within("--qp-timeout", self.qp_timeout, 0, 31)?,
            atomic: self.atomic_type,
            bidirectional: self.bidirectional,
            verify: !self.no_verify,
            seed: self.seed,
            transport,
            transport_text: self.transport.clone(),
            impair,
            impair_text: self.impair.clone(),
            rate: rate("--rate", &self.rate)?,
            rate_limit,
            pcap: self.pcap.clone(),
            gbits: self.report_gbits,
        };
        fits(&plan)?;
        Ok(Some(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [("1", 1), ("4096", 4096), ("64K", 65536), ("8m", 8 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text).ok(), Some(bytes), "{text}");
        }
        for text in ["", "0", "K", "2G", "-1", "64KB", "ten", "99999999999999999999", "64é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
