//! `irnic perf` alone: go-back-N beside IRN over a network that loses packets.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::impair::{Impaired, Impairments};
use irnic_ports::mem;
use irnic_transports::qp::Counters;
use irnic_transports::time::US;
use irnic_transports::wire::Mtu;
use serde_json::json;

use super::PerfError;
use super::args::PerfArgs;
use super::carrier::Pair;
use super::clock::RunClock;
use super::local::{ADDRESSES, Job, counters};
use super::plan::Plan;
use super::progress::{Progress, bar};
use super::report::{Line, counter_map, write_json};
use crate::output::OutFile;

/// The network: each way this late, this fast, with room for all that may be in flight.
const NETWORK: &str = "delay 50us rate 4gbit limit 4096";
const MTU: Mtu = Mtu::B1024;
const SIZE: u32 = 64 << 10;
/// Messages outstanding: enough to fill the window.
const TX_DEPTH: u32 = 8;
/// All transports may have as many packets in flight, and follow the measured round trip with the same timer.
const WINDOW: u32 = 256;
const TRANSPORTS: [&str; 3] = ["roce", "irn-go-back-n", "irn"];
const LOSSES: [&str; 3] = ["0%", "0.1%", "1%"];
/// Time that passes in a round at the most, in ns: what the machine does besides is not the network's delay.
const LONGEST_STEP: u64 = 20 * US;
/// Seconds of each run.
const SECONDS: f64 = 1.5;
const LINE: &str = "----------------------------------------------------------------------------------------------";

/// What one transport did at one rate of loss.
struct Row {
    transport: &'static str,
    loss: &'static str,
    /// Gb/s of payload.
    goodput: f64,
    /// Of the same transport's without loss.
    relative: f64,
    client: Counters,
    server: Counters,
    messages: u64,
}

/// The plan of one run.
fn plan(transport: &str, seed: u64) -> Result<Plan, PerfError> {
    let transport = format!("{transport},window={WINDOW},cap={WINDOW}");
    let (depth, size, mtu) = (TX_DEPTH.to_string(), SIZE.to_string(), MTU.bytes().to_string());
    let (seconds, seed) = (SECONDS.to_string(), seed.to_string());
    PerfArgs::plan_of(&[
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
        &transport,
        "--report_gbits",
    ])
}

/// Runs the comparison.
pub fn main(args: &PerfArgs, json: Option<OutFile>, interrupted: &AtomicBool) -> Result<(), PerfError> {
    println!(
        "RDMA WRITE, {} KiB messages, every byte verified, between two software NICs in this process.",
        SIZE >> 10
    );
    println!(
        "Network: 50 us each way, 4 Gb/s, path MTU {}; packets lost at random, both ways; at most {WINDOW} in flight.",
        MTU.bytes()
    );
    println!("Time goes by the network's clock, which stands still while other processes have the core.");
    let total = (TRANSPORTS.len() * LOSSES.len()) as u64;
    let progress = bar(total, "");
    progress.enable_steady_tick(Duration::from_millis(250));
    let mut rows: Vec<Row> = Vec::new();
    let outcome = (|| -> Result<(), PerfError> {
        for transport in TRANSPORTS {
            for loss in LOSSES {
                progress.set_message(format!("{transport}, {loss} loss"));
                let row = run(transport, loss, args.seed(), interrupted)?;
                let lossless = rows.iter().find(|r| r.transport == transport).map_or(row.goodput, |r| r.goodput);
                rows.push(Row { relative: row.goodput / lossless, ..row });
                progress.inc(1);
            }
        }
        Ok(())
    })();
    progress.finish_and_clear();
    print(&rows);
    write_json(json, &document(&rows, args.seed()), outcome)
}

fn run(transport: &'static str, loss: &'static str, seed: u64, interrupted: &AtomicBool) -> Result<Row, PerfError> {
    let plan = plan(transport, seed)?;
    let impair: Impairments = format!("{NETWORK} loss {loss}").parse().map_err(PerfError::failed)?;
    let (a, b) = mem::pair();
    let nic = || Nic::new(NicConfig { max_qps: 0, ..NicConfig::default() });
    // Both directions at one end: what it sends, and what reaches it.
    let client = NicPort::new(nic(), Impaired::new(a, &impair, seed, 0), Icrc::Checked);
    let server = NicPort::new(nic(), Impaired::new(b, &Impairments::default(), seed, 1), Icrc::Checked);
    let mut carrier = Pair([client, server]);
    let clock = RunClock::without_stalls(LONGEST_STEP);
    let job = Job { plan: &plan, run: 0, size: SIZE, mtu: MTU, addresses: ADDRESSES, clock };
    let mut quiet = Progress::new(String::new(), Some(Duration::MAX));
    let (measured, outcome) = job.run(&mut carrier, interrupted, &mut quiet);
    outcome?;
    let [client, server] = counters(&mut carrier);
    let measured = measured.map(|[client, _]| client);
    let Some(Line::Bw(bw)) = measured.as_ref().map(Line::of) else {
        return Err(PerfError::failed("nothing was measured"));
    };
    let goodput = bw.average * f64::from(SIZE) * 8.0 / 1e9;
    Ok(Row { transport, loss, goodput, relative: 1.0, client, server, messages: bw.messages })
}

fn print(rows: &[Row]) {
    println!("{LINE}");
    println!(" transport        loss   #iterations   goodput[Gb/sec]   of its own at 0%   retransmitted   timeouts");
    for row in rows {
        println!(
            " {:<14} {:>6} {:>13} {:>17.2} {:>17.0}% {:>15} {:>10}",
            row.transport,
            row.loss,
            row.messages,
            row.goodput,
            row.relative * 100.0,
            row.client.retransmitted_pkts,
            row.client.local_ack_timeout_err
        );
    }
    println!("{LINE}");
    let at = |transport, loss| rows.iter().find(|r| r.transport == transport && r.loss == loss);
    if let (Some(roce), Some(irn)) = (at("roce", "1%"), at("irn", "1%")) {
        let again = |row: &Row| {
            let sent = row.client.sent_pkts.max(1);
            100.0 * row.client.retransmitted_pkts as f64 / sent as f64
        };
        println!(
            "At 1% loss IRN keeps {:.0}% of its goodput and RoCE's go-back-N {:.0}% ({:.2} against {:.2} Gb/s): IRN sent {:.1}% \
             of its packets\na second time, go-back-N {:.0}%, because it repeats all that followed a lost one.",
            irn.relative * 100.0,
            roce.relative * 100.0,
            irn.goodput,
            roce.goodput,
            again(irn),
            again(roce)
        );
    }
}

fn document(rows: &[Row], seed: u64) -> serde_json::Value {
    let results: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "transport": row.transport,
                "loss": row.loss,
                "MsgSize": SIZE,
                "n_iterations": row.messages,
                "BW_average": row.goodput,
                "relative": row.relative,
                "retransmitted_pkts": row.client.retransmitted_pkts,
                "timeouts": row.client.local_ack_timeout_err,
                "counters": counter_map(&row.client),
                "peer_counters": counter_map(&row.server),
            })
        })
        .collect();
    json!({
        "test_info": {
            "test": "comparison",
            "Network": NETWORK,
            "Mtu": MTU.bytes(),
            "TX_depth": TX_DEPTH,
            "Window": WINDOW,
            "Verification": "ON",
            "Seed": seed,
            "BW_unit": "Gb/sec",
        },
        "results": results,
    })
}
