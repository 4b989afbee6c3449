//! The keys of experiments: names of command-line flags, and of keys in files.

use irnic_openqueue::NameError;
use irnic_transports::config::{Timer, WireFormat};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::qp::Service;
use irnic_transports::wire::Mtu;
use irnic_units::keys::{Key as Setter, Value, ValueError, pairs};
use irnic_units::{self as units, MAX_BYTES, MAX_NS, SIZE, TIME, quotient};

use super::hol::{flow_control, hol};
use super::{
    Buffers, Experiment, InputBuffers, QueueLength, SharedBuffers, Transport, TrimmingBuffers, checks, differing,
    policies,
};
use crate::sim::{Change, Detour, HeaderBytes, LinkChange, QpPolicy, Routing};
use crate::switch::{Compute, Cut, Discipline, Ecn, FlowTable, PiConfig, RoccConfig, Scheduling};
use crate::topology::Topology;
use crate::workload::poisson;

/// A key of experiments.
#[derive(Debug)]
pub struct Key {
    setter: Setter<Experiment>,
    /// Default value, if it does not depend on other keys.
    pub default: Option<&'static str>,
    /// Whether the value alone suffices in the name of a case.
    pub(super) bare: bool,
}

impl Key {
    /// Returns the name, the same for the flag and the key in a file.
    pub fn name(&self) -> &'static str {
        self.setter.name
    }

    /// Parses a value into an experiment.
    pub(super) fn set(&self, experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
        (self.setter.set)(experiment, value)
    }
}

