//! Open-loop flows, over unreliable connections: they leave as the sender's link takes them, whatever the network does.

use irnic_fabric::sim::{Ending, Outcome, SimConfig};
use irnic_fabric::switch::SwitchConfig;
use irnic_transports::qp::Service;

use crate::kit::*;

fn open(topology: irnic_fabric::topology::Topology, flows: Vec<irnic_fabric::workload::Flow>) -> SimConfig {
    with_switch(topology, flows, input_queued(DEEP, None))
}

fn with_switch(
    topology: irnic_fabric::topology::Topology,
    flows: Vec<irnic_fabric::workload::Flow>,
    switch: SwitchConfig,
) -> SimConfig {
    let mut config = config(topology, flows, switch, "irn");
    config.setups[0].service = Service::Uc;
    with! { quantum: 65_536, ..config }
}

/// When senders were done, ns.
fn left(outcome: &Outcome) -> Vec<u64> {
    outcome.records.iter().map(|record| record.acknowledged.expect("sent")).collect()
}

#[test]
fn packets_follow_each_other_without_an_answer() {
    // 250 ns at 40 Gbit/s, 1 µs a link: the tenth begins at 2250 and is there 2 · (250 + 1000) later. No longer than
    // ideal.
    let outcome = complete(open(star(&[40 * G, 40 * G]), vec![flow(0, 1, 10)]));
    assert_eq!((left(&outcome), fcts(&outcome), ideals(&outcome)), (vec![2_250], vec![4_750], vec![4_750]));
    assert_eq!((outcome.injected.0, outcome.delivered.0, outcome.ended), (10, 10, 4_750));
}

#[test]
fn a_host_is_one_queue_first_come_first_served() {
    // Host 0 has three flows. The second is posted at 100 ns, when a packet is under way; the third with it.
    let flows = [(1, 2, 0), (2, 3, 100), (1, 1, 100)];
    let flows = flows.map(|(dst, packets, start)| irnic_fabric::workload::Flow { start, ..flow(0, dst, packets) });
    let outcome = complete(open(star(&[40 * G; 3]), flows.to_vec()));
    // Last packets begin at 250, 1000, 1250.
    assert_eq!(left(&outcome), [250, 1_000, 1_250]);
    let ends: Vec<_> = outcome.records.iter().map(|record| record.delivered.unwrap()).collect();
    assert_eq!(ends, [250, 1_000, 1_250].map(|begins| begins + 2 * 1_250));
}

#[test]
fn a_slow_link_and_a_full_network_hold_nobody_up() {
    // Four senders for one link of 10 Gbit/s: 1000 ns a packet there. All are done when their own links are.
    let flows: Vec<_> = (0..4).map(|src| flow(src, 4, 20)).collect();
    let alone = complete(open(star(&[40 * G, 40 * G, 40 * G, 40 * G, 10 * G]), flows.clone()));
    assert_eq!(left(&alone), [19 * 250; 4]);
    // 80 packets by the slow link, the first of which is at the switch at 1250: 1250 + 80 · 1000 + 1000.
    assert_eq!(alone.ended, 82_250);
    // Less room loses packets and changes nothing of when others leave.
    let lossy = run(with_switch(star(&[40 * G, 40 * G, 40 * G, 40 * G, 10 * G]), flows, input_queued(4 * WIRE, None)));
    assert_eq!((left(&lossy), lossy.injected), (left(&alone), alone.injected));
    assert!(lossy.dropped.0 > 0 && lossy.injected.0 == lossy.delivered.0 + lossy.dropped.0);
    let incomplete = lossy.records.iter().filter(|record| record.delivered.is_none()).count();
    assert!(incomplete > 0);
    assert_eq!(lossy.ending, Ending::Stuck);
}

#[test]
fn a_lost_packet_makes_its_flow_incomplete_and_no_other() {
    // Of four packets at once two find room: one being sent to the slow host, and one that waits.
    let flows = vec![flow(0, 2, 8), flow(1, 3, 8)];
    let outcome = run(with_switch(star(&[40 * G, 40 * G, G, 40 * G]), flows, input_queued(2 * WIRE, None)));
    let complete: Vec<bool> = outcome.records.iter().map(|record| record.delivered.is_some()).collect();
    assert_eq!((complete, outcome.ending), (vec![false, true], Ending::Stuck));
    assert_eq!(outcome.records[0].retransmitted, 0);
    assert_eq!(outcome.dropped.0, outcome.injected.0 - outcome.delivered.0);
}

#[test]
fn bytes_arrive_intact() {
    for flows in [vec![flow(0, 1, 10)], vec![flow(0, 2, 7), flow(1, 2, 30), flow(2, 0, 1)]] {
        let hosts = 3;
        let outcome = complete(with! { carry_bytes: true, ..open(star(&[40 * G; 3]), flows) });
        assert_eq!(outcome.links.len(), 2 * hosts);
    }
}

#[test]
fn flows_cannot_share_an_unreliable_connection() {
    use irnic_fabric::sim::{QpPolicy, Simulation};
    let config = with! { qps: QpPolicy::Reused, ..open(star(&[40 * G; 2]), vec![flow(0, 1, 1)]) };
    let error = Simulation::new(config).unwrap_err().to_string();
    assert_eq!(error, "flow 0 has an unreliable connection, which flows cannot share");
    let mut datagrams = open(star(&[40 * G; 2]), vec![flow(0, 1, 1)]);
    datagrams.setups[0].service = Service::Ud;
    assert_eq!(Simulation::new(datagrams).unwrap_err().to_string(), "flows of service Ud; expected Rc or Uc");
}
