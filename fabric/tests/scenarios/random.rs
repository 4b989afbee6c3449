//! Random networks, workloads and switches: whatever happens, the run ends, says how, and breaks no invariant.

use irnic_fabric::network::CreditConfig;
use irnic_fabric::sim::{Change, Ending, HeaderBytes, LinkChange, QpPolicy, Routing, Simulation};
use irnic_fabric::switch::{
    Discipline, Ecn, InputQueuedConfig, OutputQueuedConfig, Scheduling, SwitchConfig, Thresholds, headroom,
};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use proptest::prelude::*;

use crate::kit::*;

fn topologies() -> impl Strategy<Value = Topology> {
    let rate = prop_oneof![Just(10 * G), Just(40 * G), Just(100 * G), Just(33_333_333_333)];
    (0..5u8, 2..6u32, 1..4u32, rate.clone(), rate, 0..3_000u64, prop_oneof![Just(0.0), Just(0.0), Just(0.01)]).prop_map(
        |(kind, a, b, rate, other, delay, loss)| {
            let mut topology = match kind {
                0 => Topology::star(a, rate, delay),
                1 => Topology::dumbbell(a, b, rate, other, delay),
                2 => Topology::leaf_spine(a, b, b, rate, other, delay),
                3 => Topology::fat_tree(4, rate, delay),
                // A ring, in which PFC can lock up.
                _ => {
                    let hosts = (0..a).map(|i| (i, a + i, rate, delay));
                    let ring = (0..a).filter(|_| a > 2).map(|i| (a + i, a + (i + 1) % a, other, delay));
                    let pair = (a == 2).then_some((2, 3, other, delay));
                    network(a, a, &hosts.chain(ring).chain(pair).collect::<Vec<_>>())
                }
            };
            topology.links.iter_mut().for_each(|l| l.loss = loss);
            topology
        },
    )
}

fn switches() -> impl Strategy<Value = (SwitchConfig, bool)> {
    let ecn = prop_oneof![
        Just(Ecn::Off),
        (0..20_000u64).prop_map(|k| Ecn::Step { k }),
        (0..9_000u64).prop_map(|kmin| Ecn::Red { kmin, kmax: 10_000, pmax: 0.3 }),
    ];
    (any::<bool>(), any::<bool>(), 3_000..200_000u64, 0.05..4.0f64, ecn, any::<bool>()).prop_map(
        |(input, pfc, buffer, alpha, ecn, strict)| {
            if !pfc && alpha < 0.8 {
                let config = OutputQueuedConfig::new(buffer, Discipline::Priority);
                return (SwitchConfig::OutputQueued(with! { ecn, preempts: input || strict, ..config }), false);
            }
            let mut switch = match input {
                true if !pfc && alpha > 2.0 => {
                    let credits = CreditConfig { each: (buffer / 8).max(1_500) as u32, longest: 1_500 };
                    let buffer = 8 * u64::from(credits.each);
                    SwitchConfig::InputQueued(with! { credits: Some(credits), ..InputQueuedConfig::new(buffer) })
                }
                true => input_queued(buffer, pfc.then_some(Thresholds { xoff: buffer / 2, xon: buffer / 3 })),
                false => {
                    let pfc = with! {
                        headroom: (alpha > 2.0).then_some(buffer / 20),
                        priorities: 8,
                        ..shared_pfc(alpha, buffer / 100, 2_000)
                    };
                    shared(4 * buffer, alpha, Some(pfc).filter(|_| input != strict || alpha > 1.0))
                }
            };
            let has_pfc = match &switch {
                SwitchConfig::InputQueued(c) => c.pfc.is_some() || c.credits.is_some(),
                SwitchConfig::SharedBuffer(c) => c.pfc.is_some(),
                other => panic!("{other:?}"),
            };
            set_ecn(&mut switch, ecn);
            set_scheduling(&mut switch, if strict { Scheduling::Strict } else { Scheduling::RoundRobin });
            (switch, has_pfc)
        },
    )
}

fn flows() -> impl Strategy<Value = Vec<(u32, u32, u64, u64, u8)>> {
    let bytes = prop_oneof![0..3u64, 1..5_000u64, 1..80_000u64];
    prop::collection::vec((any::<u32>(), any::<u32>(), bytes, 0..50_000u64, 0..8u8), 1..20)
}

