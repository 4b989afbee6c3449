//! What the values of a case mean: a network, flows, and a transport.

use irnic_fabric::sim::{Change, ENCAPSULATION, HeaderBytes, LinkChange, QpPolicy, Routing, SimConfig};
use irnic_fabric::switch::{
    Ecn, InputQueuedConfig, Scheduling, SharedBufferConfig, SharedPfc, SwitchConfig, Thresholds, headroom,
};
use irnic_fabric::topology::{LinkSpec, Routes, Topology};
use irnic_fabric::workload::{Flow, Setting, Workload, poisson};
use irnic_transports::config::{FlowControl, Timer, TransportConfig, WireFormat, paper};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::wire::Mtu;
use irnic_units::{self as units, MAX_BYTES};

use super::settings::{Case, Value};
use super::{SimError, checks};

/// Bytes of buffer of an input, IRN §4.3.1.
const INPUT_BUFFER: u64 = 240_000;
/// Bytes of a shared buffer: ConWeave's.
const SHARED_BUFFER: u64 = 9_000_000;
/// α of outputs, ConWeave's and TLT's.
const ALPHA: f64 = 1.0;
/// α of inputs with PFC, ConWeave's.
const PFC_ALPHA: f64 = 1.0 / 16.0;
/// Bytes that an input and priority has for itself, HPCC's.
const PFC_RESERVE: u64 = 4_096;
/// Bytes below the threshold at which a paused neighbour may go on, HPCC's.
const PFC_RESUME: u64 = 3_072;
/// How long flows start, if neither a duration nor a number is given, ns.
const DURATION: u64 = 10_000_000;
/// BTH and ICRC, which every packet has, IRN's extension apart: so that all transports get the same flows.
const BTH_AND_ICRC: u32 = 16;

/// A case made ready: all but its flows.
#[derive(Clone, Debug)]
pub struct Scenario {
    config: SimConfig,
    workload: Workload,
    load: f64,
    duration: Option<u64>,
    flows: Option<u64>,
    header: u32,
    priority: u8,
    /// Whether the window was chosen by the user.
    window_given: bool,
    /// Where the workload comes from, for messages.
    origin: Value,
    /// As it was written, for messages.
    case: Case,
}

