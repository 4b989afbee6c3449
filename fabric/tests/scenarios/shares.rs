//! Who gets how much of a link.

use irnic_fabric::switch::Scheduling;

use crate::kit::*;

#[test]
fn inputs_share_an_output_evenly() {
    // n hosts send 40 packets each to host 0, whose link is busy from 1250 on. Taking turns they all have their 39th by
    // the time that 39·n packets are through, and end with the last n: 1250 + (40·n − n + 1 … 40·n) · 250 + 1000.
    for n in [2, 3, 7, 70] {
        let flows = (1..=n).map(|host| flow(host, 0, 40)).collect();
        let rates = vec![40 * G; n as usize + 1];
        let mut fct = fcts(&complete(config(star(&rates), flows, deep()[0].clone(), "roce")));
        fct.sort_unstable();
        let expected: Vec<u64> = (39 * u64::from(n) + 1..=40 * u64::from(n)).map(|k| 1250 + k * 250 + 1000).collect();
        assert_eq!(fct, expected, "{n} hosts");
    }
}

#[test]
fn an_input_has_one_share_however_many_flows_come_by_it() {
    // Host 1 sends 40 packets, host 2 two flows of 40. In turns, host 1 is through after 80 packets, or 79, host 2
    // after 120.
    let flows = vec![flow(1, 0, 40), flow(2, 0, 40), flow(2, 0, 40)];
    let fct = fcts(&complete(config(star(&[40 * G; 3]), flows, deep()[0].clone(), "roce")));
    let end = |packets: u64| 1250 + packets * 250 + 1000;
    assert!([end(79), end(80)].contains(&fct[0]), "{fct:?}");
    // The first packet of the first flow leaves before the second is posted, and then they take turns: its 40th packet
    // is the host's 78th.
    assert_eq!(fct[1..], [end(118), end(120)]);
}

#[test]
fn queue_pairs_share_a_nic_evenly() {
    // Three flows from host 0 to three hosts: 40, 40 and 5 packets. Packet p of the host is at its destination at 250·p
    // + 2250.
    for preset in ["roce", "irn"] {
        let flows = vec![flow(0, 1, 40), flow(0, 2, 40), flow(0, 3, 5)];
        let fct = fcts(&complete(config(star(&[40 * G; 4]), flows, deep()[0].clone(), preset)));
        let end = |packets: u64| packets * 250 + 2250;
        // One packet of the first flow leaves before the others are posted. Then 5 rounds of three, 34 and 35 packets
        // are left of the long ones, and the first ends with 33 · 2 + 1 packets more.
        assert_eq!(fct, [end(16 + 67), end(85), end(16)], "{preset}");
    }
}

#[test]
fn priorities_are_strict_or_take_turns() {
    for mut switch in deep() {
        // Hosts 1 and 2 send 40 packets each to host 0, the one with a low priority, the other with a high one.
        let flows = || vec![with_priority(1, flow(1, 0, 40)), with_priority(6, flow(2, 0, 40))];
        let end = |packets: u64| 1250 + packets * 250 + 1000;
        set_scheduling(&mut switch, Scheduling::Strict);
        let fct = fcts(&complete(config(star(&[40 * G; 3]), flows(), switch.clone(), "roce")));
        // The first packet of the low priority comes in the same nanosecond as the high one's, and before it.
        assert_eq!(fct, [end(80), end(41)]);
        set_scheduling(&mut switch, Scheduling::RoundRobin);
        let mut fct = fcts(&complete(config(star(&[40 * G; 3]), flows(), switch.clone(), "roce")));
        fct.sort_unstable();
        assert_eq!(fct, [end(79), end(80)]);
    }
}
