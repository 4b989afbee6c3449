//! Cells: what is run and measured, and what the paper says of it.

use irnic_fabric::summary::Summary;

use super::reference::Reference;
use super::scenario::{Base, Scenario};
use crate::reproduce::compared::{Compared, Paper, PerSeed};

/// What is measured. Times are in ms.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// 99.9th percentile of the foreground's flow completion times.
    FgTail,
    /// Mean of the background's.
    BgMean,
    /// Timeouts for a thousand flows.
    Timeouts,
    /// Flows with a timeout, of a hundred.
    TimedOut,
    /// Important packets lost, acknowledgements included, of all of them.
    ImportantLoss,
    /// Bytes on the wire of important packets with payload, of a hundred of all that have one.
    Important,
    /// PFC frames for a thousand flows.
    PfcFrames,
    /// Time for which ports were stopped.
    Paused,
    /// Longest queue, KB.
    Queue,
    /// Longest queue of red packets, KB.
    RedQueue,
    /// Bytes of clocks.
    ClockBytes,
}

use Metric::*;

const ALL: [Metric; 11] =
    [FgTail, BgMean, Timeouts, TimedOut, ImportantLoss, Important, PfcFrames, Paused, Queue, RedQueue, ClockBytes];

impl Metric {
    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            FgTail => "fg_p999",
            BgMean => "bg_mean",
            Timeouts => "timeouts",
            TimedOut => "timed_out",
            ImportantLoss => "important_loss",
            Important => "important",
            PfcFrames => "pfc_frames",
            Paused => "paused",
            Queue => "queue",
            RedQueue => "red_queue",
            ClockBytes => "clock_bytes",
        }
    }

    fn named(name: &str) -> Option<Metric> {
        ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn of(self, s: &Summary) -> Option<f64> {
        let thousand = |n: u64| 1e3 * n as f64 / s.all.flows.max(1) as f64;
        Some(match self {
            FgTail => s.by_class.get(1)?.fct.p999 / 1e6,
            BgMean => s.by_class.first()?.fct.mean / 1e6,
            Timeouts => thousand(s.nics.local_ack_timeout_err),
            TimedOut => thousand(s.timed_out) / 10.0,
            ImportantLoss => s.colours?.green_loss_rate(),
            Important => 100.0 * s.colours?.green_share(),
            PfcFrames => thousand(s.pfc_frames),
            Paused => s.paused as f64 / 1e6,
            Queue => s.peak_queue as f64 / 1e3,
            RedQueue => s.colours?.red_peak as f64 / 1e3,
            ClockBytes => s.nics.tlt_clock_bytes as f64,
        })
    }
}

/// A number of the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Where it stands: `figure5/dctcp-tlt/fg_p999`.
    pub id: String,
    /// What the paper has.
    pub paper: Paper,
    /// Scenario, and the one that it is divided by.
    pub scenarios: (Scenario, Option<Scenario>),
    /// What of it.
    pub metric: Metric,
    /// The words of the paper, for a claim.
    pub text: Option<String>,
}

impl Cell {
    /// The result, from the runs of a scenario: one for each seed.
    pub fn result<'a>(&self, runs: impl Fn(&Scenario) -> Vec<Option<&'a Summary>>) -> Compared {
        let of = |scenario| -> PerSeed { runs(scenario).into_iter().map(|run| self.metric.of(run?)).collect() };
        let (over, under) = &self.scenarios;
        Compared::new(&self.id, self.paper, self.text.as_deref(), of(over), under.as_ref().map(of))
    }
}

