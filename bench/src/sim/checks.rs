//! Refuses what can be read and still cannot be meant: runs that would never end, and values that would say nothing, most of them numbers
//! whose unit was forgotten. Each error says what would be right.

use irnic_fabric::sim::{Change, SimConfig, ideal, packets};
use irnic_fabric::switch::{Ecn, SharedPfc, SwitchConfig, headroom};
use irnic_fabric::topology::{MIN_RATE, Routes, Topology, too_slow};
use irnic_transports::config::Timer;
use irnic_units::{self as units, BitRate, Nanoseconds};

use super::SimError;
use super::settings::{Case, Value};

/// What [`load`] reads, for messages.
pub const LOAD: &str = "a share of the links' rate, above 0: 0.7 is 70 %, 1 is all of it, at most 2";

/// Reads a load. Twice what links carry is as much overload as anybody needs; 7 or 70 are parts of ten or of a hundred.
pub fn load(text: &str) -> Option<f64> {
    text.parse().ok().filter(|load| *load > 0.0 && *load <= 2.0)
}

/// Reads a link's rate.
pub fn rate(text: &str) -> Option<u64> {
    units::rate(text).filter(|rate| too_slow(text, *rate).is_none())
}

/// Bytes on the wire of the longest packet that flows have.
fn full_packet(config: &SimConfig) -> u64 {
    let trains = packets(config.setups[0].mtu.bytes() as u64, &config.setups[0], config.headers);
    trains.into_iter().map(|(wire, _)| u64::from(wire)).max().unwrap_or(0)
}

/// What to suggest for a size in bytes below `least`: the number in KB, if it has no unit and would do then.
fn in_kb(text: &str, least: u64) -> String {
    let bytes = text.parse::<u64>().ok().and_then(|n| n.checked_mul(1_000)).filter(|bytes| *bytes >= least);
    bytes.map_or_else(String::new, |_| format!("; did you mean {text}KB?"))
}

/// Looks at all that a case says, apart from its flows.
pub fn case(case: &Case, named: impl Fn(&str) -> bool, config: &SimConfig) -> Result<(), SimError> {
    buffers(case, config)?;
    marks(case, config)?;
    timeouts(case, named, config)?;
    let transport = &config.setups[0].transport;
    if transport.line_rate < MIN_RATE {
        let rate = BitRate(transport.line_rate);
        return Err(case.value("transport").refuse(format!("line-rate is {rate}; expected a rate of 1M or more")));
    }
    let fastest = config.topology.links.iter().map(|l| l.rate).max().unwrap_or(MIN_RATE);
    let packet = full_packet(config) * 8_000_000_000 / fastest;
    match (case.given("sample"), config.sample) {
        (Some(v), Some(ns)) if ns < packet => {
            Err(v.wrong(format!("{} or more: in less no packet passes", Nanoseconds(packet))))
        }
        _ => Ok(()),
    }
}

/// Whether every packet finds room somewhere, and PFC a reason to act.
fn buffers(case: &Case, config: &SimConfig) -> Result<(), SimError> {
    let packet = full_packet(config);
    let room = |bytes: u64, value: &Value| {
        let few = || value.wrong(format!("room for a packet of {packet} bytes{}", in_kb(&value.text, packet)));
        if bytes < packet { Err(few()) } else { Ok(()) }
    };
    match (&config.switch, case.given("buffer")) {
        (SwitchConfig::InputQueued(c), Some(v)) => room(c.buffer, v)?,
        (SwitchConfig::SharedBuffer(c), Some(v)) => room(c.buffer, v)?,
        _ => {}
    }
    match &config.switch {
        SwitchConfig::InputQueued(c) => match (case.given("pfc-threshold"), c.pfc) {
            (Some(v), Some(at)) if at.xoff >= c.buffer => {
                Err(v.wrong(format!("less than the buffer, {} bytes: what is above it is never reached", c.buffer)))
            }
            _ => Ok(()),
        },
        SwitchConfig::SharedBuffer(c) if c.pfc.is_none() => {
            let most = (c.alpha * c.buffer as f64) as u64;
            let value = case.given("alpha").filter(|_| most < packet);
            value.map_or(Ok(()), |v| {
                Err(v.refuse(format!("{} times {} bytes hold no packet of {packet} bytes", v.text, c.buffer)))
            })
        }
        _ => Ok(()),
    }
}

