//! The command line of `irnic sim`.

use std::path::PathBuf;

use clap::Args;

use irnic_fabric::experiment::{Values, Written, find};

const AFTER_HELP: &str = "\
Several values: an option that is given more than once (--link-event apart), or a list in an
experiment file, makes a grid, which runs in parallel. In an experiment file the keys are the
options' names; [[run]] tables are runs that are no product:
  duration = \"10ms\"
  load = [0.5, 0.7, 0.9]
  [[run]]
  transport = \"irn\"
  [[run]]
  transport = \"roce\"
  pfc = \"on\"
Options given beside a file replace what it says.

Topologies: star, dumbbell, leaf-spine, fat-tree, with KEY=VALUE after a colon as in
fat-tree:k=8,oversubscription=4; or a file of the ns-3 RDMA simulators.
Workloads, joined by +, of which each may have a load of its own:
  irn-heavy, irn-imc10, irn-uniform, fixed:SIZE, cdf:FILE   Poisson arrivals; irn-heavy:load=0.6
  cdf:NAME           AliStorage2019, CacheFollower, FbHdp2015, GoogleRPC2008, IMC10, NdpWeb, Solar2022,
                     WebSearch, WebServer
  cdf:FILE,discrete=on,unit=1460 only the sizes of its points; in packets of 1460 bytes
  incast:senders=N,bytes=SIZE    many to one; senders=all,each=SIZE,to=random,load=0.05
  foreground                     bursts of short flows, a share of the load: foreground:share=0.05
  permutation:bytes=SIZE         each to one
  closed-loop:connections=5,gap=1ms,cdf=NAME   each flow starts a gap after another has ended
  file:FILE                      flows of the ns-3 RDMA simulators
Units: rates as 40G (bit/s), times as 2us, sizes as 240KB (1000) or 64K (1024).
docs/simulation.md has the rest.

The same options and seed give the same files, byte for byte, on any machine and with any --jobs.
Exit status: 0 done, 1 failed (the reason is on stderr), 2 bad arguments or files, 130 interrupted
(results of the runs that were done; of a single run, those up to then).

Examples:
  irnic sim                                   the IRN paper's default case
  irnic sim --transport roce --pfc on         what it is compared with
  irnic sim --transport irn --transport roce --load 0.3 --load 0.9 --html report.html
  irnic sim --topology leaf_spine.txt --flows flows.txt --switch shared-buffer --per-flow fct.csv
  irnic sim --workload cdf:WebSearch+foreground --load 0.2
  irnic sim --workload irn-heavy:load=0.6+incast:senders=all,each=8KB,to=random,load=0.05
  irnic sim --topology fat-tree --workload incast:senders=30,bytes=150MB --seeds 10
  irnic sim --experiment grid.toml --json grid.json";

