//! Escape (dissertation at Purdue University, chapter 4): blocked frames with an open way leave their queues.

use irnic_fabric::sim::{Detour, Ending, Outcome, SimConfig};
use irnic_fabric::switch::{EscapeConfig, HolConfig, SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;

use crate::kit::*;

/// Figure 4.6: three switches in a ring and so many hosts at each, links of 40 Gbit/s and 1.5 µs. Every host sends to
/// one at the second switch after its own, clockwise, although the other way round is shorter.
fn ring(hosts: u32, packets: u64, switch: SwitchConfig, hol: Option<HolConfig>) -> SimConfig {
    let flows = (0..3 * hosts).map(|host| flow(host, (host + 2 * hosts) % (3 * hosts), packets)).collect();
    let all = 3 * hosts;
    let detour = |i| Detour { node: all + i, dst: (i + 2) % 3 * hosts, via: all + (i + 1) % 3 };
    let topology = Topology::ring(3, hosts, 40 * G, 1_500);
    with! { detours: (0..3).map(detour).collect(), hol, ..config(topology, flows, switch, "roce") }
}

/// Either kind of switch: XOFF at 100 packets, XON at 80. With input queues outputs serve their inputs in turn, and the
/// ring needs two hosts at each switch to lock up.
fn switches() -> [(u32, SwitchConfig); 2] {
    let at = Thresholds { xoff: 100 * WIRE, xon: 80 * WIRE };
    let pfc = with! { fixed: Some(at), margin: EscapeConfig::default().margin(WIRE as u32), ..shared_pfc(1.0, 0, 0) };
    [(2, input_queued(200 * WIRE, Some(at))), (1, shared(1_000 * WIRE, 1.0, Some(pfc)))]
}

fn escape() -> Option<HolConfig> {
    Some(HolConfig::Escape(EscapeConfig::default()))
}

/// Nothing was lost, and nothing was late.
fn lossless_and_in_order(outcome: &Outcome) {
    assert_eq!(outcome.dropped.0, 0);
    assert_eq!((outcome.nics.retransmitted_pkts, outcome.nics.out_of_seq_request), (0, 0));
    assert_eq!(outcome.nics.rcvd_pkts, outcome.delivered.0);
}

#[test]
fn a_ring_locks_up_without_and_not_with_escape() {
    for (hosts, switch) in switches() {
        let without = run(ring(hosts, 20_000, switch.clone(), None));
        assert!(
            matches!(&without.ending, Ending::Deadlock(ports) if ports.len() == 3),
            "{hosts}: {:?}",
            without.ending
        );
        let with = run(ring(hosts, 20_000, switch, escape()));
        let escaped = with.escape.unwrap();
        assert_eq!(with.ending, Ending::Complete, "{hosts}: at {} ns", with.ended);
        lossless_and_in_order(&with);
        assert!(escaped.frames > 0 && escaped.late == 0);
    }
}

#[test]
fn answers_give_tokens_back_at_once() {
    // Data shares the pool of its output with acknowledgements, which are rare: most tokens for these find none.
    for (hosts, switch) in switches() {
        let payload = |nack| {
            let hol = HolConfig::Escape(with! { nack, ..EscapeConfig::default() });
            let outcome = run(with! { until: 5_000_000, ..ring(hosts, 20_000, switch.clone(), Some(hol)) });
            lossless_and_in_order(&outcome);
            outcome.payload
        };
        let [timer, answers] = [false, true].map(payload);
        assert!(answers > 3 * timer, "{hosts}: {answers} {timer}");
    }
}

#[test]
fn where_nothing_is_paused_escape_changes_nothing() {
    for (hosts, switch) in switches() {
        // By the shorter way every link has one sender.
        let direct =
            |hol| run(with! { detours: Vec::new(), sample: Some(1_000), ..ring(hosts, 50, switch.clone(), hol) });
        let (without, mut with) = (direct(None), direct(escape()));
        assert_eq!((with.escape.take(), with.pfc_frames), (Some(Default::default()), 0));
        assert_eq!(format!("{without:?}"), format!("{with:?}"));
    }
}
