//! Runs and replays scenarios, and measures them.

use std::sync::Arc;

use irnic_fabric::network::NetworkConfig;
use irnic_fabric::schedule::{Detail, Header, Replay, Replayed, Schedule};
use irnic_sim::SLICE;
use irnic_sweep::{NoResult, Watch};
use serde::{Deserialize, Serialize};

use super::scenario::{By, Original, Scenario};
use super::schedulers::{NO_SIZE, Order, preemptive, switches};
use crate::runs::simulate;

/// Number of points of the distribution of ratios.
const POINTS: usize = 200;

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of packets.
    pub packets: u64,
    /// Shares of overdue packets: at all, by more than rounding, and by more than a packet's transmission time.
    pub overdue: f64,
    pub beyond_rounding: f64,
    pub late: f64,
    /// Largest delay of an overdue packet, µs.
    pub worst: f64,
    /// Shares of packets in the original by number of congestion points, and by number of switches in which they
    /// waited.
    pub points: Vec<f64>,
    pub waits: Vec<f64>,
    /// Ratios of queueing in the replay to that in the original, at evenly spaced quantiles from 0 to 1.
    pub ratios: Vec<f64>,
    /// Share of packets that waited no longer in the replay.
    pub no_longer: f64,
}

/// Runs a scenario with a seed, with flows that arrive for `arrivals` ns, and the replay.
pub fn one(scenario: &Scenario, arrivals: u64, seed: u64, watch: &Watch<'_>) -> Result<Measured, NoResult> {
    let config = scenario.config(seed, arrivals).map_err(NoResult::Failed)?;
    let watch = &watch.part(if matches!(scenario.original, Original::Sized(_)) { 3 } else { 2 });
    let mut network = config.network();
    let packets = |flow: u32| (config.flows[flow as usize].bytes / 1_024) as i64;
    let mut outcome = simulate(watch, config.clone())?;
    if outcome.dropped.0 > 0 {
        return Err(NoResult::Failed(format!("{} packets were dropped; expected room for all", outcome.dropped.0)));
    }
    let mut schedule = outcome.schedule.take().unwrap_or_default();
    drop(outcome);
    if let Original::Sized(order) = scenario.original {
        // If there are two classes, every other flow is of the class without sizes.
        let is_first = |flow: u32| order != Order::Classes || flow.is_multiple_of(2);
        let size = |flow: u32| if is_first(flow) { packets(flow) } else { NO_SIZE };
        let sizes = schedule.packets().iter().map(|packet| size(packet.flow)).collect();
        network.switch = switches(order);
        let detail = config.schedule.unwrap_or(Detail::Ends);
        let again = replay(&network, Arc::new(schedule), Header::Given(Arc::new(sizes)), Some(detail), 0, watch)?;
        schedule = again.schedule.unwrap_or_default();
    }
    let (header, switch) = match scenario.by {
        By::Lstf => (Header::Slack, switches(Order::Lstf)),
        By::PreemptiveLstf => (Header::Slack, preemptive(Order::Lstf)),
        By::Edf => (Header::Exit, switches(Order::Edf)),
        By::Priorities => (Header::Exit, switches(Order::Rank)),
        By::Vector => (Header::Vector, switches(Order::Fifo)),
    };
    network.switch = switch;
    let schedule = Arc::new(schedule);
    let replayed = replay(&network, schedule.clone(), header, None, scenario.network.packet_time(), watch)?;
    Ok(Measured::of(&schedule, &replayed))
}

fn replay(
    network: &NetworkConfig,
    schedule: Arc<Schedule>,
    header: Header,
    record: Option<Detail>,
    late: u64,
    watch: &Watch<'_>,
) -> Result<Replayed, NoResult> {
    let failed = |e: irnic_fabric::schedule::ReplayError| NoResult::Failed(e.to_string());
    let mut replay = Replay::new(network.clone(), schedule, header).map_err(failed)?;
    record.into_iter().for_each(|detail| replay.record(detail));
    let mut advance = watch.begin();
    while !replay.run(SLICE).map_err(failed)? {
        let (done, all) = replay.progress();
        advance.to(done as f64 / all.max(1) as f64);
        if watch.is_interrupted() {
            return Err(NoResult::Interrupted);
        }
    }
    replay.outcome(late).map_err(failed)
}

impl Measured {
    fn of(schedule: &Schedule, replayed: &Replayed) -> Measured {
        let all = &replayed.all;
        let no_longer = replayed.ratios.partition_point(|ratio| *ratio <= 1.0);
        Measured {
            packets: all.packets,
            overdue: all.share(all.overdue),
            beyond_rounding: all.share(all.beyond_rounding),
            late: all.share(all.late),
            worst: replayed.worst as f64 / 1e3,
            points: schedule.by_points(),
            waits: schedule.by_waits(),
            ratios: (0..=POINTS).filter_map(|at| replayed.ratio(at as f64 / POINTS as f64)).collect(),
            no_longer: no_longer as f64 / replayed.ratios.len().max(1) as f64,
        }
    }

    /// The ratio at a quantile.
    pub fn ratio(&self, share: f64) -> Option<f64> {
        self.ratios.get((share * POINTS as f64).round() as usize).copied()
    }
}
