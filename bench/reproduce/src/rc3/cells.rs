//! Cells: what is run and measured, and the values of the text.

use std::borrow::Cow;

use super::measure::{Means, Measured};
use super::scenario::{Critical, Network, Scenario, Sender, Senders};
use super::theory::SIZES;
use crate::points::{self, Reference};

/// A cell of the results.
pub type Cell = points::Cell<Scenario, Metric>;

type Point = points::Point<Scenario, Metric>;

/// A metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean completion time over flows, s.
    Flows,
    /// Mean completion time over bytes, s.
    Bytes,
    /// Both without the handshake.
    FlowsConnected,
    BytesConnected,
    /// 99th percentile, s.
    P99,
    /// Mean of one of the sizes, s.
    Size(usize),
    /// Mean of the flows of class 0, and of class 1, s.
    Others,
    Chosen,
    /// Packets delivered early by low priority, %.
    Low,
    /// Packets dropped, %.
    Dropped,
    /// Timeouts.
    Timeouts,
    /// Incomplete flows.
    Incomplete,
}

use Metric::*;

const NAMED: [(Metric, &str); 11] = [
    (Flows, "fct_s"),
    (Bytes, "fct_bytes_s"),
    (FlowsConnected, "connected_s"),
    (BytesConnected, "connected_bytes_s"),
    (P99, "p99_s"),
    (Others, "others_s"),
    (Chosen, "chosen_s"),
    (Low, "low"),
    (Dropped, "dropped"),
    (Timeouts, "timeouts"),
    (Incomplete, "incomplete"),
];

impl points::Metric for Metric {
    type Run = Measured;

    fn name(self) -> Cow<'static, str> {
        if let Size(at) = self {
            return format!("fct_{}p_s", SIZES[at].0).into();
        }
        let named = NAMED.iter().find(|(metric, _)| *metric == self);
        named.map_or("", |(_, name)| name).into()
    }

    fn named(name: &str) -> Option<Metric> {
        let sizes = (0..SIZES.len()).map(Size);
        sizes.chain(NAMED.iter().map(|(metric, _)| *metric)).find(|metric| metric.name() == name)
    }

    fn of(self, run: &Measured) -> Option<f64> {
        match self {
            Low => Some(run.low),
            Dropped => Some(run.dropped),
            Timeouts => Some(run.timeouts),
            Incomplete => Some(run.incomplete),
            time => time.of_flows(&run.means),
        }
    }

    /// Completion times are compared by the flows that both runs complete.
    fn of_both(self, over: &Measured, under: &Measured) -> Option<[f64; 2]> {
        match self {
            Low | Dropped | Timeouts | Incomplete => Some([self.of(over)?, self.of(under)?]),
            time => Some([time.of_flows(&over.also_in(under))?, time.of_flows(&under.also_in(over))?]),
        }
    }
}

impl Metric {
    fn of_flows(self, means: &Means) -> Option<f64> {
        match self {
            Flows => means.fct,
            Bytes => means.by_bytes,
            FlowsConnected => means.connected,
            BytesConnected => means.connected_by_bytes,
            P99 => means.p99,
            Size(at) => means.by_size[at],
            Others => means.by_class[0],
            Chosen => means.by_class[1],
            Low | Dropped | Timeouts | Incomplete => None,
        }
    }
}

const MEANS: &[Metric] = &[Flows, Bytes, Incomplete];
const WITH_DROPS: &[Metric] = &[Flows, Bytes, Low, Dropped, Timeouts, Incomplete];
const ALL_OF_IT: &[Metric] = &[Flows, Bytes, FlowsConnected, BytesConnected, P99, Low, Dropped, Timeouts, Incomplete];
const BY_SIZE: &[Metric] =
    &[Size(0), Size(1), Size(2), Size(3), Size(4), Size(5), Size(6), Size(7), Size(8), Size(9), Size(10)];
const PARTIAL: &[Metric] = &[Flows, Bytes, Size(0), Size(3), Size(5), Size(9), Size(10), Incomplete];
const WITH_ENDS: &[Metric] = &[Flows, Bytes, Size(0), Size(10), Dropped, Incomplete];

