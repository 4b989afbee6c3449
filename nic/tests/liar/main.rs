//! A lying peer. An attacker sends packets in the name of a connection's peer: well-formed, with a right ICRC, from the
//! right address, and with every other field chosen to do harm. The NIC may refuse, or break the connection.
//!
//! `IRNIC_LIARS=n` runs n seeds (1,000 by default in release, 60 in debug builds), `IRNIC_SEED=s` only seed s.

#[path = "../common/mod.rs"]
mod common;
mod forge;
mod victim;

use common::seeds::{env, sweep};

#[test]
fn a_lying_peer_gets_nothing_but_a_broken_connection() {
    if let Some(seed) = env("IRNIC_SEED") {
        println!("seed {seed}: {:?}", victim::run(seed));
        return;
    }
    let count = env("IRNIC_LIARS").unwrap_or(if cfg!(debug_assertions) { 150 } else { 1_000 });
    let total = sweep("liar", 1, count, victim::run, victim::Outcome::add);
    println!("{count} liars: {total:?}");
    // Lies that are all detected at once prove nothing: some must look true.
    for (what, n) in [
        ("forged packets carried out", total.accepted),
        ("connections that survived", total.survived),
        ("connections that broke", total.broken),
        ("bytes written where that is allowed", total.written),
    ] {
        assert!(n > 0, "no {what}");
    }
}

#[test]
fn packets_from_another_address_have_no_effect() {
    for seed in 1..=if cfg!(debug_assertions) { 20 } else { 200 } {
        victim::strangers(seed);
    }
}
