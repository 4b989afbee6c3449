//! `irnic rtt`: round trips by three clocks, as in TIMELY's Figure 11, and of the kernel's TCP for comparison, as in
//! its Figure 1.
//!
//! `measure` measures them, `tcp` those of TCP, `report` prints them, `picture` draws them.

mod measure;
mod picture;
mod report;
mod tcp;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use irnic_nic::clock::Clock;
use irnic_report::origin::Origin;
use irnic_report::output::OutFile;
use irnic_units::{self as units, TIME};

use crate::error::PerfError;

const AFTER_HELP: &str = "\
An application writes a segment, sleeps until its completion wakes it, and sends the next one a millisecond later. Its round trip is
  NIC         from the transmit stamp of the last packet to the arrival of its acknowledgement, both by the NIC's clock
  calibrated  from the host's clock before posting to that arrival, mapped to the host's time by a line fitted through readings
              of both clocks
  software    from the host's clock before posting to the host's clock after waking up and taking the completion
With --tcp a ping-pong of such segments over a TCP connection of this machine follows
  TCP stack   from the kernel's transmit stamp of a segment's last byte to its stamp of the acknowledgement
  TCP ping    from the host's clock before writing a segment to the host's clock after reading its echo
With --load, one thread per processor, or N threads, only compute. The thread of the NICs has real-time priority if permitted, to act
like hardware; the application does not.

Examples:
  irnic rtt                                                idle, over UDP, stamped by the kernel
  irnic rtt --load --svg rtt.svg                           idle and under load, with a picture
  irnic rtt --tcp --svg rtt.svg                            NIC timestamps versus the kernel's TCP: TIMELY's Figure 1
  irnic rtt --load --timestamps poll --port shm --json -";

/// Measure round trips by NIC timestamps, calibrated timestamps and software, as in TIMELY's Figure 11.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct RttArgs {
    /// Packet carrier
    #[arg(long, value_enum, default_value = "udp")]
    port: PortKind,
    /// Segment size in bytes; K is 2^10
    #[arg(short, long, value_name = "BYTES", default_value = "16K")]
    size: String,
    /// Segments per measurement, 1 to 1000000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iters: u64,
    /// Also measure under load, with this many computing threads, up to 1024 [default: one per processor]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0", value_parser = clap::value_parser!(u16).range(0..=1024))]
    load: Option<u16>,
    /// Arrival time of a packet from UDP: when the kernel took it from the device (kernel), or when the socket was read
    /// (poll)
    #[arg(long, value_enum, default_value = "kernel")]
    timestamps: Timestamps,
    /// Polling interval of the client's NIC, such as 50us, to emulate a busy NIC; 0 polls continuously
    #[arg(long, value_name = "TIME", default_value = "0")]
    look_every: String,
    /// Also measure the kernel's TCP
    #[arg(long)]
    tcp: bool,
    /// Clock of the NICs: FREQUENCY, then drift=PPM and offset=TICKS
    #[arg(long, value_name = "CLOCK", default_value = "156.25MHz,drift=20")]
    clock: String,
    /// Write the percentiles as JSON to this file; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Plot the distributions as SVG; - writes to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum PortKind {
    Shm,
    Udp,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Timestamps {
    Kernel,
    Poll,
}

/// Parameters of the measurement.
#[derive(Copy, Clone, Debug)]
struct RttPlan {
    udp: bool,
    kernel_stamps: bool,
    size: u32,
    iters: u64,
    /// Polling interval of the client's NIC for packets, ns.
    poll_interval: u64,
    /// Number of computing threads in the second measurement.
    load: Option<usize>,
    clock: Clock,
}

impl RttArgs {
    fn plan(&self) -> Result<RttPlan, PerfError> {
        let size = units::size(&self.size).and_then(|s| u32::try_from(s).ok()).filter(|s| *s <= MAX_SIZE);
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let udp = self.port == PortKind::Udp;
        let poll_interval = units::time(&self.look_every);
        Ok(RttPlan {
            udp,
            kernel_stamps: udp && self.timestamps == Timestamps::Kernel,
            size: size.ok_or_else(|| PerfError::Usage(format!("--size {}: expected 1 byte to 1 MiB", self.size)))?,
            iters: self.iters,
            poll_interval: poll_interval
                .ok_or_else(|| PerfError::Usage(format!("--look-every {}: expected {TIME}", self.look_every)))?,
            load: self.load.map(|n| if n == 0 { processors() } else { n.into() }),
            clock: self.clock.parse().map_err(|e| PerfError::Usage(format!("--clock {}: {e}", self.clock)))?,
        })
    }
}

#[cfg(test)]
impl RttPlan {
    /// A plan of ten segments of 16 KiB over UDP.
    fn of_udp() -> RttPlan {
        let clock = "156.25MHz".parse().expect("a clock");
        RttPlan { udp: true, kernel_stamps: true, size: 16 << 10, iters: 10, poll_interval: 0, load: None, clock }
    }
}

/// Maximum size of a segment, bytes.
const MAX_SIZE: u32 = 1 << 20;

/// Entry point of the subcommand.
pub fn main(args: &RttArgs) -> ExitCode {
    let run = || -> Result<(), PerfError> {
        let plan = args.plan()?;
        let open = |option: &str, opened: Option<Result<OutFile, String>>| {
            opened.transpose().map_err(|e| PerfError::Usage(format!("{option} {e}")))
        };
        let svg = open("--svg", args.svg.as_deref().map(OutFile::open))?;
        let json = open("--json", args.json.as_deref().map(OutFile::open))?;
        let interrupted = irnic_report::interrupt::flag()?;
        let case = |load| -> Result<measure::Case, PerfError> {
            let tcp = args.tcp.then(|| tcp::run(&plan, load, &interrupted)).transpose()?;
            Ok(measure::Case { tcp, ..measure::run(&plan, load, &interrupted)? })
        };
        let mut cases = vec![case(0)?];
        if let Some(threads) = plan.load {
            cases.push(case(threads)?);
        }
        let origin = Origin::of_process();
        let drawn = svg.map(|file| file.write(|to| to.write_all(picture::draw(&plan, &cases, &origin).as_bytes())));
        let written = json.map(|file| file.write(|to| writeln!(to, "{:#}", report::json(&plan, &cases, &origin))));
        report::print(&plan, &cases, &origin);
        for (option, written) in [("--svg", drawn), ("--json", written)] {
            written.unwrap_or(Ok(())).map_err(|e| PerfError::Failed(format!("{option} {e}")))?;
        }
        Ok(())
    };
    crate::error::exit("irnic rtt", run())
}
