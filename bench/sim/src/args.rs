//! The command line of `irnic sim`.

use std::path::PathBuf;

use clap::Args;
use irnic_sweep::SweepArgs;

use irnic_fabric::experiment::Values;

use crate::network_args::{NetworkArgs, given};
use crate::port_capture::PcapArgs;
use crate::replay::ScheduleArgs;

const AFTER_HELP: &str = "\
Grids: an option given more than once (except --link-event, --detour, --switch-at and --policy-event),
or a list in an experiment file, runs every combination, in parallel. Keys of an experiment file are
option names; [[run]] tables list single runs instead of combinations:
  duration = \"10ms\"
  load = [0.5, 0.7, 0.9]
  [[run]]
  transport = \"irn\"
  [[run]]
  transport = \"roce\"
  pfc = \"on\"
Options on the command line override the file.

Topologies: star, dumbbell, leaf-spine, ring, fat-tree, with KEY=VALUE after a colon as in
fat-tree:k=8,oversubscription=4; or a file of the ns-3 RDMA simulators.
Workloads, joined by +; each may have its own load:
  irn-heavy, irn-imc10, irn-uniform, fixed:SIZE, cdf:FILE   Poisson arrivals; irn-heavy:load=0.6
  cdf:NAME           AliStorage2019, CacheFollower, FbHdp2015, GoogleRPC2008, IMC10, NdpWeb, RoccHadoop, Solar2022,
                     WebSearch, WebServer
  cdf:FILE,discrete=on,unit=1460 only the sizes at its points; in packets of 1460 bytes
  rpc:load=0.3,to=farthest       64 KiB requests, 64 KiB responses; request=SIZE,response=SIZE
  incast:senders=N,bytes=SIZE    many to one; senders=all,each=SIZE,to=random,load=0.05
  foreground                     bursts of short flows, a share of the load: foreground:share=0.05
  permutation:bytes=SIZE         each host to one other
  closed-loop:connections=5,gap=1ms,cdf=NAME   each flow starts a gap after the previous one ended
  file:FILE                      flows of the ns-3 RDMA simulators
Units: rates as 40G (bit/s), times as 2us, sizes as 240KB (1000) or 64K (1024).
See docs/simulation.md for the rest.

The same options and seed produce the same files, byte for byte, on any machine, with any --jobs and
any --threads.
Exit status: 0 done, 1 failed (the reason is on stderr), 2 bad arguments or files, 130 interrupted
(with the results of completed runs or, of a single run, those so far).

Examples:
  irnic sim                                   the IRN paper's default case
  irnic sim --transport roce --pfc on         its baseline
  irnic sim --transport irn --transport roce --load 0.3 --load 0.9 --html report.html
  irnic sim --topology leaf_spine.txt --flows flows.txt --switch shared-buffer --per-flow fct.csv
  irnic sim --workload cdf:WebSearch+foreground --load 0.2
  irnic sim --workload irn-heavy:load=0.6+incast:senders=all,each=8KB,to=random,load=0.05
  irnic sim --topology fat-tree --workload incast:senders=30,bytes=150MB --seeds 10
  irnic sim --experiment grid.toml --json grid.json
  irnic sim --experiment grid.toml --out runs/ --shard 3/64     one shard; irnic merge runs/ merges all
  irnic sim --experiment grid.toml --out runs/ --print slurm --shards 64 > job.sh";

/// Simulate a datacenter network of software NICs in virtual time; report flow completion times and network statistics
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct SimArgs {
    /// Read the experiment from this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkArgs,
    /// Switch parameters of --cc rocc: qref, qmid, qmax, chunk, alpha, beta, t, fraction, such as qref=75KB,t=100us
    /// [default: the paper's for the rate of each link]
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = "Switches")]
    rocc: Vec<String>,
    /// Queue pairs: per-flow or reused [default: per-flow]
    #[arg(long, value_name = "HOW", help_heading = "Transport")]
    qps: Vec<String>,
    /// Connection type: rc, or uc with open-loop flows, which are sent at the rate of the sender's link without
    /// retransmission [default: rc]
    #[arg(long, value_name = "rc|uc", help_heading = "Transport")]
    service: Vec<String>,
    /// Header bytes per packet: real, or fixed:N [default: real]
    #[arg(long, value_name = "HOW", help_heading = "Transport")]
    headers: Vec<String>,
    /// Traffic to generate [default: irn-heavy]
    #[arg(long, value_name = "SPEC", help_heading = "Workload")]
    workload: Vec<String>,
    /// Offered load of Poisson arrivals as a share of the hosts' rate, unless their part of the workload has its own
    /// [default: 0.7]
    #[arg(long, value_name = "SHARE", help_heading = "Workload")]
    load: Vec<String>,
    /// Duration of Poisson arrivals, incasts by load and closed loops [default: 10ms, without --flows-count]
    #[arg(long, value_name = "TIME", help_heading = "Workload")]
    duration: Vec<String>,
    /// Maximum number of flows per part of the workload, of Poisson arrivals and closed loops
    #[arg(long, value_name = "N", help_heading = "Workload")]
    flows_count: Vec<String>,
    /// Read flows from this file instead of generating a workload
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    flows: Vec<String>,
    /// Random seed [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seed: Vec<String>,
    /// Number of seeds, starting at --seed; the table shows means
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seeds: Option<String>,
    /// Number of parallel runs [default: one per core]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub jobs: Option<usize>,
    /// Threads per run, which divide its network among them; the results are the same. With more than one, the default
    /// of --jobs is divided by this number [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
    /// Stop at this simulated time [default: when all flows are complete]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    until: Vec<String>,
    /// On a deadlock, end the run or continue until no events remain or --until [default: end]
    #[arg(long, value_name = "end|continue", help_heading = "Run")]
    deadlock: Vec<String>,
    /// Sampling interval of queues and rates [default: 10us with --series or --html, else never]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    sample: Vec<String>,
    /// Cross-check: send real frames with real payload and verify all of it; same results, slower
    #[arg(long, help_heading = "Run")]
    verify: bool,
    /// Write summaries of all runs as JSON; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a self-contained HTML report with plots; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write every flow as CSV, or as Parquet if the name ends in .parquet and irnic was built with the feature
    /// parquet; - writes CSV to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub per_flow: Option<PathBuf>,
    /// Write queues and rates over time as CSV; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub series: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pcap: PcapArgs,
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// With --out: keep neither flows nor queues over time, for small files
    #[arg(long, requires = "out", help_heading = "Sweep")]
    pub summaries_only: bool,
}

impl SimArgs {
    /// Returns the sweep options.
    pub fn sweep(&mut self) -> &mut SweepArgs {
        &mut self.sweep
    }

    /// Returns the values of the given keys.
    pub fn values(&self) -> Values {
        let on = ["on".to_owned()];
        let verify: &[String] = if self.verify { &on } else { &[] };
        let mut values = self.network.values();
        values.extend(given(&[
            ("workload", &self.workload),
            ("flows", &self.flows),
            ("load", &self.load),
            ("duration", &self.duration),
            ("flows-count", &self.flows_count),
            ("rocc", &self.rocc),
            ("deadlock", &self.deadlock),
            ("qps", &self.qps),
            ("service", &self.service),
            ("headers", &self.headers),
            ("until", &self.until),
            ("sample", &self.sample),
            ("verify", verify),
        ]));
        values
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::experiment::{KEYS, Written};

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
