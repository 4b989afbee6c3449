//! Cells: what is run and measured, and the values of the paper.

use std::borrow::Cow;

use irnic_fabric::summary::Summary;

use super::scenario::{Base, Scenario, WORKLOADS, Workload};
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric. Times are in ms.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// 99.9th and 99th percentiles of the foreground's flow completion times.
    FgTail,
    Fg99,
    /// Mean of the background's flow completion times.
    BgMean,
    /// Timeouts per thousand flows.
    Timeouts,
    /// Share of flows with a timeout, %.
    TimedOut,
    /// Share of important packets lost, including acknowledgements.
    ImportantLoss,
    /// Share of important packets in the bytes on the wire of packets with payload, %.
    Important,
    /// PFC frames per thousand flows.
    PfcFrames,
    /// Time for which ports were paused.
    Paused,
    /// Longest queue, KB.
    Queue,
    /// Longest queue of red packets, KB.
    RedQueue,
    /// Bytes sent by clocks.
    ClockBytes,
    /// Tail loss probes per thousand flows.
    Probes,
}

use Metric::*;

const ALL: [Metric; 13] = [
    FgTail,
    Fg99,
    BgMean,
    Timeouts,
    TimedOut,
    ImportantLoss,
    Important,
    PfcFrames,
    Paused,
    Queue,
    RedQueue,
    ClockBytes,
    Probes,
];

impl Metric {
    const fn as_str(self) -> &'static str {
        match self {
            FgTail => "fg_p999",
            Fg99 => "fg_p99",
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
            Probes => "probes",
        }
    }
}

impl points::Metric for Metric {
    type Run = Summary;

    fn name(self) -> Cow<'static, str> {
        self.as_str().into()
    }

    fn named(name: &str) -> Option<Metric> {
        ALL.into_iter().find(|metric| metric.as_str() == name)
    }

    fn of(self, s: &Summary) -> Option<f64> {
        let thousand = |n: u64| 1e3 * n as f64 / s.all.flows.max(1) as f64;
        Some(match self {
            FgTail => s.by_class.get(1)?.fct.p999 / 1e6,
            Fg99 => s.by_class.get(1)?.fct.p99 / 1e6,
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
            Probes => thousand(s.nics.tlp_probes),
        })
    }
}

/// `name` with `-tlt` and `-pfc` appended.
fn called(name: &str, tlt: bool, pfc: bool) -> String {
    format!("{name}{}{}", if tlt { "-tlt" } else { "" }, if pfc { "-pfc" } else { "" })
}

/// The metrics of base transports without TLT, with it, and with tail loss probes; each without PFC and with it.
const LOSSY: &[Metric] = &[FgTail, BgMean, Timeouts, TimedOut];
const LOSSLESS: &[Metric] = &[FgTail, BgMean, PfcFrames, Paused];
const TLT: &[Metric] = &[FgTail, BgMean, Timeouts, TimedOut, ImportantLoss, Important, Queue, RedQueue];
const TLT_PFC: &[Metric] = &[FgTail, BgMean, Timeouts, ImportantLoss, Important, PfcFrames, Paused];
const TLP: &[Metric] = &[FgTail, BgMean, Timeouts, TimedOut, Probes];
const TLP_PFC: &[Metric] = &[FgTail, BgMean, PfcFrames, Paused, Probes];

/// The metrics of a base transport with TLT if `tlt`, and with PFC if `pfc`.
fn metrics(tlt: bool, pfc: bool) -> &'static [Metric] {
    match (tlt, pfc) {
        (false, false) => LOSSY,
        (false, true) => LOSSLESS,
        (true, false) => TLT,
        (true, true) => TLT_PFC,
    }
}

/// The scenario, with TLT if `tlt`.
fn maybe_tlt(scenario: Scenario, tlt: bool) -> Scenario {
    if tlt { scenario.with_tlt() } else { scenario }
}

/// All points, with this many background flows.
fn points(flows: u64) -> Vec<Point> {
    let mut all = figure2(flows);
    all.extend(figure5(flows));
    all.extend(figure6(flows));
    all.extend(figure8(flows));
    all.extend(figure9(flows));
    all.extend(figure10(flows));
    all.extend(figure11(flows));
    all.extend(WORKLOADS.iter().flat_map(|workload| figure15(workload, flows)));
    all.extend(figure17(flows));
    all.extend(figure18(flows));
    all.extend(table1(flows));
    all
}

