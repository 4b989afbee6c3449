//! Validation of the command line: turns [`PerfArgs`] into runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use irnic_nic::Nic;
use irnic_ports::impair::{Impairments, Percent};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Counters, MAX_RD_ATOMIC};
use irnic_transports::wire::Mtu;
use irnic_units as units;

use crate::args::{Only, PerfArgs, RateUnit};
use crate::device::{self, Chosen};
use crate::endpoint::CONTROLS;
use crate::error::PerfError;
use crate::layout::Layout;
use crate::plan::{Length, Place, Plan, PortKind, Test, Verb};
use crate::sweep::{Show, Sorted, Sweep};

/// File name of `--out_json`.
const JSON_FILE: &str = "perftest_out.json";
/// Limit on the memory for the buffers of a run, bytes.
const MAX_MEMORY: u64 = 8 << 30;
/// Maximum number of runs of a command.
const MAX_RUNS: usize = 10_000;
/// Maximum number of samples kept for printing.
const MAX_SAMPLES: u64 = 10_000_000;
/// ECT(0): for senders that react to congestion experienced.
const TRAFFIC_CLASS: u8 = 2;
/// Interval of the lines of `--run_infinitely`, s, as in perftest.
const LINE_EVERY: f64 = 5.0;
/// Maximum of options that take a time, s.
const MAX_SECONDS: f64 = 1e6;

fn usage<T>(what: impl Into<String>) -> Result<T, PerfError> {
    Err(PerfError::Usage(what.into()))
}

fn within<T: PartialOrd + std::fmt::Display>(flag: &str, value: T, min: T, max: T) -> Result<T, PerfError> {
    if value < min || value > max {
        return usage(format!("{flag} {value}: expected {min} to {max}"));
    }
    Ok(value)
}

fn seconds(flag: &str, value: f64) -> Result<Duration, PerfError> {
    if value > 0.0 && value <= MAX_SECONDS {
        return Ok(Duration::from_secs_f64(value));
    }
    usage(format!("{flag} {value}: expected seconds above 0, at most {MAX_SECONDS}"))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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

/// Splits a list of transports: a part with an equals sign is a parameter of the transport before it.
fn transports(texts: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        let mut first = true;
        for part in text.split(',') {
            match all.last_mut() {
                Some(last) if !first && (part.contains('=') || part.trim().is_empty()) => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => all.push(part.to_owned()),
            }
            first = false;
        }
    }
    all
}

/// Labels of transports: the presets, if each occurs once.
fn labels(texts: &[String]) -> Vec<String> {
    let presets: Vec<String> =
        texts.iter().map(|t| t.split(',').next().unwrap_or_default().trim().to_owned()).collect();
    let apart = presets.iter().enumerate().all(|(at, preset)| !presets[..at].contains(preset));
    if apart { presets } else { texts.to_vec() }
}

/// Rejects duplicates in a list.
fn twice<T: PartialEq>(flag: &str, all: &[T], name: impl Fn(&T) -> String) -> Result<(), PerfError> {
    match all.iter().enumerate().find(|(at, value)| all[..*at].contains(value)) {
        Some((_, value)) => usage(format!("{flag} {}: it is in the list twice; --repeat repeats runs", name(value))),
        None => Ok(()),
    }
}

/// Checks that queues and buffers of all queue pairs together stay within the device's limits, and sensible ones.
fn fits(plan: &Plan) -> Result<(), PerfError> {
    let (qps, size) = (plan.qps as u64, plan.size);
    let layout = Layout::new(plan, size);
    let send = matches!(plan.test.verb(), Verb::Send) && !plan.test.is_latency();
    let receives = if send { layout.receives } else { 0 };
    for (flag, depth) in [("--tx-depth", plan.depth(size) + 2 * CONTROLS), ("--rx-depth", receives)] {
        if qps * u64::from(depth) > Nic::MAX_CQE.into() {
            return usage(format!("--qp {qps} with this {flag}: the completion queue would be too long; lower one"));
        }
    }
    if send && plan.recv_post_list > receives {
        let list = plan.recv_post_list;
        return usage(format!("--recv_post_list {list}: a queue pair has {receives} receives of {size} B; lower it"));
    }
    let sides = if plan.bidirectional { 2 } else { 1 };
    let bytes = sides * (layout.local_bytes(plan.qps) + layout.remote_bytes(plan.qps));
    if bytes > MAX_MEMORY {
        let gib = bytes.div_ceil(1 << 30);
        return usage(format!("--qp {qps} with --size {size} needs {gib} GiB of memory: lower one"));
    }
    Ok(())
}

