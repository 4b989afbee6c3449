//! What is run (§5.1.3), as experiments. docs/reproduction-ups.md tells what the text leaves open.

use irnic_fabric::experiment::Experiment;
use irnic_fabric::schedule::Detail;
use irnic_fabric::sim::{HeaderBytes, SimConfig};
use irnic_transports::qp::Service;

use super::network::{Network, PAPERS, PAYLOAD, Wire};
use super::schedulers::{Order, switches};

/// What the original switches do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// An order that needs nothing of the sender.
    Order(Order),
    /// An order that goes by the sizes of flows, which senders have to say: shortest job first, in all or in part.
    Sized(Order),
}

/// What replays it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Least slack time first.
    Lstf,
    /// Least slack time first, by switches that interrupt packets.
    PreemptiveLstf,
    /// Earliest deadline first, which is the same with static headers.
    Edf,
    /// Static priorities: earliest departure from the network first.
    Priorities,
    /// A vector of times, one for each switch.
    Vector,
}

/// What is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    /// Per cent of the core links.
    pub load: u32,
    pub original: Original,
    pub by: By,
}

impl Scenario {
    /// The default: random order, replayed by LSTF.
    pub fn new(network: Network, load: u32) -> Scenario {
        Scenario { network, load, original: Original::Order(Order::Random), by: By::Lstf }
    }

    /// Returns the original run with a seed, of flows that arrive for so many ns. Of orders that go by sizes, the run
    /// that says when packets enter, which is the same.
    pub fn config(&self, seed: u64, duration: u64) -> Result<SimConfig, String> {
        let mut experiment = Experiment::default();
        experiment.flows = Some(self.network.flows(self.load, Wire::OPEN, seed, duration)?);
        experiment.topology = self.network.topology(Wire::OPEN);
        experiment.routing = self.network.routing();
        experiment.service = Service::Uc;
        // A host is one queue, first come, first served.
        experiment.quantum = 65_536;
        experiment.headers = HeaderBytes::Fixed(PAPERS - PAYLOAD);
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.switch = switches(match self.original {
            Original::Order(order) => order,
            Original::Sized(_) => Order::Fifo,
        });
        config.schedule = Some(if self.by == By::Vector { Detail::Hops } else { Detail::Ends });
        Ok(config)
    }
}