/// The points of Figure 2: a fixed timeout of two round trips for DCTCP.
fn figure2(flows: u64) -> Vec<Point> {
    let at = |name: &str, timer| {
        let scenario = Scenario { timer, share: 0.15, ..Scenario::new(Base::Dctcp, flows) };
        points::Point(format!("figure2/{name}"), scenario, &[Fg99, BgMean, Timeouts] as &[Metric])
    };
    vec![at("4ms", "rto-min=4ms"), at("160us", "rto=160us")]
}

/// The points of Figure 5: TLT on TCP and DCTCP, and what is compared with it, a shorter timeout and tail loss probes.
fn figure5(flows: u64) -> Vec<Point> {
    let mut all = Vec::new();
    for base in [Base::Tcp, Base::Dctcp] {
        for pfc in [false, true] {
            let plain = || Scenario::new(base, flows).with_pfc(pfc);
            for tlt in [false, true] {
                let name = called(&format!("figure5/{}", base.name()), tlt, pfc);
                all.push(points::Point(name, maybe_tlt(plain(), tlt), metrics(tlt, pfc)));
            }
            let name = called(&format!("figure5/{}-200us", base.name()), false, pfc);
            all.push(points::Point(name, Scenario { timer: "rto-min=200us", ..plain() }, metrics(false, pfc)));
            let name = called(&format!("figure5/{}-tlp", base.name()), false, pfc);
            all.push(points::Point(name, plain().with_tlp(), if pfc { TLP_PFC } else { TLP }));
        }
    }
    all
}

/// The points of Figure 6: TLT on RoCE transports.
fn figure6(flows: u64) -> Vec<Point> {
    let mut all = Vec::new();
    for base in [Base::Hpcc, Base::Irn, Base::DcqcnSack, Base::Dcqcn] {
        for pfc in [false, true] {
            // IRN has no PFC in the paper.
            for tlt in [false, true].into_iter().filter(|_| base != Base::Irn || !pfc) {
                let scenario = maybe_tlt(Scenario::new(base, flows).with_pfc(pfc), tlt);
                let name = called(&format!("figure6/{}", base.name()), tlt, pfc);
                all.push(points::Point(name, scenario, metrics(tlt, pfc)));
            }
        }
    }
    all
}

/// The points of Figure 8: the colour threshold.
fn figure8(flows: u64) -> Vec<Point> {
    const SWEEP: &[Metric] = &[FgTail, BgMean, Timeouts, ImportantLoss];
    let mut all = Vec::new();
    for pfc in [false, true] {
        for threshold in [400u64, 500, 600, 700, 800, 900, 1_000, 1_200] {
            let tlt = Scenario::new(Base::Dctcp, flows).with_pfc(pfc).with_tlt();
            let scenario = Scenario { threshold: threshold * 1_000, ..tlt };
            all.push(points::Point(called(&format!("figure8/{threshold}KB"), false, pfc), scenario, SWEEP));
        }
    }
    all
}

/// The points of Figure 9: the load, with PFC.
fn figure9(flows: u64) -> Vec<Point> {
    let mut all: Vec<Point> = Vec::new();
    for base in [Base::Hpcc, Base::Dctcp] {
        for load in [10u32, 20, 30, 40, 50, 60] {
            for tlt in [false, true] {
                let at = Scenario { load: f64::from(load) / 100.0, ..Scenario::new(base, flows).with_pfc(true) };
                let name = called(&format!("figure9/{}/{load}%", base.name()), tlt, false);
                all.push(points::Point(name, maybe_tlt(at, tlt), &[FgTail, BgMean, Paused]));
            }
        }
    }
    all
}

/// The points of Figure 10: the share of the foreground.
fn figure10(flows: u64) -> Vec<Point> {
    let mut all: Vec<Point> = Vec::new();
    for share in [0u32, 5, 10, 15, 20] {
        let tlt = Scenario::new(Base::Dctcp, flows).with_tlt();
        let scenario = Scenario { share: f64::from(share) / 100.0, ..tlt };
        all.push(points::Point(format!("figure10/{share}%"), scenario, &[Important]));
    }
    all
}

