//! Marks of congestion.

use irnic_fabric::sim::Outcome;
use irnic_fabric::switch::{Ecn, SwitchConfig};

use crate::kit::*;

/// A burst of `n` packets to a host that is too slow to take more than the first meanwhile: packet k meets k − 2 that
/// wait.
fn burst(switch: &SwitchConfig, ecn: Ecn, ect: bool, n: u64, seed: u64) -> Outcome {
    let mut switch = switch.clone();
    set_ecn(&mut switch, ecn);
    let mut c = config(star(&[40 * G, 1_000_000]), vec![flow(0, 1, n)], switch, "roce");
    (c.ect, c.until, c.seed) = (ect, 200_000, seed);
    run(c)
}

fn marked(outcome: &Outcome) -> u64 {
    let there = port(outcome, 2, 1).marked;
    assert_eq!(outcome.links.iter().map(|l| l.counters.marked).sum::<u64>(), there, "only in the queue");
    there
}

#[test]
fn a_step_marks_what_meets_more() {
    for switch in deep() {
        // Packets 8 to 20 meet 6 to 18 packets: more than 5. What meets exactly 5, the seventh, is not marked.
        let step = Ecn::Step { k: 5 * WIRE };
        assert_eq!(marked(&burst(&switch, step, true, 20, 1)), 13);
        assert_eq!(marked(&burst(&switch, step, false, 20, 1)), 0, "its sender would not understand");
        assert_eq!(marked(&burst(&switch, Ecn::Step { k: 5 * WIRE - 1 }, true, 20, 1)), 14);
        assert_eq!(marked(&burst(&switch, Ecn::Off, true, 20, 1)), 0);
    }
}

#[test]
fn red_marks_as_its_line_rises() {
    for switch in deep() {
        // From 10 packets to 110 the probability rises to 0.2. Packets 13 to 112 meet 11 to 110: the sum of 0.2 · i /
        // 100 for i from 1 to 100 is 10.1, its variance below 10.1. All beyond, 113 to 142, are marked: 30.
        let red = Ecn::Red { kmin: 10 * WIRE, kmax: 110 * WIRE, pmax: 0.2 };
        let seeds = 40;
        let sum: u64 = (0..seeds).map(|seed| marked(&burst(&switch, red, true, 142, seed)) - 30).sum();
        let (mean, deviation) = (10.1 * seeds as f64, (10.1 * seeds as f64).sqrt());
        assert!((sum as f64 - mean).abs() < 4.0 * deviation, "{sum} marks, expected {mean}");
        assert_eq!(marked(&burst(&switch, red, false, 142, 1)), 0);
        assert_eq!(marked(&burst(&switch, red, true, 12, 1)), 0, "none below the line");
    }
}
