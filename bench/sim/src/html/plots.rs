//! The plots: flows' completion times, and the network over time.

use std::ops::Range;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::Sample;
use irnic_fabric::summary::percentile;
use irnic_report::html::plot::{Event, Line, Plot};
use irnic_report::html::{POINTS, peaks};
use irnic_report::picture::{Axis, Scale};

use super::sampled;
use crate::execute::{Batch, Run};
use crate::series::rate;

/// Maximum number of flow sizes with a point each; beyond that, sizes are grouped into this many ranges with about the
/// same number of flows.
const SIZES: usize = 20;
/// Caption of the plot of slowdowns.
const SLOWDOWN: &str = "FCT in units of that in an empty network; mean, and 99th percentile dashed. A point is all \
     flows of a size, or of sizes that are together as many as others; it stands at their median.";

/// Returns the plots that have something to show.
pub fn all(batch: &Batch, runs: &[Run]) -> Vec<Plot> {
    let lines = Lines { batch, runs };
    let mut all = flow_plots(lines);
    all.extend(network_plots(lines));
    all.retain(|plot| plot.lines.iter().any(|line| !line.points.is_empty()));
    all
}

/// Returns the plots of flows' completion times; that by size only if there are several.
fn flow_plots(lines: Lines<'_>) -> Vec<Plot> {
    let mut all = vec![Plot {
        id: "fct-cdf".into(),
        title: "Flow completion time".into(),
        caption: "Share of flows that took at most so long.".into(),
        x: axis("FCT [ms]", Scale::Log),
        y: axis("share of flows", Scale::Linear),
        lines: lines.each(|case| cdf(lines.batch, lines.runs, case)),
        events: Vec::new(),
    }];
    let by_size = lines.by_size();
    let mut sizes = by_size.iter().flat_map(|line| &line.points).map(|point| point.0);
    let first = sizes.next();
    if sizes.any(|size| Some(size) != first) {
        all.push(Plot {
            id: "slowdown".into(),
            title: "Slowdown by size".into(),
            caption: SLOWDOWN.into(),
            x: axis("flow size [bytes]", Scale::Log),
            y: axis("slowdown", Scale::Log),
            lines: by_size,
            events: Vec::new(),
        });
    }
    all
}

/// Returns the plots of the network over time; that of paused ports only if there were any.
fn network_plots(lines: Lines<'_>) -> Vec<Plot> {
    let events = lines.events();
    let plot = |id: &'static str, title: &'static str, caption: &'static str, y, all| Plot {
        id: id.into(),
        title: title.into(),
        caption: caption.into(),
        x: axis("time since the first flow [ms]", Scale::Linear),
        y: axis(y, Scale::Linear),
        lines: all,
        events: events.clone(),
    };
    let mut all = vec![plot(
        "goodput",
        "Goodput",
        "Payload that NICs have taken, without repetitions.",
        "Gbit/s",
        lines.each(|case| rates(lines.samples(case).0, lines.samples(case).1)),
    )];
    let most = lines.samples_of_all().map(|s| s.longest).max().unwrap_or(0);
    let (unit, size) = unit(most);
    let longest = |title, caption| plot("longest", title, caption, unit, lines.over_time(|s| s.longest as f64 / size));
    // Less than a hundredth is below the width of a line.
    if lines.samples_of_all().all(|s| (s.buffered - s.longest) * 100 <= most) {
        all.push(longest("Queue", "Bytes that wait for the port for which nearly all wait."));
    } else {
        all.push(longest("Longest queue", "Bytes that wait for the port for which most wait."));
        let (unit, size) = self::unit(lines.samples_of_all().map(|s| s.buffered).max().unwrap_or(0));
        let buffered = lines.over_time(|s| s.buffered as f64 / size);
        all.push(plot("buffered", "Queued in all switches", "Bytes in all buffers together.", unit, buffered));
    }
    let active = lines.over_time(|s| f64::from(s.active));
    all.push(plot("active", "Flows under way", "Begun, and not known to be complete.", "flows", active));
    if lines.samples_of_all().any(|s| s.stopped > 0) {
        let paused = lines.over_time(|s| f64::from(s.stopped));
        all.push(plot("paused", "Paused ports", "Ports that PFC has stopped.", "ports", paused));
    }
    all
}

/// Returns the unit for sizes up to `most` bytes, and its bytes.
fn unit(most: u64) -> (&'static str, f64) {
    if most < 10_000_000 { ("KB", 1e3) } else { ("MB", 1e6) }
}

/// Returns an axis.
fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

