//! The report of a lab: one self-contained HTML file with plots over the lab's time and tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};

use irnic_report::html::plot::{Event, Line, Plot};
use irnic_report::html::{POINTS, begin, buttons, end, figures, peaks, table};
use irnic_report::looks::Look;
use irnic_report::picture::{Axis, Scale, escaped};
use irnic_sim::series::rate;

use crate::process_stats::{Figures, ProcessState, ProcessStats, QueuePair};
use crate::report::{self, Report};
use crate::samples::{PortSample, Samples};
use crate::settings::Settings;

/// Ports of each ranking that are plotted.
const RANKED: usize = 3;
/// Maximum rows of a table.
const ROWS: usize = 200;

/// Writes the report.
pub fn write(out: &mut impl Write, report: &Report<'_>, samples: &Samples) -> io::Result<()> {
    let samples = &samples.busy();
    let ports = shown(samples);
    let mut page = String::new();
    let looks: Vec<Look> = (0..=ports.len()).map(Look::nth).collect();
    begin(&mut page, &format!("irnic lab: {}", report.topology.name), &looks);
    for line in report.summary().lines() {
        let _ = writeln!(page, "<p>{}</p>", escaped(line.trim().trim_start_matches("lab: ")));
    }
    legend(&mut page, report, &ports, &looks);
    let mut plots = plots(samples, &ports, &events(report, samples));
    plots.retain(|plot| plot.lines.iter().any(|line| line.points.iter().any(|point| point.1 > 0.0)));
    figures(&mut page, &plots);
    if let Some(comparison) = report.comparison {
        let text = escaped(&comparison.text());
        let _ = writeln!(page, "<h2>The same flows, simulated</h2>\n<div class=\"scroll\"><pre>{text}</pre></div>");
    }
    pairs(&mut page, report);
    all_ports(&mut page, report);
    commands(&mut page, report);
    processes(&mut page, report);
    queue_pairs(&mut page, report);
    settings(&mut page, report.settings);
    end(&mut page, report.origin, &plots)?;
    out.write_all(page.as_bytes())
}

/// The ports that are plotted: those that sent most, had the longest queues, lost most, and were paused longest.
fn shown(samples: &Samples) -> Vec<usize> {
    let Some(last) = samples.moments().len().checked_sub(1) else { return Vec::new() };
    let ports = samples.ports();
    let longest: Vec<u64> = (0..ports).map(|port| samples.of_port(port).map(|p| p.queued).max().unwrap_or(0)).collect();
    let ended: Vec<&PortSample> = (0..ports).filter_map(|port| samples.of_port(port).nth(last)).collect();
    let rankings: [&dyn Fn(usize) -> u64; 4] =
        [&|port| ended[port].bytes, &|port| longest[port], &|port| ended[port].dropped + ended[port].lost, &|port| {
            ended[port].paused
        }];
    let mut shown = BTreeSet::new();
    for value in rankings {
        let mut order: Vec<usize> = (0..ports).filter(|port| value(*port) > 0).collect();
        order.sort_by_key(|port| (std::cmp::Reverse(value(*port)), *port));
        shown.extend(order.into_iter().take(RANKED));
    }
    shown.into_iter().collect()
}

fn legend(page: &mut String, report: &Report<'_>, ports: &[usize], looks: &[Look]) {
    let links: Vec<_> = report.view.lab.network().links().collect();
    let names = ports.iter().map(|port| {
        let link = &links[*port];
        format!("{} to {}", report.topology.label(link.from), report.topology.label(link.to))
    });
    buttons(page, std::iter::once("all".to_owned()).chain(names), looks);
}

/// The faults during the time that is plotted.
fn events(report: &Report<'_>, samples: &Samples) -> Vec<Event> {
    let last = samples.moments().last().map_or(0, |moment| moment.at);
    let shown = report.faults.iter().filter(|(at, _)| (samples.from()..=last).contains(at));
    shown.map(|(at, text)| Event { at: seconds(samples, *at), text: text.clone() }).collect()
}

/// Indices of moments that delimit as many intervals as a screen shows.
fn ends(samples: &Samples) -> Vec<usize> {
    let n = samples.moments().len();
    let stretch = n.div_ceil(POINTS).max(1);
    (0..n).filter(|at| (at + 1) % stretch == 0 || at + 1 == n).collect()
}

