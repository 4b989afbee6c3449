//! The scenarios of the IRN chapter (§4.3), as experiments. Derived parameters are computed here as the paper
//! describes, once for all cells; `docs/reproduction.md` has the reasons.

use irnic_fabric::experiment::{Experiment, LinkFlowControl, Transport};
use irnic_fabric::sim::{HeaderBytes, Routing};
use irnic_fabric::switch::Ecn;
use irnic_fabric::topology::Topology;
use irnic_fabric::workload::incast::{Bytes, Incast};
use irnic_fabric::workload::spec::Part;
use irnic_fabric::workload::{Sizes, Workload};
use irnic_transports::config::{FlowControl, Nak, Timer, TransportConfig, paper, real_time};
use irnic_transports::congestion::{AimdConfig, CongestionConfig, DcqcnConfig, DctcpConfig, TcpConfig, TimelyConfig};
use irnic_transports::wire::Mtu;

/// The parameters varied by the chapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Load, as a share of the links' rate.
    pub load: f64,
    /// Rate of links, Gbit/s.
    pub gbps: u64,
    /// Number of ports of a switch.
    pub arity: u32,
    /// Workload.
    pub workload: Workload,
    /// Buffer of each input, bytes; `None`: twice the bandwidth-delay product.
    pub buffer: Option<u64>,
    /// RTO_high, ns; `None`: computed.
    pub rto_high: Option<u64>,
    /// Packets in flight up to which RTO_low applies.
    pub n: u32,
    /// Congestion control.
    pub cc: Cc,
    /// Period in which flows start at 40 Gbit/s, ns; scaled to the same number of bytes at other rates.
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
    /// All variants, with their names in cells.
    const ALL: [(&'static str, Cc); 3] = [("no-cc", Cc::None), ("timely", Cc::Timely), ("dcqcn", Cc::Dcqcn)];

    /// Returns the names in cells.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, ..)| *name)
    }

    /// Returns the variant with a name.
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

/// TIMELY in the NIC, with the parameters of its paper, except that each packet is acknowledged and gives a round trip,
/// whereas the paper's host software has segments of 16 KB. The chapter does not say which of the two its simulator
/// uses.
const TIMELY: CongestionConfig = CongestionConfig::Timely(TimelyConfig { segment: 1, ..TimelyConfig::PAPER });
/// DCQCN with the parameters of its paper, "as implemented in the Mellanox ConnectX-4 RoCE NIC" (§4.3.1): there a
/// decrease does not set the target rate if there was no increase since the previous one.
const DCQCN: CongestionConfig = CongestionConfig::Dcqcn(DcqcnConfig { clamp_target: false, ..DcqcnConfig::PAPER });
/// DCTCP with the parameters of its paper.
const DCTCP: CongestionConfig = CongestionConfig::Dctcp(DctcpConfig::PAPER);
/// Packets above which switches mark for DCTCP: its authors' choice for 10 Gbit/s; the chapter gives none.
const MARK_DCTCP: u64 = 65;
/// Propagation delay of a link, ns.
const DELAY: u64 = 2_000;
/// Number of links of the longest path of a three-tier fat-tree.
const HOPS: u64 = 6;
/// Bytes of each packet in addition to its payload: Ethernet (18), IPv4, UDP, BTH, ICRC, and a VLAN tag, which carries
/// PFC's priority. With 1,024 bytes of payload, 110 such packets are the paper's 120 KB.
pub const HEADER: u32 = 66;
/// Number of packets for which a queue pair keeps its host's link. "When the sender QP is ready to transmit data
/// packets, it periodically polls the MAC layer until the link is available" (§4.3.1): how long it then keeps the link
/// is not specified. Chosen among powers of two to match the average slowdown of RoCE with PFC in the default case,
/// 30.6.
const QUANTUM: u32 = 32;
/// The heavy-tailed flow sizes of the chapter (§4.3.1), in the syntax of `--workload`. `irn-imc10` fits its description
/// as well, but does not match its tables better: docs/reproduction.md has both.
pub const WORKLOAD: &str = "irn-heavy";
/// Payload of a full packet.
const MTU: Mtu = Mtu::B1024;
/// Bytes that an incast moves (§4.3.4).
const INCAST: Bytes = Bytes::Together(150_000_000);
/// Number of NACKs without progress before loss recovery starts, against reordering (§4.6).
const NACK_THRESHOLD: u32 = 64;
/// Worst-case time to fetch a packet again, ns (§4.5.3).
const FETCH: u64 = 2_000;

/// A system compared in the chapter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// IRN without PFC.
    Irn,
    /// IRN with PFC, and no timeouts.
    IrnPfc,
    /// RoCE with PFC, and no timeouts.
    RocePfc,
    /// RoCE with PFC, and no timeouts, whose receivers acknowledge only the last packet of a message (§4.4.2).
    RocePfcLastAck,
    /// IRN with credit-based flow control, and no timeouts.
    IrnCredits,
    /// RoCE with credit-based flow control, and no timeouts.
    RoceCredits,
    /// RoCE without PFC, with RTO_high.
    Roce,
    /// IRN with go-back-N.
    IrnGoBackN,
    /// IRN without BDP-FC.
    IrnNoBdp,
    /// IRN without selective acknowledgements (§4.3.3): of several losses it finds one per round trip.
    IrnNoSack,
    /// IRN with timeouts computed from measured round trips (§4.3.3).
    IrnDynamicTimeouts,
    /// IRN with the worst overheads (§4.5.3): 16 more bytes of header on each packet, 2 µs before each retransmission.
    IrnOverheads,
    /// Resilient RoCE (§4.3.5): RoCE without PFC, always with DCQCN.
    ResilientRoce,
    /// iWARP's transport: TCP's window and timeouts (§4.3.6).
    Iwarp,
    /// IRN with TCP's rule of additive increase and multiplicative decrease (§4.3.6).
    IrnAimd,
    /// IRN with TCP's rule, with PFC, and no timeouts (§4.3.4).
    IrnAimdPfc,
    /// IRN with DCTCP, without PFC (§4.3.4).
    IrnDctcp,
    /// IRN with DCTCP and PFC, and no timeouts (§4.3.4).
    IrnDctcpPfc,
    /// IRN with packet spraying by switches.
    IrnSprayed,
    /// IRN with packet spraying by switches, with a NACK threshold against reordering (§4.6).
    IrnSprayedThreshold,
}

