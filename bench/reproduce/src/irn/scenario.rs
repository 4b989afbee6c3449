//! The scenarios of the IRN chapter (§4.3), as experiments. What follows from others is computed here as the paper
//! says, once for all cells; `docs/reproduction.md` has the reasons.

use irnic_fabric::experiment::{Experiment, LinkFlowControl, Transport};
use irnic_fabric::sim::{HeaderBytes, Routing};
use irnic_fabric::switch::Ecn;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::incast::{Bytes, Incast};
use irnic_fabric::workload::spec::Part;
use irnic_fabric::workload::{Sizes, Workload};
use irnic_transports::config::{FlowControl, Nak, Timer, TransportConfig, paper};
use irnic_transports::congestion::{AimdConfig, CongestionConfig, DcqcnConfig, TcpConfig, TimelyConfig};
use irnic_transports::wire::Mtu;

/// What the chapter varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Share of the links' rate.
    pub load: f64,
    /// Gbit/s.
    pub gbps: u64,
    /// Ports of a switch.
    pub arity: u32,
    /// What is sent.
    pub workload: Workload,
    /// Bytes of each input, if not twice the bandwidth-delay product.
    pub buffer: Option<u64>,
    /// ns, if not computed.
    pub rto_high: Option<u64>,
    /// Packets in flight up to which RTO_low holds.
    pub n: u32,
    /// Congestion control.
    pub cc: Cc,
    /// Time in which flows start, ns at 40 Gbit/s; the same number of bytes at other rates.
    pub arrivals: u64,
}

/// Congestion control of the chapter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cc {
    /// None.
    None,
    /// TIMELY.
    Timely,
    /// DCQCN.
    Dcqcn,
}

impl Cc {
    /// All of them, by the names that cells have.
    const ALL: [(&'static str, Cc); 3] = [("no-cc", Cc::None), ("timely", Cc::Timely), ("dcqcn", Cc::Dcqcn)];

    /// Returns the names that cells have.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, ..)| *name)
    }

    /// Returns the one with a name.
    pub fn named(name: &str) -> Option<Cc> {
        Self::ALL.iter().find(|(n, ..)| *n == name).map(|(.., cc)| *cc)
    }

    fn config(self) -> CongestionConfig {
        match self {
            Cc::None => CongestionConfig::None,
            Cc::Timely => TIMELY,
            Cc::Dcqcn => DCQCN,
        }
    }
}

/// TIMELY in the NIC, with the parameters of its paper; but each packet is acknowledged and gives a round trip, where
/// the paper's host software has segments of 16 KB. Which of the two the chapter's simulator has is not said.
const TIMELY: CongestionConfig = CongestionConfig::Timely(TimelyConfig { segment: 1, ..TimelyConfig::PAPER });
/// DCQCN with the parameters of its paper, "as implemented in the Mellanox ConnectX-4 RoCE NIC" (§4.3.1): there a
/// decrease does not set the target rate if nothing was increased since the one before.
const DCQCN: CongestionConfig = CongestionConfig::Dcqcn(DcqcnConfig { clamp_target: false, ..DcqcnConfig::PAPER });
/// Propagation delay of a link, ns.
const DELAY: u64 = 2_000;
/// Links of the longest path of a three-tier fat-tree.
const HOPS: u64 = 6;
/// Bytes that each packet has besides its payload: Ethernet (18), IPv4, UDP, BTH, ICRC, and a VLAN tag, which carries
/// PFC's priority. With 1,024 bytes of payload 110 such packets are the paper's 120 KB.
pub const HEADER: u32 = 66;
/// Packets for which a queue pair keeps its host's link. "When the sender QP is ready to transmit data packets, it
/// periodically polls the MAC layer until the link is available" (§4.3.1): how long it then has the link is not said.
/// Chosen, of powers of two, by the average slowdown of RoCE with PFC in the default case, 30.6.
const QUANTUM: u32 = 32;
/// The heavy-tailed flow sizes of the chapter (§4.3.1), as `--workload` takes them. `irn-imc10` fits its description as
/// well, but is no nearer to its tables: docs/reproduction.md has both.
pub const WORKLOAD: &str = "irn-heavy";
/// Payload of a full packet.
const MTU: Mtu = Mtu::B1024;
/// Bytes that an incast moves (§4.3.4).
const INCAST: Bytes = Bytes::Together(150_000_000);
/// NACKs without progress before loss recovery starts, against reordering (§4.6).
const NACK_THRESHOLD: u32 = 64;
/// Time that fetching a packet again takes in the worst case, ns (§4.5.3).
const FETCH: u64 = 2_000;

/// A system that the chapter compares.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// IRN without PFC.
    Irn,
    /// IRN with PFC, and no timeouts.
    IrnPfc,
    /// RoCE with PFC, and no timeouts.
    RocePfc,
    /// IRN with credit-based flow control, and no timeouts.
    IrnCredits,
    /// RoCE with credit-based flow control, and no timeouts.
    RoceCredits,
    /// RoCE without PFC, with RTO_high.
    Roce,
    /// IRN that goes back N.
    IrnGoBackN,
    /// IRN without BDP-FC.
    IrnNoBdp,
    /// IRN with the worst overheads (§4.5.3): 16 more bytes of header on each packet, 2 µs before each retransmission.
    IrnOverheads,
    /// Resilient RoCE (§4.3.5): RoCE without PFC, with DCQCN whatever the others have.
    ResilientRoce,
    /// iWARP's transport: TCP's window and timeouts (§4.3.6).
    Iwarp,
    /// IRN with TCP's rule of additive increase and multiplicative decrease (§4.3.6).
    IrnAimd,
    /// IRN while switches choose a way for each packet.
    IrnSprayed,
    /// IRN while switches choose a way for each packet, with a NACK threshold against reordering (§4.6).
    IrnSprayedThreshold,
}

