//! Rejects experiments that can be parsed but cannot be intended: runs that would never end, and values without effect,
//! most of them numbers with a forgotten unit. Each error says what would be right.

use irnic_transports::Edge;
use irnic_transports::config::Timer;
use irnic_transports::qp::Service;
use irnic_units::keys::ValueError;
use irnic_units::{self as units, BitRate, Nanoseconds};

use super::{Experiment, Transport};
use crate::network::CreditConfig;
use crate::sim::{Change, HeaderBytes, SimConfig, ideal, packets};
use crate::sim::{QpPolicy, QpSetup};
use crate::switch::{
    Ecn, InputQueuedConfig, OutputQueuedConfig, PiConfig, SharedBufferConfig, SharedPfc, SwitchConfig, TrimmingConfig,
    headroom,
};
use crate::topology::{Routes, Topology};
use crate::workload::Loops;

/// Values accepted by [`load`], for messages.
pub(super) const LOAD: &str = "a share of the links' rate, above 0: 0.7 is 70 %, 1 is all of it, at most 2";

/// Parses a load. Twice what links carry is overload enough; 7 or 70 are meant as tenths or percent.
pub(super) fn load(text: &str) -> Option<f64> {
    text.parse().ok().filter(|load| *load > 0.0 && *load <= 2.0)
}

/// Parses a link's rate.
pub(super) fn rate(text: &str) -> Option<u64> {
    units::rate(text).filter(|rate| units::too_slow(text, *rate).is_none())
}

/// Returns the length of the flows' longest packet on the wire, bytes.
pub(super) fn full_packet(setups: &[QpSetup], headers: HeaderBytes) -> u64 {
    let trains = setups.iter().flat_map(|s| packets(s.mtu.bytes() as u64, s, headers));
    trains.map(|(wire, _)| u64::from(wire)).max().unwrap_or(0)
}

/// Returns the suggestion for a size below `least` bytes: the number in KB, if it has no unit and would suffice then.
pub(super) fn in_kb(text: &str, least: u64) -> String {
    let bytes = text.parse::<u64>().ok().and_then(|n| n.checked_mul(1_000)).filter(|bytes| *bytes >= least);
    bytes.map_or_else(String::new, |_| format!("; did you mean {text}KB?"))
}

/// Rejects what makes no sense for any flows.
pub(super) fn network(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    open_loop(experiment)?;
    hosts(experiment, &config.topology)?;
    buffers(experiment, config)?;
    marks(experiment, config)?;
    edge(experiment, config)?;
    for (setup, transport) in config.setups.iter().zip(&experiment.transports) {
        if !setup.is_open_loop() {
            timeouts(experiment, transport, setup, config)?;
        }
        if setup.transport.line_rate < units::MIN_LINK_RATE {
            let rate = BitRate(setup.transport.line_rate);
            let why = format!("line-rate is {rate}; expected a rate of 1M or more");
            return Err(experiment.refuse("transport", why));
        }
    }
    let fastest = config.topology.links.iter().map(|l| l.rate).max().unwrap_or(units::MIN_LINK_RATE);
    let packet = full_packet(&config.setups, config.headers) * 8_000_000_000 / fastest;
    match config.sample.filter(|_| experiment.is_given("sample")) {
        Some(ns) if ns < packet => {
            let expected = format!("{} or more: in less no packet passes", Nanoseconds(packet));
            Err(experiment.wrong("sample", expected))
        }
        _ => Ok(()),
    }
}

/// Rejects hosts that do not have one link.
fn hosts(experiment: &Experiment, topology: &Topology) -> Result<(), ValueError> {
    let mut links = vec![0; topology.hosts as usize];
    for end in topology.links.iter().flat_map(|link| [link.a, link.b]) {
        links.get_mut(end as usize).into_iter().for_each(|n| *n += 1);
    }
    let Some(host) = links.iter().position(|n| *n != 1) else { return Ok(()) };
    let (id, n) = (topology.id(host as u32), links[host]);
    let why = format!(
        "host {id} has {n} links; expected one: hosts with several ports, as in HPCC's ali_32host_10rack.txt, are not \
         supported"
    );
    Err(experiment.refuse("topology", why))
}