const TRANSPORTS: [&str; 9] = [
    "roce",
    "roce,rto=300us",
    "irn",
    "irn-go-back-n",
    "irn-no-bdp",
    "irn-no-sack",
    "auto",
    "irn,cap=8,nack-threshold=3",
    "iwarp",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn runs_end_and_say_how(
        topology in topologies(),
        (switch, pfc) in switches(),
        flows in flows(),
        transport in 0..TRANSPORTS.len(),
        (routing, reused, carry_bytes, ect, real) in (0..3u8, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        failure in prop::option::of((any::<u32>(), 0..60_000u64, 1..400_000u64)),
        seed in any::<u64>(),
    ) {
        let hosts = topology.hosts;
        let mut flows: Vec<Flow> = flows
            .into_iter()
            .map(|(src, dst, bytes, start, priority)| {
                let (src, dst) = (src % hosts, dst % (hosts - 1));
                Flow { src, dst: dst + u32::from(dst >= src), bytes, start, priority, class: 0, setup: 0 }
            })
            .collect();
        flows.sort_by_key(|f| f.start);
        let links = topology.links.len() as u32;
        let mut c = config(topology, flows, switch, TRANSPORTS[transport]);
        c.routing = [Routing::Ecmp, Routing::Spray, Routing::Static][usize::from(routing)];
        c.qps = if reused { QpPolicy::Reused } else { QpPolicy::PerFlow };
        c.headers = if real { HeaderBytes::Real } else { HeaderBytes::Fixed(48) };
        (c.carry_bytes, c.ect, c.seed, c.sample, c.until) = (carry_bytes, ect, seed, ect.then_some(10_000), 20_000_000_000);
        c.changes = failure.into_iter().flat_map(|(link, at, later)| {
            let change = |at, what| LinkChange { at, link: link % links, what };
            [change(at, Change::Down), change(at + later, Change::Up)]
        }).collect();
        // The run itself checks conservation, Little's law and its NICs.
        let outcome = Simulation::new(c).unwrap().finish();
        let outcome = outcome.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let all_there = outcome.records.iter().all(|r| r.acknowledged.is_some());
        prop_assert_eq!(outcome.ending == Ending::Complete, all_there);
        match &outcome.ending {
            Ending::Complete => prop_assert!(outcome.records.iter().zip(&outcome.flows).all(|(r, f)| r.delivered >= Some(f.start))),
            Ending::Deadlock(ports) => prop_assert!(pfc && ports.len() > 1),
            // Only for want of a timer, after a loss, or where ways overtake each other: an acknowledgement that comes
            // before a NAK for less takes its meaning, and what the receiver dropped behind the gap is never asked for.
            Ending::Stuck => {
                prop_assert_eq!(TRANSPORTS[transport], "roce");
                prop_assert!(outcome.lost.0 + outcome.dropped.0 > 0 || routing == 1);
            }
            Ending::TimeUp => prop_assert!(false, "20 s are not enough"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// With the headroom that [`headroom`] computes nothing is dropped, however many inputs lower each other's
    /// thresholds.
    #[test]
    fn pfc_with_enough_headroom_drops_nothing(
        shape in 0..3u8,
        rate in prop_oneof![Just(10 * G), Just(40 * G), Just(100 * G)],
        delay in prop_oneof![0..30u64, 0..3_000u64],
        alpha in prop_oneof![Just(0.0), 0.01..8.0f64],
        room in 0..60u64,
        input in any::<bool>(),
        flows in prop::collection::vec((any::<u32>(), 0..3u32, 1..200_000u64, 0..20_000u64), 1..24),
        spray in any::<bool>(),
        priorities in prop_oneof![Just(1u8), 2..=8u8],
    ) {
        let topology = match shape {
            0 => Topology::star(12, rate, delay),
            1 => Topology::dumbbell(6, 6, rate, rate, delay),
            _ => Topology::leaf_spine(3, 2, 4, rate, 40 * G, delay),
        };
        let longest = WIRE as u32;
        // What the largest switch needs, by the fastest link: more than enough for the others.
        let most = (topology.hosts..topology.nodes()).map(|n| topology.ports(n).len() as u64).max().unwrap();
        let each = headroom(rate.max(40 * G), delay, longest);
        let switch = if input {
            let xoff = room * WIRE;
            input_queued(u64::from(priorities) * (xoff + each), Some(Thresholds { xoff, xon: xoff / 2 }))
        } else {
            let pfc = with! { priorities, ..shared_pfc(alpha, WIRE, WIRE) };
            shared(u64::from(priorities) * most * (each + WIRE) + room * WIRE, 1.0, Some(pfc))
        };
        let hosts = topology.hosts;
        let mut flows: Vec<Flow> = flows
            .into_iter()
            // Most to three hosts, which send as well, so that PFC frames have to wait for packets.
            .map(|(src, dst, bytes, start)| {
                let (src, dst) = if src % 4 == 0 { (dst, 3 + src % (hosts - 3)) } else { (3 + src % (hosts - 3), dst) };
                Flow { bytes, start, priority: (bytes % u64::from(priorities)) as u8, ..flow(src, dst, 1) }
            })
            .collect();
        flows.sort_by_key(|f| f.start);
        let mut c = config(topology, flows, switch, "roce");
        if spray {
            (c.routing, c.setups[0].transport) = (Routing::Spray, transport("irn,cap=4096"));
        }
        let outcome = complete(c);
        prop_assert_eq!(outcome.dropped.0, 0);
    }
}