impl System {
    /// All of them, by the names that cells have.
    pub const ALL: [(&'static str, System); 14] = [
        ("irn", System::Irn),
        ("irn-pfc", System::IrnPfc),
        ("roce-pfc", System::RocePfc),
        ("irn-credits", System::IrnCredits),
        ("roce-credits", System::RoceCredits),
        ("roce", System::Roce),
        ("irn-go-back-n", System::IrnGoBackN),
        ("irn-no-bdp", System::IrnNoBdp),
        ("irn-overheads", System::IrnOverheads),
        ("resilient-roce", System::ResilientRoce),
        ("iwarp", System::Iwarp),
        ("irn-aimd", System::IrnAimd),
        ("irn-sprayed", System::IrnSprayed),
        ("irn-sprayed-threshold", System::IrnSprayedThreshold),
    ];

    /// Returns the one with a name.
    pub fn named(name: &str) -> Option<System> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }

    /// Returns the name that cells have.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, s)| *s == self).map_or("", |(name, _)| name)
    }

    /// Whether nothing is lost in switches.
    fn is_lossless(self) -> bool {
        self.has_credits() || matches!(self, System::IrnPfc | System::RocePfc)
    }

    fn has_credits(self) -> bool {
        matches!(self, System::IrnCredits | System::RoceCredits)
    }

    /// Returns the name of the transport that the system is a variant of.
    fn preset(self) -> &'static str {
        match self {
            System::RocePfc | System::RoceCredits | System::Roce | System::ResilientRoce => "roce",
            System::IrnGoBackN => "irn-go-back-n",
            System::IrnNoBdp => "irn-no-bdp",
            System::Iwarp => "iwarp",
            _ => "irn",
        }
    }
}

impl Scenario {
    /// Returns the default case (§4.3.1), with such flows.
    pub fn default_case(workload: &Workload, arrivals: u64) -> Scenario {
        Scenario {
            load: 0.7,
            gbps: 40,
            arity: 6,
            workload: workload.clone(),
            buffer: None,
            rto_high: None,
            n: 3,
            cc: Cc::None,
            arrivals,
        }
    }

    /// Returns the one of a row of a table, or of a figure; what it does not say is the default case's.
    pub fn named(table: &str, label: &str, default: &Scenario) -> Option<Scenario> {
        let mut s = default.clone();
        match (table, label) {
            ("table4.2", load) => s.load = load.strip_suffix('%')?.parse::<f64>().ok()? / 100.0,
            ("table4.3", rate) => s.gbps = rate.strip_suffix('G')?.parse().ok()?,
            ("table4.4", servers) => {
                let servers: u32 = servers.parse().ok()?;
                s.arity = (2..=32).step_by(2).find(|k| k * k * k / 4 == servers)?;
            }
            ("table4.5", "heavy-tailed") => {}
            ("table4.5", "uniform") => {
                let part = Part::Poisson { sizes: Sizes::irn_uniform(), load: None, outside: None };
                s.workload = Workload { name: "irn-uniform".to_owned(), parts: vec![part] };
            }
            ("table4.6", buffer) => s.buffer = Some(buffer.strip_suffix("KB")?.parse::<u64>().ok()? * 1_000),
            ("table4.7", rto) => s.rto_high = Some(rto.strip_suffix("us")?.parse::<u64>().ok()? * 1_000),
            ("table4.8", n) => s.n = n.parse().ok()?,
            ("figure4.9", "cross-traffic" | "cross-traffic-background") => {
                s.load = 0.5;
                s.workload.name += "+incast";
                s.workload.parts.push(incast(30));
            }
            ("figure4.9", incast) => {
                let senders: u32 = incast.strip_prefix("incast-")?.parse().ok()?;
                s.workload = Workload { name: incast.to_owned(), parts: vec![self::incast(senders)] };
            }
            ("figure4.12", "headers") | ("spraying" | "credits", "default") => {}
            ("credits", load) => s.load = load.strip_suffix('%')?.parse::<f64>().ok()? / 100.0,
            (figure, "default") if figure.starts_with("figure4.") => {}
            _ => return None,
        }
        Some(s)
    }