/// Constructor of a type of buffers.
type Make = fn() -> Buffers;
type Set = fn(&mut Experiment, &Value<'_>) -> Result<(), ValueError>;

const fn key(name: &'static str, set: Set) -> Key {
    Key { setter: Setter::new(name, set), default: None, bare: false }
}

const fn with_default(name: &'static str, default: &'static str, set: Set) -> Key {
    Key { setter: Setter::new(name, set), default: Some(default), bare: false }
}

const fn bare(name: &'static str, default: &'static str, set: Set) -> Key {
    Key { setter: Setter::new(name, set), default: Some(default), bare: true }
}

/// All keys, in the order in which a grid is enumerated: the last varies fastest. Their defaults are those of
/// [`Experiment::default`].
pub static KEYS: [Key; 54] = [
    bare("topology", "fat-tree:k=6,rate=40G,delay=2us", |e, v| parse(v).map(|topology| e.topology = topology)),
    bare("workload", "irn-heavy", |e, v| parse(v).map(|workload| e.workload = workload)),
    key("flows", flows),
    with_default("load", "0.7", |e, v| v.read(checks::load, checks::LOAD).map(|load| e.load = load)),
    key("duration", |e, v| positive_time(v).map(|ns| e.duration = Some(ns))),
    key("flows-count", |e, v| {
        v.number(1..=poisson::MAX_FLOWS, "a number of flows, 1 to 100,000,000").map(|n| e.arrivals = Some(n))
    }),
    with_default("priority", "0", |e, v| v.number(0..=7, "a priority, 0 to 7").map(|priority| e.priority = priority)),
    with_default("switch", "input-queued", |e, v| {
        let kinds: [(&str, Make); 4] = [
            ("input-queued", || Buffers::InputQueued(InputBuffers::default())),
            ("shared-buffer", || Buffers::Shared(SharedBuffers::default())),
            ("trimming", || Buffers::Trimming(TrimmingBuffers::default())),
            ("output-queued", || Buffers::OutputQueued(Discipline::Fifo)),
        ];
        if let Some(own) = e.extensions.switch(v.text) {
            e.buffers = Buffers::Custom(own.clone());
            return Ok(());
        }
        if kinds.iter().all(|(kind, _)| *kind != v.text) {
            return match v.text.parse() {
                Ok(policy) => {
                    e.policy = Some(policy);
                    Ok(())
                }
                Err(NameError::Unknown { expected, .. }) => {
                    Err(v.wrong(format!("input-queued, shared-buffer, trimming, output-queued, {expected}")))
                }
                Err(error) => Err(v.refuse(error)),
            };
        }
        v.word(&kinds).map(|buffers| e.buffers = buffers())
    }),
    key("switch-at", |e, v| differing::read(v, &e.topology).map(|differing| e.differing = differing)),
    key("policy-event", |e, v| policies::changes(v).map(|changes| e.policy_changes = changes)),
    key("data-queue", |e, v| trimming(e, v).and_then(|t| queue(v).map(|data| t.data = Some(data)))),
    key("header-queue", |e, v| trimming(e, v).and_then(|t| size(v).map(|bytes| t.headers = Some(bytes)))),
    key("wrr", |e, v| {
        let expected = "1 to 65536 packets without payload for each one with";
        trimming(e, v).and_then(|t| v.number(1..=65_536, expected).map(|ratio| t.ratio = ratio))
    }),
    key("trim", |e, v| {
        let ways = [("coin", Cut::Coin), ("arriving", Cut::Arriving), ("fifo", Cut::InPlace)];
        trimming(e, v).and_then(|t| v.word(&ways).map(|cut| t.cut = cut))
    }),
    key("return-headers", |e, v| trimming(e, v).and_then(|t| v.switch().map(|on| t.returns = on))),
    key("buffer", |e, v| size(v).map(|bytes| e.buffer = Some(bytes))),
    key("queue-limit", |e, v| v.read(packets, "1 to 1000000000 packets").map(|n| e.queue_limit = Some(n))),
    key("alpha", |e, v| shared(e, v).and_then(|shared| positive(v).map(|alpha| shared.alpha = alpha))),
    key("colour-threshold", |e, v| {
        let threshold = if e.policy.is_some() { &mut e.policy_colour } else { &mut shared(e, v)?.colour };
        *threshold = Some(size(v)?);
        Ok(())
    }),
    key("ecn", |e, v| v.read(ecn, ECN).map(|rule| e.ecn = Some(rule))),
    key("rocc", |e, v| points(v).map(|points| e.rocc = Some(points))),
    key("flow-control", |e, v| flow_control(v).map(|how| e.flow_control = how)),
    key("hol", |e, v| hol(v).map(|hol| e.hol = hol)),
    with_default("scheduling", "strict", scheduling),
    key("preempt", |e, v| v.switch().map(|on| e.preempt = on)),
    key("speedup", |e, v| input(e, v).and_then(|input| speedup(v).map(|outputs| input.speedup = outputs))),
    with_default("routing", "ecmp", |e, v| {
        let ways = [
            ("ecmp", Routing::Ecmp),
            ("spray", Routing::Spray),
            ("random", Routing::Random),
            ("source", Routing::Source),
            ("static", Routing::Static),
            ("lowest", Routing::Lowest),
        ];
        v.word(&ways).map(|routing| e.routing = routing)
    }),
    key("detour", |e, v| detours(v, &e.topology).map(|detours| e.detours = detours)),
    key("deadlock", |e, v| v.word(&[("end", false), ("continue", true)]).map(|on| e.outlive_deadlocks = on)),
    with_default("qps", "per-flow", |e, v| {
        v.word(&[("per-flow", QpPolicy::PerFlow), ("reused", QpPolicy::Reused)]).map(|policy| e.qps = policy)
    }),
    with_default("service", "rc", |e, v| {
        v.word(&[("rc", Service::Rc), ("uc", Service::Uc)]).map(|service| e.service = service)
    }),
    key("setup-rtts", |e, v| v.number(0..=100, "0 to 100 round trips").map(|rtts| e.setup_rtts = rtts)),
    key("handshake", |e, v| v.switch().map(|on| e.handshake = on)),
    with_default("quantum", "1", |e, v| v.number(1..=65_536, "1 to 65536 packets").map(|packets| e.quantum = packets)),
    with_default("mtu", "1024", |e, v| {
        let read = |text: &str| match text.parse().ok()? {
            8192 => Some(Mtu::B8192),
            bytes => Mtu::from_bytes(bytes),
        };
        v.read(read, "256, 512, 1024, 2048, 4096 or 8192 bytes of payload").map(|mtu| e.mtu = mtu)
    }),
    with_default("headers", "real", |e, v| {
        v.read(headers, "real, or fixed: and bytes for each packet, such as fixed:62")
            .map(|headers| e.headers = headers)
    }),
    key("link-event", |e, v| link_events(v, &e.topology).map(|changes| e.changes = changes)),
    key("until", |e, v| positive_time(v).map(|ns| e.until = Some(ns))),
    key("sample", |e, v| positive_time(v).map(|ns| e.sample = Some(ns))),
    with_default("verify", "off", |e, v| v.switch().map(|on| e.verify = on)),
    key("cc", congestion),
    bare("transport", "irn", transports),
    key("slack", parameter),
    key("cap", parameter),
    key("rto-low", parameter),
    key("rto-high", parameter),
    key("n", parameter),
    with_default("pfc", "off", |e, v| v.switch().map(|on| e.pfc = on)),
    key("pfc-threshold", xoff),
    key("xon", xon),
    key("pfc-alpha", |e, v| shared_pfc(e, v, positive, |shared, alpha| shared.pfc_alpha = alpha)),
    key("pfc-reserve", |e, v| shared_pfc(e, v, size, |shared, bytes| shared.reserve = bytes)),
    key("pfc-resume", |e, v| shared_pfc(e, v, size, |shared, bytes| shared.resume = bytes)),
    key("pfc-headroom", |e, v| size(v).map(|bytes| e.headroom = Some(bytes))),
];

/// Keys that are parsed before the others, which depend on them.
const FIRST: [&str; 4] = ["topology", "pfc", "switch", "transport"];
/// The key that is parsed last: its limit depends on the others.
const LAST: &str = "xon";

/// Returns all keys in the order in which their values are parsed.
pub(super) fn in_reading_order() -> impl Iterator<Item = &'static Key> {
    let rest = KEYS.iter().filter(|key| !FIRST.contains(&key.name()) && key.name() != LAST);
    FIRST.iter().filter_map(|name| find(name)).chain(rest).chain(find(LAST))
}

