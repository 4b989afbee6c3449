//! RoCC in whole networks: switches notify flows of fair rates, queues rest at Q_ref, and the accounts hold.

use irnic_fabric::network::{Change, LinkChange};
use irnic_fabric::sim::{Outcome, SimConfig};
use irnic_fabric::switch::{Compute, FlowTable, RoccConfig, Thresholds};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::Flow;
use irnic_transports::congestion::FairRateConfig;

use crate::kit::*;

const MS: u64 = 1_000_000;
/// Bytes of a notice on the wire.
const NOTICE: u64 = 94;

/// With congestion points in the switches, and senders that heed them.
fn noticed(mut c: SimConfig, points: RoccConfig, rate: u64) -> SimConfig {
    let transport = &mut c.setups[0].transport;
    (transport.congestion, transport.line_rate, transport.base_rtt) = ("rocc".parse().unwrap(), rate, 6_000);
    with! { rocc: Some(points), ..c }
}

/// `n` flows into one link of `rate`, each longer than `until`.
fn incast(n: u32, rate: u64, points: RoccConfig, until: u64) -> Outcome {
    let flows = (1..=n).map(|src| flow(src, 0, 10_000_000)).collect();
    let c = config(star(&vec![rate; n as usize + 1]), flows, deep()[1].clone(), "roce");
    let outcome = run(with! { until, sample: Some(50_000), ..noticed(c, points, rate) });
    assert_eq!((outcome.dropped.0, outcome.nics.local_ack_timeout_err), (0, 0));
    outcome
}

/// Mean of the queue in the last third, bytes.
fn rests_at(outcome: &Outcome) -> f64 {
    let third = &outcome.samples[outcome.samples.len() / 3 * 2..];
    third.iter().map(|s| s.longest as f64).sum::<f64>() / third.len() as f64
}

#[test]
fn queues_rest_at_the_reference_and_flows_have_equal_shares() {
    for rate in [40 * G, 100 * G] {
        for n in [2, 10, 100] {
            let points = RoccConfig::default();
            let (early, late) = (incast(n, rate, points, 20 * MS), incast(n, rate, points, 30 * MS));
            let (queue, qref) = (rests_at(&late), FairRateConfig::of_link(rate).qref as f64);
            assert!((queue / qref - 1.0).abs() < 0.05, "{n} at {rate}: {queue} bytes");
            let sent = |from, to| (port(&late, from, to).bytes - port(&early, from, to).bytes) as f64 * 8.0;
            let all = rate as f64 * 10.0 / 1e3;
            assert!(sent(n + 1, 0) > 0.99 * all, "{n} at {rate}: {} bit", sent(n + 1, 0));
            for src in 1..=n {
                let share = sent(src, n + 1) / all * f64::from(n);
                assert!((share - 1.0).abs() < 0.02, "{n} at {rate}: flow {src} has {share} of its share");
            }
            // As many notices as flows at the end of each period, once there are queues.
            let notices = late.emitted.0 - early.emitted.0;
            assert_eq!((late.emitted.1, notices), (late.emitted.0 * NOTICE, 250 * u64::from(n)), "{n} at {rate}");
            assert!(late.nics.rp_cnp_handled > 0 && late.nics.rp_cnp_ignored == 0);
        }
    }
}

#[test]
fn without_a_fraction_many_flows_leave_the_queue_short_of_the_reference() {
    let whole = with! { fraction: Some(0), ..RoccConfig::default() };
    let queue = rests_at(&incast(100, 40 * G, whole, 30 * MS));
    assert!((100_000.0..140_000.0).contains(&queue), "{queue} bytes");
}

/// Two racks of `n` hosts, joined by a link of 200 Gbit/s that loses a share of what it carries.
fn racks(n: u32, loss: f64) -> Topology {
    let switches = [2 * n, 2 * n + 1];
    let host =
        |host: u32| LinkSpec { a: host, b: switches[(host / n) as usize], rate: 40 * G, delay: 1_000, loss: 0.0 };
    let trunk = LinkSpec { a: switches[0], b: switches[1], rate: 200 * G, delay: 1_000, loss };
    let links = (0..2 * n).map(host).chain([trunk]).collect();
    Topology { name: "racks".to_owned(), hosts: 2 * n, switches: 2, links, ids: Vec::new() }
}

/// All of each rack send to the first of the other.
fn crossing(n: u32, packets: u64, priority: u8) -> Vec<Flow> {
    let one = |src: u32| with_priority(priority, flow(src, if src < n { n } else { 0 }, packets));
    (0..2 * n).filter(|src| src % n > 0).map(one).collect()
}

#[test]
fn notices_can_be_lost_and_the_accounts_hold() {
    let c = config(racks(4, 0.02), crossing(4, 3_000, 0), deep()[0].clone(), "irn,cap=none");
    let outcome = complete(noticed(c, RoccConfig::default(), 40 * G));
    let (made, heeded) = (outcome.emitted.0, outcome.nics.rp_cnp_handled);
    // The queues are in front of the receivers: notices pass the link between the racks.
    assert!(heeded < made && heeded > made * 9 / 10, "{heeded} of {made}");
    assert!(outcome.lost.0 > made - heeded);
}