/// The runs whose results become lines of plots.
#[derive(Copy, Clone)]
struct Lines<'a> {
    batch: &'a Batch,
    runs: &'a [Run],
}

impl<'a> Lines<'a> {
    /// Returns the numbers of the cases.
    fn cases(self) -> Range<usize> {
        0..self.batch.cases.len()
    }

    /// Returns a line of each case, with the points that `of` returns for it.
    fn each(self, of: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
        self.cases().map(|case| Line { case, dashed: false, points: of(case), spread: Vec::new() }).collect()
    }

    /// Returns the samples of a case, and the start of its first flow, ns.
    fn samples(self, case: usize) -> (u64, &'a [Sample]) {
        sampled(self.batch, self.runs, case).map_or((0, &[][..]), |(_, f)| (f.begins, &f.samples[..]))
    }

    /// Returns the samples of all cases.
    fn samples_of_all(self) -> impl Iterator<Item = &'a Sample> {
        self.cases().flat_map(move |case| self.samples(case).1)
    }

    /// Returns the changes of links and policies of all cases, those of several cases once.
    fn events(self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        for case in self.cases() {
            let (begins, samples) = self.samples(case);
            let Some(last) = samples.last() else { continue };
            let shown = |(at, text): (u64, String)| {
                let is_shown = at >= begins && at <= last.at;
                is_shown.then(|| Event { at: (at - begins) as f64 / 1e6, text })
            };
            for event in happenings(&self.batch.experiments[case]).filter_map(shown) {
                if !all.contains(&event) {
                    all.push(event);
                }
            }
        }
        all.sort_by(|a, b| a.at.total_cmp(&b.at));
        all
    }

    /// Returns a line of each case over ms since its first flow: the peaks of what `of` returns for its samples.
    fn over_time(self, of: impl Fn(&Sample) -> f64) -> Vec<Line> {
        self.each(|case| {
            let (begins, samples) = self.samples(case);
            peaks(samples.iter().map(|s| ((s.at - begins) as f64 / 1e6, of(s))).collect())
        })
    }

    /// Returns lines of slowdowns over sizes: the mean of each case, then the 99th percentile of each, dashed.
    fn by_size(self) -> Vec<Line> {
        let line = |case: usize, dashed: bool| {
            let bins = slowdowns(self.batch, self.runs, case).into_iter();
            let points = bins.map(|(size, mean, p99)| (size, if dashed { p99 } else { mean })).collect();
            Line { case, dashed, points, spread: Vec::new() }
        };
        self.cases().map(|case| line(case, false)).chain(self.cases().map(|case| line(case, true))).collect()
    }
}

/// Returns what an experiment changes in its course, with the times, ns.
fn happenings(experiment: &Experiment) -> impl Iterator<Item = (u64, String)> {
    let links = experiment.changes.iter().map(|change| (change.at, change.describe(&experiment.topology)));
    links.chain(experiment.policy_changes.iter().map(|(at, _)| (*at, "other policy".to_owned())))
}

/// The distribution over the flows of all seeds, in ms.
fn cdf(batch: &Batch, runs: &[Run], case: usize) -> Vec<(f64, f64)> {
    let flows = batch.of_case(case, runs).flat_map(|(_, f)| &f.flows);
    let mut fcts: Vec<u64> = flows.filter_map(|(flow, record)| record.fct(flow)).collect();
    fcts.sort_unstable();
    let share = |i: usize| i as f64 / POINTS as f64;
    let mut points: Vec<(f64, f64)> =
        (1..=POINTS).filter_map(|i| Some((percentile(&fcts, share(i))? as f64 / 1e6, share(i)))).collect();
    if let Some(first) = fcts.first() {
        points.insert(0, (*first as f64 / 1e6, 0.0));
    }
    points
}

/// For each size, or for ranges of sizes if there are many: the median size, mean slowdown, 99th percentile.
fn slowdowns(batch: &Batch, runs: &[Run], case: usize) -> Vec<(f64, f64, f64)> {
    let flows = batch.of_case(case, runs).flat_map(|(_, f)| &f.flows);
    let mut all: Vec<(u64, f64)> =
        flows.filter_map(|(flow, record)| Some((flow.bytes, record.slowdown(flow)?))).collect();
    all.sort_unstable_by_key(|(size, _)| *size);
    let bin = |flows: &[(u64, f64)]| {
        let mut slowdowns: Vec<f64> = flows.iter().map(|f| f.1).collect();
        slowdowns.sort_by(f64::total_cmp);
        let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
        (flows[flows.len() / 2].0 as f64, mean, percentile(&slowdowns, 0.99).unwrap_or(mean))
    };
    ranges(&all).into_iter().map(bin).collect()
}