/// A scenario, what it is called, and what of it there are cells for.
struct Point(String, Scenario, &'static [Metric]);

/// `name` with `-tlt` and `-pfc` behind it.
fn called(name: &str, tlt: bool, pfc: bool) -> String {
    format!("{name}{}{}", if tlt { "-tlt" } else { "" }, if pfc { "-pfc" } else { "" })
}

/// All that is run, with so many background flows.
fn points(flows: u64) -> Vec<Point> {
    const LOSSY: &[Metric] = &[FgTail, BgMean, Timeouts, TimedOut];
    const LOSSLESS: &[Metric] = &[FgTail, BgMean, PfcFrames, Paused];
    const TLT: &[Metric] = &[FgTail, BgMean, Timeouts, TimedOut, ImportantLoss, Important, Queue, RedQueue];
    const TLT_PFC: &[Metric] = &[FgTail, BgMean, Timeouts, ImportantLoss, Important, PfcFrames, Paused];
    let metrics = |tlt, pfc| match (tlt, pfc) {
        (false, false) => LOSSY,
        (false, true) => LOSSLESS,
        (true, false) => TLT,
        (true, true) => TLT_PFC,
    };
    let both = |scenario: Scenario, tlt: bool| if tlt { scenario.with_tlt() } else { scenario };
    let mut all = Vec::new();
    for base in [Base::Tcp, Base::Dctcp] {
        for pfc in [false, true] {
            for tlt in [false, true] {
                let scenario = both(Scenario::new(base, flows).with_pfc(pfc), tlt);
                all.push(Point(called(&format!("figure5/{}", base.name()), tlt, pfc), scenario, metrics(tlt, pfc)));
            }
            let scenario = Scenario { rto_min: "200us", ..Scenario::new(base, flows).with_pfc(pfc) };
            let name = called(&format!("figure5/{}-200us", base.name()), false, pfc);
            all.push(Point(name, scenario, metrics(false, pfc)));
        }
    }
    for base in [Base::Hpcc, Base::Irn, Base::DcqcnSack, Base::Dcqcn] {
        for pfc in [false, true] {
            // IRN has no PFC in the paper.
            for tlt in [false, true].into_iter().filter(|_| base != Base::Irn || !pfc) {
                let scenario = both(Scenario::new(base, flows).with_pfc(pfc), tlt);
                all.push(Point(called(&format!("figure6/{}", base.name()), tlt, pfc), scenario, metrics(tlt, pfc)));
            }
        }
    }
    const SWEEP: &[Metric] = &[FgTail, BgMean, Timeouts, ImportantLoss];
    for pfc in [false, true] {
        for threshold in [400u64, 500, 600, 700, 800, 900, 1_000, 1_200] {
            let tlt = Scenario::new(Base::Dctcp, flows).with_pfc(pfc).with_tlt();
            let scenario = Scenario { threshold: threshold * 1_000, ..tlt };
            all.push(Point(called(&format!("figure8/{threshold}KB"), false, pfc), scenario, SWEEP));
        }
    }
    for base in [Base::Hpcc, Base::Dctcp] {
        for load in [10u32, 20, 30, 40, 50, 60] {
            for tlt in [false, true] {
                let at = Scenario { load: f64::from(load) / 100.0, ..Scenario::new(base, flows).with_pfc(true) };
                let name = called(&format!("figure9/{}/{load}%", base.name()), tlt, false);
                all.push(Point(name, both(at, tlt), &[FgTail, BgMean, Paused]));
            }
        }
    }
    for share in [0u32, 5, 10, 15, 20] {
        let tlt = Scenario::new(Base::Dctcp, flows).with_tlt();
        let scenario = Scenario { share: f64::from(share) / 100.0, ..tlt };
        all.push(Point(format!("figure10/{share}%"), scenario, &[Important]));
    }
    all.push(Point("figure11/none".into(), Scenario::new(Base::Dctcp, flows), &[Queue]));
    for threshold in [400u64, 500, 600, 700, 800] {
        let scenario = Scenario { threshold: threshold * 1_000, ..Scenario::new(Base::Dctcp, flows).with_tlt() };
        all.push(Point(format!("figure11/{threshold}KB"), scenario, &[Important, Queue, RedQueue]));
    }
    for load in [20u32, 30, 40, 50] {
        for (base, pfc, without) in [
            (Base::Dctcp, false, true),
            (Base::Tcp, false, true),
            (Base::DcqcnSack, true, false),
            (Base::Irn, false, true),
            (Base::Hpcc, true, false),
        ] {
            let load_of = f64::from(load) / 100.0;
            let at = Scenario { load: load_of, each: 8_000, ..Scenario::appendix(base, flows) };
            let name = format!("figure15/{load}%/{}", base.name());
            // Where losses are not, TLT has none either.
            all.push(Point(called(&name, false, pfc), at.clone().with_pfc(pfc), &[FgTail]));
            all.push(Point(called(&name, true, pfc && without), at.clone().with_tlt(), &[FgTail]));
            if base == Base::Dctcp || base == Base::Tcp {
                all.push(Point(format!("{name}-200us"), Scenario { rto_min: "200us", ..at }, &[FgTail]));
            }
        }
    }
    for clock in ["adaptive", "mtu", "probe"] {
        for pfc in [false, true] {
            let scenario = Scenario { tlt: Some(clock), ..Scenario::appendix(Base::Dctcp, flows).with_pfc(pfc) };
            let metrics: &[Metric] = if pfc { &[PfcFrames] } else { &[FgTail, ClockBytes, Timeouts] };
            all.push(Point(called(&format!("figure17/{clock}"), false, pfc), scenario, metrics));
        }
    }
    for base in [Base::Dctcp, Base::Tcp] {
        for share in [5u32, 10] {
            for threshold in [400u64, 500, 600] {
                let tlt = Scenario::appendix(base, flows).with_tlt();
                let scenario = Scenario { threshold: threshold * 1_000, share: f64::from(share) / 100.0, ..tlt };
                all.push(Point(format!("table1/{}/{share}%/{threshold}KB", base.name()), scenario, &[ImportantLoss]));
            }
        }
    }
    all
}

/// All cells.
pub fn tlt(reference: &Reference, flows: u64) -> Vec<Cell> {
    let points = points(flows);
    let mut cells = Vec::new();
    for Point(name, scenario, metrics) in &points {
        for &metric in *metrics {
            let id = format!("{name}/{}", metric.name());
            let number = reference.number.iter().find(|n| n.id == id);
            let paper = number.map_or(Paper::Silent, |n| Paper::Number(n.value));
            cells.push(Cell { id, paper, scenarios: (scenario.clone(), None), metric, text: None });
        }
    }
    for claim in &reference.claim {
        let named = |name: &str| points.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        let (Some(over), Some(metric)) = (named(&claim.over), Metric::named(&claim.metric)) else { continue };
        let under = claim.under.as_deref().and_then(named);
        let to = claim.under.as_deref().map(|to| to.split_once('/').map_or(to, |(_, of)| of));
        let beside = to.map_or(String::new(), |to| format!("-over-{}", to.replace('/', "-")));
        cells.push(Cell {
            id: format!("{}{beside}/{}", claim.over, metric.name()),
            paper: Paper::Range(claim.range),
            scenarios: (over, under),
            metric,
            text: Some(claim.text.clone()),
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference::tlt();
        let cells = tlt(&reference, 10);
        for number in &reference.number {
            let cell = cells.iter().find(|c| c.id == number.id).unwrap_or_else(|| panic!("no {}", number.id));
            assert_eq!(cell.paper, Paper::Number(number.value));
        }
        let claims: Vec<&Cell> = cells.iter().filter(|c| c.text.is_some()).collect();
        assert_eq!(claims.len(), reference.claim.len());
        for (claim, cell) in reference.claim.iter().zip(claims) {
            assert!(
                claim.range[0] <= claim.range[1] && claim.under.is_some() == cell.scenarios.1.is_some(),
                "{claim:?}"
            );
        }
    }

    #[test]
    fn every_cell_can_be_run() {
        let cells = tlt(&reference::tlt(), 2);
        let mut seen: Vec<&Scenario> = Vec::new();
        for scenario in cells.iter().flat_map(|cell| [Some(&cell.scenarios.0), cell.scenarios.1.as_ref()]).flatten() {
            if !seen.contains(&scenario) {
                scenario.experiment().config(1).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
                seen.push(scenario);
            }
        }
    }

    #[test]
    fn metrics_have_names() {
        assert!(ALL.iter().all(|metric| Metric::named(metric.name()) == Some(*metric)));
        assert_eq!(Metric::named("fg_p98"), None);
    }
}