/// The points of Figure 11: queues without TLT, and with it by the colour threshold.
fn figure11(flows: u64) -> Vec<Point> {
    let without = Scenario::new(Base::Dctcp, flows);
    let mut all = vec![points::Point("figure11/none".into(), without, &[Queue] as &[Metric])];
    for threshold in [400u64, 500, 600, 700, 800] {
        let scenario = Scenario { threshold: threshold * 1_000, ..Scenario::new(Base::Dctcp, flows).with_tlt() };
        all.push(points::Point(format!("figure11/{threshold}KB"), scenario, &[Important, Queue, RedQueue]));
    }
    all
}

/// The points of Figure 15 for a workload, with as many bytes as `flows` flows of web search.
fn figure15(workload: &Workload, flows: u64) -> Vec<Point> {
    let mut all = Vec::new();
    for load in [20u32, 30, 40, 50] {
        for (base, pfc, without) in [
            (Base::Dctcp, false, true),
            (Base::Tcp, false, true),
            (Base::DcqcnSack, true, false),
            (Base::Irn, false, true),
            (Base::Hpcc, true, false),
        ] {
            let load_of = f64::from(load) / 100.0;
            let at = Scenario { load: load_of, each: 8_000, ..Scenario::appendix(base, flows) }.of(workload);
            let name = format!("figure15/{}/{load}%/{}", workload.name, base.name());
            // Without losses, TLT has none either.
            all.push(points::Point(called(&name, false, pfc), at.clone().with_pfc(pfc), &[FgTail] as &[Metric]));
            all.push(points::Point(called(&name, true, pfc && without), at.clone().with_tlt(), &[FgTail]));
            if base == Base::Dctcp || base == Base::Tcp {
                all.push(points::Point(format!("{name}-tlp"), at.clone().with_tlp(), &[FgTail]));
                all.push(points::Point(format!("{name}-200us"), Scenario { timer: "rto-min=200us", ..at }, &[FgTail]));
            }
        }
    }
    all
}

/// The points of Figure 17: the clocks.
fn figure17(flows: u64) -> Vec<Point> {
    let mut all = Vec::new();
    for clock in ["adaptive", "mtu", "probe"] {
        for pfc in [false, true] {
            let scenario = Scenario { tlt: Some(clock), ..Scenario::appendix(Base::Dctcp, flows).with_pfc(pfc) };
            let metrics: &[Metric] = if pfc { &[PfcFrames] } else { &[FgTail, ClockBytes, Timeouts] };
            all.push(points::Point(called(&format!("figure17/{clock}"), false, pfc), scenario, metrics));
        }
    }
    all
}

/// The points of Figure 18: the flows that each host has in an incast.
fn figure18(flows: u64) -> Vec<Point> {
    let mut all = Vec::new();
    for base in [Base::Hpcc, Base::Tcp] {
        for degree in [2u32, 4, 6, 8, 10] {
            for tlt in [false, true] {
                let name = called(&format!("figure18/{}/{degree}", base.name()), tlt, false);
                let scenario = maybe_tlt(Scenario { degree, ..Scenario::new(base, flows) }, tlt);
                all.push(points::Point(name, scenario, &[FgTail, Fg99, BgMean] as &[Metric]));
            }
        }
    }
    all
}

/// The points of Table 1: losses of important packets by the share of the foreground and the colour threshold.
fn table1(flows: u64) -> Vec<Point> {
    let mut all: Vec<Point> = Vec::new();
    for base in [Base::Dctcp, Base::Tcp] {
        for share in [5u32, 10] {
            for threshold in [400u64, 500, 600] {
                let tlt = Scenario::appendix(base, flows).with_tlt();
                let scenario = Scenario { threshold: threshold * 1_000, share: f64::from(share) / 100.0, ..tlt };
                let name = format!("table1/{}/{share}%/{threshold}KB", base.name());
                all.push(points::Point(name, scenario, &[ImportantLoss]));
            }
        }
    }
    all
}

/// Returns the values of the paper.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/tlt.toml"))
}

/// All cells.
pub fn tlt(reference: &Reference, flows: u64) -> Vec<Cell> {
    points::cells(&points(flows), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::*;
    use crate::evaluation::Entry as _;
    use crate::runs::once;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&tlt(&reference, 10), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(tlt(&reference(), 2).iter().flat_map(Cell::needed)) {
            scenario.experiment().config(1).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
        }
    }

    #[test]
    fn metrics_have_names() {
        assert!(ALL.iter().all(|metric| Metric::named(metric.as_str()) == Some(*metric)));
        assert_eq!(Metric::named("fg_p98"), None);
    }
}