/// A transport of the list: as written, and parsed.
struct Transport {
    text: String,
    label: String,
    config: TransportConfig,
}

#[derive(Parser)]
struct Alone {
    #[command(flatten)]
    args: PerfArgs,
}

impl PerfArgs {
    /// The file for JSON.
    pub fn json(&self) -> Option<PathBuf> {
        self.out_json_file.clone().or_else(|| self.out_json.then(|| JSON_FILE.into()))
    }

    /// Parses these arguments, as after `irnic perf`.
    pub fn of(arguments: &[&str]) -> Result<PerfArgs, PerfError> {
        Alone::try_parse_from([&["perf"], arguments].concat()).map(|alone| alone.args).map_err(PerfError::failed)
    }

    /// The runs of these arguments.
    pub fn sweep_of(arguments: &[&str]) -> Result<Sweep, PerfError> {
        PerfArgs::of(arguments)?.sweep()?.ok_or_else(|| PerfError::failed("no test"))
    }

    /// The only run of these arguments.
    pub fn plan_of(arguments: &[&str]) -> Result<Plan, PerfError> {
        Ok(PerfArgs::sweep_of(arguments)?.plans.swap_remove(0))
    }

    /// Whether both ends are in this process.
    fn here(&self) -> bool {
        self.host.is_none() && !self.server
    }

    fn port(&self, device: Option<&Chosen>) -> Result<PortKind, PerfError> {
        let here = self.here();
        let named = |text: &str| PortKind::ALL.into_iter().find(|port| port.name() == text);
        let port = match (self.port.as_deref(), self.port.as_deref().and_then(named)) {
            (_, Some(PortKind::Mem)) if !here => {
                return usage("--port mem joins NICs of one process only; choose udp or shm for two");
            }
            (_, Some(port)) => port,
            (None, None) => match device {
                Some(device) => device.port()?,
                None if here => PortKind::Mem,
                None => PortKind::Udp,
            },
            (Some(n), None) if n.parse::<u16>().is_ok() => {
                return usage(format!("--port {n}: chooses mem, udp or shm here; the TCP port is -p {n}"));
            }
            (Some(other), None) => return usage(format!("--port {other}: expected mem, udp or shm")),
        };
        if device.is_some() && port != PortKind::Udp {
            return usage(format!("--ib-dev, --gid-index: {} has no addresses; use them with --port udp", port.name()));
        }
        Ok(port)
    }

    fn sizes(&self, test: Test) -> Result<Vec<u32>, PerfError> {
        if test.verb() == Verb::Atomic {
            if self.all || !self.size.is_empty() {
                return usage("atomics are 8 bytes: leave out --size and --all");
            }
            return Ok(vec![8]);
        }
        if self.all {
            return Ok((1..=23).map(|shift| 1 << shift).collect());
        }
        if self.size.is_empty() {
            return Ok(vec![if test.is_latency() { 2 } else { 65536 }]);
        }
        let sizes = self.size.iter().map(|text| parse_size(text)).collect::<Result<Vec<u32>, _>>()?;
        twice("--size", &sizes, u32::to_string)?;
        Ok(sizes)
    }

    fn losses(&self) -> Result<Vec<Option<Percent>>, PerfError> {
        let parse = |text: &String| {
            Percent::parse(text).ok_or_else(|| {
                PerfError::Usage(format!("--loss {text}: expected percent, 0 to 100, such as 0.1; several as 0,0.1,1"))
            })
        };
        let losses = self.loss.iter().map(parse).collect::<Result<Vec<Percent>, _>>()?;
        twice("--loss", &losses, Percent::to_string)?;
        Ok(if losses.is_empty() { vec![None] } else { losses.into_iter().map(Some).collect() })
    }

