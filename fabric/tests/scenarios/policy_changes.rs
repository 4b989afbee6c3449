//! Policies that take the place of others while packets wait: nothing is lost, flows keep their order, and room is one.

use irnic_fabric::experiment::{Grid, Written, find};
use irnic_fabric::sim::{Ending, Outcome, SimConfig};
use irnic_fabric::switch::{PolicySwitch, SwitchConfig};

use crate::kit::*;

/// A run of these keys and values.
fn experiment(pairs: &[(&str, &str)]) -> SimConfig {
    let key = |name| find(name).expect("a key").name();
    let common = pairs.iter().map(|(name, text)| (key(name), vec![Written::flag(key(name), text)])).collect();
    let case = Grid { common, runs: Vec::new() }.cases().unwrap().remove(0);
    case.experiment().unwrap().config(3).unwrap_or_else(|error| panic!("{pairs:?}: {error}"))
}

fn changing(pairs: &[(&str, &str)], first: &str, events: &str) -> Outcome {
    run(experiment(&[pairs, &[("switch", first), ("policy-event", events)]].concat()))
}

const INCAST: [(&str, &str); 2] =
    [("topology", "star:hosts=9,rate=10G"), ("workload", "incast:senders=8,bytes=800KB+permutation:bytes=400KB")];

/// Where packets are first in, first out with one priority, a policy that follows itself changes nothing: room, marks,
/// pauses, drops and random numbers are the same.
#[test]
fn a_policy_that_follows_itself_changes_nothing() {
    for more in [&[("buffer", "60KB")][..], &[("buffer", "2MB"), ("cc", "dcqcn")]] {
        let pairs = [&INCAST[..], more].concat();
        let alone = run(experiment(&[&pairs[..], &[("switch", "shared-buffer.oq,plan=generic")]].concat()));
        let mut changed =
            changing(&pairs, "shared-buffer.oq", "shared-buffer@100us,shared-buffer@101us,shared-buffer@300us");
        let drained = changed.drained.take().expect("counted");
        assert!(drained.0 > 30 && drained.1 > 30 * WIRE, "{drained:?}");
        assert_eq!(format!("{alone:?}"), format!("{changed:?}"), "{more:?}");
    }
}

/// Headers that wait in place, in one queue, go on by the next policy as by the first; with a queue of their own they
/// leave before what comes after the change, and what goes back goes.
#[test]
fn trimming_goes_on_under_the_next_policy() {
    let ndp = [&INCAST[..], &[("transport", "ndp"), ("routing", "source")]].concat();
    let fifo = "trimming.oq,data=9KB,headers=100,fifo=on";
    let alone = run(experiment(&[&ndp[..], &[("switch", &format!("{fifo},plan=generic"))]].concat()));
    let returned = |outcome: &Outcome| outcome.links.iter().map(|link| link.counters.returned).sum::<u64>();
    assert!(alone.trimmed.0 > 100 && returned(&alone) > 10, "{:?}, {}", alone.trimmed, returned(&alone));
    let mut changed = changing(&ndp, fifo, &format!("{fifo}@50us,{fifo}@101us,{fifo}@300us"));
    assert!(changed.drained.take().is_some_and(|(packets, _)| packets > 5));
    assert_eq!(format!("{alone:?}"), format!("{changed:?}"));

    let apart = "trimming.oq,data=9KB,headers=500";
    let events: Vec<String> = (1..40).map(|n| format!("{apart}@{}us", 10 * n)).collect();
    let changed = changing(&ndp, apart, &events.join(","));
    assert_eq!(changed.ending, Ending::Complete);
    assert!(changed.trimmed.0 > 100 && returned(&changed) > 10, "{:?}, {}", changed.trimmed, returned(&changed));
    assert!(changed.drained.is_some_and(|(packets, _)| packets > 50), "{:?}", changed.drained);
}

