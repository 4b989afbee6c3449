//! Runs scenarios, and what is measured of each.

use irnic_fabric::generator::Generator;
use irnic_fabric::network::Network;
use irnic_sweep::NoResult;
use serde::{Deserialize, Serialize};

use super::scenario::{RATE, Scenario, WIRE};

/// Parts of a run, ns.
#[derive(Copy, Clone, Debug)]
pub struct Time {
    /// What is not measured.
    pub warm_up: u64,
    /// What is.
    pub measured: u64,
}

/// What a packet of high priority is worth, and one of low: the ToS of §2.5.4.
const VALUES: [f64; 2] = [63.0, 1.0];

/// What came of a run, in the time that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What arrived, Gbit/s on the wire.
    pub throughput: f64,
    /// What it is worth: values a µs.
    pub weighted: f64,
    /// Share of packets of high value that switches dropped, of all packets that were.
    pub lost: f64,
    /// Mean time in the network, µs.
    pub delay: f64,
}

/// What has arrived so far: packets of high and of low value, and their time in the network, ns.
#[derive(Copy, Clone, Default)]
struct Arrived {
    high: u64,
    low: u64,
    delay: u64,
    sent: u64,
    dropped: u64,
}

fn arrived(scenario: Scenario, network: &Network<Generator>, sinks: &[u32]) -> Arrived {
    let mut all = Arrived::default();
    for &sink in sinks {
        let received = network.endpoint(sink).received();
        all.delay += received.delay;
        match scenario {
            // The first source sends what is worth more.
            Scenario::TwoSources(..) => {
                all.high += network.endpoint(sink).whole_from(0);
                all.low += network.endpoint(sink).whole_from(1);
            }
            Scenario::Fifo { .. } => all.low += received.packets,
            Scenario::ThreeOutputs(_) => {
                all.high += network.endpoint(sink).of_priority(7);
                all.low += network.endpoint(sink).of_priority(0);
            }
        }
    }
    all.sent = network.endpoints().map(Generator::sent).sum();
    all.dropped = network.totals().dropped_packets;
    all
}

/// Runs a scenario with a seed: up to what is measured, and to the end.
pub fn one(scenario: &Scenario, time: Time, seed: u64) -> Result<Measured, NoResult> {
    let failed = |error: String| NoResult::Failed(error);
    let end = time.warm_up + time.measured;
    let mut built = scenario.build(seed, end).map_err(failed)?;
    built.network.run_until(time.warm_up);
    let before = arrived(*scenario, &built.network, &built.sinks);
    built.network.run_until(end);
    built.network.check().map_err(|error| failed(error.to_string()))?;
    let after = arrived(*scenario, &built.network, &built.sinks);
    let [high, low] = [after.high - before.high, after.low - before.low].map(|packets| packets as f64);
    debug_assert!((high + low) * f64::from(WIRE) * 8.0 <= RATE as f64 * built.sinks.len() as f64 * end as f64 / 1e9);
    let ns = time.measured as f64;
    Ok(Measured {
        throughput: (high + low) * f64::from(WIRE) * 8.0 / ns,
        weighted: (high * VALUES[0] + low * VALUES[1]) * 1e3 / ns,
        lost: (after.dropped - before.dropped) as f64 / (after.sent - before.sent) as f64,
        delay: (after.delay - before.delay) as f64 / (high + low) / 1e3,
    })
}
