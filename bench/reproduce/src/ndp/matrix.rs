//! NDP on connection matrices of htsim: the paper's network, with the header, queues and pulls of htsim.

use std::path::Path;

use clap::Parser;
use irnic_fabric::workload::matrix::nodes;
use irnic_report::CommandError;
use irnic_sim::SimArgs;

use super::scenario::{MTU, QUEUE, WINDOW};
use crate::shared::Common;

/// Header of htsim's packets, bytes (`NdpPacket::ACKSIZE`).
const HEADER: u32 = 64;
/// Rate of htsim's pulls, as a share of the link's (`NdpPullPacer` in `main_ndp.cpp`).
const PULL_RATE: f64 = 0.99;
/// Headers for each data packet, where both wait: the most that there may be. With htsim's 100,000
/// (`CompositeQueue::_ratio_high`), too, headers practically go first.
const HEADERS_FIRST: u32 = 1 << 16;
/// Largest number of ports of a switch: `-nodes 8192` in htsim's largest scripts.
const MAX_ARITY: u32 = 32;

/// `irnic sim`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    sim: SimArgs,
}

/// Runs a matrix, and compares with another simulator's results.
pub fn run(path: &Path, beside: Option<&str>, common: &Common) -> Result<(), CommandError> {
    if common.sweep.out.is_some() {
        return Err(CommandError::Usage("--matrix: --out does not go with it; `irnic sim` has both".to_owned()));
    }
    let words = arguments(path, beside, common)?;
    println!("irnic sim {}\n", irnic_sweep::quoted(&words));
    let line = Line::try_parse_from(&words).map_err(|e| CommandError::Usage(e.to_string()))?;
    irnic_sim::run(&line.sim)
}

/// Returns the arguments of `irnic sim`.
fn arguments(path: &Path, beside: Option<&str>, common: &Common) -> Result<Vec<String>, CommandError> {
    let usage = |what: String| CommandError::Usage(format!("--matrix {what}"));
    let nodes = nodes(path).map_err(|e| usage(e.to_string()))?;
    let fat_trees = || (4..=MAX_ARITY).step_by(2).map(|k| (k, k * k * k / 4));
    let Some((k, _)) = fat_trees().find(|(_, hosts)| *hosts == nodes) else {
        let sizes: Vec<String> = fat_trees().map(|(_, hosts)| hosts.to_string()).collect();
        let sizes = sizes.join(", ");
        return Err(usage(format!("{}: {nodes} nodes; expected those of a fat-tree: {sizes}", path.display())));
    };
    let mut words: Vec<String> = Vec::new();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("topology", format!("fat-tree:k={k},rate=10G,delay=1us"));
    option("mtu", MTU.bytes().to_string());
    option("headers", format!("fixed:{HEADER}"));
    option("switch", "trimming".to_owned());
    // Bytes of as many payloads (`memFromPkt`), so that one packet less fits with its header; twice as many of headers.
    let data = QUEUE * MTU.bytes() as u64;
    option("data-queue", format!("{data}B"));
    option("header-queue", format!("{}B", 2 * data));
    option("wrr", HEADERS_FIRST.to_string());
    option("routing", "source".to_owned());
    option("transport", format!("ndp,iw={WINDOW},pull-rate={PULL_RATE}"));
    option("workload", format!("cm:{},unit=ps", path.display()));
    option("seed", common.seed.to_string());
    if common.seeds > 1 {
        option("seeds", common.seeds.to_string());
    }
    if let Some(jobs) = common.jobs {
        option("jobs", jobs.to_string());
    }
    if let Some(json) = &common.json {
        option("json", json.display().to_string());
    }
    if let Some(beside) = beside {
        option("beside", beside.to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<String, String> {
        #[derive(Parser)]
        struct Args {
            #[command(flatten)]
            common: Common,
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.cm");
        std::fs::write(&path, text).unwrap();
        let common = Args::parse_from(["ndp", "--seeds", "2"]).common;
        let words = arguments(&path, Some("htsim:out.txt"), &common).map_err(|e| e.to_string());
        let without = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
        words.map(|words| without(words.join(" "))).map_err(without)
    }

    #[test]
    fn the_network_is_the_fat_tree_with_as_many_hosts() {
        assert_eq!(
            line("Nodes 128\nConnections 0\n").unwrap(),
            "--topology fat-tree:k=8,rate=10G,delay=1us --mtu 8192 --headers fixed:64 --switch trimming --data-queue 65536B \
             --header-queue 131072B --wrr 65536 --routing source --transport ndp,iw=23,pull-rate=0.99 --workload cm:m.cm,unit=ps --seed 1 --seeds 2 --beside htsim:out.txt"
        );
        for (text, why) in [
            ("Nodes 17\n", "--matrix m.cm: 17 nodes; expected those of a fat-tree: 16, 54, 128, 250, "),
            ("Connections 3\n", "--matrix m.cm:1: expected Nodes and a number below 4294967295, found `Connections 3`"),
        ] {
            let error = line(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
