//! Cells: what is run and measured, the values of the paper, and the accepted range.

use irnic_fabric::sim::Routing;
use irnic_fabric::switch::Cut;
use irnic_report::junit;
use irnic_transports::recovery::Penalty;
use irnic_transports::wire::Mtu;
use serde::Serialize;

use super::measure::Measured;
use super::reference::{By, Number, Reference, Said};
use super::scenario::{LINK_RATE, Phases, Scenario, System, Traffic, WINDOW};
use crate::claims::{Answer, Claimed, Judged, Source};
use crate::compared::{PerSeed, judged, mean};
use crate::evaluation::Entry;

/// A metric. Rates are in Gbit/s, shares in percent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Rate of the endless flows: mean; lowest; 10th percentile.
    Mean,
    Min,
    P10,
    /// Mean rate of the endless flows including headers, as a share of the link.
    Wire,
    /// Payload received by all hosts, as a share of their links.
    Utilisation,
    /// The rate of a flow, by number.
    Rate(usize),
    /// Rates of the first four flows together, and of the last two, as shares of the link and including headers (Figure
    /// 21).
    SentByA,
    SentToE,
    /// Packets trimmed on links away from hosts; packets trimmed.
    TrimmedUpwards,
    Trimmed,
    /// Packets of the flows that were returned, at most once per transmission.
    Returned,
    /// Retransmissions per packet of the flows; those of them caused by returns.
    Again,
    AgainReturned,
    /// Completion of the last flow of an incast, in percent above the optimum; in ms; relative to the first.
    Late,
    Last,
    Spread,
    /// Completion time of the flow that is pulled first, ms.
    Preferred,
    /// Completion times of short flows, relative to those in an empty network.
    P50,
    P99,
    Worst,
    /// Excess of short flows' completion times over that, µs.
    Extra,
    /// Completion times of finite flows, ms.
    FctP50,
    FctP99,
    /// Share of packets trimmed in the first switch on their path; of the others, share trimmed further on.
    TrimmedFirst,
    TrimmedBeyond,
    /// Utilization of links up from the first switches.
    Uplinks,
    /// Time until packets are acknowledged, µs.
    LatencyP50,
    LatencyP99,
    /// Mean rate of the senders, and that of the slowest tenth, in percent of their fair share.
    FairShare,
    WorstTenth,
    /// Time for which the long flow was disturbed, ms.
    HeldUp,
    /// Packets dropped; packets without an answer in time.
    Dropped,
    Timeouts,
}

use Metric::*;
use Traffic::*;

