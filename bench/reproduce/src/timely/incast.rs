//! The incasts of TIMELY's §2.2, §4.4 and §6.1 as simulations. What the paper leaves open is chosen here, once for all
//! cells, with the reasons.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers, Transport};
use irnic_fabric::sim::{HeaderBytes, Observe, Quit, SimConfig};
use irnic_fabric::switch::Ecn;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::Flow;
use irnic_transports::config::{Timer, TransportConfig};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::wire::Mtu;

use crate::random;

/// Number of client machines (§6.1).
const CLIENTS: u32 = 10;
/// Connections of each client, unless varied by a figure (§6.1).
const CONNECTIONS: u32 = 4;
/// Rate of a link, bit/s: "all links are 10 Gbps unless mentioned otherwise" (§6).
pub const LINK_RATE: u64 = 10_000_000_000;
/// The server's "2x10G link which is the bottleneck" (§6.1). Their use by connections is not specified; here each has
/// half of them. A burst takes twice as long as it would at 20 Gbit/s.
const SERVER_LINKS: u32 = 2;
/// Propagation delay of a link, ns. "Propagation may range from 10-100 µs" (§3.1); the smallest average round trip in
/// Table 1 is 19 µs, of FAST* at 7.5 of 20 Gbit/s: the round-trip propagation is 16 µs here, and 17 with store and
/// forward.
const DELAY: u64 = 4_000;
/// Payload of a packet, bytes, and its overhead on the wire. The paper's 19.5 Gbit/s are what packets of 1500 bytes
/// leave of 20 with 38 bytes of Ethernet around each, gap and preamble included; these leave the same share.
pub const MTU: Mtu = Mtu::B1024;
pub const AROUND: u32 = 26;
/// Buffer of the switch, bytes, and the multiple of its free bytes that an input may hold before it is paused. That of
/// the testbed is not specified; chosen to match the average round trip with PFC alone, 658 µs, which is 1.6 MB of
/// queue, 160 KB for each of ten clients.
pub const BUFFER: u64 = 12_000_000;
pub const PFC_ALPHA: f64 = 1.0 / 64.0;
/// Marking threshold of DCTCP, bytes (§6.1).
const DCTCP_K: u64 = 80_000;
/// Connections begin at different times within this period, ns: the paper does not synchronize them.
const STAGGER: u64 = 1_000_000;
/// Parameters of TIMELY that the paper does not give: the weight of a new difference in the gradient's average, chosen
/// among powers of two to match the average round trip in Table 1, 61 µs (the authors' code recommends 0.02); and the
/// initial rate of connections, whose effect is gone in ten minutes: at line rate, 100 Gbit/s of ten clients, PFC alone
/// would limit them until they have slowed down.
const OPEN: &str = "gain=1/32,initial=0.01";
/// Interval of rates over time, ns.
pub const INTERVAL: u64 = 1_000_000;

/// Sampling interval of the queue in Figure 2, ns: "We sample the switch queue each microsecond" (§2.2).
pub const SAMPLE_QUEUE: u64 = 1_000;

/// Links and senders.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// §6.1: clients, and a server with two links.
    TwoLinks,
    /// Figure 2: a server with one link.
    OneLink,
    /// Figure 4: two switches; clients at one send to a server at the other. With `secondary`, as many hosts next to
    /// the server send to one next to the clients: the acknowledgements of the first incast wait in the queue of the
    /// second.
    Crossing { secondary: bool },
}

/// An incast of the paper, with the parameters that it varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Incast {
    /// Congestion control, in the syntax of `--cc`.
    pub cc: String,
    /// Whether there is priority flow control.
    pub pfc: bool,
    /// Whether there is marking, by DCTCP's rule.
    pub marking: bool,
    /// Connections of each client.
    pub connections: u32,
    /// Length of a segment, KiB.
    pub segment: u32,
    /// Whether all but one connection of each client end half-way (Figure 18).
    pub quit: bool,
    /// The network.
    pub network: Network,
    /// Whether acknowledgements have priority over everything else.
    pub ack_first: bool,
    /// Whether senders' rounds are observed (Figure 3).
    pub rounds: bool,
}

/// Measured time of a run, ns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// Warm-up, not measured.
    pub warm_up: u64,
    /// Duration of the measurement, after which the run ends.
    pub measured: u64,
}

impl Incast {
    /// TIMELY with the parameters of §6 and additional ones.
    pub fn timely(segment: u32, more: &str) -> Incast {
        let more = if more.is_empty() { String::new() } else { format!(",{more}") };
        Incast {
            cc: format!("timely,segment={segment}K,{OPEN}{more}"),
            pfc: true,
            marking: false,
            connections: CONNECTIONS,
            segment,
            quit: false,
            network: Network::TwoLinks,
            ack_first: false,
            rounds: false,
        }
    }