/// Rejects options that unreliable or shared connections do not support.
fn open_loop(experiment: &Experiment) -> Result<(), ValueError> {
    let own = experiment.service == Service::Rc && experiment.qps == QpPolicy::PerFlow;
    if experiment.handshake && !own {
        return Err(experiment.refuse("handshake", "goes with --service rc and --qps per-flow only"));
    }
    if experiment.service != Service::Uc {
        return Ok(());
    }
    if experiment.qps == QpPolicy::Reused {
        return Err(experiment.refuse("qps", "flows cannot share an unreliable connection; expected per-flow with uc"));
    }
    let given = ["transport", "cc", "cap", "rto-low", "rto-high", "n"].into_iter().find(|key| experiment.is_given(key));
    given.map_or(Ok(()), |key| Err(experiment.refuse(key, "goes with --service rc only: uc recovers nothing")))
}

/// Rejects buffers that do not hold every packet, and thresholds that PFC never reaches.
fn buffers(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    let packet = full_packet(&config.setups, config.headers);
    if let SwitchConfig::Trimming(TrimmingConfig { data, .. }) = config.switch
        && data < packet
    {
        let hint = in_kb(&experiment.text("data-queue"), packet);
        return Err(experiment.wrong("data-queue", format_args!("room for a packet of {packet} bytes{hint}")));
    }
    let (SwitchConfig::InputQueued(InputQueuedConfig { buffer, .. })
    | SwitchConfig::OutputQueued(OutputQueuedConfig { buffer, .. })
    | SwitchConfig::SharedBuffer(SharedBufferConfig { buffer, .. })) = config.switch
    else {
        return Ok(());
    };
    if experiment.is_given("buffer") && buffer < packet {
        let hint = in_kb(&experiment.text("buffer"), packet);
        return Err(experiment.wrong("buffer", format_args!("room for a packet of {packet} bytes{hint}")));
    }
    if let SwitchConfig::SharedBuffer(SharedBufferConfig { colour: Some(red), .. }) = config.switch {
        let expected = |what: &str| experiment.wrong("colour-threshold", what);
        if red < packet {
            let hint = in_kb(&experiment.text("colour-threshold"), packet);
            return Err(expected(&format!("room for a packet of {packet} bytes{hint}")));
        }
        if red >= buffer {
            return Err(expected(&format!("less than the buffer, {buffer} bytes: more is never in a queue")));
        }
    }
    match &config.switch {
        SwitchConfig::InputQueued(InputQueuedConfig { pfc: Some(at), .. })
            if experiment.is_given("pfc-threshold") && at.xoff >= buffer =>
        {
            let expected = format!("less than the buffer, {buffer} bytes: what is above it is never reached");
            Err(experiment.wrong("pfc-threshold", expected))
        }
        SwitchConfig::SharedBuffer(SharedBufferConfig { pfc: Some(SharedPfc { fixed: Some(at), .. }), .. })
            if at.xoff >= buffer =>
        {
            let expected = format!("less than the buffer, {buffer} bytes: what is above it is never reached");
            Err(experiment.wrong("pfc-threshold", expected))
        }
        SwitchConfig::SharedBuffer(SharedBufferConfig { pfc: None, alpha, .. })
            if experiment.is_given("alpha") && ((alpha * buffer as f64) as u64) < packet =>
        {
            let times = experiment.text("alpha");
            let why = format!("{times} times {buffer} bytes hold no packet of {packet} bytes");
            Err(experiment.refuse("alpha", why))
        }
        _ => Ok(()),
    }
}