    /// Returns the bandwidth-delay product of the longest path, there and back, bytes: 120 KB in the default case.
    fn bdp(&self) -> u64 {
        2 * HOPS * DELAY * self.gbps / 8
    }

    fn buffer(&self) -> u64 {
        self.buffer.unwrap_or(2 * self.bdp())
    }

    /// Returns the longest round trip, and the longest queue if all inputs of a switch are full for one output; 312 µs
    /// in the default case, which the paper has as 320 µs. Smaller buffers than twice the bandwidth-delay product do
    /// not shorten it.
    fn rto_high(&self) -> u64 {
        let queue = u64::from(self.arity) * self.buffer().max(2 * self.bdp()) * 8 / self.gbps;
        self.rto_high.unwrap_or((2 * HOPS * DELAY + queue).next_multiple_of(20_000))
    }

    /// Returns RED as DCQCN's paper has it, 5 to 200 KB and 1 %, for the buffer of the default case; in proportion to
    /// it for others, so that marks come before PFC and drops.
    fn marking(&self) -> Ecn {
        let part = |of_240_kb: u64| self.buffer() * of_240_kb / 240_000;
        Ecn::Red { kmin: part(5_000), kmax: part(200_000), pmax: 0.01 }
    }

    /// Returns how much more a flow takes on the wire with so many bytes around each packet's payload than with
    /// [`HEADER`]: a load that is greater by that has the same flows.
    fn growth(&self, header: u32) -> f64 {
        let Some(Part::Poisson { sizes, .. }) = self.workload.parts.first() else { return 1.0 };
        let wire = |header: u32| sizes.mean() + sizes.mean_packets(MTU.bytes() as u32) * f64::from(header);
        wire(header) / wire(HEADER)
    }

    /// Returns the experiment that a system is in this scenario.
    pub fn experiment(&self, system: System) -> Experiment {
        let header = HEADER + if system == System::IrnOverheads { 16 } else { 0 };
        let transport = self.transport(system);
        let mut experiment = Experiment::default();
        experiment.topology = Topology::fat_tree(self.arity, self.gbps * 1_000_000_000, DELAY);
        experiment.workload = self.workload.clone();
        experiment.load = if header == HEADER { self.load } else { self.load * self.growth(header) };
        experiment.duration = Some(self.arrivals * 40 / self.gbps);
        experiment.buffer = Some(self.buffer());
        experiment.pfc = system.is_lossless();
        if system.has_credits() {
            experiment.flow_control = LinkFlowControl::Credits;
        }
        experiment.ecn = (transport.config.congestion == DCQCN).then(|| self.marking());
        experiment.headers = HeaderBytes::Fixed(header);
        experiment.quantum = QUANTUM;
        if matches!(system, System::IrnSprayed | System::IrnSprayedThreshold) {
            experiment.routing = Routing::Spray;
        }
        experiment.transports = vec![transport];
        experiment
    }

