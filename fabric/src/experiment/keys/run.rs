//! Keys of the run: its end, and what is observed.

use irnic_units::keys::words;

use super::key::Key;
use super::parse::positive_time;

pub(super) static KEYS: [Key; 4] = [
    Key::new("until", "TIME", "Stop at this simulated time", |e, v| positive_time(v).map(|ns| e.until = Some(ns)))
        .unset("when all flows are complete")
        .sim_only(),
    Key::new(
        "deadlock",
        "end|continue",
        "On a deadlock, end the run or continue until no events remain or --until",
        |e, v| v.word(&DEADLOCK).map(|outlives| e.outlive_deadlocks = outlives),
    )
    .unset("end")
    .words(|| words(&DEADLOCK))
    .sim_only(),
    Key::new("sample", "TIME", "Sampling interval of queues and rates", |e, v| {
        positive_time(v).map(|ns| e.sample = Some(ns))
    })
    .unset("10us with --series or --html, else never")
    .sim_only(),
    Key::flag(
        "verify",
        "Cross-check: send real frames with real payload and verify all of it; same results, slower",
        |e, v| v.switch().map(|on| e.verify = on),
    )
    .default("off")
    .sim_only(),
];

/// Whether runs outlive deadlocks.
const DEADLOCK: [(&str, bool); 2] = [("end", false), ("continue", true)];