/// Rejects transports that use packets' waiting time where no switch reports it.
fn edge(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    let keeps = match &config.switch {
        SwitchConfig::OutputQueued(c) => c.discipline.keeps_slack(),
        SwitchConfig::Custom(_) => true,
        _ => false,
    };
    if keeps || config.setups.iter().all(|setup| setup.transport.edge == Edge::Off) {
        return Ok(());
    }
    let why = "edge goes by what packets have waited, which only --switch output-queued with --scheduling lstf, fq or \
               fq-codel tells";
    Err(experiment.refuse("transport", why))
}

/// Rejects a marking rule outside the possible range of queue lengths.
fn marks(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    let (buffer, inputs, ecn) = match &config.switch {
        SwitchConfig::InputQueued(c) => (c.buffer, most_ports(&config.topology), c.ecn),
        SwitchConfig::SharedBuffer(c) => (c.buffer, 1, c.ecn),
        SwitchConfig::OutputQueued(c) => (c.buffer, 1, c.ecn),
        SwitchConfig::Trimming(_) | SwitchConfig::Policy(_) | SwitchConfig::Custom(_) => return Ok(()),
    };
    let (first, last) = match ecn {
        Ecn::Step { k } => (k, k),
        Ecn::Red { kmin, kmax, .. } => (kmin, kmax),
        Ecn::Pi(PiConfig { reference, .. }) => (reference, reference),
        Ecn::Off => return Ok(()),
    };
    let (packet, room) = (full_packet(&config.setups, config.headers), buffer.saturating_mul(inputs));
    let why = match () {
        () if !experiment.is_given("ecn") => return Ok(()),
        () if last < packet => {
            format!("{last} bytes are less than one packet of {packet}: every queue is longer; sizes are such as 120KB")
        }
        () if first >= room => format!("a queue of {first} bytes never comes about in {room} bytes of buffer"),
        () => return Ok(()),
    };
    Err(experiment.refuse("ecn", why))
}

/// Returns the number of ports of the largest switch.
fn most_ports(topology: &Topology) -> u64 {
    let mut ports = vec![0; topology.nodes() as usize];
    for link in &topology.links {
        ports[link.a as usize] += 1;
        ports[link.b as usize] += 1;
    }
    ports[topology.hosts as usize..].iter().copied().max().unwrap_or(0)
}

/// Rejects a timeout below the round trip of the empty network: every packet would be retransmitted. IRN's short
/// timeout, which applies with only few packets in flight, is checked only if it was given explicitly.
fn timeouts(experiment: &Experiment, given: &Transport, setup: &QpSetup, config: &SimConfig) -> Result<(), ValueError> {
    let all = match setup.transport.timer {
        Timer::Irn { low, high, .. } => {
            let chosen = experiment.is_given("rto-low") || given.gives("rto-low");
            [chosen.then_some(("rto-low", low)), Some(("rto-high", high))]
        }
        Timer::Fixed(Some(rto)) => [Some(("rto-high", rto)), None],
        Timer::Fixed(None) | Timer::Estimated { .. } | Timer::Tcp { .. } => return Ok(()),
    };
    let round_trip = round_trip(&config.topology, setup, config.headers);
    let Some((key, rto)) = all.into_iter().flatten().find(|(_, rto)| *rto < round_trip) else { return Ok(()) };
    let (rto, round_trip) = (Nanoseconds(rto), Nanoseconds(round_trip));
    let why = format!("{rto}, and a round trip through the empty network takes {round_trip}");
    Err(if experiment.is_given(key) {
        experiment.refuse(key, format_args!("the timeout is {why}"))
    } else if given.gives_timer() {
        experiment.refuse("transport", format_args!("the timeout is {why}"))
    } else {
        let why = format!("the timeout --{key} is {why}; lengthen the one or shorten the other");
        experiment.refuse("topology", why)
    })
}