/// Whether a marking rule looks at queues as they can be.
fn marks(case: &Case, config: &SimConfig) -> Result<(), SimError> {
    let (buffer, inputs, ecn) = match &config.switch {
        SwitchConfig::InputQueued(c) => (c.buffer, most_ports(&config.topology), c.ecn),
        SwitchConfig::SharedBuffer(c) => (c.buffer, 1, c.ecn),
        _ => return Ok(()),
    };
    let (first, last) = match ecn {
        Ecn::Off => return Ok(()),
        Ecn::Step { k } => (k, k),
        Ecn::Red { kmin, kmax, .. } => (kmin, kmax),
    };
    let Some(value) = case.given("ecn") else { return Ok(()) };
    let (packet, room) = (full_packet(config), buffer.saturating_mul(inputs));
    if last < packet {
        let why = format!("{last} bytes are less than one packet of {packet}: every queue is longer");
        return Err(value.refuse(why + "; sizes are such as 120KB"));
    }
    if first >= room {
        return Err(value.refuse(format!("a queue of {first} bytes never comes about in {room} bytes of buffer")));
    }
    Ok(())
}

fn most_ports(topology: &Topology) -> u64 {
    let mut ports = vec![0; topology.nodes() as usize];
    for link in &topology.links {
        ports[link.a as usize] += 1;
        ports[link.b as usize] += 1;
    }
    ports[topology.hosts as usize..].iter().copied().max().unwrap_or(0)
}

/// A timeout that is shorter than a round trip through the empty network has every packet sent again, whatever happens. IRN's short one,
/// which only few packets in flight meet, is looked at if somebody chose it.
fn timeouts(case: &Case, named: impl Fn(&str) -> bool, config: &SimConfig) -> Result<(), SimError> {
    let all = match config.setups[0].transport.timer {
        Timer::Irn { low, high, .. } => {
            let chosen = case.given("rto-low").is_some() || named("rto-low");
            [chosen.then_some(("rto-low", low)), Some(("rto-high", high))]
        }
        Timer::Fixed(Some(rto)) => [Some(("rto-high", rto)), None],
        Timer::Fixed(None) | Timer::Estimated { .. } | Timer::Tcp { .. } => return Ok(()),
    };
    let round_trip = round_trip(config);
    let Some((key, rto)) = all.into_iter().flatten().find(|(_, rto)| *rto < round_trip) else { return Ok(()) };
    let (rto, round_trip) = (Nanoseconds(rto), Nanoseconds(round_trip));
    let why = format!("{rto}, and a round trip through the empty network takes {round_trip}");
    Err(match case.given(key) {
        Some(value) => value.refuse(format!("the timeout is {why}")),
        None if named("rto") => case.value("transport").refuse(format!("the timeout is {why}")),
        None => case
            .value("topology")
            .refuse(format!("the timeout --{key} is {why}; lengthen the one or shorten the other")),
    })
}

/// ns that a full packet and its acknowledgement take through the empty network, on the longest of the shortest paths from the first host.
pub fn round_trip(config: &SimConfig) -> u64 {
    let topology = &config.topology;
    let routes = Routes::compute(topology, &|_| false);
    let [packet, acknowledgement] = [config.setups[0].mtu.bytes() as u64, 0].map(|payload| {
        let trains = packets(payload, &config.setups[0], config.headers);
        trains.into_iter().map(|(wire, _)| (wire, 1)).collect::<Vec<_>>()
    });
    let there_and_back = |dst| {
        let path = routes.path(0, dst)?;
        let links: Vec<_> = topology.along(&path).map(|l| (l.rate, l.delay)).collect();
        Some(ideal(&packet, &links) + ideal(&acknowledgement, &links))
    };
    (1..topology.hosts).filter_map(there_and_back).max().unwrap_or(0)
}

