//! Multi-threaded runs have exactly the outcome of single-threaded ones.

use super::*;
use crate::experiment::{Grid, Written};

/// The configuration for options of the form `key=value`, with a seed.
fn config(options: &str, seed: u64) -> SimConfig {
    valid(options, seed).unwrap_or_else(|e| panic!("{options}: {e}"))
}

/// The configuration for the options, if they are compatible.
fn valid(options: &str, seed: u64) -> Result<SimConfig, String> {
    let keys = || crate::experiment::KEYS.iter().map(|key| key.name());
    let mut common = crate::experiment::Values::default();
    for option in options.split_whitespace() {
        let (key, text) = option.split_once('=').expect("key=value");
        let key = keys().find(|name| *name == key).expect("a key");
        common.insert(key, vec![Written::flag(key, text)]);
    }
    let case = Grid { common, runs: Vec::new() }.cases().expect("a case").remove(0);
    let experiment = case.experiment().unwrap_or_else(|e| panic!("{options}: {e}"));
    experiment.config(seed).map_err(|e| case.error(e).to_string())
}

/// The complete outcome as text.
fn written(outcome: Result<Outcome, SimError>) -> String {
    format!("{outcome:?}")
}

/// Compares a run on `threads` with one thread. Returns why it ran on one thread, if so.
fn compare(options: &str, seed: u64, threads: usize, records: usize) -> Option<&'static str> {
    let config = config(options, seed);
    let one = written(Simulation::new(config.clone()).and_then(Simulation::finish));
    let mut parallel = Parallel::new(config, threads).expect("a valid configuration");
    parallel.limits.records = records;
    while !parallel.run(5_000).expect("no error") {}
    let alone = parallel.alone();
    let several = written(parallel.outcome());
    if one != several {
        let differs = one.bytes().zip(several.bytes()).position(|(a, b)| a != b).unwrap_or(0);
        let near = |text: &str| text[differs.saturating_sub(100)..(differs + 100).min(text.len())].to_owned();
        panic!("{threads} threads, seed {seed}, {options}:\n{}\n{}", near(&one), near(&several));
    }
    alone
}

const NETWORKS: [&str; 4] = [
    "topology=fat-tree:k=4,rate=40G,delay=2us",
    "topology=fat-tree:k=6,rate=100G,delay=1us",
    "topology=leaf-spine:leaves=4,spines=3,hosts=4",
    "topology=dumbbell:left=4,right=4,bottleneck=100G",
];

const LOADS: [&str; 22] = [
    "workload=irn-heavy load=0.8 buffer=60KB",
    "workload=irn-heavy load=0.8 transport=roce pfc=on buffer=200KB",
    "workload=irn-heavy load=0.8 transport=roce buffer=60KB",
    "workload=irn-heavy+incast:senders=5,each=100KB switch=shared-buffer buffer=1MB transport=roce pfc=on cc=dcqcn",
    "workload=cdf:AliStorage2019 load=0.6 switch=shared-buffer cc=hpcc",
    "workload=permutation:bytes=200KB transport=irn cc=timely buffer=60KB routing=spray",
    "workload=permutation:bytes=100KB+irn-heavy switch=trimming routing=source transport=ndp mtu=4096",
    "workload=irn-uniform load=0.9 transport=irn-go-back-n buffer=40KB routing=random",
    "workload=fixed:20KB load=0.9 transport=iwarp buffer=60KB",
    "workload=permutation:bytes=50KB+incast:senders=6,each=50KB transport=irn-no-bdp buffer=40KB",
    "workload=irn-heavy load=0.8 transport=irn-no-sack buffer=60KB link-event=rate:3=5G@20us",
    "workload=fixed:2KB load=0.9 transport=irn,cc=dctcp+roce buffer=100KB until=60us",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on cc=rocc buffer=300KB",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on buffer=60KB flow-control=credits",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on buffer=150KB hol=escape",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on buffer=150KB hol=lb,wait=3us",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on buffer=150KB hol=dlb,wait=3us",
    "workload=irn-heavy load=0.8 buffer=60KB switch=tail-drop policy-event=shared-lqd@20us,most-value-first@33us",
    "workload=permutation:bytes=400KB+incast:senders=6,each=300KB transport=roce pfc=on buffer=300KB \
     switch=input-queued.oq policy-event=shared-buffer,buffer=500KB@21us",
    "workload=irn-heavy load=0.8 switch=output-queued scheduling=lstf slack=fct:1us buffer=60KB routing=lowest",
    "workload=irn-heavy load=0.8 switch=output-queued scheduling=random buffer=60KB",
    "workload=irn-heavy load=0.8 switch=output-queued scheduling=srpt slack=srpt buffer=40KB",
];

