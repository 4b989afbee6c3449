//! Switches that run policies, beside the switches that do the same by heart: the same packets, marks, pauses and
//! times, and the same draws of random numbers.

use irnic_fabric::experiment::{Grid, Written, find};
use irnic_fabric::sim::{Detour, Outcome, SimConfig};
use irnic_fabric::switch::{Ecn, PolicySwitch, Scheduling, SwitchConfig, Thresholds};
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;

use crate::kit::*;

/// A run of these keys and values.
fn experiment(pairs: &[(&str, &str)]) -> SimConfig {
    let key = |name| find(name).expect("a key").name();
    let common = pairs.iter().map(|(name, text)| (key(name), vec![Written::flag(key(name), text)])).collect();
    let case = Grid { common, runs: Vec::new() }.cases().unwrap().remove(0);
    case.experiment().unwrap().config(3).unwrap_or_else(|error| panic!("{pairs:?}: {error}"))
}

/// Runs these keys with a switch, and with the policy of its name in its stead: known by heart, and as any other.
fn same(pairs: &[(&str, &str)], switch: &str) -> Outcome {
    let outcome = |switch: &str| run(experiment(&[pairs, &[("switch", switch)]].concat()));
    let by_heart = outcome(switch);
    let expected = format!("{by_heart:?}");
    for policy in [format!("{switch}.oq"), format!("{switch}.oq,plan=generic")] {
        assert!(format!("{:?}", outcome(&policy)) == expected, "{pairs:?}: {policy} differs");
    }
    by_heart
}

const KINDS: [&str; 2] = ["input-queued", "shared-buffer"];

#[test]
fn policies_drop_as_their_switches_do() {
    let incast = [("topology", "star:hosts=9"), ("workload", "incast:senders=8,bytes=800KB")];
    let small = [("buffer", "30KB")];
    for switch in KINDS {
        let outcome = same(&[&incast[..], &small].concat(), switch);
        assert!(outcome.dropped.0 > 100, "{switch}: {:?}", outcome.dropped);
        let fat_tree = [("topology", "fat-tree:k=4"), ("duration", "100us"), ("load", "0.9")];
        let irn = same(&fat_tree, switch);
        assert!(irn.delivered.0 > 10_000, "{switch}: {:?}", irn.delivered);
    }
}

#[test]
fn policies_mark_as_their_switches_do() {
    let incast = [("topology", "star:hosts=9"), ("workload", "incast:senders=8,bytes=800KB"), ("buffer", "2MB")];
    for switch in KINDS {
        for cc in ["dcqcn", "dctcp"] {
            let outcome = same(&[&incast[..], &[("cc", cc)]].concat(), switch);
            assert!(outcome.links.iter().map(|link| link.counters.marked).sum::<u64>() > 0, "{switch} {cc}");
        }
    }
}

#[test]
fn policies_pause_as_their_switches_do() {
    let incast = [("topology", "star:hosts=9"), ("workload", "incast:senders=8,bytes=8MB"), ("transport", "roce")];
    for switch in KINDS {
        let outcome = same(&[&incast[..], &[("pfc", "on"), ("buffer", "400KB")]].concat(), switch);
        assert!(outcome.paused() > 0 && outcome.dropped.0 == 0, "{switch}: {:?}", outcome.dropped);
    }
}

