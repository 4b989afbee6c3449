//! Queue management from the edge (§5.3): TCP in the wide area with CoDel in switches or in the receiving NICs, and DCTCP in the
//! datacenter with marks of either.

use std::borrow::Cow;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::{HeaderBytes, Observe, Outcome, SimConfig};
use irnic_fabric::switch::{Discipline, Ecn, OutputQueuedConfig, SwitchConfig};
use irnic_fabric::workload::poisson::{Pair, between};

use super::measure::Measured;
use super::scenario::{Network, Scenario, WIRE, sizes};
use crate::reproduce::runs::simulate;
use crate::sweep::{NoResult, Watch};

/// Bytes around the payload and of an acknowledgement: as large a part of a packet as in the authors' simulator, nearly.
const HEADER: u32 = 40;
const MTU: u32 = 1_024;
/// Bytes of buffers of the text in the wide area and in the datacenter.
const BUFFERS: [u64; 2] = [50_000_000, 500_000];
/// Packets that may wait without a mark.
const K: u64 = 15;

/// Who manages queues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    Fifo,
    Fq,
    FqCodel,
    /// FQ in switches; Edge-CoDel with a refresh threshold, ms.
    FqEdge(u64),
    /// LSTF in switches, of which slack asks for fairness with so many Mbit/s a flow; Edge-CoDel with a refresh threshold, ms.
    LstfEdge(u64, u64),
    /// DCTCP whose packets nobody marks.
    Unmarked,
    /// DCTCP and switches with FIFO that mark.
    Marked,
    /// DCTCP and LSTF with one slack for all; marks are the receiver's.
    EdgeEcn,
}

/// A run with queue management, beside its network and load.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Aqm {
    pub scheme: Scheme,
    /// By how much delays are longer, in halves: 2 as they are.
    pub delay: u64,
}

/// What is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean flow completion time over bytes, s.
    Fct,
    /// Mean round trip over packets, ms.
    Rtt,
    /// Packets that found no room or were dropped by CoDel in switches, and those dropped by receiving NICs, % of all.
    Dropped,
    Discarded,
}

pub const METRICS: [Metric; 4] = [Metric::Fct, Metric::Rtt, Metric::Dropped, Metric::Discarded];

impl Metric {
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Metric::Fct => "fct_by_bytes",
            Metric::Rtt => "rtt_ms",
            Metric::Dropped => "dropped",
            Metric::Discarded => "discarded",
        }
        .into()
    }

    pub fn of(self, run: &Measured) -> Option<f64> {
        let aqm = run.aqm.as_ref()?;
        Some(match self {
            Metric::Fct => aqm[0],
            Metric::Rtt => aqm[1],
            Metric::Dropped => aqm[2],
            Metric::Discarded => aqm[3],
        })
    }
}

/// Returns bytes or bit/s of the text as packets here have them, which are shorter.
fn scaled(papers: u64) -> u64 {
    papers * u64::from(MTU + HEADER) / u64::from(WIRE)
}

impl Aqm {
    /// The transport, and what switches do.
    fn ends(&self, timeout: &str) -> (String, Discipline) {
        let tcp = format!("iwarp,cc.initial=2,rto-min={timeout},rto-max=60s");
        let dctcp = format!("iwarp,cc=dctcp,rto-min={timeout},rto-max=60s");
        let codel = |refresh: u64| format!("{tcp},edge=codel:5ms:100ms:{refresh}ms");
        // A packet's time is what counts in the text, and here payload is what slack goes by.
        let fair = |mbps: u64| mbps * 1_000_000 * u64::from(MTU) / u64::from(WIRE);
        match self.scheme {
            Scheme::Fifo => (tcp, Discipline::Fifo),
            Scheme::Fq => (tcp, Discipline::Fair),
            Scheme::FqCodel => (tcp, Discipline::FairCodel),
            Scheme::FqEdge(refresh) => (codel(refresh), Discipline::Fair),
            Scheme::LstfEdge(mbps, refresh) => {
                (format!("{},slack=fair:{}bit", codel(refresh), fair(mbps)), Discipline::LeastSlack)
            }
            Scheme::Unmarked | Scheme::Marked => (dctcp, Discipline::Fifo),
            // A packet takes 1.168 µs.
            Scheme::EdgeEcn => (format!("{dctcp},slack=constant:1s,edge=ecn:{}ns", K * 1_168), Discipline::LeastSlack),
        }
    }

