//! Eight servers send to a ninth at once, through a switch and with a congestion controller that irnic does not know.

mod controller;
mod trimming;

use controller::HalvingFactory;
use irnic_fabric::sim::{SimConfig, SimError, Simulation};
use irnic_fabric::switch::SwitchConfig;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use irnic_transports::config::TransportConfig;
use irnic_transports::congestion::CongestionConfig;

const SENDERS: u32 = 8;
const BYTES: u64 = 1_000_000;
const HALVING: HalvingFactory = HalvingFactory { initial: 16 };

fn main() -> Result<(), SimError> {
    let mut irn = TransportConfig::preset("irn").expect("a preset of this name");
    irn.congestion = CongestionConfig::Custom(&HALVING);
    let flows = (0..SENDERS).map(|src| Flow::new(src, SENDERS, BYTES, 0)).collect();
    let star = Topology::star(SENDERS + 1, 40_000_000_000, 1_000);
    let outcome =
        Simulation::new(SimConfig::new(star, flows, SwitchConfig::Custom(trimming::factory()), irn))?.finish()?;

    println!("{:>6} {:>10} {:>10} {:>14}", "flow", "FCT [us]", "slowdown", "retransmitted");
    for (n, (flow, record)) in outcome.flows.iter().zip(&outcome.records).enumerate() {
        let (Some(fct), Some(slowdown)) = (record.fct(flow), record.slowdown(flow)) else {
            println!("{n:>6} incomplete");
            continue;
        };
        println!("{n:>6} {:>10.1} {slowdown:>10.2} {:>14}", fct as f64 / 1e3, record.retransmitted);
    }
    let (sent, delivered) = (outcome.injected, outcome.delivered);
    let (trimmed, dropped) = (outcome.trimmed, outcome.dropped);
    println!("packets: {} sent, {} delivered, {} trimmed, {} dropped", sent.0, delivered.0, trimmed.0, dropped.0);
    println!("bytes: {} sent = {} delivered + {} trimmed + {} dropped", sent.1, delivered.1, trimmed.1, dropped.1);
    Ok(())
}
