//! Properties of all generated flows.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn setting(topology: &Topology, seed: u64) -> Setting<'_> {
    Setting { topology, seed, load: 0.7, duration: None, flows: Some(200), mtu: 1_000, header: 62, priority: 3 }
}

fn generate(text: &str, setting: &Setting<'_>) -> Vec<Flow> {
    text.parse::<Workload>().unwrap().generate(setting).unwrap()
}

const POISSON: [&str; 8] = [
    "irn-heavy",
    "irn-uniform",
    "fixed:64K",
    "cdf:AliStorage2019",
    "cdf:FbHdp2015",
    "cdf:GoogleRPC2008",
    "cdf:Solar2022",
    "cdf:WebSearch",
];

proptest! {
    #[test]
    fn flows_are_sorted_and_go_to_other_hosts(hosts in 2u32..40, seed: u64, kind in 0usize..12) {
        let mut texts = POISSON.map(str::to_owned).to_vec();
        texts.push("permutation+irn-heavy".to_owned());
        texts.push(format!("fixed:1+incast:senders={},bytes=1MB,to=random,every=1us,repeat=3", hosts / 2));
        texts.push("random:flows=3,bytes=1KB".to_owned());
        texts.push("fixed:10KB,load=0.1+foreground:flows=2,share=0.3".to_owned());
        let topology = Topology::star(hosts, 40_000_000_000, 1_000);
        let setting = setting(&topology, seed);
        let flows = generate(&texts[kind], &setting);
        prop_assert!(flows.is_sorted_by_key(|flow| (flow.start, flow.src)));
        for flow in &flows {
            prop_assert!(flow.src < hosts && flow.dst < hosts && flow.src != flow.dst, "{flow:?}");
            prop_assert!(flow.bytes > 0 && flow.priority == 3 && flow.class < 2, "{flow:?}");
        }
        prop_assert_eq!(flows, generate(&texts[kind], &setting));
    }
}

#[test]
fn flows_go_outside_the_group_to_all_hosts_there_alike() {
    let topology = Topology::star(25, 40_000_000_000, 1_000);
    let setting = Setting { flows: Some(50_000), ..setting(&topology, 3) };
    let flows = generate("fixed:1KB,outside=10", &setting);
    let mut to = [[0u32; 25]; 3];
    flows.iter().for_each(|flow| to[flow.src as usize / 10][flow.dst as usize] += 1);
    for (group, counts) in to.iter().enumerate() {
        // The last group has five hosts.
        let (senders, others) = if group == 2 { (5.0, 20.0) } else { (10.0, 15.0) };
        let expected = 50_000.0 * senders / 25.0 / others;
        for (dst, n) in counts.iter().enumerate() {
            let inside = dst / 10 == group;
            assert!(if inside { *n == 0 } else { (f64::from(*n) / expected - 1.0).abs() < 0.2 }, "{group} {dst} {n}");
        }
    }
    let all: Workload = "fixed:1KB,outside=25".parse().unwrap();
    assert!(all.generate(&setting).unwrap_err().to_string().ends_with("expected fewer than the 25 hosts there are"));
}

#[test]
fn hosts_offer_the_load_that_was_asked_for() {
    let topology = Topology::leaf_spine(2, 2, 8, 10_000_000_000, 40_000_000_000, 1_000);
    for text in POISSON {
        for (load, header) in [(0.3, 0), (0.9, 62)] {
            let limits = Setting { load, header, flows: Some(100_000), ..setting(&topology, 1) };
            let flows = generate(text, &limits);
            assert_eq!(flows.len(), 100_000);
            let wire = |flow: &Flow| limits.wire_bytes(flow.bytes) as f64;
            let offered = 8.0 * flows.iter().map(wire).sum::<f64>() / (flows[99_999].start as f64 / 1e9) / 160e9;
            // Flow sizes of the widest distribution have a deviation of 6 times their mean: 2 % in the sum; allow five
            // times that.
            assert!((offered / load - 1.0).abs() < 0.1, "{text}: {offered}, not {load}");
        }
    }
    // The sharp case: with equal sizes only the arrivals vary, a deviation of 0.3 %.
    let limits = Setting { load: 0.5, flows: Some(100_000), ..setting(&topology, 2) };
    let flows = generate("fixed:1000", &limits);
    let offered = 8.0 * 1062.0 * 1e5 / (flows[99_999].start as f64 / 1e9) / 160e9;
    assert!((offered / 0.5 - 1.0).abs() < 0.015, "{offered}");
}

