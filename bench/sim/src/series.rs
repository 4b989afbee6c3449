//! Samples of the network over time, as CSV.

use std::io::{self, Write};

use irnic_report::csv::field;

use crate::csv::{tail, tail_names, varied};
use crate::execute::{Batch, Run};

/// Writes the samples of all runs.
pub fn write(out: &mut impl Write, batch: &Batch, runs: &[Run]) -> io::Result<()> {
    let keys = varied(batch);
    out.write_all(batch.origin.comment().as_bytes())?;
    writeln!(
        out,
        "at_ns,buffered_bytes,longest_queue_bytes,paused_ports,active_flows,delivered_bytes,delivered_bps,case,seed{}",
        tail_names(&keys)
    )?;
    for run in runs {
        let Ok(finished) = &run.result else { continue };
        let case = &batch.cases[run.case];
        let (label, settings) = (field(&case.label), tail(case, &keys));
        let mut before = (finished.begins, 0);
        for s in &finished.samples {
            let rate = rate(before, (s.at, s.delivered));
            before = (s.at, s.delivered);
            writeln!(
                out,
                "{},{},{},{},{},{},{rate:.0},{label},{}{settings}",
                s.at, s.buffered, s.longest, s.stopped, s.active, s.delivered, run.seed
            )?;
        }
    }
    Ok(())
}

/// Rate in bit/s between two times in ns, with the bytes delivered by then.
pub fn rate((t0, b0): (u64, u64), (t1, b1): (u64, u64)) -> f64 {
    if t1 > t0 { (b1 - b0) as f64 * 8e9 / (t1 - t0) as f64 } else { 0.0 }
}
