//! The scenarios of the IRN chapter (§4.3), as the keys of `irnic sim`. What follows from others is computed here as the paper
//! says, once for all cells; `docs/reproduction.md` has the reasons.

use irnic_fabric::workload::Workload;
use irnic_fabric::workload::spec::Part;

/// What the chapter varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Share of the links' rate.
    pub load: f64,
    /// Gbit/s.
    pub gbps: u64,
    /// Ports of a switch.
    pub arity: u64,
    /// As `--workload` takes it.
    pub workload: String,
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

/// Keys and values for `irnic sim`.
pub type Values = Vec<(&'static str, String)>;

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
    /// By the names that cells have, and those of `--cc`.
    const ALL: [(&'static str, &'static str, Cc); 3] =
        [("no-cc", "none", Cc::None), ("timely", TIMELY, Cc::Timely), ("dcqcn", DCQCN, Cc::Dcqcn)];

    /// Names that cells have.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, ..)| *name)
    }

    /// The one with a name.
    pub fn named(name: &str) -> Option<Cc> {
        Self::ALL.iter().find(|(n, ..)| *n == name).map(|(.., cc)| *cc)
    }

    /// What `--cc` calls it.
    fn value(self) -> &'static str {
        Self::ALL.iter().find(|(.., cc)| *cc == self).map_or("none", |(_, value, _)| value)
    }
}

/// TIMELY in the NIC, with the parameters of its paper; but each packet is acknowledged and gives a round trip, where the paper's host
/// software has segments of 16 KB. Which of the two the chapter's simulator has is not said.
const TIMELY: &str = "timely,segment=1";
/// DCQCN with the parameters of its paper, "as implemented in the Mellanox ConnectX-4 RoCE NIC" (§4.3.1): there a decrease does not
/// set the target rate if nothing was increased since the one before.
const DCQCN: &str = "dcqcn,clamp-target=off";
/// Propagation delay of a link, ns.
const DELAY: u64 = 2_000;
/// Links of the longest path of a three-tier fat-tree.
const HOPS: u64 = 6;
/// Bytes that each packet has besides its payload: Ethernet (18), IPv4, UDP, BTH, ICRC, and a VLAN tag, which carries PFC's priority.
/// With 1,024 bytes of payload 110 such packets are the paper's 120 KB.
pub const HEADER: u64 = 66;
/// Packets for which a queue pair keeps its host's link. "When the sender QP is ready to transmit data packets, it periodically polls
/// the MAC layer until the link is available" (§4.3.1): how long it then has the link is not said. Chosen, of powers of two, by
/// the average slowdown of RoCE with PFC in the default case, 30.6.
const QUANTUM: u32 = 32;
/// The heavy-tailed flow sizes of the chapter (§4.3.1), as `--workload` takes them. `irn-imc10` fits its description as well, but is no
/// nearer to its tables: docs/reproduction.md has both.
pub const WORKLOAD: &str = "irn-heavy";
/// MTU, bytes of payload.
const MTU: u64 = 1_024;

/// A system that the chapter compares.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// IRN without PFC.
    Irn,
    /// IRN with PFC, and no timeouts.
    IrnPfc,
    /// RoCE with PFC, and no timeouts.
    RocePfc,
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
    /// The same, with a NACK threshold against reordering (§4.6).
    IrnSprayedThreshold,
}

impl System {
    /// All of them, by the names that cells have.
    pub const ALL: [(&'static str, System); 12] = [
        ("irn", System::Irn),
        ("irn-pfc", System::IrnPfc),
        ("roce-pfc", System::RocePfc),
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

    /// The one with a name.
    pub fn named(name: &str) -> Option<System> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }
}

impl Scenario {
    /// The default case (§4.3.1), with such flows.
    pub fn default_case(workload: &str, arrivals: u64) -> Scenario {
        Scenario {
            load: 0.7,
            gbps: 40,
            arity: 6,
            workload: workload.to_owned(),
            buffer: None,
            rto_high: None,
            n: 3,
            cc: Cc::None,
            arrivals,
        }
    }

