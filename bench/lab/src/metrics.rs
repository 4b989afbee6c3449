//! A lab in Prometheus' text format: hosts by the names of node_exporter's infiniband collector, and all ports of the
//! network.

use std::fmt::{Display, Write as _};

use irnic_transports::qp::Counters;

use crate::process_stats::Figures;
use crate::stats::{PortStats, Stats};

/// Returns all metrics.
pub fn text(stats: &Stats) -> String {
    let mut out = String::new();
    hosts(&mut out, stats);
    hardware(&mut out, stats);
    queue_pairs(&mut out, stats);
    lab(&mut out, stats);
    ports(&mut out, stats);
    out
}

/// Formats a metric: its head, and a line for each of `samples`, labels and value.
fn metric<V: Display>(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl Iterator<Item = (String, V)>,
) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = match labels.is_empty() {
            true => writeln!(out, "{name} {value}"),
            false => writeln!(out, "{name}{{{labels}}} {value}"),
        };
    }
}

/// The two directions of each host's link: transmitted and received.
fn hosts(out: &mut String, stats: &Stats) {
    let of_host = |name: &str| name.starts_with('h');
    let sends: Vec<&PortStats> = stats.ports.iter().filter(|port| of_host(&port.from)).collect();
    let is_sent: Vec<&PortStats> = stats.ports.iter().filter(|port| of_host(&port.to)).collect();
    let device = |name: &str| format!("device=\"{name}\",port=\"1\"");
    let mut sent = |name: &str, kind, help: &str, of: &dyn Fn(&PortStats) -> u64| {
        let samples = sends.iter().map(|port| (device(&port.from), of(port)));
        metric(out, &format!("node_infiniband_{name}"), kind, help, samples);
    };
    sent("state_id", "gauge", "State of the port (1: down, 4: active)", &|port| if port.up { 4 } else { 1 });
    sent("physical_state_id", "gauge", "Physical state of the port (2: polling, 5: link up)", &|port| {
        if port.up { 5 } else { 2 }
    });
    sent("rate_bytes_per_second", "gauge", "Maximum signal transfer rate", &|port| port.rate_bps / 8);
    sent("port_data_transmitted_bytes_total", "counter", "Bytes on the wire that the host has sent", &|port| {
        port.bytes
    });
    sent("port_packets_transmitted_total", "counter", "Packets that the host has sent", &|port| port.packets);
    sent("port_transmit_wait_total", "counter", "Nanoseconds for which PFC had stopped the host", &|port| {
        port.paused_ns
    });
    let mut received = |name: &str, help: &str, of: &dyn Fn(&PortStats) -> u64| {
        let samples = is_sent.iter().map(|port| (device(&port.to), of(port)));
        metric(out, &format!("node_infiniband_{name}"), "counter", help, samples);
    };
    received("port_data_received_bytes_total", "Bytes on the wire that were sent to the host", &|port| port.bytes);
    received("port_packets_received_total", "Packets that were sent to the host", &|port| port.packets);
}

/// A NIC counter: node_exporter's name, its meaning here, and the value.
type OfNic = (&'static str, &'static str, fn(&Counters) -> u64);

/// node_exporter's names of hw_counters (collector/infiniband_linux.go) that have an equivalent in irnic.
const OF_NIC: [OfNic; 18] = [
    ("duplicate_requests_packets_total", "Requests received again", |c| c.duplicate_request),
    ("implied_nak_seq_errors_total", "READ responses received ahead of the expected one", |c| c.implied_nak_seq_err),
    ("local_ack_timeout_errors_total", "Retransmission timeouts", |c| c.local_ack_timeout_err),
    ("np_cnp_packets_sent_total", "Congestion notification packets sent", |c| c.np_cnp_sent),
    ("np_ecn_marked_roce_packets_received_total", "Packets received with congestion experienced", |c| {
        c.np_ecn_marked_roce_packets
    }),
    ("out_of_buffer_drops_total", "Messages that found no receive request", |c| c.out_of_buffer),
    ("out_of_sequence_packets_received_total", "Requests received ahead of the expected one", |c| c.out_of_seq_request),
    ("packet_sequence_errors_total", "PSN sequence NAKs received", |c| c.packet_seq_err),
    ("req_remote_access_errors_total", "NAKs of errors received", |c| c.req_remote_errors),
    ("resp_local_length_errors_total", "Work requests that memory protection refused", |c| c.local_protection_errors),
    ("resp_remote_access_errors_total", "Requests that memory protection refused", |c| c.resp_remote_access_errors),
    ("rnr_nak_retry_packets_received_total", "RNR NAKs received", |c| c.rnr_nak_retry_err),
    ("rp_cnp_packets_handled_total", "Congestion notification packets heeded", |c| c.rp_cnp_handled),
    ("rp_cnp_ignored_packets_received_total", "Congestion notification packets ignored", |c| c.rp_cnp_ignored),
    ("rx_atomic_requests_total", "ATOMIC requests received", |c| c.rx_atomic_requests),
    ("rx_read_requests_total", "READ requests received", |c| c.rx_read_requests),
    ("rx_write_requests_total", "WRITE requests received", |c| c.rx_write_requests),
    ("rx_icrc_encapsulated_errors_total", "Packets whose ICRC was wrong", |c| c.rx_icrc_encapsulated),
];

