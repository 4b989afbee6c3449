//! Unresponsive senders, and the effect of a switch on them (Figure 2): a network of generators, without NICs.

use irnic_fabric::generator::{Gap, Generator, Stream};
use irnic_fabric::network::{Network, NetworkConfig};
use irnic_fabric::switch::{Cut, SwitchConfig, TrimmingConfig};

use super::measure::Measured;
use super::scenario::{LINK_RATE, Phases, Scenario, Time};
use crate::random;

/// Transmission time of this many bytes on a link, rounded up, ns.
fn sending(wire: u64) -> u64 {
    (wire * 8_000_000_000).div_ceil(LINK_RATE)
}

/// Runs a number of senders, which start within a packet time of each other.
pub fn run(
    scenario: &Scenario,
    (senders, cut, phases): (u32, Cut, Phases),
    time: Time,
    seed: u64,
) -> Result<Measured, String> {
    let full = scenario.full_packet();
    let mut switch = TrimmingConfig::new(scenario.queue * full);
    switch.cut = cut;
    // Returning headers to senders that ignore them is pointless.
    switch.returns = false;
    let packets = time.until / sending(full) + 2;
    let generator = |host: u32| {
        let mut stream = Stream::new(senders, full as u32, packets, Gap::Constant(0));
        stream.start = match phases {
            Phases::Even => sending(full) * u64::from(host) / u64::from(senders),
            Phases::Random => random::below(seed, host, sending(full)),
        };
        Generator::new(vec![stream], seed)
    };
    let hosts = (0..senders).map(generator).chain([Generator::sink()]).collect();
    let mut config = NetworkConfig::new(scenario.topology(), SwitchConfig::Trimming(switch));
    config.seed = seed;
    let mut net = Network::new(config, hosts, ()).map_err(|e| e.to_string())?;
    let arrived = |net: &Network<Generator>| -> Vec<u64> {
        (0..senders).map(|host| net.endpoint(senders).whole_from(host)).collect()
    };
    net.run_until(time.from);
    let before = arrived(&net);
    net.run_until(time.until);
    net.check().map_err(|e| e.to_string())?;
    let payload = scenario.mtu.bytes() as u64;
    let gbps = |packets: u64| (packets * payload * 8) as f64 / (time.until - time.from) as f64;
    let totals = net.totals();
    Ok(Measured {
        rates: arrived(&net).into_iter().zip(before).map(|(after, before)| gbps(after - before)).collect(),
        hosts: senders + 1,
        overhead: full as f64 / payload as f64,
        sent: totals.injected_packets,
        trimmed: totals.trimmed_packets,
        dropped: totals.dropped_packets,
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndp::cells::Metric;
    use crate::ndp::scenario::Traffic;

    /// With n senders, a FIFO's link has n headers per packet time, less those of packets that get through.
    #[test]
    fn a_fifo_of_headers_collapses_as_the_sum_of_its_headers_says_and_two_queues_do_not() {
        let time = Time { from: 2_000_000, until: 42_000_000 };
        let of = |senders, cut, phases| {
            let scenario = Scenario::ndp(8, Traffic::Unresponsive { senders, cut, phases });
            let run = run(&scenario, (senders, cut, phases), time, 1).unwrap();
            [Metric::FairShare, Metric::WorstTenth].map(|metric| metric.of(&run).unwrap())
        };
        // 8,192 + 82 bytes, and the length of a trimmed packet: 46 + 24.
        let (full, header) = (8_274.0, 70.0);
        for n in [1, 20, 80] {
            let expected = 100.0 * (full - header * f64::from(n)) / (full - header);
            let [mean, worst] = of(n, Cut::InPlace, Phases::Random);
            assert!((mean - expected).abs() < 1.5 && worst <= mean, "{n}: {mean} {worst}, not {expected}");
        }
        assert_eq!(of(150, Cut::InPlace, Phases::Random), [0.0, 0.0]);
        // Ten headers per packet.
        for phases in [Phases::Even, Phases::Random] {
            let [mean, worst] = of(40, Cut::Coin, phases);
            assert!((91.0..93.0).contains(&mean) && worst > 20.0, "{phases:?}: {mean} {worst}");
        }
        let [alone, ..] = of(1, Cut::Coin, Phases::Even);
        assert!((99.9..100.1).contains(&alone), "{alone}");
    }
}