impl Scenario {
    /// Reads a case. `sample` is the interval for a case that names none, ns.
    pub fn new(case: &Case, sample: Option<u64>) -> Result<Scenario, SimError> {
        let topology = case.value("topology");
        let topology: Topology = topology.text.parse().map_err(|e| topology.refuse(e))?;
        let (workload, origin) = workload(case)?;
        let pfc = case.value("pfc").switch()?;
        let mut transport = transport(case, pfc)?;
        if let Some(cc) = case.given("cc") {
            transport.congestion = cc.text.parse().map_err(|e| cc.refuse(e))?;
        }
        let named = |key: &str| case.value("transport").text.split(',').any(|part| part.trim_start().starts_with(key));
        if transport.congestion != CongestionConfig::None {
            if !named("line-rate") {
                transport.line_rate = fastest(&topology);
            }
            if !named("base-rtt") {
                transport.base_rtt = round_trip(&topology);
            }
        }
        let headers =
            case.value("headers").read(headers, "real, or fixed: and bytes for each packet, such as fixed:62")?;
        let mtu = case
            .value("mtu")
            .read(|text| Mtu::from_bytes(text.parse().ok()?), "256, 512, 1024, 2048 or 4096 bytes of payload")?;
        let ecn = match case.given("ecn") {
            Some(v) => v.read(ecn, "off, step:BYTES, or red:KMIN,KMAX,PMAX with PMAX from 0 to 1")?,
            None => default_ecn(&transport.congestion, transport.line_rate),
        };
        let based = !named("base-rtt") && transport.congestion.uses_telemetry();
        let scheduling = case
            .value("scheduling")
            .word(&[("strict", Scheduling::Strict), ("round-robin", Scheduling::RoundRobin)])?;
        let placeholder = SwitchConfig::InputQueued(InputQueuedConfig::new(0));
        let mut config = SimConfig::new(topology, Vec::new(), placeholder, transport);
        config.setups[0].mtu = mtu;
        config.headers = headers;
        config.quantum = case
            .value("quantum")
            .read(|text| text.parse().ok().filter(|n| (1..=65_536).contains(n)), "1 to 65536 packets")?;
        config.ect = ecn != Ecn::Off;
        if based {
            // HPCC compares bytes that were sent with what a link can send in a round trip: packets', not that of propagation alone.
            config.setups[0].transport.base_rtt = checks::round_trip(&config);
        }
        config.switch = switch(case, pfc, ecn, scheduling, &config)?;
        config.qps = case.value("qps").word(&[("per-flow", QpPolicy::PerFlow), ("reused", QpPolicy::Reused)])?;
        config.routing = case.value("routing").word(&[
            ("ecmp", Routing::Ecmp),
            ("spray", Routing::Spray),
            ("static", Routing::Static),
        ])?;
        config.carry_bytes = case.value("verify").switch()?;
        config.sample = match case.given("sample") {
            Some(v) => Some(v.read(positive_time, units::TIME)?),
            None => sample,
        };
        if let Some(v) = case.given("until") {
            config.until = v.read(positive_time, units::TIME)?;
        }
        if let Some(v) = case.given("link-event") {
            config.changes = link_events(v, &config.topology)?;
        }
        checks::case(case, named, &config)?;
        let flows =
            case.given("flows-count").map(|v| v.read(count, "a number of flows, 1 to 100,000,000")).transpose()?;
        let duration = match case.given("duration") {
            Some(v) => Some(v.read(positive_time, units::TIME)?),
            None => flows.is_none().then_some(DURATION),
        };
        Ok(Scenario {
            workload,
            load: case.value("load").read(checks::load, checks::LOAD)?,
            duration,
            flows,
            header: match headers {
                HeaderBytes::Real => ENCAPSULATION + BTH_AND_ICRC,
                HeaderBytes::Fixed(bytes) => bytes,
            },
            priority: case.value("priority").read(|t| t.parse().ok().filter(|p| *p < 8), "a priority, 0 to 7")?,
            window_given: case.value("transport").text.contains("window="),
            origin,
            case: case.clone(),
            config,
        })
    }

    /// The run with a seed.
    pub fn config(&self, seed: u64) -> Result<SimConfig, SimError> {
        let setting = Setting {
            topology: &self.config.topology,
            seed,
            load: self.load,
            duration: self.duration,
            flows: self.flows,
            mtu: self.config.setups[0].mtu.bytes() as u32,
            header: self.header,
            priority: self.priority,
        };
        let flows = self.workload.generate(&setting).map_err(|e| self.origin.refuse(e))?;
        if flows.is_empty() {
            return Err(self.origin.refuse("there are no flows; a longer --duration or a higher --load makes some"));
        }
        let mut config = self.config.clone();
        if !self.window_given {
            widen(&mut config.setups[0].transport, &flows, setting.mtu);
        }
        if let SwitchConfig::SharedBuffer(SharedBufferConfig { pfc: Some(pfc), .. }) = &mut config.switch {
            let acks = config.setups[0].transport.ack_priority.map_or(0, |p| 1u8 << p);
            let used = flows.iter().fold(acks, |used, flow| used | 1 << flow.priority);
            pfc.priorities = used.count_ones() as u8;
        }
        config.flows = flows;
        config.seed = seed;
        checks::run(&self.case, &self.origin, &config)?;
        Ok(config)
    }
}

/// Rate of the fastest host's link, bit/s.
fn fastest(topology: &Topology) -> u64 {
    topology.links.iter().filter(|l| l.a.min(l.b) < topology.hosts).map(|l| l.rate).max().unwrap_or(1)
}