/// Looks at what is known only with the flows. `origin` is where they come from.
pub fn run(case: &Case, origin: &Value, config: &SimConfig) -> Result<(), SimError> {
    set_aside(case, config)?;
    let first = config.flows.first().map_or(0, |flow| flow.start);
    if let Some(until) = case.given("until") {
        let begins = Nanoseconds(first);
        return if config.until > first {
            Ok(())
        } else {
            Err(until.wrong(format!("more than {begins}, when the first flow starts")))
        };
    }
    // Without an end, all flows must come to theirs: those that start when links change no more, on the links that work then.
    let mut down = vec![false; config.topology.links.len()];
    for change in &config.changes {
        match change.what {
            Change::Down => down[change.link as usize] = true,
            Change::Up => down[change.link as usize] = false,
            Change::Rate(_) => {}
        }
    }
    let settled = config.changes.last().map_or(0, |change| change.at);
    let routes = Routes::compute(&config.topology, &|link| down[link]);
    let late = config.flows.iter().filter(|flow| flow.start >= settled);
    match late.into_iter().find(|flow| routes.ports(flow.src, flow.dst).is_empty()) {
        None => Ok(()),
        Some(flow) => {
            let [src, dst] = [flow.src, flow.dst].map(|host| config.topology.id(host));
            let why = format!(
                "there is no way from host {src} to {dst}, to which a flow starts at {}",
                Nanoseconds(flow.start)
            );
            Err(case.given("link-event").unwrap_or(origin).refuse(why + "; with --until the run would end"))
        }
    }
}

