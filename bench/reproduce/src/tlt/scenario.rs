//! The paper's runs (§7.1, Appendix B), as experiments.

use irnic_fabric::experiment::{Buffers, Experiment, SharedBuffers, Transport};
use irnic_fabric::switch::Ecn;

/// Rate that hosts can send, relative to the links between racks and cores that the load refers to: 2:1.
const OVERSUBSCRIPTION: f64 = 2.0;
/// Packets of 1,024 bytes in TCP's initial window: ten segments of 1,460 bytes.
const INITIAL: u32 = 14;
/// Packets of 1,024 bytes, and 66 of headers, in the bandwidth-delay product of 40 Gbit/s and 8 µs.
const BDP: u32 = 39;

/// The transports that the paper compares TLT on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Base {
    Tcp,
    Dctcp,
    Hpcc,
    Irn,
    Dcqcn,
    DcqcnSack,
}

use Base::*;

impl Base {
    /// Returns the name in cells.
    pub fn name(self) -> &'static str {
        match self {
            Tcp => "tcp",
            Dctcp => "dctcp",
            Hpcc => "hpcc",
            Irn => "irn",
            Dcqcn => "dcqcn",
            DcqcnSack => "dcqcn-sack",
        }
    }

    /// Whether links take 10 µs and the colour threshold is 400 KB, a bandwidth-delay product; otherwise 1 µs, and 200
    /// KB, DCQCN's K_max.
    fn is_tcp(self) -> bool {
        matches!(self, Tcp | Dctcp)
    }

    /// Returns the colour threshold of §7.1, bytes.
    pub fn threshold(self) -> u64 {
        if self.is_tcp() { 400_000 } else { 200_000 }
    }

    fn transport(self, timer: &str, pfc: bool) -> String {
        match self {
            Tcp => format!("iwarp,nack-threshold=1,{timer},cc.initial={INITIAL}"),
            Dctcp => format!("iwarp,nack-threshold=1,{timer},cc=dctcp,cc.initial={INITIAL},cc.ssthresh=65536"),
            Hpcc => "irn-no-bdp,cc=hpcc,rto=4ms".to_owned(),
            // The authors' timeouts: with PFC it has none.
            Irn if pfc => format!("irn,cc=dcqcn-vendor,cap={BDP},rto=local-ack-timeout"),
            Irn => format!("irn,cc=dcqcn-vendor,cap={BDP},rto-low=454us,rto-high=1930us"),
            Dcqcn => "roce,cc=dcqcn-vendor,rto=4ms".to_owned(),
            DcqcnSack => "irn-no-bdp,cc=dcqcn-vendor,rto=4ms".to_owned(),
        }
    }

    fn ecn(self) -> Ecn {
        match self {
            Tcp | Hpcc => Ecn::Off,
            Dctcp => Ecn::Step { k: 200_000 },
            Irn | Dcqcn | DcqcnSack => Ecn::Red { kmin: 5_000, kmax: 200_000, pmax: 0.01 },
        }
    }
}

/// Background traffic of Figure 15.
pub struct Workload {
    /// Name in cells.
    pub name: &'static str,
    /// The distribution of flow sizes.
    pub sizes: &'static str,
    /// Number of flows with as many bytes as one of web search's, by the means: 1.71 MB, 66 KB and 0.71 MB.
    pub times: f64,
}

/// All workloads.
pub const WORKLOADS: [Workload; 3] = [
    Workload { name: "web-search", sizes: "WebSearch", times: 1.0 },
    Workload { name: "web-server", sizes: "WebServer", times: 25.9 },
    Workload { name: "cache-follower", sizes: "CacheFollower", times: 2.4 },
];

/// The parameters that are varied. The default is §7.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Transport.
    pub base: Base,
    /// Minimum timeout of TCP and DCTCP, or a fixed one.
    pub timer: &'static str,
    /// TLT's clock, if TLT is used.
    pub tlt: Option<&'static str>,
    /// Whether there are tail loss probes, after at least 10 µs (§7.1).
    pub tlp: bool,
    /// Priority flow control.
    pub pfc: bool,
    /// Colour threshold, bytes.
    pub threshold: u64,
    /// Load, as a share of the rate of the links between racks and cores.
    pub load: f64,
    /// Share of the bytes in the foreground.
    pub share: f64,
    /// Flows from each host in an incast.
    pub degree: u32,
    /// Size of each, bytes.
    pub each: u64,
    /// Number of background flows.
    pub flows: u64,
    /// Distribution of their sizes, as known to `cdf:`.
    pub sizes: &'static str,
}

impl Scenario {
    /// §7.1: 40 % load, a twentieth of the bytes in incasts of eight flows of 8 KB from each host.
    pub fn new(base: Base, flows: u64) -> Scenario {
        Scenario {
            base,
            timer: "rto-min=4ms",
            tlt: None,
            tlp: false,
            pfc: false,
            threshold: base.threshold(),
            load: 0.4,
            share: 0.05,
            degree: 8,
            each: 8_000,
            flows,
            sizes: "WebSearch",
        }
    }

    /// Appendix B: 30 % load, incasts of four flows of 16 KB from each host.
    pub fn appendix(base: Base, flows: u64) -> Scenario {
        Scenario { load: 0.3, degree: 4, each: 16_000, ..Scenario::new(base, flows) }
    }

    /// With TLT.
    pub fn with_tlt(self) -> Scenario {
        Scenario { tlt: Some("adaptive"), ..self }
    }

    /// With tail loss probes.
    pub fn with_tlp(self) -> Scenario {
        Scenario { tlp: true, ..self }
    }

    /// With other background traffic: `times` as many flows, for the same number of bytes.
    pub fn of(self, workload: &Workload) -> Scenario {
        let flows = (self.flows as f64 * workload.times).round() as u64;
        Scenario { flows, sizes: workload.sizes, ..self }
    }

    /// With PFC.
    pub fn with_pfc(self, pfc: bool) -> Scenario {
        Scenario { pfc, ..self }
    }

    /// Returns the experiment.
    pub fn experiment(&self) -> Experiment {
        let mut transport = self.base.transport(self.timer, self.pfc);
        if let Some(clock) = self.tlt {
            transport += &format!(",tlt=on,tlt-clock={clock}");
        }
        if self.tlp {
            transport += ",tlp=10us";
        }
        let delay = if self.base.is_tcp() { "10us" } else { "1us" };
        let topology = format!("leaf-spine:leaves=12,spines=4,hosts=8,rate=40G,uplink=40G,delay={delay}");
        let mut workload = format!("cdf:{}", self.sizes);
        if self.share > 0.0 {
            workload += &format!("+foreground:flows={},each={},share={}", self.degree, self.each, self.share);
        }
        let mut shared = SharedBuffers::default();
        shared.colour = self.tlt.map(|_| self.threshold);
        let mut experiment = Experiment::default();
        experiment.topology = topology.parse().expect("a topology");
        experiment.workload = workload.parse().expect("a workload");
        experiment.transports = vec![transport.parse::<Transport>().expect("a transport")];
        experiment.load = self.load / OVERSUBSCRIPTION;
        experiment.arrivals = Some(self.flows);
        experiment.buffers = Buffers::Shared(shared);
        experiment.buffer = Some(4_500_000);
        experiment.pfc = self.pfc;
        experiment.ecn = Some(self.base.ecn());
        experiment
    }
}
