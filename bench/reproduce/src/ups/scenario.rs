//! Scenarios of replays (§5.1.3), as experiments. docs/reproduction-ups.md lists what the text leaves open.

use irnic_fabric::experiment::Experiment;
use irnic_fabric::schedule::Detail;
use irnic_fabric::sim::{HeaderBytes, SimConfig};
use irnic_transports::qp::Service;

use super::network::{Network, PAPERS, PAYLOAD, Wire};
use super::schedulers::{Order, switches};

/// Scheduler of the original switches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Original {
    /// An order that requires nothing of the sender.
    Order(Order),
    /// An order by flow size, which senders must provide: shortest job first, entirely or in part.
    Sized(Order),
}

/// Scheduler of the replay.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Least slack time first.
    Lstf,
    /// Least slack time first, with preemption.
    PreemptiveLstf,
    /// Earliest deadline first, equivalent with static headers.
    Edf,
    /// Static priorities: earliest departure from the network first.
    Priorities,
    /// A vector of times, one per switch.
    Vector,
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub network: Network,
    /// Load of the core links, %.
    pub load: u32,
    pub original: Original,
    pub by: By,
}

impl Scenario {
    /// The default: random order, replayed by LSTF.
    pub fn new(network: Network, load: u32) -> Scenario {
        Scenario { network, load, original: Original::Order(Order::Random), by: By::Lstf }
    }

    /// Returns the original run with a seed, with flows that arrive for `duration` ns. For orders by size, the run that
    /// determines when packets enter, which is the same.
    pub fn config(&self, seed: u64, duration: u64) -> Result<SimConfig, String> {
        let mut experiment = Experiment::default();
        experiment.flows = Some(self.network.flows(self.load, Wire::OPEN, seed, duration)?);
        experiment.topology = self.network.topology(Wire::OPEN);
        experiment.routing = self.network.routing();
        experiment.service = Service::Uc;
        // A host is a single FIFO queue.
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
