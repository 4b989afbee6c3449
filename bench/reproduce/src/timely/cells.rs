//! Cells: what is run and measured, and the values of the paper.

use std::borrow::Cow;

use super::clos::Clos;
use super::incast::{Incast, Network};
use super::measure::{Measured, PERCENTILES, Scenario};
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric. Times are in µs, except for those of [`Metric::Reached`] in ms, rates in Gbit/s.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    Throughput,
    AvgRtt,
    /// Round trips, by index in [`PERCENTILES`].
    Rtt(usize),
    Jain,
    Oscillation,
    PfcFrames,
    Dropped,
    /// By index in [`PERCENTILES`]: ratio of round trips, less that of the empty network, to those of the queue.
    RttOverQueue(usize),
    /// Correlation of rounds' marked shares with their shortest round trips.
    Correlation,
    /// By index in [`Measured::reached`].
    Reached(usize),
    /// Accepted calls, relative to what links can carry.
    Accepted,
    /// Round trips of pingers: median, 99th percentile.
    Ping(usize),
    /// Times of calls: median, 99th percentile.
    Call(usize),
    /// Share of all ports' time for which they were paused, %.
    Paused,
    /// Rate of the link that an incast goes to.
    Receiver,
}

use Metric::*;

/// The tail as in Table 1.
const TAIL: Metric = Rtt(7);

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        match self {
            Throughput => "throughput".into(),
            AvgRtt => "avg_rtt".into(),
            Rtt(at) => format!("p{}_rtt", PERCENTILES[at]).into(),
            Jain => "jain".into(),
            Oscillation => "oscillation".into(),
            PfcFrames => "pfc_frames".into(),
            Dropped => "dropped".into(),
            RttOverQueue(at) => format!("p{}_rtt_over_queue", PERCENTILES[at]).into(),
            Correlation => "correlation".into(),
            Reached(at) => ["reached_1.5", "reached_2"][at].into(),
            Accepted => "accepted".into(),
            Ping(at) => ["p50_ping", "p99_ping"][at].into(),
            Call(at) => ["p50_call", "p99_call"][at].into(),
            Paused => "paused".into(),
            Receiver => "receiver".into(),
        }
    }

    fn named(name: &str) -> Option<Metric> {
        let rtts = (0..PERCENTILES.len()).map(Rtt);
        let others = [Throughput, AvgRtt, Jain, Oscillation, PfcFrames, Dropped, Correlation, Reached(0), Reached(1)];
        let ratios = (0..PERCENTILES.len()).map(RttOverQueue);
        let calls = [Accepted, Ping(0), Ping(1), Call(0), Call(1), Paused, Receiver];
        others.into_iter().chain(calls).chain(rtts).chain(ratios).find(|m| m.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        Some(match self {
            Throughput => run.throughput,
            AvgRtt => run.avg_rtt,
            Rtt(at) => run.rtt[at],
            Jain => run.jain,
            Oscillation => run.oscillation,
            PfcFrames => run.pfc_frames as f64,
            Dropped => run.dropped as f64,
            RttOverQueue(at) => {
                let queue = run.queue.map(|queue| queue[at]).filter(|queue| *queue > 0.0)?;
                (run.rtt[at] - run.base) / queue
            }
            Correlation => return run.marks_tell(),
            Reached(at) => return run.reached[at],
            Accepted => run.calls?.accepted,
            Ping(at) => run.calls?.ping[at],
            Call(at) => run.calls?.call[at],
            Paused => run.calls?.paused,
            Receiver => run.calls?.receiver,
        })
    }
}

/// All points. `more`: parameters of TIMELY in addition to the paper's.
fn points(more: &str) -> Vec<Point> {
    let incasts = incasts(more).into_iter().map(|points::Point(id, of, metrics)| (id, Scenario::Incast(of), metrics));
    let calls = calls(more).into_iter().map(|points::Point(id, of, metrics)| (id, Scenario::Clos(of), metrics));
    incasts.chain(calls).map(|(id, of, metrics)| points::Point(id, of, metrics)).collect()
}

