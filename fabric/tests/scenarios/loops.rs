//! Closed loops: on each connection a flow starts when the one before it has ended.

use std::collections::BTreeMap;

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::{Ending, Observe, Outcome, QpPolicy, SimConfig, SimError, Simulation};

use crate::kit::*;

/// Three hosts and flows until 1 ms.
fn experiment(workload: &str) -> Experiment {
    let mut experiment = Experiment::default();
    experiment.topology = "star:hosts=3,rate=10G,delay=1us".parse().unwrap();
    experiment.workload = workload.parse().unwrap();
    experiment.duration = Some(1_000_000);
    experiment
}

fn loops(workload: &str) -> SimConfig {
    experiment(workload).config(1).unwrap()
}

/// What can be compared of two runs.
fn same(outcome: &Outcome) -> impl PartialEq + std::fmt::Debug + use<> {
    (outcome.flows.clone(), outcome.records.clone(), outcome.nics, outcome.ended)
}

#[test]
fn a_flow_starts_a_gap_after_the_one_before_it_has_ended() {
    let outcome = complete(loops("closed-loop:connections=1,gap=30us,gaps=constant,bytes=10KB"));
    let mut last: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    for (flow, record) in outcome.flows.iter().zip(&outcome.records) {
        match last.get(&flow.src) {
            None => assert!(flow.start < 30_000, "the first within a gap: {flow:?}"),
            Some(&(dst, ended)) => assert_eq!((flow.dst, flow.start), (dst, ended + 30_000)),
        }
        assert!(flow.bytes == 10_000 && flow.src != flow.dst, "{flow:?}");
        // 10 KB take 8 µs at least.
        assert!(record.acknowledged.unwrap() > flow.start + 8_000);
        last.insert(flow.src, (flow.dst, record.acknowledged.unwrap()));
    }
    assert_eq!(last.len(), 3);
    assert!(last.values().all(|(_, ended)| ended + 30_000 >= 1_000_000), "{last:?}");
    assert!(outcome.flows.len() > 40, "{}", outcome.flows.len());
}

#[test]
fn a_flow_can_follow_one_that_has_left_its_sender() {
    let outcome = complete(loops("closed-loop:from=1-2,to=0,after=sent,gap=1us,gaps=constant,bytes=10KB"));
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut overlap = 0;
    for (flow, record) in outcome.flows.iter().zip(&outcome.records) {
        assert!(flow.src > 0 && flow.dst == 0, "{flow:?}");
        if let Some(&before) = last.get(&flow.src) {
            // Ten packets: the last begins to leave 7.8 µs after the first, on a link of one's own, and a gap follows.
            assert!(flow.start >= before + 8_800, "{flow:?} after {before}");
        }
        let next = outcome.flows.iter().find(|next| next.src == flow.src && next.start > flow.start);
        overlap += usize::from(next.is_some_and(|next| Some(next.start) < record.acknowledged));
        last.insert(flow.src, flow.start);
    }
    // 90 % of the links' time is used by each of two for one link: what is sent is not waited for.
    assert!(last.len() == 2 && overlap > outcome.flows.len() / 2, "{overlap} of {}", outcome.flows.len());
    // The same with queue pairs that are reused, and with losses each flow is followed once.
    let reused = complete(with! { qps: QpPolicy::Reused, ..loops("closed-loop:to=0,after=sent,gap=5us,bytes=3KB") });
    assert!(reused.flows.len() > 100);
    let mut small = experiment("closed-loop:from=1-2,to=0,after=sent,gap=1us,bytes=30KB");
    small.buffer = Some(10_000);
    let lossy = complete(small.config(1).unwrap());
    assert!(lossy.dropped.0 > 0 && lossy.nics.retransmitted_pkts > 0);
}