/// Returns the key with a name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name() == name)
}

/// Parses a value by its `FromStr`, whose error states what is wrong.
fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(value: &Value<'_>) -> Result<T, ValueError> {
    value.text.parse().map_err(|error| value.refuse(error))
}

fn size(value: &Value<'_>) -> Result<u64, ValueError> {
    value.size(1..=MAX_BYTES, SIZE)
}

fn positive_time(value: &Value<'_>) -> Result<u64, ValueError> {
    value.time(1..=MAX_NS, TIME)
}

fn positive(value: &Value<'_>) -> Result<f64, ValueError> {
    let read = |text: &str| quotient(text).filter(|alpha| *alpha > 0.0 && *alpha <= 1e6);
    value.read(read, "a number above 0, such as 1, 0.125 or 1/16")
}

fn flows(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    if experiment.is_given("workload") {
        return Err(value.refuse("a workload is given, too; to join them: --workload 'irn-heavy+file:PATH'"));
    }
    let file = format!("file:{}", value.text);
    experiment.workload = file.parse().map_err(|error| value.refuse(error))?;
    Ok(())
}

/// Parses transports, separated by `+` like the parts of the workload that they apply to.
fn transports(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let each = value.text.split('+').map(|text| text.trim().parse::<Transport>());
    experiment.transports = each.collect::<Result<_, _>>().map_err(|error| value.refuse(error))?;
    Ok(())
}

/// Returns the only transport, for keys that change it.
fn only_transport<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut Transport, ValueError> {
    match &mut experiment.transports[..] {
        [only] => Ok(only),
        _ => {
            let why = format!(
                "there are several transports; write it in --transport beside the one that has it, as in irn,{}=…",
                value.key
            );
            Err(value.refuse(why))
        }
    }
}