/// A cumulative quantity as a rate: `values` of each moment, times `times`, per second.
fn by_second(samples: &Samples, values: &[u64], times: f64) -> Vec<(f64, f64)> {
    let mut before = (samples.from(), 0);
    let point = |at: usize| {
        let now = (samples.moments()[at].at, values[at]);
        // `rate` counts bits of bytes.
        let point = (seconds(samples, (before.0 + now.0) / 2), rate(before, now) / 8.0 * times);
        before = now;
        point
    };
    ends(samples).into_iter().map(point).collect()
}

/// A cumulative quantity.
fn growing(samples: &Samples, values: &[u64]) -> Vec<(f64, f64)> {
    ends(samples).into_iter().map(|at| (seconds(samples, samples.moments()[at].at), values[at] as f64)).collect()
}

fn seconds(samples: &Samples, at: u64) -> f64 {
    (at - samples.from()) as f64 / 1e9
}

fn plots(samples: &Samples, ports: &[usize], events: &[Event]) -> Vec<Plot> {
    let moments = samples.moments();
    let axis = |label| Axis { label, scale: Scale::Linear };
    let line = |case, points| Line { case, dashed: false, points, spread: Vec::new() };
    let of = |port: usize, of: fn(&PortSample) -> u64| samples.of_port(port).map(of).collect::<Vec<_>>();
    let each = |points: &dyn Fn(usize) -> Vec<(f64, f64)>| {
        ports.iter().zip(1..).map(|(port, case)| line(case, points(*port))).collect::<Vec<_>>()
    };
    // Above some MB, numbers of KB are long.
    let most = moments.iter().map(|m| m.buffered).max().unwrap_or(0);
    let (unit, size) = if most < 10_000_000 { ("KB", 1e3) } else { ("MB", 1e6) };
    let highest = |values: Vec<u64>| {
        peaks(moments.iter().zip(values).map(|(m, v)| (seconds(samples, m.at), v as f64 / size)).collect())
    };
    let delivered: Vec<u64> = moments.iter().map(|m| m.delivered).collect();
    let goodput: Vec<u64> = moments.iter().map(|m| m.goodput).collect();
    let mut received = vec![line(0, by_second(samples, &goodput, 8e-9))];
    if delivered != goodput {
        received.push(Line { dashed: true, ..line(0, by_second(samples, &delivered, 8e-9)) });
    }
    let plot = |id: &'static str, title: &'static str, caption: &'static str, y, lines| Plot {
        id: id.into(),
        title: title.into(),
        caption: caption.into(),
        x: axis("lab time since the first frame [s]"),
        y: axis(y),
        lines,
        events: events.to_vec(),
    };
    vec![
        plot(
            "goodput",
            "Goodput",
            "Payload that reached hosts for the first time; dashed, with retransmissions, if there were any.",
            "Gbit/s",
            received,
        ),
        plot(
            "throughput",
            "Throughput of ports",
            "Bits on the wire: of the busiest ports, and of those that stand out in another plot.",
            "Gbit/s",
            each(&|port| by_second(samples, &of(port, |p| p.bytes), 8e-9)),
        ),
        plot(
            "queues",
            "Queues",
            "Bytes that wait for a port of a switch; in all, those of all switches.",
            unit,
            std::iter::once(line(0, highest(moments.iter().map(|m| m.buffered).collect())))
                .chain(each(&|port| highest(of(port, |p| p.queued))))
                .collect(),
        ),
        plot(
            "dropped",
            "Dropped or lost",
            "Packets up to then that came by the port and were dropped behind it, or were lost on its link.",
            "packets",
            each(&|port| growing(samples, &of(port, |p| p.dropped + p.lost))),
        ),
        plot(
            "marked",
            "Marked",
            "Packets up to then that were marked with congestion experienced.",
            "packets",
            each(&|port| growing(samples, &of(port, |p| p.marked))),
        ),
        plot(
            "paused",
            "Paused",
            "Share of the time for which PFC had stopped a port.",
            "%",
            each(&|port| by_second(samples, &of(port, |p| p.paused), 1e-7)),
        ),
    ]
}

/// Writes what was set, and what follows from it.
fn settings(page: &mut String, settings: &Settings) {
    page.push_str("<h2>Settings</h2>\n<div class=\"scroll\"><table class=\"settings\"><tbody>\n");
    for (name, value) in settings.all() {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escaped(&name), escaped(&value));
    }
    page.push_str("</tbody></table></div>\n");
}

