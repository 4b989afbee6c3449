//! What the programs of csg-htsim (`htsim_ndp`, `htsim_roce`, …) print.
//!
//! A flow has a line such as `Flow ndp_3_12 flow_id 1000000000 finished at 1712.35 total bytes 2000000`: its name ends
//! in the numbers of its hosts, and the time is that of the last acknowledgement, in microseconds since the start of the
//! run. Bytes are those of whole packets, not the flow's. Other lines are ignored.

use std::path::Path;

use irnic_fabric::input::{Error, Lines};

use super::Completed;

pub fn parse(path: &Path, text: &str) -> Result<Vec<Completed>, Error> {
    let mut all = Vec::new();
    let mut lines = Lines::new(path, text);
    for line in lines.by_ref().filter(|line| line.columns[0] == "Flow") {
        const EXPECTED: &str = "Flow NAME_SOURCE_DESTINATION … finished at MICROSECONDS";
        let wrong = || line.wrong_line(EXPECTED);
        let hosts = |name: &str| {
            let mut numbers = name.rsplit('_').map_while(|part| part.parse::<u32>().ok());
            let (dst, src) = (numbers.next()?, numbers.next()?);
            Some((src, dst))
        };
        let (src, dst) = line.columns.get(1).and_then(|name| hosts(name)).ok_or_else(wrong)?;
        let at = line.columns.windows(3).find(|words| words[..2] == ["finished", "at"]).ok_or_else(wrong)?[2];
        let micros = at.parse::<f64>().ok().filter(|at| at.is_finite() && *at >= 0.0).ok_or_else(wrong)?;
        all.push(Completed { src, dst, bytes: None, end: micros * 1e3 });
    }
    if all.is_empty() {
        lines.expect("a line of a flow that ended, as the programs of htsim print it")?;
    }
    Ok(all)
}
