//! Queue management from the edge (§5.3): TCP in the wide area with CoDel in switches or in the receiving NICs (Figures
//! 5.8 and 5.9, Table 5.3), and DCTCP in the datacenter with marks of either (Table 5.4).

use super::network::Network;
use super::objectives::{Done, Goal, PacketStats, Row, mean};
use super::scheme::Scheme;
use super::values::Values;

/// Refresh threshold of Figures 5.8 and 5.9, ms.
const REFRESH: u64 = 20;
/// Rate of fair slack in Table 5.3, Mbit/s.
const SLOW: u64 = 10;

/// The comparison of a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Edge {
    /// CoDel in switches and at the edge, with fair slack at `mbps` Mbit/s and link delays of `delay` halves of the
    /// text's default.
    Codel { mbps: u64, delay: u64 },
    /// Refresh thresholds of Edge-CoDel.
    Refresh,
    /// Marking by switches or receivers.
    Marks,
}

impl Edge {
    /// The schemes, with their names.
    pub fn schemes(self) -> Vec<(&'static str, Scheme)> {
        match self {
            Edge::Codel { mbps, .. } => vec![
                ("fifo", Scheme::Fifo),
                ("fq", Scheme::Fq),
                ("fq_codel", Scheme::FqCodel),
                ("fq_edge", Scheme::FqEdge(REFRESH)),
                ("lstf_edge", Scheme::FairEdge(mbps, REFRESH)),
            ],
            Edge::Refresh => vec![
                ("10ms", Scheme::FairEdge(SLOW, 10)),
                ("20ms", Scheme::FairEdge(SLOW, 20)),
                ("30ms", Scheme::FairEdge(SLOW, 30)),
                ("40ms", Scheme::FairEdge(SLOW, 40)),
            ],
            Edge::Marks => vec![("no_ecn", Scheme::Unmarked), ("ecn", Scheme::Marked), ("edge_ecn", Scheme::EdgeEcn)],
        }
    }

    /// Delay of a link with this default.
    pub fn delay(self, default: u64) -> u64 {
        match self {
            Edge::Codel { delay, .. } => default * delay / 2,
            Edge::Refresh | Edge::Marks => default,
        }
    }

    /// Ratios reported by the text: of completion times or round trips of a scheme to those of another.
    fn ratios(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Edge::Codel { .. } => &[
                ("fq_rtt_over_fifo", "fq_rtt_ms", "fifo_rtt_ms"),
                ("fq_edge_rtt_over_fq_codel", "fq_edge_rtt_ms", "fq_codel_rtt_ms"),
                ("lstf_edge_rtt_over_fq_codel", "lstf_edge_rtt_ms", "fq_codel_rtt_ms"),
                ("lstf_edge_rtt_over_fq", "lstf_edge_rtt_ms", "fq_rtt_ms"),
                ("lstf_edge_over_fifo", "lstf_edge_s", "fifo_s"),
            ],
            Edge::Refresh => {
                &[("40ms_over_10ms", "40ms_s", "10ms_s"), ("40ms_rtt_over_10ms", "40ms_rtt_ms", "10ms_rtt_ms")]
            }
            Edge::Marks => &[
                ("edge_ecn_over_ecn", "edge_ecn_s", "ecn_s"),
                ("edge_ecn_rtt_over_ecn", "edge_ecn_rtt_ms", "ecn_rtt_ms"),
                ("edge_ecn_over_no_ecn", "edge_ecn_s", "no_ecn_s"),
                ("edge_ecn_rtt_over_no_ecn", "edge_ecn_rtt_ms", "no_ecn_rtt_ms"),
            ],
        }
    }
}

/// Values of each scheme: mean flow completion time, over bytes or, with [`Edge::Marks`], over flows, s; mean round
/// trip over packets, ms; packets dropped by switches and by receiving NICs, % of all. And ratios of these.
pub fn values(edge: Edge, done: &[Done], stats: &[PacketStats]) -> Values {
    let mut values = Values::new();
    for (at, (name, _)) in edge.schemes().into_iter().enumerate() {
        let weight = |packets| if edge == Edge::Marks { 1.0 } else { packets as f64 };
        values.insert(format!("{name}_s"), mean(done, at, weight));
        values.insert(format!("{name}_rtt_ms"), stats[at].rtt);
        values.insert(format!("{name}_dropped"), stats[at].dropped);
        values.insert(format!("{name}_discarded"), stats[at].discarded);
    }
    for (name, over, under) in edge.ratios() {
        values.insert((*name).to_owned(), values[*over] / values[*under]);
    }
    values
}

/// Returns names and rows of Figures 5.8 and 5.9, which share them, and of Tables 5.3 and 5.4, with a
/// [`Row::handshake`] or without.
pub fn rows(handshake: bool) -> Vec<(String, Row)> {
    let [default, slow, tenth] =
        [(10, 1, 1), (1, 1, 1), (1, 1, 10)].map(|(host, edge, by)| Network::Internet2(host, edge, by));
    let row =
        |name: &str, network, load, edge| (name.to_owned(), Row { goal: Goal::Edge(edge), network, load, handshake });
    let codel = |name: &str, network, load, mbps, delay| {
        row(&format!("figure5.8/{name}"), network, load, Edge::Codel { mbps, delay })
    };
    let mut all = vec![
        codel("default", default, 70, 100, 2),
        codel("1G-1G", slow, 70, 100, 2),
        codel("tenth-30%", tenth, 30, 40, 2),
        codel("tenth-50%", tenth, 50, 30, 2),
        codel("tenth-70%", tenth, 70, SLOW, 2),
        codel("tenth-half-rtt", tenth, 70, SLOW, 1),
        codel("tenth-double-rtt", tenth, 70, SLOW, 4),
        row("table5.3/tenth", tenth, 70, Edge::Refresh),
    ];
    all.extend([30, 50, 70].map(|load| row(&format!("table5.4/{load}%"), Network::FatTree, load, Edge::Marks)));
    all
}
