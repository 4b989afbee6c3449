//! The command line of `irnic sim`.

use std::path::PathBuf;

use clap::Args;
use irnic_sweep::SweepArgs;

use irnic_fabric::experiment::Values;

use crate::beside::Other;
use crate::key_args::{KeyArgs, Network, Run, Simulation};
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
  irnic sim --topology fat.txt --flows flow.txt --transport hpcc --beside ns3:fct.txt
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
    network: KeyArgs<Network>,
    #[command(flatten)]
    simulation: KeyArgs<Simulation>,
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
    #[command(flatten)]
    run: KeyArgs<Run>,
    /// Write summaries of all runs as JSON; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a line per case and seed as CSV, with all settings as columns; - writes to standard output instead of the
    /// table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
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
    /// Print flow completion times beside those that another simulator found for the same flows: htsim:FILE, the output
    /// of a program of csg-htsim, or ns3:FILE, fct.txt of the ns-3 RDMA simulators
    #[arg(long, value_name = "SIMULATOR:FILE", help_heading = "Output")]
    pub beside: Option<Other>,
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
        let all = [self.network.values(), self.simulation.values(), self.run.values()];
        all.into_iter().flatten().map(|(key, values)| (*key, values.clone())).collect()
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
        for key in KEYS.iter() {
            let option = format!("--{}", key.name());
            let line = if key.value_name.is_none() { vec!["sim", &option] } else { vec!["sim", &option, "on"] };
            let values = <Line as clap::Parser>::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args.values();
            assert_eq!(values.keys().collect::<Vec<_>>(), [&key.name()]);
            assert_eq!(values[key.name()], [Written::flag(key.name(), "on")]);
        }
    }

    #[test]
    fn repeated_options_make_a_grid_or_a_list() {
        let lists: Vec<String> = KEYS.iter().filter(|key| key.joined).map(|key| format!("--{}", key.name())).collect();
        assert!(!lists.is_empty());
        let exceptions = AFTER_HELP.split(['(', ')']).nth(1).expect("exceptions");
        for key in KEYS.iter().filter(|key| key.value_name.is_some()) {
            let option = format!("--{}", key.name());
            let line = ["sim", &option, "a", &option, "b"];
            let values = <Line as clap::Parser>::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args.values();
            let texts: Vec<&str> = values[key.name()].iter().map(|written| written.text.as_str()).collect();
            assert_eq!(texts, if lists.contains(&option) { vec!["a,b"] } else { vec!["a", "b"] }, "{option}");
            assert_eq!(exceptions.split([' ', ',']).any(|word| word == option), lists.contains(&option), "{option}");
        }
    }
}