    /// FAST*, with its α (§6.1). The paper lists it without PFC, which it does not need.
    pub fn fast(alpha: &str) -> Incast {
        Incast { cc: format!("fast,segment=16K,initial=0.01,alpha={alpha}"), ..Incast::timely(16, "") }
    }

    /// OS-bypass messaging over a fabric with PFC, and nothing else.
    pub fn pfc() -> Incast {
        Incast { cc: "none".into(), ..Incast::timely(16, "") }
    }

    /// DCTCP over a fabric without PFC.
    pub fn dctcp() -> Incast {
        Incast { cc: "dctcp".into(), pfc: false, marking: true, ..Incast::timely(16, "") }
    }

    /// Returns the run with a seed.
    pub fn config(&self, time: Time, seed: u64) -> Result<SimConfig, String> {
        let end = time.warm_up + time.measured;
        let packets = self.segment * 1024 / MTU.bytes() as u32;
        let mut shared = SharedBuffers::default();
        shared.pfc_alpha = PFC_ALPHA;
        let mut experiment = Experiment::default();
        experiment.topology = match self.network {
            Network::TwoLinks => Topology::star(CLIENTS + SERVER_LINKS, LINK_RATE, DELAY),
            Network::OneLink => Topology::star(CLIENTS + 1, LINK_RATE, DELAY),
            Network::Crossing { .. } => Topology::dumbbell(CLIENTS + 1, CLIENTS + 1, LINK_RATE, LINK_RATE, DELAY),
        };
        experiment.flows = Some(self.flows(end, seed));
        experiment.transports = vec![self.transport()?];
        experiment.buffers = Buffers::Shared(shared);
        experiment.buffer = Some(BUFFER);
        experiment.pfc = self.pfc;
        experiment.ecn = Some(if self.marking { Ecn::Step { k: DCTCP_K } } else { Ecn::Off });
        experiment.mtu = MTU;
        experiment.headers = HeaderBytes::Fixed(AROUND);
        // "The NIC sends a segment as a burst of packets at the link line rate" (§5).
        experiment.quantum = packets;
        let mut config = experiment.config(seed).map_err(|e| e.to_string())?;
        config.until = end;
        let (from, to) = (time.warm_up, self.server());
        // Figure 3 has round trips of packets, as in TCP.
        let segment = if self.rounds { 1 } else { packets };
        config.observe = Some(Observe { from, segment, interval: INTERVAL, to, latencies: false, rounds: self.rounds });
        config.sample = (self.network == Network::OneLink).then_some(SAMPLE_QUEUE);
        config.quits = self.quits(&config.flows, time.warm_up);
        Ok(config)
    }

    /// Returns the destination of the connections that count, if not all do.
    pub fn server(&self) -> Option<u32> {
        matches!(self.network, Network::Crossing { .. }).then_some(CLIENTS + 1)
    }

    /// Returns the round trip of the empty network, ns, including a further transmission of the packet at the switch.
    pub fn base_rtt(&self) -> u64 {
        let links = if self.server().is_some() { 6 } else { 4 };
        let packet = u64::from(MTU.bytes() as u32 + AROUND) * 8_000_000_000 / LINK_RATE;
        links * DELAY + (links / 2 - 1) * packet
    }

    /// Returns client and server of the `n`-th connection. In Figure 4 those of the secondary incast follow all others.
    fn ends(&self, n: u32) -> (u32, u32) {
        match self.network {
            // Alternating, and reversed for every other client, so that both have the same number.
            Network::TwoLinks => (n % CLIENTS, CLIENTS + (n / CLIENTS + n % CLIENTS) % SERVER_LINKS),
            Network::OneLink => (n % CLIENTS, CLIENTS),
            Network::Crossing { .. } if n < CLIENTS * self.connections => (n % CLIENTS, CLIENTS + 1),
            Network::Crossing { .. } => (CLIENTS + 2 + n % CLIENTS, CLIENTS),
        }
    }

    /// Returns the connections, each of which has more to send than the run allows.
    fn flows(&self, end: u64, seed: u64) -> Vec<Flow> {
        let flow = |n| Flow {
            src: self.ends(n).0,
            dst: self.ends(n).1,
            bytes: (u128::from(LINK_RATE) * u128::from(end) / 8_000_000_000) as u64,
            start: random::below(seed, n, STAGGER),
            priority: 0,
            class: 0,
            setup: 0,
        };
        let incasts = if self.network == (Network::Crossing { secondary: true }) { 2 } else { 1 };
        let mut flows: Vec<Flow> = (0..incasts * CLIENTS * self.connections).map(flow).collect();
        flows.sort_by_key(|flow| (flow.start, flow.src));
        flows
    }