#[test]
fn every_host_is_as_likely_a_destination() {
    let topology = Topology::star(5, 10_000_000_000, 1_000);
    let flows = generate("fixed:1000", &Setting { flows: Some(20_000), ..setting(&topology, 3) });
    let mut counts = [[0u32; 5]; 5];
    for flow in &flows {
        counts[flow.src as usize][flow.dst as usize] += 1;
    }
    for (src, counts) in counts.iter().enumerate() {
        for (dst, count) in counts.iter().enumerate().filter(|(dst, _)| *dst != src) {
            // A thousand each, deviation 32.
            assert!((850..1150).contains(count), "{src} to {dst}: {count}");
        }
    }
}

#[test]
fn a_duration_ends_it_and_so_does_a_number() {
    let topology = Topology::star(4, 10_000_000_000, 1_000);
    let all = generate("fixed:1000", &Setting { flows: Some(1_000), ..setting(&topology, 1) });
    let end = all[500].start;
    let short = generate("fixed:1000", &Setting { flows: None, duration: Some(end), ..setting(&topology, 1) });
    let before: Vec<Flow> = all.iter().copied().filter(|flow| flow.start < end).collect();
    assert_eq!(short, before);
    let few = generate("fixed:1000", &Setting { flows: Some(10), duration: Some(end), ..setting(&topology, 1) });
    assert_eq!(few, all[..10]);
}

#[test]
fn more_hosts_leave_the_others_as_they_are() {
    let (small, large) = (Topology::star(3, 10_000_000_000, 1_000), Topology::star(30, 10_000_000_000, 1_000));
    let limits = |topology| Setting { flows: None, duration: Some(3_000_000), ..setting(topology, 9) };
    let times_and_sizes = |topology| -> Vec<(u32, u64, u64)> {
        let flows = generate("irn-heavy", &limits(topology)).into_iter().filter(|flow| flow.src < 3);
        flows.map(|flow| (flow.src, flow.start, flow.bytes)).collect()
    };
    assert!(times_and_sizes(&small).len() > 10);
    assert_eq!(times_and_sizes(&small), times_and_sizes(&large));
}

#[test]
fn the_load_is_of_each_hosts_own_link() {
    let mut topology = Topology::star(2, 10_000_000_000, 1_000);
    topology.links[1].rate *= 10;
    let flows = generate("fixed:1000", &Setting { flows: Some(11_000), ..setting(&topology, 1) });
    let slow = flows.iter().filter(|flow| flow.src == 0).count();
    // A thousand, deviation 30.
    assert!((850..1150).contains(&slow), "{slow}");
}

#[test]
fn an_incast_stripes_its_bytes_over_distinct_senders() {
    let topology = Topology::star(54, 40_000_000_000, 1_000);
    let setting = setting(&topology, 5);
    let flows = generate("incast:senders=7,bytes=100,to=4,start=1us,every=10us,repeat=20", &setting);
    assert_eq!(flows.len(), 140);
    let mut groups = BTreeSet::new();
    for (repetition, flows) in flows.chunks(7).enumerate() {
        let senders: BTreeSet<u32> = flows.iter().map(|flow| flow.src).collect();
        assert_eq!(senders.len(), 7);
        assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), 100);
        let sizes: BTreeSet<u64> = flows.iter().map(|flow| flow.bytes).collect();
        assert_eq!(sizes, BTreeSet::from([14, 15]));
        assert!(flows.iter().all(|flow| flow.dst == 4 && flow.start == 1_000 + 10_000 * repetition as u64));
        groups.insert(senders);
    }
    assert_eq!(groups.len(), 20, "senders are drawn anew");
    let receivers: BTreeSet<u32> =
        generate("incast:to=random,repeat=50", &setting).iter().map(|flow| flow.dst).collect();
    assert!(receivers.len() > 20, "{receivers:?}");
}

