//! `irnic sim --replay`: replays the packets of a recorded schedule through the switches given by options.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use irnic_fabric::experiment::Experiment;
use irnic_fabric::schedule::{Counts, Header, Replay, Replayed, Schedule};
use irnic_fabric::sim::SimConfig;
use irnic_report::CommandError;
use irnic_report::origin::Origin;
use irnic_report::output::OutFile;
use irnic_sweep::Progress;
use irnic_transports::qp::Service;
use irnic_units as units;
use serde::Serialize;

use crate::execute::SLICE;
use crate::per_flow::Kind;
use crate::schedule_file;

/// Options of schedules.
#[derive(Args, Clone, Debug, Default)]
pub struct ScheduleArgs {
    /// Record the time at which each packet entered and left the network, as CSV, or as Parquet if the name ends in
    /// .parquet; - writes CSV to standard output instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub record: Option<PathBuf>,
    /// With --record: also record the time at which each switch began to send each packet
    #[arg(long, requires = "record", help_heading = "Output")]
    pub record_hops: bool,
    /// Replay the packets of a recorded schedule through these switches instead of a workload, and count those that are
    /// overdue; topology, routing and seed must be those of the record
    #[arg(long, value_name = "FILE", conflicts_with = "record", help_heading = "Workload")]
    pub replay: Option<PathBuf>,
    /// With --replay: contents of packet headers: how long the packet may wait (slack, for --scheduling lstf), when it
    /// left the network (priority, static, for --scheduling rank), or when each switch sent it (vector, which the
    /// switches then follow) [default: slack]
    #[arg(long, value_name = "WHAT", requires = "replay", help_heading = "Workload")]
    pub replay_by: Option<By>,
    /// With --replay: count packets overdue by more than this separately [default: a full packet's time on the slowest
    /// link]
    #[arg(long, value_name = "TIME", requires = "replay", help_heading = "Workload")]
    pub overdue_by: Option<String>,
}

/// What headers say.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// How long the packet may wait
    Slack,
    /// When it left the network, as its priority
    Priority,
    /// When each switch sent it
    Vector,
}

impl By {
    fn header(self) -> Header {
        match self {
            By::Slack => Header::Slack,
            By::Priority => Header::Exit,
            By::Vector => Header::Vector,
        }
    }
}

/// Shares of the packets in the original by congestion points, and their results.
#[derive(Serialize)]
struct Row {
    congestion_points: Option<usize>,
    packets: u64,
    overdue: u64,
    beyond_rounding: u64,
    late: u64,
    lost: u64,
}

impl Row {
    fn of(congestion_points: Option<usize>, counts: &Counts) -> Row {
        let Counts { packets, overdue, beyond_rounding, late, lost } = *counts;
        Row { congestion_points, packets, overdue, beyond_rounding, late, lost }
    }
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    irnic: &'a str,
    command: &'a str,
    late_above_ns: u64,
    worst_ns: u64,
    rows: Vec<Row>,
    /// Distribution of queueing ratios: share of the packets that waited, and the ratio that it does not exceed.
    ratios: Vec<(f64, f64)>,
}

/// Shares at which the distribution of ratios is shown.
const SHARES: [f64; 7] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99];

