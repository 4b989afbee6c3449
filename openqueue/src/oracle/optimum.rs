//! A policy with a known optimum. In one queue of unit packets with different work, which are dropped or processed one
//! cycle at a time, the policy that processes the least remaining work first and pushes out the most sends as many
//! packets as any clairvoyant policy (shortest remaining processing time; Keslassy et al., ToN 2012). Random sets of
//! arrivals in few slots are compared with the optimum found by search.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Notes;
use crate::{Engine, Packet, Policy, Surroundings};

/// Number of cycles; in each, some packets arrive, and then one cycle of work is done.
const CYCLES: usize = 6;
/// Capacity of the queue, packets.
const ROOM: usize = 2;

const SRPT: &str = "q = Queue(2); out = Port(100%, q);
    q.procPrio(p1, p2) = p1.processing < p2.processing;
    q.admPrio(p1, p2) = p1.processing < p2.processing;";
/// SRPT without push-out: the newest packet is dropped.
const NON_PUSH_OUT: &str = "q = Queue(2); out = Port(100%, q);
    q.procPrio(p1, p2) = p1.processing < p2.processing;
    q.admPrio(p1, p2) = p1.arrival < p2.arrival;";

/// Number of packets that a policy sends. A packet that has received a cycle arrives again with its remaining work:
/// nothing else arrives in between, so that there is room.
fn sent(text: &str, arrivals: &[Vec<i64>]) -> usize {
    let plan = text.parse::<Policy>().and_then(|policy| policy.plan(1)).expect("a policy");
    let mut engine = Engine::new(&plan, &Surroundings::default());
    let mut host = Notes::new(1);
    let (mut work, mut sent, mut id) = (Vec::new(), 0, 0u32);
    for cycle in arrivals {
        for &processing in cycle {
            let packet = Packet { arrival: id.into(), size: 1, processing, ..Packet::default() };
            host.have(id, packet);
            engine.arrive(&mut host, id, packet);
            work.push(processing);
            id += 1;
        }
        if let Some(first) = engine.depart(&mut host, 0, 0) {
            work[first as usize] -= 1;
            if work[first as usize] == 0 {
                sent += 1;
            } else {
                // It has received a cycle and waits with its remaining work.
                let packet =
                    Packet { arrival: first.into(), size: 1, processing: work[first as usize], ..Packet::default() };
                host.have(first, packet);
                engine.arrive(&mut host, first, packet);
            }
        }
    }
    sent
}

/// The maximum number of packets that can be sent, by trying all choices of packets to keep and to process.
fn most(arrivals: &[Vec<i64>], waiting: &[i64]) -> usize {
    let Some((now, later)) = arrivals.split_first() else { return 0 };
    let mut all = waiting.to_vec();
    all.extend(now);
    let mut best = 0;
    for kept in 0..1u32 << all.len() {
        if kept.count_ones() as usize > ROOM {
            continue;
        }
        let queue: Vec<i64> = (0..all.len()).filter(|i| kept >> i & 1 == 1).map(|i| all[i]).collect();
        if queue.is_empty() {
            best = best.max(most(later, &queue));
        }
        for processed in 0..queue.len() {
            let mut left = queue.clone();
            left[processed] -= 1;
            let done = usize::from(left[processed] == 0);
            left.retain(|work| *work > 0);
            best = best.max(done + most(later, &left));
        }
    }
    best
}

#[test]
fn shortest_remaining_work_with_push_out_is_as_good_as_knowing_what_comes() {
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let mut worse = 0;
    for _ in 0..400 {
        let cycle = |rng: &mut Pcg64Mcg| (0..rng.random_range(0..3)).map(|_| rng.random_range(1..4)).collect();
        let arrivals: Vec<Vec<i64>> = (0..CYCLES).map(|_| cycle(&mut rng)).collect();
        let most = most(&arrivals, &[]);
        assert_eq!(sent(SRPT, &arrivals), most, "{arrivals:?}");
        let without = sent(NON_PUSH_OUT, &arrivals);
        assert!(without <= most, "{arrivals:?}");
        worse += usize::from(without < most);
    }
    // Without push-out it fails: the test can distinguish them.
    assert!(worse > 20, "{worse}");
}
