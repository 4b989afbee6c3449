//! Schedules: what is recorded of packets, and what comes of sending them again.

use std::sync::Arc;

use irnic_fabric::schedule::{Detail, Header, Replay, ReplayError, Replayed, Schedule, Scheduled};
use irnic_fabric::sim::{Outcome, SimConfig, ideal};
use irnic_fabric::switch::{Discipline, OutputQueuedConfig, SwitchConfig};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_fabric::workload::Flow;
use irnic_transports::qp::Service;

use crate::kit::*;

/// Open-loop flows whose packets are recorded.
fn recorded(topology: Topology, flows: Vec<Flow>) -> SimConfig {
    let mut config = config(topology, flows, shared(DEEP, 1e6, None), "irn");
    config.setups[0].service = Service::Uc;
    with! { schedule: Some(Detail::Hops), quantum: 65_536, ..config }
}

fn schedule(outcome: Outcome) -> Schedule {
    outcome.schedule.expect("a schedule")
}

fn replayed(config: &SimConfig, schedule: &Arc<Schedule>, header: Header, late: u64) -> Replayed {
    let mut replay = Replay::new(config.network(), schedule.clone(), header).expect("the same network");
    while !replay.run(1_000).expect("the same times") {}
    replay.outcome(late).expect("accounts that add up")
}

/// Three hosts left of two switches and three right of them, links of whole ns a packet and others.
fn dumbbell(rates: [u64; 3]) -> Topology {
    let [left, middle, right] = rates;
    let mut links = vec![(6, 7, middle, 3_000)];
    links.extend((0..3).map(|host| (host, 6, left, 1_000 + u64::from(host))));
    links.extend((3..6).map(|host| (host, 7, right, 700)));
    network(6, 2, &links)
}

/// Flows in both directions, some at the same time.
fn mixed() -> Vec<Flow> {
    let all = [
        (0, 3, 9, 0),
        (1, 3, 5, 0),
        (2, 4, 7, 300),
        (3, 0, 4, 500),
        (0, 5, 3, 900),
        (2, 3, 6, 1_111),
        (1, 4, 8, 2_000),
    ];
    all.map(|(src, dst, packets, start)| Flow {
        start,
        bytes: packets * MTU - 100 * (packets % 2),
        ..flow(src, dst, 1)
    })
    .to_vec()
}

fn output_queued(discipline: Discipline) -> SwitchConfig {
    SwitchConfig::OutputQueued(OutputQueuedConfig::new(1 << 40, discipline))
}

#[test]
fn times_are_those_that_one_computes_by_hand() {
    // 250 ns a packet and 1 µs a link: at the switch at 1250, twice, and 1500, twice; it sends at 1250, 1500, 1750,
    // 2000.
    let outcome = complete(recorded(star(&[40 * G; 3]), vec![flow(0, 2, 2), flow(1, 2, 2)]));
    let schedule = schedule(outcome);
    let seen: Vec<_> = schedule.packets().iter().map(|p| (p.flow, p.psn, p.sent, p.left, p.queueing())).collect();
    let expected = [(0, 0, 0, 2_500, 0), (1, 0, 0, 2_750, 250), (0, 1, 250, 3_000, 250), (1, 1, 250, 3_250, 500)];
    assert_eq!(seen, expected);
    let ends: Vec<_> = schedule.packets().iter().map(|p| (p.src, p.dst, p.wire, p.ideal, p.hops)).collect();
    assert_eq!(ends, [0, 1, 0, 1].map(|src| (src, 2, WIRE as u32, 2_500, 1)));
    // The second waits for what is being sent, the others find it waiting.
    let met: Vec<_> = schedule.packets().iter().map(|p| (p.points, p.waits)).collect();
    assert_eq!(met, [(0, 0), (0, 1), (1, 1), (1, 1)]);
    assert_eq!((schedule.by_points(), schedule.by_waits()), (vec![0.5, 0.5], vec![0.25, 0.75]));
    assert_eq!(
        (0..4).map(|at| schedule.starts(at)).collect::<Vec<_>>(),
        [1_250, 1_500, 1_750, 2_000].map(|at| [(3, at)])
    );
}