impl System {
    /// All systems, with their names in cells.
    pub const ALL: [(&'static str, System); 20] = [
        ("irn", System::Irn),
        ("irn-pfc", System::IrnPfc),
        ("roce-pfc", System::RocePfc),
        ("roce-pfc-last-ack", System::RocePfcLastAck),
        ("irn-credits", System::IrnCredits),
        ("roce-credits", System::RoceCredits),
        ("roce", System::Roce),
        ("irn-go-back-n", System::IrnGoBackN),
        ("irn-no-bdp", System::IrnNoBdp),
        ("irn-no-sack", System::IrnNoSack),
        ("irn-dynamic-timeouts", System::IrnDynamicTimeouts),
        ("irn-overheads", System::IrnOverheads),
        ("resilient-roce", System::ResilientRoce),
        ("iwarp", System::Iwarp),
        ("irn-aimd", System::IrnAimd),
        ("irn-aimd-pfc", System::IrnAimdPfc),
        ("irn-dctcp", System::IrnDctcp),
        ("irn-dctcp-pfc", System::IrnDctcpPfc),
        ("irn-sprayed", System::IrnSprayed),
        ("irn-sprayed-threshold", System::IrnSprayedThreshold),
    ];

    /// Returns the system with a name.
    pub fn named(name: &str) -> Option<System> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }

    /// Whether switches lose no packets.
    fn is_lossless(self) -> bool {
        use System::*;
        let pfc = matches!(self, IrnPfc | RocePfc | RocePfcLastAck | IrnAimdPfc | IrnDctcpPfc);
        pfc || self.has_credits()
    }

    fn has_credits(self) -> bool {
        matches!(self, System::IrnCredits | System::RoceCredits)
    }

    /// Returns the name of the transport that the system is a variant of.
    fn preset(self) -> &'static str {
        match self {
            System::RocePfc | System::RocePfcLastAck | System::RoceCredits => "roce",
            System::Roce | System::ResilientRoce => "roce",
            System::IrnGoBackN => "irn-go-back-n",
            System::IrnNoBdp => "irn-no-bdp",
            System::IrnNoSack => "irn-no-sack",
            System::Iwarp => "iwarp",
            _ => "irn",
        }
    }
}

impl Scenario {
    /// Returns the default case (§4.3.1), with this workload.
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