impl Metric {
    const NAMES: [(&'static str, Metric); 33] = [
        ("mean", Mean),
        ("min", Min),
        ("p10", P10),
        ("wire", Wire),
        ("utilisation", Utilisation),
        ("sent_by_a", SentByA),
        ("sent_to_e", SentToE),
        ("trimmed_on_uplinks", TrimmedUpwards),
        ("trimmed", Trimmed),
        ("returned", Returned),
        ("again", Again),
        ("again_returned", AgainReturned),
        ("late", Late),
        ("last", Last),
        ("spread", Spread),
        ("preferred", Preferred),
        ("p50_slowdown", P50),
        ("p99_slowdown", P99),
        ("worst_slowdown", Worst),
        ("extra", Extra),
        ("p50_fct", FctP50),
        ("p99_fct", FctP99),
        ("trimmed_by_first", TrimmedFirst),
        ("trimmed_beyond", TrimmedBeyond),
        ("uplinks", Uplinks),
        ("p50_latency", LatencyP50),
        ("p99_latency", LatencyP99),
        ("fair_share", FairShare),
        ("worst_tenth", WorstTenth),
        ("held_up", HeldUp),
        ("dropped", Dropped),
        ("timeouts", Timeouts),
        ("a_to_b", Rate(0)),
    ];
    /// Rates of Figure 21.
    const RATES: [&'static str; 5] = ["a_to_b", "a_to_c", "a_to_d", "a_to_e", "f_to_e"];

    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            Rate(flow) => Self::RATES.get(flow).copied().unwrap_or_default(),
            other => Self::NAMES.iter().find(|(_, m)| *m == other).map_or("", |(name, _)| name),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        let rate = Self::RATES.iter().position(|rate| *rate == name);
        rate.map(Rate).or(Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, m)| *m))
    }

    /// Returns its value in a run; `None` if flows that it refers to are incomplete.
    pub fn of(self, run: &Measured) -> Option<f64> {
        const GBPS: f64 = LINK_RATE as f64 / 1e9;
        let mean = || run.rates.iter().sum::<f64>() / run.rates.len().max(1) as f64;
        let percent = |of: u64, all: u64| 100.0 * of as f64 / all.max(1) as f64;
        let together = |flows: &[f64]| 100.0 * flows.iter().sum::<f64>() * run.overhead / GBPS;
        Some(match self {
            Mean => mean(),
            Min => run.rate(0.0)?,
            P10 => run.rate(0.1)?,
            Wire => 100.0 * mean() * run.overhead / GBPS,
            Utilisation => 100.0 * run.received / (f64::from(run.hosts) * GBPS),
            Rate(flow) => *run.rates.get(flow)?,
            SentByA => together(run.rates.get(..4)?),
            SentToE => together(run.rates.get(3..5)?),
            TrimmedUpwards => percent(run.trimmed_upwards, run.sent),
            Trimmed => percent(run.trimmed, run.sent),
            Returned => percent(run.returned, run.packets),
            Again => run.trimmed as f64 / run.packets.max(1) as f64,
            AgainReturned => run.returned as f64 / run.packets.max(1) as f64,
            Late => 100.0 * (*run.fcts(0)?.last()? as f64 / run.optimum as f64 - 1.0),
            Last => *run.fcts(0)?.last()? as f64 / 1e6,
            Spread => {
                let fcts = run.fcts(0)?;
                *fcts.last()? as f64 / *fcts.first()? as f64
            }
            Preferred => run.short.first()?.fct? as f64 / 1e6,
            P50 => irnic_fabric::summary::percentile(&run.slowdowns(1), 0.5)?,
            P99 => irnic_fabric::summary::percentile(&run.slowdowns(1), 0.99)?,
            Worst => *run.slowdowns(1).last()?,
            Extra => {
                let short = run.short.iter().find(|s| s.class == 1)?;
                (short.fct? as f64 - short.ideal as f64) / 1e3
            }
            FctP50 => irnic_fabric::summary::percentile(&run.fcts(0)?, 0.5)? as f64 / 1e6,
            FctP99 => irnic_fabric::summary::percentile(&run.fcts(0)?, 0.99)? as f64 / 1e6,
            TrimmedFirst => percent(run.by_tier[1], run.by_tier[0]),
            TrimmedBeyond => percent(run.by_tier[2], run.by_tier[0].checked_sub(run.by_tier[1])?),
            Uplinks => run.uplinks,
            LatencyP50 => irnic_fabric::summary::percentile(&run.latencies, 0.5)? / 1e3,
            LatencyP99 => irnic_fabric::summary::percentile(&run.latencies, 0.99)? / 1e3,
            FairShare => together(&run.rates),
            WorstTenth => {
                let slowest = &run.sorted()[..run.rates.len().div_ceil(10)];
                together(slowest) * run.rates.len() as f64 / slowest.len() as f64
            }
            HeldUp => run.held_up,
            Dropped => run.dropped as f64,
            Timeouts => run.timeouts as f64,
        })
    }
}

/// A cell of the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Id: `figure14/432/ndp/mean`.
    pub id: String,
    /// Reference values and bounds.
    pub said: Said,
    /// The scenario, and the one it is compared with.
    pub scenarios: (Scenario, Option<(By, Scenario)>),
    /// The metric of both.
    pub metric: Metric,
}

/// The result of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Result {
    /// Id of the cell.
    pub id: String,
    /// Reference values and bounds.
    #[serde(flatten)]
    pub said: Said,
    /// Mean over the seeds; `None` if a run has no result.
    pub ours: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean; `None` with one seed.
    pub confidence: Option<f64>,
    /// Our value over the paper's or else the authors', if that is a number other than 0.
    pub ratio: Option<f64>,
    /// Whether it is within the bounds, if there are any.
    pub answer: Option<Answer>,
}

impl Entry for Cell {
    type Scenario = Scenario;
    type Run = Measured;
    type Result = Result;

    fn id(&self) -> &str {
        &self.id
    }

    fn needed(&self) -> impl Iterator<Item = &Scenario> {
        let (over, under) = &self.scenarios;
        std::iter::once(over).chain(under.as_ref().map(|(_, under)| under))
    }

