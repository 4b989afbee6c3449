//! What is described of each key agrees with its parser.

use super::*;
use crate::experiment::{Experiment, Grid, TextError, Written};

/// The switches of the cases that a key is tried in: some go with one kind only, or with PFC, which some kinds have.
fn switches() -> impl Iterator<Item = [(&'static str, &'static str); 2]> {
    let pfc = |kind| if ["input-queued", "shared-buffer"].contains(&kind) { "on" } else { "off" };
    let kinds = find("switch").expect("a key").completions();
    kinds.into_iter().map(move |kind| [("switch", kind), ("pfc", pfc(kind))])
}

/// A small network with other values.
fn experiment(values: &[(&'static str, &str)]) -> Result<Experiment, TextError> {
    let small = [("topology", "star:hosts=4"), ("workload", "permutation:bytes=1MB")];
    let all = small.iter().chain(values).map(|(key, text)| (*key, vec![Written::flag(key, text)]));
    Grid { common: all.collect(), runs: Vec::new() }.cases().expect("a case").remove(0).experiment()
}

#[test]
fn grids_have_an_order_of_all_keys() {
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    let described = CATEGORIES.iter().flat_map(|category| category.keys).map(Key::name);
    assert_eq!(sorted(ORDER.to_vec()), sorted(described.collect()));
    assert!(KEYS.iter().map(|key| key.name()).eq(ORDER));
}

#[test]
fn parsers_accept_what_is_completed() {
    // What may follow words that values begin with.
    let begun = [
        ("ecn", "step:", "100KB"),
        ("ecn", "red:", "100KB,400KB,0.2"),
        ("ecn", "pi:", "100KB,0.005,1ms"),
        ("headers", "fixed:", "62"),
    ];
    let completed = KEYS.iter().flat_map(|key| key.completions().into_iter().map(|word| (key.name(), word)));
    let mut ends = 0;
    for (key, word) in completed {
        let end = begun.iter().find(|(of, begin, _)| (*of, *begin) == (key, word)).map(|(.., end)| *end);
        assert_eq!(end.is_some(), word.ends_with(':'), "{key}: {word}");
        ends += usize::from(end.is_some());
        let text = format!("{word}{}", end.unwrap_or_default());
        let tried: Vec<_> = switches().map(|at| experiment(&[&at[..], &[(key, &text)]].concat())).collect();
        assert!(tried.iter().any(Result::is_ok), "{key} {text}: {:?}", tried[0]);
    }
    assert_eq!(ends, begun.len());
}

#[test]
fn defaults_are_what_the_help_says() {
    let in_words = [
        "buffer",
        "ecn",
        "queue-limit",
        "pfc-threshold",
        "xon",
        "pfc-headroom",
        "colour-threshold",
        "header-queue",
        "rocc",
        "cc",
        "cap",
        "duration",
        "until",
        "sample",
    ];
    for (key, default) in KEYS.iter().filter_map(|key| Some((key.name(), key.unset?))) {
        let config = |experiment: Experiment| format!("{:?}", experiment.config(1).expect("a configuration"));
        let mut compared = 0;
        for at in switches() {
            let Ok(given) = experiment(&[&at[..], &[(key, default)]].concat()) else { continue };
            let unset = experiment(&at).expect("an experiment");
            assert_eq!(config(given), config(unset), "{key} {default}");
            compared += 1;
        }
        assert_eq!(compared == 0, in_words.contains(&key), "{key} {default}");
    }
}

#[test]
fn help_ends_with_the_default() {
    for (key, end) in [
        ("load", "a share of the hosts' rate, unless their part of the workload has its own [default: 0.7]"),
        ("alpha", "limit each queue to X times the free buffer [default: 1]"),
        ("scheduling", "srpt, lstf or edf [default: fifo]"),
        ("verify", "same results, slower"),
        ("switch-at", "May be repeated"),
    ] {
        let help = find(key).expect("a key").help();
        assert!(help.ends_with(end), "{help}");
    }
}