#[test]
fn a_pause_of_their_priority_does_not_stop_notices() {
    for switch in [input_queued(DEEP, Some(Thresholds { xoff: 50_000, xon: 40_000 })), deep()[0].clone()] {
        let pfc = matches!(&switch, irnic_fabric::switch::SwitchConfig::InputQueued(c) if c.pfc.is_some());
        let fct = [0, 7].map(|priority| {
            let c = config(racks(4, 0.0), crossing(4, 20_000, priority), switch.clone(), "roce");
            let outcome = complete(noticed(c, RoccConfig::default(), 40 * G));
            assert_eq!((outcome.dropped.0, outcome.pfc_frames > 0), (0, pfc));
            outcome.ended
        });
        // Priority 7 is that of notices.
        assert_eq!(fct[0], fct[1], "PFC: {pfc}");
    }
}

#[test]
fn a_link_that_fails_takes_its_notices_along() {
    let trunk = racks(4, 0.0).links.len() as u32 - 1;
    let change = |at, what| LinkChange { at, link: trunk, what };
    let changes =
        vec![change(30_000, Change::Down), change(400_000, Change::Up), change(600_000, Change::Rate(10 * G))];
    let c = config(racks(4, 0.0), crossing(4, 3_000, 0), deep()[1].clone(), "irn,cap=none");
    let outcome = complete(with! { changes, ..noticed(c, RoccConfig::default(), 40 * G) });
    assert!(outcome.lost.0 > 0, "{} made", outcome.emitted.0);
    // At the rate of 10 Gbit/s its congestion points have the parameters of that.
    let bytes = 3 * 3_000 * WIRE;
    assert!(outcome.ended > bytes * 8 / 10, "{}", outcome.ended);
}

#[test]
fn real_bytes_change_nothing() {
    let c =
        config(star(&[40 * G; 4]), (1..4).map(|src| flow(src, 0, 2_000)).collect(), deep()[0].clone(), "irn,cap=none");
    let c = noticed(c, RoccConfig::default(), 40 * G);
    let [lengths, bytes] = [false, true].map(|carry_bytes| complete(with! { carry_bytes, ..c.clone() }));
    assert_eq!((fcts(&lengths), lengths.nics), (fcts(&bytes), bytes.nics));
    assert!(lengths.emitted.0 > 0);
}

#[test]
fn points_that_nobody_heeds_notify_and_change_nothing_else() {
    let c = config(star(&[40 * G; 4]), (1..4).map(|src| flow(src, 0, 2_000)).collect(), deep()[0].clone(), "irn");
    let (off, on) = (complete(c.clone()), complete(with! { rocc: Some(RoccConfig::default()), ..c }));
    // The queue is as long as without; notices delay acknowledgements on the senders' links a little.
    let [off_end, on_end] = [&off, &on].map(|o| o.ended as f64);
    assert!((on_end / off_end - 1.0).abs() < 0.01 && off.emitted.0 == 0 && on.emitted.0 > 0);
    assert_eq!(on.nics.rx_dropped, on.emitted.0);
}

#[test]
fn hosts_come_to_the_same_rates_as_switches() {
    // The fields of notices have bytes for what hosts compute from; nothing else may differ, and the senders' links
    // have room for it.
    let by = |compute| {
        let points = with! { compute, ..RoccConfig::default() };
        let flows = (1..=10).map(|src| flow(src, 0, 10_000_000)).collect();
        let c = config(star(&[40 * G; 11]), flows, deep()[1].clone(), "roce");
        run(with! { until: 20 * MS, sample: Some(50_000), ..noticed(c, points, 40 * G) })
    };
    let (switch, host) = (by(Compute::Switch), by(Compute::Host));
    assert_eq!((switch.emitted.0, switch.emitted.1 / NOTICE), (host.emitted.0, host.emitted.1 / (NOTICE + 36)));
    assert!((rests_at(&host) / rests_at(&switch) - 1.0).abs() < 0.01 && host.nics.rp_cnp_handled > 0);
    // With bytes hosts read what they compute from.
    let c =
        config(star(&[40 * G; 4]), (1..4).map(|src| flow(src, 0, 2_000)).collect(), deep()[0].clone(), "irn,cap=none");
    let c = noticed(c, with! { compute: Compute::Host, ..RoccConfig::default() }, 40 * G);
    let [lengths, bytes] = [false, true].map(|carry_bytes| complete(with! { carry_bytes, ..c.clone() }));
    assert_eq!((fcts(&lengths), lengths.nics), (fcts(&bytes), bytes.nics));
}

#[test]
fn queues_rest_at_the_reference_with_other_flow_tables() {
    for (table, shares) in [(FlowTable::AGE, 0.02), (FlowTable::ELEPHANT, 0.05)] {
        let points = with! { table, ..RoccConfig::default() };
        let (early, late) = (incast(10, 40 * G, points, 20 * MS), incast(10, 40 * G, points, 30 * MS));
        let queue = rests_at(&late);
        assert!((queue / 150_000.0 - 1.0).abs() < 0.05, "{table:?}: {queue} bytes");
        for src in 1..=10 {
            let sent = (port(&late, src, 11).bytes - port(&early, src, 11).bytes) as f64 * 8.0;
            assert!((sent / 40e6 - 1.0).abs() < shares, "{table:?}: flow {src} has {} of its share", sent / 40e6);
        }
    }
    // A table for four notifies four.
    let few = with! { table: FlowTable::Age { entries: Some(4), age: 200_000 }, ..RoccConfig::default() };
    let outcome = incast(10, 40 * G, few, 5 * MS);
    assert!(outcome.emitted.0 <= 4 * 125 && outcome.emitted.0 > 4 * 100, "{}", outcome.emitted.0);
}
