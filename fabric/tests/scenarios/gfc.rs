//! Gentle flow control (Qian et al., SIGCOMM 2019): neighbours are slowed down and never stopped.

use irnic_fabric::sim::{Detour, Outcome, Parallel, SimConfig};
use irnic_fabric::switch::{GfcConfig, SwitchConfig};
use irnic_fabric::topology::Topology;

use crate::kit::*;

/// An input is slowed down from `first` packets on, and has room for `most`.
fn gentle(first: u64, most: u64) -> SwitchConfig {
    let SwitchConfig::SharedBuffer(buffer) = shared(DEEP, 1e6, None) else { unreachable!() };
    let gfc = Some(GfcConfig::new(first * WIRE, most * WIRE, WIRE as u32));
    SwitchConfig::SharedBuffer(with! { gfc, ..buffer })
}

fn unharmed(outcome: &Outcome) {
    assert_eq!((outcome.dropped.0, outcome.nics.retransmitted_pkts, outcome.pfc_frames), (0, 0, 0));
}

#[test]
fn a_fast_sender_comes_down_to_what_its_receiver_takes() {
    // 40 Gbit/s to 10: the input is between the first stage, 20 Gbit/s, and the third, 5; it never stands still. The
    // slow link is busy from 250 + 1000 on: a packet each µs, and 1000 ns for the last.
    let outcome = complete(config(star(&[40 * G, 10 * G]), vec![flow(0, 1, 400)], gentle(20, 40), "roce"));
    unharmed(&outcome);
    assert_eq!(fcts(&outcome), [1_250 + 400 * 1_000 + 1_000]);
    let peak = port(&outcome, 2, 1).peak;
    assert!((20 * WIRE..40 * WIRE).contains(&peak), "{peak}");
}

#[test]
fn a_rate_that_is_halved_is_the_links_rate_over_two() {
    // Below the first stage a packet takes 250 ns; 100 of them never reach it.
    let outcome = complete(config(star(&[40 * G, 40 * G]), vec![flow(0, 1, 100)], gentle(20, 40), "roce"));
    assert_eq!(fcts(&outcome), [101 * 250 + 2_000]);
    // All of 8 senders to one: what is slowed down shares the link, and nothing is lost.
    let flows = (0..8).map(|src| flow(src, 8, 100)).collect();
    let outcome = complete(config(star(&[40 * G; 9]), flows, gentle(20, 40), "roce"));
    unharmed(&outcome);
    let last = fcts(&outcome).into_iter().max().unwrap();
    assert_eq!(last, 250 + 800 * 250 + 2_000, "the link is never idle");
}

/// The ring of three hosts that PFC locks up.
fn ring(switch: SwitchConfig) -> SimConfig {
    let flows = (0..3).map(|host| flow(host, (host + 2) % 3, 2_000)).collect();
    let detours = (0..3).map(|i| Detour { node: 3 + i, dst: (i + 2) % 3, via: 3 + (i + 1) % 3 }).collect();
    with! { detours, ..config(Topology::ring(3, 1, 40 * G, 100), flows, switch, "roce") }
}

#[test]
fn the_ring_does_not_lock_up() {
    // The second has stages that are shorter than packets.
    for (first, most) in [(100, 400), (20, 40)] {
        let ring = ring(gentle(first, most));
        let outcome = complete(ring.clone());
        unharmed(&outcome);
        // Rates are told across threads, too.
        let parallel = Parallel::new(ring, 2).unwrap().finish().unwrap();
        assert_eq!(format!("{parallel:?}"), format!("{outcome:?}"));
    }
}