#[test]
fn flows_of_loops_and_others_are_in_the_order_of_their_starts() {
    let mut config = loops("closed-loop:connections=4,gap=20us,bytes=20KB+fixed:3KB,load=0.2");
    config.observe =
        Some(Observe { from: 0, segment: 1, interval: 100_000, to: None, latencies: false, rounds: false });
    let outcome = complete(config);
    assert!(outcome.flows.is_sorted_by_key(|flow| (flow.start, flow.src)));
    let observed = outcome.observed.unwrap();
    let classes = [(0, 20_000), (1, 3_000)].map(|(class, bytes)| {
        let of: Vec<usize> = (0..outcome.flows.len()).filter(|at| outcome.flows[*at].class == class).collect();
        for &at in &of {
            assert_eq!((outcome.flows[at].bytes, observed.bytes[at]), (bytes, bytes), "flow {at}");
            assert_eq!(observed.intervals[at].iter().sum::<u64>(), bytes);
            assert!(outcome.records[at].ideal > bytes * 8 / 10);
        }
        of.len()
    });
    assert!(classes.into_iter().all(|n| n > 50), "{classes:?}");
}

#[test]
fn a_number_of_flows_ends_it_and_so_does_time() {
    let mut few = experiment("closed-loop:connections=2,gap=5us");
    few.duration = None;
    few.arrivals = Some(50);
    let outcome = complete(few.config(1).unwrap());
    assert_eq!((outcome.flows.len(), outcome.nics.sent_bytes > 0), (50, true));

    let mut cut = experiment("closed-loop:connections=2,gap=5us,bytes=200KB");
    cut.until = Some(900_000);
    let outcome = run(cut.config(1).unwrap());
    assert_eq!((outcome.ending, outcome.ended), (Ending::TimeUp, 900_000));
    assert!(outcome.flows.iter().all(|flow| flow.start < 900_000));
    assert!(
        outcome.records.iter().any(|r| r.delivered.is_none()) && outcome.records.iter().any(|r| r.delivered.is_some())
    );
}

#[test]
fn loops_are_the_same_with_real_bytes_and_each_time() {
    let config = || loops("closed-loop:connections=3,gap=10us,bytes=5KB");
    let outcome = complete(config());
    assert_eq!(same(&outcome), same(&complete(config())));
    assert_eq!(same(&outcome), same(&complete(with! { carry_bytes: true, ..config() })));
    // More flows than queue pairs.
    let reused = complete(with! { qps: QpPolicy::Reused, ..config() });
    assert!(reused.flows.len() > 100 && reused.nics.sent_pkts > 0);
    let other = complete(experiment("closed-loop:connections=3,gap=10us,bytes=5KB").config(2).unwrap());
    assert_ne!(same(&outcome), same(&other));
}

#[test]
fn more_is_sent_the_shorter_the_gap_and_the_more_connections() {
    let offered = |text: &str| complete(loops(text)).flows.len() as f64;
    let base = offered("closed-loop:connections=1,gap=50us,bytes=1KB");
    // A kilobyte takes 7 µs, there and back: 79 µs from flow to flow on average, 12.6 of them in a millisecond and
    // three hosts; deviation 6.
    assert!((20.0..56.0).contains(&base), "{base}");
    let (more, often) =
        (offered("closed-loop:connections=8,gap=50us,bytes=1KB"), offered("closed-loop:gap=1us,bytes=1KB"));
    assert!((230.0..380.0).contains(&more), "{more}");
    assert!(often > 1_000.0, "{often}");
}

#[test]
fn loops_that_make_no_sense_are_refused() {
    let mut config = loops("closed-loop");
    config.loops[0].setup = 1;
    let Err(SimError::Loop { class: 0, what }) = Simulation::new(config.clone()) else { panic!() };
    assert_eq!(what, "a queue pair setup that is not there");
    config.loops[0].setup = 0;
    config.loops[0].priority = 8;
    assert_eq!(
        Simulation::new(config.clone()).unwrap_err().to_string(),
        "the closed loop of class 0 has a priority above 7"
    );
    config.loops[0].priority = 7;
    config.topology = "star:hosts=2,rate=10G,delay=1us".parse().unwrap();
    assert!(matches!(Simulation::new(config), Err(SimError::Loop { what: "a host that is not there", .. })));
}