/// The calls of §6.2.
fn calls(more: &str) -> Vec<points::Point<Clos, Metric>> {
    let both = |percent, incast| {
        let settled = [("timely", Clos::timely(percent, incast, more)), ("pfc", Clos::pfc(percent, incast))];
        let early = settled.clone().map(|(name, of)| (format!("{name}-early"), Clos { early: true, ..of }));
        settled.map(|(name, of)| (name.to_owned(), of)).into_iter().chain(early)
    };
    let figures: [(u32, &[Metric]); 3] =
        [(19, &[Accepted, Paused]), (20, &[Ping(0), Ping(1)]), (21, &[Call(0), Call(1)])];
    let mut all = Vec::new();
    for (figure, metrics) in figures {
        for percent in [20, 40, 60, 70, 80, 90, 100] {
            for (name, scenario) in both(percent, false) {
                all.push(points::Point(format!("figure{figure}/{name}/{percent}"), scenario, metrics));
            }
        }
    }
    // "Low (0.167 of the maximum offered load in Figure 19), medium (0.3) and high (0.5)".
    for (level, percent) in [("low", 17), ("medium", 30), ("high", 50)] {
        for (traffic, incast) in [("alone", false), ("incast", true)] {
            for (name, scenario) in both(percent, incast) {
                let id = format!("figure22/{name}-{traffic}/{level}");
                all.push(points::Point(
                    id,
                    scenario,
                    if incast { &[Accepted, Ping(1), Receiver] } else { &[Accepted, Ping(1)] },
                ));
            }
        }
    }
    all
}

/// The incasts.
fn incasts(more: &str) -> Vec<points::Point<Incast, Metric>> {
    const FIGURE: &[Metric] = &[Throughput, AvgRtt, TAIL];
    let timely = |segment, with: &str| {
        let parts: Vec<&str> = [more, with].into_iter().filter(|p| !p.is_empty()).collect();
        Incast::timely(segment, &parts.join(","))
    };
    const WHOLE: &[Metric] = &[Throughput, AvgRtt, TAIL, Jain, PfcFrames, Dropped];
    let mut all = vec![
        points::Point("table1/timely".into(), timely(16, ""), WHOLE),
        points::Point("table1/pfc".into(), Incast::pfc(), WHOLE),
        points::Point("table1/dctcp".into(), Incast::dctcp(), WHOLE),
    ];
    for alpha in ["10M", "50M", "100M"] {
        all.push(points::Point(format!("table1/fast-{alpha}"), Incast::fast(alpha), &[Throughput, AvgRtt, TAIL, Jain]));
    }
    const BOTH: &[Metric] =
        &[RttOverQueue(1), RttOverQueue(2), RttOverQueue(3), RttOverQueue(4), RttOverQueue(5), RttOverQueue(7)];
    for (name, scenario) in [("timely", timely(64, "")), ("pfc", Incast { segment: 64, ..Incast::pfc() })] {
        let scenario = Incast { network: Network::OneLink, connections: 10, ..scenario };
        all.push(points::Point(format!("figure2/{name}"), scenario, BOTH));
    }
    for connections in [1, 4, 10] {
        let scenario = Incast { network: Network::OneLink, connections, segment: 64, rounds: true, ..Incast::dctcp() };
        all.push(points::Point(format!("figure3/dctcp/{connections}"), scenario, &[Correlation, Throughput]));
    }
    const REVERSE: &[Metric] = &[Throughput, Rtt(1), Rtt(3), Rtt(5), Rtt(7)];
    for (name, secondary, ack_first) in
        [("alone", false, false), ("congested", true, false), ("acks-first", true, true)]
    {
        let scenario = Incast { network: Network::Crossing { secondary }, ack_first, ..timely(16, "") };
        all.push(points::Point(format!("figure4/{name}"), scenario, REVERSE));
    }
    const APPROACHES: &[Metric] = &[Throughput, AvgRtt, TAIL, Oscillation];
    all.push(points::Point("figure9/gradient".into(), timely(16, ""), APPROACHES));
    for target in ["50us", "500us"] {
        let both = format!("t-low={target},t-high={target}");
        all.push(points::Point(format!("figure9/target-{target}"), timely(16, &both), APPROACHES));
    }
    for t_low in ["50us", "0us"] {
        for noise in ["0us", "50us", "100us", "150us", "200us"] {
            let with = format!("t-low={t_low},noise={noise}");
            all.push(points::Point(format!("figure12/t-low-{t_low}/{noise}"), timely(16, &with), &[Throughput]));
        }
    }
    all.push(points::Point("figure13/timely".into(), timely(16, ""), &[Jain, Oscillation]));
    const DISTRIBUTION: &[Metric] = &[Rtt(0), Rtt(1), Rtt(2), Rtt(3), Rtt(4), Rtt(5), Rtt(6), Rtt(7), Rtt(8)];
    for (name, scenario) in [("timely", timely(16, "")), ("pfc", Incast::pfc()), ("dctcp", Incast::dctcp())] {
        all.push(points::Point(format!("figure14/{name}"), scenario, DISTRIBUTION));
    }
    for segment in [16, 32, 64] {
        for t_low in ["0us", "50us", "100us", "200us", "300us", "400us"] {
            let scenario = timely(segment, &format!("t-low={t_low}"));
            all.push(points::Point(format!("figure15/{segment}KB/{t_low}"), scenario, FIGURE));
        }
    }
    for t_low in ["50us", "0us"] {
        for pacing in ["500M", "600M", "700M", "1G", "2G", "5G", "line"] {
            let scenario = timely(64, &format!("t-low={t_low},pacing={pacing}"));
            all.push(points::Point(format!("figure16/t-low-{t_low}/{pacing}"), scenario, FIGURE));
        }
    }
    for connections in [4, 7, 10] {
        for t_high in ["50us", "100us", "200us", "500us", "1000us"] {
            let scenario = Incast { connections, ..timely(16, &format!("t-high={t_high}")) };
            all.push(points::Point(format!("figure17/{connections}/{t_high}"), scenario, FIGURE));
        }
    }
    for (name, with) in
        [("hai", ""), ("additive", "hai=1"), ("hai-t-low-0us", "t-low=0"), ("additive-t-low-0us", "t-low=0,hai=1")]
    {
        let scenario = Incast { connections: 10, quit: true, ..timely(16, with) };
        all.push(points::Point(format!("figure18/{name}"), scenario, &[Reached(0), Reached(1)]));
    }
    all
}

