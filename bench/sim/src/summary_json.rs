//! Summaries of all runs, as JSON. They do not depend on the machine or on run times.

use std::io::{self, Write};

use irnic_fabric::sim::ColourTotals;
use irnic_fabric::summary::{Distribution, Group, Summary, mean_and_confidence};
use irnic_sweep::NoResult;
use serde_json::{Map, Value, json};

use crate::execute::{Batch, Finished, Run, replay};
use crate::results::ending;

/// A statistic of a run, with its name.
pub type Statistic = (&'static str, fn(&Summary) -> f64);

/// Statistics that are averaged over seeds.
pub const MEANS: [Statistic; 10] = [
    ("avg_slowdown", |s| s.all.slowdown.mean),
    ("avg_fct_ns", |s| s.all.fct.mean),
    ("p50_fct_ns", |s| s.all.fct.p50),
    ("p95_fct_ns", |s| s.all.fct.p95),
    ("p99_fct_ns", |s| s.all.fct.p99),
    ("p999_fct_ns", |s| s.all.fct.p999),
    ("max_fct_ns", |s| s.all.fct.max),
    ("goodput_bps", |s| s.goodput),
    ("loss_rate", Summary::loss_rate),
    ("paused_share", Summary::paused_share),
];

/// Writes the summaries.
pub fn write(out: &mut impl Write, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    let cases: Vec<Value> = (0..batch.cases.len()).map(|at| case(batch, at, runs)).collect();
    let all = json!({ "irnic": batch.origin.irnic, "seeds": batch.seeds, "cases": cases });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn case(batch: &Batch, at: usize, runs: &[Run]) -> Value {
    let case = &batch.cases[at];
    let settings: Map<String, Value> = case.all().map(|v| (v.key.to_owned(), v.text.into())).collect();
    let resolved = batch.of_case(at, runs).next().map(|(_, f)| {
        f.resolved.iter().map(|(key, text)| (key.to_string(), text.clone().into())).collect::<Map<_, _>>()
    });
    let mean: Map<String, Value> = MEANS
        .iter()
        .map(|(name, of)| {
            let values: Vec<f64> = batch.of_case(at, runs).map(|(_, f)| of(&f.summary)).collect();
            let (mean, confidence) = mean_and_confidence(&values);
            // One value has none.
            let confidence = (values.len() > 1).then_some(confidence);
            ((*name).to_owned(), json!({ "mean": mean, "confidence95": confidence }))
        })
        .collect();
    let runs = runs.iter().filter(|r| r.case == at).map(|r| match &r.result {
        Ok(finished) => run(r.seed, finished),
        Err(NoResult::Failed(why)) => json!({ "seed": r.seed, "ending": "failed", "error": why }),
        Err(NoResult::Interrupted) => json!({ "seed": r.seed, "ending": "interrupted" }),
        Err(NoResult::NeverBegun) => json!({ "seed": r.seed, "ending": "never-begun" }),
        Err(NoResult::Missing) => json!({ "seed": r.seed, "ending": "missing" }),
    });
    let runs: Vec<Value> = runs.collect();
    let command = replay(case, batch.seeds[0]);
    json!({ "label": case.label, "command": command, "settings": settings, "resolved": resolved, "over_seeds": mean, "runs": runs })
}

fn run(seed: u64, finished: &Finished) -> Value {
    let s = &finished.summary;
    let by_size = s.by_size.iter().map(|b| {
        let mut value = group(&b.group);
        value["above_bytes"] = b.above.into();
        value["up_to_bytes"] = b.up_to.into();
        value
    });
    // Counters of disabled features are omitted.
    let may_be_off = ["tlt_", "tlp_", "rc3_", "overlap_", "rx_other_"];
    let counted = |(name, n, _): &(&str, u64, _)| *n > 0 || !may_be_off.iter().any(|of| name.starts_with(of));
    let counters: Map<String, Value> =
        s.nics.iter().filter(counted).map(|(name, n, _)| (name.to_owned(), n.into())).collect();
    let mut value = json!({
        "seed": seed,
        "ending": ending(finished),
        "deadlock": finished.deadlock,
        "ended_ns": s.ended,
        "all": group(&s.all),
        "by_size": by_size.collect::<Vec<_>>(),
        "by_class": s.by_class.iter().map(group).collect::<Vec<_>>(),
        "goodput_bps": s.goodput,
        "sent_packets": s.sent,
        "dropped_packets": s.dropped,
        "lost_packets": s.lost,
        "marked_packets": s.marked,
        "retransmitted_packets": s.nics.retransmitted_pkts,
        "timeouts": s.nics.local_ack_timeout_err,
        "out_of_order_packets": s.nics.out_of_seq_request,
        "pfc_frames": s.pfc_frames,
        "paused_ns": s.paused,
        "paused_share": s.paused_share(),
        "peak_queue_bytes": s.peak_queue,
        "packet_hops": s.packet_hops,
        "events": s.events,
        "nic_counters": counters,
    });
    if let Some(calls) = &s.calls {
        value["calls"] = json!({ "complete": calls.count, "time_ns": distribution(calls) });
    }
    if let Some(drained) = s.drained {
        value["drained_packets"] = drained.into();
    }
    if let Some(escape) = &s.escape {
        let counters = escape.iter().map(|(name, n)| (name.to_owned(), n.into()));
        value["escape"] = counters.collect::<Map<String, Value>>().into();
    }
    if let Some(breaker) = &s.breaker {
        let counters = breaker.iter().map(|(name, n)| (name.to_owned(), n.into()));
        value["breaker"] = counters.collect::<Map<String, Value>>().into();
    }
    if let Some(c) = &s.colours {
        value["colours"] = colours(c);
    }
    value
}

fn colours(c: &ColourTotals) -> Value {
    json!({
        "red_packets": c.red.0,
        "red_bytes": c.red.1,
        "green_data_packets": c.green_data.0,
        "green_data_bytes": c.green_data.1,
        "control_packets": c.control.0,
        "control_bytes": c.control.1,
        "red_dropped": c.red_dropped,
        "green_data_dropped": c.green_dropped,
        "control_dropped": c.control_dropped,
        "green_loss_rate": c.green_loss_rate(),
        "red_peak_bytes": c.red_peak,
    })
}

fn group(g: &Group) -> Value {
    json!({
        "flows": g.flows,
        "complete": g.complete,
        "bytes": g.bytes,
        "fct_ns": distribution(&g.fct),
        "slowdown": distribution(&g.slowdown),
    })
}

fn distribution(d: &Distribution) -> Value {
    json!({ "mean": d.mean, "p50": d.p50, "p95": d.p95, "p99": d.p99, "p999": d.p999, "max": d.max })
}
