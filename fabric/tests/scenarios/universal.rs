//! What universal packet scheduling proves (Mittal, UCB/EECS-2018-103, appendix A), in its own model: packets whose
//! bits come whole to a node, wait, and are sent there in a time that is the node's, with preemption or without.

use proptest::prelude::*;

/// A packet: when it comes, and the nodes on its way, each with the delay of the link that follows.
#[derive(Clone, Debug)]
struct Job {
    arrival: u64,
    path: Vec<(usize, u64)>,
}

impl Job {
    fn new(arrival: u64, path: &[usize]) -> Job {
        Job { arrival, path: path.iter().map(|node| (*node, 0)).collect() }
    }

    /// What it takes from a place on its way to the end if it waits nowhere.
    fn fastest(&self, from: usize, times: &[u64]) -> u64 {
        self.path[from..].iter().map(|(node, delay)| times[*node] + delay).sum()
    }
}

/// A packet at a node: which, how far on its way, and since when.
#[derive(Copy, Clone, Debug)]
struct At {
    job: usize,
    hop: usize,
    since: u64,
}

/// Runs packets through nodes that send a packet in so many units of time each. `pick` names the one of the waiting
/// that a node works on in the next unit, or none. Returns when each leaves its last node.
fn run(jobs: &[Job], times: &[u64], preemptive: bool, mut pick: impl FnMut(u64, &[At]) -> Option<usize>) -> Vec<u64> {
    let mut at: Vec<At> = (0..).zip(jobs).map(|(job, of)| At { job, hop: 0, since: of.arrival }).collect();
    let mut left: Vec<u64> = jobs.iter().map(|job| times[job.path[0].0]).collect();
    let mut busy: Vec<Option<usize>> = vec![None; times.len()];
    let mut out = vec![0; jobs.len()];
    for now in 0.. {
        assert!(now < 10_000, "it never ends");
        if out.iter().all(|out| *out > 0) {
            break;
        }
        let mut served = Vec::new();
        for (node, busy) in busy.iter_mut().enumerate() {
            let here = |at: &&At| out[at.job] == 0 && at.since <= now && jobs[at.job].path[at.hop].0 == node;
            let waiting: Vec<At> = at.iter().filter(here).copied().collect();
            let going_on = busy.filter(|_| !preemptive);
            if let Some(job) = going_on.or_else(|| pick(now, &waiting).map(|place| waiting[place].job)) {
                served.push(job);
                *busy = Some(job);
            }
        }
        for job in served {
            left[job] -= 1;
            if left[job] > 0 {
                continue;
            }
            let (node, delay) = jobs[job].path[at[job].hop];
            busy[node] = None;
            at[job] = At { job, hop: at[job].hop + 1, since: now + 1 + delay };
            match jobs[job].path.get(at[job].hop) {
                Some((next, _)) => left[job] = times[*next],
                None => out[job] = at[job].since,
            }
        }
    }
    out
}

/// Packets that leave later than they are to, by LSTF with preemption and what it says in headers.
fn late_by_lstf(jobs: &[Job], times: &[u64], exits: &[u64]) -> Vec<usize> {
    let first = |job: &Job, exit: u64| (exit - job.arrival) as i64 - job.fastest(0, times) as i64;
    let mut slack: Vec<i64> = jobs.iter().zip(exits).map(|(job, exit)| first(job, *exit)).collect();
    let mut ranks = vec![0; jobs.len()];
    let mut seen = vec![None; jobs.len()];
    let out = run(jobs, times, true, |_, waiting| {
        for at in waiting.iter().filter(|at| seen[at.job] != Some(at.hop)).copied().collect::<Vec<_>>() {
            let path = &jobs[at.job].path;
            if at.hop > 0 {
                // What was left of its time when its last bit left the node before.
                slack[at.job] = ranks[at.job] - (at.since - path[at.hop - 1].1) as i64;
            }
            ranks[at.job] = slack[at.job] + at.since as i64 + times[path[at.hop].0] as i64;
            seen[at.job] = Some(at.hop);
        }
        (0..waiting.len()).min_by_key(|place| (ranks[waiting[*place].job], waiting[*place].since, *place))
    });
    late(&out, exits)
}

/// Packets that leave later than they are to, by static priorities, the lowest first.
fn late_by_priority(jobs: &[Job], times: &[u64], exits: &[u64], priorities: &[u64]) -> Vec<usize> {
    let out = run(jobs, times, true, |_, waiting| (0..waiting.len()).min_by_key(|at| priorities[waiting[*at].job]));
    late(&out, exits)
}

fn late(out: &[u64], exits: &[u64]) -> Vec<usize> {
    (0..out.len()).filter(|job| out[*job] > exits[*job]).collect()
}