/// All points.
fn points() -> Vec<Point> {
    let mut all = Vec::new();
    let mut add = |name: String, scenario, metrics| all.push(points::Point(name, scenario, metrics));
    let usual = |sender| Scenario::internet2(Senders::All(sender));
    let slow = |sender, stretch| Scenario { network: Network::Internet2 { mbps: 100, stretch }, ..usual(sender) };
    let both = [("tcp", Sender::TCP), ("rc3", Sender::RC3)];
    for (name, sender) in both {
        add(format!("table2.1/internet2/{name}"), usual(sender), ALL_OF_IT);
        add(format!("figure2.7/{name}"), usual(sender), BY_SIZE);
    }
    for load in [10, 50] {
        for (name, sender) in both {
            add(format!("figure2.8a/load{load}/{name}"), Scenario { load, ..usual(sender) }, WITH_ENDS);
        }
    }
    for (name, sender) in both {
        add(format!("figure2.8b/400ms-100M/{name}"), slow(sender, 10), MEANS);
    }
    for loss in [20, 100] {
        for (name, sender) in both {
            let scenario = Scenario { loss, ..usual(sender) };
            add(format!("figure2.9/loss{}/{name}", f64::from(loss) / 1e3), scenario, WITH_DROPS);
        }
    }
    for (name, sender) in [
        ("tcp", Sender::TCP),
        ("one-priority", Sender::Rc3(40, 1)),
        ("40-400-4000", Sender::RC3),
        ("10-100-1000-10000", Sender::Rc3(10, 4)),
    ] {
        add(format!("figure2.10/{name}"), slow(sender, 1), WITH_DROPS);
    }
    for initial in [10, 50] {
        let metrics = &[Flows, Bytes, Size(0), Size(2), Dropped, Incomplete];
        add(format!("figure2.13a/initial{initial}"), usual(Sender::Tcp(initial)), metrics);
    }
    for (without, name) in [(5, "20%"), (2, "50%")] {
        let scenario = Scenario { without, ..usual(Sender::RC3) };
        add(format!("partial/{name}/rc3"), scenario, PARTIAL);
    }
    add("partial/tcp".to_owned(), usual(Sender::TCP), PARTIAL);
    add("mix/tcp-rc3".to_owned(), Scenario::internet2(Senders::Half), &[Others, Chosen, Incomplete]);
    for (name, critical) in [("tcp", Critical::Nothing), ("priority", Critical::Priority), ("rc3", Critical::Rc3)] {
        let scenario = Scenario::internet2(Senders::Critical(critical));
        add(format!("figure2.13b/{name}"), scenario, &[Chosen, Others, Incomplete]);
    }
    for (name, sender) in both {
        add(format!("datacenter/fat-tree/{name}"), Scenario { network: Network::FatTree, ..usual(sender) }, WITH_DROPS);
    }
    for gbps in [10, 40, 100] {
        for (load, traffic) in [(30, "load30"), (70, "load70"), (0, "incast")] {
            for (halves, buffer) in [(1, "half"), (4, "two")] {
                for (name, sender) in [("irn", Sender::Irn), ("tcp", Sender::TCP), ("rc3", Sender::RC3)] {
                    let network = Network::Star { gbps, halves };
                    let metrics: &[Metric] = if load == 0 {
                        &[Flows, P99, Dropped, Timeouts]
                    } else {
                        &[Flows, Bytes, P99, Dropped, Timeouts]
                    };
                    let scenario = Scenario { network, load, ..usual(sender) };
                    add(format!("which/{gbps}G-{traffic}-{buffer}/{name}"), scenario, metrics);
                }
            }
        }
    }
    all
}

/// Returns the values of the text.
pub fn reference() -> Reference {
    Reference::read(include_str!("../../../../fixtures/reference/rc3.toml"))
}

/// All cells.
pub fn rc3(reference: &Reference) -> Vec<Cell> {
    points::cells(&points(), reference)
}

#[cfg(test)]
mod tests {
    use points::Metric as _;

    use super::*;
    use crate::evaluation::Entry as _;
    use crate::rc3::theory::AUTHORS;
    use crate::runs::once;

    #[test]
    fn no_number_or_claim_of_the_fixture_is_left_out() {
        let reference = reference();
        points::check(&rc3(&reference), &reference);
    }

    /// Eight points around the authors' line; flows within the first window are no slower.
    #[test]
    fn the_claims_of_figure_2_7_are_around_the_authors_line() {
        let reference = reference();
        for (at, authors) in AUTHORS.into_iter().enumerate() {
            let name = Size(at).name();
            let claim = reference.claim.iter().find(|c| c.over == "figure2.7/rc3" && c.metric == name);
            let [least, most] = claim.unwrap_or_else(|| panic!("{name}")).range.bounds;
            if authors == 0.0 {
                assert_eq!(most, 1.0);
            } else {
                let line = 1.0 - authors / 100.0;
                assert!((least - (line - 0.08)).abs() < 1e-9 && (most - (line + 0.08)).abs() < 1e-9, "{name}");
            }
        }
    }

    #[test]
    fn every_cell_can_be_run() {
        for scenario in once(rc3(&reference()).iter().flat_map(Cell::needed)) {
            let config = scenario.config(1, true).unwrap_or_else(|e| panic!("{scenario:?}: {e}"));
            assert!(config.flows.len() > 2);
        }
    }

    #[test]
    fn metrics_have_names() {
        let all = NAMED.iter().map(|(metric, _)| *metric).chain((0..SIZES.len()).map(Size));
        assert!(all.into_iter().all(|metric| Metric::named(&metric.name()) == Some(metric)));
        assert_eq!(Metric::named("fct_4p_s"), None);
    }
}