fn congestion(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let own = experiment.extensions.controller(value.text);
    only_transport(experiment, value)?.config.congestion = match own {
        Some(factory) => CongestionConfig::Custom(factory),
        None => parse(value)?,
    };
    Ok(())
}

/// Sets a parameter of the transport that has its own key.
fn parameter(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let (name, pfc) = (experiment.text("transport"), experiment.pfc);
    let transport = only_transport(experiment, value)?;
    let roce = transport.config.wire == WireFormat::Roce;
    let key = match (value.key, transport.config.timer) {
        // Of RoCE without an explicit timer (IRN §4.3.2).
        ("rto-high", Timer::Fixed(None)) if roce && !pfc && !transport.gives_timer() => "rto",
        ("rto-high", Timer::Fixed(Some(_))) => "rto",
        ("rto-high", Timer::Fixed(None)) if roce => return Ok(()),
        ("rto-low" | "rto-high" | "n", Timer::Fixed(_) | Timer::Estimated { .. } | Timer::Tcp { .. }) => {
            return Err(value.refuse(format!("{name} has not the two timeouts of IRN")));
        }
        (key, _) => key,
    };
    transport.config.set(key, value.text).map_err(|error| value.refuse(error))
}

fn speedup(value: &Value<'_>) -> Result<Option<u16>, ValueError> {
    match value.text {
        "none" => Ok(None),
        _ => value.number(1..=u16::MAX, "none, or 1 to 65535 outputs").map(Some),
    }
}

/// Returns the parameters of input queues, if the switches have them.
fn input<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut InputBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::InputQueued(input) => Ok(input),
        _ => Err(value.refuse("goes with --switch input-queued only")),
    }
}

/// Returns the parameters of shared buffers, if the switches have them.
fn shared<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut SharedBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::Shared(shared) => Ok(shared),
        _ => Err(value.refuse("goes with --switch shared-buffer only")),
    }
}

/// Returns the parameters of trimming, if the switches trim.
fn trimming<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut TrimmingBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::Trimming(trimming) => Ok(trimming),
        _ => Err(value.refuse("goes with --switch trimming only")),
    }
}

/// Parses the length of a queue: a plain number of packets, or a size.
fn packets(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=1_000_000_000).contains(n))
}

fn queue(value: &Value<'_>) -> Result<QueueLength, ValueError> {
    const PACKETS: u64 = 1_000;
    let read = |text: &str| match text.parse::<u64>() {
        Ok(n) => (1..=PACKETS).contains(&n).then_some(QueueLength::Packets(n)),
        Err(_) => units::size(text).filter(|bytes| (1..=MAX_BYTES).contains(bytes)).map(QueueLength::Bytes),
    };
    value.read(read, "1 to 1000 full packets, or a size with its unit, such as 72KB")
}

/// Sets a parameter of PFC in shared buffers. Ignored without PFC.
fn shared_pfc<T>(
    experiment: &mut Experiment,
    value: &Value<'_>,
    read: fn(&Value<'_>) -> Result<T, ValueError>,
    set: fn(&mut SharedBuffers, T),
) -> Result<(), ValueError> {
    let pfc = experiment.pfc;
    let shared = shared(experiment, value)?;
    if pfc { read(value).map(|number| set(shared, number)) } else { Ok(()) }
}

/// Parses XOFF's threshold. Ignored without PFC.
fn xoff(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let pfc = experiment.pfc;
    let at = thresholds(experiment, value)?;
    *at.0 = if pfc { Some(size(value)?) } else { None };
    Ok(())
}

/// Returns the thresholds of PFC, if the switches have them: XOFF's and XON's.
fn thresholds<'e>(
    experiment: &'e mut Experiment,
    value: &Value<'_>,
) -> Result<(&'e mut Option<u64>, &'e mut Option<u64>), ValueError> {
    match &mut experiment.buffers {
        Buffers::InputQueued(InputBuffers { xoff, xon, .. }) | Buffers::Shared(SharedBuffers { xoff, xon, .. }) => {
            Ok((xoff, xon))
        }
        Buffers::Trimming(_) | Buffers::OutputQueued(_) | Buffers::Custom(_) => {
            Err(value.refuse("goes with --switch input-queued or shared-buffer only"))
        }
    }
}

