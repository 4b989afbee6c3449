//! Seeded schedules: random operations over random transports on a random network, every byte and completion checked.
//!
//! `IRNIC_SCHEDULES=n` runs n of each kind (by default 20,000 of RC and 10,000 of the others in release, 400 in debug
//! builds), `IRNIC_SEED=s` only the one with seed s, `IRNIC_FIRST=s` begins at s.

mod choices;
#[path = "../common/mod.rs"]
mod common;
mod fast_path;
mod golden;
mod model;
mod stalls;
mod uc;
mod ud;
mod unreliable;
mod xrc;

use common::seeds::{env, sweep};
use unreliable::Outcome;

/// Returns the number of schedules to run: from the environment, or `usual`; few in debug builds.
fn how_many(usual: u64) -> u64 {
    env("IRNIC_SCHEDULES").unwrap_or(if cfg!(debug_assertions) { 400 } else { usual })
}

/// Runs schedules of a reliable service, and checks that they exercise the intended features.
fn sweep_reliable(name: &str, usual: u64, run: fn(u64, bool) -> model::Outcome) {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("{name} seed {seed}: {:?}", run(seed, true));
        return;
    }
    let count = how_many(usual);
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| run(seed, false), model::Outcome::add);
    println!("{count} {name} schedules: {total:?}");
    // A harness that exercises nothing proves nothing.
    for (what, n) in [
        ("retransmissions", total.retransmitted),
        ("out-of-order placements", total.placed_ooo),
        ("RNR NAKs", total.rnr),
        ("upgrades to IRN", total.upgrades),
        ("wrong ICRCs", total.bad_icrc),
        ("duplicates", total.duplicates),
        ("implied NAKs", total.implied),
        ("marks of congestion", total.marks),
        ("congestion notifications", total.cnps),
    ] {
        assert!(n > 0, "no {what} in {count} schedules");
    }
}

#[test]
fn every_work_request_completes_once_in_order_and_memory_is_right() {
    sweep_reliable("RC", 20_000, model::run);
}

#[test]
fn atomic_writes_happen_once_in_their_turn_and_flushes_are_answered_after_what_they_flush() {
    sweep_reliable("ATOMIC WRITE and FLUSH", 10_000, model::run_newer);
}

#[test]
fn pulled_streams_deliver_all_whatever_switches_trim_and_send_back() {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("NDP seed {seed}: {:?}", model::run_pulled(seed, true));
        return;
    }
    let count = how_many(10_000);
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| model::run_pulled(seed, false), model::Outcome::add);
    println!("{count} NDP schedules: {total:?}");
    for n in [total.retransmitted, total.placed_ooo, total.rnr, total.bad_icrc, total.duplicates] {
        assert!(n > 0, "{total:?}");
    }
}

#[test]
fn marked_packets_are_delivered_whatever_becomes_of_the_red_ones() {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("TLT seed {seed}: {:?}", model::run_marked(seed, true));
        return;
    }
    let count = how_many(10_000);
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| model::run_marked(seed, false), model::Outcome::add);
    println!("{count} TLT schedules: {total:?}");
    for n in [total.retransmitted, total.placed_ooo, total.rnr, total.bad_icrc, total.duplicates, total.probes] {
        assert!(n > 0, "{total:?}");
    }
}

#[test]
fn what_went_early_at_low_priority_changes_nothing_of_what_is_delivered() {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("RC3 seed {seed}: {:?}", model::run_low(seed, true));
        return;
    }
    let count = how_many(10_000);
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| model::run_low(seed, false), model::Outcome::add);
    println!("{count} RC3 schedules: {total:?}");
    for n in [total.retransmitted, total.placed_ooo, total.rnr, total.bad_icrc, total.duplicates, total.low] {
        assert!(n > 0, "{total:?}");
    }
}

#[test]
fn every_message_of_xrc_reaches_the_queue_that_it_names_once() {
    sweep_reliable("XRC", 10_000, xrc::run);
}

/// Runs schedules of an unreliable service.
fn sweep_of(name: &str, run: fn(u64, bool) -> Outcome) -> Option<Outcome> {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("{name} seed {seed}: {:?}", run(seed, true));
        return None;
    }
    let count = how_many(10_000);
    let first = env("IRNIC_FIRST").unwrap_or(1);
    let total = sweep("schedules", first, count, |seed| run(seed, false), Outcome::add);
    println!("{count} {name} schedules: {total:?}");
    Some(total)
}

#[test]
fn an_unreliable_connection_delivers_a_subsequence_and_completes_every_send() {
    let Some(o) = sweep_of("UC", uc::run) else { return };
    let rest = o.messages - o.delivered;
    for n in [o.delivered, rest, o.out_of_order, o.late, o.dropped, o.no_buffer, o.bad_icrc] {
        assert!(n > 0, "{o:?}");
    }
}

#[test]
fn datagrams_come_whole_to_whom_they_were_sent_and_every_send_completes() {
    let Some(o) = sweep_of("UD", ud::run) else { return };
    for n in [o.delivered, o.dropped, o.no_buffer, o.bad_qkey, o.bad_icrc] {
        assert!(n > 0, "{o:?}");
    }
}

#[test]
fn processes_without_a_core_cost_no_connection_and_hardly_a_packet() {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("seed {seed}: {:?}", stalls::run(seed, true));
        return;
    }
    let first = env("IRNIC_FIRST").unwrap_or(1);
    // They take long.
    let count = how_many(2_000).div_ceil(5);
    let total = sweep("schedules", first, count, |seed| stalls::run(seed, false), stalls::Outcome::add);
    println!("{count} schedules with stalls: {total:?}");
    assert!(total.stalls > 0 && total.probes > 0 && total.timeouts > 0, "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [3, 14, 159, 2653] {
        assert_eq!(model::run(seed, false), model::run(seed, false), "seed {seed}");
        assert_eq!(uc::run(seed, false), uc::run(seed, false), "UC seed {seed}");
        assert_eq!(ud::run(seed, false), ud::run(seed, false), "UD seed {seed}");
        assert_eq!(xrc::run(seed, false), xrc::run(seed, false), "XRC seed {seed}");
    }
}