    fn transport(&self, system: System) -> Transport {
        let mut transport = Transport::preset(system.preset()).expect("a preset");
        let config: &mut TransportConfig = &mut transport.config;
        config.congestion = match system {
            System::ResilientRoce => DCQCN,
            System::IrnAimd => CongestionConfig::Aimd(AimdConfig::PAPER),
            System::Iwarp => CongestionConfig::Tcp(TcpConfig::RFC),
            _ => self.cc.config(),
        };
        config.timer = match system {
            // "We disable timeouts when PFC is enabled to prevent spurious retransmissions" (§4.3.1).
            lossless if lossless.is_lossless() => Timer::Fixed(None),
            System::Roce | System::ResilientRoce => Timer::Fixed(Some(self.rto_high())),
            System::Iwarp => config.timer,
            _ => Timer::Irn { low: paper::RTO_LOW, high: self.rto_high(), n: self.n },
        };
        match system {
            // "Upon every out-of-order packet arrival, an IRN receiver sends a NACK" (§4.2.1): those that go back N,
            // too.
            System::Roce | System::ResilientRoce | System::IrnGoBackN => config.nak = Nak::PerPacket,
            System::IrnSprayedThreshold => config.nack_threshold = NACK_THRESHOLD,
            System::IrnOverheads => config.retransmit_delay = FETCH,
            _ => {}
        }
        // What TCP's receiver advertises is not said; with less than the bandwidth-delay product no flow could use
        // iWARP's link.
        if system.preset() != "roce" && system != System::IrnNoBdp {
            let packet = (MTU.bytes() as u64) + u64::from(HEADER);
            config.flow = FlowControl::BdpCap((self.bdp() / packet) as u32);
        }
        transport
    }

    /// Returns what the run of a system is called in messages.
    pub fn label(&self, system: System) -> String {
        let Scenario { load, gbps, arity, workload, n, cc, .. } = self;
        let (cc, buffer, rto) =
            (Cc::ALL.iter().find(|(_, c)| c == cc).map_or("", |(name, _)| name), self.buffer(), self.rto_high());
        format!(
            "{}: load={load} rate={gbps}G k={arity} workload={} buffer={buffer} rto-high={rto}ns n={n} {cc}",
            system.name(),
            workload.name
        )
    }
}

/// Returns an incast of so many senders (§4.3.4).
fn incast(senders: u32) -> Part {
    Part::Incast(Incast { senders: Some(senders), bytes: INCAST, ..Incast::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_case() -> Scenario {
        Scenario::default_case(&WORKLOAD.parse().unwrap(), 1)
    }

    #[test]
    fn the_default_case_is_the_papers() {
        let s = default_case();
        assert_eq!((s.bdp(), s.buffer(), s.rto_high()), (120_000, 240_000, 320_000));
        let small = Scenario::named("table4.6", "60KB", &s).unwrap();
        assert_eq!((small.buffer(), small.rto_high()), (60_000, 320_000));
        assert_eq!(Scenario::named("table4.6", "480KB", &s).unwrap().rto_high(), 600_000);
        let cap = s.experiment(System::Irn).transports[0].config.cap();
        assert_eq!(cap, 110);
        // §4.5.3, with the flows of the others: mean size 253 KB in 248 packets, so 16 bytes more each are 1.5 %.
        let overheads = s.experiment(System::IrnOverheads);
        assert!((0.7101..0.7105).contains(&overheads.load), "{}", overheads.load);
        assert_eq!(overheads.headers, HeaderBytes::Fixed(82));
        assert_eq!(overheads.transports[0].config.retransmit_delay, 2_000);
    }

    #[test]
    fn dcqcn_marks_by_the_buffer_whoever_has_it() {
        for (label, kmin, kmax) in [
            (("table4.2", "70%"), 5_000, 200_000),
            (("table4.6", "60KB"), 1_250, 50_000),
            (("table4.6", "480KB"), 10_000, 400_000),
            (("table4.3", "100G"), 12_500, 500_000),
        ] {
            let s = Scenario::named(label.0, label.1, &default_case()).unwrap();
            let marks = |s: &Scenario, system| {
                let experiment = s.experiment(system);
                (experiment.transports[0].config.congestion, experiment.ecn)
            };
            let expected = (DCQCN, Some(Ecn::Red { kmin, kmax, pmax: 0.01 }));
            assert_eq!(marks(&Scenario { cc: Cc::Dcqcn, ..s.clone() }, System::Irn), expected, "{label:?}");
            assert_eq!(marks(&s, System::ResilientRoce), expected, "{label:?}");
            assert_eq!(marks(&s, System::Irn), (CongestionConfig::None, None), "{label:?}");
        }
    }

    #[test]
    fn every_row_and_claim_has_a_scenario() {
        let reference = super::super::reference::irn();
        let default = default_case();
        for row in &reference.row {
            assert!(Scenario::named(&format!("table{}", row.table), &row.label, &default).is_some(), "{row:?}");
        }
        for claim in &reference.claim {
            let parts: Vec<&str> = claim.id.split('/').collect();
            assert!(Scenario::named(parts[0], parts[1], &default).is_some(), "{}", claim.id);
            let (over, under) = parts[3].split_once("-over-").unwrap();
            assert!(System::named(over).is_some() && System::named(under).is_some(), "{}", claim.id);
        }
    }
}
