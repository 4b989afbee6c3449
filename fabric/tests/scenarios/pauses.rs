//! Priority flow control.
//!
//! The network of most cases: host 0 has 40 Gbit/s, host 1 a thousandth of it, all links are 1 µs long. From host 0 to
//! host 1, packet k is at the switch at 250·k + 1000 ns. The first leaves at once, the others wait: for 250 µs each.

use irnic_fabric::sim::Outcome;
use irnic_fabric::switch::{SwitchConfig, Thresholds, headroom};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

const SLOW: u64 = 40_000_000;

/// XOFF beyond 4 packets, XON at 2, and room for `headroom` bytes beyond the fifth packet, which is the one that meets
/// the threshold and exceeds it: each kind of switch.
fn switches(ports: u64, headroom: u64) -> [SwitchConfig; 3] {
    let pfc = |alpha, reserve, resume| with! { headroom: Some(headroom), ..shared_pfc(alpha, reserve, resume) };
    [
        input_queued(5 * WIRE + headroom, Some(Thresholds { xoff: 4 * WIRE, xon: 2 * WIRE })),
        // The threshold is what is set aside for the input, and nothing of what is shared.
        shared(ports * (4 * WIRE + headroom) + WIRE, 0.0, Some(pfc(0.0, 4 * WIRE, 2 * WIRE))),
        // Half of what is free of 12 packets: x > (12 − x) / 2 from x > 4 on. At 2, half is 5, and 3 less are 2.
        shared(ports * headroom + 12 * WIRE, 0.0, Some(pfc(0.5, 0, 3 * WIRE))),
    ]
}

fn slow_receiver() -> Topology {
    star(&[40 * G, SLOW])
}

/// The switch.
const SWITCH: u32 = 2;

#[test]
fn headroom_is_exactly_enough_or_a_packet_is_dropped() {
    // Packet 6 is the fifth to wait and comes at 2500. XOFF takes 12.8 ns, rounded up, and 1000: the host obeys at
    // 3513. By then it has begun packet 15, at 3500. So packets 7 to 15 need headroom: 9.
    for (at, enough) in switches(2, 9 * WIRE).into_iter().enumerate() {
        let outcome = complete(config(slow_receiver(), vec![flow(0, 1, 16)], enough, "roce"));
        assert_eq!((outcome.dropped.0, outcome.nics.retransmitted_pkts), (0, 0), "switch {at}");
        assert_eq!(port(&outcome, SWITCH, 1).peak, 14 * WIRE, "switch {at}");
    }
    for (at, short) in switches(2, 9 * WIRE - 1).into_iter().enumerate() {
        let outcome = complete(config(slow_receiver(), vec![flow(0, 1, 16)], short, "roce"));
        assert_eq!(outcome.dropped, (1, WIRE), "switch {at}");
        assert_eq!(port(&outcome, SWITCH, 0).dropped, 1, "switch {at}: by the input");
        // The fifteenth is missed when the sixteenth comes, and both come again.
        assert_eq!(outcome.nics.retransmitted_pkts, 2, "switch {at}");
    }
    // What the formula sets aside: 2 · 1000 ns, eight PFC frames, the packet before them and the one that has begun,
    // and the one that finds that others have lowered the threshold: never less.
    assert_eq!(headroom(40 * G, 1000, WIRE as u32), 10_000 + 8 * 64 + 3 * WIRE);
}

#[test]
fn pauses_are_counted_and_timed() {
    // The slow link takes one more packet every 250,000 ns from 1250 on; 14 wait when it stops coming in, 2 twelve
    // packets later: XON at T = 3,001,250, obeyed at T + 1013. Then three packets to XOFF, the last at T + 1013 + 750 +
    // 1000, obeyed 1013 later, at T + 3776: packets begun at T + 1013 + 250·i until then are 12. So 15 packets, 12, 12,
    // and one is left of 40.
    let first = 3_002_263 - 3_513;
    let others = 2 * (3_000_000 + 1_013 - 3_776);
    for (at, switch) in switches(2, 9 * WIRE).into_iter().enumerate() {
        let outcome = complete(config(slow_receiver(), vec![flow(0, 1, 40)], switch, "roce"));
        assert_eq!(port(&outcome, 0, SWITCH).paused, first + others, "switch {at}");
        assert_eq!(outcome.paused(), first + others, "switch {at}: nobody else");
        assert_eq!((port(&outcome, SWITCH, 0).pauses, outcome.pfc_frames), (3, 6), "switch {at}: XOFF, and with XON");
        assert_eq!(outcome.dropped.0, 0, "switch {at}");
        // The slow link never stands still: 1250 + 40 · 250,000 + 1000.
        assert_eq!(fcts(&outcome), [10_002_250], "switch {at}");
    }
}