    fn result<'a>(&self, runs: impl Fn(&Scenario) -> Vec<Option<&'a Measured>>) -> Result {
        let of = |scenario| -> PerSeed { runs(scenario).into_iter().map(|run| self.metric.of(run?)).collect() };
        let (over, under) = &self.scenarios;
        let values: Option<Vec<f64>> = match under {
            None => of(over).into_iter().collect(),
            Some((by, under)) => of(over).into_iter().zip(of(under)).map(|(a, b)| Some(by.compare(a?, b?))).collect(),
        };
        let (ours, confidence) = mean(values);
        let printed = self.said.paper.or(self.said.authors).filter(|printed| *printed != 0.0);
        Result {
            id: self.id.clone(),
            said: self.said.clone(),
            ours,
            confidence,
            ratio: printed.and_then(|printed| Some(ours? / printed)),
            answer: self.said.accept.and_then(|range| Some(Answer::of(ours?, confidence.unwrap_or(0.0), range))),
        }
    }
}

impl Judged for Result {
    fn claimed(&self) -> Option<&Claimed> {
        self.said.claimed.as_ref()
    }

    fn fitted(&self) -> Option<&str> {
        self.said.fitted.as_deref()
    }

    fn answer(&self) -> Option<Answer> {
        self.answer
    }

    fn has_range(&self) -> bool {
        self.said.accept.is_some()
    }

    fn number(&self) -> Option<[f64; 2]> {
        let printed = self.said.paper.or(self.said.authors).filter(|printed| *printed != 0.0)?;
        Some([printed, self.ours?])
    }
}

impl From<&Result> for junit::Case {
    fn from(cell: &Result) -> junit::Case {
        let paper = cell
            .said
            .paper
            .map_or_else(|| "the paper says nothing".to_owned(), |paper| format!("the paper has {paper}"));
        let accepted =
            cell.said.accept.map_or_else(String::new, |[least, most]| format!(", {least} to {most} is accepted"));
        judged(&cell.id, cell.ours, cell.confidence, &format!("{paper}{accepted}"), cell.answer)
    }
}

impl By {
    fn compare(self, a: f64, b: f64) -> f64 {
        match self {
            By::Ratio => a / b,
            By::Difference => a - b,
        }
    }
}