/// TLT's benchmark (§7.1), small: web search and foreground incasts on a leaf-spine of 12 hosts, with and without PFC.
#[test]
fn policies_drop_red_packets_as_their_switches_do() {
    let benchmark = [
        ("topology", "leaf-spine:leaves=3,spines=2,hosts=4,rate=40G,uplink=40G,delay=1us"),
        ("workload", "cdf:WebSearch+foreground:flows=8"),
        ("load", "0.4"),
        ("flows-count", "60"),
        ("buffer", "400KB"),
    ];
    for more in [
        &[("transport", "irn,tlt=on"), ("cc", "dctcp")][..],
        &[("transport", "roce,tlt=on"), ("cc", "dcqcn")],
        &[("transport", "irn,tlt=on"), ("cc", "dctcp"), ("pfc", "on")],
    ] {
        let pairs = [&benchmark[..], more].concat();
        let outcome = |own: &[(&str, &str)]| run(experiment(&[&pairs[..], own].concat()));
        let by_heart = outcome(&[("switch", "shared-buffer"), ("colour-threshold", "60KB")]);
        let colours = by_heart.colours.expect("counted");
        assert!(colours.red_dropped > 20 && colours.red_peak > 55_000, "{more:?}: {colours:?}");
        for plan in ["", ",plan=generic"] {
            let policy = format!("shared-buffer.oq,colours=on,threshold=60KB{plan}");
            let same = outcome(&[("switch", &policy)]);
            assert!(format!("{same:?}") == format!("{by_heart:?}"), "{more:?}: {policy} differs");
        }
        let set = outcome(&[("switch", "shared-buffer.oq"), ("colour-threshold", "60KB")]);
        assert!(format!("{set:?}") == format!("{by_heart:?}"), "{more:?}: --colour-threshold differs");
    }
}

/// Of NDP's switch everything is the same: what is cut and what goes back, what goes first, and that what is sent
/// counts.
#[test]
fn a_policy_trims_as_the_switch_does() {
    let pairs = [
        ("topology", "fat-tree:k=4,rate=10G,delay=1us"),
        ("workload", "incast:senders=15,bytes=900KB+permutation:bytes=200KB"),
        ("routing", "source"),
        ("transport", "ndp"),
    ];
    let outcome = |own: &[(&str, &str)]| run(experiment(&[&pairs[..], own].concat()));
    for (trim, returns, ratio, headers) in [
        ("arriving", "off", "10", "9KB"),
        ("arriving", "off", "1", "2KB"),
        ("arriving", "on", "10", "500"),
        ("coin", "off", "10", "500"),
        ("coin", "on", "10", "9KB"),
        ("coin", "on", "3", "500"),
        ("fifo", "off", "10", "100"),
        ("fifo", "on", "10", "100"),
    ] {
        let queues = [("data-queue", "9KB"), ("header-queue", headers), ("wrr", ratio)];
        let by_heart =
            outcome(&[&[("switch", "trimming"), ("trim", trim), ("return-headers", returns)][..], &queues].concat());
        assert!(by_heart.trimmed.0 > 200, "{:?}", by_heart.trimmed);
        if headers != "9KB" {
            let returned: u64 = by_heart.links.iter().map(|link| link.counters.returned).sum();
            let refused = if returns == "on" { returned } else { by_heart.dropped.0 };
            assert!(refused > 5, "{trim} {returns}: {refused} refused");
        }
        let [coin, fifo] = ["coin", "fifo"].map(|way| if way == trim { "on" } else { "off" });
        let policy =
            format!("trimming.oq,data=9KB,headers={headers},ratio={ratio},coin={coin},returns={returns},fifo={fifo}");
        for plan in ["", ",plan=generic"] {
            let same = outcome(&[("switch", &format!("{policy}{plan}"))]);
            assert!(format!("{same:?}") == format!("{by_heart:?}"), "{policy}{plan} differs");
        }
    }
}

/// A policy with parameters, for packets of [`WIRE`] bytes and one priority.
fn policy(text: &str, priorities: u8) -> SwitchConfig {
    SwitchConfig::Policy(text.parse::<PolicySwitch>().unwrap().with_packets(WIRE as u32, priorities))
}