/// Splits flows, sorted by size, into ranges with about the same number of flows, without dividing a size. A
/// sufficiently frequent size has its own range, as does each size if there are few.
fn ranges(flows: &[(u64, f64)]) -> Vec<&[(u64, f64)]> {
    let few = flows.chunk_by(|a, b| a.0 == b.0).count() <= SIZES;
    let enough = if few { 1 } else { flows.len().div_ceil(SIZES) };
    let mut ranges = Vec::new();
    let (mut from, mut at) = (0, 0);
    for same in flows.chunk_by(|a, b| a.0 == b.0) {
        if same.len() >= enough && from < at {
            ranges.push(&flows[from..at]);
            from = at;
        }
        at += same.len();
        if at - from >= enough {
            ranges.push(&flows[from..at]);
            from = at;
        }
    }
    if from < at {
        ranges.push(&flows[from..]);
    }
    ranges
}

/// Gbit/s over ms since `begins`, averaged over intervals. A short interval at the end belongs to the one before.
fn rates(begins: u64, samples: &[Sample]) -> Vec<(f64, f64)> {
    let stretch = samples.len().div_ceil(POINTS).max(1);
    let mut ends: Vec<&Sample> = samples.chunks(stretch).filter_map(|c| c.last()).collect();
    if let [.., before, end, last] = ends[..]
        && (last.at - end.at) * 2 < end.at - before.at
    {
        ends.remove(ends.len() - 2);
    }
    let mut before = (begins, 0);
    let point = |s: &Sample| {
        let rate = rate(before, (s.at, s.placed));
        let middle = (before.0 - begins + s.at - begins) as f64 / 2e6;
        before = (s.at, s.placed);
        (middle, rate / 1e9)
    };
    let mut points: Vec<(f64, f64)> = ends.into_iter().map(point).collect();
    // The line reaches the end of its last interval.
    if let (Some((_, rate)), Some(last)) = (points.last().copied(), samples.last()) {
        points.push(((last.at - begins) as f64 / 1e6, rate));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_one_point_however_often_it_occurs() {
        let flows = |sizes: &[(u64, usize)]| -> Vec<(u64, f64)> {
            sizes.iter().flat_map(|&(size, n)| (0..n).map(move |i| (size, i as f64))).collect()
        };
        let shown = |sizes: &[(u64, usize)]| -> Vec<(u64, u64, usize)> {
            let flows = flows(sizes);
            ranges(&flows).iter().map(|r| (r[0].0, r[r.len() - 1].0, r.len())).collect()
        };
        assert_eq!(shown(&[]), []);
        assert_eq!(shown(&[(1_000, 500)]), [(1_000, 1_000, 500)]);
        assert_eq!(shown(&[(64, 90), (1_000, 1), (9_000, 9)]), [(64, 64, 90), (1_000, 1_000, 1), (9_000, 9_000, 9)]);
        // A size with half of all flows, among a thousand that occur once.
        let mut many: Vec<(u64, usize)> = (1..=1_000).map(|size| (size, 1)).collect();
        many[499].1 = 1_001;
        let shown = shown(&many);
        assert!(shown.contains(&(500, 500, 1_001)), "{shown:?}");
        assert!((SIZES / 2..=SIZES + 2).contains(&shown.len()), "{shown:?}");
        assert!(shown.windows(2).all(|w| w[0].1 < w[1].0), "{shown:?}");
        assert_eq!(shown.iter().map(|r| r.2).sum::<usize>(), 2_000);
    }

    #[test]
    fn rates_are_differences_and_reach_the_end() {
        let sample = |at, placed| Sample { at, placed, ..Sample::default() };
        let two = [sample(1_500, 1_000), sample(2_500, 4_000)];
        assert_eq!(rates(500, &two), [(0.0005, 8.0), (0.0015, 24.0), (0.002, 24.0)]);
        // A short interval at the end says nothing of its own.
        let short = [sample(1_500, 1_000), sample(2_500, 4_000), sample(2_600, 4_100)];
        let shown = rates(500, &short);
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert_eq!(shown[2].0, 0.0021);
        assert!((shown[1].1 - 3_100.0 * 8.0 / 1_100.0).abs() < 1e-9, "{shown:?}");
    }

    #[test]
    fn sizes_have_units_that_keep_numbers_short() {
        assert_eq!([0, 9_999_999, 14_000_000].map(|most| unit(most).0), ["KB", "KB", "MB"]);
    }
}