    fn transports(&self, device: Option<&Chosen>) -> Result<Vec<Transport>, PerfError> {
        if let (true, Some(device)) = (self.transport.is_empty(), device) {
            let config = device.info.config.transport;
            let text = config.to_string();
            return Ok(vec![Transport { label: text.clone(), text, config }]);
        }
        let given = if self.transport.is_empty() { &["irn".to_owned()][..] } else { &self.transport };
        let texts = transports(given);
        twice("--transport", &texts, String::clone)?;
        let labels = labels(&texts);
        let notices = self.impairments(device)?.tx.fair_rate();
        let read = |(text, label): (String, String)| {
            let config = TransportConfig::parse(&text, true)
                .and_then(|transport| transport.check_without_telemetry().map(|()| transport))
                .and_then(|mut transport| transport.fit_to_notices(notices.as_ref()).map(|()| transport))
                .map_err(|e| PerfError::Usage(format!("--transport: {e}")))?;
            Ok(Transport { text, label, config })
        };
        texts.into_iter().zip(labels).map(read).collect()
    }

    /// The network without and with losses, and its description.
    fn impairments(&self, device: Option<&Chosen>) -> Result<Impairments, PerfError> {
        match (&self.impair, device) {
            (Some(text), _) => text.parse().map_err(|e| PerfError::Usage(format!("--impair: {e}"))),
            (None, Some(device)) => Ok(device.info.config.impair.clone()),
            (None, None) => Ok(Impairments::default()),
        }
    }

    fn length(&self, test: Test) -> Result<Length, PerfError> {
        if self.run_infinitely {
            return Ok(Length::Endless);
        }
        let Some(text) = self.duration else {
            let iters = self.iters.unwrap_or(if test == Test::WriteBw { 5000 } else { 1000 });
            return Ok(Length::Messages(within("--iters", iters, 5, 1 << 32)?));
        };
        let duration = seconds("--duration", text)?;
        let margin = self.margin;
        if !(0.0..text / 2.0).contains(&margin) {
            return usage(format!("--margin {margin}: expected 0 or more, and less than half of --duration {text}"));
        }
        Ok(Length::Time { duration, margin: Duration::from_secs_f64(margin) })
    }

    /// `--rate_limit` in bit/s.
    fn rate_limit(&self) -> Result<Option<u64>, PerfError> {
        let Some(text) = &self.rate_limit else { return Ok(None) };
        let bits = match self.rate_units {
            RateUnit::Mebibytes => f64::from(8 << 20),
            RateUnit::Gigabits => 1e9,
            RateUnit::Packets => return usage("--rate_units p: the NIC paces bytes, not packets"),
        };
        let wrong = || {
            PerfError::Usage(format!(
                "--rate_limit {text}: expected {}, or a number of Gb/sec (of MiB/sec with --rate_units M)",
                units::RATE
            ))
        };
        if let Ok(number) = text.parse::<f64>() {
            let rate = number * bits;
            return if (1.0..=1e15).contains(&rate) { Ok(Some(rate.round() as u64)) } else { Err(wrong()) };
        }
        units::rate(text).map(Some).ok_or_else(wrong)
    }

    /// Checks that the options suit the test, latency or bandwidth.
    fn suits(&self, test: Test) -> Result<(), PerfError> {
        let (latency, verb) = (test.is_latency(), test.verb());
        let bandwidth_only = [
            ("-b", self.bidirectional),
            ("--run_infinitely", self.run_infinitely),
            ("--reversed", self.reversed),
            ("--noPeak", self.no_peak),
            ("--limit_bw", self.limit_bw.is_some()),
            ("--limit_msgrate", self.limit_msgrate.is_some()),
        ];
        let latency_only = [
            ("--report-histogram", self.report_histogram),
            ("--report-unsorted", self.report_unsorted),
            ("--latency_gap", self.latency_gap.is_some()),
        ];
        for (flag, given) in bandwidth_only {
            if given && latency {
                return usage(format!("{flag} belongs to bandwidth: use it with a -bw test"));
            }
        }
        for (flag, given) in latency_only {
            if given && !latency {
                return usage(format!("{flag} belongs to latency: use it with a -lat test"));
            }
        }
        match self.output {
            Some(Only::Latency) if !latency => return usage("--output latency: use it with a -lat test"),
            Some(Only::Bandwidth | Only::MessageRate) if latency => {
                return usage("--output: a -lat test has latency only");
            }
            _ => {}
        }
        if latency && self.qp > 1 {
            return usage("a latency test has one queue pair: leave out -q");
        }
        if self.rate_limit.is_some() && (latency || !matches!(verb, Verb::Send | Verb::Write)) {
            return usage("--rate_limit paces what is sent: use it with send-bw or write-bw");
        }
        if self.events && test == Test::WriteLat {
            return usage("--events: write-lat sees messages in memory, which raises no events");
        }
        if self.warm_up && (latency || verb == Verb::Send) {
            return usage("--perform_warm_up: use it with write-bw, read-bw or atomic-bw");
        }
        if self.warm_up && self.iters.is_none() && (self.duration.is_some() || self.run_infinitely) {
            return usage("--perform_warm_up: with --duration use --margin");
        }
        if self.use_srq && self.mr_per_qp {
            return usage("--mr_per_qp: receives of a shared queue belong to no queue pair; leave one out");
        }
        if self.use_srq && verb != Verb::Send {
            return usage("--use-srq: receives are what send-bw and send-lat post");
        }
        if self.recv_post_list > 1 && test != Test::SendBw {
            return usage("--recv_post_list: receives are what send-bw posts");
        }
        if (self.report_histogram || self.report_unsorted) && self.duration.is_some() {
            return usage("--report-histogram, --report-unsorted: every sample is kept with --iters only");
        }
        Ok(())
    }