fn pairs(page: &mut String, report: &Report<'_>) {
    let mut pairs: Vec<_> = report.view.pairs.iter().collect();
    pairs.sort_by_key(|(src, dst, pair)| (std::cmp::Reverse(pair.bytes), *src, *dst));
    let head = ["from, to", "frames sent", "arrived", "MB", "s", "Gbit/s"];
    let row = |(src, dst, pair): (u32, u32, &super::pairs::Pair)| {
        vec![
            format!("h{src} h{dst}"),
            pair.sent.to_string(),
            pair.arrived.to_string(),
            format!("{:.2}", pair.bytes as f64 / 1e6),
            format!("{:.4}", pair.last.saturating_sub(pair.first) as f64 / 1e9),
            format!("{:.3}", report::throughput(pair) / 1e9),
        ]
    };
    table(page, "Pairs of hosts", &head, pairs.into_iter().take(ROWS).map(row));
}

fn all_ports(page: &mut String, report: &Report<'_>) {
    let mut links: Vec<_> = report.view.lab.network().links().filter(|link| link.counters.packets > 0).collect();
    links.sort_by_key(|link| (std::cmp::Reverse(link.counters.bytes), link.from, link.to));
    let head = ["port", "packets", "MB", "longest queue [KB]", "dropped", "lost", "marked", "pauses", "paused [ms]"];
    let row = |link: irnic_fabric::network::LinkRecord| {
        let c = link.counters;
        vec![
            format!("{} to {}", report.topology.label(link.from), report.topology.label(link.to)),
            c.packets.to_string(),
            format!("{:.2}", c.bytes as f64 / 1e6),
            format!("{:.1}", c.peak as f64 / 1e3),
            c.dropped.to_string(),
            c.lost.to_string(),
            c.marked.to_string(),
            c.pauses.to_string(),
            format!("{:.3}", c.paused as f64 / 1e6),
        ]
    };
    table(page, "Ports", &head, links.into_iter().take(ROWS).map(row));
}

fn commands(page: &mut String, report: &Report<'_>) {
    let row = |ended: &super::processes::Ended| vec![ended.name.clone(), ended.code().to_string()];
    table(page, "Commands", &["command", "exit status"], report.ended.iter().map(row));
}

fn processes(page: &mut String, report: &Report<'_>) {
    let head = [&["process", "program", "end", "queue pairs"], &FIGURES[..]].concat();
    let row = |process: &ProcessStats| {
        let end = match (report.status_of(process), process.state) {
            (Some(status), _) => format!("exit status {status}"),
            (None, ProcessState::Ended) => "exited".into(),
            (None, _) => "left without a word".into(),
        };
        let queue_pairs = process.live_queue_pairs + process.destroyed_queue_pairs;
        let first = [format!("h{} {}", process.host, process.pid), process.name.clone(), end, queue_pairs.to_string()];
        first.into_iter().chain(figures_of(&process.total)).collect()
    };
    table(page, "Processes", &head, report.processes.iter().take(ROWS).map(row));
}

fn queue_pairs(page: &mut String, report: &Report<'_>) {
    let hosts = report.view.lab.hosts();
    let all = report.processes.iter().flat_map(|process| process.queue_pairs.iter().map(move |qp| (process, qp)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, qp)| std::cmp::Reverse(qp.figures.counts.sent_once() + qp.figures.counts.rcvd_bytes));
    let head = [&["process", "queue pair", "service", "peer"], &FIGURES[..]].concat();
    let row = |(process, qp): (&ProcessStats, &QueuePair)| {
        let peer = qp.peer.as_ref().map_or("-".into(), |peer| format!("{:#08x} at {}", peer.number, peer.place(hosts)));
        let first =
            [format!("h{} {}", process.host, process.pid), format!("{:#08x}", qp.number), qp.service.clone(), peer];
        first.into_iter().chain(figures_of(&qp.figures)).collect()
    };
    table(page, "Queue pairs", &head, all.into_iter().take(ROWS).map(row));
}

/// Heads of the columns of [`figures_of`].
const FIGURES: [&str; 8] =
    ["packets sent", "MB sent", "MB received", "retransmitted", "timeouts", "RNR NAKs", "RTT mean [us]", "p99 [us]"];

/// Packets sent, payload, errors, and round trips. The payload is without retransmissions.
fn figures_of(figures: &Figures) -> [String; 8] {
    let us = |ns: u64| if figures.rtt_ns.samples > 0 { format!("{:.1}", ns as f64 / 1e3) } else { "-".into() };
    [
        figures.counts.sent_pkts.to_string(),
        format!("{:.2}", figures.counts.sent_once() as f64 / 1e6),
        format!("{:.2}", figures.counts.rcvd_bytes as f64 / 1e6),
        figures.counts.retransmitted.to_string(),
        figures.counts.timeouts.to_string(),
        figures.counts.rnr_naks.to_string(),
        us(figures.rtt_ns.mean),
        us(figures.rtt_ns.p99),
    ]
}