    /// Returns the scenario of a row of a table, or of a figure; parameters that it does not name are those of the
    /// default case.
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
                s.workload.parts.push(incast(30, 1));
            }
            ("figure4.9", name) => {
                let incast = name.strip_prefix("incast-")?;
                let (senders, variant) = incast.split_once('-').unwrap_or((incast, ""));
                let flows = match variant {
                    "4-flows" => 4,
                    "" => 1,
                    rate => {
                        s.gbps = rate.strip_suffix('G')?.parse().ok()?;
                        1
                    }
                };
                let parts = vec![self::incast(senders.parse().ok()?, flows)];
                s.workload = Workload { name: name.to_owned(), parts };
            }
            ("figure4.12", "headers") | ("spraying" | "credits" | "window" | "acks", "default") => {}
            ("credits", load) => s.load = load.strip_suffix('%')?.parse::<f64>().ok()? / 100.0,
            (figure, "default") if figure.starts_with("figure4.") => {}
            _ => return None,
        }
        Some(s)
    }

    /// Returns the bandwidth-delay product of the longest path, for the round trip, bytes: 120 KB in the default case.
    fn bdp(&self) -> u64 {
        2 * HOPS * DELAY * self.gbps / 8
    }

    fn buffer(&self) -> u64 {
        self.buffer.unwrap_or(2 * self.bdp())
    }

    /// Returns the longest round trip, plus the longest queue if all inputs of a switch are full for one output; 312 µs
    /// in the default case, which the paper gives as 320 µs. Buffers smaller than twice the bandwidth-delay product do
    /// not shorten it.
    fn rto_high(&self) -> u64 {
        let queue = u64::from(self.arity) * self.buffer().max(2 * self.bdp()) * 8 / self.gbps;
        self.rto_high.unwrap_or((2 * HOPS * DELAY + queue).next_multiple_of(20_000))
    }

    /// Returns RED as in DCQCN's paper, 5 to 200 KB and 1 %, for the buffer of the default case; scaled in proportion
    /// for others, so that marks come before PFC and drops.
    fn marking(&self) -> Ecn {
        let part = |of_240_kb: u64| self.buffer() * of_240_kb / 240_000;
        Ecn::Red { kmin: part(5_000), kmax: part(200_000), pmax: 0.01 }
    }

    /// Returns the factor by which a flow takes more on the wire with this many bytes around each packet's payload than
    /// with [`HEADER`]: a load increased by that factor has the same flows.
    /// [`HEADER`]: a load that is greater by that has the same flows.
    fn growth(&self, header: u32) -> f64 {
        let Some(Part::Poisson { sizes, .. }) = self.workload.parts.first() else { return 1.0 };
        let wire = |header: u32| sizes.mean() + sizes.mean_packets(MTU.bytes() as u32) * f64::from(header);
        wire(header) / wire(HEADER)
    }

    /// Returns the experiment of a system in this scenario.
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
        let for_dctcp = Ecn::Step { k: MARK_DCTCP * (MTU.bytes() as u64 + u64::from(HEADER)) };
        let rules = [(DCQCN, self.marking()), (DCTCP, for_dctcp)];
        experiment.ecn = rules.into_iter().find(|(cc, _)| transport.config.congestion == *cc).map(|(_, rule)| rule);
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
            System::IrnAimd | System::IrnAimdPfc => CongestionConfig::Aimd(AimdConfig::PAPER),
            System::IrnDctcp | System::IrnDctcpPfc => DCTCP,
            System::Iwarp => CongestionConfig::Tcp(TcpConfig::RFC),
            _ => self.cc.config(),
        };
        config.timer = match system {
            // "We disable timeouts when PFC is enabled to prevent spurious retransmissions" (§4.3.1).
            lossless if lossless.is_lossless() => Timer::Fixed(None),
            System::Roce | System::ResilientRoce => Timer::Fixed(Some(self.rto_high())),
            System::Iwarp => config.timer,
            // Before the first measurement it is 16 times `min`: RTO_high.
            System::IrnDynamicTimeouts => {
                Timer::Estimated { min: self.rto_high() / 16, max: real_time::RTO_MAX, n: self.n, probe: 0 }
            }
            _ => Timer::Irn { low: paper::RTO_LOW, high: self.rto_high(), n: self.n },
        };
        match system {
            // "Upon every out-of-order packet arrival, an IRN receiver sends a NACK" (§4.2.1): go-back-N as well.
            System::Roce | System::ResilientRoce | System::IrnGoBackN => config.nak = Nak::PerPacket,
            System::RocePfcLastAck => config.ack_every = None,
            System::IrnSprayedThreshold => config.nack_threshold = NACK_THRESHOLD,
            System::IrnOverheads => config.retransmit_delay = FETCH,
            _ => {}
        }
        // What TCP's receiver advertises is not specified; with less than the bandwidth-delay product, no flow could
        // fill iWARP's link.
        if system.preset() != "roce" && system != System::IrnNoBdp {
            let packet = (MTU.bytes() as u64) + u64::from(HEADER);
            config.flow = FlowControl::BdpCap((self.bdp() / packet) as u32);
        }
        transport
    }
}

/// Returns an incast with this many senders, and connections of each (§4.3.4).
fn incast(senders: u32, flows: u32) -> Part {
    Part::Incast(Incast { senders: Some(senders), flows, bytes: INCAST, ..Incast::default() })
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
        // §4.5.3, with the same flows: mean size 253 KB in 248 packets, so 16 bytes more each are 1.5 %.
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
