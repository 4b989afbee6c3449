//! Keys of the transport: loss recovery, congestion control, queue pairs, packets.

use irnic_transports::config::{Timer, TransportConfig, WireFormat};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::qp::Service;
use irnic_transports::wire::Mtu;
use irnic_units::keys::{Value, ValueError, words};

use super::key::Key;
use super::parse::parse;
use crate::experiment::{Experiment, Transport};
use crate::sim::{HeaderBytes, QpPolicy};

pub(super) static KEYS: [Key; 15] = [
    Key::new(
        "transport",
        "NAME",
        "Transport (loss recovery, flow control and timers): roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, \
         iwarp or ndp, with parameters as in irn,cap=110; several joined by +, one per part of the workload",
        transports,
    )
    .default("irn")
    .words(|| TransportConfig::PRESETS.to_vec())
    .bare(),
    Key::new(
        "cc",
        "NAME",
        "Congestion control: none, aimd, timely, timely-patched, fast, dcqcn, dcqcn-vendor, dctcp, hpcc or tcp, with \
         parameters as in timely,t-low=50us",
        congestion,
    )
    .unset("none; tcp for iwarp")
    .words(|| words(CongestionConfig::PRESETS)),
    Key::new("mtu", "BYTES", "Payload bytes of a full packet: 256, 512, 1024, 2048, 4096 or 8192", |e, v| {
        v.read(mtu, "256, 512, 1024, 2048, 4096 or 8192 bytes of payload").map(|mtu| e.mtu = mtu)
    })
    .default("1024")
    .words(|| words(&MTUS)),
    Key::new("cap", "PACKETS", "Maximum packets in flight per queue pair, or none", parameter)
        .unset("the transport's; 110 for irn"),
    Key::new("rto-low", "TIME", "RTO_low of IRN, the timeout while few packets are in flight", parameter)
        .unset("100us"),
    Key::new(
        "rto-high",
        "TIME",
        "RTO_high of IRN; RTO of RoCE without PFC (with PFC, RoCE has no timeout)",
        parameter,
    )
    .unset("320us"),
    Key::new("n", "PACKETS", "Use --rto-low up to this many packets in flight", parameter).unset("3"),
    Key::new(
        "slack",
        "HOW",
        "Initial slack of packets, for least-slack scheduling: none; fct:TIME or srpt:TIME, TIME for each packet that the \
         flow has (fct) or has left (srpt); constant:TIME; fair:RATE, RATE for each queue pair; or deadline:TIME, TIME \
         for each flow; as in fct:1s, fair:100M or deadline:2ms",
        parameter,
    )
    .unset("none"),
    Key::new("quantum", "PACKETS", "Round-robin quantum of a NIC, in packets per queue pair", |e, v| {
        v.number(1..=65_536, "1 to 65536 packets").map(|packets| e.quantum = packets)
    })
    .default("1"),
    Key::new("priority", "N", "Priority of generated flows, 0 to 7", |e, v| {
        v.number(0..=7, "a priority, 0 to 7").map(|priority| e.priority = priority)
    })
    .default("0"),
    Key::new(
        "setup-rtts",
        "N",
        "Round trips of connection setup, in an idle network, to add to completion times",
        |e, v| v.number(0..=100, "0 to 100 round trips").map(|rtts| e.setup_rtts = rtts),
    )
    .unset("0"),
    Key::on_off(
        "handshake",
        "Start each flow with a one-round-trip handshake through the network: on or off",
        |e, v| v.switch().map(|on| e.handshake = on),
    )
    .unset("off"),
    Key::new("qps", "HOW", "Queue pairs: per-flow or reused", |e, v| {
        v.word(&QPS).map(|policy| e.qps = policy)
    })
    .default("per-flow")
    .words(|| words(&QPS))
    .sim_only(),
    Key::new(
        "service",
        "rc|uc",
        "Connection type: rc, or uc with open-loop flows, which are sent at the rate of the sender's link without \
         retransmission",
        |e, v| v.word(&SERVICES).map(|service| e.service = service),
    )
    .default("rc")
    .words(|| words(&SERVICES))
    .sim_only(),
    Key::new("headers", "HOW", "Header bytes per packet: real, or fixed:N", |e, v| {
        v.read(headers, "real, or fixed: and bytes for each packet, such as fixed:62")
            .map(|headers| e.headers = headers)
    })
    .default("real")
    .words(|| words(&HEADERS))
    .sim_only(),
];

const QPS: [(&str, QpPolicy); 2] = [("per-flow", QpPolicy::PerFlow), ("reused", QpPolicy::Reused)];

const SERVICES: [(&str, Service); 2] = [("rc", Service::Rc), ("uc", Service::Uc)];

const MTUS: [(&str, Mtu); 6] = [
    ("256", Mtu::B256),
    ("512", Mtu::B512),
    ("1024", Mtu::B1024),
    ("2048", Mtu::B2048),
    ("4096", Mtu::B4096),
    ("8192", Mtu::B8192),
];

fn mtu(text: &str) -> Option<Mtu> {
    let bytes = text.parse().ok()?;
    MTUS.iter().map(|(_, mtu)| *mtu).find(|mtu| mtu.bytes() == bytes)
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

/// Parser of what follows a word.
type ReadHeaders = fn(&str) -> Option<HeaderBytes>;

const HEADERS: [(&str, ReadHeaders); 2] = [
    ("real", |rest| rest.is_empty().then_some(HeaderBytes::Real)),
    ("fixed:", |bytes| bytes.parse().ok().filter(|n| *n <= 1_000).map(HeaderBytes::Fixed)),
];

fn headers(text: &str) -> Option<HeaderBytes> {
    HEADERS.iter().find_map(|(word, read)| read(text.strip_prefix(word)?))
}