    /// The one of a row of a table, or of a figure; what it does not say is the default case's.
    pub fn named(table: &str, label: &str, default: &Scenario) -> Option<Scenario> {
        let mut s = default.clone();
        match (table, label) {
            ("table4.2", load) => s.load = load.strip_suffix('%')?.parse::<f64>().ok()? / 100.0,
            ("table4.3", rate) => s.gbps = rate.strip_suffix('G')?.parse().ok()?,
            ("table4.4", servers) => {
                let servers: u64 = servers.parse().ok()?;
                s.arity = (2..=32).step_by(2).find(|k| k * k * k / 4 == servers)?;
            }
            ("table4.5", "heavy-tailed") => {}
            ("table4.5", "uniform") => s.workload = "irn-uniform".into(),
            ("table4.6", buffer) => s.buffer = Some(buffer.strip_suffix("KB")?.parse::<u64>().ok()? * 1_000),
            ("table4.7", rto) => s.rto_high = Some(rto.strip_suffix("us")?.parse::<u64>().ok()? * 1_000),
            ("table4.8", n) => s.n = n.parse().ok()?,
            ("figure4.9", "cross-traffic" | "cross-traffic-background") => {
                s.load = 0.5;
                s.workload += "+incast:senders=30,bytes=150MB";
            }
            ("figure4.9", incast) => {
                let senders: u32 = incast.strip_prefix("incast-")?.parse().ok()?;
                s.workload = format!("incast:senders={senders},bytes=150MB");
            }
            ("figure4.12", "headers") | ("spraying", "default") => {}
            (figure, "default") if figure.starts_with("figure4.") => {}
            _ => return None,
        }
        Some(s)
    }

    /// Bandwidth-delay product of the longest path, there and back: 120 KB in the default case.
    fn bdp(&self) -> u64 {
        2 * HOPS * DELAY * self.gbps / 8
    }

    fn buffer(&self) -> u64 {
        self.buffer.unwrap_or(2 * self.bdp())
    }

    /// The longest round trip, and the longest queue if all inputs of a switch are full for one output; 312 µs in the default case,
    /// which the paper has as 320 µs. Smaller buffers than twice the bandwidth-delay product do not shorten it.
    fn rto_high(&self) -> u64 {
        let queue = self.arity * self.buffer().max(2 * self.bdp()) * 8 / self.gbps;
        self.rto_high.unwrap_or((2 * HOPS * DELAY + queue).next_multiple_of(20_000))
    }

    /// RED as DCQCN's paper has it, 5 to 200 KB and 1 %, for the buffer of the default case; in proportion to it for others, so that
    /// marks come before PFC and drops.
    fn marking(&self) -> String {
        let part = |of_240_kb: u64| self.buffer() * of_240_kb / 240_000;
        format!("red:{},{},0.01", part(5_000), part(200_000))
    }

    /// How much more a flow takes on the wire with so many bytes around each packet's payload than with [`HEADER`]: a load that is
    /// greater by that has the same flows.
    fn growth(&self, header: u64) -> f64 {
        let Some(Part::Poisson { sizes, .. }) =
            self.workload.parse().ok().and_then(|w: Workload| w.parts.into_iter().next())
        else {
            return 1.0;
        };
        let wire = |header: u64| sizes.mean() + sizes.mean_packets(MTU as u32) * header as f64;
        wire(header) / wire(HEADER)
    }