/// Share of what hosts could send until `end` that a class offers, on the wire.
fn offered(flows: &[Flow], class: u8, setting: &Setting<'_>, end: u64) -> f64 {
    let wire: u64 = flows.iter().filter(|flow| flow.class == class).map(|flow| setting.wire_bytes(flow.bytes)).sum();
    let rate: u64 = setting.topology.host_rates().iter().sum();
    8e9 * wire as f64 / (rate as f64 * end as f64)
}

#[test]
fn each_part_may_have_a_load_of_its_own() {
    let topology = Topology::star(10, 10_000_000_000, 1_000);
    let end = 200_000_000;
    let limits = Setting { flows: None, duration: Some(end), ..setting(&topology, 6) };
    let flows = generate("fixed:1000,load=0.6+fixed:1000+incast:senders=all,each=4000,load=0.05", &limits);
    for (class, load) in [(0, 0.6), (1, 0.7), (2, 0.05)] {
        let found = offered(&flows, class, &limits, end);
        assert!((found / load - 1.0).abs() < 0.01, "class {class}: {found}, not {load}");
    }
    // The parts are independent.
    let alone: Vec<Flow> = generate("fixed:1000,load=0.6", &limits);
    assert!(flows.iter().copied().filter(|flow| flow.class == 0).eq(alone));
}

/// TLT §7.1: 96 hosts, flows of 8 kB, eight from each of 95, frequent enough to make up 5 % of all traffic.
#[test]
fn the_foreground_is_a_share_of_the_load() {
    let topology = Topology::leaf_spine(12, 4, 8, 40_000_000_000, 40_000_000_000, 1_000);
    let limits = Setting { load: 0.2, flows: Some(10_000), ..setting(&topology, 8) };
    let flows = generate("fixed:1MB+foreground", &limits);
    let end = flows.iter().filter(|flow| flow.class == 0).map(|flow| flow.start).max().unwrap();
    for (class, load) in [(0, 0.19), (1, 0.01)] {
        let found = offered(&flows, class, &limits, end);
        // The first of some 80 intervals is empty.
        assert!((found / load - 1.0).abs() < 0.04, "class {class}: {found}, not {load}");
    }
    let bursts: Vec<Flow> = flows.iter().copied().filter(|flow| flow.class == 1).collect();
    let mut receivers = BTreeSet::new();
    for burst in bursts.chunks(95 * 8) {
        assert!(burst.iter().all(|flow| (flow.start, flow.dst, flow.bytes) == (burst[0].start, burst[0].dst, 8_000)));
        let senders: Vec<u32> = burst.chunks(8).map(|flows| flows[0].src).collect();
        assert!(senders.is_sorted() && senders.len() == 95 && !senders.contains(&burst[0].dst));
        receivers.insert(burst[0].dst);
    }
    let starts: BTreeSet<u64> = bursts.iter().map(|flow| flow.start).collect();
    let starts: Vec<u64> = starts.into_iter().collect();
    assert!(starts.len() > 50 && receivers.len() > 30, "{starts:?} {receivers:?}");
    // One interval before the first; all equal except for rounding.
    assert!(starts.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(starts[0]) <= 1), "{starts:?}");
    let last = starts[starts.len() - 1];
    assert!(last < end && last + starts[0] >= end, "{last} {end}");
}

#[test]
fn an_incast_divides_its_bytes_over_all_flows() {
    let topology = Topology::star(6, 1_000_000_000, 1_000);
    let flows = generate("incast:senders=all,flows=3,bytes=100,to=2", &setting(&topology, 1));
    assert_eq!(flows.len(), 15);
    assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), 100);
    assert!(flows.iter().all(|flow| [6, 7].contains(&flow.bytes)));
}