/// So where neighbours are stopped at thresholds that do not depend on what else waits.
#[test]
fn whoever_is_stopped_stays_stopped() {
    let text = "q = Queue(1MB); out = Port(100%, q); queue = q;
        fifo(p1, p2) = p1.arrival < p2.arrival q.procPrio = fifo;
        backpressure(x) = (ingress.currSize > 20KB, notify(xoff)).(ingress.currSize <= 10KB, notify(xon));
        q.postAdmAct = backpressure;
        out.postSchedAct = backpressure;";
    let policy = || PolicySwitch::new("thresholds", text.parse().unwrap());
    let outcome = |policy: PolicySwitch| {
        let pairs = [&INCAST[..], &[("transport", "roce"), ("pfc", "on")]].concat();
        run(with! { switch: SwitchConfig::Policy(policy), ..experiment(&pairs) })
    };
    let alone = outcome(policy().generic());
    assert!(alone.paused() > 0 && alone.dropped.0 == 0);
    let mut changed = outcome(policy().then(100_000, policy()).then(170_001, policy()));
    assert!(changed.drained.take().is_some_and(|(packets, _)| packets > 100));
    assert_eq!(format!("{alone:?}"), format!("{changed:?}"));
}

/// From lists to heaps and back, with room for all: nothing is dropped, and nobody finds a packet overtaken.
#[test]
fn flows_keep_their_order_and_lose_nothing() {
    let events = "most-value-first,buffer=64MB@90us,shared-lqd,buffer=64MB@180us,input-queued,buffer=8MB@400us,\
                  least-slack,buffer=64MB@410us";
    let events = events.replace(' ', "");
    let outcome = changing(&INCAST, "tail-drop,buffer=64MB", &events);
    assert_eq!((&outcome.ending, outcome.dropped.0), (&Ending::Complete, 0));
    assert_eq!((outcome.nics.out_of_seq_request, outcome.nics.retransmitted_pkts), (0, 0));
    assert!(outcome.drained.is_some_and(|(packets, _)| packets > 500), "{:?}", outcome.drained);
}

/// What waits at the time of the change leaves by the old policy, and nothing else.
#[test]
fn what_waits_is_what_leaves_by_the_old_policy() {
    let at = "100333ns";
    let pairs = [&INCAST[..], &[("until", at)]].concat();
    let before = run(experiment(&[&pairs[..], &[("switch", "tail-drop,buffer=64MB"), ("sample", at)]].concat()));
    let events = format!("most-value-first,buffer=64MB@{at}");
    let outcome = changing(&INCAST, "tail-drop,buffer=64MB", &events);
    let (_, bytes) = outcome.drained.expect("counted");
    assert!(bytes > 0);
    let waiting: Vec<u64> = before.samples.iter().map(|sample| sample.buffered).collect();
    assert_eq!(waiting, [bytes]);
}

/// Neighbours that the old policy has stopped go on under one that stops nobody, and the other way round.
#[test]
fn neighbours_go_on_under_the_next_policy() {
    let roce = [&INCAST[..], &[("transport", "roce")]].concat();
    let (paused, free) = ("shared-buffer,pfc=on,buffer=400KB", "shared-buffer,buffer=64MB");
    let ended = changing(&roce, paused, &format!("{free}@200us"));
    assert!(ended.paused() > 0, "nobody was stopped");
    assert_eq!((&ended.ending, ended.dropped.0), (&Ending::Complete, 0));
    let begun = changing(&roce, free, &format!("{paused}@20us"));
    assert!(begun.paused() > 0 && begun.ending == Ending::Complete);
    let tighter = changing(&roce, paused, "input-queued,pfc=on,buffer=100KB,xoff=60KB,xon=57KB@200us");
    assert!(tighter.paused() > ended.paused() && tighter.ending == Ending::Complete);
}

/// A change while the buffer is full of what the next policy would have had less room for: it takes in nothing before
/// there is room, and pushes nothing out that came before it.
#[test]
fn room_is_one() {
    let small = "shared-lqd,buffer=20KB";
    let change = changing(&INCAST, "tail-drop,buffer=2MB", &format!("{small}@300us"));
    assert_eq!(change.ending, Ending::Complete);
    let (drained, _) = change.drained.expect("counted");
    assert!(drained > 500, "{drained}");
    assert!(change.dropped.0 > drained, "{:?}", change.dropped);
    // From the start there is no change, and no old policy.
    let at_once = changing(&INCAST, "tail-drop,buffer=2MB", &format!("{small}@0s"));
    assert_eq!(at_once.drained, Some((0, 0)));
    let mut alone = run(experiment(&[&INCAST[..], &[("switch", small)]].concat()));
    alone.drained = Some((0, 0));
    assert_eq!(format!("{at_once:?}"), format!("{alone:?}"));
}