#[test]
fn any_number_of_threads_finds_the_same() {
    for (seed, load) in (1..).zip(LOADS) {
        // On every other network, alternating.
        let networks = NETWORKS.iter().zip([2, 3, 5, 2]).skip(seed as usize % 2).step_by(2);
        for (network, threads) in networks {
            let load =
                if load.contains("irn,cc") { load.replace("fixed:2KB", "fixed:2KB+fixed:9KB") } else { load.into() };
            let options = format!("{network} {load} duration=40us sample=3us");
            let records = if seed % 4 < 2 { 3_000 } else { RECORDS };
            assert_eq!(compare(&options, seed, threads, records), None, "{options}");
        }
    }
}

#[test]
fn links_that_fail_and_return_change_nothing() {
    let failing = "topology=leaf-spine:leaves=2,spines=2,hosts=4 duration=200us sample=7us transport=iwarp";
    for (seed, threads) in [(1, 2), (2, 2), (3, 3)] {
        let options = format!("{failing} link-event=down:8-10@60us,up:8-10@140us,rate:3=5G@50us,rate:9>11=1G@60us");
        assert_eq!(compare(&options, seed, threads, 2_000), None);
    }
}

/// A leaf that is cut off permanently: RoCE with PFC has no timer.
#[test]
fn what_stands_still_is_left_to_one_thread() {
    let lost = "topology=leaf-spine:leaves=2,spines=1,hosts=2 workload=permutation:bytes=1MB transport=roce pfc=on";
    let options = format!("{lost} link-event=down:4-6@50us");
    let config = config(&options, 1);
    let outcome = Simulation::new(config).and_then(Simulation::finish).expect("an outcome");
    assert_eq!(outcome.ending, Ending::Stuck);
    assert_eq!(compare(&options, 1, 2, RECORDS), Some(STANDS_STILL));
}

#[test]
fn the_accounts_hold_whenever_it_is_ended() {
    let config = config("topology=fat-tree:k=4 duration=400us load=0.9 buffer=60KB sample=5us", 1);
    for events in [1, 3_000, 30_000] {
        let mut parallel = Parallel::new(config.clone(), 4).expect("a valid configuration");
        assert!(!parallel.run(events).expect("no error"), "over too early");
        let (now, (done, all)) = (parallel.now(), parallel.progress());
        assert!(done < all);
        let outcome = parallel.outcome().expect("accounts that add up");
        assert_eq!((outcome.ending, outcome.ended), (Ending::TimeUp, now));
    }
}

#[test]
fn what_follows_from_one_order_of_all_is_left_to_one_thread() {
    let tree = "topology=fat-tree:k=4 duration=30us";
    for (options, word) in [
        ("workload=closed-loop:connections=1,gap=5us,bytes=20KB", "closed loops"),
        ("qps=reused", "share"),
        ("verify=on", "bytes"),
        ("service=uc quantum=64", "unreliable"),
        ("topology=star:hosts=8", "switches"),
        ("topology=leaf-spine:leaves=2,spines=1,hosts=2,delay=0ns", "delay"),
    ] {
        let options = if options.starts_with("topology") {
            format!("{options} duration=90us")
        } else {
            format!("{tree} {options}")
        };
        let why = compare(&options, 1, 2, RECORDS).unwrap_or_else(|| panic!("{options}"));
        assert!(why.contains(word), "{options}: {why}");
    }
}

/// Random networks, loads and numbers of threads. `IRNIC_SCHEDULES=n` tries n of them, from `IRNIC_FIRST` on.
#[test]
fn whatever_the_network() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let (first, schedules) = (number("IRNIC_FIRST", 1), number("IRNIC_SCHEDULES", 12));
    let mut compared = 0;
    for seed in first..first + schedules {
        let mut state = seed as u32;
        let mut draw = |n: usize| {
            state = crate::network::mix(state.wrapping_add(0x9e37_79b9));
            state as usize % n
        };
        let load = LOADS[draw(LOADS.len())].replace("fixed:2KB", "fixed:2KB+fixed:9KB");
        let network = match draw(3) {
            0 => format!("topology=fat-tree:k={},rate={}G,delay={}ns", [4, 6][draw(2)], 10 + draw(90), 1 + draw(3_000)),
            1 => format!(
                "topology=leaf-spine:leaves={},spines={},hosts={},delay={}ns",
                2 + draw(4),
                1 + draw(4),
                2 + draw(4),
                100 + draw(20_000)
            ),
            _ => format!("topology=dumbbell:left={},right={},delay={}ns", 3 + draw(5), 3 + draw(5), 1 + draw(30_000)),
        };
        let sample = ["", " sample=1us", " sample=777ns"][draw(3)];
        let options = format!("{network} {load} duration={}us{sample}", 30 + draw(60));
        let (threads, records) = (2 + draw(6), [500, 20_000, RECORDS][draw(3)]);
        // Not every network has room for PFC's headroom.
        if valid(&options, seed).is_ok() {
            compare(&options, seed, threads, records);
            compared += 1;
        }
    }
    assert!(compared > schedules / 2, "{compared} of {schedules} networks make sense");
}
