//! Runs scenarios, and measures them.

use irnic_fabric::generator::Generator;
use irnic_fabric::network::Network;
use irnic_sweep::NoResult;
use serde::{Deserialize, Serialize};

use super::scenario::{RATE, Scenario, WIRE};

/// Parts of a run, ns.
#[derive(Copy, Clone, Debug)]
pub struct Time {
    /// Warm-up, not measured.
    pub warm_up: u64,
    /// Measured time.
    pub measured: u64,
}

/// Value of a packet of high, and of low priority: the ToS of §2.5.4.
const VALUES: [f64; 2] = [63.0, 1.0];

/// Results of a run, for the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Throughput, Gbit/s on the wire.
    pub throughput: f64,
    /// Value per µs.
    pub weighted: f64,
    /// Share of the packets sent that switches dropped.
    pub lost: f64,
    /// Mean time in the network, µs.
    pub delay: f64,
}

/// Arrivals so far: packets of high and of low value, and the sum of their times in the network, ns.
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
            // The first source sends packets of high value.
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

/// Runs a scenario with a seed: the warm-up, and the measurement.
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