/// Replays the schedule of the arguments with an experiment's network. `origin`: how to do that again.
pub fn run(
    args: &ScheduleArgs,
    mut experiment: Experiment,
    seed: u64,
    origin: &Origin,
    json: Option<OutFile>,
) -> Result<(), CommandError> {
    let Some(path) = &args.replay else { return Ok(()) };
    let usage = |e: String| CommandError::Usage(e);
    let by = args.replay_by.unwrap_or(By::Slack);
    if by == By::Vector && experiment.preempt {
        return Err(usage(
            "--preempt: does not go with --replay-by vector, which has packets sent in one piece".to_owned(),
        ));
    }
    let kind = Kind::of("--replay", path).map_err(usage)?;
    // Timers and windows of reliable connections are not used.
    experiment.service = Service::Uc;
    let config = experiment.lab(seed).map_err(|e| CommandError::Usage(e.to_string()))?;
    let schedule = schedule_file::read(path, kind).map_err(|e| CommandError::Usage(format!("--replay {e}")))?;
    let late = late(args, &config, &schedule)?;
    let failed =
        |e: irnic_fabric::schedule::ReplayError| CommandError::Usage(format!("--replay {}: {e}", path.display()));
    let mut replay = Replay::new(config.network(), Arc::new(schedule), by.header()).map_err(failed)?;
    let progress = Progress::new(1, replay.progress().1);
    let mut arrived = 0;
    while !replay.run(SLICE).map_err(failed)? {
        let now = replay.progress().0;
        progress.add(now - arrived);
        arrived = now;
    }
    progress.finish();
    let replayed = replay.outcome(late).map_err(failed)?;
    print(&replayed, late);
    println!("{origin}");
    let Some(json) = json else { return Ok(()) };
    let document = document(&replayed, late, origin);
    let written = json.write(|to| {
        serde_json::to_writer_pretty(&mut *to, &document)?;
        writeln!(to)
    });
    written.map_err(|e| CommandError::Failed(format!("--json {e}")))
}

/// Returns the delay above which packets are counted separately, ns.
fn late(args: &ScheduleArgs, config: &SimConfig, schedule: &Schedule) -> Result<u64, CommandError> {
    if let Some(text) = &args.overdue_by {
        return units::time(text)
            .ok_or_else(|| CommandError::Usage(format!("--overdue-by {text}: expected {}", units::TIME)));
    }
    let slowest = config.topology.links.iter().map(|link| link.rate).min().unwrap_or(1);
    let longest = schedule.packets().iter().map(|packet| packet.wire).max().unwrap_or(0);
    Ok((u64::from(longest) * 8_000_000_000).div_ceil(slowest.max(1)))
}

fn document<'a>(replayed: &Replayed, late: u64, Origin { command, irnic }: &'a Origin) -> Document<'a> {
    let by_points = replayed.by_points.iter().enumerate().map(|(n, counts)| Row::of(Some(n), counts));
    Document {
        irnic,
        command,
        late_above_ns: late,
        worst_ns: replayed.worst,
        rows: std::iter::once(Row::of(None, &replayed.all)).chain(by_points).collect(),
        ratios: (0..=100).filter_map(|n| Some((f64::from(n) / 100.0, replayed.ratio(f64::from(n) / 100.0)?))).collect(),
    }
}

fn print(replayed: &Replayed, late: u64) {
    println!(
        "{:>18} {:>12} {:>9} {:>16} {:>9} {:>9}",
        "congestion points", "packets", "overdue", "beyond rounding", "late", "lost"
    );
    let row = |name: &str, counts: &Counts| {
        let share = |n: u64| counts.share(n);
        println!(
            "{name:>18} {:>12} {:>9.6} {:>16.6} {:>9.6} {:>9.6}",
            counts.packets,
            share(counts.overdue),
            share(counts.beyond_rounding),
            share(counts.late),
            share(counts.lost)
        );
    };
    row("all", &replayed.all);
    for (points, counts) in replayed.by_points.iter().enumerate().filter(|(_, counts)| counts.packets > 0) {
        row(&points.to_string(), counts);
    }
    println!("late: by more than {late} ns; the worst by {} ns", replayed.worst);
    if replayed.ratio(0.5).is_some() {
        let at = |share: &f64| format!("{:.3} at {:.0} %", replayed.ratio(*share).unwrap_or(0.0), share * 100.0);
        println!("queueing over that in the schedule: {}", SHARES.iter().map(at).collect::<Vec<_>>().join(", "));
    }
}

/// Rejects options that are incompatible with a replay, by name.
pub fn check(args: &ScheduleArgs, others: &[(&str, bool)]) -> Result<(), CommandError> {
    let option = if args.replay.is_some() { "--replay" } else { "--record" };
    if args.replay.is_none() && args.record.is_none() {
        return Ok(());
    }
    match others.iter().find(|(_, given)| *given) {
        Some((other, _)) => Err(CommandError::Usage(format!("{option}: does not go with {other}"))),
        None => Ok(()),
    }
}
