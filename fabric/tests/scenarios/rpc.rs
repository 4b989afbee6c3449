//! Calls: a response starts when the server has all of a request.

use irnic_fabric::experiment::Experiment;
use irnic_fabric::sim::{Outcome, QpPolicy, SimConfig};
use irnic_fabric::summary::Summary;
use irnic_fabric::workload::Flow;

use crate::kit::*;

fn calls(topology: &str, workload: &str) -> SimConfig {
    let mut experiment = Experiment::default();
    experiment.topology = topology.parse().unwrap();
    experiment.workload = workload.parse().unwrap();
    experiment.duration = Some(500_000);
    experiment.config(1).unwrap()
}

/// The responses, each with the request that it answers.
fn answered(outcome: &Outcome) -> Vec<(Flow, Flow)> {
    let flows = || outcome.flows.iter().zip(&outcome.records);
    let response = |flow: &Flow, called: u64, start: u64| {
        let of = |request: &Flow, delivered: Option<u64>| {
            (request.src, request.dst, request.start, delivered) == (flow.dst, flow.src, called, Some(start))
        };
        let request = flows().find(|(request, record)| of(request, record.delivered));
        (*flow, *request.expect("a request that arrived when the response started").0)
    };
    flows().filter_map(|(flow, record)| Some(response(flow, record.called?, flow.start))).collect()
}

#[test]
fn each_request_is_answered_when_it_has_arrived() {
    for qps in [QpPolicy::PerFlow, QpPolicy::Reused] {
        let config = calls("star:hosts=3,rate=10G,delay=1us", "rpc:request=5KB,response=20KB,load=0.2");
        let outcome = complete(with! { qps: qps, ..config });
        let answered = answered(&outcome);
        assert!(answered.len() > 50 && 2 * answered.len() == outcome.flows.len(), "{}", answered.len());
        assert!(answered.iter().all(|(response, request)| (response.bytes, request.bytes) == (20_000, 5_000)));
        let calls = Summary::of(&outcome, &[]).calls.unwrap();
        // 5 and 20 KB on two links each, and 1 µs for each of four.
        assert!(calls.count as usize == answered.len() && calls.p50 > 24_000.0 && calls.max < 500_000.0, "{calls:?}");
    }
}

#[test]
fn calls_go_as_far_as_there_is_way_and_other_flows_are_not_answered() {
    let outcome = complete(calls("fat-tree:k=4", "rpc:load=0.2,to=farthest+fixed:1KB,load=0.01"));
    let answered = answered(&outcome);
    assert!(answered.iter().all(|(response, _)| response.class == 0 && response.src / 4 != response.dst / 4));
    let single = outcome.flows.iter().filter(|flow| flow.class == 1).count();
    assert!(single > 10 && 2 * answered.len() + single == outcome.flows.len(), "{single}");
}

#[test]
fn requests_that_are_lost_are_answered_once() {
    let mut config = calls("star:hosts=4,rate=10G,delay=1us", "rpc:request=20KB,response=20KB,load=0.8");
    config.topology.links.iter_mut().for_each(|link| link.loss = 0.02);
    let outcome = complete(config);
    assert!(outcome.nics.retransmitted_pkts > 0);
    assert_eq!(2 * answered(&outcome).len(), outcome.flows.len());
}