/// Propagation on the longest of the shortest paths, there and back, ns.
fn round_trip(topology: &Topology) -> u64 {
    let routes = Routes::compute(topology, &|_| false);
    let one_way = |dst| Some(topology.along(&routes.path(0, dst)?).map(|l| l.delay).sum::<u64>());
    2 * (1..topology.hosts).filter_map(one_way).max().unwrap_or(0)
}

/// Marking that goes with an algorithm unless `--ecn` says otherwise: DCQCN's with its paper's thresholds for 40 Gbit/s, DCTCP's with
/// those of the ns-3 simulators, both in proportion to the rate.
fn default_ecn(congestion: &CongestionConfig, rate: u64) -> Ecn {
    let bytes = |at_40g: u64| (u128::from(at_40g) * u128::from(rate) / 40_000_000_000) as u64;
    match congestion {
        c if !c.uses_ecn() => Ecn::Off,
        c if c.cnp_interval().is_some() => Ecn::Red { kmin: bytes(5_000), kmax: bytes(200_000), pmax: 0.01 },
        _ => Ecn::Step { k: bytes(120_000) },
    }
}

/// Where there is no cap, the longest flow fits into the window, as far as a window goes.
fn widen(transport: &mut TransportConfig, flows: &[Flow], mtu: u32) {
    const MOST: u64 = 65_536;
    if transport.flow == FlowControl::None {
        let longest = flows.iter().map(|f| f.bytes.div_ceil(u64::from(mtu))).max().unwrap_or(1);
        transport.window = longest.min(MOST).next_power_of_two().max(u64::from(transport.window)) as u32;
    }
}

fn workload(case: &Case) -> Result<(Workload, Value), SimError> {
    match (case.given("flows"), case.given("workload")) {
        (Some(flows), Some(_)) => {
            Err(flows.refuse("a workload is given, too; to join them: --workload 'irn-heavy+file:PATH'"))
        }
        (Some(flows), None) => {
            let workload = format!("file:{}", flows.text).parse().map_err(|e| flows.refuse(e))?;
            Ok((workload, flows.clone()))
        }
        _ => {
            let text = case.value("workload");
            Ok((text.text.parse().map_err(|e| text.refuse(e))?, text))
        }
    }
}

fn transport(case: &Case, pfc: bool) -> Result<TransportConfig, SimError> {
    let text = case.value("transport");
    let mut config: TransportConfig = text.text.parse().map_err(|e| text.refuse(e))?;
    let named = text.text.split(',').any(|part| part.trim_start().starts_with("rto"));
    if config.wire == WireFormat::Roce && !named {
        // IRN §4.3.2: with PFC nothing is lost, so RoCE has no timeouts there; without it has RTO_high alone.
        config.timer = Timer::Fixed((!pfc).then_some(paper::RTO_HIGH));
    }
    for key in ["cap", "rto-low", "rto-high", "n"] {
        let Some(value) = case.given(key) else { continue };
        let key = match (key, config.timer) {
            ("rto-high", Timer::Fixed(Some(_))) => "rto",
            ("rto-high", Timer::Fixed(None)) if text.text.starts_with("roce") => continue,
            ("rto-low" | "rto-high" | "n", Timer::Fixed(_) | Timer::Estimated { .. } | Timer::Tcp { .. }) => {
                return Err(value.refuse(format!("{} has not the two timeouts of IRN", text.text)));
            }
            (key, _) => key,
        };
        config.set(key, &value.text).map_err(|e| value.refuse(e))?;
    }
    config.check(false).map_err(|e| text.refuse(e))?;
    Ok(config)
}

