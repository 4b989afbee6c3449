//! The command line of `irnic sim`.

use std::path::PathBuf;

use clap::Args;
use irnic_sweep::SweepArgs;

use irnic_fabric::experiment::Values;

use crate::network_args::{NetworkArgs, given};
use crate::port_capture::PcapArgs;
use crate::replay::ScheduleArgs;

const AFTER_HELP: &str = "\
Several values: an option that is given more than once (--link-event and --detour apart), or a list in an
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

Topologies: star, dumbbell, leaf-spine, ring, fat-tree, with KEY=VALUE after a colon as in
fat-tree:k=8,oversubscription=4; or a file of the ns-3 RDMA simulators.
Workloads, joined by +, of which each may have a load of its own:
  irn-heavy, irn-imc10, irn-uniform, fixed:SIZE, cdf:FILE   Poisson arrivals; irn-heavy:load=0.6
  cdf:NAME           AliStorage2019, CacheFollower, FbHdp2015, GoogleRPC2008, IMC10, NdpWeb, RoccHadoop, Solar2022,
                     WebSearch, WebServer
  cdf:FILE,discrete=on,unit=1460 only the sizes of its points; in packets of 1460 bytes
  rpc:load=0.3,to=farthest       64 KiB there, and 64 KiB back when they are; request=SIZE,response=SIZE
  incast:senders=N,bytes=SIZE    many to one; senders=all,each=SIZE,to=random,load=0.05
  foreground                     bursts of short flows, a share of the load: foreground:share=0.05
  permutation:bytes=SIZE         each to one
  closed-loop:connections=5,gap=1ms,cdf=NAME   each flow starts a gap after another has ended
  file:FILE                      flows of the ns-3 RDMA simulators
Units: rates as 40G (bit/s), times as 2us, sizes as 240KB (1000) or 64K (1024).
docs/simulation.md has the rest.

The same options and seed give the same files, byte for byte, on any machine, with any --jobs and
any --threads.
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
  irnic sim --experiment grid.toml --json grid.json
  irnic sim --experiment grid.toml --out runs/ --shard 3/64     a part; irnic merge runs/ has all
  irnic sim --experiment grid.toml --out runs/ --print slurm --shards 64 > job.sh";

/// Simulate a datacenter network of software NICs in virtual time: how long flows take, and what the network does
/// meanwhile.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct SimArgs {
    /// Experiment file (TOML)
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkArgs,
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
    /// Switches with --cc rocc: qref, qmid, qmax, chunk, alpha, beta, t, fraction, such as qref=75KB,t=100us [default:
    /// the paper's for the rate of each link]
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = "Network and traffic")]
    rocc: Vec<String>,
    /// A run in which a deadlock is found: end, or continue until nothing is due or --until [default: end]
    #[arg(long, value_name = "end|continue", help_heading = "Run")]
    deadlock: Vec<String>,
    /// Queue pairs: per-flow or reused [default: per-flow]
    #[arg(long, value_name = "HOW", help_heading = "NICs")]
    qps: Vec<String>,
    /// Connections: rc, or uc, whose flows are open-loop: they leave as fast as the sender's link takes them, and
    /// nothing is sent again [default: rc]
    #[arg(long, value_name = "rc|uc", help_heading = "NICs")]
    service: Vec<String>,
    /// Bytes around the payload: real, or fixed:N [default: real]
    #[arg(long, value_name = "HOW", help_heading = "NICs")]
    headers: Vec<String>,
    /// Where all chance comes from [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seed: Vec<String>,
    /// So many seeds from --seed on; the table has means
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seeds: Option<String>,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub jobs: Option<usize>,
    /// Threads for each run, which share its network out among them; the same results. With more than one, --jobs is by
    /// default so many times smaller [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
    /// End then, in the network's time [default: when all flows are complete]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    until: Vec<String>,
    /// Look at queues and rates so often [default: 10us with --series or --html, else never]
    #[arg(long, value_name = "TIME", help_heading = "Run")]
    sample: Vec<String>,
    /// Cross-check: real frames with real payload, all of it verified; the same results, slower
    #[arg(long, help_heading = "Run")]
    verify: bool,
    /// Every flow, as CSV; as Parquet if the name ends in .parquet and irnic was built with the feature parquet; - is
    /// standard output, as CSV, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub per_flow: Option<PathBuf>,
    /// Summaries of all runs; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// With --out: keep neither flows nor queues over time, so that files are small
    #[arg(long, requires = "out", help_heading = "Sweep")]
    pub summaries_only: bool,
    #[command(flatten)]
    pub(crate) pcap: PcapArgs,
    /// Queues and rates over time, as CSV; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub series: Option<PathBuf>,
    /// Report with plots, one file that needs nothing else; - is standard output, in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl SimArgs {
    /// Returns how runs are made.
    pub fn sweep(&mut self) -> &mut SweepArgs {
        &mut self.sweep
    }

    /// Returns the values of keys that were given.
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
