//! Schedules send the same bytes as before: `fixtures/golden/schedules.txt` has a line for each seed.
//!
//! Lines change only on purpose. `GOLDEN=write` rewrites the file.

use std::fmt::Write;
use std::path::Path;

use crate::{model, uc, ud};

/// Seeds of each service.
const SEEDS: u64 = 60;

#[test]
fn schedules_send_what_they_sent_before() {
    let mut now =
        String::from("# service, seed, steps, virtual time in ns, CRC-32 of all frames with their senders and times\n");
    for seed in 1..=SEEDS {
        let rc = model::run(seed, false);
        let uc = uc::run(seed, false);
        let ud = ud::run(seed, false);
        for (service, steps, time, crc) in [
            ("RC", rc.steps, rc.virtual_ns, rc.crc),
            ("UC", uc.steps, uc.virtual_ns, uc.crc),
            ("UD", ud.steps, ud.virtual_ns, ud.crc),
        ] {
            writeln!(now, "{service} {seed} {steps} {time} {crc:08x}").expect("a string takes everything");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden/schedules.txt");
    if irnic_testkit::golden::is_written() {
        std::fs::write(&path, &now).expect("schedules.txt");
    }
    let before = std::fs::read_to_string(&path).expect("schedules.txt");
    let changed: Vec<_> = before.lines().zip(now.lines()).filter(|(before, now)| before != now).collect();
    assert!(changed.is_empty() && before.len() == now.len(), "before and now: {changed:#?}");
}