/// Returns the time that a full packet and its acknowledgement take through the empty network, on the longest of the
/// shortest paths from the first host, ns.
pub(super) fn round_trip(topology: &Topology, setup: &QpSetup, headers: HeaderBytes) -> u64 {
    let routes = Routes::compute(topology, &|_| false);
    let [packet, acknowledgement] = [setup.mtu.bytes() as u64, 0].map(|payload| {
        let trains = packets(payload, setup, headers);
        trains.into_iter().map(|(wire, _)| (wire, 1)).collect::<Vec<_>>()
    });
    let there_and_back = |dst| {
        let path = routes.path(0, dst)?;
        let links: Vec<_> = topology.along(&path).map(|l| (l.rate, l.delay)).collect();
        Some(ideal(&packet, &links) + ideal(&acknowledgement, &links))
    };
    (1..topology.hosts).filter_map(there_and_back).max().unwrap_or(0)
}

/// Rejects what can be checked only with the flows.
pub(super) fn run(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    set_aside(experiment, config)?;
    credits(experiment, config)?;
    let first = config.flows.first().filter(|_| config.loops.is_empty()).map_or(0, |flow| flow.start);
    if experiment.is_given("until") {
        let begins = Nanoseconds(first);
        let early = || experiment.wrong("until", format_args!("more than {begins}, when the first flow starts"));
        return if config.until > first { Ok(()) } else { Err(early()) };
    }
    // Without an end time, all flows must be able to complete: those that start after the last link change, on the
    // links that work then.
    let (links, hosts) = (config.topology.links.len(), config.topology.hosts);
    let mut down = vec![false; links];
    for change in config.changes.iter().filter(|change| (change.link as usize) < links) {
        match change.what {
            Change::Down => down[change.link as usize] = true,
            Change::Up => down[change.link as usize] = false,
            Change::Rate(_) | Change::RateFrom { .. } => {}
        }
    }
    let settled = config.changes.last().map_or(0, |change| change.at);
    let routes = Routes::compute(&config.topology, &|link| down[link]);
    let late = config.flows.iter().filter(|f| f.start >= settled && f.src < hosts && f.dst < hosts);
    let looped = config.loops.iter().filter(|l| l.end() > settled).flat_map(Loops::pairs);
    let mut all = late.map(|f| (f.start, f.src, f.dst)).chain(looped.map(|(src, dst)| (settled, src, dst)));
    let Some((start, src, dst)) = all.find(|(_, src, dst)| routes.ports(*src, *dst).is_empty()) else { return Ok(()) };
    let [src, dst] = [src, dst].map(|host| config.topology.id(host));
    let starts = Nanoseconds(start);
    let why = format!(
        "there is no way from host {src} to {dst}, to which a flow starts at {starts}; with --until the run would end"
    );
    Err(experiment.refuse(if experiment.is_given("link-event") { "link-event" } else { experiment.origin() }, why))
}

/// Rejects credit for less than a packet.
fn credits(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    match config.switch.credits() {
        Some(CreditConfig { each, longest }) if each < longest => {
            let expected = format!("{longest} bytes, a packet, for each priority in use; there are {each}");
            Err(experiment.wrong("buffer", expected))
        }
        _ => Ok(()),
    }
}

/// Rejects a shared buffer too small for what PFC reserves for its inputs.
fn set_aside(experiment: &Experiment, config: &SimConfig) -> Result<(), ValueError> {
    let SwitchConfig::SharedBuffer(c) = &config.switch else { return Ok(()) };
    let Some(SharedPfc { reserve, headroom: given, margin, priorities, .. }) = c.pfc else { return Ok(()) };
    let topology = &config.topology;
    let mut aside = vec![0u64; topology.nodes() as usize];
    for link in &topology.links {
        let each = given.unwrap_or_else(|| headroom(link.rate, link.delay, c.longest));
        let each = each.saturating_add(margin).saturating_add(reserve);
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
    let given = ["buffer", "pfc-headroom", "pfc-reserve"].into_iter().find(|key| experiment.is_given(key));
    Err(experiment.refuse(given.unwrap_or("pfc"), why))
}
