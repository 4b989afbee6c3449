//! Scenarios (§2.5.3, §2.5.4), as networks of generators.

use irnic_fabric::generator::{Gap, Generator, Stream};
use irnic_fabric::network::{Network, NetworkConfig};
use irnic_fabric::switch::{PolicySwitch, SwitchConfig};
use irnic_fabric::topology::Topology;

const G: u64 = 1_000_000_000;
/// Length of a packet on the wire, bytes.
pub const WIRE: u32 = 1_500;
/// Rate of every link, bit/s.
pub const RATE: u64 = 10 * G;
/// Delay of every link, ns.
const DELAY: u64 = 1_000;
/// Number of streams of each source: clients.
const CLIENTS: u32 = 16;
/// Capacity of a queue, or of all queues of a port together, packets.
const ROOM: u64 = 512;

/// The algorithms of §2.5.4.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// First in, first out, with tail drop.
    A,
    /// First in, first out, dropping the least valuable.
    B,
    /// The most valuable first, dropping the least valuable.
    C,
}

/// A scenario.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Two sources of packets of high and of low value share a link, offering this percentage of its rate; this number
    /// of queues.
    TwoSources(Algorithm, u32, u32),
    /// Both sources and one FIFO queue, as a list or as a heap.
    Fifo {
        /// Whether it is a heap.
        heap: bool,
    },
    /// Three outputs, of which one is overloaded, with one of irnic's policies.
    ThreeOutputs(&'static str),
}

/// First in, first out, with a key that is computed, so that no list is used.
const HEAP: &str = "
param buffer = 512KB;
q = Queue(buffer);
out = Port(100%, q);
q.procPrio(p1, p2) = 2 * p1.arrival < 2 * p2.arrival;
q.admPrio(p1, p2) = 2 * p1.arrival < 2 * p2.arrival;
";

impl Algorithm {
    /// The name of the policy.
    pub fn policy(self) -> &'static str {
        match self {
            Algorithm::A => "tail-drop",
            Algorithm::B => "least-value-drop",
            Algorithm::C => "most-value-first",
        }
    }
}

/// The policy of a FIFO as a heap.
pub fn heap() -> irnic_openqueue::Policy {
    HEAP.parse().expect("a policy that a test reads")
}

/// A network, and its sinks.
pub struct Built {
    pub network: Network<Generator>,
    pub sinks: Vec<u32>,
}

/// A stream of a source: a Poisson process of `rate` bit/s.
fn stream(dst: u32, priority: u8, rate: f64, until: u64) -> Stream {
    let gap = f64::from(WIRE) * 8e9 / rate;
    let mut stream = Stream::new(dst, WIRE, (until as f64 / gap * 2.0) as u64 + 100, Gap::Poisson(gap));
    stream.priority = priority;
    // Packets of higher value have less time.
    stream.slack = if priority > 0 { 50_000 } else { 500_000 };
    stream
}

impl Scenario {
    /// The switch.
    fn switch(self) -> Result<PolicySwitch, String> {
        let bytes = ROOM * u64::from(WIRE);
        let named = |text: String| text.parse::<PolicySwitch>().map_err(|error| error.to_string());
        match self {
            Scenario::TwoSources(algorithm, k, _) => named(format!("{},buffer={bytes},k={k}", algorithm.policy())),
            Scenario::Fifo { heap: false } => named(format!("tail-drop,buffer={bytes}")),
            Scenario::Fifo { heap: true } => {
                let mut switch = PolicySwitch::new("heap", heap());
                switch.set("buffer", &bytes.to_string()).map_err(|error| error.to_string())?;
                Ok(switch)
            }
            // The three outputs together, or a third of that each.
            Scenario::ThreeOutputs(policy) => {
                let shared = policy.starts_with("shared-");
                let room = if shared { bytes } else { bytes / 3 };
                named(match policy {
                    "random-early-drop" => format!("{policy},buffer={room},least={},most={room}", room / 5),
                    _ => format!("{policy},buffer={room}"),
                })
            }
        }
    }

    /// Builds the network, whose sources send until `until`, ns.
    pub fn build(self, seed: u64, until: u64) -> Result<Built, String> {
        let (sources, sinks) = match self {
            Scenario::ThreeOutputs(_) => (6, 3),
            _ => (2, 1),
        };
        let of_source = |source: u32| -> Vec<Stream> {
            let offered = |share: f64| RATE as f64 * share;
            match self {
                // The first source sends packets of high value.
                Scenario::TwoSources(_, _, load) => {
                    let priority = if source == 0 { 7 } else { 0 };
                    let rate = offered(f64::from(load) / 200.0) / f64::from(CLIENTS);
                    (0..CLIENTS).map(|_| stream(sources, priority, rate, until)).collect()
                }
                Scenario::Fifo { .. } => {
                    let rate = offered(0.49) / f64::from(CLIENTS);
                    (0..CLIENTS).map(|_| stream(sources, 0, rate, until)).collect()
                }
                // All sources send the same; half of it is of high value. The first output is overloaded, the others
                // are not.
                Scenario::ThreeOutputs(_) => {
                    let each = |output: u32| if output == 0 { 1.3 } else { 0.95 };
                    let all = (0..3).flat_map(|output| [0, 7].map(|priority| (output, priority)));
                    let rate = |output| offered(each(output) / 12.0);
                    all.map(|(output, priority)| stream(sources + output, priority, rate(output), until)).collect()
                }
            }
        };
        let topology = Topology::star(sources + sinks, RATE, DELAY);
        let switch = self.switch()?.with_packets(WIRE, 2);
        let mut config = NetworkConfig::new(topology, SwitchConfig::Policy(switch));
        config.seed = seed;
        let generators = (0..sources + sinks).map(|host| {
            let streams = if host < sources { of_source(host) } else { Vec::new() };
            Generator::new(streams, seed.wrapping_mul(1_000).wrapping_add(host.into()))
        });
        let mut network = Network::new(config, generators.collect(), ()).map_err(|error| error.to_string())?;
        network.watch();
        Ok(Built { network, sinks: (sources..sources + sinks).collect() })
    }
}
