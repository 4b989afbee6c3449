//! Switches with a buffer and an order for each output.

use irnic_fabric::generator::{Gap, Stream};
use irnic_fabric::network::NetworkConfig;
use irnic_fabric::switch::{Discipline, OutputQueuedConfig, SwitchConfig};

use crate::kit::*;

fn switch(buffer: u64, discipline: Discipline) -> SwitchConfig {
    SwitchConfig::OutputQueued(OutputQueuedConfig::new(buffer, discipline))
}

/// Three hosts send to the fourth at once, with priorities 0, 3 and 7.
fn three_to_one(discipline: Discipline, buffer: u64, packets: u64) -> Net {
    let stream = |priority: u8| {
        let mut stream = Stream::new(3, WIRE as u32, packets, Gap::Constant(250));
        (stream.priority, stream.slack) = (priority, i64::from(priority) * 1_000_000);
        stream
    };
    let streams = vec![vec![stream(0)], vec![stream(3)], vec![stream(7)], vec![]];
    stream_until(NetworkConfig::new(star(&[40 * G; 4]), switch(buffer, discipline)), streams, u64::MAX)
}

#[test]
fn accounts_hold_and_buffers_keep_their_limit_whatever_the_order() {
    for (name, discipline) in Discipline::NAMES {
        // Bytes are conserved and Little's law holds, or the run fails.
        let net = three_to_one(discipline, 20 * WIRE, 400);
        let out = link(&net, 4, 3);
        let received = net.endpoint(3).received();
        let dropped: u64 = (0..3).map(|host| link(&net, 4, host).dropped).sum();
        assert_eq!(received.packets + dropped, 1_200, "{name}");
        assert_eq!((out.peak, dropped > 700), (20 * WIRE, true), "{name}");
    }
}

#[test]
fn with_room_for_all_nothing_is_dropped() {
    for (name, discipline) in Discipline::NAMES {
        let net = three_to_one(discipline, DEEP, 100);
        assert_eq!(net.endpoint(3).received().packets, 300, "{name}");
    }
}

#[test]
fn the_highest_priority_loses_nothing_and_the_lowest_all_but_the_first() {
    let net = three_to_one(Discipline::Priority, 20 * WIRE, 400);
    let of = |priority| net.endpoint(3).of_priority(priority);
    assert_eq!(of(7), 400);
    // What is left of the buffer is for 3: the lowest goes before the others have come, and the highest never stops.
    assert!(of(0) <= 2 && (15..=21).contains(&of(3)), "{} {}", of(0), of(3));
}

#[test]
fn a_switch_that_differs_does_what_it_is_told() {
    let streams = |priority: u8| {
        let mut stream = Stream::new(3, WIRE as u32, 400, Gap::Constant(250));
        stream.priority = priority;
        vec![stream]
    };
    let others = NetworkConfig::new(star(&[40 * G; 4]), switch(20 * WIRE, Discipline::Fifo));
    let differing = with! { differing: vec![(4, switch(20 * WIRE, Discipline::Priority))], ..others.clone() };
    let of = |config| {
        let net = stream_until(config, vec![streams(0), streams(3), streams(7), vec![]], u64::MAX);
        net.endpoint(3).of_priority(7)
    };
    assert!(of(others) < 200);
    assert_eq!(of(differing), 400);
}

#[test]
fn fair_queueing_gives_each_flow_a_third() {
    let net = three_to_one(Discipline::Fair, 30 * WIRE, 3_000);
    for priority in [0, 3, 7] {
        let share = net.endpoint(3).of_priority(priority);
        assert!((1_000..=1_040).contains(&share), "{share}");
    }
}

#[test]
fn most_slack_is_dropped() {
    let net = three_to_one(Discipline::LeastSlack, 20 * WIRE, 400);
    let of = |priority| net.endpoint(3).of_priority(priority);
    // The stream without slack goes first as long as it lasts; 7 ms are more than the run takes.
    assert!(of(0) == 400 && of(3) < 25 && of(7) < 25, "{} {} {}", of(0), of(3), of(7));
}

/// Edge-CoDel and Edge-ECN (UPS §5.3).
#[test]
fn receiving_nics_drop_and_mark_what_has_waited_in_switches_that_keep_slack() {
    let nics = |discipline, transport: &str| {
        let flows = (1..3).map(|src| flow(src, 0, 2_000)).collect();
        complete(config(star(&[10 * G; 5]), flows, switch(DEEP, discipline), transport)).nics
    };
    let codel = "iwarp,edge=codel:10us:100us:1ms";
    for discipline in [Discipline::LeastSlack, Discipline::Fair] {
        let dropped = nics(discipline.clone(), codel).rx_dropped;
        assert!((20..100).contains(&dropped), "{discipline:?}: {dropped}");
        assert_eq!(nics(discipline, "iwarp").rx_dropped, 0);
    }
    // What no switch takes off the slack is not seen.
    assert_eq!(nics(Discipline::Fifo, codel).rx_dropped, 0);
    let marked = |transport| nics(Discipline::LeastSlack, transport).np_ecn_marked_roce_packets;
    assert!(marked("iwarp,cc=dctcp,edge=ecn:15,line-rate=10G") > 100);
    assert_eq!(marked("iwarp,cc=dctcp"), 0);
    // A sender that does not understand marks gets none.
    assert_eq!(marked("iwarp,edge=ecn:15,line-rate=10G"), 0);
}
