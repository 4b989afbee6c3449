//! Faults that no configuration can ask for: bytes that change under way.

use irnic_transports::rc::TransportConfig;
use irnic_transports::wire::icrc_append;

use super::*;
use crate::switch::{Ecn, InputQueuedConfig, Scheduling, SwitchConfig};
use crate::topology::Topology;
use crate::workload::Flow;

/// Ten packets from host 0 to host 1, as frames.
fn carried() -> Simulation {
    let switch =
        InputQueuedConfig { buffer: 1 << 20, pfc: None, ecn: Ecn::Off, scheduling: Scheduling::Strict, speedup: None };
    let flow = Flow { src: 0, dst: 1, bytes: 10_000, start: 0, priority: 0, class: 0 };
    let irn = TransportConfig::preset("irn").expect("a preset");
    let topology = Topology::star(2, 40_000_000_000, 1_000);
    let config = SimConfig::new(topology, vec![flow], SwitchConfig::InputQueued(switch), irn);
    Simulation::new(SimConfig { carry_bytes: true, ..config }).expect("a valid configuration")
}

/// Runs until three packets are on their way, and flips a bit of the second one's payload.
fn flip(simulation: &mut Simulation, correct_icrc: bool) {
    while simulation.packets.len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    let content = simulation.packets.content_mut(1);
    let frame = content.frame.as_mut().expect("a frame");
    frame[500] ^= 4;
    if correct_icrc {
        icrc_append(&content.path, 0, frame);
    }
}

#[test]
fn a_flipped_bit_is_caught_by_the_icrc_and_the_packet_comes_again() {
    let mut simulation = carried();
    flip(&mut simulation, false);
    let outcome = simulation.finish().expect("recovered");
    assert_eq!(outcome.ending, Ending::Complete);
    assert_eq!((outcome.nics.rx_icrc_encapsulated, outcome.nics.retransmitted_pkts), (1, 1));
}

#[test]
fn a_flipped_bit_that_the_icrc_does_not_show_is_found_at_the_end_of_the_flow() {
    let mut simulation = carried();
    flip(&mut simulation, true);
    assert_eq!(simulation.finish().unwrap_err(), SimError::Damaged(0));
}

#[test]
fn bytes_that_vanish_break_the_law() {
    let mut simulation = carried();
    while simulation.packets.len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    simulation.packets.get_mut(1).wire -= 1;
    simulation.config.until = simulation.now;
    assert!(matches!(simulation.finish(), Err(SimError::Invariant(_))));
}

#[test]
fn a_packet_that_dawdles_breaks_littles_law() {
    let mut simulation = carried();
    while simulation.packets.len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    simulation.packets.content_mut(1).sent += 1;
    let error = simulation.finish().unwrap_err().to_string();
    assert!(error.contains("byte·ns in the network"), "{error}");
}