#[test]
fn what_a_packet_waits_at_its_hops_is_what_it_is_longer_under_way() {
    let rates = [10 * G, 4 * G, 10 * G];
    let config = recorded(dumbbell(rates), mixed());
    let schedule = schedule(complete(config.clone()));
    assert!(
        schedule.packets().iter().any(|p| p.queueing() > 5_000) && schedule.packets().iter().any(|p| p.queueing() == 0)
    );
    for (at, packet) in schedule.packets().iter().enumerate() {
        let bits = |rate: u64| (u64::from(packet.wire) * 8 * G).div_ceil(rate);
        let delay = |host: u32| if host < 3 { 1_000 + u64::from(host) } else { 700 };
        // From its start at the host on: when it is at each switch, and how long it waits there.
        let mut there = packet.sent + bits(10 * G) + delay(packet.src);
        let mut waited = 0;
        for (hop, &(_, start)) in schedule.starts(at).iter().enumerate() {
            waited += start - there;
            there = if hop == 0 { start + bits(4 * G) + 3_000 } else { start + bits(10 * G) + delay(packet.dst) };
        }
        assert_eq!((there, waited as i64), (packet.left, packet.queueing()), "{packet:?}");
    }
}

#[test]
fn idle_links_take_what_the_ideal_says_whatever_their_rates() {
    for rates in [[10 * G, 5_556_000_000, 10 * G], [G, 14_445_000_000, 3 * G], [1_112_000_000, G, 7_000_000_001]] {
        let config = recorded(dumbbell(rates), mixed());
        let schedule = schedule(complete(config.clone()));
        for packet in schedule.packets() {
            let [left, middle, right] = rates;
            let of = |host: u32| if host < 3 { (left, 1_000 + u64::from(host)) } else { (right, 700) };
            let path = [of(packet.src), (middle, 3_000), of(packet.dst)];
            assert_eq!(packet.ideal, ideal(&[(packet.wire, 1)], &path), "{packet:?}");
            assert!(packet.queueing() >= -3, "{packet:?}");
        }
    }
}

#[test]
fn who_knows_when_each_switch_sent_a_packet_has_none_overdue() {
    let config = recorded(dumbbell([10 * G, 4 * G, 10 * G]), mixed());
    let schedule = Arc::new(schedule(complete(config.clone())));
    let again = replayed(&config, &schedule, Header::Vector, 0);
    let left: Vec<u64> = schedule.packets().iter().map(|packet| packet.left).collect();
    assert_eq!((again.left, again.all.overdue, again.worst), (left, 0, 0));
    assert_eq!(again.all.packets, schedule.packets().len() as u64);
    // All that waited waits as long again.
    assert!(!again.ratios.is_empty() && again.ratios.iter().all(|ratio| *ratio == 1.0));
}

/// Appendix A.4: what LSTF keeps in the header EDF works out from the routes.
#[test]
fn by_deadlines_packets_leave_exactly_as_by_slack() {
    // Behind the bottleneck ways are long and short: of two packets the one that leaves later may have less time.
    let mut links: Vec<_> = (0..3).map(|host| (host, 6, 10 * G, 0)).collect();
    links.extend([(6, 7, 4 * G, 1_000), (7, 3, 10 * G, 0), (7, 4, 10 * G, 50_000), (7, 5, 10 * G, 1_000)]);
    let flows =
        (0..120).map(|n| Flow { start: 1_000 * u64::from(n), ..flow(n % 3, 3 + n / 3 % 3, 1 + u64::from(n) % 9) });
    let mut config = recorded(network(6, 2, &links), flows.collect());
    config.switch = output_queued(Discipline::Random);
    let outcome = run(config.clone());
    assert_eq!(outcome.dropped.0, 0);
    let schedule = Arc::new(schedule(outcome));
    let mut by = |discipline, header| {
        config.switch = output_queued(discipline);
        replayed(&config, &schedule, header, 0)
    };
    let slack = by(Discipline::LeastSlack, Header::Slack);
    assert_eq!(by(Discipline::EarliestDeadline, Header::Exit), slack);
    assert!(slack.all.lost == 0 && slack.left.len() > 400);
    // Who knows no routes does otherwise.
    assert_ne!(by(Discipline::Rank, Header::Exit).left, slack.left);
    // So it is where each switch is named.
    config.switch = output_queued(Discipline::Fifo);
    config.differing = [6, 7].map(|node| (node, output_queued(Discipline::EarliestDeadline))).into();
    assert_eq!(replayed(&config, &schedule, Header::Exit, 0), slack);
}