/// A scenario with its name, and its metrics that have cells.
struct Point(String, Scenario, &'static [Metric]);

/// Switch ports of trees with 128, 432 and 8,192 hosts.
const SMALL: u32 = 8;
const MIDDLE: u32 = 12;
const LARGE: u32 = 32;

/// Rates of the endless flows.
const RATES: &[Metric] = &[Mean, Min, P10];

/// All points. `quick`: without those that take minutes.
fn points(quick: bool) -> Vec<Point> {
    let mut points = Points { all: Vec::new(), quick };
    points.figure14();
    points.uplink_trimming();
    points.figure16();
    points.figure20();
    points.figure22();
    points.figure17();
    points.figure2();
    points.figure11();
    points.figure4();
    points.figure23();
    points.figure4_incasts();
    points.interference();
    points.section6_1_1();
    points.short_flows();
    points.all
}

/// NDP with a permutation in the tree of switches with this many ports.
fn permutation(arity: u32) -> Scenario {
    Scenario::ndp(arity, Permutation)
}

/// An incast in which no sender is preferred.
fn incast(senders: u32, packets: u64) -> Traffic {
    Incast { senders, packets, preferred: false }
}

/// NDP in the middle tree, with the time until each packet is acknowledged.
fn with_latencies(traffic: Traffic) -> Scenario {
    Scenario { latencies: true, ..Scenario::ndp(MIDDLE, traffic) }
}

/// The points so far, in the order of the results.
struct Points {
    all: Vec<Point>,
    /// Whether points that take minutes are left out.
    quick: bool,
}

impl Points {
    /// Adds a scenario with its name and metrics.
    fn add(&mut self, name: impl Into<String>, scenario: Scenario, metrics: &'static [Metric]) {
        self.all.push(Point(name.into(), scenario, metrics));
    }

    /// Adds Figure 14: permutations, in trees of three sizes.
    fn figure14(&mut self) {
        const WIDE: &[Metric] = &[Mean, Wire, Dropped, Timeouts];
        self.add("figure14/432/ndp", permutation(MIDDLE), &[Mean, Min, P10, Wire, Dropped, Timeouts]);
        self.add("figure14/432/dctcp", permutation(MIDDLE).of(System::Dctcp), RATES);
        self.add("figure14/128/ndp-iw-30", Scenario { window: 30, ..permutation(SMALL) }, WIDE);
        if !self.quick {
            self.add("figure14/8192/ndp-iw-30", Scenario { window: 30, ..permutation(LARGE) }, WIDE);
        }
    }

    /// Adds permutations whose packets are trimmed away from hosts, by the choice of paths and the initial window.
    fn uplink_trimming(&mut self) {
        for (name, routing) in [("source", Routing::Source), ("random", Routing::Random)] {
            let scenario = Scenario { routing, ..permutation(SMALL) };
            self.add(format!("uplink-trimming/128/{name}"), scenario, &[TrimmedUpwards, Trimmed, Mean]);
        }
        for window in [10, 15, 20, 30] {
            let scenario = Scenario { window, ..permutation(SMALL) };
            self.add(format!("uplink-trimming/128-source/iw-{window}"), scenario, &[TrimmedUpwards, Mean]);
        }
    }

    /// Adds Figure 16: incasts of NDP, with a preferred sender too, and of DCTCP.
    fn figure16(&mut self) {
        const INCAST: &[Metric] = &[Late, Last, Spread, Again, Dropped, Timeouts];
        for senders in [1, 10, 50, 100, 200, 431] {
            self.add(format!("figure16/ndp/{senders}"), Scenario::ndp(MIDDLE, incast(senders, 50)), INCAST);
        }
        for senders in [100, 431] {
            let preferred = Incast { senders, packets: 50, preferred: true };
            self.add(format!("figure16/ndp-preferred/{senders}"), Scenario::ndp(MIDDLE, preferred), &[Preferred, Late]);
        }
        for senders in [50, 100, 200, 431] {
            let scenario = Scenario::ndp(MIDDLE, incast(senders, 50)).of(System::Dctcp);
            self.add(format!("figure16/dctcp/{senders}"), scenario, &[Late, Spread]);
        }
    }

    /// Adds Figure 20: incasts in the large tree, by the initial window.
    fn figure20(&mut self) {
        const METRICS: &[Metric] = &[Late, Again, AgainReturned, Dropped, Timeouts];
        for window in [23, 10, 1] {
            for senders in [1, 8, 10, 50, 100, 200, 500, 1000, 2000, 8000] {
                if self.quick && (senders > 1000 || window != 23) {
                    continue;
                }
                let scenario = Scenario { window, ..Scenario::ndp(LARGE, incast(senders, 30)) };
                self.add(format!("figure20/iw-{window}/{senders}"), scenario, METRICS);
            }
        }
    }

    /// Adds Figure 22: permutations across a slow link.
    fn figure22(&mut self) {
        let slow = |window, penalty| Scenario { window, penalty, slow_link: true, ..permutation(SMALL) };
        for (name, scenario) in [
            ("penalty", slow(WINDOW, Penalty::Skip)),
            ("penalty-exclude", slow(WINDOW, Penalty::Exclude)),
            ("no-penalty", slow(WINDOW, Penalty::Off)),
            ("no-penalty-no-timeouts", Scenario { timeouts: false, ..slow(WINDOW, Penalty::Off) }),
            ("no-penalty-iw-15", Scenario { timeouts: false, ..slow(15, Penalty::Off) }),
            ("dctcp", slow(WINDOW, Penalty::Skip).of(System::Dctcp)),
        ] {
            self.add(format!("figure22/{name}"), scenario, RATES);
        }
    }

    /// Adds Figure 17: permutations, by the queues and the initial window, and with short packets.
    fn figure17(&mut self) {
        for queue in [6, 8, 10] {
            for window in [5, 10, 15, 20, 25, 30] {
                if self.quick && !([6, 8].contains(&queue) && [10, 20].contains(&window)) {
                    continue;
                }
                let scenario = Scenario { window, queue, ..permutation(MIDDLE) };
                self.add(format!("figure17/q-{queue}/iw-{window}"), scenario, &[Mean]);
            }
        }
        if !self.quick {
            let short = Scenario { window: 30, mtu: Mtu::B1024, ..permutation(SMALL) };
            self.add("figure17/128-of-1024-bytes/iw-30", short, &[Mean]);
        }
    }

    /// Adds Figure 2: unresponsive senders, by what the switch trims and when their packets arrive.
    fn figure2(&mut self) {
        for (name, cut, phases) in [
            ("cp", Cut::InPlace, Phases::Even),
            ("cp-by-chance", Cut::InPlace, Phases::Random),
            ("ndp", Cut::Coin, Phases::Even),
            ("ndp-by-chance", Cut::Coin, Phases::Random),
        ] {
            for senders in [1, 2, 5, 10, 20, 50, 100, 150, 200] {
                let scenario = Scenario::ndp(SMALL, Unresponsive { senders, cut, phases });
                if !self.quick || senders <= 20 {
                    self.add(format!("figure2/{name}/{senders}"), scenario, &[FairShare, WorstTenth]);
                }
            }
        }
    }

    /// Adds Figure 11: two hosts on a cable, by the initial window.
    fn figure11(&mut self) {
        for window in [1, 5, 10, 15, 20, 25, 30] {
            let scenario = Scenario { window, mtu: Mtu::B1024, ..Scenario::ndp(SMALL, BackToBack) };
            self.add(format!("figure11/ndp/iw-{window}"), scenario, &[Wire]);
        }
    }

    /// Adds the endless flows of Figure 4, with the time until packets are acknowledged.
    fn figure4(&mut self) {
        const LATENCY: &[Metric] = &[LatencyP50, LatencyP99];
        self.add("figure4/permutation", with_latencies(Permutation), LATENCY);
        self.add("figure4/random", with_latencies(Anywhere), LATENCY);
    }

    /// Adds Figure 23: web server flows in an oversubscribed tree.
    fn figure23(&mut self) {
        const TRIMS: &[Metric] = &[FctP50, FctP99, TrimmedFirst, TrimmedBeyond, Uplinks];
        for connections in [5, 10] {
            let web = Scenario::ndp(SMALL, Web { connections });
            self.add(format!("figure23/{connections}/ndp"), web.clone(), TRIMS);
            self.add(format!("figure23/{connections}/dctcp"), web.of(System::Dctcp), &[FctP50, FctP99, Uplinks]);
        }
    }

    /// Adds the incasts of Figure 4, with the time until packets are acknowledged.
    fn figure4_incasts(&mut self) {
        const BURST: &[Metric] = &[Returned, Late, Again, LatencyP50, LatencyP99, Dropped, Timeouts];
        self.add("figure4/incast-15-packets", with_latencies(incast(100, 15)), BURST);
        self.add("figure4/incast-150-packets", with_latencies(incast(100, 150)), BURST);
    }

    /// Adds Figures 21 and 19: flows that share a host's link, or are disturbed by an incast next to their receiver.
    fn interference(&mut self) {
        const IN_AND_OUT: &[Metric] = &[Rate(0), Rate(1), Rate(2), Rate(3), Rate(4), SentByA, SentToE];
        self.add("figure21/ndp", Scenario::ndp(SMALL, InAndOut), IN_AND_OUT);
        self.add("figure19/ndp", Scenario::ndp(MIDDLE, Collateral), &[HeldUp, Dropped, Timeouts]);
    }

    /// Adds §6.1.1: a permutation together with an incast of all hosts.
    fn section6_1_1(&mut self) {
        for (name, system) in [("ndp", System::Ndp), ("dctcp", System::Dctcp), ("dcqcn-pfc", System::Dcqcn)] {
            let scenario = match system {
                System::Ndp => Scenario::ndp(MIDDLE, Everybody),
                other => Scenario::ndp(MIDDLE, Everybody).of(other),
            };
            self.add(format!("section6.1.1/{name}"), scenario, &[Utilisation]);
        }
    }

    /// Adds Figures 15 and 10: short flows beside long ones.
    fn short_flows(&mut self) {
        const SHORT: &[Metric] = &[P50, P99, Worst, Utilisation];
        self.add("figure15/ndp", Scenario::ndp(MIDDLE, Idle), SHORT);
        self.add("figure15/dctcp", Scenario::ndp(MIDDLE, Idle).of(System::Dctcp), SHORT);
        self.add("figure10/preferred", Scenario::ndp(SMALL, Concurrent { preferred: true }), &[Extra]);
        let in_turn = Scenario::ndp(SMALL, Concurrent { preferred: false });
        self.add("figure10/in-turn-iw-10", Scenario { window: 10, ..in_turn.clone() }, &[Extra]);
        self.add("figure10/in-turn", in_turn, &[Extra]);
    }
}

/// All cells.
pub fn ndp(reference: &Reference, quick: bool) -> Vec<Cell> {
    let points = points(quick);
    let mut cells = Vec::new();
    for Point(name, scenario, metrics) in &points {
        for &metric in *metrics {
            let id = format!("{name}/{}", metric.name());
            let number = reference.cell.iter().find(|n| n.id == id);
            let said = number.map_or_else(Said::default, Number::said);
            // With any traffic, nothing is dropped in a Clos network, and no timer expires.
            let none = [Dropped, Timeouts].contains(&metric) && said.accept.is_none();
            let said = if none { nothing(said) } else { said };
            cells.push(Cell { id, said, scenarios: (scenario.clone(), None), metric });
        }
    }
    for c in &reference.compare {
        let named = |name: &str| points.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        let (Some(over), Some(under), Some(metric)) = (named(&c.over), named(&c.under), Metric::named(&c.metric))
        else {
            continue;
        };
        let word = if c.by == By::Ratio { "over" } else { "less" };
        let rest = c.under.split('/').zip(c.over.split('/')).position(|(a, b)| a != b).unwrap_or(0);
        let other = c.under.split('/').skip(rest).collect::<Vec<_>>().join("-");
        cells.push(Cell {
            id: format!("{}-{word}-{other}/{}", c.over, metric.name()),
            said: c.said(),
            scenarios: (over, Some((c.by, under))),
            metric,
        });
    }
    cells
}

/// Accepts 0 only.
fn nothing(said: Said) -> Said {
    let text = "nothing is dropped, and no timer expires".to_owned();
    let claimed = Some(Claimed { text, place: None, source: Source::Ours });
    Said { accept: Some([0.0, 0.0]), claimed, ..said }
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::super::scenario::Time;
    use super::*;

    #[test]
    fn no_cell_of_the_fixture_is_left_out() {
        let reference = reference::ndp();
        let cells = ndp(&reference, false);
        for number in &reference.cell {
            let cell = cells.iter().find(|c| c.id == number.id).unwrap_or_else(|| panic!("no {}", number.id));
            assert_eq!((cell.said.paper, cell.said.authors), (number.paper, number.authors));
            cell.said.claimed.iter().zip(&number.accept).for_each(|(claimed, range)| claimed.check(range));
        }
        for comparison in &reference.compare {
            comparison.said().claimed.iter().zip(&comparison.accept).for_each(|(claimed, range)| claimed.check(range));
        }
        assert_eq!(cells.iter().filter(|c| c.scenarios.1.is_some()).count(), reference.compare.len());
        let bounds = cells.iter().filter_map(|c| c.said.accept);
        assert!(bounds.clone().count() > 20 && bounds.into_iter().all(|[least, most]| least <= most));
        let mut ids: Vec<&str> = cells.iter().map(|c| c.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|w| w[0] != w[1]), "{ids:?}");
        let quick = ndp(&reference, true);
        assert!(quick.len() < cells.len() && quick.iter().all(|c| cells.contains(c)));
    }

    #[test]
    fn every_cell_can_be_run() {
        let time = Time { from: 1_000_000, until: 4_000_000 };
        let mut tried: Vec<Scenario> = Vec::new();
        for cell in ndp(&reference::ndp(), true) {
            for scenario in cell.needed() {
                // Generators have no NIC configuration; they are tested separately.
                if matches!(scenario.traffic, Traffic::Unresponsive { .. }) || tried.contains(scenario) {
                    continue;
                }
                scenario.config(time, 1).unwrap_or_else(|e| panic!("{}: {e}", cell.id));
                tried.push(scenario.clone());
            }
        }
    }

    #[test]
    fn metrics_have_names() {
        for (name, metric) in Metric::NAMES {
            assert_eq!((metric.name(), Metric::named(name)), (name, Some(metric)));
        }
        assert_eq!((Rate(4).name(), Metric::named("f_to_e"), Metric::named("p98")), ("f_to_e", Some(Rate(4)), None));
    }

    #[test]
    fn a_value_holds_within_its_bounds_and_is_nothing_without_a_run() {
        let run = Measured { rates: vec![9.0, 9.4], hosts: 2, overhead: 1.01, ..Measured::default() };
        let mut cell = ndp(&reference::ndp(), true).into_iter().find(|c| c.id == "figure14/432/ndp/mean").unwrap();
        cell.said.accept = Some([9.0, 9.2]);
        assert_eq!(cell.result(|_| vec![Some(&run)]).answer, Some(Answer::Holds));
        cell.said.accept = Some([9.3, f64::INFINITY]);
        let result = cell.result(|_| vec![Some(&run), Some(&run)]);
        assert_eq!((result.ours, result.confidence, result.answer), (Some(9.2), Some(0.0), Some(Answer::Fails)));
        assert_eq!(cell.result(|_| vec![Some(&run)]).confidence, None, "one run has no interval");
        let result = cell.result(|_| vec![Some(&run), None]);
        assert_eq!((result.ours, result.answer), (None, None));
    }
}
