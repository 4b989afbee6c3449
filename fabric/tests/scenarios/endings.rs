//! How runs end that do not end well, and what is refused.

use irnic_fabric::network::NetworkError;
use irnic_fabric::sim::{Change, Detour, Ending, LinkChange, SimConfig, SimError, Simulation};

use crate::kit::*;

#[test]
fn loss_without_a_timer_is_stuck() {
    // The only packet, or the last, is lost: nobody would ever ask for it again. Whether or not somebody looks at
    // queues.
    for sample in [None, Some(700)] {
        let mut topology = star(&[40 * G; 2]);
        topology.links[1].loss = 1.0;
        let c = config(topology, vec![flow(0, 1, 3)], deep()[0].clone(), "roce");
        let outcome = run(with! { sample, ..c });
        assert_eq!(outcome.ending, Ending::Stuck, "sample {sample:?}");
        assert_eq!((outcome.lost.0, outcome.delivered.0), (3, 0));
        assert_eq!(port(&outcome, 2, 1).lost, 3, "by the link that lost them");
        assert_eq!((outcome.records[0].delivered, outcome.records[0].acknowledged), (None, None));
    }
}

#[test]
fn timers_go_on_until_the_time_is_up() {
    let mut topology = star(&[40 * G; 2]);
    topology.links[1].loss = 1.0;
    for preset in ["irn", "roce,rto=1ms"] {
        let c = config(topology.clone(), vec![flow(0, 1, 3)], deep()[0].clone(), preset);
        let outcome = run(with! { until: 20_000_000, ..c });
        assert_eq!((outcome.ending, outcome.ended), (Ending::TimeUp, 20_000_000), "{preset}");
        assert!(outcome.nics.local_ack_timeout_err > 10, "{preset}");
    }
}

#[test]
fn a_run_ends_at_the_given_moment_with_all_accounted_for() {
    // At 10,000 ns 40 packets have gone out, the last at this very moment; 31 have come, the 31st at 31 · 250 + 2250.
    let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 100)], deep()[0].clone(), "roce");
    let outcome = run(with! { until: 10_000, ..c });
    assert_eq!((&outcome.ending, outcome.ended), (&Ending::TimeUp, 10_000));
    assert_eq!(port(&outcome, 0, 2).packets, 41);
    assert_eq!(outcome.payload, 31 * MTU);
}

#[test]
fn events_that_were_handled_are_counted_and_no_others() {
    let c = config(star(&[40 * G; 2]), vec![flow(0, 1, 100)], deep()[0].clone(), "roce");
    for until in [10_000, u64::MAX] {
        let mut simulation = Simulation::new(with! { until, ..c.clone() }).unwrap();
        let mut handled = 0;
        while !simulation.run(1).unwrap() {
            handled += 1;
        }
        // The call that handles the event of the last acknowledgement does not know yet that it was the last.
        assert_eq!(simulation.outcome().unwrap().events, handled, "until {until}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let base = || config(star(&[40 * G; 3]), vec![flow(0, 1, 1), flow(1, 2, 1)], deep()[0].clone(), "roce");
    let refused = |c: SimConfig| Simulation::new(c).unwrap_err().to_string();
    let with_flow = |change: fn(&mut irnic_fabric::workload::Flow)| {
        let mut c = base();
        change(&mut c.flows[0]);
        refused(c)
    };
    assert_eq!(with_flow(|f| f.dst = 3), "flow 0 has a host that is not there");
    assert_eq!(with_flow(|f| f.dst = 0), "flow 0 has the same host at both ends");
    assert_eq!(with_flow(|f| f.priority = 8), "flow 0 has a priority above 7");
    assert_eq!(with_flow(|f| f.bytes = (1 << 40) + 1), "flow 0 has more bytes than 2^40");
    assert_eq!(with_flow(|f| f.start = 1), "flow 1 has a start before that of the flow before it");
    let change = |at, link| LinkChange { at, link, what: Change::Down };
    assert_eq!(refused(with! { changes: vec![change(5, 3)], ..base() }), "there is no link 3");
    let changes = vec![change(5, 0), change(4, 0)];
    assert_eq!(refused(with! { changes, ..base() }), "link change 1 comes before the one listed before it");
    for detour in
        [Detour { node: 0, dst: 1, via: 3 }, Detour { node: 3, dst: 3, via: 1 }, Detour { node: 3, dst: 1, via: 3 }]
    {
        let c = with! { detours: vec![detour], ..base() };
        assert!(matches!(Simulation::new(c), Err(SimError::Network(NetworkError::Detour { .. }))), "{detour:?}");
    }
}