/// Parses XON's threshold, which is at most XOFF's. Ignored without PFC.
fn xon(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let (&mut xoff, _) = thresholds(experiment, value)?;
    if experiment.pfc {
        let shared = matches!(experiment.buffers, Buffers::Shared(_));
        if shared && xoff.is_none() {
            return Err(value.refuse("goes with --pfc-threshold; of a threshold by --pfc-alpha XON is by --pfc-resume"));
        }
        let xoff = xoff.map_or_else(|| experiment.xoff(experiment.longest_packet()?), Ok)?;
        let bytes = value.size(1..=MAX_BYTES, format_args!("at most the threshold, {xoff} bytes: {SIZE}"))?;
        *thresholds(experiment, value)?.1 = Some(bytes);
    }
    Ok(())
}

/// Parses the order in which outputs send: the choice among priorities, or, for output-queued switches, any discipline.
fn scheduling(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    if let Buffers::OutputQueued(discipline) = &mut experiment.buffers {
        let all = Discipline::NAMES;
        let names = all.each_ref().map(|(name, chosen)| (*name, chosen));
        return value.word(&names).map(|chosen| discipline.clone_from(chosen));
    }
    if Discipline::NAMES.iter().any(|(name, _)| *name == value.text) {
        return Err(value.refuse(format!("{} goes with --switch output-queued only", value.text)));
    }
    let ways = [("strict", Scheduling::Strict), ("round-robin", Scheduling::RoundRobin)];
    value.word(&ways).map(|scheduling| experiment.scheduling = scheduling)
}

fn headers(text: &str) -> Option<HeaderBytes> {
    match text.split_once(':') {
        None if text == "real" => Some(HeaderBytes::Real),
        Some(("fixed", bytes)) => bytes.parse().ok().filter(|n| *n <= 1_000).map(HeaderBytes::Fixed),
        _ => None,
    }
}

const ECN: &str =
    "off, step:BYTES, red:KMIN,KMAX,PMAX with PMAX from 0 to 1, or pi:QREF,GAIN,TIME such as pi:100KB,0.005,1ms";

fn ecn(text: &str) -> Option<Ecn> {
    if text == "off" {
        return Some(Ecn::Off);
    }
    match text.split_once(':')? {
        ("step", k) => units::size(k).map(|k| Ecn::Step { k }),
        ("red", rest) => {
            let parts: Vec<&str> = rest.split(',').collect();
            let [kmin, kmax, pmax] = parts[..] else { return None };
            let (kmin, kmax) = (units::size(kmin)?, units::size(kmax)?);
            let pmax = pmax.parse().ok().filter(|p| (0.0..=1.0).contains(p))?;
            (kmin < kmax && kmax < MAX_BYTES).then_some(Ecn::Red { kmin, kmax, pmax })
        }
        ("pi", rest) => {
            let parts: Vec<&str> = rest.split(',').collect();
            let [reference, gain, reset] = parts[..] else { return None };
            let reference = units::size(reference).filter(|bytes| (1..=MAX_BYTES).contains(bytes))?;
            let gain = gain.parse().ok().filter(|gain| *gain > 0.0 && *gain <= 1.0)?;
            let reset = units::time(reset).filter(|ns| (1_000..=MAX_NS).contains(ns))?;
            Some(Ecn::Pi(PiConfig::new(reference, gain, reset)))
        }
        _ => None,
    }
}

