//! §6.2: calls over the longest paths of a Clos network, with a concurrent incast.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers, Transport};
use irnic_fabric::sim::{HeaderBytes, Outcome, QpPolicy, SimConfig};
use irnic_fabric::summary::Distribution;
use irnic_fabric::topology::Topology;
use irnic_transports::config::{Timer, TransportConfig};
use serde::{Deserialize, Serialize};

use super::incast::{AROUND, BUFFER, LINK_RATE, MTU, PFC_ALPHA, Time};

/// "A few hundred machines in a classic Clos topology": a fat-tree of 250 hosts.
const ARITY: u32 = 10;
const HOSTS: u32 = ARITY * ARITY * ARITY / 4;
/// Propagation delay of a link, ns: 18 µs for the round trip on the longest path, close to the 20 µs of §6.1 for its
/// rack.
const DELAY: u64 = 1_500;
/// "A client picks a server from a set of servers with the longest path": the size of the set is not specified. With
/// eight, a connection has a call each millisecond or two, and its rate persists between them.
const SERVERS: u32 = 8;
/// Size of a request, and of a response, bytes.
const CALL: u64 = 64 << 10;
/// Size of a pinger's packets, bytes, and the mean time between those of a host, ns.
const PING: u64 = 64;
const PING_GAP: u64 = 100_000;
/// "One 40-to-1 pattern".
const INCAST: u32 = 40;
/// The receiver of the incast.
const RECEIVER: u32 = 0;
/// Classes of the workload.
const CALLS: u8 = 0;
const PINGS: u8 = 1;

/// Length of a segment, KiB: "to stress TIMELY and create increased burstiness, we used 64 KB RPCs and segment sizes".
const SEGMENT: u32 = 64;

/// A scenario on the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Clos {
    /// Congestion control, in the syntax of `--cc`.
    pub cc: String,
    /// Load of each host's link, requests and responses together, including headers, %.
    pub percent: u32,
    /// Whether forty hosts continuously send to one.
    pub incast: bool,
    /// Whether it is measured when connections have hardly begun. The text does not say.
    pub early: bool,
}

/// Results of a run.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Payload of calls that arrived during the measurement, relative to what links can carry.
    pub accepted: f64,
    /// Median and 99th percentile of the round trips of pingers, µs.
    pub ping: [f64; 2],
    /// Median and 99th percentile of the times of calls, µs.
    pub call: [f64; 2],
    /// Share of all ports' time for which they were paused by PFC, %.
    pub paused: f64,
    /// Rate of the link of the incast's receiver, calls included, from the beginning, Gbit/s.
    pub receiver: f64,
}

impl Clos {
    /// Returns the measured time of a run, ns: connections begin at line rate, and have settled after 50 ms, but not
    /// after 10.
    pub fn time(&self, Time { warm_up, measured }: Time) -> Time {
        Time { warm_up: warm_up / if self.early { 100 } else { 20 }, measured: measured / 50 }
    }

    /// TIMELY with the parameters of §6 and additional ones. Connections begin at line rate: at a hundredth of it, as
    /// those of the incasts, a call would take 5 ms.
    pub fn timely(percent: u32, incast: bool, more: &str) -> Clos {
        let more = if more.is_empty() { String::new() } else { format!(",{more}") };
        Clos { cc: format!("timely,segment={SEGMENT}K,gain=1/32{more}"), percent, incast, early: false }
    }

    /// PFC alone.
    pub fn pfc(percent: u32, incast: bool) -> Clos {
        Clos { cc: "none".into(), percent, incast, early: false }
    }

    /// Congestion control of the incast. Its connections begin at their share of the receiver's link, as in steady
    /// state; early, at line rate, as all others.
    fn incast_cc(&self) -> String {
        if self.cc == "none" || self.early {
            self.cc.clone()
        } else {
            format!("{},initial={}", self.cc, 1.0 / f64::from(INCAST))
        }
    }