/// Returns the values of the paper.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/timely.toml"))
}

/// All cells.
pub fn timely(reference: &Reference, more: &str) -> Vec<Cell> {
    points::cells(&points(more), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::super::incast::Time;
    use super::*;
    use crate::evaluation::Entry as _;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&timely(&reference, ""), &reference);
    }

    #[test]
    fn every_cell_can_be_run() {
        let time = Time { warm_up: 1_000_000, measured: 1_000_000 };
        for cell in timely(&reference(), "min-rtt=17us") {
            for scenario in cell.needed() {
                scenario.config(time, 1).unwrap_or_else(|e| panic!("{}: {e}", cell.id));
            }
        }
    }

    #[test]
    fn metrics_have_names() {
        for name in ["throughput", "avg_rtt", "p1_rtt", "p50_rtt", "p99_rtt", "p99.9_rtt", "jain", "reached_2"] {
            assert_eq!(Metric::named(name).map(Metric::name).as_deref(), Some(name));
        }
        assert_eq!((TAIL.name().as_ref(), Metric::named("p98_rtt")), ("p99_rtt", None));
    }

    #[test]
    fn what_a_point_varies_holds_against_parameters_that_are_given() {
        let cells = timely(&reference(), "hai=7,gain=0.5");
        let additive = cells.iter().find(|c| c.id.starts_with("figure18/additive/")).map(|c| &c.scenarios.0);
        let Some(Scenario::Incast(Incast { cc, .. })) = additive else { panic!("{additive:?}") };
        let config: irnic_transports::congestion::CongestionConfig = cc.parse().unwrap();
        assert_eq!((config.get("hai").as_deref(), config.get("gain").as_deref()), (Some("1"), Some("0.5")));
    }
}