/// Parses parameters of congestion points: `qref=75KB,t=100us`.
fn points(value: &Value<'_>) -> Result<RoccConfig, ValueError> {
    const NAMES: &str = "qref, qmid, qmax, chunk, alpha, beta, t, fraction, table, entries, age, sample or compute, such \
                         as qref=75KB,t=100us";
    let gain = |text: &str| text.parse().ok().filter(|gain| (0.0..=1000.0).contains(gain));
    let size = |text: &str| units::size(text).filter(|bytes| (1..=MAX_BYTES).contains(bytes));
    let mut points = RoccConfig::default();
    let mut table = TableKeys::default();
    for pair in pairs(value.text) {
        let Ok(Value { key, text }) = pair else { return Err(value.wrong(NAMES)) };
        let (read, expected) = match key {
            "qref" | "qmid" | "qmax" | "chunk" => {
                let bytes = size(text);
                *match key {
                    "qref" => &mut points.qref,
                    "qmid" => &mut points.qmid,
                    "qmax" => &mut points.qmax,
                    _ => &mut points.chunk,
                } = bytes;
                (bytes.is_some(), "a size such as 75KB")
            }
            "alpha" | "beta" => {
                let gain = gain(text);
                *if key == "alpha" { &mut points.alpha } else { &mut points.beta } = gain;
                (gain.is_some(), "a number from 0 to 1000, such as 0.3")
            }
            "t" => {
                points.period = units::time(text).filter(|ns| (1_000..=MAX_NS).contains(ns));
                (points.period.is_some(), "a time such as 40us, 1us or more")
            }
            "fraction" => {
                points.fraction = text.parse().ok().filter(|bits| *bits <= 16);
                (points.fraction.is_some(), "0 to 16 bits")
            }
            "compute" => {
                let who = [("switch", Compute::Switch), ("host", Compute::Host)];
                let who = who.into_iter().find(|(name, _)| *name == text).map(|(_, who)| who);
                points.compute = who.unwrap_or_default();
                (who.is_some(), "switch or host")
            }
            _ => match table.read(key, text) {
                Some(read) => read,
                None => return Err(value.wrong(NAMES)),
            },
        };
        if !read {
            return Err(value.refuse(format!("{key}={text}: expected {expected}")));
        }
    }
    points.table = table.table().map_err(|why| value.refuse(why))?;
    Ok(points)
}

/// The keys given for a flow table.
#[derive(Default)]
struct TableKeys {
    table: FlowTable,
    entries: Option<u32>,
    age: Option<u64>,
    sample: Option<f64>,
}

impl TableKeys {
    /// Parses a key: whether it is valid, and what was expected; `None` for an unknown key.
    fn read(&mut self, key: &str, text: &str) -> Option<(bool, &'static str)> {
        Some(match key {
            "table" => {
                let kinds = [("queue", FlowTable::Queue), ("age", FlowTable::AGE), ("elephant", FlowTable::ELEPHANT)];
                let kind = kinds.into_iter().find(|(name, _)| *name == text).map(|(_, table)| table);
                self.table = kind.unwrap_or_default();
                (kind.is_some(), "queue, age or elephant")
            }
            "entries" => {
                self.entries = text.parse().ok().filter(|n| (1..=1 << 20).contains(n));
                (self.entries.is_some(), "a number of flows, 1 to 1048576")
            }
            "age" => {
                self.age = units::time(text).filter(|ns| (1_000..=MAX_NS).contains(ns));
                (self.age.is_some(), "a time such as 200us, 1us or more")
            }
            "sample" => {
                self.sample = quotient(text).filter(|share| *share > 0.0 && *share <= 1.0);
                (self.sample.is_some(), "a share of the packets, above 0 to 1, such as 1/16")
            }
            _ => return None,
        })
    }