    /// Output options.
    fn show(&self) -> Result<Show, PerfError> {
        let every = match self.interval {
            Some(every) => Some(seconds("--interval", every)?),
            None if self.run_infinitely => Some(seconds("--duration", self.duration.unwrap_or(LINE_EVERY))?),
            None => None,
        };
        if every.is_some() && self.output.is_some() {
            return usage("--output prints one number: leave out --interval and --run_infinitely");
        }
        let mut counters = Vec::new();
        for name in &self.report_counters {
            let plain = name.strip_prefix("hw_counters/").unwrap_or(name);
            if !Counters::default().iter().any(|(known, ..)| known == plain) {
                return usage(format!(
                    "--report-counters {name}: no such counter; --out_json_file - shows all, docs/counters.md explains them"
                ));
            }
            counters.push(plain.to_owned());
        }
        let samples =
            if self.report_unsorted { Some(Sorted::No) } else { self.report_histogram.then_some(Sorted::Yes) };
        Ok(Show {
            gbits: self.report_gbits,
            interval: every.map(nanoseconds),
            both_ways: self.report_both,
            cpu: self.cpu_util,
            counters,
            samples,
            only: self.output,
            least_bw: self.limit_bw,
            least_rate: self.limit_msgrate,
        })
    }

    /// The runs of the command line; `None` if no test is named.
    pub fn sweep(&self) -> Result<Option<Sweep>, PerfError> {
        if let Some(why) = &self.refused.0 {
            return usage(why.clone());
        }
        let repeat = within("--repeat", self.repeat, 1, 1000)?;
        let Some(test) = self.test else {
            return Ok(None);
        };
        self.suits(test)?;
        let device = (self.ib_dev.is_some() || self.gid_index.is_some())
            .then(|| device::choose(self.ib_dev.as_deref(), self.gid_index, self.ipv6))
            .transpose()?;
        let device = device.as_ref();
        let (sizes, losses, transports) = (self.sizes(test)?, self.losses()?, self.transports(device)?);
        let runs = sizes.len() * losses.len() * transports.len() * repeat as usize;
        if runs > MAX_RUNS {
            return usage(format!("{runs} runs: expected at most {MAX_RUNS}"));
        }
        if self.run_infinitely && runs > 1 {
            return usage("--run_infinitely: the first run would never end; leave out lists, --all and --repeat");
        }
        let plan = self.plan(test, device, transports[0].config)?;
        let impair = self.impairments(device)?;
        let mut plans = Vec::new();
        for transport in &transports {
            for &size in &sizes {
                for &loss in &losses {
                    let mut plan = Plan { size, loss, ..plan.clone() };
                    (plan.transport, plan.label) = (transport.config, transport.label.clone());
                    plan.transport_text.clone_from(&transport.text);
                    plan.impair_text = self.impair.clone().unwrap_or_else(|| impair.to_string());
                    plan.impair = impair.clone();
                    // With two processes, the client loses packets in both directions.
                    if let Some(loss) = loss
                        && plan.place != Place::Server
                    {
                        let with = impair.clone().with_loss(loss);
                        plan.impair = with.ok_or_else(|| {
                            PerfError::Usage("--loss: --impair loses packets already; leave one out".into())
                        })?;
                    }
                    fits(&plan)?;
                    plans.push(plan);
                }
            }
        }
        let linger = self.wait_destroy.map(|time| seconds("--wait_destroy", time)).transpose()?;
        let sweep = Sweep { plans, repeat, show: self.show()?, linger: linger.map_or(0, nanoseconds) };
        if self.pcap.is_some() && sweep.compares() {
            return usage("--pcap records one network: leave out lists of --transport and --loss, and --repeat");
        }
        Ok(Some(sweep))
    }

