//! What the programs of csg-htsim (`htsim_ndp`, `htsim_roce`, …) print.
//!
//! A flow has a line such as `Flow ndp_3_12 flow_id 7 finished at 1712.35 total bytes 2000000`, possibly behind dots
//! and bars that show progress: its name ends in the numbers of its hosts, and the time is that of the last
//! acknowledgement, in microseconds since the start of the run. Bytes are those of whole packets, not the flow's. Other
//! lines are ignored.

use std::path::Path;

use irnic_fabric::input::{Error, Lines};

use super::Completed;

pub fn parse(path: &Path, text: &str) -> Result<Vec<Completed>, Error> {
    const EXPECTED: &str = "Flow NAME_SOURCE_DESTINATION … finished at MICROSECONDS";
    let hosts = |name: &str| {
        let mut numbers = name.rsplit('_').map_while(|part| part.parse::<u32>().ok());
        let (dst, src) = (numbers.next()?, numbers.next()?);
        Some((src, dst))
    };
    let mut all = Vec::new();
    let mut lines = Lines::new(path, text);
    for line in lines.by_ref() {
        let flow = line.columns.windows(2).find(|words| words[0].trim_start_matches(['.', '|']) == "Flow");
        let end = line.columns.windows(3).find(|words| words[..2] == ["finished", "at"]);
        let Some((flow, end)) = flow.zip(end) else { continue };
        let micros = end[2].parse::<f64>().ok().filter(|at| at.is_finite() && *at >= 0.0);
        let ((src, dst), micros) = hosts(flow[1]).zip(micros).ok_or_else(|| line.wrong_line(EXPECTED))?;
        all.push(Completed { src, dst, bytes: None, end: micros * 1e3 });
    }
    if all.is_empty() {
        lines.expect("a line of a flow that ended, as the programs of htsim print it")?;
    }
    Ok(all)
}