#[test]
fn a_permutation_reaches_every_host_once() {
    let topology = Topology::star(17, 1_000_000, 1_000);
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let flows = generate("permutation", &setting(&topology, seed));
        let to: Vec<u32> = flows.iter().map(|flow| flow.dst).collect();
        assert_eq!(to.iter().copied().collect::<BTreeSet<_>>().len(), 17);
        seen.insert(to);
    }
    assert_eq!(seen.len(), 50);
}

#[test]
fn parts_are_classes_and_do_not_touch_each_other() {
    let topology = Topology::star(8, 10_000_000_000, 1_000);
    let setting = setting(&topology, 4);
    let both = generate("irn-heavy+incast:senders=3,start=10us", &setting);
    let of = |class| both.iter().copied().filter(|flow| flow.class == class).collect::<Vec<_>>();
    assert_eq!(of(0), generate("irn-heavy", &setting));
    assert_eq!(of(1).len(), 3);
    let twice = generate("fixed:10+fixed:10", &setting);
    let starts = |class| twice.iter().filter(|f| f.class == class).map(|f| f.start).collect::<Vec<_>>();
    assert_ne!(starts(0), starts(1), "two parts of a kind are independent");
}

#[test]
fn what_cannot_be_is_refused() {
    let topology = Topology::star(4, 10_000_000_000, 1_000);
    let usual = setting(&topology, 1);
    let alone = Topology { hosts: 1, ..topology.clone() };
    for (text, setting, said) in [
        ("fixed:1", Setting { load: 0.0, ..usual.clone() }, "fixed:1: load=0: expected above 0, at most 10"),
        ("fixed:1", Setting { load: f64::NAN, ..usual.clone() }, "fixed:1: load=NaN: expected above 0, at most 10"),
        (
            "fixed:1",
            Setting { flows: None, ..usual.clone() },
            "fixed:1: flows=unlimited: expected a number of flows, or a duration",
        ),
        (
            "fixed:1",
            Setting { flows: None, duration: Some(10_000_000_000), ..usual.clone() },
            "fixed:1: flows=555555556: expected at most 100000000; shorten the duration",
        ),
        ("fixed:1", Setting { topology: &alone, ..usual.clone() }, "fixed:1: hosts=1: expected two hosts or more"),
        ("incast:senders=4", usual.clone(), "incast: senders=4: expected 1 to 3, all hosts but the receiver"),
        ("incast:senders=3,to=4", usual.clone(), "incast: to=4: expected a host, 0 to 3"),
        (
            "incast:senders=3,flows=4,bytes=9",
            usual.clone(),
            "incast: bytes=9: expected at least one for each of 12 flows",
        ),
        (
            "incast:senders=3,load=0.5",
            usual.clone(),
            "incast: load=0.5: expected a duration, or Poisson arrivals beside it, to say how long",
        ),
        (
            "incast:senders=3,each=1,load=10",
            Setting { duration: Some(3_600_000_000_000), ..usual.clone() },
            "incast: flows=2857142857140: expected at most 100000000, all repetitions together",
        ),
        ("incast:senders=3,bytes=2", usual.clone(), "incast: bytes=2: expected at least one for each of 3 senders"),
    ] {
        let error = text.parse::<Workload>().unwrap().generate(&setting).unwrap_err();
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn closed_loops_have_sizes_and_gaps() {
    for (text, said) in [
        (
            "closed-loop:bytes=0x",
            "closed-loop: bytes=0x: expected a size such as 1000, 150MB (decimal), 64K or 64KiB (of 1024), 1 byte to 1 TB",
        ),
        ("closed-loop:bytes=1KB,cdf=NdpWeb", "closed-loop: bytes=1KB: expected either bytes or cdf"),
        ("closed-loop:bytes=1KB,unit=2", "closed-loop: unit=2: expected a distribution beside it, cdf=NAME"),
        ("closed-loop:connections=0", "closed-loop: connections=0: expected a number from 1 to 4096"),
        ("closed-loop:gaps=none", "closed-loop: gaps=none: expected exponential or constant"),
        ("closed-loop:gap=1", "closed-loop: gap=1: expected a time such as 2us, 500ns or 1.5ms, up to 3600s"),
        (
            "closed-loop:cdf=Facebook",
            "unknown distribution `Facebook`; known are AliStorage2019, CacheFollower, FbHdp2015, GoogleRPC2008, IMC10, \
             NdpWeb, RoccHadoop, Solar2022, WebSearch, WebServer, and files",
        ),
        (
            "closed-loop:load=1",
            "closed-loop: unknown key `load`; it takes connections, from, to, after, gap, mean, gaps, cdf, bytes, discrete, unit",
        ),
        ("closed-loop:gap=1ms,mean=2ms", "closed-loop: mean=2ms: expected either mean or gap"),
        ("closed-loop:after=delivered", "closed-loop: after=delivered: expected acknowledged or sent"),
        ("closed-loop:to=9-3", "closed-loop: to=9-3: expected a host's number or a range such as 60-89"),
    ] {
        assert_eq!(text.parse::<Workload>().unwrap_err().to_string(), said);
    }
    let topology = Topology::star(4, 10_000_000_000, 1_000);
    let loops = |text: &str, setting: &Setting<'_>| text.parse::<Workload>().unwrap().loops(setting);
    let two = loops("irn-heavy+closed-loop:cdf=WebSearch,gap=0ns", &setting(&topology, 1)).unwrap();
    assert_eq!((two.len(), two[0].class, two[0].pairs().count(), two[0].longest()), (1, 1, 20, 29_999_999));
    for (text, said) in [
        ("closed-loop:to=1-4", "closed-loop: to=1-4: expected hosts below 4"),
        ("closed-loop:from=2,to=2", "closed-loop: to=the sender: expected another host"),
        (
            "closed-loop:to=0-2,connections=2000",
            "closed-loop: connections=2000: expected at most 4096 of a sender, 6000 with all of `to`",
        ),
    ] {
        assert_eq!(loops(text, &setting(&topology, 1)).unwrap_err().to_string(), said);
    }
    let error = loops("closed-loop", &Setting { flows: None, ..setting(&topology, 1) }).unwrap_err();
    assert_eq!(error.to_string(), "closed-loop: flows=unlimited: expected a number of flows, or a duration");
    let alone = Topology { hosts: 1, ..topology.clone() };
    let error = loops("closed-loop", &setting(&alone, 1)).unwrap_err();
    assert_eq!(error.to_string(), "closed-loop: hosts=1: expected two hosts or more");
}

#[test]
fn a_closed_loop_connects_each_of_some_with_each_of_others() {
    let topology = Topology::star(5, 10_000_000_000, 1_000);
    let loops = |text: &str| text.parse::<Workload>().unwrap().loops(&setting(&topology, 1)).unwrap();
    let pairs = |text: &str| loops(text)[0].pairs().collect::<Vec<_>>();
    assert_eq!(pairs("closed-loop:from=0-1,to=1-2"), [(0, 1), (0, 2), (1, 2)]);
    assert_eq!(pairs("closed-loop:from=4,to=0,connections=2"), [(4, 0), (4, 0)]);
    assert!(pairs("closed-loop:from=3").iter().all(|(src, dst)| *src == 3 && *dst != 3));
    // A mean of 10 ms is a median of 6.93.
    let (mean, gap) = ("closed-loop:to=0,mean=10ms", "closed-loop:to=0,gap=6931472ns");
    assert_eq!(loops(mean)[0].clone().first(0), loops(gap)[0].clone().first(0));
}

#[test]
fn a_seed_gives_these_flows_on_every_machine() {
    let topology = Topology::star(4, 40_000_000_000, 1_000);
    let flows = generate("irn-heavy", &Setting { flows: Some(6), ..setting(&topology, 1) });
    let found: Vec<_> = flows.iter().map(|flow| (flow.src, flow.dst, flow.bytes, flow.start)).collect();
    let expected = [
        (2, 1, 10_819, 7_289),
        (0, 2, 135, 15_047),
        (2, 1, 593, 17_736),
        (2, 3, 1_650_382, 57_953),
        (1, 0, 315, 62_368),
        (3, 0, 14_434, 92_031),
    ];
    assert_eq!(found, expected);
}