/// A datacenter network of software NICs in virtual time: how long flows take, and what the network does meanwhile.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct SimArgs {
    /// Experiment file (TOML)
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,

    /// Network: a description or a file [default: fat-tree:k=6,rate=40G,delay=2us]
    #[arg(long, value_name = "SPEC|FILE", help_heading = "Network and traffic")]
    topology: Vec<String>,
    /// What is sent [default: irn-heavy]
    #[arg(long, value_name = "SPEC", help_heading = "Network and traffic")]
    workload: Vec<String>,
    /// Flow file, instead of a workload
    #[arg(long, value_name = "FILE", help_heading = "Network and traffic")]
    flows: Vec<String>,
    /// Share of the hosts' rate that Poisson arrivals offer, if their part of the workload does not say it [default:
    /// 0.7]
    #[arg(long, value_name = "SHARE", help_heading = "Network and traffic")]
    load: Vec<String>,
    /// How long Poisson arrivals, incasts by load and closed loops go on [default: 10ms, without --flows-count]
    #[arg(long, value_name = "TIME", help_heading = "Network and traffic")]
    duration: Vec<String>,
    /// How many flows of Poisson arrivals and closed loops there are at most, of each part of the workload
    #[arg(long, value_name = "N", help_heading = "Network and traffic")]
    flows_count: Vec<String>,
    /// Priority of generated flows, 0 to 7 [default: 0]
    #[arg(long, value_name = "N", help_heading = "Network and traffic")]
    priority: Vec<String>,
    /// down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME; LINK is a number or two nodes, A-B. May be repeated
    #[arg(long, value_name = "EVENT", help_heading = "Network and traffic")]
    link_event: Vec<String>,

    /// Loss recovery, flow control and timers: roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp, and
    /// parameters as in irn,cap=110; joined by + one for each part of the workload [default: irn]
    #[arg(long, value_name = "NAME", help_heading = "NICs")]
    transport: Vec<String>,
    /// Congestion control: none, aimd, timely, timely-patched, fast, dcqcn, dcqcn-vendor, dctcp, hpcc or tcp, and
    /// parameters as in timely,t-low=50us [default: none, but for iwarp's tcp]
    #[arg(long, value_name = "NAME", help_heading = "NICs")]
    cc: Vec<String>,
    /// Most packets in flight of a queue pair, or none [default: the transport's; 110 for irn]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    cap: Vec<String>,
    /// IRN's timeout while few packets are in flight [default: 100us]
    #[arg(long, value_name = "TIME", help_heading = "NICs")]
    rto_low: Vec<String>,
    /// IRN's other timeout, and the only one of RoCE without PFC; with PFC, RoCE has none [default: 320us]
    #[arg(long, value_name = "TIME", help_heading = "NICs")]
    rto_high: Vec<String>,
    /// Packets in flight up to which --rto-low holds [default: 3]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    n: Vec<String>,
    /// Queue pairs: per-flow or reused [default: per-flow]
    #[arg(long, value_name = "HOW", help_heading = "NICs")]
    qps: Vec<String>,
    /// Packets that a NIC sends of a queue pair before it is the next one's turn [default: 1]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    quantum: Vec<String>,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048, 4096 or 8192 [default: 1024]
    #[arg(long, value_name = "BYTES", help_heading = "NICs")]
    mtu: Vec<String>,
    /// Bytes around the payload: real, or fixed:N [default: real]
    #[arg(long, value_name = "HOW", help_heading = "NICs")]
    headers: Vec<String>,

    /// input-queued, shared-buffer or trimming [default: input-queued]
    #[arg(long, value_name = "KIND", help_heading = "Switches")]
    switch: Vec<String>,
    /// Buffer of each input, or shared by all ports [default: 240KB, or 9MB]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    buffer: Vec<String>,
    /// input-queued: outputs that an input sends to at a time, or none for no limit [default: none]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    speedup: Vec<String>,
    /// Priority flow control: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    pfc: Vec<String>,
    /// input-queued: XOFF above so many bytes of an input [default: buffer less headroom]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_threshold: Vec<String>,
    /// input-queued: XON at so many bytes [default: 3 KiB below the threshold]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    xon: Vec<String>,
    /// Room for what arrives after XOFF [default: by rate, delay and longest packet of the links]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_headroom: Vec<String>,
    /// shared-buffer: a queue holds at most so many times what is free [default: 1]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    alpha: Vec<String>,
    /// shared-buffer: a queue holds at most so many bytes of red packets (TLT) [default: colours do not matter]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    colour_threshold: Vec<String>,
    /// shared-buffer: XOFF when an input holds more than so many times what is free [default: 1/16]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    pfc_alpha: Vec<String>,
    /// shared-buffer: what each input has before it takes from the shared part [default: 4096]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_reserve: Vec<String>,
    /// shared-buffer: XON so many bytes below the threshold [default: 3072]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_resume: Vec<String>,
    /// trimming: what an output holds of packets with payload, in full packets or as a size [default: 8]
    #[arg(long, value_name = "N|SIZE", help_heading = "Switches")]
    data_queue: Vec<String>,
    /// trimming: what an output holds of packets without payload [default: as many bytes]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    header_queue: Vec<String>,
    /// trimming: packets without payload for each one with, while both wait [default: 10]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    wrr: Vec<String>,
    /// trimming: the arriving packet or the last in the queue loses its payload (coin), the arriving one (arriving), or
    /// that and its headers wait in its place (fifo) [default: coin]
    #[arg(long, value_name = "WHICH", help_heading = "Switches")]
    trim: Vec<String>,
    /// trimming: headers that find no room go back to their sender: on or off [default: on]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    return_headers: Vec<String>,
    /// Marking: off, step:SIZE or red:KMIN,KMAX,PMAX [default: off, unless --cc needs it]
    #[arg(long, value_name = "RULE", help_heading = "Switches")]
    ecn: Vec<String>,
    /// Choice among priorities: strict or round-robin [default: strict]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    scheduling: Vec<String>,
    /// Choice among equally short ways: ecmp, spray, random, source or static [default: ecmp]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    routing: Vec<String>,

    /// Where all chance comes from [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seed: Vec<String>,
    /// So many seeds from --seed on; the table has means
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seeds: Option<String>,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub jobs: Option<usize>,
    /// End then, in the network's time [default: when all flows are complete]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    until: Vec<String>,
    /// Look at queues and rates so often [default: 10us with --series or --html, else never]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    sample: Vec<String>,
    /// Cross-check: real frames with real payload, all of it verified; the same results, slower
    #[arg(long, help_heading = "Run")]
    verify: bool,

    /// Every flow, as CSV; as Parquet if the name ends in .parquet and irnic was built with the feature parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub per_flow: Option<PathBuf>,
    /// Summaries of all runs
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Queues and rates over time, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub series: Option<PathBuf>,
    /// Report with plots, one file that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl SimArgs {
    /// Returns the values of keys that were given.
    pub fn values(&self) -> Values {
        let on = ["on".to_owned()];
        let verify: &[String] = if self.verify { &on } else { &[] };
        let events = if self.link_event.is_empty() { Vec::new() } else { vec![self.link_event.join(",")] };
        let given: [(&str, &[String]); 41] = [
            ("topology", &self.topology),
            ("workload", &self.workload),
            ("flows", &self.flows),
            ("load", &self.load),
            ("duration", &self.duration),
            ("flows-count", &self.flows_count),
            ("priority", &self.priority),
            ("link-event", &events),
            ("transport", &self.transport),
            ("cc", &self.cc),
            ("cap", &self.cap),
            ("rto-low", &self.rto_low),
            ("rto-high", &self.rto_high),
            ("n", &self.n),
            ("qps", &self.qps),
            ("quantum", &self.quantum),
            ("mtu", &self.mtu),
            ("headers", &self.headers),
            ("switch", &self.switch),
            ("buffer", &self.buffer),
            ("speedup", &self.speedup),
            ("pfc", &self.pfc),
            ("pfc-threshold", &self.pfc_threshold),
            ("xon", &self.xon),
            ("pfc-headroom", &self.pfc_headroom),
            ("alpha", &self.alpha),
            ("colour-threshold", &self.colour_threshold),
            ("pfc-alpha", &self.pfc_alpha),
            ("pfc-reserve", &self.pfc_reserve),
            ("pfc-resume", &self.pfc_resume),
            ("data-queue", &self.data_queue),
            ("header-queue", &self.header_queue),
            ("wrr", &self.wrr),
            ("trim", &self.trim),
            ("return-headers", &self.return_headers),
            ("ecn", &self.ecn),
            ("scheduling", &self.scheduling),
            ("routing", &self.routing),
            ("until", &self.until),
            ("sample", &self.sample),
            ("verify", verify),
        ];
        let given = given.into_iter().filter(|(_, texts)| !texts.is_empty()).filter_map(|(name, texts)| {
            let key = find(name)?.name();
            Some((key, texts.iter().map(|text| Written::flag(key, text)).collect()))
        });
        given.collect()
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::experiment::KEYS;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SimArgs,
    }

    #[test]
    fn every_key_is_an_option() {
        for key in &KEYS {
            let option = format!("--{}", key.name());
            let line = if key.name() == "verify" { vec!["sim", &option] } else { vec!["sim", &option, "on"] };
            let values = <Line as clap::Parser>::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args.values();
            assert_eq!(values.keys().collect::<Vec<_>>(), [&key.name()]);
            assert_eq!(values[key.name()], [Written::flag(key.name(), "on")]);
        }
    }
}