/// A.2, Figure A.1: in two cases a and x have the same times in and out, and the first node has to send them in
/// different orders. Whatever it does by those times, it fails in one.
#[test]
fn nothing_that_knows_a_packet_alone_replays_all() {
    // a and x, three of b, two of c, two of y, and z.
    let jobs = [
        Job::new(0, &[0, 1, 2]),
        Job::new(0, &[0, 3, 4]),
        Job::new(2, &[1]),
        Job::new(3, &[1]),
        Job::new(4, &[1]),
        Job::new(2, &[2]),
        Job::new(3, &[2]),
        Job::new(2, &[3]),
        Job::new(3, &[3]),
        Job::new(2, &[4]),
    ];
    let cases = [[5, 4, 3, 4, 5, 3, 4, 4, 5, 3], [5, 4, 4, 5, 6, 3, 4, 3, 4, 3]];
    // Both are schedules: with the other of the two first, a search finds all in time.
    for (exits, first) in cases.iter().zip([0, 1]) {
        let local = |at: &At| match at.hop {
            0 if at.job == first => -1,
            hop => exits[at.job] as i64 - jobs[at.job].fastest(hop + 1, &[1; 5]) as i64,
        };
        let out = run(&jobs, &[1; 5], true, |_, waiting| {
            (0..waiting.len()).min_by_key(|place| (local(&waiting[*place]), waiting[*place].job))
        });
        assert_eq!(late(&out, exits), [0; 0], "{out:?}");
    }
    let late = cases.map(|exits| late_by_lstf(&jobs, &[1; 5], &exits));
    assert!(late.iter().any(|late| !late.is_empty()), "{late:?}");
}

/// A.5: each of three packets must go before another, in a circle.
#[test]
fn no_priorities_replay_a_circle_over_two_congestion_points() {
    // In tenths; the link of a is 2 long.
    let times = [10, 5, 2];
    let a = Job { arrival: 0, path: vec![(0, 20), (2, 0)] };
    let jobs = [a, Job::new(0, &[0, 1]), Job::new(20, &[1, 2])];
    let exits = [34, 25, 32];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert!(!late_by_priority(&jobs, &times, &exits, &order).is_empty(), "{order:?}");
    }
    assert_eq!(late_by_lstf(&jobs, &times, &exits), [0; 0]);
}

/// A.6.3: with three congestion points LSTF sends b before a, and a is late.
#[test]
fn lstf_fails_at_three_congestion_points() {
    let jobs = [
        Job::new(0, &[0, 1, 2]),
        Job::new(0, &[0]),
        Job::new(2, &[1]),
        Job::new(3, &[1]),
        Job::new(2, &[2]),
        Job::new(3, &[2]),
    ];
    let late = late_by_lstf(&jobs, &[1; 3], &[5, 2, 3, 4, 3, 4]);
    assert_eq!(late.len(), 1, "{late:?}");
}

/// Nodes' times, packets, and what an arbitrary scheduler draws.
fn networks(hops: usize) -> impl Strategy<Value = (Vec<u64>, Vec<Job>, u64)> {
    let path = prop::collection::vec((0usize..5, 0u64..4), 1..=hops);
    let job = (0u64..12, path).prop_map(|(arrival, mut path)| {
        // A packet passes a node once.
        let mut seen = [false; 5];
        path.retain(|(node, _)| !std::mem::replace(&mut seen[*node], true));
        Job { arrival, path }
    });
    (prop::collection::vec(1u64..4, 5), prop::collection::vec(job, 1..14), any::<u64>())
}

/// Leaves packets to chance: any that waits, or for a while none; none is interrupted.
fn random_exits(jobs: &[Job], times: &[u64], mut state: u64) -> Vec<u64> {
    run(jobs, times, false, |now, waiting| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (state >> 33) as usize;
        (!waiting.is_empty() && (now > 100 || !drawn.is_multiple_of(4))).then(|| drawn / 4 % waiting.len())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    /// A.6.1, the theorem of the chapter, for schedules of any kind: also of schedulers that wait for nothing.
    #[test]
    fn lstf_replays_whatever_has_two_congestion_points((times, jobs, seed) in networks(2)) {
        let exits = random_exits(&jobs, &times, seed);
        prop_assert_eq!(late_by_lstf(&jobs, &times, &exits), Vec::<usize>::new());
    }

    /// A.5: one congestion point is replayed by the times at which packets leave it.
    #[test]
    fn priorities_replay_whatever_has_one((times, jobs, seed) in networks(1)) {
        let exits = random_exits(&jobs, &times, seed);
        let at_the_point: Vec<u64> = jobs.iter().zip(&exits).map(|(job, exit)| exit - job.path[0].1).collect();
        prop_assert_eq!(late_by_priority(&jobs, &times, &exits, &at_the_point), Vec::<usize>::new());
    }
}