    /// Returns the run of a scenario, in which flows arrive for so many ns, and which ends with the last of them.
    pub fn config(&self, of: &Scenario, seed: u64, duration: u64) -> Result<SimConfig, String> {
        let mut topology = of.topology();
        for link in &mut topology.links {
            link.rate = scaled(link.rate);
            link.delay = link.delay * self.delay / 2;
        }
        let (buffer, timeout) = match of.network {
            Network::Internet2(..) => (BUFFERS[0], "200ms"),
            Network::FatTree => (BUFFERS[1], "1ms"),
        };
        let pairs = of.pairs(&topology);
        let offered = scaled(of.nominal()) as f64 * f64::from(of.load) / 100.0 * f64::from(topology.hosts);
        let rate = offered / pairs.len() as f64;
        let pairs: Vec<Pair> = pairs.into_iter().map(|(src, dst)| Pair { src, dst, rate, class: 0 }).collect();
        let (transport, discipline) = self.ends(timeout);
        let mut experiment = Experiment::default();
        experiment.flows = Some(between(&sizes()?, &pairs, duration, seed, MTU, HEADER));
        experiment.topology = topology;
        experiment.routing = of.routing();
        experiment.transports = vec![transport.parse().map_err(|e| format!("{transport}: {e}"))?];
        experiment.buffers = irnic_fabric::experiment::Buffers::OutputQueued(discipline.clone());
        experiment.headers = HeaderBytes::Fixed(HEADER);
        experiment.setup_rtts = 1;
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        let mut switch = OutputQueuedConfig::new(scaled(buffer), discipline);
        if self.scheme == Scheme::Marked {
            switch.ecn = Ecn::Step { k: K * u64::from(MTU + HEADER) };
        }
        config.switch = SwitchConfig::OutputQueued(switch);
        config.observe = Some(Observe { from: 0, segment: 1, interval: 0, to: None, latencies: false, rounds: false });
        Ok(config)
    }
}

/// Runs a scenario with queue management.
pub fn one(aqm: &Aqm, of: &Scenario, arrivals: u64, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let config = aqm.config(of, seed, arrivals).map_err(NoResult::Failed)?;
    let outcome = simulate(watch, config)?;
    Ok(Measured { aqm: Some(measured(&outcome)), ..Measured::default() })
}

fn measured(outcome: &Outcome) -> [f64; 4] {
    let done = || {
        outcome
            .flows
            .iter()
            .zip(&outcome.records)
            .filter_map(|(flow, record)| Some((flow.bytes as f64, record.fct(flow)?)))
    };
    let bytes: f64 = done().map(|(bytes, _)| bytes).sum();
    let fct = done().map(|(bytes, fct)| bytes * fct as f64 / 1e9).sum::<f64>() / bytes.max(1.0);
    let trips = outcome.observed.as_ref().map_or(&[][..], |observed| &observed.round_trips);
    let rtt = trips.iter().map(|ns| *ns as f64 / 1e6).sum::<f64>() / trips.len().max(1) as f64;
    let percent = |packets: u64| packets as f64 / outcome.injected.0.max(1) as f64 * 100.0;
    [fct, rtt, percent(outcome.dropped.0), percent(outcome.nics.rx_dropped)]
}

/// Returns names, networks, loads and runs of Figures 5.8 and 5.9, which are of the same, and of Tables 5.3 and 5.4.
pub fn all() -> Vec<(String, Network, u32, Aqm)> {
    let mut all = Vec::new();
    let [default, slow, tenth] =
        [(10, 1, 1), (1, 1, 1), (1, 1, 10)].map(|(host, edge, by)| Network::Internet2(host, edge, by));
    let mut row = |name: &str, network, load, delay, mbps| {
        let schemes = [
            ("fifo", Scheme::Fifo),
            ("fq", Scheme::Fq),
            ("fq-codel", Scheme::FqCodel),
            ("fq-edge", Scheme::FqEdge(20)),
            ("lstf-edge", Scheme::LstfEdge(mbps, 20)),
        ];
        for (of, scheme) in schemes {
            all.push((format!("figure5.8/{name}/{of}"), network, load, Aqm { scheme, delay }));
        }
    };
    row("default", default, 70, 2, 100);
    row("1G-1G", slow, 70, 2, 100);
    row("tenth-30%", tenth, 30, 2, 40);
    row("tenth-50%", tenth, 50, 2, 30);
    row("tenth-70%", tenth, 70, 2, 10);
    row("tenth-half-rtt", tenth, 70, 1, 10);
    row("tenth-double-rtt", tenth, 70, 4, 10);
    for refresh in [10, 20, 30, 40] {
        let scheme = Scheme::LstfEdge(10, refresh);
        all.push((format!("table5.3/{refresh}ms"), tenth, 70, Aqm { scheme, delay: 2 }));
    }
    for load in [30, 50, 70] {
        for (of, scheme) in [("no-ecn", Scheme::Unmarked), ("ecn", Scheme::Marked), ("edge-ecn", Scheme::EdgeEcn)] {
            all.push((format!("table5.4/{load}%/{of}"), Network::FatTree, load, Aqm { scheme, delay: 2 }));
        }
    }
    all
}