/// Whether a shared buffer holds what PFC sets aside for its inputs.
fn set_aside(case: &Case, config: &SimConfig) -> Result<(), SimError> {
    let SwitchConfig::SharedBuffer(c) = &config.switch else { return Ok(()) };
    let Some(SharedPfc { reserve, headroom: given, priorities, .. }) = c.pfc else { return Ok(()) };
    let topology = &config.topology;
    let mut aside = vec![0u64; topology.nodes() as usize];
    for link in &topology.links {
        let each = given.unwrap_or_else(|| headroom(link.rate, link.delay, c.longest)).saturating_add(reserve);
        for node in [link.a, link.b] {
            let all = &mut aside[node as usize];
            *all = all.saturating_add(each.saturating_mul(priorities.into()));
        }
    }
    let most = aside[topology.hosts as usize..].iter().copied().max().unwrap_or(0);
    if most < c.buffer {
        return Ok(());
    }
    let why =
        format!("{} bytes of buffer leave nothing beside {most} of headroom and reserve for all inputs", c.buffer);
    let value = ["buffer", "pfc-headroom", "pfc-reserve"].into_iter().find_map(|key| case.given(key).cloned());
    Err(value.unwrap_or_else(|| case.value("pfc")).refuse(why))
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::super::settings::{Origin, Settings, Values};
    use super::*;

    /// On a small network, if no other is given.
    fn scenario(pairs: &[(&'static str, &str)]) -> Result<SimConfig, String> {
        let value = |key, text: &str| vec![Value { key, text: text.to_owned(), origin: Origin::Flag }];
        let mut common: Values = [("topology", "star:hosts=4"), ("workload", "permutation:bytes=1MB,start=1us")]
            .map(|(key, text)| (key, value(key, text)))
            .into();
        common.extend(pairs.iter().map(|(key, text)| (*key, value(key, text))));
        let cases = Settings { common, runs: Vec::new() }.cases().unwrap();
        Scenario::new(&cases[0], None).and_then(|s| s.config(1)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_would_never_end_or_say_nothing_is_refused_with_what_was_meant() {
        let shared = ("switch", "shared-buffer");
        for (pairs, said) in [
            (&[("buffer", "1")][..], "--buffer 1: expected room for a packet of 1114 bytes"),
            (&[("buffer", "240")], "--buffer 240: expected room for a packet of 1114 bytes; did you mean 240KB?"),
            (&[shared, ("buffer", "9")], "--buffer 9: expected room for a packet of 1114 bytes; did you mean 9KB?"),
            (&[shared, ("alpha", "1e-6")], "--alpha: 1e-6 times 9000000 bytes hold no packet of 1114 bytes"),
            (
                &[shared, ("pfc", "on"), ("buffer", "100KB")],
                "--buffer: 100000 bytes of buffer leave nothing beside 111848 of headroom and reserve for all inputs",
            ),
            (
                &[shared, ("pfc", "on"), ("pfc-reserve", "10MB")],
                "--pfc-reserve: 9000000 bytes of buffer leave nothing beside",
            ),
            (
                &[("pfc", "on"), ("pfc-threshold", "240KB")],
                "--pfc-threshold 240KB: expected less than the buffer, 240000 bytes: what is above it is never reached",
            ),
            (&[("ecn", "step:120")], "--ecn: 120 bytes are less than one packet of 1114: every queue is longer"),
            (&[("ecn", "red:5,200,0.01")], "--ecn: 200 bytes are less than one packet of 1114: every queue is longer"),
            (&[("ecn", "step:1MB")], "--ecn: a queue of 1000000 bytes never comes about in 960000 bytes of buffer"),
            (
                &[("rto-low", "1us")],
                "--rto-low: the timeout is 1us, and a round trip through the empty network takes 8482ns",
            ),
            (&[("transport", "irn,rto-low=1us")], "--transport: the timeout is 1us, and a round trip"),
            (&[("transport", "roce,rto=1us")], "--transport: the timeout is 1us, and a round trip"),
            (
                &[("topology", "star:hosts=4,delay=1s")],
                "--topology: the timeout --rto-high is 320us, and a round trip through the empty network takes 4000000482ns; \
                 lengthen the one or shorten the other",
            ),
            (
                &[("topology", "star:hosts=4,rate=25")],
                "--topology: star: rate=25: expected a rate of 1M or more, 25 being",
            ),
            (
                &[("transport", "irn,line-rate=2"), ("cc", "dcqcn")],
                "--transport: line-rate is 2bit; expected a rate of 1M or more",
            ),
            (&[("link-event", "rate:1=10@1us")], "--link-event rate:1=10@1us: expected "),
            (&[("sample", "1ns")], "--sample 1ns: expected 222ns or more: in less no packet passes"),
            (&[("until", "1us")], "--until 1us: expected more than 1us, when the first flow starts"),
            (
                &[("link-event", "down:1@0")],
                "--link-event: there is no way from host 1 to 0, to which a flow starts at 1us; with --until the run would end",
            ),
        ] {
            let error = scenario(pairs).expect_err(said);
            assert!(error.starts_with(said), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn what_only_looks_odd_is_run() {
        let shared = ("switch", "shared-buffer");
        for pairs in [
            &[("buffer", "1114")][..],
            &[("load", "1.5")],
            &[shared, ("pfc", "on"), ("buffer", "112KB")],
            &[("pfc", "on"), ("pfc-threshold", "1")],
            &[("ecn", "step:1114")],
            &[("rto-low", "9us"), ("rto-high", "9us")],
            &[("topology", "star:hosts=4,delay=30us")],
            // Without timeouts it may take as long as it likes.
            &[("topology", "star:hosts=4,delay=1s"), ("transport", "roce"), ("pfc", "on"), ("buffer", "100GB")],
            &[("topology", "star:hosts=4,rate=10M"), ("rto-low", "10ms"), ("rto-high", "10ms")],
            &[("link-event", "down:1@0"), ("until", "1ms")],
            &[("link-event", "down:1@0, up:1@2us")],
            // The flows began before.
            &[("link-event", "down:1@2us")],
        ] {
            scenario(pairs).unwrap_or_else(|error| panic!("{pairs:?}: {error}"));
        }
    }
}