fn switch(
    case: &Case,
    pfc: bool,
    ecn: Ecn,
    scheduling: Scheduling,
    config: &SimConfig,
) -> Result<SwitchConfig, SimError> {
    let shared = case.value("switch").word(&[("input-queued", false), ("shared-buffer", true)])?;
    let other = if shared {
        &["pfc-threshold", "xon", "speedup"][..]
    } else {
        &["alpha", "pfc-alpha", "pfc-reserve", "pfc-resume"]
    };
    if let Some(value) = other.iter().find_map(|key| case.given(key)) {
        let kind = if shared { "input-queued" } else { "shared-buffer" };
        return Err(value.refuse(format!("goes with --switch {kind} only")));
    }
    let size = |key: &str, default| case.given(key).map_or(Ok(default), |v| v.read(units::size, units::SIZE));
    let longest = config.longest_packet();
    let room = case.given("pfc-headroom").map(|v| v.read(units::size, units::SIZE)).transpose()?;
    if !shared {
        let buffer = size("buffer", INPUT_BUFFER)?;
        let thresholds = if pfc {
            let links = config.topology.links.iter();
            let room = room.unwrap_or_else(|| links.map(|l| headroom(l.rate, l.delay, longest)).max().unwrap_or(0));
            let xoff = match case.given("pfc-threshold") {
                Some(v) => v.read(units::size, units::SIZE)?,
                None if buffer > room => buffer - room,
                None => {
                    let why = format!(
                        "{buffer} bytes of buffer leave no room for {room} bytes of headroom; enlarge --buffer, or \
                                       choose --pfc-threshold"
                    );
                    return Err(case.value("pfc").refuse(why));
                }
            };
            let xon = match case.given("xon") {
                Some(v) => v.read(units::size, format!("at most the threshold, {xoff} bytes: {}", units::SIZE))?,
                None => xoff.saturating_sub(PFC_RESUME),
            };
            if let Some(v) = case.given("xon").filter(|_| xon > xoff) {
                return Err(v.wrong(format!("at most the threshold, {xoff} bytes")));
            }
            Some(Thresholds { xoff, xon })
        } else {
            None
        };
        let speedup = match case.given("speedup").filter(|v| v.text != "none") {
            Some(v) => Some(v.read(|text| text.parse().ok().filter(|n| *n > 0), "none, or 1 to 65535 outputs")?),
            None => None,
        };
        let mut config = InputQueuedConfig::new(buffer);
        (config.pfc, config.ecn, config.scheduling, config.speedup) = (thresholds, ecn, scheduling, speedup);
        return Ok(SwitchConfig::InputQueued(config));
    }
    let alpha = |key: &str, default| {
        let read = |text: &str| alpha(text);
        case.given(key).map_or(Ok(default), |v| v.read(read, "a number above 0, such as 1, 0.125 or 1/16"))
    };
    let mut config = SharedBufferConfig::new(size("buffer", SHARED_BUFFER)?, longest);
    config.alpha = alpha("alpha", ALPHA)?;
    (config.ecn, config.scheduling) = (ecn, scheduling);
    if pfc {
        // Generated flows have one priority; those of files are counted once they are read.
        let mut pfc = SharedPfc::new(alpha("pfc-alpha", PFC_ALPHA)?);
        pfc.reserve = size("pfc-reserve", PFC_RESERVE)?;
        pfc.resume = size("pfc-resume", PFC_RESUME)?;
        pfc.headroom = room;
        config.pfc = Some(pfc);
    }
    Ok(SwitchConfig::SharedBuffer(config))
}

fn alpha(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/').unwrap_or((text, "1"));
    let alpha = above.parse::<f64>().ok()? / below.parse::<f64>().ok()?;
    (alpha > 0.0 && alpha <= 1e6).then_some(alpha)
}

fn positive_time(text: &str) -> Option<u64> {
    units::time(text).filter(|ns| *ns > 0)
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| (1..=poisson::MAX_FLOWS).contains(n))
}

