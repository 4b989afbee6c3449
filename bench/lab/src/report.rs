//! The report of a lab, as text and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use irnic_fabric::network::{LinkRecord, PortCounters};
use irnic_fabric::topology::Topology;
use irnic_ports::lab::{GuestCounters, IpCounters, Unasked};
use irnic_report::origin::Origin;
use irnic_report::{csv, junit};
use serde_json::{Value, json};

use crate::args::ProgramTime;
use crate::compare::Comparison;
use crate::pairs::Pair;
use crate::process_stats::{Figures, ProcessStats};
use crate::processes::Ended;
use crate::rules::rules;
use crate::settings::Settings;
use crate::view::View;

/// Maximum number of pairs of hosts in the summary.
const PAIRS: usize = 16;
/// How many times slower than real time a lab is from which rates that programs print mislead.
const NOTABLE: f64 = 1.1;

/// The data of a report.
pub struct Report<'a> {
    pub view: View<'a>,
    pub topology: &'a Topology,
    pub settings: &'a Settings,
    /// Elapsed time of the host, ns.
    pub took: u64,
    pub ended: &'a [Ended],
    /// Numbers of the processes.
    pub processes: &'a [ProcessStats],
    pub comparison: Option<&'a Comparison>,
    /// Changes of links and other faults, with their times, ns.
    pub faults: &'a [(u64, String)],
    /// How to get the results again.
    pub origin: &'a Origin,
}