    /// What a system is run with.
    pub fn values(&self, system: System) -> Values {
        let pfc = matches!(system, System::IrnPfc | System::RocePfc);
        let header = HEADER + if system == System::IrnOverheads { 16 } else { 0 };
        let rto_high = format!("{}ns", self.rto_high());
        let cc = match system {
            System::ResilientRoce => DCQCN,
            System::IrnAimd => "aimd",
            System::Iwarp => "tcp",
            _ => self.cc.value(),
        };
        let routing = if matches!(system, System::IrnSprayed | System::IrnSprayedThreshold) { "spray" } else { "ecmp" };
        let mut values = vec![
            ("topology", format!("fat-tree:k={},rate={}G,delay={DELAY}ns", self.arity, self.gbps)),
            ("workload", self.workload.clone()),
            ("load", (if header == HEADER { self.load } else { self.load * self.growth(header) }).to_string()),
            ("duration", format!("{}ns", self.arrivals * 40 / self.gbps)),
            ("buffer", self.buffer().to_string()),
            ("headers", format!("fixed:{header}")),
            ("quantum", QUANTUM.to_string()),
            ("routing", routing.to_owned()),
            ("cc", cc.to_owned()),
            ("pfc", if pfc { "on" } else { "off" }.to_owned()),
        ];
        if cc == DCQCN {
            values.push(("ecn", self.marking()));
        }
        let cap = (self.bdp() / (MTU + HEADER)).to_string();
        let transport = match system {
            System::Irn | System::IrnAimd | System::IrnSprayed => "irn",
            System::IrnSprayedThreshold => "irn,nack-threshold=64",
            System::IrnOverheads => "irn,retransmit-delay=2us",
            // "We disable timeouts when PFC is enabled to prevent spurious retransmissions" (§4.3.1).
            System::IrnPfc => "irn,rto=local-ack-timeout",
            System::RocePfc => "roce,rto=local-ack-timeout",
            // "Upon every out-of-order packet arrival, an IRN receiver sends a NACK" (§4.2.1): those that go back N, too.
            System::Roce | System::ResilientRoce => "roce,nak=per-packet",
            System::IrnGoBackN => "irn-go-back-n,nak=per-packet",
            System::IrnNoBdp => "irn-no-bdp",
            System::Iwarp => "iwarp",
        };
        values.push(("transport", transport.to_owned()));
        match system {
            System::RocePfc => {}
            // What TCP's receiver advertises is not said; with less than the bandwidth-delay product no flow could use its link.
            System::Iwarp => values.push(("cap", cap)),
            System::Roce | System::ResilientRoce => values.push(("rto-high", rto_high)),
            System::IrnPfc => values.push(("cap", cap)),
            _ => {
                values.extend([("rto-high", rto_high), ("n", self.n.to_string())]);
                if system != System::IrnNoBdp {
                    values.push(("cap", cap));
                }
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_case_is_the_papers() {
        let s = Scenario::default_case(WORKLOAD, 0);
        assert_eq!((s.bdp(), s.buffer(), s.rto_high()), (120_000, 240_000, 320_000));
        let small = Scenario::named("table4.6", "60KB", &s).unwrap();
        assert_eq!((small.buffer(), small.rto_high()), (60_000, 320_000));
        assert_eq!(Scenario::named("table4.6", "480KB", &s).unwrap().rto_high(), 600_000);
        let cap = s.values(System::Irn).into_iter().find(|(k, _)| *k == "cap").map(|(_, v)| v);
        assert_eq!(cap.as_deref(), Some("110"));
        // §4.5.3, with the flows of the others: mean size 253 KB in 248 packets, so 16 bytes more each are 1.5 %.
        let load = s.values(System::IrnOverheads).into_iter().find(|(k, _)| *k == "load").map(|(_, v)| v);
        assert!(load.is_some_and(|l| (0.7101..0.7105).contains(&l.parse::<f64>().unwrap())));
        for (key, value) in [("headers", "fixed:82"), ("transport", "irn,retransmit-delay=2us")] {
            assert!(s.values(System::IrnOverheads).contains(&(key, value.to_owned())), "{key}");
        }
    }

    #[test]
    fn dcqcn_marks_by_the_buffer_whoever_has_it() {
        for (label, red) in [
            (("table4.2", "70%"), "red:5000,200000,0.01"),
            (("table4.6", "60KB"), "red:1250,50000,0.01"),
            (("table4.6", "480KB"), "red:10000,400000,0.01"),
            (("table4.3", "100G"), "red:12500,500000,0.01"),
        ] {
            let s = Scenario::named(label.0, label.1, &Scenario::default_case(WORKLOAD, 0)).unwrap();
            let expected = [("cc", DCQCN.to_owned()), ("ecn", red.to_owned())];
            let has = |s: &Scenario, system| expected.iter().all(|value| s.values(system).contains(value));
            assert!(has(&Scenario { cc: Cc::Dcqcn, ..s.clone() }, System::Irn), "{label:?}");
            assert!(has(&s, System::ResilientRoce), "{label:?}");
            assert!(s.values(System::Irn).iter().all(|(key, _)| *key != "ecn"), "{label:?}");
        }
    }

    #[test]
    fn every_row_and_claim_has_a_scenario() {
        let reference = super::super::reference::irn();
        let default = Scenario::default_case(WORKLOAD, 1);
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