fn headers(text: &str) -> Option<HeaderBytes> {
    match text.split_once(':') {
        None if text == "real" => Some(HeaderBytes::Real),
        Some(("fixed", bytes)) => bytes.parse().ok().filter(|n| *n <= 1_000).map(HeaderBytes::Fixed),
        _ => None,
    }
}

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
        _ => None,
    }
}

/// `down:LINK@1ms`, `up:LINK@2ms` and `rate:LINK=10G@1ms`, joined by commas. A link is a number, counted from 0 in the order of the
/// topology, or its two nodes, `A-B`.
fn link_events(value: &Value, topology: &Topology) -> Result<Vec<LinkChange>, SimError> {
    let mut changes = Vec::new();
    for event in value.text.split(',') {
        let expected = format!(
            "down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME with a rate of 1M or more, LINK being a number below {} or two nodes such as {}",
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
    let (link, what) = match kind {
        "down" => (link, Change::Down),
        "up" => (link, Change::Up),
        "rate" => {
            let (link, rate) = link.split_once('=')?;
            (link, Change::Rate(checks::rate(rate)?))
        }
        _ => return None,
    };
    let link = match link.split_once('-') {
        None => link.parse().ok().filter(|n| *n < topology.links.len())?,
        Some((a, b)) => {
            let ends = (a.parse().ok()?, b.parse().ok()?);
            let same = |l: &LinkSpec| {
                let (a, b) = (topology.id(l.a), topology.id(l.b));
                (a, b) == ends || (b, a) == ends
            };
            topology.links.iter().position(same)?
        }
    };
    Some(LinkChange { at: units::time(at)?, link: link as u32, what })
}

/// What came of keys that have no fixed default: for reports.
pub fn resolved(config: &SimConfig) -> Vec<(&'static str, String)> {
    let mut all = vec![
        (
            "network",
            format!(
                "{} hosts, {} switches, {} links",
                config.topology.hosts,
                config.topology.switches,
                config.topology.links.len()
            ),
        ),
        ("transport", config.setups[0].transport.to_string()),
    ];
    match &config.switch {
        SwitchConfig::InputQueued(c) => {
            all.push(("buffer", format!("{} bytes for each input", c.buffer)));
            if let Some(n) = c.speedup {
                all.push(("crossbar", format!("each input sends to {n} outputs at a time")));
            }
            if let Some(Thresholds { xoff, xon }) = c.pfc {
                all.push(("pfc", format!("XOFF above {xoff} bytes, XON at {xon}")));
            }
        }
        SwitchConfig::SharedBuffer(c) => {
            all.push(("buffer", format!("{} bytes for each switch, alpha {}", c.buffer, c.alpha)));
            if let Some(p) = &c.pfc {
                all.push((
                    "pfc",
                    format!("alpha {}, reserve {} bytes, XON {} bytes below XOFF", p.alpha, p.reserve, p.resume),
                ));
            }
        }
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Origin, Settings, Values};
    use super::*;

    fn scenario(pairs: &[(&'static str, &str)]) -> Result<SimConfig, String> {
        let value = |key, text: &str| vec![Value { key, text: text.to_owned(), origin: Origin::Flag }];
        let common: Values = pairs.iter().map(|(key, text)| (*key, value(key, text))).collect();
        let cases = Settings { common, runs: Vec::new() }.cases().unwrap();
        Scenario::new(&cases[0], None).and_then(|s| s.config(1)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_default_is_the_papers() {
        let config = scenario(&[("duration", "100us")]).unwrap();
        assert_eq!((config.topology.hosts, config.topology.links[0].rate), (54, 40_000_000_000));
        assert_eq!(config.setups[0].transport, TransportConfig::preset("irn").unwrap());
        let SwitchConfig::InputQueued(switch) = &config.switch else { panic!("{:?}", config.switch) };
        assert_eq!((switch.buffer, switch.pfc), (240_000, None));
        let config = scenario(&[("duration", "100us"), ("pfc", "on"), ("headers", "fixed:0")]).unwrap();
        let SwitchConfig::InputQueued(switch) = &config.switch else { panic!("{:?}", config.switch) };
        // 2 · 2 µs at 40 Gbit/s, three packets, eight PFC frames: not far from the paper's 220 KB.
        assert_eq!(switch.pfc, Some(Thresholds { xoff: 216_416, xon: 216_416 - 3_072 }));
    }

    #[test]
    fn roce_has_a_timer_only_without_pfc_and_a_window_for_its_longest_flow() {
        let roce = |more: &[(&'static str, &str)]| {
            let mut pairs = vec![("transport", "roce"), ("workload", "permutation:bytes=10MB")];
            pairs.extend(more);
            scenario(&pairs).unwrap().setups[0].transport
        };
        assert_eq!(roce(&[]).timer, Timer::Fixed(Some(320_000)));
        assert_eq!(roce(&[]).window, 16_384);
        assert_eq!(roce(&[("rto-high", "1ms")]).timer, Timer::Fixed(Some(1_000_000)));
        assert_eq!(roce(&[("pfc", "on"), ("rto-high", "1ms")]).timer, Timer::Fixed(None));
        assert_eq!(roce(&[("transport", "roce,rto=2ms"), ("pfc", "on")]).timer, Timer::Fixed(Some(2_000_000)));
        assert_eq!(roce(&[("transport", "roce,window=64")]).window, 64);
    }

    #[test]
    fn irns_parameters_have_flags() {
        let config =
            scenario(&[("duration", "100us"), ("rto-low", "50us"), ("rto-high", "1ms"), ("n", "7"), ("cap", "20")]);
        let transport = config.unwrap().setups[0].transport;
        assert_eq!(transport.timer, Timer::Irn { low: 50_000, high: 1_000_000, n: 7 });
        assert_eq!(transport.flow, FlowControl::BdpCap(20));
    }

    #[test]
    fn iwarp_brings_its_controller_and_its_timer() {
        let iwarp = scenario(&[("duration", "100us"), ("transport", "iwarp")]).unwrap().setups[0].transport;
        assert_eq!((iwarp.congestion.to_string(), iwarp.flow), ("tcp".to_owned(), FlowControl::None));
        assert!(matches!(iwarp.timer, Timer::Tcp { .. }));
        let other =
            scenario(&[("duration", "100us"), ("transport", "iwarp"), ("cc", "dctcp")]).unwrap().setups[0].transport;
        assert_eq!(other.congestion.to_string(), "dctcp");
        let refused = scenario(&[("duration", "100us"), ("transport", "iwarp"), ("n", "3")]).unwrap_err().to_string();
        assert!(refused.contains("iwarp has not the two timeouts of IRN"), "{refused}");
    }

    #[test]
    fn hpccs_round_trip_is_that_of_packets() {
        // 4 µs of propagation; a packet of 1024 bytes and 62 + 42, and one without payload, on two links of 40 Gbit/s: 225.6 and 20.8 ns
        // each, rounded up where one arrives.
        let base_rtt = |cc, headers| {
            let pairs = [("topology", "star:hosts=4,delay=1us"), ("duration", "1ms"), ("cc", cc), ("headers", headers)];
            scenario(&pairs).unwrap().setups[0].transport.base_rtt
        };
        assert_eq!(base_rtt("hpcc", "fixed:62"), 4_000 + 452 + 42);
        assert_eq!(base_rtt("timely", "fixed:62"), 4_000);
    }

    #[test]
    fn link_events_name_links_by_number_and_by_nodes() {
        let config = scenario(&[
            ("topology", "star:hosts=4"),
            ("duration", "1ms"),
            ("link-event", "up:3-4@2ms, down:3@1ms,rate:4-0=10G@1.5ms"),
        ]);
        let changes: Vec<_> = config.unwrap().changes.iter().map(|c| (c.at, c.link, c.what)).collect();
        let expected =
            [(1_000_000, 3, Change::Down), (1_500_000, 0, Change::Rate(10_000_000_000)), (2_000_000, 3, Change::Up)];
        assert_eq!(changes, expected);
    }

    #[test]
    fn bad_values_name_flag_value_and_what_is_allowed() {
        let no_flows = "--workload: there are no flows; a longer --duration or a higher --load makes some";
        for (pairs, said) in [
            (
                &[("load", "x")][..],
                "--load x: expected a share of the links' rate, above 0: 0.7 is 70 %, 1 is all of it, at most 2",
            ),
            (&[("load", "0")], "--load 0: expected a share of the links' rate, above 0: 0.7 is 70 %"),
            (&[("load", "7")], "--load 7: expected a share of the links' rate, above 0: 0.7 is 70 %"),
            (&[("load", "0.5,0.7")], "--load 0.5,0.7: expected one value; several are --load 0.5 --load 0.7"),
            (&[("pfc", "on, off")], "--pfc on, off: expected one value; several are --pfc on --pfc off"),
            (&[("cc", "cubic")], "--cc: congestion control \"cubic\" does not exist; choose none, "),
            (&[("pfc", "yes")], "--pfc yes: expected on or off"),
            (&[("switch", "x")], "--switch x: expected input-queued or shared-buffer"),
            (&[("mtu", "1500")], "--mtu 1500: expected 256, 512, 1024, 2048 or 4096 bytes of payload"),
            (&[("alpha", "2")], "--alpha: goes with --switch shared-buffer only"),
            (&[("switch", "shared-buffer"), ("xon", "2")], "--xon: goes with --switch input-queued only"),
            (&[("switch", "shared-buffer"), ("speedup", "2")], "--speedup: goes with --switch input-queued only"),
            (&[("speedup", "0")], "--speedup 0: expected none, or 1 to 65535 outputs"),
            (&[("quantum", "0")], "--quantum 0: expected 1 to 65536 packets"),
            (
                &[("ecn", "red:5KB,1KB,0.1")],
                "--ecn red:5KB,1KB,0.1: expected off, step:BYTES, or red:KMIN,KMAX,PMAX with PMAX from 0 to 1",
            ),
            (
                &[("topology", "ring")],
                "--topology: unknown topology `ring`; known are star, dumbbell, leaf-spine, fat-tree, file:PATH",
            ),
            (
                &[("flows", "f"), ("workload", "incast")],
                "--flows: a workload is given, too; to join them: --workload 'irn-heavy+file:PATH'",
            ),
            (&[("transport", "roce"), ("n", "3")], "--n: roce has not the two timeouts of IRN"),
            (
                &[("transport", "tcp")],
                "--transport: transport \"tcp\" does not exist; choose roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto or iwarp",
            ),
            (&[("rto-low", "1ms")], "--transport: rto-low is longer than rto-high"),
            (&[("pfc", "on"), ("xon", "1MB")], "--xon 1MB: expected at most the threshold, 21"),
            (&[("pfc", "on"), ("buffer", "20KB")], "--pfc: 20000 bytes of buffer leave no room for 23"),
            (
                &[("topology", "star:hosts=2"), ("link-event", "down:2@1ms")],
                "--link-event down:2@1ms: expected down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME with a rate of 1M or more, LINK being a number below 2 or two nodes such as 1-2",
            ),
            (&[("duration", "1ns")], no_flows),
            (&[("duration", "5")], "--duration 5: expected a time such as 2us, 500ns or 1.5ms, up to 3600s"),
            (
                &[("headers", "fixed")],
                "--headers fixed: expected real, or fixed: and bytes for each packet, such as fixed:62",
            ),
        ] {
            let error = scenario(pairs).unwrap_err();
            assert!(error.starts_with(said), "{pairs:?}: {error}");
        }
    }
}