#[test]
fn overdue_packets_are_counted_by_how_much_and_where() {
    // First come, first served, through a bottleneck that has half its rate: the network is another, and says nothing
    // of it where there are two ways.
    let two = |rate| {
        let links = vec![
            (0, 2, 10 * G, 0),
            (2, 3, rate, 1_000),
            (2, 4, rate, 1_000),
            (3, 5, 10 * G, 0),
            (4, 5, 10 * G, 0),
            (5, 1, 10 * G, 0),
        ];
        network(2, 4, &links)
    };
    let fast = recorded(two(10 * G), vec![flow(0, 1, 4)]);
    let slow = recorded(two(5 * G), vec![flow(0, 1, 4)]);
    let schedule = Arc::new(schedule(complete(fast)));
    let again = replayed(&slow, &schedule, Header::Slack, 2_500);
    // A packet takes 1 µs at 10 Gbit/s and 2 at 5: packets are 1, 2, 3 and 4 µs too late.
    let by: Vec<u64> = again.left.iter().zip(schedule.packets()).map(|(left, packet)| left - packet.left).collect();
    assert_eq!(by, [1_000, 2_000, 3_000, 4_000]);
    assert_eq!((again.all.overdue, again.all.beyond_rounding, again.all.late, again.worst), (4, 4, 2, 4_000));
    assert_eq!((again.all.share(again.all.late), again.by_points.len()), (0.5, 1));
    assert!(again.ratios.is_empty() && again.ratio(0.5).is_none());
}

#[test]
fn schedules_of_other_networks_are_refused() {
    let config = recorded(star(&[40 * G; 3]), vec![flow(0, 2, 2), flow(1, 2, 1)]);
    let recorded_ = schedule(complete(config.clone()));
    let with = |change: &dyn Fn(&mut Vec<Scheduled>)| {
        let mut packets = recorded_.packets().to_vec();
        change(&mut packets);
        Arc::new(Schedule::new(packets))
    };
    let refused = |schedule, header| Replay::new(config.network(), schedule, header).unwrap_err();
    let expected = "expected the network, the routing and the seed that it was recorded with";
    assert_eq!(refused(with(&|_| ()), Header::Vector), ReplayError::NoHops);
    assert_eq!(refused(with(&|p| p.reverse()), Header::Slack), ReplayError::Order(1));
    let said = refused(with(&|p| p[1].dst = 9), Header::Slack).to_string();
    assert_eq!(said, format!("packet 1 of the schedule goes from host 1 to 9, of 3; {expected}"));
    let said = refused(with(&|p| p[0].ideal += 1), Header::Slack).to_string();
    assert_eq!(said, format!("packet 0 of the schedule took 2501 ns on idle links, and would take 2500; {expected}"));
    // Two packets at once cannot leave by one link.
    let mut replay = Replay::new(config.network(), with(&|p| p[2].sent = 0), Header::Slack).unwrap();
    let said = replay.run(1_000).unwrap_err().to_string();
    assert_eq!(said, format!("packet 2 of the schedule was sent at 0 ns, and could be only at 250; {expected}"));
    // As where the one before it had not arrived when the run was cut short.
    let mut replay = Replay::new(config.network(), with(&|p| p[2].sent = 249), Header::Slack).unwrap();
    assert_eq!(replay.run(1_000), Err(ReplayError::Incomplete { packet: 2, sent: 249, at: 250 }));
}

#[test]
fn lost_packets_are_not_in_the_schedule() {
    let topology = star(&[40 * G, 40 * G, 10 * G]);
    let mut config = recorded(topology, vec![flow(0, 2, 20), flow(1, 2, 20)]);
    config.switch = input_queued(3 * WIRE, None);
    let outcome = run(config);
    let (delivered, dropped) = (outcome.delivered.0, outcome.dropped.0);
    let schedule = schedule(outcome);
    assert!(dropped > 0);
    assert_eq!(schedule.packets().len() as u64, delivered);
    assert!(schedule.packets().iter().all(|packet| packet.left > packet.sent));
    assert!((0..schedule.packets().len()).all(|at| schedule.starts(at).len() == 1));
}

/// A link that loses packets is in the accounts of both.
#[test]
fn packets_that_links_lose_are_overdue_for_ever() {
    let mut lossy = star(&[40 * G; 2]);
    let config = recorded(lossy.clone(), vec![flow(0, 1, 200)]);
    let schedule = Arc::new(schedule(complete(config.clone())));
    lossy.links[1] = LinkSpec { loss: 0.5, ..lossy.links[1] };
    let again = replayed(&with! { topology: lossy, ..config }, &schedule, Header::Exit, 0);
    assert!((50..150).contains(&again.all.lost), "{}", again.all.lost);
    assert_eq!((again.all.overdue, again.all.late, again.worst), (again.all.lost, again.all.lost, 0));
}
