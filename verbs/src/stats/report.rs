//! Statistics as text and as JSON.

use std::fmt::Write;

use irnic_transports::qp::{QpCounts, QpState, QpStats, RttHistogram, Service};
use serde_json::{Map, Value, json};

use super::{DeviceStats, QpRecord};

/// Returns the name of a transport service.
pub fn service(of: Service) -> &'static str {
    match of {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
        Service::XrcInitiator => "XRC send",
        Service::XrcTarget => "XRC recv",
    }
}

/// Returns the name of a queue pair's state: RESET, INIT, RTR, RTS, SQD, SQE or ERR.
pub fn state(of: QpState) -> String {
    format!("{of:?}").to_uppercase()
}

/// Reported percentiles, with their names.
const PERCENTILES: [(f64, &str); 4] = [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")];

/// Returns a time in a suitable unit.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn rtt_text(rtt: &RttHistogram) -> String {
    if rtt.count() == 0 {
        return "not measured".into();
    }
    let mut text = String::new();
    for (p, name) in PERCENTILES {
        let _ = write!(text, "{name} {}, ", time(rtt.percentile(p)));
    }
    text + &format!("max {} ({} samples)", time(rtt.max()), rtt.count())
}

fn qp_text(out: &mut String, name: &str, stats: &QpStats) {
    let QpStats { counts, rtt } = stats;
    let QpCounts { sent_pkts, rcvd_pkts, rx_trimmed, retransmitted, timeouts, rnr_naks, .. } = counts;
    let trimmed = if *rx_trimmed > 0 { format!(", {rx_trimmed} trimmed") } else { String::new() };
    let _ = writeln!(
        out,
        "  {name}: {sent_pkts} packets sent, {rcvd_pkts} received{trimmed}, {retransmitted} retransmitted, {timeouts} timeouts, \
         {rnr_naks} RNR NAKs"
    );
    if rtt.count() > 0 {
        let _ = writeln!(out, "    RTT {}", rtt_text(rtt));
    }
}

fn counts(out: &mut String, name: &str, numbers: impl IntoIterator<Item = (&'static str, u64)>) {
    let nonzero: Vec<String> =
        numbers.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if !nonzero.is_empty() {
        let _ = writeln!(out, "  {name}: {}", nonzero.join(", "));
    }
}

/// Maximum number of queue pairs listed in the text.
const SHOWN: usize = 32;

/// Returns the report as text: zeros are omitted.
pub(super) fn text(devices: &[DeviceStats]) -> String {
    let mut out = String::new();
    for device in devices {
        let c = &device.counters;
        let _ = writeln!(
            out,
            "irnic: {} of process {}: {} packets, {} bytes sent; {} packets, {} bytes received; {} retransmitted, {} timeouts",
            device.name,
            std::process::id(),
            c.sent_pkts,
            c.sent_bytes,
            c.rcvd_pkts,
            c.rcvd_bytes,
            c.retransmitted_pkts,
            c.local_ack_timeout_err
        );
        let _ = writeln!(out, "  transport: {}", device.transport);
        for qp in device.queue_pairs.iter().take(SHOWN) {
            let peer = qp.peer.map_or(String::new(), |(qpn, address)| format!(" to {qpn:#08x} at {address}"));
            qp_text(&mut out, &format!("{} QP {:#08x}{peer}", service(qp.service), qp.number), &qp.stats);
        }
        let all = device.queue_pairs.len() as u64 + device.others.0;
        if all > SHOWN as u64 {
            let _ = writeln!(out, "  … and {} more queue pairs", all - SHOWN as u64);
        }
        if all > 1 {
            qp_text(&mut out, &format!("all {all} queue pairs"), &device.total());
        }
        counts(&mut out, "counters", c.named());
        counts(&mut out, "port", device.port.named());
        if device.port.rx_dropped > 0 {
            let _ = writeln!(
                out,
                "  the socket's buffer was full: it dropped about {} frames; IRNIC_SOCKET_BUFFER asks for a larger one, up to \
                 net.core.rmem_max",
                device.port.rx_dropped
            );
        }
        counts(&mut out, "host", device.host.named());
        counts(&mut out, "frames", device.frames.iter().flat_map(|c| c.named()));
        for (way, c) in ["sent", "received"].into_iter().zip(device.impairments.iter().flatten()) {
            counts(&mut out, &format!("impairments of frames {way}"), c.numbers());
        }
    }
    out
}

fn object(numbers: impl IntoIterator<Item = (&'static str, u64)>) -> Value {
    Value::Object(numbers.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
}

fn qp_numbers(stats: &QpStats) -> Map<String, Value> {
    let QpStats { counts, rtt } = stats;
    let mut map: Map<String, Value> = counts.named().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut times = Map::from_iter([
        ("samples".to_owned(), rtt.count().into()),
        ("min".to_owned(), rtt.min().into()),
        ("mean".to_owned(), rtt.mean().into()),
        ("max".to_owned(), rtt.max().into()),
    ]);
    times.extend(PERCENTILES.map(|(p, name)| (name.to_owned(), rtt.percentile(p).into())));
    map.insert("rtt_ns".into(), Value::Object(times));
    map
}

fn qp_json(qp: &QpRecord) -> Value {
    let mut map = Map::from_iter([
        ("number".to_owned(), qp.number.into()),
        ("service".to_owned(), service(qp.service).into()),
        ("state".to_owned(), state(qp.state).into()),
        ("destroyed".to_owned(), qp.destroyed.into()),
        ("peer".to_owned(), qp.peer.map_or(Value::Null, |(n, a)| json!({ "number": n, "address": a.to_string() }))),
    ]);
    map.extend(qp_numbers(&qp.stats));
    Value::Object(map)
}

/// Returns the complete report as JSON.
pub(super) fn json(devices: &[DeviceStats]) -> Value {
    let one = |device: &DeviceStats| {
        json!({
            "name": device.name,
            "transport": device.transport,
            "counters": object(device.counters.named()),
            "port": object(device.port.named()),
            "host": object(device.host.named()),
            "frames": device.frames.as_ref().map(|c| object(c.named())),
            "impairments": device.impairments.as_ref().map(|[tx, rx]| {
                json!({ "tx": object(tx.numbers()), "rx": object(rx.numbers()) })
            }),
            "queue_pairs": device.queue_pairs.iter().map(qp_json).collect::<Vec<_>>(),
            "other_queue_pairs": device.others.0,
            "total": qp_numbers(&device.total()),
        })
    };
    let command = std::env::args_os().next().unwrap_or_default();
    json!({
        "process": std::process::id(),
        "command": command.to_string_lossy(),
        "devices": devices.iter().map(one).collect::<Vec<_>>(),
    })
}