/// The NICs of each host's processes, including ended ones: by node_exporter's names, and all counters by their own
/// names.
fn hardware(out: &mut String, stats: &Stats) {
    let hosts = || stats.counted.iter().enumerate();
    for (name, help, of) in OF_NIC {
        let samples = hosts().map(|(host, c)| (format!("device=\"h{host}\",port=\"1\""), of(c)));
        metric(out, &format!("node_infiniband_{name}"), "counter", help, samples);
    }
    for (at, (name, _, help)) in Counters::default().iter().enumerate() {
        let value = |c: &Counters| c.values().nth(at).unwrap_or(0);
        let samples = hosts().map(|(host, c)| (format!("device=\"h{host}\""), value(c)));
        metric(out, &format!("irnic_lab_nic_{name}_total"), "counter", help, samples);
    }
}

/// Maximum number of queue pairs with metrics of their own: those with most payload. Each new one is another time
/// series for Prometheus to keep.
const QUEUE_PAIRS: usize = 64;

/// A metric of queue pairs: name, kind, help, value.
type OfQp = (&'static str, &'static str, &'static str, fn(&Figures) -> f64);

const OF_QP: [OfQp; 7] = [
    ("transmitted_bytes_total", "counter", "Payload sent, without retransmissions", |f| f.counts.sent_once() as f64),
    ("received_bytes_total", "counter", "Payload received and placed", |f| f.counts.rcvd_bytes as f64),
    ("transmitted_packets_total", "counter", "Packets sent", |f| f.counts.sent_pkts as f64),
    ("retransmitted_packets_total", "counter", "Packets retransmitted", |f| f.counts.retransmitted as f64),
    ("timeouts_total", "counter", "Retransmission timeouts", |f| f.counts.timeouts as f64),
    ("rtt_mean_seconds", "gauge", "Mean of the round trips of requests", |f| f.rtt_ns.mean as f64 / 1e9),
    ("rtt_p99_seconds", "gauge", "What 99 % of the round trips do not exceed", |f| f.rtt_ns.p99 as f64 / 1e9),
];

fn queue_pairs(out: &mut String, stats: &Stats) {
    let all = stats.processes.iter().flat_map(|process| process.queue_pairs.iter().map(move |qp| (process, qp)));
    let mut all: Vec<_> = all.filter(|(_, qp)| !qp.destroyed).collect();
    all.sort_by_key(|(process, qp)| {
        (std::cmp::Reverse(qp.figures.counts.sent_once() + qp.figures.counts.rcvd_bytes), process.host, qp.number)
    });
    all.truncate(QUEUE_PAIRS);
    for (name, kind, help, of) in OF_QP {
        let samples = all.iter().map(|(process, qp)| {
            let peer = qp.peer.as_ref().map_or(String::new(), |peer| peer.place(stats.hosts));
            let (host, pid) = (process.host, process.pid);
            let labels = format!("device=\"h{host}\",process=\"{pid}\",qpn=\"{:#08x}\",peer=\"{peer}\"", qp.number);
            (labels, of(&qp.figures))
        });
        metric(out, &format!("irnic_lab_qp_{name}"), kind, help, samples);
    }
    let living: u64 = stats.processes.iter().map(|process| process.live_queue_pairs).sum();
    let samples = std::iter::once((String::new(), living));
    metric(out, "irnic_lab_queue_pairs", "gauge", "Queue pairs there are, with metrics of their own or not", samples);
}

fn lab(out: &mut String, stats: &Stats) {
    let mut one = |name: &str, kind, help, value: f64| {
        let samples = std::iter::once((String::new(), value));
        metric(out, &format!("irnic_lab_{name}"), kind, help, samples);
    };
    one("time_seconds_total", "counter", "Time of the lab that has passed", stats.lab_ns as f64 / 1e9);
    one("host_time_seconds_total", "counter", "Time of the machine that has passed", stats.host_ns as f64 / 1e9);
    one(
        "late_frames_total",
        "counter",
        "Frames that came too late into the network or to a process",
        stats.late_frames as f64,
    );
    one("worst_lag_seconds", "gauge", "By how much the worst of them did", stats.worst_lag_ns as f64 / 1e9);
    one("overrun_frames_total", "counter", "Frames for which a process had no room", stats.overrun_frames as f64);
    one("frames_total", "counter", "Frames that hosts have sent", stats.frames as f64);
    one("delivered_bytes_total", "counter", "Payload that has reached hosts", stats.delivered_bytes as f64);
    let mut of_host = vec![0u32; stats.hosts as usize];
    stats.processes.iter().for_each(|p| of_host[p.host as usize] += 1);
    let samples = of_host.iter().enumerate().map(|(host, n)| (format!("device=\"h{host}\""), *n));
    metric(out, "irnic_lab_processes", "gauge", "Processes of a host", samples);
}

/// A metric of ports: name, kind, help, value.
type OfPort = (&'static str, &'static str, &'static str, fn(&PortStats) -> f64);

/// The metrics of each direction of each link.
const OF_PORT: [OfPort; 12] = [
    ("up", "gauge", "Whether the link works", |p| f64::from(u8::from(p.up))),
    ("transmitted_bytes_total", "counter", "Bytes on the wire that were sent", |p| p.bytes as f64),
    ("transmitted_packets_total", "counter", "Packets that were sent", |p| p.packets as f64),
    ("queue_bytes", "gauge", "Bytes that wait for the port", |p| p.queue_bytes as f64),
    ("queue_peak_bytes", "gauge", "Most bytes that waited for the port", |p| p.peak_bytes as f64),
    ("dropped_packets_total", "counter", "Packets that arrived by the port and were dropped behind it", |p| {
        p.dropped as f64
    }),
    ("lost_packets_total", "counter", "Packets that were lost on the link", |p| p.lost as f64),
    ("marked_packets_total", "counter", "Packets that were marked with congestion experienced", |p| p.marked as f64),
    ("trimmed_packets_total", "counter", "Packets whose payload was cut off", |p| p.trimmed as f64),
    ("pauses_total", "counter", "XOFF frames that the port has sent", |p| p.pauses as f64),
    ("paused_seconds_total", "counter", "Time for which PFC had stopped the port", |p| p.paused_ns as f64 / 1e9),
    ("paused", "gauge", "Whether PFC has stopped the port", |p| f64::from(u8::from(p.paused))),
];

fn ports(out: &mut String, stats: &Stats) {
    for (name, kind, help, of) in OF_PORT {
        let labels = |port: &PortStats| format!("from=\"{}\",to=\"{}\"", port.from, port.to);
        let samples = stats.ports.iter().map(|port| (labels(port), of(port)));
        metric(out, &format!("irnic_lab_port_{name}"), kind, help, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_sends_what_its_port_sends_and_receives_what_the_switch_sends() {
        let port = |from: &str, to: &str, bytes| PortStats {
            from: from.into(),
            to: to.into(),
            rate_bps: 8_000,
            up: true,
            bytes,
            paused_ns: bytes / 2,
            ..PortStats::default()
        };
        let ports = vec![port("h0", "s0", 70), port("h1", "s0", 0), port("s0", "h0", 30), port("s0", "h1", 4)];
        let text = text(&Stats { hosts: 2, ports, ..Stats::default() });
        for line in [
            "node_infiniband_port_data_transmitted_bytes_total{device=\"h0\",port=\"1\"} 70",
            "node_infiniband_port_data_received_bytes_total{device=\"h0\",port=\"1\"} 30",
            "node_infiniband_port_data_received_bytes_total{device=\"h1\",port=\"1\"} 4",
            "node_infiniband_port_transmit_wait_total{device=\"h0\",port=\"1\"} 35",
            "node_infiniband_rate_bytes_per_second{device=\"h0\",port=\"1\"} 1000",
            "node_infiniband_state_id{device=\"h1\",port=\"1\"} 4",
            "irnic_lab_port_transmitted_bytes_total{from=\"s0\",to=\"h1\"} 4",
            "irnic_lab_processes{device=\"h1\"} 0",
            "irnic_lab_late_frames_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        // Each metric has its type once, before its samples, and names of counters end in `_total`.
        let mut seen = std::collections::HashSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(seen.insert(name.to_owned()), "{name} twice");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                current = name.to_owned();
            } else if !line.starts_with('#') {
                assert_eq!(line.split(['{', ' ']).next(), Some(current.as_str()), "{line}");
            }
        }
    }
}
