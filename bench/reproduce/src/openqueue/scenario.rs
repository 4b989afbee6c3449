//! What is run (§2.5.3, §2.5.4), as networks of generators.

use irnic_fabric::generator::{Gap, Generator, Stream};
use irnic_fabric::network::{Network, NetworkConfig};
use irnic_fabric::switch::{PolicySwitch, SwitchConfig};
use irnic_fabric::topology::Topology;

const G: u64 = 1_000_000_000;
/// Bytes of a packet on the wire.
pub const WIRE: u32 = 1_500;
/// bit/s of every link.
pub const RATE: u64 = 10 * G;
/// ns of every link.
const DELAY: u64 = 1_000;
/// Streams of each source: clients.
const CLIENTS: u32 = 16;
/// Packets of a queue, or of all queues of a port together.
const ROOM: u64 = 512;

/// The algorithms of §2.5.4.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// First in, first out, tail drop.
    A,
    /// First in, first out, the least valuable is dropped.
    B,
    /// The most valuable first, the least valuable is dropped.
    C,
}

/// What is run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Two sources of packets of high and of low value share a link, which they offer so much of its rate, percent;
    /// so many queues.
    TwoSources(Algorithm, u32, u32),
    /// Both sources and one queue, first in, first out by a list or by a heap.
    Fifo {
        /// By a heap.
        heap: bool,
    },
    /// Three outputs, of which one is offered more than its rate, by a policy of irnic's.
    ThreeOutputs(&'static str),
}

/// First in, first out, where no list is made of it: the order has a key that only arithmetic makes.
const HEAP: &str = "
param buffer = 512KB;
q = Queue(buffer);
out = Port(100%, q);
q.procPrio(p1, p2) = 2 * p1.arrival < 2 * p2.arrival;
q.admPrio(p1, p2) = 2 * p1.arrival < 2 * p2.arrival;
";

impl Algorithm {
    /// The policy of irnic's.
    pub fn policy(self) -> &'static str {
        match self {
            Algorithm::A => "tail-drop",
            Algorithm::B => "least-value-drop",
            Algorithm::C => "most-value-first",
        }
    }
}

/// The policy of first in, first out by a heap.
pub fn heap() -> irnic_openqueue::Policy {
    HEAP.parse().expect("a policy that a test reads")
}

/// A network, and its sinks.
pub struct Built {
    pub network: Network<Generator>,
    pub sinks: Vec<u32>,
}

/// A stream of a source: a Poisson process of so many bit/s.
fn stream(dst: u32, priority: u8, rate: f64, until: u64) -> Stream {
    let gap = f64::from(WIRE) * 8e9 / rate;
    let mut stream = Stream::new(dst, WIRE, (until as f64 / gap * 2.0) as u64 + 100, Gap::Poisson(gap));
    stream.priority = priority;
    // What is worth more has less time.
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
            // What three outputs have together, or each of them a third.
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

    /// Builds the network, whose sources send until then, ns.
    pub fn build(self, seed: u64, until: u64) -> Result<Built, String> {
        let (sources, sinks) = match self {
            Scenario::ThreeOutputs(_) => (6, 3),
            _ => (2, 1),
        };
        let of_source = |source: u32| -> Vec<Stream> {
            let offered = |share: f64| RATE as f64 * share;
            match self {
                // The first source sends what is worth more.
                Scenario::TwoSources(_, _, load) => {
                    let priority = if source == 0 { 7 } else { 0 };
                    let rate = offered(f64::from(load) / 200.0) / f64::from(CLIENTS);
                    (0..CLIENTS).map(|_| stream(sources, priority, rate, until)).collect()
                }
                Scenario::Fifo { .. } => {
                    let rate = offered(0.49) / f64::from(CLIENTS);
                    (0..CLIENTS).map(|_| stream(sources, 0, rate, until)).collect()
                }
                // Of all sources alike; half of it is worth more. The first output has too much, the others not.
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
