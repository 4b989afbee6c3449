//! Threads find what one thread finds, to the last digit.

use super::*;
use crate::experiment::{Grid, Written};

/// What the options say, each as `key=value`, with a seed.
fn config(options: &str, seed: u64) -> SimConfig {
    let keys = || crate::experiment::KEYS.iter().map(|key| key.name());
    let mut common = crate::experiment::Values::default();
    for option in options.split_whitespace() {
        let (key, text) = option.split_once('=').expect("key=value");
        let key = keys().find(|name| *name == key).expect("a key");
        common.insert(key, vec![Written::flag(key, text)]);
    }
    let case = Grid { common, runs: Vec::new() }.cases().expect("a case").remove(0);
    let experiment = case.experiment().unwrap_or_else(|e| panic!("{e}"));
    experiment.config(seed).unwrap_or_else(|e| panic!("{}", case.error(e)))
}

/// Everything that is known of an outcome.
fn written(outcome: Result<Outcome, SimError>) -> String {
    format!("{outcome:?}")
}

/// Compares so many threads with one. Returns why one thread ran it, if one did.
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

const LOADS: [&str; 12] = [
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
];

#[test]
fn any_number_of_threads_finds_the_same() {
    for (seed, load) in (1..).zip(LOADS) {
        for (network, threads) in NETWORKS.iter().zip([2, 3, 7, 2]) {
            let load = if load.contains("irn,cc") { load.replace("fixed:2KB", "fixed:2KB+fixed:9KB") } else { load.into() };
            let options = format!("{network} {load} duration=60us sample=3us");
            let records = if seed % 2 == 0 { 3_000 } else { RECORDS };
            assert_eq!(compare(&options, seed, threads, records), None, "{options}");
        }
    }
}
