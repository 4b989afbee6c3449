//! Percentiles as a table and as JSON.

use hdrhistogram::Histogram;
use irnic_report::origin::Origin;
use serde_json::{Map, Value, json};

use super::RttPlan;
use super::measure::Case;

/// Percentiles reported, with their names.
const PERCENTILES: [(f64, &str); 7] =
    [(1.0, "p1"), (25.0, "p25"), (50.0, "p50"), (75.0, "p75"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")];

fn port(plan: &RttPlan) -> &'static str {
    match (plan.udp, plan.kernel_stamps) {
        (true, true) => "udp, stamped by the kernel",
        (true, false) => "udp, stamped when asked for",
        (false, _) => "shm, stamped by the sender",
    }
}

/// Name of a case.
pub fn name(case: &Case) -> String {
    match case.load {
        0 => "idle".to_owned(),
        1 => "load of 1 thread".to_owned(),
        n => format!("load of {n} threads"),
    }
}

/// Prints the table, and how to get it again.
pub fn print(plan: &RttPlan, cases: &[Case], origin: &Origin) {
    println!("Round trips of {} segments of {} bytes, {} [us]", plan.iters, plan.size, port(plan));
    println!("NIC clock {}", plan.clock);
    if cases.iter().any(|case| !case.real_time) {
        println!("without real-time priority for the NICs' thread: what stalls it looks like the network's delay");
    }
    let heads: Vec<String> = PERCENTILES.iter().map(|(_, name)| format!("{name:>9}")).collect();
    println!("{:<20}{:<12}{}{:>9}", "", "", heads.concat(), "max");
    for case in cases {
        let title = name(case);
        for (row, (clock, times)) in case.clocks().into_iter().enumerate() {
            let us = |ns: u64| format!("{:>9.1}", ns as f64 / 1e3);
            let values: Vec<String> = PERCENTILES.iter().map(|(p, _)| us(at(times, *p))).collect();
            let title = if row == 0 { title.as_str() } else { "" };
            println!("{title:<20}{clock:<12}{}{}", values.concat(), us(times.max()));
        }
        println!("{:<20}fitted line: {:+.3} ppm", "", case.drift_ppm);
    }
    println!("{origin}");
}

fn at(times: &Histogram<u64>, percentile: f64) -> u64 {
    times.value_at_percentile(percentile).min(times.max())
}

/// Returns everything as JSON.
pub fn json(plan: &RttPlan, cases: &[Case], Origin { command, irnic }: &Origin) -> Value {
    let one = |case: &Case| {
        let mut map = Map::from_iter([
            ("load_threads".to_owned(), json!(case.load)),
            ("real_time_priority".to_owned(), json!(case.real_time)),
            ("drift_ppm".to_owned(), json!(case.drift_ppm)),
        ]);
        for (clock, times) in case.clocks() {
            let mut values = Map::from_iter([
                ("samples".to_owned(), json!(times.len())),
                ("min".to_owned(), json!(times.min())),
                ("max".to_owned(), json!(times.max())),
                ("mean".to_owned(), json!(times.mean())),
                ("stdev".to_owned(), json!(times.stdev())),
            ]);
            values.extend(PERCENTILES.map(|(p, name)| (name.to_owned(), json!(at(times, p)))));
            map.insert(format!("{}_ns", clock.to_lowercase().replace(' ', "_")), Value::Object(values));
        }
        Value::Object(map)
    };
    json!({
        "irnic": irnic,
        "command": command,
        "port": if plan.udp { "udp" } else { "shm" },
        "timestamps": match (plan.udp, plan.kernel_stamps) {
            (true, true) => "kernel",
            (true, false) => "poll",
            (false, _) => "sender",
        },
        "look_every_ns": plan.poll_interval,
        "size": plan.size,
        "clock": plan.clock.to_string(),
        "cases": cases.iter().map(one).collect::<Vec<_>>(),
    })
}
