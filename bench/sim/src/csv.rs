//! Summaries as CSV: a line for each case and seed, with all settings as columns.

use std::io::{self, Write};

use irnic_fabric::experiment::{Case, KEYS};
use irnic_fabric::summary::Summary;
use irnic_report::csv;

use crate::execute::{Batch, Run};
use crate::results::ending;
use crate::summary_json::MEANS;

/// A count of a run, with its name.
type Count = (&'static str, fn(&Summary) -> u64);

/// Counts of a run.
const COUNTS: [Count; 15] = [
    ("flows", |s| s.all.flows),
    ("complete", |s| s.all.complete),
    ("bytes", |s| s.all.bytes),
    ("ended_ns", |s| s.ended),
    ("sent_packets", |s| s.sent),
    ("dropped_packets", |s| s.dropped),
    ("lost_packets", |s| s.lost),
    ("marked_packets", |s| s.marked),
    ("retransmitted_packets", |s| s.nics.retransmitted_pkts),
    ("timeouts", |s| s.nics.local_ack_timeout_err),
    ("out_of_order_packets", |s| s.nics.out_of_seq_request),
    ("pfc_frames", |s| s.pfc_frames),
    ("paused_ns", |s| s.paused),
    ("peak_queue_bytes", |s| s.peak_queue),
    ("packet_hops", |s| s.packet_hops),
];

/// Writes the runs that have results.
pub fn write(out: &mut impl Write, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    let statistics = COUNTS.iter().map(|(name, _)| *name).chain(MEANS.iter().map(|(name, _)| *name));
    let head = ["case", "seed", "ending"].into_iter().chain(KEYS.iter().map(|key| key.name())).chain(statistics);
    out.write_all(batch.origin.comment().as_bytes())?;
    csv::line(out, head)?;
    for run in runs {
        let Ok(finished) = &run.result else { continue };
        let (case, summary) = (&batch.cases[run.case], &finished.summary);
        let mut fields = vec![case.label.clone(), run.seed.to_string(), ending(finished).to_owned()];
        fields.extend(KEYS.iter().map(|key| value(case, key.name())));
        fields.extend(COUNTS.iter().map(|(_, of)| of(summary).to_string()));
        fields.extend(MEANS.iter().map(|(_, of)| csv::number(of(summary))));
        csv::line(out, fields)?;
    }
    Ok(())
}

/// Returns the value of a key; empty if it has none.
pub fn value(case: &Case, key: &str) -> String {
    case.get(key).map_or_else(String::new, |written| written.text)
}

/// Returns the keys whose values differ between cases: the further columns of files with many lines for each run.
pub fn varied(batch: &Batch) -> Vec<&'static str> {
    let differs = |key: &&str| batch.cases.windows(2).any(|two| value(&two[0], key) != value(&two[1], key));
    KEYS.iter().map(|key| key.name()).filter(differs).collect()
}

/// Returns the fields that each line of a case ends with in such files, with their comma: the values of `keys`.
pub fn tail(case: &Case, keys: &[&str]) -> String {
    keys.iter().map(|key| format!(",{}", csv::field(&value(case, key)))).collect()
}

/// Returns the names of these columns.
pub fn tail_names(keys: &[&str]) -> String {
    keys.iter().map(|key| format!(",{key}")).collect()
}
