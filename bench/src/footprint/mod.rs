//! `irnic footprint`: the per-queue-pair state of a hardware NIC, compared with IRN's own figures.
//!
//! [`state`] takes the lists from connected queue pairs, [`paper`] has the dissertation's, [`report`] prints both.

mod paper;
mod report;
mod state;

use std::process::ExitCode;

use clap::Args;
use irnic_transports::wire::Mtu;
use irnic_units::{self as units, RATE, SIZE, TIME};

use irnic_report::output::print;

const AFTER_HELP: &str = "\
Bits are those of the fields of irnic's own state machines, at the width that their values need. Fields that real NICs
keep in host memory, that all queue pairs share, or that are statistics are not counted; --fields lists them with the
reason. The BDP cap and the bitmaps (rings of a power of two) follow from rate, round trip and MTU, unless a transport sets
its cap; without a cap, bitmaps are as long as the window. The figures next to IRN's are its authors' (dissertation, 4.5.1).

Examples:
  irnic footprint                                          every transport, 40 Gbit/s, 24 us
  irnic footprint --rate 100gbps --qps 2000 --wqes 20000   totals of a NIC with 2,000 queue pairs
  irnic footprint --transport roce,cc=dcqcn --transport ndp --fields
  irnic footprint --json";

/// Show the state that a NIC keeps per queue pair and work request, field by field.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct FootprintArgs {
    /// Preset with parameters, as in irn,cap=110 or roce,cc=dcqcn; may be repeated [default: all presets except auto]
    #[arg(long, value_name = "NAME")]
    transport: Vec<String>,
    /// Link rate of the NIC
    #[arg(long, value_name = "RATE", default_value = "40gbps")]
    rate: String,
    /// Round-trip time of the longest path, without queueing
    #[arg(long, value_name = "TIME", default_value = "24us")]
    rtt: String,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048, 4096 or 8192
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    mtu: String,
    /// Maximum outstanding READs and atomics, in each direction, 0 to 128
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(0..=128))]
    reads: u8,
    /// Number of queue pairs of the NIC, 1 to 2^24
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    qps: u32,
    /// Number of request WQEs of the NIC, and of receive WQEs, 0 to 2^30
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    wqes: u32,
    /// Cache of the NIC; M is 2^20 (the paper's NICs have "several MBs")
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    cache: String,
    /// Show every field, with its bits or the reason why it has none
    #[arg(long)]
    fields: bool,
    /// Print JSON, with every field
    #[arg(long)]
    json: bool,
}

/// Parameters of the NIC.
#[derive(Copy, Clone, Debug)]
struct Setting {
    /// Rate, bit/s.
    rate: u64,
    /// Round trip, ns.
    rtt: u64,
    mtu: Mtu,
    reads: u8,
    qps: u32,
    wqes: u32,
    /// On-chip memory, bytes.
    cache: u64,
}

/// Difference between a packet's length and its payload: Ethernet with its FCS (18), IPv4 (20), UDP (8), BTH (12) and
/// ICRC (4).
const OVERHEAD: u64 = 62;

impl Setting {
    /// Number of full packets in the bandwidth-delay product, at least one: IRN's cap (§4.2.2).
    fn cap(&self) -> u64 {
        let bytes = u128::from(self.rate) * u128::from(self.rtt) / 8_000_000_000;
        let packets = bytes / u128::from(self.mtu.bytes() as u64 + OVERHEAD);
        u64::try_from(packets).unwrap_or(u64::MAX).max(1)
    }

    /// Length of the authors' bitmaps, bits: that of the cap, in chunks of 32 (§4.5.2).
    fn bitmap(&self) -> u64 {
        self.cap().next_multiple_of(32)
    }
}

/// Maximum cap that irnic supports, packets.
const MOST: u64 = 1 << 16;

fn setting(args: &FootprintArgs) -> Result<Setting, String> {
    let read = |option: &str, text: &str, value: Option<u64>, expected: &str| {
        value.filter(|v| *v > 0).ok_or_else(|| format!("{option} {text}: expected {expected}"))
    };
    let rate = read("--rate", &args.rate, units::rate(&args.rate), RATE)?;
    if let Some(expected) = units::too_slow(&args.rate, rate) {
        return Err(format!("--rate {}: expected {expected}", args.rate));
    }
    let mtu = args.mtu.parse().ok().and_then(Mtu::from_bytes);
    let setting = Setting {
        rate,
        rtt: read("--rtt", &args.rtt, units::time(&args.rtt), TIME)?,
        mtu: mtu.ok_or_else(|| format!("--mtu {}: expected 256, 512, 1024, 2048, 4096 or 8192", args.mtu))?,
        reads: args.reads,
        qps: args.qps,
        wqes: args.wqes,
        cache: read("--cache", &args.cache, units::size(&args.cache), SIZE)?,
    };
    if setting.cap() > MOST {
        let cap = setting.cap();
        return Err(format!(
            "--rate and --rtt: a bandwidth-delay product of {cap} packets, at most {MOST} can be tracked"
        ));
    }
    Ok(setting)
}

/// Runs `irnic footprint`.
pub fn main(args: &FootprintArgs) -> ExitCode {
    let made = setting(args).and_then(|setting| Ok((setting, state::all(&args.transport, &setting)?)));
    match made {
        Ok((setting, transports)) if args.json => print(&format!("{:#}\n", report::json(&setting, &transports))),
        Ok((setting, transports)) => print(&report::text(&setting, &transports, args.fields)),
        Err(e) => {
            eprintln!("irnic footprint: {e}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