#[test]
fn policies_choose_among_priorities_as_their_switches_do() {
    let flows =
        || (0..24).map(|n| with_priority((n % 5) as u8 * 2 % 8, flow(n % 6, 6 + n % 2, 40))).collect::<Vec<Flow>>();
    let buffer = 60 * WIRE;
    for strict in [true, false] {
        let scheduling = if strict { Scheduling::Strict } else { Scheduling::RoundRobin };
        for (name, mut switch) in
            [("input-queued", input_queued(buffer, None)), ("shared-buffer", shared(buffer, 1.0, None))]
        {
            set_scheduling(&mut switch, scheduling);
            set_ecn(&mut switch, Ecn::Red { kmin: 5 * WIRE, kmax: 20 * WIRE, pmax: 0.3 });
            let strict = if strict { "on" } else { "off" };
            let text = format!(
                "{name},plan=generic,buffer={buffer},strict={strict},red=on,kmin={},kmax={},pmax=0.3",
                5 * WIRE,
                20 * WIRE
            );
            let [a, b] =
                [switch, policy(&text, 1)].map(|switch| run(config(star(&[40 * G; 8]), flows(), switch, "irn")));
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{text}");
        }
    }
}

/// Switches in a ring of three, two hosts at each, where all goes clockwise and PFC locks up.
fn ring(switch: SwitchConfig) -> Outcome {
    let hosts = (0..6).map(|h| (h, 6 + h / 2, 40 * G, 1_000));
    let links = (0..3).map(|i| (6 + i, 6 + (i + 1) % 3, 40 * G, 1_000));
    let topology: Topology = network(6, 3, &hosts.chain(links).collect::<Vec<_>>());
    let flows = (0..6).map(|host| flow(host, (host + 4) % 6, 400)).collect();
    let detours = (0..3).map(|i| Detour { node: 6 + i, dst: 2 * ((i + 2) % 3), via: 6 + (i + 1) % 3 }).collect();
    run(with! { detours, ..config(topology, flows, switch, "roce") })
}

#[test]
fn policies_lock_up_where_their_switches_do() {
    let at = Thresholds { xoff: 20 * WIRE, xon: 18 * WIRE };
    let by_heart = ring(input_queued(DEEP, Some(at)));
    assert_eq!(by_heart.deadlock.len(), 3);
    let text = format!("input-queued,plan=generic,buffer={DEEP},pfc=on,xoff={},xon={}", at.xoff, at.xon);
    assert_eq!(format!("{by_heart:?}"), format!("{:?}", ring(policy(&text, 1))));

    let by_heart = ring(shared(400 * WIRE, 1.0, Some(shared_pfc(0.125, 0, WIRE))));
    assert_eq!(by_heart.deadlock.len(), 3);
    let text = format!("shared-buffer,plan=generic,buffer={},pfc=on,pfc_alpha=1/8,reserve=0,resume={WIRE}", 400 * WIRE);
    assert_eq!(format!("{by_heart:?}"), format!("{:?}", ring(policy(&text, 1))));
}

#[test]
fn a_copy_of_a_policy_is_known_by_heart_and_a_change_of_it_is_not() {
    let text = irnic_openqueue::Shipped::named("input-queued").unwrap().text;
    let is_known = |text: &str| {
        let switch = PolicySwitch::new("a copy", text.parse().unwrap());
        switch.is_known(4).unwrap()
    };
    let trimming = irnic_openqueue::Shipped::named("trimming").unwrap().text;
    assert!(is_known(trimming) && !is_known(&trimming.replace("trim(coin)", "drop")));
    assert!(is_known(text) && is_known(&text.replace("voq", "waiting")));
    assert!(!is_known(&text.replace("p1.arrival < p2.arrival", "p1.size < p2.size")));
    assert!(!is_known(
        &text.replace("ingress.currSize > xoff", "ingress.currSize >= xoff").replace("pfc = off", "pfc = on")
    ));
}

/// Longest queue drop pushes packets out that were taken in: they are accounted for, or the run would fail.
#[test]
fn what_is_pushed_out_is_accounted_for() {
    let incast = [("topology", "star:hosts=9"), ("workload", "incast:senders=8,bytes=800KB+permutation:bytes=800KB")];
    let outcome = run(experiment(&[&incast[..], &[("switch", "shared-lqd"), ("buffer", "60KB")]].concat()));
    assert!(outcome.dropped.0 > 100, "{:?}", outcome.dropped);
    let threads = outcome.links.iter().map(|link| link.counters.dropped).sum::<u64>();
    assert_eq!(threads, outcome.dropped.0);
}