    /// Returns the table, or the reason why it is invalid.
    fn table(self) -> Result<FlowTable, &'static str> {
        let mut table = self.table;
        match &mut table {
            FlowTable::Queue if self.entries.is_some() || self.age.is_some() || self.sample.is_some() => {
                return Err("entries, age and sample go with table=age or table=elephant");
            }
            FlowTable::Age { .. } if self.sample.is_some() => return Err("sample goes with table=elephant"),
            FlowTable::Queue => {}
            FlowTable::Age { entries, age } => {
                *entries = self.entries;
                *age = self.age.unwrap_or(*age);
            }
            FlowTable::Elephant { entries, sample, age } => {
                *entries = self.entries.unwrap_or(*entries);
                *sample = self.sample.unwrap_or(*sample);
                *age = self.age.unwrap_or(*age);
            }
        }
        Ok(table)
    }
}

/// Parses `down:LINK@1ms`, `up:LINK@2ms` and `rate:LINK=10G@1ms`, separated by commas. A link is a number, counted from
/// 0 in the order of the topology, or its two nodes, `A-B`. `rate:A>B=10G@1ms` applies to one direction.
fn link_events(value: &Value<'_>, topology: &Topology) -> Result<Vec<LinkChange>, ValueError> {
    let mut changes = Vec::new();
    for event in value.text.split(',') {
        let expected = format!(
            "down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME with a rate of 1M or more, LINK being a number below {} \
             or two nodes such as {}",
            topology.links.len(),
            topology.links.last().map_or_else(String::new, |l| format!("{}-{}", topology.id(l.a), topology.id(l.b))),
        );
        changes.push(link_event(event.trim(), topology).ok_or_else(|| value.wrong(expected))?);
    }
    changes.sort_by_key(|c| c.at);
    Ok(changes)
}

fn link_event(text: &str, topology: &Topology) -> Option<LinkChange> {
    let (what, at) = text.split_once('@')?;
    let (kind, link) = what.split_once(':')?;
    let node = |name: &str| topology.node_named(name);
    let (link, what) = match kind {
        "down" => (link, Change::Down),
        "up" => (link, Change::Up),
        "rate" => {
            let (link, rate) = link.split_once('=')?;
            let rate = checks::rate(rate)?;
            match link.split_once('>') {
                None => (link, Change::Rate(rate)),
                Some((from, _)) => (link, Change::RateFrom { node: node(from)?, rate }),
            }
        }
        _ => return None,
    };
    let link = link_named(&link.replacen('>', "-", 1), topology)?;
    Some(LinkChange { at: units::time(at)?, link, what })
}

/// Parses `NODE:DST=VIA`, separated by commas: the switch NODE forwards packets for the host DST, and for all behind
/// the same switch, to its neighbour VIA. Nodes are given by their ids, or by their names in results.
fn detours(value: &Value<'_>, topology: &Topology) -> Result<Vec<Detour>, ValueError> {
    let each = value.text.split(',').map(|text| detour(text.trim(), topology));
    let expected =
        "NODE:DST=VIA, such as s0:h2=s1: the switch NODE hands what is for the host DST to its neighbour VIA";
    each.collect::<Option<_>>().ok_or_else(|| value.wrong(expected))
}

fn detour(text: &str, topology: &Topology) -> Option<Detour> {
    let (node, rest) = text.split_once(':')?;
    let (dst, via) = rest.split_once('=')?;
    let node = topology.node_named(node).filter(|node| !topology.is_host(*node))?;
    let dst = topology.node_named(dst).filter(|dst| topology.is_host(*dst))?;
    let via = topology.node_named(via).filter(|via| !topology.is_host(*via))?;
    topology.ports(node).iter().any(|(_, peer)| *peer == via).then_some(Detour { node, dst, via })
}

/// Returns the number of a link, given by its number or its two nodes, `A-B`. Nodes are given by their ids, or by their
/// names in results, `h0` and `s0`.
pub fn link_named(name: &str, topology: &Topology) -> Option<u32> {
    let link = match name.split_once('-') {
        None => name.parse().ok().filter(|n| *n < topology.links.len())?,
        Some((a, b)) => {
            let ends = (topology.node_named(a)?, topology.node_named(b)?);
            topology.links.iter().position(|l| (l.a, l.b) == ends || (l.b, l.a) == ends)?
        }
    };
    u32::try_from(link).ok()
}