    fn transport(&self) -> Result<Transport, String> {
        let mut transport = TransportConfig::preset("roce").expect("a preset");
        transport.congestion = self.cc.parse::<CongestionConfig>().map_err(|e| e.to_string())?;
        transport.line_rate = LINK_RATE;
        transport.base_rtt = if self.server().is_some() { 6 * DELAY } else { 4 * DELAY };
        transport.ack_priority = self.ack_first.then_some(7);
        // Nothing is lost, because of PFC or of a large buffer.
        transport.timer = Timer::Fixed(None);
        // A RoCE sender has no cap; this many packets exceed the entire buffer.
        transport.window = 65_536;
        Ok(Transport::from(transport))
    }

    /// Returns the connections that end half-way: all but one of each client.
    fn quits(&self, flows: &[Flow], at: u64) -> Vec<Quit> {
        if !self.quit {
            return Vec::new();
        }
        let mut stays = vec![true; CLIENTS as usize];
        let ends = |f: &Flow| {
            // The staying ones are evenly divided among the server's links as well.
            let even = f.dst == CLIENTS + f.src % SERVER_LINKS;
            !(even && std::mem::replace(&mut stays[f.src as usize], false))
        };
        let numbered = (0..).zip(flows.iter().map(ends));
        numbered.filter(|(_, ends)| *ends).map(|(flow, _)| Quit { at, flow }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Time = Time { warm_up: 10_000_000, measured: 5_000_000 };

    #[test]
    fn the_testbed_is_the_papers() {
        let config = Incast::timely(16, "").config(TIME, 1).unwrap();
        let rates = config.topology.host_rates();
        assert_eq!(rates, [10_000_000_000; 12]);
        assert_eq!((config.flows.len(), config.until), (40, 15_000_000));
        // Each client has the same number of connections on each of the server's links; with an odd number, every other
        // client has one more on one.
        let of = |flows: &[Flow], src, dst| flows.iter().filter(|f| (f.src, f.dst) == (src, dst)).count();
        assert!((0..10).all(|client| [10, 11].map(|link| of(&config.flows, client, link)) == [2, 2]));
        let seven = Incast { connections: 7, ..Incast::timely(16, "") }.config(TIME, 1).unwrap();
        assert_eq!([10, 11].map(|link| of(&seven.flows, 0, link) + of(&seven.flows, 1, link)), [7, 7]);
        // 16 packets of 1024 and 26 bytes, of which 20 Gbit/s carry 19.5 of payload: the same as for 1500 of 1538.
        assert_eq!(config.observe.map(|o| (o.segment, o.from)), Some((16, 10_000_000)));
        assert!((20.0f64 * 1024.0 / 1050.0 - 19.5).abs() < 0.01 && (20.0f64 * 1500.0 / 1538.0 - 19.5).abs() < 0.01);
        let CongestionConfig::Timely(timely) = config.setups[0].transport.congestion else { panic!("{config:?}") };
        assert_eq!((timely.segment, timely.t_low, timely.t_high, timely.add), (16_384, 50_000, 500_000, 10_000_000));
        assert_eq!((timely.decrease.get(), timely.hai, timely.hai_after), (0.8, 5, 5));
        let other = Incast::timely(64, "t-low=0,pacing=700M").config(TIME, 1).unwrap();
        assert_eq!(
            (other.quantum, other.setups[0].transport.congestion.get("pacing")),
            (64, Some("700000000bit".into()))
        );
        assert!(Incast::timely(16, "nothing=1").config(TIME, 1).is_err());
    }

    #[test]
    fn connections_begin_at_times_that_depend_on_the_seed() {
        let starts =
            |seed| -> Vec<u64> { Incast::pfc().config(TIME, seed).unwrap().flows.iter().map(|f| f.start).collect() };
        let (one, two) = (starts(1), starts(2));
        assert!(one.windows(2).all(|w| w[0] < w[1]) && one[39] < STAGGER && one[39] - one[0] > STAGGER / 2, "{one:?}");
        assert!(one == starts(1) && one.iter().zip(&two).all(|(a, b)| a != b));
    }

    #[test]
    fn nine_of_ten_connections_of_each_client_end_half_way() {
        let scenario = Incast { connections: 10, quit: true, ..Incast::timely(16, "") };
        let config = scenario.config(TIME, 1).unwrap();
        let (mut stay, mut links) = ([10; 10], [50; 2]);
        for quit in &config.quits {
            assert_eq!(quit.at, TIME.warm_up);
            let flow = &config.flows[quit.flow as usize];
            stay[flow.src as usize] -= 1;
            links[flow.dst as usize - 10] -= 1;
        }
        assert_eq!((config.quits.len(), stay, links), (90, [1; 10], [5; 2]));
    }
}