    /// Returns the run with a seed.
    pub fn config(&self, time: Time, seed: u64) -> Result<SimConfig, String> {
        let end = time.warm_up + time.measured;
        let packet = |payload: u64| payload + payload.div_ceil(MTU.bytes() as u64) * u64::from(AROUND);
        // Half of it is requests, the other half responses.
        let load = f64::from(self.percent) / 200.0;
        let pings = packet(PING) as f64 * 8e9 / (LINK_RATE * PING_GAP) as f64;
        let to = format!("to=farthest,servers={SERVERS}");
        let mut workload = format!(
            "rpc:request={CALL},response={CALL},load={load},{to}+rpc:request={PING},response={PING},load={pings},{to}"
        );
        let mut transports = vec![transport(&self.cc)?, transport("none")?];
        if self.incast {
            let each = u128::from(LINK_RATE) * u128::from(end) / 8_000_000_000;
            workload += &format!("+incast:senders={INCAST},each={each},to={RECEIVER}");
            transports.push(transport(&self.incast_cc())?);
        }
        let mut shared = SharedBuffers::default();
        shared.pfc_alpha = PFC_ALPHA;
        let mut experiment = Experiment::default();
        experiment.topology = Topology::fat_tree(ARITY, LINK_RATE, DELAY);
        experiment.workload = workload.parse().map_err(|e| format!("{workload}: {e}"))?;
        experiment.duration = Some(end);
        experiment.transports = transports;
        experiment.buffers = Buffers::Shared(shared);
        experiment.buffer = Some(BUFFER);
        experiment.pfc = true;
        experiment.mtu = MTU;
        experiment.headers = HeaderBytes::Fixed(AROUND);
        // Connections are reused by calls.
        experiment.qps = QpPolicy::Reused;
        experiment.quantum = SEGMENT * 1024 / MTU.bytes() as u32;
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.until = end;
        Ok(config)
    }
}

fn transport(cc: &str) -> Result<Transport, String> {
    let mut transport = TransportConfig::preset("roce").expect("a preset");
    transport.congestion = cc.parse().map_err(|e| format!("{cc}: {e}"))?;
    transport.line_rate = LINK_RATE;
    transport.base_rtt = 12 * DELAY;
    // Nothing is lost with PFC.
    transport.timer = Timer::Fixed(None);
    transport.window = 65_536;
    Ok(Transport::from(transport))
}

impl Calls {
    /// Computes the results of a run.
    pub fn of(outcome: &Outcome, time: Time) -> Calls {
        let measured = time.warm_up..time.warm_up + time.measured;
        let arrived = || {
            let flows = outcome.flows.iter().zip(&outcome.records);
            flows.filter(|(_, record)| record.delivered.is_some_and(|at| measured.contains(&at)))
        };
        let bytes: u64 = arrived().filter(|(flow, _)| flow.class == CALLS).map(|(flow, _)| flow.bytes).sum();
        let payload = MTU.bytes() as f64 / (MTU.bytes() as f64 + f64::from(AROUND));
        let most = f64::from(HOSTS) * LINK_RATE as f64 * payload * time.measured as f64 / 8e9;
        let times = |class: u8| {
            let of = arrived().filter(|(flow, _)| flow.class == class).filter_map(|(_, record)| record.call());
            let d = Distribution::of(&mut of.map(|ns| ns as f64 / 1e3).collect::<Vec<f64>>());
            [d.p50, d.p99]
        };
        let to_receiver = outcome.links.iter().find(|link| link.to == RECEIVER);
        let ports = outcome.links.len() as f64 * outcome.ended.max(1) as f64;
        Calls {
            accepted: bytes as f64 / most,
            ping: times(PINGS),
            call: times(CALLS),
            paused: 100.0 * outcome.paused() as f64 / ports,
            receiver: to_receiver.map_or(0.0, |link| link.counters.bytes as f64 * 8.0 / outcome.ended.max(1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_offer_what_was_asked_for_over_the_longest_paths() {
        let time = Time { warm_up: 1_000_000, measured: 1_000_000 };
        let config = Clos::pfc(60, true).config(time, 1).unwrap();
        assert_eq!((config.topology.hosts, config.quantum, config.responses.len()), (HOSTS, 64, 2));
        let of = |class| config.flows.iter().filter(move |flow| flow.class == class);
        let pod = |host: u32| host / (ARITY * ARITY / 4);
        assert!(of(CALLS).chain(of(PINGS)).all(|flow| pod(flow.src) != pod(flow.dst)));
        assert!(of(2).count() == 40 && of(2).all(|flow| flow.dst == 0 && flow.bytes == 2_500_000));
        // 30 % of 250 links for 2 ms in requests of 67,200 bytes each; 20 pings a host.
        let (calls, pings) = (of(CALLS).count(), of(PINGS).count());
        assert!((2_600..3_000).contains(&calls) && (4_700..5_300).contains(&pings), "{calls} {pings}");
    }
}
