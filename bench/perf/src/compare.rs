//! `irnic perf` without a test: compares go-back-N with IRN over a lossy network.

use std::sync::atomic::AtomicBool;

use irnic_ports::impair::Percent;
use irnic_transports::time::US;
use irnic_transports::wire::Mtu;
use serde_json::json;

use crate::args::PerfArgs;
use crate::document::Files;
use crate::error::PerfError;
use crate::figures::Unit;
use crate::local;
use crate::results::Results;
use crate::sweep::Sweep;

/// The network: delay and rate of each direction, with room for everything in flight.
const NETWORK: &str = "delay 50us rate 4gbit limit 4096";
const MTU: Mtu = Mtu::B1024;
const SIZE: u32 = 64 << 10;
/// Number of outstanding messages: enough to fill the window.
const TX_DEPTH: u32 = 32;
/// All transports may have this many packets in flight, counted from the first that is not acknowledged: enough to go
/// on while it is sent again. They use the same timer, based on the measured round trip.
const WINDOW: u32 = 1024;
const TRANSPORTS: [&str; 3] = ["roce", "irn-go-back-n", "irn"];
const LOSSES: &str = "0,0.1,1";
/// Maximum step of the clock per round, ns: disturbances of the machine do not count as network delay.
const LONGEST_STEP: u64 = 20 * US;
/// Duration of each run, s.
const SECONDS: f64 = 1.5;

/// The runs of the comparison.
fn sweep(args: &PerfArgs) -> Result<Sweep, PerfError> {
    let transports = TRANSPORTS.map(|transport| format!("{transport},window={WINDOW},cap={WINDOW}")).join(",");
    let (depth, size, mtu) = (TX_DEPTH.to_string(), SIZE.to_string(), MTU.bytes().to_string());
    let (seconds, seed, repeat) = (SECONDS.to_string(), args.seed.to_string(), args.repeat.to_string());
    let mut sweep = PerfArgs::sweep_of(&[
        "write-bw",
        "-s",
        &size,
        "-m",
        &mtu,
        "-t",
        &depth,
        "-Q",
        "1",
        "-D",
        &seconds,
        "--seed",
        &seed,
        "--transport",
        &transports,
        "--impair",
        NETWORK,
        "--loss",
        LOSSES,
        "--repeat",
        &repeat,
        "--report_gbits",
    ])?;
    sweep.plans.iter_mut().for_each(|plan| plan.longest_step = LONGEST_STEP);
    Ok(sweep)
}

/// Empty results for a comparison.
fn results(sweep: &Sweep) -> Results<'_> {
    let mut results = Results::new(sweep);
    for (name, value) in [("test", json!("comparison")), ("Network", json!(NETWORK)), ("Window", json!(WINDOW))] {
        results.test_info.insert(name.into(), value);
    }
    results
}

/// Runs the comparison.
pub fn main(args: &PerfArgs, files: Files, interrupted: &AtomicBool) -> Result<(), PerfError> {
    println!(
        "RDMA WRITE, {} KiB messages, every byte verified, between two software NICs in this process.",
        SIZE >> 10
    );
    println!(
        "Network: 50 us each way, 4 Gb/s, path MTU {}; packets lost at random, both ways; at most {WINDOW} in flight.",
        MTU.bytes()
    );
    println!("Time goes by the network's clock, which stands still while other processes have the core.");
    let sweep = sweep(args)?;
    let mut results = results(&sweep);
    let outcome = local::main(&sweep, interrupted, &mut results);
    results.finish();
    conclude(&results);
    files.write(&mut results, outcome)
}

/// Prints the conclusion.
fn conclude(results: &Results<'_>) {
    let of = |transport: &str| {
        let one = Percent::from_share(0.01);
        let is_it = |plan: &super::plan::Plan| plan.label == transport && plan.loss == Some(one);
        let case = results.sweep.plans.iter().position(is_it)?;
        let goodput = results.main_number(case, Unit::Gigabits)?.median;
        let again = results.spread(case, |ran| 100.0 * ran.retransmitted_share())?;
        Some((results.relative(case)? * 100.0, goodput, again.median))
    };
    if let (Some(roce), Some(irn)) = (of("roce"), of("irn")) {
        println!(
            "At 1% loss IRN keeps {:.0}% of its goodput and RoCE's go-back-N {:.0}% ({:.2} against {:.2} Gb/s): IRN sent {:.1}% \
             of its packets\na second time, go-back-N {:.0}%, because it repeats all that followed a lost one.",
            irn.0, roce.0, irn.1, roce.1, irn.2, roce.2
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::document::document;
    use crate::pictures;
    use crate::plan::Length;

    #[test]
    fn every_transport_meets_every_loss_and_is_drawn() {
        let mut sweep = sweep(&PerfArgs::of(&["--repeat", "2", "--seed", "5"]).expect("arguments")).expect("runs");
        let short = Length::Time { duration: Duration::from_millis(20), margin: Duration::ZERO };
        sweep.plans.iter_mut().for_each(|plan| plan.length = short);
        let mut results = results(&sweep);
        local::main(&sweep, &AtomicBool::new(false), &mut results).expect("it runs");
        results.finish();
        conclude(&results);
        let json = document(&results);
        for (name, value) in [("test", json!("comparison")), ("BW_unit", json!("Gb/sec")), ("Seed", json!(5))] {
            assert_eq!(json["test_info"][name], value);
        }
        assert_eq!((&json["test_info"]["Mtu"], &json["test_info"]["TX_depth"]), (&json!(1024), &json!(32)));
        let list = json["results"].as_array().expect("a list");
        let of = |transport: &str, loss: &str| {
            list.iter().find(|r| r["transport"] == transport && r["loss"] == loss).expect("a result")
        };
        assert_eq!((list.len(), &of("roce", "0%")["relative"]), (9, &json!(1.0)));
        for name in ["MsgSize", "n_iterations", "BW_average", "relative", "retransmitted_pkts", "timeouts"] {
            assert!(of("irn-go-back-n", "0.1%")[name].is_number(), "{name}: {json}");
        }
        assert!(of("irn", "1%")["retransmitted_pkts"].as_u64() > Some(0), "{json}");
        let svg = pictures::svg(&results);
        assert_eq!(svg.matches("<polyline").count(), 6, "goodput, and packets sent again: {svg}");
    }
}