/// The largest delay of a late frame, ns, and the number of late frames: into the network, or at a process.
pub fn lag(view: &View<'_>) -> (u64, u64) {
    let (network, processes) = (view.lab.late(), view.lateness);
    (network.frames + processes.frames, network.worst.max(processes.worst))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Throughput from the first frame that left to the last that arrived, bit/s.
pub fn throughput(pair: &Pair) -> f64 {
    let lasted = pair.last.saturating_sub(pair.first);
    if lasted == 0 { 0.0 } else { pair.bytes as f64 * 8.0 / seconds(lasted) }
}

impl Report<'_> {
    fn sum(&self, of: fn(&PortCounters) -> u64) -> u64 {
        self.view.lab.network().links().map(|link| of(&link.counters)).sum()
    }

    /// Returns a sum over processes.
    fn total(&self, of: fn(&Figures) -> u64) -> u64 {
        self.processes.iter().map(|process| of(&process.total)).sum()
    }

    /// The whole network: times, frames and counters.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.add_times(&mut text);
        self.add_strays(&mut text);
        self.add_counters(&mut text);
        text
    }

    /// Everything for the terminal.
    pub fn text(&self) -> String {
        let mut text = self.summary();
        for (key, value) in &self.settings.resolved {
            let _ = writeln!(text, "  {key}: {value}");
        }
        self.add_pairs(&mut text);
        if let Some(comparison) = self.comparison {
            text += &comparison.text();
        }
        for ended in self.ended.iter().filter(|ended| ended.code() != 0) {
            let _ = writeln!(text, "  {}: exit status {}", ended.name, ended.code());
        }
        let _ = writeln!(text, "  {}", self.origin);
        text
    }

    /// Appends the elapsed times, the lateness of frames, and the jumps of virtual time.
    fn add_times(&self, text: &mut String) {
        let View { lab, lasted, busy, unasked, .. } = &self.view;
        let slower = self.took as f64 / (*lasted).max(1) as f64;
        let ratio = match slower {
            slower if slower < 1.0 => format!("{:.2} times faster", 1.0 / slower),
            slower => format!("{slower:.2} times slower"),
        };
        let _ = writeln!(
            text,
            "lab: {} hosts; {:.3} s of the network's time in {:.3} s, {ratio} than real time",
            lab.hosts(),
            seconds(*lasted),
            seconds(self.took),
        );
        let (late, worst) = lag(&self.view);
        let _ = match late {
            0 => writeln!(text, "  fidelity: no frame was late"),
            late => writeln!(text, "  fidelity: {late} frames were late, the worst by {:.1} us", worst as f64 / 1e3),
        };
        let slower = busy.slower().filter(|slower| *slower >= NOTABLE && unasked.is_none());
        let _ = match (self.settings.program_time, slower) {
            (ProgramTime::Lab, _) => {
                writeln!(text, "  rates that programs print are the network's: they see the lab's time")
            }
            (ProgramTime::Machine, Some(slower)) => writeln!(
                text,
                "  rates that programs print are {slower:.1} times lower than the network's: they measure this machine's time \
                 (--program-time lab)",
            ),
            (ProgramTime::Machine, None) => Ok(()),
        };
        let _ = match unasked {
            None => Ok(()),
            Some(Unasked { jumps, first: Some(first) }) => writeln!(
                text,
                "  virtual time: {jumps} jumps without a poll: not deterministic after {:.6} s",
                seconds(*first),
            ),
            Some(_) => writeln!(text, "  virtual time: no jump without a poll"),
        };
    }

    /// Appends the numbers of frames that found their receiver late, had none, or failed at a guest.
    fn add_strays(&self, text: &mut String) {
        let View { lab, lateness, unclaimed, guests, ip, .. } = &self.view;
        if lateness.overrun > 0 {
            let _ = writeln!(text, "  {} frames found a process that had not run for long", lateness.overrun);
        }
        if *unclaimed > 0 {
            let _ = writeln!(text, "  {unclaimed} frames reached hosts without a process for them");
        }
        for guest in guests.iter().filter(|guest| guest.rx_icrc + guest.overrun + guest.dropped > 0) {
            let GuestCounters { host, rx_icrc, overrun, dropped, .. } = guest;
            let _ = writeln!(
                text,
                "  guest {host}: {rx_icrc} of its packets had a wrong ICRC, {overrun} overran its link; {dropped} overran it"
            );
        }
        if let Some(IpCounters { sent, received, overrun, dropped, .. }) = ip {
            let _ = writeln!(
                text,
                "  IP packets of hosts: {sent} sent, {received} received; {overrun} overran a link, {dropped} dropped at an end"
            );
        }
        if lab.refused() > 0 {
            let _ = writeln!(text, "  {} frames had no destination", lab.refused());
        }
    }

    /// Appends the counters of the network, of the processes and of the fault rules.
    fn add_counters(&self, text: &mut String) {
        let lab = self.view.lab;
        let _ = writeln!(
            text,
            "  frames: {} sent, {} dropped, {} lost, {} marked, {} trimmed; {} pauses, {:.3} ms in all",
            lab.network().totals().injected_packets,
            self.sum(|c| c.dropped),
            self.sum(|c| c.lost),
            self.sum(|c| c.marked),
            self.sum(|c| c.trimmed),
            self.sum(|c| c.pauses),
            self.sum(|c| c.paused) as f64 / 1e6,
        );
        if !self.processes.is_empty() {
            let _ = writeln!(
                text,
                "  processes: {}; packets: {} sent, {} of them again; {} timeouts",
                self.processes.len(),
                self.total(|f| f.counts.sent_pkts),
                self.total(|f| f.counts.retransmitted),
                self.total(|f| f.counts.timeouts),
            );
        }
        for rule in lab.rules() {
            let _ =
                writeln!(text, "  rule {}, {}: {} frames, {} applied", rule.id, rule.rule, rule.matches, rule.applied);
        }
    }

    /// Appends the table of the pairs of hosts with the most traffic.
    fn add_pairs(&self, text: &mut String) {
        let mut list: Vec<_> = self.view.pairs.iter().collect();
        list.sort_by_key(|(src, dst, pair)| (std::cmp::Reverse(pair.bytes), *src, *dst));
        let more = list.len().saturating_sub(PAIRS);
        if !list.is_empty() {
            let _ =
                writeln!(text, "  {:>4} {:>4} {:>10} {:>10} {:>9} {:>9}", "from", "to", "frames", "MB", "s", "Gbit/s");
        }
        for (src, dst, pair) in list.iter().take(PAIRS) {
            let _ = writeln!(
                text,
                "  {src:>4} {dst:>4} {:>10} {:>10.2} {:>9.4} {:>9.3}",
                pair.arrived,
                pair.bytes as f64 / 1e6,
                seconds(pair.last.saturating_sub(pair.first)),
                throughput(pair) / 1e9,
            );
        }
        if more > 0 {
            let _ = writeln!(text, "  and {more} other pairs; --json has them");
        }
    }

    /// Returns the command that started a process, or is the process.
    pub fn command_of(&self, process: &ProcessStats) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.pid == Some(process.group))
    }

    /// Returns the exit status of a process, if it is a command's.
    pub fn status_of(&self, process: &ProcessStats) -> Option<u8> {
        self.command_of(process).filter(|ended| ended.pid == Some(process.pid)).map(Ended::code)
    }

    /// The commands as test cases.
    pub fn cases(&self) -> impl Iterator<Item = junit::Case> {
        self.ended.iter().enumerate().map(|(index, ended)| junit::Case {
            // The same command may run on several hosts.
            name: format!("{}: {}", index + 1, ended.name),
            verdict: match ended.code() {
                0 if ended.pid.is_none() => junit::Verdict::Skipped("not started".into()),
                0 => junit::Verdict::Passed,
                code => junit::Verdict::Failed(format!("exit status {code}")),
            },
            output: String::new(),
            took: Some(ended.took),
        })
    }

    fn process(&self, process: &ProcessStats) -> Value {
        let mut all = json!(process);
        all["command"] = json!(self.command_of(process).map(|ended| &ended.name));
        all["status"] = json!(self.status_of(process));
        all
    }

    fn port(&self, link: &LinkRecord) -> Value {
        let c = &link.counters;
        json!({
            "from": self.topology.label(link.from), "to": self.topology.label(link.to), "rate_bps": link.rate,
            "packets": c.packets, "bytes": c.bytes, "peak_bytes": c.peak, "dropped": c.dropped, "lost": c.lost,
            "marked": c.marked, "trimmed": c.trimmed, "pauses": c.pauses, "paused_ns": c.paused,
        })
    }

    /// Everything, as JSON.
    pub fn json(&self) -> Value {
        let View { lab, pairs, lasted, busy, lateness, unclaimed, .. } = &self.view;
        let (late, worst) = lag(&self.view);
        let links: Vec<Value> = lab.network().links().map(|link| self.port(&link)).collect();
        let pairs = pairs.iter().map(|(src, dst, pair)| {
            json!({
                "from": src, "to": dst, "sent": pair.sent, "arrived": pair.arrived, "bytes": pair.bytes,
                "first_ns": pair.first, "last_ns": pair.last, "throughput_bps": throughput(pair),
            })
        });
        let Settings { pace, program_time, seed, .. } = self.settings;
        let [settings, resolved] = self.settings.json();
        let fault = |(at, what): &(u64, String)| json!({ "at_ns": at, "what": what });
        let mut all = json!({
            "irnic": self.origin.irnic, "command": self.origin.command,
            "settings": settings, "resolved": resolved, "seed": seed,
            "hosts": lab.hosts(),
            "clock": { "kind": pace.clock, "slower": pace.slower },
            "program_time": program_time,
            "lab_ns": lasted, "host_ns": self.took,
            "busy": { "lab_ns": busy.lab, "host_ns": busy.host },
            "late_frames": late, "worst_lag_ns": worst, "overrun_frames": lateness.overrun,
            "unclaimed_frames": unclaimed, "refused_frames": lab.refused(),
            "frames": lab.network().totals().injected_packets,
            "dropped": self.sum(|c| c.dropped), "lost": self.sum(|c| c.lost), "marked": self.sum(|c| c.marked),
            "trimmed": self.sum(|c| c.trimmed), "pauses": self.sum(|c| c.pauses), "paused_ns": self.sum(|c| c.paused),
            "pairs": pairs.collect::<Vec<_>>(),
            "ports": links,
            "processes": self.processes.iter().map(|process| self.process(process)).collect::<Vec<_>>(),
            "comparison": self.comparison.map(Comparison::json),
            "commands": self.ended.iter()
                .map(|ended| json!({ "name": ended.name, "status": ended.pid.map(|_| ended.code()) }))
                .collect::<Vec<_>>(),
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
        });
        let guest = |guest: &GuestCounters| {
            let GuestCounters { host, sent, received, rx_icrc, overrun, dropped, frames, .. } = guest;
            json!({
                "host": host, "sent": sent, "received": received, "icrc_errors": rx_icrc, "overrun": overrun,
                "dropped": dropped,
                "foreign": frames.rx_foreign, "unresolved": frames.tx_unresolved,
            })
        };
        if !self.view.guests.is_empty() {
            all["guests"] = self.view.guests.iter().map(guest).collect();
        }
        if let Some(IpCounters { sent, received, overrun, dropped, .. }) = self.view.ip {
            all["ip"] = json!({ "sent": sent, "received": received, "overrun": overrun, "dropped": dropped });
        }
        if let Some(Unasked { jumps, first }) = self.view.unasked {
            all["jumps_without_poll"] = json!({ "count": jumps, "first_ns": first });
        }
        if !lab.rules().is_empty() {
            all["rules"] = rules(lab.rules());
        }
        all
    }

    /// Writes the statistics of the whole network as CSV.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let (Value::Object(mut report), [Value::Object(mut all), _]) = (self.json(), self.settings.json()) else {
            return Ok(());
        };
        // They are columns of their own.
        report.remove("settings");
        all.extend(report);
        all.insert("sent_packets".to_owned(), self.total(|f| f.counts.sent_pkts).into());
        all.insert("retransmitted_packets".to_owned(), self.total(|f| f.counts.retransmitted).into());
        all.insert("timeouts".to_owned(), self.total(|f| f.counts.timeouts).into());
        all.insert(
            "arrived_bytes".to_owned(),
            self.view.pairs.iter().map(|(_, _, pair)| pair.bytes).sum::<u64>().into(),
        );
        all.insert("failed_commands".to_owned(), self.ended.iter().filter(|ended| ended.code() != 0).count().into());
        let first: Vec<&str> = std::iter::once("seed").chain(self.settings.keys.iter().map(|(key, _)| *key)).collect();
        csv::objects(out, self.origin, &first, &[all])
    }

    /// Writes everything as JSON.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, &self.json())?;
        writeln!(out)
    }
}