#[test]
fn pfc_frames_go_before_data() {
    // Hosts 2 and 3 send 40 packets each to host 0, from 240 on. Its link is busy from 1490 on, packets begin at 1490 +
    // 250·k, and a queue of up to 40 builds up for it. XOFF, wanted at 2500, goes when the one begun at 2490 has gone:
    // at 2740. The host obeys at 3753, having begun packet 16 at 3750: one more waits than without the crowd, not
    // forty.
    let topology = star(&[40 * G, SLOW, 40 * G, 40 * G]);
    let switch = input_queued(DEEP, Some(Thresholds { xoff: 4 * WIRE, xon: 2 * WIRE }));
    let crowd = [2, 3].map(|host| Flow { start: 240, priority: 1, ..flow(host, 0, 40) });
    let mut peaks = Vec::new();
    for crowd in [&crowd[..0], &crowd] {
        let mut flows = vec![flow(0, 1, 30)];
        flows.extend(crowd);
        let mut c = config(topology.clone(), flows, switch.clone(), "roce");
        c.until = 200_000;
        peaks.push(port(&run(c), 4, 1).peak);
    }
    assert_eq!(peaks, [14 * WIRE, 15 * WIRE]);
}

#[test]
fn a_paused_host_sends_its_other_priorities() {
    // Priority 3 is stopped from 3513 ns to 3 ms. Priority 5 shares the host's link with it until then, and has it
    // alone after: 14 packets of either by 7000 ns, so far they take turns.
    let topology = star(&[40 * G, SLOW, 40 * G]);
    for (at, switch) in switches(3, 9 * WIRE).into_iter().enumerate() {
        let flows = vec![with_priority(3, flow(0, 1, 40)), with_priority(5, flow(0, 2, 400))];
        let outcome = complete(config(topology.clone(), flows, switch, "roce"));
        let fct = fcts(&outcome);
        // Alternating from 0 on, packet k of priority 3 is at the switch at 500·k + 750. Packet 6 is the fifth to wait:
        // 3750, obeyed at 4763. Begun by then: the tenth, at 500 · 9 = 4500. So priority 5 loses 10 turns of 250 ns to
        // it, and its own 400 take 100,000, with 250 and 2000 for the second link.
        assert_eq!(fct[1], 410 * 250 + 250 + 2000, "switch {at}");
        assert!(fct[0] > 9_000_000, "switch {at}: {fct:?}");
        assert!(port(&outcome, 0, 3).paused > 6_000_000, "switch {at}");
        assert_eq!(outcome.dropped.0, 0, "switch {at}");
    }
}

/// Host 0 – A – B – C – host 1, whose link is slow; host 2 at A, host 3 at C. Switches are 4, 5, 6.
fn row() -> Topology {
    let fast = 40 * G;
    let us = 1_000;
    network(
        4,
        3,
        &[(0, 4, fast, us), (4, 5, fast, us), (5, 6, fast, us), (1, 6, SLOW, us), (2, 4, fast, us), (3, 6, fast, us)],
    )
}

#[test]
fn pauses_spread_back_to_the_host() {
    for switch in [&switches(4, 9 * WIRE)[0], &switches(4, 9 * WIRE)[1]] {
        let after = |ns| {
            let mut c = config(row(), vec![flow(0, 1, 100)], switch.clone(), "roce");
            c.until = ns;
            let outcome = run(c);
            [(6, 5), (5, 4), (4, 0)].map(|(from, to)| port(&outcome, from, to).pauses)
        };
        // Packet k is at A at 250·k + 1000, at B at 250·k + 2250, at C at 250·k + 3500. C stops B when the sixth is
        // there, at 5000. B obeys at 6013 and has begun the 15th at 6000. The 16th to 20th wait there: at 7250 B stops
        // A, which obeys at 8263 and has begun the 29th at 8250. The 34th is the fifth to wait there, at 9500.
        for (at, pauses) in
            [(5_000, [1, 0, 0]), (7_249, [1, 0, 0]), (7_250, [1, 1, 0]), (9_499, [1, 1, 0]), (9_500, [1, 1, 1])]
        {
            assert_eq!(after(at), pauses, "at {at}");
        }
        assert_eq!(after(4_999), [0, 0, 0]);
        let outcome = complete(config(row(), vec![flow(0, 1, 100)], switch.clone(), "roce"));
        assert_eq!(outcome.dropped.0, 0);
        assert_eq!(fcts(&outcome), [3 * 1250 + 100 * 250_000 + 1000], "the slow link never waits");
    }
}

#[test]
fn a_victim_stands_behind_what_is_stopped() {
    // Host 2 sends 10 packets to host 3, starting at 20,000, when the links from A and B are stopped because of host 1.
    // Alone it takes 4 · 1250 + 9 · 250.
    let alone = 7_250;
    let victim = |outcome: &Outcome| fcts(outcome)[1];
    let go = |switch: SwitchConfig, priority| {
        let mut victim = with_priority(priority, flow(2, 3, 10));
        victim.start = 20_000;
        complete(config(row(), vec![flow(0, 1, 100), victim], switch, "irn"))
    };
    // More headroom than one priority needs, for there are two.
    for with_pfc in &switches(4, 30 * WIRE)[..2] {
        let blocked = go(with_pfc.clone(), 0);
        assert!(victim(&blocked) > 1_000_000, "{}", victim(&blocked));
        assert_eq!(blocked.dropped.0, 0);
        assert_eq!(victim(&go(with_pfc.clone(), 1)), alone, "another priority is not stopped");
    }
    // Without PFC what does not fit into host 1's queue is dropped there, and the victim meets at most a packet of the
    // other flow before each of its own. (Where inputs have the buffers, the victim finds that of its input full.)
    let free = go(shared(28 * WIRE, 1.0, None), 0);
    assert!(free.dropped.0 > 0);
    assert!((alone..=alone + 13 * 250).contains(&victim(&free)), "{}", victim(&free));
}