    /// The MTU, if an option or the device sets one.
    fn mtu(&self, device: Option<&Chosen>) -> Result<Option<Mtu>, PerfError> {
        let Some(bytes) = self.mtu else { return Ok(device.and_then(|device| device.info.config.mtu)) };
        let wrong = || PerfError::Usage(format!("--mtu {bytes}: expected 256, 512, 1024, 2048 or 4096"));
        Mtu::from_bytes(bytes).map(Some).ok_or_else(wrong)
    }

    /// `--inline_size`, or its default for the test, and the most that the test's verb allows.
    fn inline(&self, test: Test) -> Result<(u32, u32), PerfError> {
        let inline = self.inline_size.unwrap_or(match test {
            Test::WriteLat => 220,
            Test::SendLat => 236,
            _ => 0,
        });
        let inline_max = if matches!(test.verb(), Verb::Read | Verb::Atomic) { 0 } else { Nic::MAX_INLINE };
        if inline > 0 && inline_max == 0 {
            return usage("READs and atomics cannot be inline: leave out --inline_size");
        }
        Ok((inline, inline_max))
    }

    /// Where the two ends are.
    fn place(&self) -> Result<Place, PerfError> {
        let place = match &self.host {
            Some(host) => Place::Client(host.clone()),
            None if self.server => Place::Server,
            None => Place::Here,
        };
        if self.source_ip.is_some() && place == Place::Here {
            return usage("--source_ip is an address of the TCP connection: use it with --server or a host");
        }
        Ok(place)
    }

    /// The rate of the link in bit/s, if an option or the device sets one.
    fn rate(&self, device: Option<&Chosen>) -> Result<Option<u64>, PerfError> {
        let Some(text) = &self.rate else { return Ok(device.and_then(|device| device.info.config.rate)) };
        let wrong = || PerfError::Usage(format!("--rate {text}: expected {}", units::RATE));
        units::rate(text).map(Some).ok_or_else(wrong)
    }

    /// `--latency_gap` in ns; 0 if there is none.
    fn gap(&self) -> Result<u64, PerfError> {
        match self.latency_gap {
            None => Ok(0),
            Some(us) if us > 0.0 && us <= 1e6 => Ok((us * 1e3) as u64),
            Some(us) => usage(format!("--latency_gap {us}: expected microseconds above 0, at most 1000000")),
        }
    }

    /// Whether every sample is kept, which limits the number of messages.
    fn samples(&self, length: Length) -> Result<bool, PerfError> {
        let samples = self.report_histogram || self.report_unsorted;
        if samples && length.messages().is_some_and(|n| n > MAX_SAMPLES) {
            return usage(format!("--report-histogram, --report-unsorted: expected --iters of at most {MAX_SAMPLES}"));
        }
        Ok(samples)
    }

    /// A run, without what may be a list.
    fn plan(&self, test: Test, device: Option<&Chosen>, transport: TransportConfig) -> Result<Plan, PerfError> {
        let mtu = self.mtu(device)?;
        let (inline, inline_max) = self.inline(test)?;
        let tx_depth = within("--tx-depth", self.tx_depth, 1, 15_000)?;
        let place = self.place()?;
        let rate = self.rate(device)?;
        let gap = self.gap()?;
        let length = self.length(test)?;
        let samples = self.samples(length)?;
        Ok(Plan {
            test,
            place,
            tcp_port: self.tcp_port,
            source: self.source_ip,
            port: self.port(device)?,
            bind: self.bind.or(device.map(|device| device.address)),
            ipv6: self.ipv6,
            size: 0,
            length,
            mtu,
            qps: within("--qp", self.qp, 1, 16384)?,
            tx_depth,
            rx_depth: within("--rx-depth", self.rx_depth, 1, 16384)?,
            cq_mod: self.cq_mod.map(|n| within("--cq-mod", n, 1, 1024)).transpose()?,
            inline: within("--inline_size", inline, 0, inline_max)?,
            post_list: within("--post_list", self.post_list, 1, tx_depth)?,
            recv_post_list: within("--recv_post_list", self.recv_post_list, 1, 16384)?,
            outs: within("--outs", self.outs, 1, MAX_RD_ATOMIC)?,
            qp_timeout: within("--qp-timeout", self.qp_timeout, 0, 31)?,
            retry_count: within("--retry_count", self.retry_count, 0, 7)?,
            traffic_class: self.tos.or(self.tclass).unwrap_or(TRAFFIC_CLASS),
            hop_limit: self.hop_limit,
            atomic: self.atomic_type,
            bidirectional: self.bidirectional,
            reversed: self.reversed,
            srq: self.use_srq,
            mr_per_qp: self.mr_per_qp,
            events: self.events,
            rdma_cm: self.rdma_cm,
            warm_up: if self.warm_up { tx_depth.into() } else { 0 },
            gap,
            samples,
            peak: !self.no_peak,
            verify: !self.no_verify,
            seed: self.seed,
            transport,
            transport_text: String::new(),
            label: String::new(),
            loss: None,
            impair: Impairments::default(),
            impair_text: String::new(),
            longest_step: u64::MAX,
            rate,
            rate_limit: self.rate_limit()?,
            burst: self.burst_size.map(|n| within("--burst_size", n, 1, 1 << 20)).transpose()?,
            pcap: self.pcap.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use irnic_transports::time::SEC;

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

    #[test]
    fn what_is_completed_is_accepted() {
        let command = Alone::command();
        let mut completed = Vec::new();
        for option in command.get_arguments().filter(|option| option.is_hide_possible_values_set()) {
            let name = option.get_long().expect("a long option");
            for word in option.get_possible_values() {
                let value = format!("--{name}={}", word.get_name());
                PerfArgs::plan_of(&["write-bw", &value]).unwrap_or_else(|e| panic!("{value}: {e:?}"));
                completed.push(value);
            }
        }
        for value in ["--port=mem", "--port=shm", "--transport=irn"] {
            assert!(completed.iter().any(|known| known == value), "{value}: {completed:?}");
        }
    }

    #[test]
    fn transports_are_listed_with_their_parameters() {
        let list = |texts: &[&str]| transports(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        assert_eq!(list(&["roce,irn,cap=110,rto-min=1ms,ndp"]), ["roce", "irn,cap=110,rto-min=1ms", "ndp"]);
        assert_eq!(list(&["roce", "irn,n=3"]), ["roce", "irn,n=3"]);
        assert_eq!(list(&["cap=1"]), ["cap=1"]);
    }

    #[test]
    fn a_rate_limit_without_a_unit_is_perftests() {
        let limit = |arguments: &[&str]| PerfArgs::plan_of(&[&["write-bw", "--rate_limit"], arguments].concat());
        for (arguments, rate) in [
            (&["1.5"][..], 1_500_000_000),
            (&["500M"], 500_000_000),
            (&["100", "--rate_units", "M"], 838_860_800),
            (&["2G", "--rate_units", "M"], 2_000_000_000),
        ] {
            assert_eq!(limit(arguments).expect("a plan").rate_limit, Some(rate), "{arguments:?}");
        }
        assert!(limit(&["0"]).is_err() && limit(&["-1"]).is_err() && limit(&["NaN"]).is_err());
    }

    #[test]
    fn margins_leave_something_to_measure() {
        let plan = |arguments: &[&str]| PerfArgs::plan_of(&[&["write-bw", "-D", "2"], arguments].concat());
        assert_eq!(plan(&["-f", "0.5"]).expect("a plan").length.window(), (SEC / 2, SEC / 2 * 3));
        assert_eq!(plan(&[]).expect("a plan").length.window(), (0, 2 * SEC));
        assert!(plan(&["-f", "1"]).is_err() && plan(&["-f", "NaN"]).is_err());
    }
}
